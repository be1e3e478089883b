//! One file per family of operations.

pub mod bucket;
pub mod complete;
pub mod copy;
pub mod delete;
pub mod get;
pub mod list;
pub mod multipart;
pub mod put;

use bytes::Bytes;
use holdfast_objstore_proto::UploadId;
use s3s::{S3Error, S3ErrorCode, S3Result};

/// A key as metadata takes it.
pub fn key(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Upload ids go out as 16 hex digits.
pub fn upload_text(id: UploadId) -> String {
    format!("{:016x}", id.0)
}

pub fn upload_id(text: &str) -> S3Result<UploadId> {
    // The number parser takes a sign, which no id has.
    let digits = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let n = if digits { u64::from_str_radix(text, 16).ok() } else { None };
    n.map(UploadId).ok_or_else(|| S3ErrorCode::NoSuchUpload.into())
}

/// 1 to 10,000.
pub fn part_number(n: i32) -> S3Result<u16> {
    match u16::try_from(n) {
        Ok(n @ 1..=10_000) => Ok(n),
        _ => Err(S3Error::with_message(S3ErrorCode::InvalidArgument, "part numbers are 1 to 10000")),
    }
}

/// Only the version that every object here has: none, or `null`.
pub fn check_version(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some("null" | "") => Ok(()),
        Some(_) => Err(S3ErrorCode::NoSuchVersion.into()),
    }
}
