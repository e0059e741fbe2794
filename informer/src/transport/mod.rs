//! Requests of our own through a [`kube_client::Client`].
//!
//! kube-client's typed calls have no deadline and log a whole body that does not decode, Secrets included.
//! Here every request but a watch ends by a deadline, a watch ends when it is silent too long (see
//! [`Lines::next_line`]), bodies are limited, and no body is ever logged or quoted.

mod error;
mod lines;
mod request;

pub use error::Error;
pub(crate) use error::error_chain;
#[cfg(any(test, fuzzing))]
pub(crate) use error::from_answer;
pub use lines::Lines;
#[cfg(any(test, fuzzing))]
pub(crate) use lines::Splitter;
pub use request::{Endpoint, ListRequest, Scope, Selection, WatchRequest};

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http::{Request, Response};
use http_body_util::BodyExt;
use kube_client::Client;
use kube_client::client::Body;
use tokio::time::{Instant, timeout_at};

use crate::backoff::LONGEST;

/// Limits of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a request may take, its body included; of a watch, until its headers come. Default 60 s
    /// (the API server's own).
    pub deadline: Duration,
    /// The largest body, and the largest line of a watch, in bytes. Default 512 MiB: an unpaged list of a
    /// hundred thousand Pods. Pages of 500 stay far below, and what is larger at once is asked for in pages.
    pub body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(60),
            body: 512 << 20,
        }
    }
}

/// Error bodies are a Status; more than this is no Status.
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
    pub fn new(client: Client, mut limits: Limits) -> Self {
        limits.deadline = limits.deadline.min(LONGEST);
        Self { client, limits }
    }

    /// Sends a request and reads its whole body.
    ///
    /// # Errors
    /// [`Error`], also for every status that is not a success.
    pub async fn fetch(&self, request: Request<Body>) -> Result<Bytes, Error> {
        let deadline = Instant::now() + self.limits.deadline;
        let response = self.open_by(request, deadline).await?;
        self.collect(response, self.limits.body, deadline).await
    }

    /// Sends a request whose body is a stream of lines; only its headers have a deadline.
    ///
    /// # Errors
    /// [`Error`], also for every status that is not a success.
    pub async fn watch(&self, request: Request<Body>) -> Result<Lines, Error> {
        let deadline = Instant::now() + self.limits.deadline;
        let response = self.open_by(request, deadline).await?;
        Ok(Lines::new(response.into_body(), self.limits.body))
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
        // A body that does not come, or is no Status, still leaves the code.
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
        // Of a size that is said before, memory is taken once.
        let said = response.headers().get(CONTENT_LENGTH);
        let said = said.and_then(|size| size.to_str().ok()?.parse().ok());
        let said = limit.min(said.unwrap_or(0));
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
            // A body of one frame is passed on as it came.
            match first.take() {
                None if rest.is_empty() => first = Some(data),
                None => rest.extend_from_slice(&data),
                Some(before) => {
                    rest.reserve(size.max(said));
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
