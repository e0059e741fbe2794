//! Answers, and the functions that make them.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use hyper::body::Incoming;

use super::Body;

/// A request as it arrives; its body is not read yet. Its extension [`Peer`] names the other end.
pub type Request = http::Request<Incoming>;

/// The other end of a request's connection; an extension of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// An answer to a request.
pub type Answer = Response<Body>;

/// Answers requests. A panic costs the connection only.
pub type Handler = Arc<dyn Fn(Request) -> BoxFuture<'static, Answer> + Send + Sync>;

/// Marks an answer that is not sent.
#[derive(Clone, Copy, Debug)]
struct HangUp;

/// A plain-text answer.
#[must_use]
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    answer(status, "text/plain; charset=utf-8", body)
}

/// An answer of a content type, with a header that keeps browsers from guessing another one.
#[must_use]
pub fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Body::whole(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// No answer: the server closes the connection, or resets the one request of an HTTP/2 connection.
#[must_use]
pub fn hang_up() -> Answer {
    let mut response = Response::new(Body::whole(Bytes::new()));
    response.extensions_mut().insert(HangUp);
    response
}

pub(super) fn is_hang_up(answer: &Answer) -> bool {
    answer.extensions().get::<HangUp>().is_some()
}
