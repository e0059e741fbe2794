//! The seam: one request, its limits, and why there is no answer.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

/// A boxed future, so that the traits of this crate stay dyn-safe.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Sends one request and reads its whole answer.
pub trait Outbound: Send + Sync + fmt::Debug {
    /// Sends `request`; the answer's body is complete.
    ///
    /// # Errors
    /// When there is no answer. An answer with an error status is an answer.
    fn send(
        &self,
        request: ::http::Request<Bytes>,
    ) -> BoxFuture<'_, Result<::http::Response<Bytes>, Error>>;
}

/// How long a request may take and how much it may bring back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Until the connection is made, name resolution and TLS included. Default 2 s.
    pub connect: Duration,
    /// From the call to the last byte of the answer. Default 5 s.
    pub total: Duration,
    /// Largest answer, in bytes. Default 64 KiB.
    pub answer_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            total: Duration::from_secs(5),
            answer_bytes: 64 * 1024,
        }
    }
}

/// Why there is no answer. The text never holds the URL: hooks carry their secret in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The URL may not be called.
    #[error("the URL cannot be used: {0}")]
    Url(String),
    /// The address must not be called.
    #[error(
        "the address {0} may not be called (loopback, link-local and metadata addresses are refused)"
    )]
    Forbidden(IpAddr),
    /// The host name has no address.
    #[error("the host name {0} cannot be resolved")]
    Unresolved(String),
    /// No process listens there.
    #[error("connection refused")]
    Refused,
    /// No route to the host.
    #[error("host unreachable")]
    Unreachable,
    /// The connection ended before the answer was complete.
    #[error("connection closed before the answer was complete")]
    Reset,
    /// No connection in time.
    #[error("no connection within {}", Seconds(*.0))]
    ConnectTimeout(Duration),
    /// No complete answer in time.
    #[error("no answer within {}", Seconds(*.0))]
    Timeout(Duration),
    /// The answer is longer than allowed.
    #[error("the answer is longer than {0} bytes")]
    TooLarge(usize),
    /// The TLS handshake failed.
    #[error("TLS: {0}")]
    Tls(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// A duration in a sentence: `5 s`, `250 ms`.
struct Seconds(Duration);

/// Answers in process: for tests, and for the simulated gateway without a socket.
pub struct InProcess {
    answer: Arc<Answer>,
    limits: Limits,
}

type Answer = dyn Fn(::http::Request<Bytes>) -> BoxFuture<'static, Result<::http::Response<Bytes>, Error>>
    + Send
    + Sync;

// === impl Seconds ===

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.subsec_millis() == 0 {
            write!(f, "{} s", self.0.as_secs())
        } else {
            write!(f, "{} ms", self.0.as_millis())
        }
    }
}

// === impl InProcess ===

impl InProcess {
    /// Answers every request with `answer`, within the default total time.
    pub fn new<F, A>(answer: F) -> Self
    where
        F: Fn(::http::Request<Bytes>) -> A + Send + Sync + 'static,
        A: Future<Output = Result<::http::Response<Bytes>, Error>> + Send + 'static,
    {
        Self {
            answer: Arc::new(move |request| Box::pin(answer(request))),
            limits: Limits::default(),
        }
    }
}

impl Outbound for InProcess {
    fn send(
        &self,
        request: ::http::Request<Bytes>,
    ) -> BoxFuture<'_, Result<::http::Response<Bytes>, Error>> {
        Box::pin(async move {
            let total = self.limits.total;
            match tokio::time::timeout(total, (self.answer)(request)).await {
                Ok(answer) => answer,
                Err(_) => Err(Error::Timeout(total)),
            }
        })
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").finish_non_exhaustive()
    }
}
