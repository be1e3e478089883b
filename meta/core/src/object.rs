//! Objects: what S3 sees under keys, in flat buckets and in trees.
//!
//! What always holds: a key is an object when its name stands for a regular file, or (ending in `/`, in a tree) for a
//! directory that has an object record. Everything else in a tree is invisible as an object.

mod delete;
mod etag;
mod key;
mod put;

pub(crate) use delete::{delete, vanishing};
pub(crate) use etag::{check_condition, check_info, data_changed, etag_of, info, with_etag};
pub(crate) use key::{Found, Spot, find, locate};
pub(crate) use put::{NewObject, place, put};
