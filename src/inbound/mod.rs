//! HTTP servers that strangers may reach: limits first, then the handler.
//!
//! [`Listener`] accepts HTTP/1.1 on one address and hands each request to a [`Handler`]. It bounds the
//! connections, the size and time of the header, the time of the whole request, and ends with its
//! owner. Reading the body is left to the handler, through a [`Budget`], so that who sends no
//! credentials is answered before anything is read.

mod body;
mod listener;

pub use body::{BodyError, Budget, WholeBody};
pub use listener::{Limits, Listener};

use std::future::Future;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::outbound::BoxFuture;

/// A request as it arrives.
pub type Request = http::Request<Incoming>;

/// An answer; its body is complete.
pub type Answer = Response<Full<Bytes>>;

/// Answers requests. Implemented by functions.
pub trait Handler: Send + Sync + 'static {
    /// Answers `request`. `None` closes the connection without an answer.
    fn handle(&self, request: Request) -> BoxFuture<'static, Option<Answer>>;
}

impl<F, A> Handler for F
where
    F: Fn(Request) -> A + Send + Sync + 'static,
    A: Future<Output = Option<Answer>> + Send + 'static,
{
    fn handle(&self, request: Request) -> BoxFuture<'static, Option<Answer>> {
        Box::pin(self(request))
    }
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
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let value = http::HeaderValue::from_static(content_type);
    answer
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, value);
    answer
}
