//! Metadata errors, named by what the caller can do. Errno and S3 code are chosen at the edges.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum MetaError {
    #[error("no such entry")]
    NotFound,
    #[error("no such inode (it was removed)")]
    Stale,
    #[error("entry exists")]
    Exists,
    #[error("not a directory")]
    NotDir,
    #[error("is a directory")]
    IsDir,
    #[error("directory is not empty")]
    NotEmpty,
    #[error("invalid argument: {0}")]
    Invalid(String),
    #[error("name too long")]
    NameTooLong,
    #[error("operation not permitted")]
    NotPermitted,
    #[error("too many links")]
    TooManyLinks,
    #[error("no space")]
    NoSpace,
    #[error("file too large")]
    FileTooLarge,
    /// S3: the key cannot be a path here, or would make a file a directory (409, with this reason).
    #[error("key conflicts with the tree: {0}")]
    KeyConflict(String),
    #[error("no such bucket")]
    NoSuchBucket,
    #[error("bucket exists")]
    BucketExists,
    #[error("bucket is not empty")]
    BucketNotEmpty,
    #[error("no such upload")]
    NoSuchUpload,
    #[error("part {0} is missing, out of order or has another ETag")]
    InvalidPart(u16),
    #[error("part {0} is too small")]
    PartTooSmall(u16),
    #[error("precondition failed")]
    PreconditionFailed,
    /// The session's epoch is over: all its unpublished work is lost.
    #[error("session evicted")]
    Evicted,
    /// A Publish with a gap or a repeat in its number, or one that names stripes outside the session's ranges.
    #[error("publish refused: {0}")]
    PublishRefused(String),
    /// Not now: try again.
    #[error("try again: {0}")]
    Retry(String),
    /// The service cannot go on: the log or the state failed.
    #[error("metadata service failed: {0}")]
    Failed(String),
}

pub type MetaResult<T> = std::result::Result<T, MetaError>;
