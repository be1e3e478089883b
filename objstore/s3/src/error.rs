//! The one place where S3 error codes are chosen.

use holdfast_meta_client::MetaError;
use holdfast_objstore_base::failpoint;
use holdfast_objstore_client::Error as ObjectsError;
use s3s::{S3Error, S3ErrorCode};

fn custom(code: &'static str, status: u16, message: String) -> S3Error {
    let mut e = S3Error::with_message(S3ErrorCode::Custom(code.into()), message);
    if let Ok(s) = hyper::StatusCode::from_u16(status) {
        e.set_status_code(s);
    }
    e
}

fn no_space() -> S3Error {
    failpoint::reached("s3.full");
    custom("InsufficientStorage", 507, "The cluster is full; delete something or add devices.".into())
}

pub fn meta(e: MetaError) -> S3Error {
    let code = match &e {
        MetaError::NotFound | MetaError::Stale => S3ErrorCode::NoSuchKey,
        MetaError::NoSuchBucket => S3ErrorCode::NoSuchBucket,
        MetaError::BucketExists => S3ErrorCode::BucketAlreadyOwnedByYou,
        MetaError::BucketNotEmpty => S3ErrorCode::BucketNotEmpty,
        MetaError::NoSuchUpload => S3ErrorCode::NoSuchUpload,
        MetaError::InvalidPart(_) => S3ErrorCode::InvalidPart,
        MetaError::PartTooSmall(_) => S3ErrorCode::EntityTooSmall,
        MetaError::PreconditionFailed => S3ErrorCode::PreconditionFailed,
        MetaError::NameTooLong => S3ErrorCode::KeyTooLongError,
        MetaError::Invalid(_) => S3ErrorCode::InvalidArgument,
        MetaError::FileTooLarge => S3ErrorCode::EntityTooLarge,
        MetaError::NotPermitted => S3ErrorCode::AccessDenied,
        MetaError::NoSpace => return no_space(),
        MetaError::KeyConflict(why) => return custom("KeyConflict", 409, format!("The key does not fit this bucket's tree: {why}")),
        MetaError::Exists | MetaError::NotDir | MetaError::IsDir | MetaError::NotEmpty | MetaError::TooManyLinks => {
            return custom("KeyConflict", 409, format!("The key does not fit this bucket's tree: {e}"));
        }
        MetaError::Evicted | MetaError::Retry(_) => S3ErrorCode::ServiceUnavailable,
        MetaError::PublishRefused(_) | MetaError::Failed(_) => {
            tracing::error!("metadata refused an S3 request: {e}");
            S3ErrorCode::InternalError
        }
    };
    S3Error::with_message(code, e.to_string())
}

pub fn objects(e: ObjectsError) -> S3Error {
    match &e {
        ObjectsError::Full => no_space(),
        ObjectsError::Unavailable { .. } => S3Error::with_message(S3ErrorCode::ServiceUnavailable, e.to_string()),
        ObjectsError::Lost { .. } | ObjectsError::Gone { .. } | ObjectsError::Fenced { .. } => {
            tracing::error!("the object cluster failed an S3 request: {e}");
            S3Error::with_message(S3ErrorCode::InternalError, e.to_string())
        }
    }
}

/// A reply that does not belong to the command sent.
pub fn unexpected(reply: holdfast_objstore_proto::meta::Reply) -> S3Error {
    tracing::error!("metadata answered out of protocol: {reply:?}");
    S3ErrorCode::InternalError.into()
}

/// Whether a failed commit certainly changed nothing, so that the stripes made for it are garbage at once.
pub fn is_definite(e: &MetaError) -> bool {
    !matches!(e, MetaError::Evicted | MetaError::Retry(_) | MetaError::Failed(_))
}
