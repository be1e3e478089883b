//! What this crate itself parses of a request, for fuzzing: the parser of HTTP, XML and signatures is s3s's.

use crate::conditions::{ReadConditions, write_condition};
use crate::info::{kept_headers, refuse_unsupported};
use crate::ingest::Declared;
use crate::ops::{copy, get, list, part_number, upload_id, upload_text};
use crate::sums::{Sums, of_parts};
use crate::{guard, serve};
use holdfast_objstore_base::fuzzing::Target;
use holdfast_objstore_proto::UploadId;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use s3s::dto::{ETag, ETagCondition, Range};

pub const TARGETS: &[Target] = &[
    Target { name: "s3_chunk_framing", samples: bodies, body },
    Target { name: "s3_range", samples: ranges, body: range },
    Target { name: "s3_token", samples: tokens, body: token },
    Target { name: "s3_headers", samples: headers, body: header },
    Target { name: "s3_conditions", samples: conditions, body: condition },
    Target { name: "s3_query", samples: queries, body: query },
    Target { name: "s3_part_checksums", samples: part_sums, body: part_sum },
];

fn samples(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|t| t.as_bytes().to_vec()).collect()
}

fn bodies() -> Vec<Vec<u8>> {
    samples(&[
        "5;chunk-signature=0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497\r\nhello\r\n0;chunk-signature=00\r\n\r\n",
        "a\r\n0123456789\r\n0\r\nx-amz-checksum-crc32c:sOO8/Q==\r\n\r\n",
    ])
}

/// However the bytes are cut into pieces, the framing that is followed is the same.
fn body(bytes: &[u8]) {
    let whole = guard::follow_all([bytes].into_iter(), 4096);
    for piece in [1, 3, 7] {
        let cut = guard::follow_all(bytes.chunks(piece), 4096);
        assert_eq!(cut, whole, "in pieces of {piece}");
    }
}

fn ranges() -> Vec<Vec<u8>> {
    samples(&["bytes=0-9", "bytes=5-", "bytes=-5", "bytes=18446744073709551614-18446744073709551615", "bytes=3-1"])
}

fn range(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for size in [0, 1, 10, u64::MAX] {
        if let Ok(r) = copy::exact_range(text, size) {
            assert!(r.start < r.end && r.end <= size);
        }
        if let Ok(r) = Range::parse(text)
            && let Ok((from, to)) = get::fuzz_range(size, r)
        {
            assert!(from <= to && to <= size);
        }
    }
}

fn tokens() -> Vec<Vec<u8>> {
    samples(&["YS9iL2M", "", "00000000000000ff", "a/b\u{fc}", "10000"])
}

fn token(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(raw) = list::token(text) {
        assert_eq!(list::token(&list::token_text(&raw)).as_ref().ok(), Some(&raw));
    }
    if let Ok(id) = upload_id(text) {
        assert!(upload_text(id).eq_ignore_ascii_case(text) && upload_id(&upload_text(UploadId(id.0))).is_ok());
    }
    if let Ok(n) = text.parse() {
        let _ = part_number(n);
    }
    for url in [false, true] {
        let shown = list::shown(bytes, url);
        assert!(!url || shown.is_ascii());
    }
}

/// Lines of `name: value`.
fn parsed(bytes: &[u8]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in bytes.split(|b| *b == b'\n').take(100) {
        let Some(at) = line.iter().position(|b| *b == b':') else { continue };
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(&line[..at]), HeaderValue::from_bytes(&line[at + 1..])) {
            map.append(name, value);
        }
    }
    map
}

fn headers() -> Vec<Vec<u8>> {
    samples(&[
        "content-md5:1B2M2Y8AsgTpgAmY7PhCfg==\nx-amz-decoded-content-length:66560\nx-amz-meta-a:1\ncontent-encoding:aws-chunked,gzip",
        "x-amz-checksum-crc32c:AAAAAA==\nx-amz-sdk-checksum-algorithm:SHA256\nx-amz-trailer:x-amz-checksum-crc32",
        "x-amz-server-side-encryption:AES256",
    ])
}

fn header(bytes: &[u8]) {
    let map = parsed(bytes);
    let _ = refuse_unsupported(&map);
    if let Ok(kept) = kept_headers(&map) {
        assert!(kept.iter().map(|(n, v)| n.len() + v.len()).sum::<usize>() <= 2 * bytes.len());
    }
    Declared { headers: &map, trailers: None, length: None }.fuzz();
    if let Ok(mut sums) = Sums::from_headers(&map, None) {
        sums.update(b"body");
        let _ = sums.finish(None);
    }
}

fn conditions() -> Vec<Vec<u8>> {
    samples(&["\"a\"", "*", "W/\"a\", \"b\"", "a,b"])
}

fn condition(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for c in [ETagCondition::Any, ETagCondition::ETag(ETag::Strong(text.into())), ETagCondition::ETag(ETag::Weak(text.into()))] {
        let read = |if_match, if_none_match| ReadConditions { if_match, if_none_match, if_modified_since: None, if_unmodified_since: None };
        let (is, not) = (read(Some(&c), None).check("a", 5), read(None, Some(&c)).check("a", 5));
        assert_ne!(is.is_ok(), not.is_ok(), "an ETag matches or does not");
        let _ = write_condition(Some(&c), Some(&c));
    }
}

fn queries() -> Vec<Vec<u8>> {
    samples(&[
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=86400",
        "AWSAccessKeyId=x",
        "X-Amz-Expires=604801",
        "list-type=2&X-Amz-Expires=-1",
    ])
}

fn query(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        serve::fuzz_query(text);
    }
}

fn part_sums() -> Vec<Vec<u8>> {
    samples(&["CRC32C\n4waSgw==\nAAAAAA==", "SHA256\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", "CRC64NVME\nAAAAAAAAAAA="])
}

fn part_sum(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut lines = text.lines();
    let name = lines.next().unwrap_or_default();
    let parts: Vec<(String, u64)> = lines.take(50).enumerate().map(|(n, v)| (v.to_string(), (n as u64) << (n % 60))).collect();
    for full in [false, true] {
        let _ = of_parts(name, full, &parts);
    }
}
