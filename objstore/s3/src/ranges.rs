//! A Range header that cannot be read is ignored, as RFC 9110 has it and AWS does: the answer is the whole object.
//!
//! What always holds: the signature is verified over the request as it came; only then is the header taken away.
//! The parser refuses such a header, and most clients sign it, so it cannot go before the signature is checked. Hence a
//! route behind that check, and behind it a second service without one, to which nothing else leads.

use crate::service::Operations;
use hyper::header::{AUTHORIZATION, RANGE};
use hyper::http::{Extensions, uri::PathAndQuery};
use hyper::{HeaderMap, Method, Request, Uri};
use s3s::dto::Range;
use s3s::route::S3Route;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

/// Takes requests whose Range header is malformed.
pub struct IgnoreMalformed(S3Service);

impl IgnoreMalformed {
    pub fn new(operations: Operations) -> Self {
        Self(S3ServiceBuilder::new(operations).build())
    }
}

fn malformed(headers: &HeaderMap) -> bool {
    // The parser takes a suffix without a length for one of no bytes.
    let bad = |t: &str| !t.is_empty() && (t == "bytes=-" || Range::parse(t).is_err());
    headers.get(RANGE).is_some_and(|v| v.to_str().map_or(true, bad))
}

/// The address without the parts of a presigned signature, which was verified.
fn unsigned(uri: &Uri) -> Option<Uri> {
    let Some(query) = uri.query() else { return Some(uri.clone()) };
    let kept: Vec<&str> = query.split('&').filter(|p| !p.starts_with("X-Amz-")).collect();
    let path = if kept.is_empty() { uri.path().to_string() } else { format!("{}?{}", uri.path(), kept.join("&")) };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
    Uri::from_parts(parts).ok()
}

#[async_trait::async_trait]
impl S3Route for IgnoreMalformed {
    fn is_match(&self, method: &Method, _: &Uri, headers: &HeaderMap, _: &mut Extensions) -> bool {
        (method == Method::GET || method == Method::HEAD) && malformed(headers)
    }

    // The default `check_access` refuses requests without credentials, as for every other operation.

    async fn call(&self, r: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let mut request = Request::new(r.input);
        *request.method_mut() = r.method;
        *request.uri_mut() = unsigned(&r.uri).ok_or(S3ErrorCode::InvalidURI)?;
        *request.headers_mut() = r.headers;
        request.headers_mut().remove(RANGE);
        request.headers_mut().remove(AUTHORIZATION);
        let answer = self.0.call(request).await.map_err(|e| S3Error::with_message(S3ErrorCode::InternalError, format!("{e:?}")))?;
        let (parts, body) = answer.into_parts();
        let mut response = S3Response::new(body);
        response.status = Some(parts.status);
        response.headers = parts.headers;
        response.extensions = parts.extensions;
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_malformed_and_what_cannot_be_satisfied_is_not() {
        let with = |v: &str| HeaderMap::from_iter([(RANGE, v.parse().unwrap())]);
        for bad in ["bytes", "bytes=", "bytes=x-", "bytes=5-2", "bytes=0-1,3-4", "lines=1-2", "bytes=-"] {
            assert!(malformed(&with(bad)), "{bad}");
        }
        for good in ["bytes=0-1", "bytes=999999-", "bytes=-5", ""] {
            assert!(!malformed(&with(good)), "{good}");
        }
        assert!(!malformed(&HeaderMap::new()));
    }

    #[test]
    fn a_presigned_address_loses_only_its_signature() {
        let strip = |u: &str| unsigned(&u.parse().unwrap()).unwrap().to_string();
        assert_eq!(strip("/b/k?X-Amz-Signature=1&partNumber=2&X-Amz-Date=3"), "/b/k?partNumber=2");
        assert_eq!(strip("/b/k%20x?X-Amz-Signature=1"), "/b/k%20x");
        assert_eq!(strip("/b/k?list-type=2"), "/b/k?list-type=2");
    }
}
