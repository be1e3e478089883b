//! Buckets: create, delete, head, list, where they are.

use crate::door::Inner;
use crate::error;
use crate::info::{refuse_unsupported, timestamp};
use holdfast_objstore_proto::Code;
use holdfast_objstore_proto::meta::{Command, Shape};
use hyper::HeaderMap;
use hyper::header::HeaderValue;
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use std::sync::Arc;

/// Asks for a code at CreateBucket, and tells it at HeadBucket and GetBucketLocation.
pub const CODE_HEADER: &str = "x-holdfast-code";

/// The code that a request for a new bucket asks for, if it does.
fn asked_code(door: &Inner, headers: &HeaderMap) -> S3Result<Option<Code>> {
    let Some(value) = headers.get(CODE_HEADER) else { return Ok(None) };
    let refused = |why: String| S3Error::with_message(S3ErrorCode::InvalidArgument, format!("{CODE_HEADER}: {why}"));
    let text = value.to_str().map_err(|_| refused("it is not text".into()))?;
    let code: Code = text.trim().parse().map_err(refused)?;
    code.carried_by(door.objects.osds().len()).map_err(refused)?;
    Ok(Some(code))
}

fn with_code<T>(output: T, code: Code) -> S3Response<T> {
    let mut response = S3Response::new(output);
    if let Ok(value) = HeaderValue::from_str(&code.to_string()) {
        response.headers.insert(CODE_HEADER, value);
    }
    response
}

/// Makes a flat bucket, with the code asked for or else the cluster's.
pub async fn create(door: &Arc<Inner>, r: S3Request<CreateBucketInput>) -> S3Result<S3Response<CreateBucketOutput>> {
    refuse_unsupported(&r.headers)?;
    let code = asked_code(door, &r.headers)?.unwrap_or(door.config.code);
    let session = door.session().await?;
    let name = super::key(&r.input.bucket);
    let command = Command::CreateBucket { name, shape: Shape::Flat, code, owner: door.config.owner, mode: 0o755 };
    door.commit(&session, command).await.map_err(error::meta)?;
    Ok(with_code(CreateBucketOutput { location: Some(format!("/{}", r.input.bucket)) }, code))
}

pub async fn delete(door: &Arc<Inner>, r: S3Request<DeleteBucketInput>) -> S3Result<S3Response<DeleteBucketOutput>> {
    let session = door.session().await?;
    door.commit(&session, Command::DeleteBucket { name: super::key(&r.input.bucket) }).await.map_err(error::meta)?;
    Ok(S3Response::new(DeleteBucketOutput::default()))
}

pub async fn head(door: &Arc<Inner>, r: S3Request<HeadBucketInput>) -> S3Result<S3Response<HeadBucketOutput>> {
    let session = door.session().await?;
    let bucket = door.bucket(&session, &r.input.bucket).await?;
    Ok(with_code(HeadBucketOutput { bucket_region: Some(door.config.region.clone()), ..Default::default() }, bucket.code))
}

pub async fn list(door: &Arc<Inner>, r: S3Request<ListBucketsInput>) -> S3Result<S3Response<ListBucketsOutput>> {
    let session = door.session().await?;
    let all = session.meta.buckets().await.map_err(error::meta)?;
    let prefix = r.input.prefix.unwrap_or_default();
    let buckets = all
        .into_iter()
        .map(|b| (String::from_utf8_lossy(&b.name).into_owned(), b.created))
        .filter(|(name, _)| name.starts_with(&prefix))
        .map(|(name, created)| Bucket { name: Some(name), creation_date: Some(timestamp(created)), bucket_region: None })
        .collect();
    let owner = Owner { display_name: Some("holdfast".into()), id: Some("holdfast".into()) };
    Ok(S3Response::new(ListBucketsOutput { buckets: Some(buckets), owner: Some(owner), ..Default::default() }))
}

pub async fn location(door: &Arc<Inner>, r: S3Request<GetBucketLocationInput>) -> S3Result<S3Response<GetBucketLocationOutput>> {
    let session = door.session().await?;
    let bucket = door.bucket(&session, &r.input.bucket).await?;
    // The oldest region is written as an empty constraint.
    let region = &door.config.region;
    let constraint = (region != "us-east-1").then(|| BucketLocationConstraint::from(region.clone()));
    Ok(with_code(GetBucketLocationOutput { location_constraint: constraint }, bucket.code))
}

/// Versioning was never enabled: an empty answer, as AWS gives it.
pub async fn versioning(door: &Arc<Inner>, r: S3Request<GetBucketVersioningInput>) -> S3Result<S3Response<GetBucketVersioningOutput>> {
    let session = door.session().await?;
    door.bucket(&session, &r.input.bucket).await?;
    Ok(S3Response::new(GetBucketVersioningOutput::default()))
}
