//! The one key pair, and who may do what with it: its holder everything, everybody else nothing.

use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3ErrorCode, S3Result};

/// Access key and secret key of the door. Signatures are compared in constant time by the parser.
#[derive(Clone)]
pub struct Keys {
    pub access_key: String,
    pub secret_key: String,
}

#[async_trait::async_trait]
impl S3Auth for Keys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        if access_key == self.access_key { Ok(self.secret_key.clone().into()) } else { Err(S3ErrorCode::InvalidAccessKeyId.into()) }
    }
}
