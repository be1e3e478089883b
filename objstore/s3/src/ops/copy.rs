//! Copies: of an object by reference, of a range into a part by reading and writing.
//!
//! What always holds: what lies in a bucket has the bucket's code: a copy from a bucket with another one is read and written anew.

use crate::conditions::ReadConditions;
use crate::deliver::{self, deliver};
use crate::door::{Charging, Inner, Session};
use crate::error;
use crate::info::{UPLOAD_ALGORITHM, etag_text, kept_headers, refuse_unsupported, timestamp, upload_note};
use crate::ingest::{self, Declared, Ingested, ingest};
use crate::sums::{Sums, set_checksums};
use holdfast_meta_client::MetaError;
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{Attr, Bucket, Command, Condition, ObjectInfo, PutObject, Reply};
use hyper::HeaderMap;
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use std::sync::Arc;

/// How often a copy is tried again when its source changes between the look and the commit.
const TRIES: usize = 3;

async fn source(
    door: &Arc<Inner>,
    session: &Session,
    source: &CopySource,
    conditions: ReadConditions<'_>,
) -> S3Result<(Bucket, Attr, ObjectInfo)> {
    let CopySource::Bucket { bucket, key, version_id } = source else {
        return Err(S3Error::with_message(S3ErrorCode::NotImplemented, "only bucket/key copy sources are supported"));
    };
    super::check_version(version_id.as_deref())?;
    let from = door.bucket(session, bucket).await?;
    let (attr, info) = session.meta.resolve(from.id, super::key(key)).await.map_err(error::meta)?;
    match conditions.check(&etag_text(&attr, &info), attr.mtime) {
        // A copy has no 304.
        Err(e) if *e.code() == S3ErrorCode::NotModified => return Err(S3ErrorCode::PreconditionFailed.into()),
        other => other?,
    }
    Ok((from, attr, info))
}

pub async fn object(door: &Arc<Inner>, r: S3Request<CopyObjectInput>) -> S3Result<S3Response<CopyObjectOutput>> {
    refuse_unsupported(&r.headers)?;
    let i = &r.input;
    let replace = match i.metadata_directive.as_ref().map(MetadataDirective::as_str) {
        None | Some("COPY") => false,
        Some("REPLACE") => true,
        Some(_) => return Err(S3Error::with_message(S3ErrorCode::InvalidArgument, "the metadata directive is COPY or REPLACE")),
    };
    let session = door.session().await?;
    let bucket = door.bucket(&session, &i.bucket).await?;
    for _ in 0..TRIES {
        let conditions = ReadConditions {
            if_match: i.copy_source_if_match.as_ref(),
            if_none_match: i.copy_source_if_none_match.as_ref(),
            if_modified_since: i.copy_source_if_modified_since.as_ref(),
            if_unmodified_since: i.copy_source_if_unmodified_since.as_ref(),
        };
        let (from, attr, mut info) = source(door, &session, &i.copy_source, conditions).await?;
        let onto_itself = from.id == bucket.id && matches!(&i.copy_source, CopySource::Bucket { key, .. } if **key == *i.key);
        if onto_itself && !replace {
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, "copying an object onto itself changes nothing: say REPLACE"));
        }
        if replace {
            info.headers = kept_headers(&r.headers)?;
        }
        let ino = session.ids.inode().await.map_err(error::meta)?;
        let checksums = info.checksums.clone();
        let put = PutObject {
            bucket: bucket.id,
            key: super::key(&i.key),
            ino,
            size: attr.size,
            extents: Vec::new(),
            stripes: Vec::new(),
            inline: Vec::new(),
            info,
            owner: door.config.owner,
            condition: Condition::default(),
            copy_from: None,
        };
        let copied = if from.code == bucket.code {
            door.commit(&session, Command::PutObject(PutObject { copy_from: Some((attr.ino, attr.change)), ..put })).await
        } else {
            let body = rewrite(door, &session, &bucket, ino, &attr, 0..attr.size, None).await?;
            // The bytes are of one version only if nobody wrote to the source meanwhile.
            if session.meta.getattr(attr.ino).await.map_or(true, |(now, _)| now.change != attr.change) {
                continue;
            }
            let command = |stripes| Command::PutObject(PutObject { extents: body.extents, stripes, inline: body.inline, ..put });
            body.stripes.commit(&session, command).await
        };
        let (attr, etag) = match copied {
            Ok(Reply::Put { attr, etag, .. }) => (attr, etag),
            Ok(other) => return Err(error::unexpected(other)),
            Err(MetaError::Stale | MetaError::Retry(_)) => continue,
            Err(e) => return Err(error::meta(e)),
        };
        let mut result =
            CopyObjectResult { e_tag: Some(ETag::Strong(etag)), last_modified: Some(timestamp(attr.mtime)), ..Default::default() };
        set_checksums!(result, checksums);
        return Ok(S3Response::new(CopyObjectOutput { copy_object_result: Some(result), ..Default::default() }));
    }
    Err(S3Error::with_message(S3ErrorCode::ServiceUnavailable, "the source keeps changing; try again"))
}

pub async fn part(door: &Arc<Inner>, r: S3Request<UploadPartCopyInput>) -> S3Result<S3Response<UploadPartCopyOutput>> {
    let i = &r.input;
    let (id, number) = (super::upload_id(&i.upload_id)?, super::part_number(i.part_number)?);
    let session = door.session().await?;
    let bucket = door.bucket(&session, &i.bucket).await?;
    let (upload, _) = session.meta.upload_parts(bucket.id, id, u16::MAX, 1).await.map_err(error::meta)?;
    if upload.key != i.key.as_bytes() {
        return Err(S3ErrorCode::NoSuchUpload.into());
    }
    let conditions = ReadConditions {
        if_match: i.copy_source_if_match.as_ref(),
        if_none_match: i.copy_source_if_none_match.as_ref(),
        if_modified_since: i.copy_source_if_modified_since.as_ref(),
        if_unmodified_since: i.copy_source_if_unmodified_since.as_ref(),
    };
    let (_, attr, _) = source(door, &session, &i.copy_source, conditions).await?;
    let range = match &i.copy_source_range {
        None => 0..attr.size,
        Some(text) => exact_range(text, attr.size)?,
    };
    let algorithm = upload_note(&upload.info, UPLOAD_ALGORITHM);
    let body = rewrite(door, &session, &bucket, InodeId(0), &attr, range, algorithm).await?;
    let part = super::multipart::commit_part(&session, bucket.id, id, number, body).await?;
    let mut result =
        CopyPartResult { e_tag: Some(ETag::Strong(part.etag)), last_modified: Some(timestamp(part.modified)), ..Default::default() };
    set_checksums!(result, part.checksums);
    Ok(S3Response::new(UploadPartCopyOutput { copy_part_result: Some(result), ..Default::default() }))
}

/// Reads `range` of a source and writes it into stripes of `bucket`, in its code. `algorithm`: of a checksum to make on the way.
async fn rewrite(
    door: &Arc<Inner>,
    session: &Arc<Session>,
    bucket: &Bucket,
    ino: InodeId,
    source: &Attr,
    range: std::ops::Range<u64>,
    algorithm: Option<&str>,
) -> S3Result<Ingested> {
    let length = range.end - range.start;
    // For reading and writing together, before either begins: each waiting for its own would be copies waiting for one another.
    let _charge = door.budget.charge(deliver::charge_of(length) + ingest::charge_of(length)).await;
    let body = deliver(door, session, source.ino, range, Charging::Caller).await?;
    let none = HeaderMap::new();
    let sums = Sums::from_headers(&none, algorithm)?;
    let declared = Declared { headers: &none, trailers: None, length: Some(length) };
    ingest(door, session, bucket, ino, Some(body), declared, sums, Charging::Caller).await
}

/// `bytes=first-last`, both given and inside the source, as copies require.
pub(crate) fn exact_range(text: &str, size: u64) -> S3Result<std::ops::Range<u64>> {
    let bad = || S3Error::with_message(S3ErrorCode::InvalidArgument, "x-amz-copy-source-range is bytes=first-last within the source");
    let (first, last) = text.strip_prefix("bytes=").and_then(|t| t.split_once('-')).ok_or_else(bad)?;
    let (first, last): (u64, u64) = (first.parse().map_err(|_| bad())?, last.parse().map_err(|_| bad())?);
    if first > last || last >= size {
        return Err(bad());
    }
    Ok(first..last + 1)
}
