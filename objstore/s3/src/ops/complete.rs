//! Completing a multipart upload: parts joined in order, one commit.

use crate::conditions::write_condition;
use crate::door::{Inner, Session};
use crate::error;
use crate::info::{UPLOAD_ALGORITHM, UPLOAD_TYPE, upload_note};
use crate::ingest::hex;
use crate::sums::{of_parts, set_checksums};
use holdfast_objstore_proto::meta::{Command, ObjectInfo, Reply, Upload, UploadPart};
use holdfast_objstore_proto::{BucketId, UploadId};
use s3s::crypto::{Checksum, Md5};
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use std::collections::HashMap;
use std::sync::Arc;

/// Every part but the last must have this many bytes.
const PART_BYTES_MIN: u64 = 5 << 20;
const PARTS_PER_READ: usize = 1000;

async fn all_parts(session: &Session, bucket: BucketId, id: UploadId) -> S3Result<(Upload, HashMap<u16, UploadPart>)> {
    let mut parts = HashMap::new();
    let mut after = 0;
    loop {
        let (upload, page) = session.meta.upload_parts(bucket, id, after, PARTS_PER_READ).await.map_err(error::meta)?;
        match page.last() {
            Some(last) => after = last.number,
            None => return Ok((upload, parts)),
        }
        parts.extend(page.into_iter().map(|p| (p.number, p)));
    }
}

/// The parts the client named, in its order, checked for order; metadata checks that they exist.
fn named(parts: &[CompletedPart]) -> S3Result<Vec<(u16, String)>> {
    let mut out: Vec<(u16, String)> = Vec::with_capacity(parts.len());
    for p in parts {
        let number = super::part_number(p.part_number.unwrap_or(0))?;
        if out.last().is_some_and(|last| last.0 >= number) {
            return Err(S3ErrorCode::InvalidPartOrder.into());
        }
        let etag = p.e_tag.as_ref().ok_or(S3ErrorCode::InvalidPart)?.value().to_string();
        out.push((number, etag));
    }
    if out.is_empty() {
        return Err(S3Error::with_message(S3ErrorCode::MalformedXML, "at least one part must be named"));
    }
    Ok(out)
}

/// MD5 over the parts' MD5s, with their number: what clients expect of a multipart object.
fn etag_of(parts: &[(u16, String)]) -> S3Result<String> {
    let mut md5 = Md5::new();
    for (number, etag) in parts {
        let raw: Option<Vec<u8>> =
            (etag.len() == 32).then(|| (0..16).map(|i| u8::from_str_radix(etag.get(2 * i..2 * i + 2)?, 16).ok()).collect()).flatten();
        let raw = raw.ok_or_else(|| S3Error::with_message(S3ErrorCode::InvalidPart, format!("part {number} has another ETag")))?;
        md5.update(&raw);
    }
    Ok(format!("{}-{}", hex(&md5.finalize()), parts.len()))
}

pub async fn complete(
    door: &Arc<Inner>,
    r: S3Request<CompleteMultipartUploadInput>,
) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
    let i = r.input;
    let id = super::upload_id(&i.upload_id)?;
    let condition = write_condition(i.if_match.as_ref(), i.if_none_match.as_ref())?;
    let listed = i.multipart_upload.and_then(|m| m.parts).unwrap_or_default();
    let parts = named(&listed)?;
    let etag = etag_of(&parts)?;
    let session = door.session().await?;
    let bucket = door.bucket(&session, &i.bucket).await?;
    // A retry after success finds no upload; metadata remembers what it answered.
    let info = match all_parts(&session, bucket.id, id).await {
        Ok((upload, stored)) => {
            if upload.key != i.key.as_bytes() {
                return Err(S3ErrorCode::NoSuchUpload.into());
            }
            object_info(&upload, &stored, &parts, &listed, etag)?
        }
        Err(e) if *e.code() == S3ErrorCode::NoSuchUpload => ObjectInfo { etag: Some(etag), ..Default::default() },
        Err(e) => return Err(e),
    };
    let checksums = info.checksums.clone();
    let ino = session.ids.inode().await.map_err(error::meta)?;
    let command = Command::CompleteUpload {
        bucket: bucket.id,
        upload: id,
        ino,
        parts,
        info,
        owner: door.config.owner,
        part_bytes_min: PART_BYTES_MIN,
        condition,
    };
    let etag = match door.commit(&session, command).await.map_err(error::meta)? {
        Reply::Put { etag, .. } => etag,
        other => return Err(error::unexpected(other)),
    };
    let mut out = CompleteMultipartUploadOutput {
        location: Some(format!("/{}/{}", i.bucket, i.key)),
        bucket: Some(i.bucket),
        key: Some(i.key),
        e_tag: Some(ETag::Strong(etag)),
        ..Default::default()
    };
    set_checksums!(out, checksums);
    Ok(S3Response::new(out))
}

/// What is kept with the joined object.
fn object_info(
    upload: &Upload,
    stored: &HashMap<u16, UploadPart>,
    parts: &[(u16, String)],
    listed: &[CompletedPart],
    etag: String,
) -> S3Result<ObjectInfo> {
    let found: Vec<&UploadPart> = parts
        .iter()
        .map(|(n, _)| stored.get(n).ok_or_else(|| S3Error::with_message(S3ErrorCode::InvalidPart, format!("part {n} was not uploaded"))))
        .collect::<S3Result<_>>()?;
    for (p, said) in found.iter().zip(listed) {
        let said = [
            ("CRC32", &said.checksum_crc32),
            ("CRC32C", &said.checksum_crc32c),
            ("CRC64NVME", &said.checksum_crc64nvme),
            ("SHA1", &said.checksum_sha1),
            ("SHA256", &said.checksum_sha256),
        ];
        for (name, value) in said {
            if let (Some(value), Some(own)) = (value, p.checksums.iter().find(|c| c.0 == name))
                && *value != own.1
            {
                return Err(S3Error::with_message(S3ErrorCode::InvalidPart, format!("part {} has another {name}", p.number)));
            }
        }
    }
    let mut checksums = Vec::new();
    if let Some(name) = upload_note(&upload.info, UPLOAD_ALGORITHM) {
        let full = upload_note(&upload.info, UPLOAD_TYPE) == Some("FULL_OBJECT");
        let values: Option<Vec<(String, u64)>> =
            found.iter().map(|p| Some((p.checksums.iter().find(|c| c.0 == name)?.1.clone(), p.size))).collect();
        if let Some(value) = values.and_then(|v| of_parts(name, full, &v)) {
            checksums.push((name.to_string(), value));
        }
    }
    let headers = upload.info.headers.iter().filter(|h| !h.0.starts_with("holdfast-")).cloned().collect();
    Ok(ObjectInfo { etag: Some(etag), headers, checksums, parts: found.iter().map(|p| p.size).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_etag_is_the_md5_of_the_parts_md5s() {
        let parts = [(1, "d41d8cd98f00b204e9800998ecf8427e".to_string()), (2, "d41d8cd98f00b204e9800998ecf8427e".to_string())];
        assert_eq!(etag_of(&parts).unwrap(), "5873dd45edd01f09c1ef2e7819369e8e-2");
        assert!(etag_of(&[(1, "x".into())]).is_err());
    }

    #[test]
    fn parts_out_of_order_are_refused() {
        let p = |n| CompletedPart { part_number: Some(n), e_tag: Some(ETag::Strong("e".into())), ..Default::default() };
        assert_eq!(*named(&[p(2), p(1)]).unwrap_err().code(), S3ErrorCode::InvalidPartOrder);
        assert!(named(&[p(1), p(3)]).is_ok());
        assert!(named(&[]).is_err());
    }
}
