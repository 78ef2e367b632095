//! HTTP/1.1 requests: one a connection, with bounds of their number, length and time.

use super::{StatusBoard, metrics_text, status_json, status_page};
use crate::notice::Notices;
use hyper::body::Incoming;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Maximum number of connections; the oldest is closed for a further one.
const CONNECTIONS_MAX: usize = 32;
/// Time limit of a connection, from its acceptance to the end of the reply.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(5);
/// Maximum length of a request without its body, in bytes; a body is not read.
const REQUEST_LENGTH_MAX: usize = 16 << 10;
/// Maximum number of header fields of a request.
const FIELDS_MAX: usize = 64;
/// Bytes per read.
const READ_LENGTH: usize = 4 << 10;

/// Replies to requests until the socket fails.
pub(super) async fn serve(listener: TcpListener, board: Arc<StatusBoard>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut open: VecDeque<JoinHandle<()>> = VecDeque::new();
    let mut notices = Notices::default();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Out of file descriptors, or the client has gone: neither ends the page.
            Err(error) => {
                notices.say(
                    "accept",
                    format_args!("a request for the status could not be accepted: {error}"),
                );
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        open.retain(|connection| !connection.is_finished());
        // A reply takes about a millisecond, so the oldest of many is one that does not read or write.
        if open.len() >= CONNECTIONS_MAX
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        open.push_back(tokio::spawn(converse(stream, Arc::clone(&board))));
        debug_assert!(open.len() <= CONNECTIONS_MAX);
    }
}

/// Serves one connection: a request, a reply, the end.
async fn converse(stream: TcpStream, board: Arc<StatusBoard>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = reply(request.method(), request.uri().path(), &board);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(REQUEST_LENGTH_MAX)
        .max_headers(FIELDS_MAX)
        .serve_connection(HttpStream(stream), service);
    match tokio::time::timeout(CONNECTION_TIME_MAX, connection).await {
        Ok(Ok(())) => {}
        // Errors of clients, which may be as many as they like.
        Ok(Err(error)) => tracing::debug!("a request for the status failed: {error}"),
        Err(_) => {
            tracing::debug!("a request for the status took more than {CONNECTION_TIME_MAX:?}");
        }
    }
}

/// The page holds its style and script, loads nothing but itself, and cannot be framed.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The reply to a request.
fn reply(method: &Method, path: &str, board: &StatusBoard) -> Response<String> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let text = "only GET and HEAD are served\n".to_owned();
        let mut response = respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allowed);
        return response;
    }
    let (kind, text) = match path {
        "/" => (
            "text/html; charset=utf-8",
            status_page::render(&board.view()),
        ),
        "/metrics" => (
            "text/plain; version=0.0.4; charset=utf-8",
            metrics_text::render(&board.view()),
        ),
        "/status.json" => ("application/json", status_json::render(&board.view())),
        _ => {
            let text = "not found (available: /, /metrics, /status.json)\n".to_owned();
            return respond(StatusCode::NOT_FOUND, TEXT, text);
        }
    };
    respond(StatusCode::OK, kind, text)
}

const TEXT: &str = "text/plain; charset=utf-8";

fn respond(status: StatusCode, kind: &'static str, text: String) -> Response<String> {
    let mut response = Response::new(text);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (CONNECTION, "close"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, POLICY),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A socket as hyper reads and writes it.
struct HttpStream(TcpStream);

impl Read for HttpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // A copy of at most 4 KiB spares code that handles memory that is not initialized.
        let mut bytes = [0; READ_LENGTH];
        let room = buffer.remaining().min(READ_LENGTH);
        let mut read = ReadBuf::new(&mut bytes[..room]);
        ready!(Pin::new(&mut self.0).poll_read(context, &mut read))?;
        buffer.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl Write for HttpStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
