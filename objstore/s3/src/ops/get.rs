//! GET and HEAD of an object.

use crate::conditions::ReadConditions;
use crate::deliver::deliver;
use crate::door::{Charging, Inner};
use crate::error;
use crate::info::{etag_text, show_headers, timestamp};
use crate::sums::set_checksums;
use holdfast_objstore_proto::meta::{Attr, ObjectInfo};
use hyper::HeaderMap;
use hyper::header::HeaderValue;
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use std::sync::Arc;

/// The part of an object a request is for.
struct Selected {
    range: std::ops::Range<u64>,
    /// Content-Range, when it is not the whole.
    content_range: Option<String>,
    parts_count: Option<i32>,
}

fn select(attr: &Attr, info: &ObjectInfo, range: Option<Range>, part: Option<i32>) -> S3Result<Selected> {
    let size = attr.size;
    let unsatisfiable = || {
        let mut e: S3Error = S3ErrorCode::InvalidRange.into();
        let mut h = HeaderMap::new();
        if let Ok(v) = HeaderValue::from_str(&format!("bytes */{size}")) {
            h.insert("content-range", v);
        }
        e.set_headers(h);
        e
    };
    let shown = |r: &std::ops::Range<u64>| format!("bytes {}-{}/{size}", r.start, r.end - 1);
    match (range, part) {
        (Some(_), Some(_)) => Err(S3Error::with_message(S3ErrorCode::InvalidRequest, "Range and partNumber exclude each other")),
        (Some(r), None) => {
            let range = r.check(size).map_err(|_| unsatisfiable())?;
            Ok(Selected { content_range: Some(shown(&range)), range, parts_count: None })
        }
        (None, Some(n)) => {
            let n = super::part_number(n)? as usize;
            let parts: &[u64] = if info.parts.is_empty() { &[size] } else { &info.parts };
            if n > parts.len() {
                let mut e = S3Error::with_message(S3ErrorCode::Custom("InvalidPartNumber".into()), "the object has fewer parts");
                e.set_status_code(hyper::StatusCode::RANGE_NOT_SATISFIABLE);
                return Err(e);
            }
            let start: u64 = parts[..n - 1].iter().sum();
            let range = start..start + parts[n - 1];
            let content_range = (!range.is_empty()).then(|| shown(&range));
            Ok(Selected { content_range, range, parts_count: (!info.parts.is_empty()).then_some(info.parts.len() as i32) })
        }
        (None, None) => Ok(Selected { range: 0..size, content_range: None, parts_count: None }),
    }
}

/// For fuzzing: the bytes that a Range header selects of an object of `size`.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_range(size: u64, range: Range) -> S3Result<(u64, u64)> {
    let r = range.check(size).map_err(|_| S3Error::from(S3ErrorCode::InvalidRange))?;
    Ok((r.start, r.end))
}

/// Checksums are shown when asked for and only with the whole object, which they describe.
fn shown_checksums(info: &ObjectInfo, mode: Option<&ChecksumMode>, s: &Selected) -> Vec<(String, String)> {
    if mode.is_some_and(|m| m.as_str() == ChecksumMode::ENABLED) && s.content_range.is_none() { info.checksums.clone() } else { Vec::new() }
}

fn checksum_type(sums: &[(String, String)]) -> Option<ChecksumType> {
    let composite = sums.first()?.1.contains('-');
    Some(ChecksumType::from_static(if composite { ChecksumType::COMPOSITE } else { ChecksumType::FULL_OBJECT }))
}

/// The answer that GET and HEAD share: all that is said of the object and of the part selected, without a body.
macro_rules! described {
    ($output:ident, $attr:expr, $info:expr, $selected:expr, $mode:expr) => {{
        let sums = shown_checksums(&$info, $mode, &$selected);
        let mut out = $output {
            accept_ranges: Some("bytes".into()),
            checksum_type: checksum_type(&sums),
            content_length: Some(($selected.range.end - $selected.range.start) as i64),
            content_range: $selected.content_range.clone(),
            e_tag: Some(ETag::Strong(etag_text(&$attr, &$info))),
            last_modified: Some(timestamp($attr.mtime)),
            parts_count: $selected.parts_count,
            ..Default::default()
        };
        set_checksums!(out, sums);
        let mut response = S3Response::new(out);
        show_headers(&$info, &mut response.headers);
        if $selected.content_range.is_some() {
            response.status = Some(hyper::StatusCode::PARTIAL_CONTENT);
        }
        response
    }};
}

pub async fn get(door: &Arc<Inner>, r: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
    let i = &r.input;
    super::check_version(i.version_id.as_deref())?;
    let session = door.session().await?;
    let bucket = door.bucket(&session, &i.bucket).await?;
    let conditions = ReadConditions {
        if_match: i.if_match.as_ref(),
        if_none_match: i.if_none_match.as_ref(),
        if_modified_since: i.if_modified_since.as_ref(),
        if_unmodified_since: i.if_unmodified_since.as_ref(),
    };
    // An object deleted between the look and the opening is looked for once more: its name may have a new inode.
    let mut tries = 0;
    let (attr, info, selected, body) = loop {
        let (attr, info) = session.meta.resolve(bucket.id, super::key(&i.key)).await.map_err(error::meta)?;
        conditions.check(&etag_text(&attr, &info), attr.mtime)?;
        let selected = select(&attr, &info, i.range, i.part_number)?;
        match deliver(door, &session, attr.ino, selected.range.clone(), Charging::Here).await {
            Ok(body) => break (attr, info, selected, body),
            Err(e) if *e.code() == S3ErrorCode::NoSuchKey && tries == 0 => tries += 1,
            Err(e) => return Err(e),
        }
    };
    let mut response = described!(GetObjectOutput, attr, info, selected, i.checksum_mode.as_ref());
    response.output.body = Some(body);
    override_headers(&r, &mut response.headers)?;
    Ok(response)
}

/// `response-*` query parameters replace stored headers; a signed request may ask for it.
fn override_headers(r: &S3Request<GetObjectInput>, into: &mut HeaderMap) -> S3Result<()> {
    let i = &r.input;
    let expires = i.response_expires.as_ref().map(|t| {
        let mut text = Vec::new();
        t.format(TimestampFormat::HttpDate, &mut text).map(|()| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
    });
    let wanted = [
        ("content-type", i.response_content_type.clone()),
        ("content-disposition", i.response_content_disposition.clone()),
        ("content-encoding", i.response_content_encoding.clone()),
        ("content-language", i.response_content_language.clone()),
        ("cache-control", i.response_cache_control.clone()),
        ("expires", expires),
    ];
    for (name, value) in wanted {
        let Some(value) = value else { continue };
        let value = HeaderValue::from_str(&value)
            .map_err(|_| S3Error::with_message(S3ErrorCode::InvalidArgument, format!("response-{name} is not a header value")))?;
        into.insert(name, value);
    }
    Ok(())
}

pub async fn head(door: &Arc<Inner>, r: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
    let i = &r.input;
    super::check_version(i.version_id.as_deref())?;
    let session = door.session().await?;
    let bucket = door.bucket(&session, &i.bucket).await?;
    let (attr, info) = session.meta.resolve(bucket.id, super::key(&i.key)).await.map_err(error::meta)?;
    ReadConditions {
        if_match: i.if_match.as_ref(),
        if_none_match: i.if_none_match.as_ref(),
        if_modified_since: i.if_modified_since.as_ref(),
        if_unmodified_since: i.if_unmodified_since.as_ref(),
    }
    .check(&etag_text(&attr, &info), attr.mtime)?;
    let selected = select(&attr, &info, i.range, i.part_number)?;
    Ok(described!(HeadObjectOutput, attr, info, selected, i.checksum_mode.as_ref()))
}
