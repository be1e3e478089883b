//! Between HTTP headers and the `ObjectInfo` kept with an object.

use holdfast_objstore_proto::meta::{Attr, ObjectInfo};
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use s3s::dto::{ETag, Timestamp};
use s3s::{S3Error, S3ErrorCode, S3Result};
use std::time::{Duration, UNIX_EPOCH};

/// Headers kept as they come and given back as they were.
const KEPT: [&str; 6] = ["content-type", "cache-control", "content-disposition", "content-encoding", "content-language", "expires"];
const META: &str = "x-amz-meta-";
/// Bytes of all user metadata, as S3 limits it.
const META_BYTES_MAX: usize = 2048;
/// Kept with an upload, not shown as headers of the object.
pub const UPLOAD_ALGORITHM: &str = "holdfast-checksum-algorithm";
pub const UPLOAD_TYPE: &str = "holdfast-checksum-type";

/// The headers to keep with a new object.
pub fn kept_headers(headers: &HeaderMap) -> S3Result<Vec<(String, String)>> {
    let mut kept = Vec::new();
    let mut meta_bytes = 0;
    for (name, value) in headers {
        let name = name.as_str();
        if !KEPT.contains(&name) && !name.starts_with(META) {
            continue;
        }
        let mut value = std::str::from_utf8(value.as_bytes())
            .map_err(|_| S3Error::with_message(S3ErrorCode::InvalidArgument, format!("the header {name} is not UTF-8")))?
            .to_string();
        if name == "content-encoding" {
            // `aws-chunked` describes the transfer, not the object.
            value = value.split(',').map(str::trim).filter(|v| *v != "aws-chunked").collect::<Vec<_>>().join(",");
            if value.is_empty() {
                continue;
            }
        }
        if name.starts_with(META) {
            meta_bytes += name.len() - META.len() + value.len();
        }
        kept.push((name.to_string(), value));
    }
    if meta_bytes > META_BYTES_MAX {
        return Err(S3ErrorCode::MetadataTooLarge.into());
    }
    kept.sort();
    Ok(kept)
}

/// Refuses what this door would otherwise have to ignore.
pub fn refuse_unsupported(headers: &HeaderMap) -> S3Result<()> {
    const REFUSED: [&str; 9] = [
        "x-amz-server-side-encryption",
        "x-amz-server-side-encryption-customer-algorithm",
        "x-amz-tagging",
        "x-amz-object-lock-mode",
        "x-amz-object-lock-legal-hold",
        "x-amz-object-lock-retain-until-date",
        "x-amz-website-redirect-location",
        "x-amz-bucket-object-lock-enabled",
        "x-amz-write-offset-bytes",
    ];
    if let Some(name) = REFUSED.iter().find(|n| headers.contains_key(**n)) {
        return Err(S3Error::with_message(S3ErrorCode::NotImplemented, format!("{name} is not supported")));
    }
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
    if text("x-amz-storage-class").is_some_and(|c| c != "STANDARD") {
        return Err(S3ErrorCode::InvalidStorageClass.into());
    }
    if text("x-amz-acl").is_some_and(|a| !matches!(a, "private" | "bucket-owner-full-control" | "bucket-owner-read")) {
        return Err(S3Error::with_message(S3ErrorCode::NotImplemented, "only private objects are supported"));
    }
    Ok(())
}

/// Adds the kept headers to a response.
pub fn show_headers(info: &ObjectInfo, into: &mut HeaderMap) {
    for (name, value) in &info.headers {
        if let (Ok(n), Ok(v)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes()))
            && !name.starts_with("holdfast-")
        {
            into.append(n, v);
        }
    }
    if !into.contains_key("content-type") {
        into.insert("content-type", HeaderValue::from_static("binary/octet-stream"));
    }
}

/// The ETag without quotes. An object last changed by a mount has one made from its inode and change counter, in a form that
/// no client takes for an MD5.
pub fn etag_text(attr: &Attr, info: &ObjectInfo) -> String {
    info.etag.clone().unwrap_or_else(|| format!("{:016x}-{}", attr.ino.0, attr.change))
}

pub fn etag(attr: &Attr, info: &ObjectInfo) -> ETag {
    ETag::Strong(etag_text(attr, info))
}

pub fn timestamp(ns: i64) -> Timestamp {
    let t = if ns >= 0 { UNIX_EPOCH + Duration::from_nanos(ns as u64) } else { UNIX_EPOCH - Duration::from_nanos(ns.unsigned_abs()) };
    t.into()
}

/// A value kept with an upload under one of the `UPLOAD_*` names.
pub fn upload_note<'a>(info: &'a ObjectInfo, name: &str) -> Option<&'a str> {
    info.headers.iter().find(|h| h.0 == name).map(|h| h.1.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_metadata_is_kept_and_transfer_encoding_is_not() {
        let mut h = HeaderMap::new();
        h.insert("content-encoding", "aws-chunked,gzip".parse().unwrap());
        h.insert("x-amz-meta-a", "1".parse().unwrap());
        h.insert("x-amz-date", "x".parse().unwrap());
        let kept = kept_headers(&h).unwrap();
        assert_eq!(kept, [("content-encoding".into(), "gzip".into()), ("x-amz-meta-a".into(), "1".into())]);
        h.insert("x-amz-meta-b", "x".repeat(3000).parse().unwrap());
        assert_eq!(*kept_headers(&h).unwrap_err().code(), S3ErrorCode::MetadataTooLarge);
    }
}
