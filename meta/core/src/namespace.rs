//! Commands on names in a tree, as POSIX has them. Permissions are the kernel's job; what is checked here is structure.

mod create;
mod links;
mod rename;
mod set_attr;

pub(crate) use create::{New, create, inherit};
pub(crate) use links::{link, rmdir, unlink};
pub(crate) use rename::rename;
pub(crate) use set_attr::set_attr;
