//! The doors over memory, with crashes.
