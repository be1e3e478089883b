//! From the seams' errors to [`Error`]. What is not the caller's doing is logged here, once, with its reason.

use crate::types::Error;
use holdfast_meta_client::MetaError;
use holdfast_objstore_client as objects;

pub fn from_meta(e: MetaError) -> Error {
    match e {
        MetaError::NotFound | MetaError::NoSuchBucket => Error::NotFound,
        MetaError::Stale => Error::Stale,
        MetaError::Exists | MetaError::BucketExists => Error::Exists,
        MetaError::NotDir => Error::NotDir,
        MetaError::IsDir => Error::IsDir,
        MetaError::NotEmpty | MetaError::BucketNotEmpty => Error::NotEmpty,
        MetaError::Invalid(_) => Error::Invalid,
        MetaError::NameTooLong => Error::NameTooLong,
        MetaError::NotPermitted => Error::NotPermitted,
        MetaError::TooManyLinks => Error::TooManyLinks,
        MetaError::NoSpace => Error::NoSpace,
        MetaError::FileTooLarge => Error::FileTooLarge,
        other => {
            tracing::warn!(error = %other, "metadata");
            Error::Io
        }
    }
}

pub fn from_objects(e: objects::Error) -> Error {
    match e {
        objects::Error::Full => Error::NoSpace,
        other => {
            tracing::warn!(error = %other, "object cluster");
            Error::Io
        }
    }
}
