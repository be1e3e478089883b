//! The table of operations: which call of the S3 API is which function of ours. What is not here answers 501.

use crate::door::Inner;
use crate::metrics::Op;
use crate::ops;
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result};
use std::sync::Arc;

pub struct Operations(pub(crate) Arc<Inner>);

macro_rules! operations {
    ($($name:ident: $input:ident => $output:ident = $f:path;)*) => {
        #[async_trait::async_trait]
        impl S3 for Operations {
            $(async fn $name(&self, request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                let op = Op { op: stringify!($name) };
                self.0.metrics.requests.get_or_create(&op).inc();
                let result = $f(&self.0, request).await;
                if result.is_err() {
                    self.0.metrics.errors.get_or_create(&op).inc();
                }
                result
            })*
        }
    };
}

operations! {
    create_bucket: CreateBucketInput => CreateBucketOutput = ops::bucket::create;
    delete_bucket: DeleteBucketInput => DeleteBucketOutput = ops::bucket::delete;
    head_bucket: HeadBucketInput => HeadBucketOutput = ops::bucket::head;
    list_buckets: ListBucketsInput => ListBucketsOutput = ops::bucket::list;
    get_bucket_location: GetBucketLocationInput => GetBucketLocationOutput = ops::bucket::location;
    get_bucket_versioning: GetBucketVersioningInput => GetBucketVersioningOutput = ops::bucket::versioning;

    put_object: PutObjectInput => PutObjectOutput = ops::put::put;
    get_object: GetObjectInput => GetObjectOutput = ops::get::get;
    head_object: HeadObjectInput => HeadObjectOutput = ops::get::head;
    delete_object: DeleteObjectInput => DeleteObjectOutput = ops::delete::one;
    delete_objects: DeleteObjectsInput => DeleteObjectsOutput = ops::delete::many;
    copy_object: CopyObjectInput => CopyObjectOutput = ops::copy::object;

    list_objects: ListObjectsInput => ListObjectsOutput = ops::list::v1;
    list_objects_v2: ListObjectsV2Input => ListObjectsV2Output = ops::list::v2;

    create_multipart_upload: CreateMultipartUploadInput => CreateMultipartUploadOutput = ops::multipart::create;
    upload_part: UploadPartInput => UploadPartOutput = ops::multipart::part;
    upload_part_copy: UploadPartCopyInput => UploadPartCopyOutput = ops::copy::part;
    complete_multipart_upload: CompleteMultipartUploadInput => CompleteMultipartUploadOutput = ops::complete::complete;
    abort_multipart_upload: AbortMultipartUploadInput => AbortMultipartUploadOutput = ops::multipart::abort;
    list_parts: ListPartsInput => ListPartsOutput = ops::multipart::parts;
    list_multipart_uploads: ListMultipartUploadsInput => ListMultipartUploadsOutput = ops::multipart::uploads;
}
