//! Errors of a request to the API server.

use std::time::Duration;

use kube_core::response::Status;

/// Error of a request. The message has the verb and the object, never a body: it may hold a Secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refused the request.
    #[error("{request}: {} ({})", status.message, status.code)]
    Api {
        /// The verb and the object.
        request: String,
        /// The server's answer.
        status: Box<Status>,
    },
    /// No answer in time. A write may have taken effect.
    #[error("{request}: no answer within {after:?}")]
    Deadline {
        /// The verb and the object.
        request: String,
        /// The deadline.
        after: Duration,
    },
    /// The request got no credentials, or the connection could not be made, or broke. Unless `sent` is false, a write may have
    /// taken effect.
    #[error(
        "{request}: the API server could not be reached: {}",
        crate::error_chain(source)
    )]
    Transport {
        /// The verb and the object.
        request: String,
        /// Whether the request may have reached the server.
        sent: bool,
        /// The cause.
        source: Box<kube_client::Error>,
    },
    /// The answer does not match the type.
    #[error(
        "{request}: the answer does not decode as {kind} at line {line} column {column} ({category})"
    )]
    Decode {
        /// The verb and the object.
        request: String,
        /// The expected kind.
        kind: String,
        /// The line in the answer, from 1.
        line: usize,
        /// The column in the line, from 1.
        column: usize,
        /// The problem, without the text.
        category: &'static str,
    },
    /// The answer is larger than the client's limit.
    #[error("{request}: the answer is larger than {limit} bytes; list in pages (`limit`)")]
    TooLarge {
        /// The verb and the object.
        request: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// The object or the parameters are not a valid request.
    #[error("{request}: not a valid request: {message}")]
    Invalid {
        /// The verb and the object.
        request: String,
        /// The problem.
        message: String,
    },
    /// Discovery has no such kind or resource.
    #[error("the server has no {wanted} in {place}: {found}")]
    NoMatch {
        /// The kind or the resource.
        wanted: String,
        /// The group, and the version if one was given.
        place: String,
        /// The existing kinds instead.
        found: String,
    },
    /// The function of a create-or-update failed, or changed the name or the namespace. Nothing was written.
    #[error("{object} is not written")]
    Mutate {
        /// The kind and the object.
        object: String,
        /// The error of the function.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A wait for a state of an object ended at its limit.
    #[error("{request}: not reached within {after:?}: {last}")]
    NotReached {
        /// The object.
        request: String,
        /// The limit.
        after: Duration,
        /// The state that was seen last, or the last error.
        last: String,
    },
    /// Not sent: this process does not hold the lease of its controller.
    #[error("{request}: not sent, this process is not the leader")]
    NotLeader {
        /// The verb and the object.
        request: String,
    },
}

// === impl Error ===

impl Error {
    /// The server's status, if it answered with one.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Api { status, .. } => Some(status),
            _ => None,
        }
    }

    /// The server has no such object (404).
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// The object was changed since it was read (409 with reason Conflict).
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.status()
            .is_some_and(|status| status.code == 409 && status.reason != "AlreadyExists")
    }

    /// An object of that name exists (409 with reason AlreadyExists).
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        self.status()
            .is_some_and(|status| status.reason == "AlreadyExists")
    }

    /// The server refuses the object (422 or 400): a retry cannot help. A denial of an admission webhook is none, though its
    /// code is 400 unless the webhook sets another: what it looks at may change.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        let denied = |status: &Status| status.message.starts_with("admission webhook ");
        matches!(self.code(), Some(400 | 422)) && !self.status().is_some_and(denied)
    }

    /// The server does not serve the path (404, but not for an object): the kind, or this version of it, does not exist,
    /// or not yet.
    #[must_use]
    pub fn is_not_served(&self) -> bool {
        self.status().is_some_and(|status| {
            let named = status
                .details
                .as_ref()
                .is_some_and(|details| !details.name.is_empty());
            status.code == 404 && !named
        })
    }

    /// The server no longer has the requested state (410): a paged list must start again.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.code() == Some(410)
    }

    /// Whether a write that ended in this error may have taken effect.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        match self {
            Self::Api { status, .. } => status.code >= 500,
            Self::Deadline { .. } | Self::Decode { .. } | Self::TooLarge { .. } => true,
            Self::Transport { sent, .. } => *sent,
            Self::Invalid { .. }
            | Self::NotLeader { .. }
            | Self::Mutate { .. }
            | Self::NotReached { .. }
            | Self::NoMatch { .. } => false,
        }
    }

    /// Whether the server could not be reached or could not answer (a broken connection, no answer in time, 408, 429 or
    /// any 5xx), so that the request itself may be valid.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Api { status, .. } => status.code >= 500 || matches!(status.code, 408 | 429),
            Self::Deadline { .. } | Self::Transport { .. } => true,
            _ => false,
        }
    }

    /// The delay that the server requests, if any: the header `Retry-After` of a 429 or a 5xx, up to a minute, or
    /// `retryAfterSeconds` of its Status if that is longer (client-go: `Request.retry`, which honours the header).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let status = self.status()?;
        let seconds = status.details.as_ref()?.retry_after_seconds;
        ((status.code == 429 || status.code >= 500) && seconds > 0)
            .then(|| Duration::from_secs(seconds.into()))
    }

    fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }
}

/// `None` instead of a "not found" error.
///
/// # Errors
/// Every other error.
pub fn optional<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
