//! PUT of an object: one pass over the body, one commit that swaps the name.

use crate::conditions::write_condition;
use crate::door::{Charging, Inner};
use crate::error;
use crate::info::{kept_headers, refuse_unsupported};
use crate::ingest::{Declared, ingest};
use crate::sums::{Sums, set_checksums};
use holdfast_objstore_proto::meta::{Command, ObjectInfo, PutObject, Reply};
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result};
use std::sync::Arc;

pub async fn put(door: &Arc<Inner>, r: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
    refuse_unsupported(&r.headers)?;
    let condition = write_condition(r.input.if_match.as_ref(), r.input.if_none_match.as_ref())?;
    let headers = kept_headers(&r.headers)?;
    let sums = Sums::from_headers(&r.headers, None)?;
    let session = door.session().await?;
    let bucket = door.bucket(&session, &r.input.bucket).await?;
    let ino = session.ids.inode().await.map_err(error::meta)?;
    let length = r.input.content_length.and_then(|n| u64::try_from(n).ok());
    let declared = Declared { headers: &r.headers, trailers: r.trailing_headers.as_ref(), length };
    let body = ingest(door, &session, &bucket, ino, r.input.body, declared, sums, Charging::Here).await?;
    let info = ObjectInfo { etag: Some(body.etag()), headers, checksums: body.checksums.clone(), parts: Vec::new() };
    let command = |stripes| {
        Command::PutObject(PutObject {
            bucket: bucket.id,
            key: super::key(&r.input.key),
            ino,
            size: body.size,
            extents: body.extents,
            stripes,
            inline: body.inline,
            info,
            owner: door.config.owner,
            condition,
            copy_from: None,
        })
    };
    let etag = match body.stripes.commit(&session, command).await.map_err(error::meta)? {
        Reply::Put { etag, .. } => etag,
        other => return Err(error::unexpected(other)),
    };
    let mut out = PutObjectOutput { e_tag: Some(ETag::Strong(etag)), ..Default::default() };
    set_checksums!(out, body.checksums);
    if !body.checksums.is_empty() {
        out.checksum_type = Some(ChecksumType::from_static(ChecksumType::FULL_OBJECT));
    }
    Ok(S3Response::new(out))
}
