//! A sentence for every error that has only a code: the parser and some operations name a code and say nothing more.
//!
//! What always holds: what an error already says stays; its code and its status are never touched.
//! What it leaves out: bodies that are streamed; errors never are.

use hyper::Response;
use s3s::Body;

/// What a code means, for people.
const MESSAGES: &[(&str, &str)] = &[
    ("AccessDenied", "Access is denied."),
    ("BadDigest", "The Content-MD5 given does not match the body that arrived."),
    ("EntityTooLarge", "The body is larger than what is allowed for one request."),
    ("IncompleteBody", "The body has fewer bytes than Content-Length says."),
    ("InternalError", "Something failed on the server; try again."),
    ("InvalidAccessKeyId", "There is no such access key."),
    ("InvalidBucketName", "The bucket name is not valid: 3 to 63 lower-case letters, digits, dots and hyphens."),
    ("InvalidDigest", "The Content-MD5 given is not the base64 of 16 bytes."),
    ("InvalidPart", "A part that was named was not uploaded, or has another ETag."),
    ("InvalidPartOrder", "The parts are not in ascending order of their numbers."),
    ("InvalidRange", "The range asked for lies outside of the object."),
    ("InvalidStorageClass", "The storage class is not supported: only STANDARD is."),
    ("InvalidURI", "The address of the request cannot be read."),
    ("KeyTooLongError", "The key is too long: at most 1024 bytes of UTF-8."),
    ("MalformedXML", "The XML of the request cannot be read, or is not what this request takes."),
    ("MaxMessageLengthExceeded", "The request is too large."),
    ("MetadataTooLarge", "The user metadata is larger than 2048 bytes."),
    ("MethodNotAllowed", "The method is not allowed on this resource."),
    ("MissingContentLength", "The request has no Content-Length."),
    ("NoSuchUpload", "There is no such upload: it was never begun, or was completed or aborted."),
    ("NoSuchVersion", "There is no such version: objects here have none but null."),
    ("NotImplemented", "This is not supported here."),
    ("PreconditionFailed", "A condition of the request does not hold."),
    ("SignatureDoesNotMatch", "The signature does not match the request; check the secret key and the way of signing."),
];

/// Gives an error's body a message when it has none.
pub fn complete(mut response: Response<Body>) -> Response<Body> {
    let status = response.status();
    if !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let text = response.body().bytes().and_then(|b| String::from_utf8(b.to_vec()).ok());
    if let Some(text) = text.and_then(|t| with_message(&t, status.canonical_reason().unwrap_or("The request failed."))) {
        response.headers_mut().remove(hyper::header::CONTENT_LENGTH);
        *response.body_mut() = Body::from(text);
    }
    response
}

/// The XML of an error with a message behind its code; `None` when it has one, or is no error.
fn with_message(xml: &str, otherwise: &str) -> Option<String> {
    const END: &str = "</Code>";
    let start = xml.find("<Error><Code>")? + "<Error><Code>".len();
    let end = start + xml[start..].find(END)?;
    if xml[end..].contains("<Message>") {
        return None;
    }
    let code = &xml[start..end];
    let message = MESSAGES.iter().find(|(c, _)| *c == code).map_or(otherwise, |(_, m)| m);
    let (head, tail) = xml.split_at(end + END.len());
    Some(format!("{head}<Message>{message}</Message>{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_a_message_gets_one_and_others_stay() {
        let bare = |code: &str| format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><RequestId>1</RequestId></Error>");
        let said = with_message(&bare("InvalidRange"), "x").unwrap();
        assert!(said.contains("</Code><Message>The range asked for lies outside of the object.</Message><RequestId>"), "{said}");
        assert!(with_message(&said, "x").is_none());
        assert!(with_message(&bare("SomethingElse"), "Conflict").unwrap().contains("<Message>Conflict</Message>"));
        for other in ["", "<ListBucketResult/>", "<Error><Code>cut"] {
            assert!(with_message(other, "x").is_none());
        }
    }
}
