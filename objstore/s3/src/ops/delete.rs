//! DELETE of one object and of many.

use crate::conditions::write_condition;
use crate::door::{Inner, Session};
use crate::error;
use futures::stream::{self, StreamExt};
use holdfast_objstore_proto::BucketId;
use holdfast_objstore_proto::meta::{Command, Condition};
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use std::sync::Arc;

/// Keys in one multi-delete, as S3 limits it.
const KEYS_MAX: usize = 1000;
/// Commits of one multi-delete in flight: they share log flushes.
const COMMITS_AT_ONCE: usize = 32;

pub async fn one(door: &Arc<Inner>, r: S3Request<DeleteObjectInput>) -> S3Result<S3Response<DeleteObjectOutput>> {
    let i = r.input;
    super::check_version(i.version_id.as_deref())?;
    if i.if_match_last_modified_time.is_some() || i.if_match_size.is_some() {
        return Err(S3Error::with_message(S3ErrorCode::NotImplemented, "conditions on time and size are for directory buckets"));
    }
    let condition = write_condition(i.if_match.as_ref(), None)?;
    let session = door.session().await?;
    let bucket = door.bucket(&session, &i.bucket).await?;
    remove(door, &session, bucket.id, &i.key, condition).await?;
    Ok(S3Response::new(DeleteObjectOutput::default()))
}

/// Removing what is not there succeeds, unless a condition names what should have been.
async fn remove(door: &Arc<Inner>, session: &Session, bucket: BucketId, key: &str, condition: Condition) -> S3Result<()> {
    door.commit(session, Command::DeleteObject { bucket, key: super::key(key), condition }).await.map_err(error::meta)?;
    Ok(())
}

pub async fn many(door: &Arc<Inner>, r: S3Request<DeleteObjectsInput>) -> S3Result<S3Response<DeleteObjectsOutput>> {
    let delete = r.input.delete;
    if delete.objects.is_empty() || delete.objects.len() > KEYS_MAX {
        return Err(S3Error::with_message(S3ErrorCode::MalformedXML, "a multi-delete names 1 to 1000 keys"));
    }
    let session = door.session().await?;
    let bucket = door.bucket(&session, &r.input.bucket).await?;
    let quiet = delete.quiet.unwrap_or(false);
    let done: Vec<(String, S3Result<()>)> = stream::iter(delete.objects)
        .map(|o| {
            let (door, session) = (door.clone(), session.clone());
            async move {
                let result = match super::check_version(o.version_id.as_deref()) {
                    Ok(()) => {
                        let condition = Condition { absent: false, etag: o.e_tag.map(|e| e.value().to_string()) };
                        remove(&door, &session, bucket.id, &o.key, condition).await
                    }
                    Err(e) => Err(e),
                };
                (o.key, result)
            }
        })
        .buffered(COMMITS_AT_ONCE)
        .collect()
        .await;
    let (mut deleted, mut errors) = (Vec::new(), Vec::new());
    for (key, result) in done {
        match result {
            Ok(()) if quiet => {}
            Ok(()) => deleted.push(DeletedObject { key: Some(key), ..Default::default() }),
            Err(e) => errors.push(Error {
                code: Some(e.code().as_str().to_string()),
                message: e.message().map(str::to_string),
                key: Some(key),
                version_id: None,
            }),
        }
    }
    Ok(S3Response::new(DeleteObjectsOutput { deleted: Some(deleted), errors: Some(errors), ..Default::default() }))
}
