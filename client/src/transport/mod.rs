//! Raw requests through a [`kube_client::Client`].
//!
//! kube-client's typed calls have no deadline and log a whole body that does not decode, Secrets included.
//! Here every request but a watch has a deadline, a watch ends after too long a silence (see
//! [`Lines::next_line`]), bodies are limited, and no body is ever logged or quoted.
//!
//! Answers are JSON, or protobuf where a request accepts it: [`Encoding`].

mod encoding;
pub(crate) mod error;
mod lines;
mod request;

pub use encoding::{Encoded, Encoding};
pub use error::Error;
#[doc(hidden)]
pub use error::from_answer;
pub use lines::Lines;
#[doc(hidden)]
pub use lines::Splitter;
pub use request::{Endpoint, ListRequest, Scope, Selection, WatchRequest};

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http::{Request, Response};
use http_body_util::BodyExt;
use kube_client::Client;
use kube_client::client::Body;
use tokio::time::{Instant, timeout_at};

use reeve_clock::LONGEST;

/// Limits of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Limits {
    deadline: Duration,
    body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(60),
            body: 512 << 20,
        }
    }
}

// === impl Limits ===

impl Limits {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Deadline of a request, its body included; of a watch, until its headers arrive. Default: 60 s (the API server's
    /// own).
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline.min(LONGEST);
        self
    }

    /// Maximum size of a body, and of a line of a watch, in bytes. Default: 512 MiB, an unpaged list of a hundred thousand
    /// Pods. Pages of 500 stay far below, and larger answers are requested in pages.
    pub fn body(mut self, bytes: usize) -> Self {
        self.body = bytes;
        self
    }
}

/// Maximum size of an error body; a Status is not larger.
const ERROR_BODY: usize = 1 << 20;

/// A client with limits.
#[derive(Clone)]
pub struct Transport {
    client: Client,
    limits: Limits,
}

// === impl Transport ===

impl Transport {
    /// Sends through `client`, within `limits`.
    #[must_use]
    pub fn new(client: Client, limits: Limits) -> Self {
        Self { client, limits }
    }

    /// Sends a request and reads its whole body.
    ///
    /// # Errors
    /// [`Error`], also for every status that is not a success.
    pub async fn fetch(&self, request: Request<Body>) -> Result<Bytes, Error> {
        Ok(self.fetch_encoded(request).await?.bytes)
    }

    /// Sends a request, and reads its whole body, with its encoding.
    ///
    /// # Errors
    /// [`Error`], also for every status that is not a success.
    pub async fn fetch_encoded(&self, request: Request<Body>) -> Result<Encoded, Error> {
        let deadline = Instant::now() + self.limits.deadline;
        let response = self.open_by(request, deadline).await?;
        let encoding = Encoding::of(response.headers());
        let bytes = self.collect(response, self.limits.body, deadline).await?;
        Ok(Encoded { encoding, bytes })
    }

    /// Sends a request whose body is a stream of lines, or of frames; only its headers have a deadline.
    ///
    /// # Errors
    /// [`Error`], also for every status that is not a success.
    pub async fn watch(&self, request: Request<Body>) -> Result<Lines, Error> {
        let deadline = Instant::now() + self.limits.deadline;
        let response = self.open_by(request, deadline).await?;
        let encoding = Encoding::of(response.headers());
        Ok(Lines::new(response.into_body(), encoding, self.limits.body))
    }

    async fn open_by(
        &self,
        request: Request<Body>,
        deadline: Instant,
    ) -> Result<Response<Body>, Error> {
        let response = timeout_at(deadline, self.client.send(request))
            .await
            .map_err(|_| self.late())?
            .map_err(Error::Connection)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let code = response.status();
        let retry_after = error::retry_after(response.headers());
        // Without a body, or with one that is not a Status, the code remains.
        let body = self
            .collect(response, ERROR_BODY, deadline)
            .await
            .unwrap_or_default();
        Err(error::from_answer(code, retry_after, &body))
    }

    async fn collect(
        &self,
        response: Response<Body>,
        limit: usize,
        deadline: Instant,
    ) -> Result<Bytes, Error> {
        // With a declared size, memory is allocated once.
        let declared = response.headers().get(CONTENT_LENGTH);
        let declared = declared.and_then(|size| size.to_str().ok()?.parse().ok());
        let declared = limit.min(declared.unwrap_or(0));
        let mut body = response.into_body();
        let mut first: Option<Bytes> = None;
        let mut rest = BytesMut::new();
        let mut size = 0;
        while let Some(frame) = timeout_at(deadline, body.frame())
            .await
            .map_err(|_| self.late())?
        {
            let Ok(data) = frame.map_err(Error::Connection)?.into_data() else {
                continue;
            };
            size += data.len();
            if size > limit {
                return Err(Error::TooLarge { limit });
            }
            // A body of one frame is passed on without a copy.
            match first.take() {
                None if rest.is_empty() => first = Some(data),
                None => rest.extend_from_slice(&data),
                Some(before) => {
                    rest.reserve(size.max(declared));
                    rest.extend_from_slice(&before);
                    rest.extend_from_slice(&data);
                }
            }
        }
        Ok(first.unwrap_or_else(|| rest.freeze()))
    }

    fn late(&self) -> Error {
        Error::Deadline {
            after: self.limits.deadline,
        }
    }
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
