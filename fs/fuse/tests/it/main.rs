//! Mounts, end to end: files through the kernel, both bindings, every filesystem.

mod files;
mod life;
mod notify;
mod rig;
mod vfs;
