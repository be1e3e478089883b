//! HTTP/1.1 on a listening socket: connections bounded, slow headers timed out, requests drained at the end.

use crate::auth::Keys;
use crate::door::Door;
use crate::ranges::IgnoreMalformed;
use crate::service::Operations;
use crate::{guard, messages};
use holdfast_objstore_base::exec::InHand;
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use s3s::service::{S3Service, S3ServiceBuilder};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// A client that has not sent its headers by then is dropped.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(30);
/// How long requests in flight may take to end once the door closes: a client that stalls must not hold up the end of the process.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection on which nothing was heard for so long is probed.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
/// A peer that has not acknowledged, or not taken, what was sent to it by then is gone.
const PEER_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest life of a presigned URL, as AWS has it.
const PRESIGN_SECONDS_MAX: u64 = 7 * 24 * 3600;

/// A bound address that does not serve yet.
pub struct Server {
    listener: TcpListener,
}

/// Takes the address. Needs a runtime: call it on the one that will serve.
pub fn bind(socket: std::net::TcpListener) -> std::io::Result<Server> {
    socket.set_nonblocking(true)?;
    Ok(Server { listener: TcpListener::from_std(socket)? })
}

impl Server {
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` completes, then lets requests in flight end and closes the session.
    pub async fn serve(self, door: Door, keys: Keys, stop: impl Future<Output = ()>) {
        let service = {
            let mut b = S3ServiceBuilder::new(Operations(door.0.clone()));
            b.set_auth(keys);
            b.set_route(IgnoreMalformed::new(Operations(door.0.clone())));
            b.build()
        };
        let slots = Arc::new(Semaphore::new(door.0.config.connections_max));
        let graceful = GracefulShutdown::new();
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEADERS_TIMEOUT).max_buf_size(256 << 10);
        let chunk_bytes_max = guard::chunk_bytes_max(door.0.budget.bytes_max());
        tokio::pin!(stop);
        loop {
            let slot = tokio::select! {
                slot = slots.clone().acquire_owned() => slot.expect("the semaphore is never closed"),
                () = &mut stop => break,
            };
            let stream = tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(e) => {
                        // Out of descriptors, or a client gone before it was accepted: neither ends the door.
                        tracing::warn!("S3 accept: {e}");
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        continue;
                    }
                },
                () = &mut stop => break,
            };
            if let Err(e) = stream.set_nodelay(true).and_then(|()| notice_dead_peers(&stream)) {
                tracing::debug!("options of an S3 connection: {e}");
            }
            let service = service.clone();
            let answer = hyper::service::service_fn(move |request| answer(service.clone(), request, chunk_bytes_max));
            let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), answer));
            let connections = door.0.metrics.connections.clone();
            tokio::spawn(async move {
                connections.inc();
                if let Err(e) = connection.await {
                    tracing::debug!("S3 connection: {e}");
                }
                connections.dec();
                drop(slot);
            });
        }
        drop(self.listener);
        if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
            tracing::warn!("S3 requests were still running after {} s and were cut off", DRAIN_TIMEOUT.as_secs());
        }
        door.close().await;
    }
}

/// Lets the kernel end a connection whose peer is gone, or takes nothing of what was sent to it. Without this nothing would wake a body that
/// is read from a machine that vanished, and a reply would wait for its reader for ever.
fn notice_dead_peers(stream: &TcpStream) -> std::io::Result<()> {
    let options = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, KEEPALIVE_AFTER.as_secs() as libc::c_int),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, KEEPALIVE_EVERY.as_secs() as libc::c_int),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, PEER_TIMEOUT.as_millis() as libc::c_int),
    ];
    for (level, name, value) in options {
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: `value` is a live int of the size given, and the descriptor belongs to `stream`.
        let done = unsafe { libc::setsockopt(stream.as_raw_fd(), level, name, (&raw const value).cast(), size) };
        if done != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

async fn answer(service: S3Service, request: Request<Incoming>, chunk_bytes_max: u64) -> Result<Response<s3s::Body>, s3s::HttpError> {
    let _in_hand = InHand::new();
    if let Some(refusal) = refuse_before_parsing(&request) {
        return Ok(refusal);
    }
    let chunked = request.headers().get("x-amz-content-sha256").is_some_and(|v| v.as_bytes().starts_with(b"STREAMING-"));
    let expects = request.headers().contains_key("expect");
    let mut response = messages::complete(service.call(request.map(|b| guard::body(b, chunked, chunk_bytes_max))).await?);
    if expects && !response.status().is_success() {
        // A refusal in place of `100 Continue`: the client may or may not send the body now, and some clients take the next answer
        // on this connection for a part of this one. So the connection ends, as it does at AWS.
        response.headers_mut().insert("connection", hyper::header::HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// What the parser would accept and this door does not: signature version 2, and URLs presigned for longer than a week.
fn refuse_before_parsing(request: &Request<Incoming>) -> Option<Response<s3s::Body>> {
    let query = request.uri().query().unwrap_or("");
    let v2_header = request.headers().get("authorization").is_some_and(|v| v.as_bytes().starts_with(b"AWS "));
    if v2_header || parameter(query, "AWSAccessKeyId").is_some() {
        return Some(error(StatusCode::BAD_REQUEST, "InvalidRequest", "Signature version 2 is not supported; use AWS4-HMAC-SHA256."));
    }
    presigned_too_long(query).then(|| {
        error(StatusCode::BAD_REQUEST, "AuthorizationQueryParametersError", "X-Amz-Expires must be a number of seconds up to 604800.")
    })
}

fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|p| p.strip_prefix(name)?.strip_prefix('='))
}

fn presigned_too_long(query: &str) -> bool {
    parameter(query, "X-Amz-Expires").is_some_and(|v| v.parse::<u64>().map_or(true, |s| s > PRESIGN_SECONDS_MAX))
}

/// For fuzzing: what is looked at in a query before the parser sees it.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_query(query: &str) {
    let _ = (presigned_too_long(query), parameter(query, "AWSAccessKeyId"));
}

fn error(status: StatusCode, code: &str, message: &str) -> Response<s3s::Body> {
    let xml = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>");
    let mut response = Response::new(s3s::Body::from(xml));
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("application/xml"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn accepted_connections_notice_dead_peers() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        notice_dead_peers(&stream).unwrap();
        let read = |level, name| {
            let (mut value, mut size): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
            // SAFETY: both point to live values, and `size` says how large the first is.
            let done = unsafe { libc::getsockopt(stream.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut size) };
            assert_eq!(done, 0);
            value
        };
        assert_eq!(read(libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
        assert_eq!(read(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE), 30);
        assert_eq!(read(libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT), 60_000);
    }
}
