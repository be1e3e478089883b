//! Buckets: the unit of ownership, code and access policy.

use super::{Name, TimeNs};
use crate::{BucketId, Code, InodeId};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// Keys are opaque strings: one directory whose names may hold slashes.
    Flat,
    /// A POSIX tree: key = path.
    Tree,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    pub id: BucketId,
    pub name: Name,
    pub shape: Shape,
    pub code: Code,
    pub root: InodeId,
    pub created: TimeNs,
}
