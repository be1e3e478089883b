//! Multipart uploads: begin, parts, what is there, give up. Completion is in `complete.rs`.

use crate::door::{Charging, Inner, Session};
use crate::error;
use crate::info::{UPLOAD_ALGORITHM, UPLOAD_TYPE, kept_headers, refuse_unsupported, timestamp, upload_note};
use crate::ingest::{Declared, Ingested, ingest};
use crate::sums::{Sums, algorithm, set_checksums};
use holdfast_objstore_proto::meta::{Command, ObjectInfo, Reply, TimeNs};
use holdfast_objstore_proto::{BucketId, InodeId, UploadId};
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use std::sync::Arc;

const PAGE_MAX: i32 = 1000;

pub async fn create(door: &Arc<Inner>, r: S3Request<CreateMultipartUploadInput>) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
    refuse_unsupported(&r.headers)?;
    let i = r.input;
    let mut headers = kept_headers(&r.headers)?;
    if let Some(asked) = &i.checksum_algorithm {
        let name = algorithm(asked.as_str()).ok_or_else(|| {
            S3Error::with_message(S3ErrorCode::InvalidRequest, format!("checksum algorithm {} is not supported", asked.as_str()))
        })?;
        let kind = match i.checksum_type.as_ref().map(ChecksumType::as_str) {
            Some(k @ ("COMPOSITE" | "FULL_OBJECT")) => k,
            Some(_) => return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, "checksum type is COMPOSITE or FULL_OBJECT")),
            None if name == "CRC64NVME" => "FULL_OBJECT",
            None => "COMPOSITE",
        };
        if (kind == "FULL_OBJECT") == name.starts_with("SHA") && kind == "FULL_OBJECT" || kind == "COMPOSITE" && name == "CRC64NVME" {
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, format!("{name} cannot be {kind}")));
        }
        headers.push((UPLOAD_ALGORITHM.into(), name.into()));
        headers.push((UPLOAD_TYPE.into(), kind.into()));
    }
    let session = door.session().await?;
    let bucket = door.bucket(&session, &i.bucket).await?;
    let info = ObjectInfo { headers, ..Default::default() };
    let shown_algorithm = upload_note(&info, UPLOAD_ALGORITHM).map(|a| ChecksumAlgorithm::from(a.to_string()));
    let shown_type = upload_note(&info, UPLOAD_TYPE).map(|t| ChecksumType::from(t.to_string()));
    let command = Command::CreateUpload { bucket: bucket.id, key: super::key(&i.key), info };
    let id = match door.commit(&session, command).await.map_err(error::meta)? {
        Reply::Upload(id) => id,
        other => return Err(error::unexpected(other)),
    };
    Ok(S3Response::new(CreateMultipartUploadOutput {
        bucket: Some(i.bucket),
        key: Some(i.key),
        upload_id: Some(super::upload_text(id)),
        checksum_algorithm: shown_algorithm,
        checksum_type: shown_type,
        ..Default::default()
    }))
}

pub async fn part(door: &Arc<Inner>, r: S3Request<UploadPartInput>) -> S3Result<S3Response<UploadPartOutput>> {
    refuse_unsupported(&r.headers)?;
    let i = r.input;
    let (id, number) = (super::upload_id(&i.upload_id)?, super::part_number(i.part_number)?);
    let session = door.session().await?;
    let bucket = door.bucket(&session, &i.bucket).await?;
    let (upload, _) = session.meta.upload_parts(bucket.id, id, u16::MAX, 1).await.map_err(error::meta)?;
    if upload.key != i.key.as_bytes() {
        return Err(S3ErrorCode::NoSuchUpload.into());
    }
    let sums = Sums::from_headers(&r.headers, upload_note(&upload.info, UPLOAD_ALGORITHM))?;
    let length = i.content_length.and_then(|n| u64::try_from(n).ok());
    let declared = Declared { headers: &r.headers, trailers: r.trailing_headers.as_ref(), length };
    let body = ingest(door, &session, &bucket, InodeId(0), i.body, declared, sums, Charging::Here).await?;
    let part = commit_part(&session, bucket.id, id, number, body).await?;
    let mut out = UploadPartOutput { e_tag: Some(ETag::Strong(part.etag)), ..Default::default() };
    set_checksums!(out, part.checksums);
    Ok(S3Response::new(out))
}

/// A part that was committed.
pub(super) struct Made {
    pub etag: String,
    pub checksums: Vec<(String, String)>,
    pub modified: TimeNs,
}

/// The one commit of a part, uploaded or copied.
pub(super) async fn commit_part(session: &Session, bucket: BucketId, upload: UploadId, number: u16, body: Ingested) -> S3Result<Made> {
    let (etag, checksums) = (body.etag(), body.checksums);
    let command = |stripes| Command::PutPart {
        bucket,
        upload,
        number,
        size: body.size,
        etag: etag.clone(),
        checksums: checksums.clone(),
        extents: body.extents,
        stripes,
        inline: body.inline,
    };
    match body.stripes.commit(session, command).await.map_err(error::meta)? {
        Reply::Part { modified } => Ok(Made { etag, checksums, modified }),
        other => Err(error::unexpected(other)),
    }
}

pub async fn abort(door: &Arc<Inner>, r: S3Request<AbortMultipartUploadInput>) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
    let i = r.input;
    let id = super::upload_id(&i.upload_id)?;
    let session = door.session().await?;
    let bucket = door.bucket(&session, &i.bucket).await?;
    door.commit(&session, Command::AbortUpload { bucket: bucket.id, upload: id }).await.map_err(error::meta)?;
    Ok(S3Response::new(AbortMultipartUploadOutput::default()))
}

pub async fn parts(door: &Arc<Inner>, r: S3Request<ListPartsInput>) -> S3Result<S3Response<ListPartsOutput>> {
    let i = r.input;
    let id = super::upload_id(&i.upload_id)?;
    let after = i.part_number_marker.unwrap_or(0).clamp(0, 10_000) as u16;
    let max = i.max_parts.unwrap_or(PAGE_MAX).clamp(0, PAGE_MAX);
    let session = door.session().await?;
    let bucket = door.bucket(&session, &i.bucket).await?;
    let (upload, mut found) = session.meta.upload_parts(bucket.id, id, after, max as usize + 1).await.map_err(error::meta)?;
    let truncated = found.len() > max as usize;
    found.truncate(max as usize);
    let next = found.last().map(|p| p.number as i32);
    let parts = found
        .into_iter()
        .map(|p| {
            let mut part = Part {
                part_number: Some(p.number as i32),
                size: Some(p.size as i64),
                e_tag: Some(ETag::Strong(p.etag)),
                last_modified: Some(timestamp(p.modified)),
                ..Default::default()
            };
            set_checksums!(part, p.checksums);
            part
        })
        .collect();
    Ok(S3Response::new(ListPartsOutput {
        bucket: Some(i.bucket),
        key: Some(i.key),
        upload_id: Some(i.upload_id),
        parts: Some(parts),
        is_truncated: Some(truncated),
        max_parts: Some(max),
        part_number_marker: Some(after as i32),
        next_part_number_marker: next.filter(|_| truncated),
        checksum_algorithm: upload_note(&upload.info, UPLOAD_ALGORITHM).map(|a| ChecksumAlgorithm::from(a.to_string())),
        checksum_type: upload_note(&upload.info, UPLOAD_TYPE).map(|t| ChecksumType::from(t.to_string())),
        ..Default::default()
    }))
}

pub async fn uploads(door: &Arc<Inner>, r: S3Request<ListMultipartUploadsInput>) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
    let i = r.input;
    if i.delimiter.as_ref().is_some_and(|d| !d.is_empty()) {
        return Err(S3Error::with_message(S3ErrorCode::NotImplemented, "a delimiter in a listing of uploads is not supported"));
    }
    let max = i.max_uploads.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX) as usize;
    let after = match (i.key_marker.as_deref().filter(|k| !k.is_empty()), i.upload_id_marker.as_deref().filter(|u| !u.is_empty())) {
        (None, _) => None,
        (Some(k), Some(u)) => Some((super::key(k), super::upload_id(u)?)),
        // Without an id the key itself is passed over whole.
        (Some(k), None) => Some((super::key(k), UploadId(u64::MAX))),
    };
    let session = door.session().await?;
    let bucket = door.bucket(&session, &i.bucket).await?;
    let prefix = super::key(i.prefix.as_deref().unwrap_or(""));
    let mut found = session.meta.uploads(bucket.id, prefix, after, max + 1).await.map_err(error::meta)?;
    let truncated = found.len() > max;
    found.truncate(max);
    let url = i.encoding_type.as_ref().is_some_and(|e| e.as_str() == "url");
    let next = found.last().filter(|_| truncated).map(|u| (super::list::shown(&u.key, url), super::upload_text(u.id)));
    let uploads = found
        .into_iter()
        .map(|u| MultipartUpload {
            key: Some(super::list::shown(&u.key, url)),
            upload_id: Some(super::upload_text(u.id)),
            initiated: Some(timestamp(u.created)),
            ..Default::default()
        })
        .collect();
    let (next_key_marker, next_upload_id_marker) = next.unzip();
    Ok(S3Response::new(ListMultipartUploadsOutput {
        bucket: Some(i.bucket),
        prefix: i.prefix,
        key_marker: i.key_marker,
        upload_id_marker: i.upload_id_marker,
        max_uploads: Some(max as i32),
        is_truncated: Some(truncated),
        next_key_marker,
        next_upload_id_marker,
        uploads: Some(uploads),
        encoding_type: i.encoding_type,
        ..Default::default()
    }))
}
