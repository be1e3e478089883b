//! The doors over the machine: io_uring, blocking calls, the machine's clock.
