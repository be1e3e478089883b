//! The doors over the machine: direct I/O through io_uring or in place, flush domains, the machine's clock.
//!
//! What always holds: a request that is alone on its thread is served by the blocking call at once; with more in hand its
//! thread's ring serves them (see [`ring`]). Threads without a ring always use the blocking call. Buffers live in the
//! ring's slot table until the kernel is done with them, whoever drops the future. A failed flush poisons its domain.
//! What it leaves out: retries, caching, anything about what the bytes mean.

mod clock;
pub mod device;
mod disk;
mod domain;
mod file;
mod mounts;
pub mod probe;
pub mod ring;
pub mod runtime;
mod sys;
pub(crate) mod volume;

pub use clock::{RealClock, random_bytes};
pub use disk::RealDisk;
pub use mounts::{MountLine, mounts, parse_mounts};
pub use volume::{BYTES_MIN as DEVICE_BYTES_MIN, DeviceError, dump as dump_volume};
