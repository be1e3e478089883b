//! Listings, version 1 and 2, over one walk in byte order of keys.

use crate::door::Inner;
use crate::error;
use crate::info::{etag, timestamp};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use holdfast_objstore_proto::meta::{ListItem, ListPage, ListQuery};
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use std::sync::Arc;

const KEYS_MAX: i32 = 1000;

/// What both versions ask.
struct Asked<'a> {
    bucket: &'a str,
    prefix: Option<&'a str>,
    delimiter: Option<&'a str>,
    after: Option<Bytes>,
    max_keys: Option<i32>,
    encoding: Option<&'a EncodingType>,
}

/// What both versions answer.
struct Listed {
    contents: Vec<Object>,
    prefixes: Vec<CommonPrefix>,
    max_keys: i32,
    url: bool,
    next: Option<Bytes>,
}

async fn list(door: &Arc<Inner>, a: Asked<'_>) -> S3Result<Listed> {
    let url = match a.encoding.map(EncodingType::as_str) {
        None => false,
        Some("url") => true,
        Some(_) => return Err(S3Error::with_message(S3ErrorCode::InvalidArgument, "encoding-type takes only url")),
    };
    let max_keys = match a.max_keys {
        None => KEYS_MAX,
        Some(n) if n >= 0 => n.min(KEYS_MAX),
        Some(_) => return Err(S3Error::with_message(S3ErrorCode::InvalidArgument, "max-keys must not be negative")),
    };
    let session = door.session().await?;
    let bucket = door.bucket(&session, a.bucket).await?;
    let page = if max_keys == 0 {
        ListPage::default()
    } else {
        let query = ListQuery {
            prefix: super::key(a.prefix.unwrap_or("")),
            delimiter: a.delimiter.filter(|d| !d.is_empty()).map(super::key),
            after: a.after,
            keys_max: max_keys as usize,
        };
        session.meta.list(bucket.id, query).await.map_err(error::meta)?
    };
    door.metrics.hidden_names.inc_by(page.hidden);
    let (mut contents, mut prefixes) = (Vec::new(), Vec::new());
    for item in page.items {
        match item {
            ListItem::Object { key, attr, info } => contents.push(Object {
                key: Some(shown(&key, url)),
                size: Some(attr.size as i64),
                e_tag: Some(etag(&attr, &info)),
                last_modified: Some(timestamp(attr.mtime)),
                storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
                ..Default::default()
            }),
            ListItem::CommonPrefix(p) => prefixes.push(CommonPrefix { prefix: Some(shown(&p, url)) }),
        }
    }
    Ok(Listed { contents, prefixes, max_keys, url, next: page.next })
}

/// A key as the reply shows it: as it is, or percent-encoded when the client asked for that.
pub fn shown(key: &[u8], url: bool) -> String {
    if !url {
        return String::from_utf8_lossy(key).into_owned();
    }
    let mut out = String::with_capacity(key.len());
    for &b in key {
        match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' | b'*' => out.push(b as char),
            _ => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

/// The key behind which a listing goes on.
pub(crate) fn token(text: &str) -> S3Result<Bytes> {
    let bad = |_| S3Error::with_message(S3ErrorCode::InvalidArgument, "the continuation token is not one of ours");
    URL_SAFE_NO_PAD.decode(text).map(Bytes::from).map_err(bad)
}

pub(crate) fn token_text(after: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(after)
}

fn encoding(url: bool) -> Option<EncodingType> {
    url.then(|| EncodingType::from_static(EncodingType::URL))
}

pub async fn v2(door: &Arc<Inner>, r: S3Request<ListObjectsV2Input>) -> S3Result<S3Response<ListObjectsV2Output>> {
    let i = r.input;
    let token = match &i.continuation_token {
        None => None,
        Some(t) => Some(token(t)?),
    };
    let after = token.or_else(|| i.start_after.as_deref().filter(|s| !s.is_empty()).map(super::key));
    let asked = Asked {
        bucket: &i.bucket,
        prefix: i.prefix.as_deref(),
        delimiter: i.delimiter.as_deref(),
        after,
        max_keys: i.max_keys,
        encoding: i.encoding_type.as_ref(),
    };
    let l = list(door, asked).await?;
    let text = |t: Option<String>| t.map(|t| shown(t.as_bytes(), l.url));
    Ok(S3Response::new(ListObjectsV2Output {
        key_count: Some((l.contents.len() + l.prefixes.len()) as i32),
        contents: Some(l.contents),
        common_prefixes: Some(l.prefixes),
        is_truncated: Some(l.next.is_some()),
        next_continuation_token: l.next.map(|n| token_text(&n)),
        continuation_token: i.continuation_token,
        max_keys: Some(l.max_keys),
        name: Some(i.bucket),
        prefix: Some(text(i.prefix).unwrap_or_default()),
        delimiter: text(i.delimiter),
        start_after: text(i.start_after),
        encoding_type: encoding(l.url),
        request_charged: None,
    }))
}

pub async fn v1(door: &Arc<Inner>, r: S3Request<ListObjectsInput>) -> S3Result<S3Response<ListObjectsOutput>> {
    let i = r.input;
    let asked = Asked {
        bucket: &i.bucket,
        prefix: i.prefix.as_deref(),
        delimiter: i.delimiter.as_deref(),
        after: i.marker.as_deref().filter(|m| !m.is_empty()).map(super::key),
        max_keys: i.max_keys,
        encoding: i.encoding_type.as_ref(),
    };
    let l = list(door, asked).await?;
    let text = |t: Option<String>| t.map(|t| shown(t.as_bytes(), l.url));
    Ok(S3Response::new(ListObjectsOutput {
        contents: Some(l.contents),
        common_prefixes: Some(l.prefixes),
        is_truncated: Some(l.next.is_some()),
        next_marker: l.next.map(|n| shown(&n, l.url)),
        max_keys: Some(l.max_keys),
        name: Some(i.bucket),
        prefix: Some(text(i.prefix).unwrap_or_default()),
        marker: Some(text(i.marker).unwrap_or_default()),
        delimiter: text(i.delimiter),
        encoding_type: encoding(l.url),
        request_charged: None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_percent_encoded_only_when_asked() {
        assert_eq!(shown("a b/ü".as_bytes(), true), "a%20b/%C3%BC");
        assert_eq!(shown("a b/ü".as_bytes(), false), "a b/ü");
    }
}
