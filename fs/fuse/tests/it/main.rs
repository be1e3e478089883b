//! Mounts, end to end: files through the kernel, both bindings, both filesystems.

mod files;
mod life;
mod notify;
mod rig;
