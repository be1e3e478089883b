//! Checksums that clients send or ask for: which are wanted, computing them in the one pass, holding them against what was said.

use hyper::HeaderMap;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum, Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};
use s3s::{S3Error, S3ErrorCode, S3Result, TrailingHeaders};

/// Algorithm names as S3 writes them, with the header that carries each value.
pub const ALGORITHMS: [(&str, &str); 5] = [
    ("CRC32", "x-amz-checksum-crc32"),
    ("CRC32C", "x-amz-checksum-crc32c"),
    ("CRC64NVME", "x-amz-checksum-crc64nvme"),
    ("SHA1", "x-amz-checksum-sha1"),
    ("SHA256", "x-amz-checksum-sha256"),
];

/// The canonical spelling of an algorithm, or `None` when it is not one S3 knows.
pub fn algorithm(name: &str) -> Option<&'static str> {
    ALGORITHMS.iter().map(|a| a.0).find(|a| a.eq_ignore_ascii_case(name))
}

/// Checksums being computed over one body.
#[derive(Default)]
pub struct Sums {
    hasher: ChecksumHasher,
    wanted: Vec<&'static str>,
    /// Values the client sent in headers.
    said: Vec<(&'static str, String)>,
}

impl Sums {
    /// What the request's headers ask for; `also` adds the algorithm of the upload a part belongs to.
    pub fn from_headers(headers: &HeaderMap, also: Option<&str>) -> S3Result<Sums> {
        let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
        let mut sums = Sums::default();
        let trailer = text("x-amz-trailer").unwrap_or("").to_ascii_lowercase();
        for (name, header) in ALGORITHMS {
            if let Some(value) = text(header) {
                sums.want(name);
                sums.said.push((name, value.trim().to_string()));
            } else if trailer.split(',').any(|t| t.trim() == header) {
                sums.want(name);
            }
        }
        for asked in [text("x-amz-sdk-checksum-algorithm"), text("x-amz-checksum-algorithm"), also].into_iter().flatten() {
            match algorithm(asked) {
                Some(name) => sums.want(name),
                None => {
                    return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, format!("checksum algorithm {asked} is not supported")));
                }
            }
        }
        if sums.said.len() > 1 {
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, "only one x-amz-checksum-* header may be sent"));
        }
        Ok(sums)
    }

    fn want(&mut self, name: &'static str) {
        if self.wanted.contains(&name) {
            return;
        }
        self.wanted.push(name);
        match name {
            "CRC32" => self.hasher.crc32 = Some(Crc32::new()),
            "CRC32C" => self.hasher.crc32c = Some(Crc32c::new()),
            "CRC64NVME" => self.hasher.crc64nvme = Some(Crc64Nvme::new()),
            "SHA1" => self.hasher.sha1 = Some(Sha1::new()),
            _ => self.hasher.sha256 = Some(Sha256::new()),
        }
    }

    pub fn update(&mut self, data: &[u8]) {
        self.hasher.update(data);
    }

    /// The values, after comparing them with what headers and trailers said.
    pub fn finish(self, trailers: Option<&TrailingHeaders>) -> S3Result<Vec<(String, String)>> {
        let c = self.hasher.finalize();
        let values: Vec<(String, String)> = [
            ("CRC32", c.checksum_crc32),
            ("CRC32C", c.checksum_crc32c),
            ("CRC64NVME", c.checksum_crc64nvme),
            ("SHA1", c.checksum_sha1),
            ("SHA256", c.checksum_sha256),
        ]
        .into_iter()
        .filter_map(|(n, v)| Some((n.to_string(), v?)))
        .collect();
        let trailed = trailers.and_then(TrailingHeaders::take);
        for (name, header) in ALGORITHMS {
            let in_trailer = trailed.as_ref().and_then(|t| t.get(header)).and_then(|v| v.to_str().ok()).map(str::trim);
            let in_header = self.said.iter().find(|s| s.0 == name).map(|s| s.1.as_str());
            let Some(said) = in_trailer.or(in_header) else { continue };
            if values.iter().find(|v| v.0 == name).is_none_or(|v| v.1 != said) {
                return Err(S3Error::with_message(
                    S3ErrorCode::BadDigest,
                    format!("The {name} you sent does not match what was received."),
                ));
            }
        }
        Ok(values)
    }
}

/// Puts checksum values into the fields of an output that has them.
macro_rules! set_checksums {
    ($out:expr, $sums:expr) => {
        for (name, value) in $sums.iter() {
            let value = Some(value.clone());
            match name.as_str() {
                "CRC32" => $out.checksum_crc32 = value,
                "CRC32C" => $out.checksum_crc32c = value,
                "CRC64NVME" => $out.checksum_crc64nvme = value,
                "SHA1" => $out.checksum_sha1 = value,
                "SHA256" => $out.checksum_sha256 = value,
                _ => {}
            }
        }
    };
}
pub(crate) use set_checksums;

/// The checksum of a whole object from those of its parts: by combination where the arithmetic allows it and the upload
/// asked for FULL_OBJECT, else the checksum of checksums, written `value-parts`.
pub fn of_parts(name: &str, full_object: bool, parts: &[(String, u64)]) -> Option<String> {
    use base64::Engine;
    let b64 = base64::engine::general_purpose::STANDARD;
    let raw: Vec<(Vec<u8>, u64)> = parts.iter().map(|(v, n)| Some((b64.decode(v).ok()?, *n))).collect::<Option<_>>()?;
    if full_object {
        let (kind, width) = match name {
            "CRC32" => (crc_fast::CrcAlgorithm::Crc32IsoHdlc, 4),
            "CRC32C" => (crc_fast::CrcAlgorithm::Crc32Iscsi, 4),
            "CRC64NVME" => (crc_fast::CrcAlgorithm::Crc64Nvme, 8),
            _ => return None,
        };
        let number = |b: &[u8]| (b.len() == width).then(|| b.iter().fold(0u64, |n, x| n << 8 | *x as u64));
        let mut all = number(&raw.first()?.0)?;
        for (b, len) in &raw[1..] {
            all = crc_fast::checksum_combine(kind, all, number(b)?, *len);
        }
        return Some(b64.encode(&all.to_be_bytes()[8 - width..]));
    }
    let joined: Vec<u8> = raw.iter().flat_map(|(b, _)| b.iter().copied()).collect();
    let digest = match name {
        "CRC32" => Crc32::checksum(&joined).as_ref().to_vec(),
        "CRC32C" => Crc32c::checksum(&joined).as_ref().to_vec(),
        "SHA1" => Sha1::checksum(&joined).as_ref().to_vec(),
        "SHA256" => Sha256::checksum(&joined).as_ref().to_vec(),
        _ => return None,
    };
    Some(format!("{}-{}", b64.encode(digest), parts.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &'static str, data: &[u8]) -> String {
        let mut s = Sums::default();
        s.want(name);
        s.update(data);
        s.finish(None).unwrap().remove(0).1
    }

    #[test]
    fn full_object_checksums_of_parts_equal_those_of_the_whole() {
        let (a, b) = (vec![1u8; 100_000], vec![2u8; 7]);
        let whole = [a.clone(), b.clone()].concat();
        for name in ["CRC32", "CRC32C", "CRC64NVME"] {
            let parts = [(one(name, &a), a.len() as u64), (one(name, &b), b.len() as u64)];
            assert_eq!(of_parts(name, true, &parts), Some(one(name, &whole)), "{name}");
        }
        assert!(of_parts("SHA256", true, &[(one("SHA256", &a), 1)]).is_none());
        assert!(of_parts("SHA256", false, &[(one("SHA256", &a), 1)]).unwrap().ends_with("-1"));
    }

    #[test]
    fn a_checksum_that_does_not_match_is_a_bad_digest() {
        let mut h = HeaderMap::new();
        h.insert("x-amz-checksum-crc32c", "AAAAAA==".parse().unwrap());
        let mut s = Sums::from_headers(&h, None).unwrap();
        s.update(b"123456789");
        assert_eq!(*s.finish(None).unwrap_err().code(), S3ErrorCode::BadDigest);
        h.insert("x-amz-checksum-crc32c", "4waSgw==".parse().unwrap());
        let mut s = Sums::from_headers(&h, None).unwrap();
        s.update(b"123456789");
        assert_eq!(s.finish(None).unwrap(), [("CRC32C".to_string(), "4waSgw==".to_string())]);
    }
}
