//! HTTP servers that unknown clients may reach: limits first, then the handler.
//!
//! [`serve`] accepts HTTP/1.1 on one address and passes each request to a handler, within [`limits`]. The handler reads
//! the body through a [`Budget`], so that a sender without credentials is answered before anything is read.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use reeve_serve::certificates::Certificates;
pub use reeve_serve::http::{
    Answer, BodyError, Budget, Limits, Request, Running, WholeBody, hang_up,
};
use reeve_serve::http::{Body, Handler, Server, listen};

/// Limits of a listener that receives webhooks: 5 s for a header of at most 16 KiB and 64 lines, 5 s for an idle
/// connection, 10 s for the answer, 256 connections, 5 s to drain.
#[must_use]
pub fn limits() -> Limits {
    Limits::default()
        .header_timeout(Duration::from_secs(5))
        .idle(Duration::from_secs(5))
        .header_bytes(16 * 1024)
        .headers(64)
        .answer_timeout(Duration::from_secs(10))
        .connections(256)
        .drain(Duration::from_secs(5))
}

/// Listens at `address` (port 0 takes a free one) and answers with `handler`, until the result is stopped or dropped.
///
/// # Errors
/// When the address cannot be bound.
///
/// # Panics
/// Outside a tokio runtime.
pub fn serve<F>(
    address: SocketAddr,
    limits: Limits,
    handler: impl Fn(Request) -> F + Send + Sync + 'static,
) -> io::Result<Running>
where
    F: Future<Output = Answer> + Send + 'static,
{
    serve_tls(address, None, limits, handler)
}

/// As [`serve`], over HTTPS where there are certificates. They are kept up to date while the server runs.
///
/// # Errors
/// When the address cannot be bound, and when TLS cannot be set up.
///
/// # Panics
/// Outside a tokio runtime.
pub fn serve_tls<F>(
    address: SocketAddr,
    certificates: Option<Certificates>,
    limits: Limits,
    handler: impl Fn(Request) -> F + Send + Sync + 'static,
) -> io::Result<Running>
where
    F: Future<Output = Answer> + Send + 'static,
{
    let handler: Handler = Arc::new(move |request| Box::pin(handler(request)));
    let name = format!("inbound {address}");
    let mut server = Server::on(name, listen(address)?, handler);
    if let Some(certificates) = certificates {
        server = server.tls(certificates, false).map_err(io::Error::other)?;
    }
    server.limits(limits).start()
}

/// An answer with a plain text line.
#[must_use]
pub fn text(status: StatusCode, text: impl Into<String>) -> Answer {
    let mut text = text.into();
    text.push('\n');
    typed(status, "text/plain; charset=utf-8", text)
}

/// An answer with a JSON document.
#[must_use]
pub fn json(status: StatusCode, document: &serde_json::Value) -> Answer {
    typed(status, "application/json", document.to_string())
}

/// An answer of the media type `content_type`.
#[must_use]
pub fn typed(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Body::whole(body));
    *answer.status_mut() = status;
    let value = HeaderValue::from_static(content_type);
    answer.headers_mut().insert(CONTENT_TYPE, value);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    async fn exchange(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The server may close before it has read everything.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test]
    async fn a_header_that_other_servers_take_is_too_large_or_too_long_for_unknown_clients() {
        let hello = |_| async { text(StatusCode::OK, "hello") };
        let running = serve(([127, 0, 0, 1], 0).into(), limits(), hello).unwrap();
        let large = format!("X-Large: {}\r\n", "a".repeat(48 * 1024));
        let many = "X-More: a\r\n".repeat(80);
        for (lines, taken) in [("", true), (&large, false), (&many, false)] {
            let request = format!("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}\r\n");
            let answer = exchange(running.local_addr(), &request).await;
            assert_eq!(answer.contains("hello"), taken, "{answer}");
        }
    }
}
