//! Errors of a reconcile, and their effect on the key.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use reeve_workqueue::Cause;

use crate::cache::ReadError;
use crate::client::{self, CachedError};

/// The error of a failed reconcile. An error type converts into it with `?`; a boxed error and `anyhow::Error`, which are no
/// error types, with `.map_err(Error::boxed)?`:
///
/// ```
/// use reeve_controller::prelude::*;
///
/// fn parse(text: &str) -> Result<u16, Box<dyn std::error::Error + Send + Sync>> {
///     Ok(text.parse()?)
/// }
///
/// fn port(text: Option<&str>) -> reconcile::Result<u16> {
///     // A retry cannot help until the object changes.
///     let text = text.ok_or_else(|| reconcile::Error::terminal("spec.port is missing"))?;
///     parse(text).map_err(reconcile::Error::boxed)
/// }
/// # assert_eq!(port(Some("80")).unwrap(), 80);
/// # assert!(port(None).unwrap_err().is_terminal() && !port(Some("x")).unwrap_err().is_terminal());
/// ```
///
/// Like a boxed error it does not implement [`std::error::Error`] itself; [`Error::source`] returns the error inside.
#[derive(Debug)]
pub struct Error {
    source: Box<dyn StdError + Send + Sync>,
    class: Class,
    outage: bool,
    /// The state of the API server, if the error shows it.
    server: Option<Server>,
    priority: Option<i32>,
}

/// The effect of an error on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// The key is tried again after its back-off.
    Transient,
    /// The called system refuses calls for a time: the key waits that long at least.
    RateLimited {
        /// The minimum wait.
        retry_after: Duration,
    },
    /// The key is not tried again until something changes.
    Terminal,
}

/// The state of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Away(ServerOutage),
    /// It answered the request.
    Answers,
}

/// An outage of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerOutage {
    /// It cannot be reached.
    Unreachable,
    /// It cannot serve the request now: 408, 429, 5xx, or no answer in time, which may be about one object.
    Refusing,
}

/// The kind of [`Cause`] of an outage.
pub(crate) const OUTAGE: &str = "outage";
/// The kind of [`Cause`] of a refusal with a time to wait.
pub(crate) const RATE_LIMITED: &str = "rate limited";

// === impl Error ===

impl Error {
    /// A transient error with this message.
    #[must_use]
    pub fn message(message: impl Into<String>) -> Self {
        Self::of_class(message.into().into(), Class::Transient)
    }

    /// The error as `?` converts it, for one that `?` does not convert: a boxed error, or one of `anyhow`. Marks inside it
    /// are found: `.map_err(Error::boxed)?`.
    #[must_use]
    pub fn boxed(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let source = source.into();
        let (class, outage) = (class_of(&*source), is_outage(&*source));
        Self {
            outage,
            ..Self::of_class(source, class)
        }
    }

    /// An error after which the key is tried again with its back-off, whatever the marks inside it say.
    #[must_use]
    pub fn transient(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::of_class(source.into(), Class::Transient)
    }

    /// An error that a retry cannot mend (controller-runtime: `reconcile.TerminalError`).
    #[must_use]
    pub fn terminal(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::of_class(source.into(), Class::Terminal)
    }

    /// An error of a system that refuses calls before `retry_after`. The key waits that long, or its longer back-off;
    /// an event of a watch requeues it earlier.
    ///
    /// An API server's answer with a retry delay converts into this, wherever it is in the chain of sources.
    #[must_use]
    pub fn rate_limited(
        source: impl Into<Box<dyn StdError + Send + Sync>>,
        retry_after: Duration,
    ) -> Self {
        Self::of_class(source.into(), Class::RateLimited { retry_after }).of_an_outage()
    }

    /// An error of a system that is down or out of reach. It is not a fault of the request and never counts against
    /// [`max_retries`](crate::controller::Builder::max_retries).
    ///
    /// Three errors convert into this, wherever they are in the chain of sources: an outage of this crate's client
    /// ([`client::Error::is_outage`](crate::client::Error::is_outage)), a cache that is not filled, and a lease that is
    /// not held.
    #[must_use]
    pub fn outage(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::of_class(source.into(), Class::Transient).of_an_outage()
    }

    fn of_class(source: Box<dyn StdError + Send + Sync>, class: Class) -> Self {
        Self {
            server: server_of(&*source),
            source,
            class,
            outage: false,
            priority: None,
        }
    }

    fn of_an_outage(mut self) -> Self {
        self.outage = true;
        self
    }

    /// Requeues the request at this priority. Unset, it keeps the priority of the run that failed.
    #[must_use]
    pub fn with_priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }

    /// The effect on the key.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class
    }

    /// Whether the key is not tried again until something changes.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.class == Class::Terminal
    }

    /// Whether the cause is a system that is down or out of reach, and not the request: [`Error::outage`], and every
    /// rate-limited error.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        self.outage
    }

    /// The outage of the API server, if that is the cause and the key is tried again.
    pub(crate) fn server_outage(&self) -> Option<ServerOutage> {
        match self.server? {
            Server::Away(outage) if self.outage && !self.is_terminal() => Some(outage),
            _ => None,
        }
    }

    /// Whether it is an answer of the API server.
    pub(crate) fn is_answer_of_the_server(&self) -> bool {
        self.server == Some(Server::Answers)
    }

    pub(crate) fn priority(&self) -> Option<i32> {
        self.priority
    }

    pub(crate) fn into_terminal(mut self) -> Self {
        self.class = Class::Terminal;
        self
    }

    /// The cause that the queue records.
    pub(crate) fn cause(&self) -> Cause {
        let cause = Cause::new(self);
        match self.class {
            Class::Transient if self.is_outage() => cause.class(OUTAGE),
            Class::Transient => cause,
            Class::RateLimited { retry_after } => {
                cause.class(RATE_LIMITED).retry_after(retry_after)
            }
            Class::Terminal => cause.class("terminal"),
        }
    }

    /// The error inside.
    #[must_use]
    pub fn source(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.source
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&crate::error_chain(&*self.source), f)
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        Self::boxed(error)
    }
}

/// Marks an error as terminal inside an error type of your own. It takes effect anywhere in the chain of sources.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Terminal(#[from] Box<dyn StdError + Send + Sync>);

// === impl Terminal ===

impl Terminal {
    /// Marks `error`.
    #[must_use]
    pub fn new(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self(error.into())
    }
}

/// Marks an error inside an error type of your own as rate-limited: its system refuses calls for a time. It takes
/// effect anywhere in the chain of sources.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct RateLimited {
    source: Box<dyn StdError + Send + Sync>,
    retry_after: Duration,
}

// === impl RateLimited ===

impl RateLimited {
    /// Marks `error`.
    #[must_use]
    pub fn new(error: impl Into<Box<dyn StdError + Send + Sync>>, retry_after: Duration) -> Self {
        Self {
            source: error.into(),
            retry_after,
        }
    }
}

/// The class of a chain of sources: that of the outermost mark.
fn class_of(error: &(dyn StdError + 'static)) -> Class {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<Terminal>() {
            return Class::Terminal;
        }
        let limited = error
            .downcast_ref::<RateLimited>()
            .map(|error| error.retry_after);
        let answered = || {
            let error = error.downcast_ref::<client::Error>();
            error.and_then(client::Error::retry_after)
        };
        if let Some(retry_after) = limited.or_else(answered) {
            return Class::RateLimited { retry_after };
        }
        next = error.source();
    }
    Class::Transient
}

/// Whether any error in the chain of sources is an outage.
fn is_outage(error: &(dyn StdError + 'static)) -> bool {
    let unread = |error: &ReadError| {
        matches!(
            error,
            ReadError::NotStarted { .. } | ReadError::NotSynced { .. }
        )
    };
    let mut next = Some(error);
    while let Some(error) = next {
        let client = error.downcast_ref::<client::Error>();
        let cache = error.downcast_ref::<ReadError>().or_else(|| {
            match error.downcast_ref::<CachedError>() {
                Some(CachedError::Unread(error)) => Some(error),
                _ => None,
            }
        });
        let outage = match client {
            Some(client::Error::NotLeader { .. }) => true,
            Some(error) => error.is_outage(),
            None => cache.is_some_and(unread) || error.is::<RateLimited>(),
        };
        if outage {
            return true;
        }
        next = error.source();
    }
    false
}

/// The state of the API server by the first of its client's errors in the chain of sources.
fn server_of(error: &(dyn StdError + 'static)) -> Option<Server> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<client::Error>() {
            return match (error, error.is_outage()) {
                (client::Error::Transport { .. }, _) => {
                    Some(Server::Away(ServerOutage::Unreachable))
                }
                (_, true) => Some(Server::Away(ServerOutage::Refusing)),
                (client::Error::Api { .. }, false) => Some(Server::Answers),
                (_, false) => None,
            };
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the block is not valid")]
    struct Outer(#[source] Terminal);

    #[test]
    fn a_terminal_mark_is_found_through_wrapping() {
        let inner = Terminal::new("no such unit");
        let error = Error::from(Outer(inner));
        assert!(error.is_terminal());
        assert_eq!(error.to_string(), "the block is not valid: no such unit");
        assert!(!Error::from(fmt::Error).is_terminal());
    }

    #[test]
    fn a_boxed_error_keeps_its_source_and_its_class_unless_it_is_called_transient() {
        let boxed = || -> Box<dyn StdError + Send + Sync> { Outer(Terminal::new("gone")).into() };
        let error = Error::boxed(boxed());
        assert!(error.is_terminal());
        assert_eq!(error.to_string(), "the block is not valid: gone");
        let error = Error::transient(boxed());
        assert_eq!(error.class(), Class::Transient);
        assert_eq!(error.to_string(), "the block is not valid: gone");
    }

    #[test]
    fn retry_after_is_found_through_wrapping() {
        #[derive(Debug, thiserror::Error)]
        #[error("the gateway refused")]
        struct Wrapped(#[source] Box<dyn StdError + Send + Sync>);
        let wait = Duration::from_secs(7);
        let limited = Class::RateLimited { retry_after: wait };
        let marked = Error::from(Wrapped(RateLimited::new("busy", wait).into()));
        assert_eq!(marked.class(), limited);
        assert_eq!(marked.to_string(), "the gateway refused: busy");
        assert_eq!(marked.cause().wait_at_least(), Some(wait));
        let answer = |code, seconds| {
            let status = serde_json::from_value(serde_json::json!({
                "code": code, "message": "slow down", "details": {"retryAfterSeconds": seconds}}));
            client::Error::Api {
                request: "get a".into(),
                status: Box::new(status.unwrap()),
            }
        };
        for code in [429, 503] {
            let error = Error::from(Wrapped(answer(code, 7).into()));
            assert_eq!(error.class(), limited, "{code}");
        }
        assert_eq!(Error::from(answer(429, 0)).class(), Class::Transient);
        let both = Error::from(Terminal::new(answer(429, 7)));
        assert_eq!(both.class(), Class::Terminal, "the outermost mark counts");
    }

    #[test]
    fn a_server_that_is_away_is_an_outage_through_wrapping() {
        #[derive(Debug, thiserror::Error)]
        #[error("the child was not written")]
        struct Wrapped(#[source] client::Error);
        let request = || "create a".to_owned();
        let answer = |code| {
            let status = serde_json::json!({"code": code, "message": "no"});
            client::Error::Api {
                request: request(),
                status: Box::new(serde_json::from_value(status).unwrap()),
            }
        };
        let late = client::Error::Deadline {
            request: request(),
            after: Duration::from_secs(30),
        };
        let transport = client::Error::Transport {
            request: request(),
            sent: true,
            source: Box::new(kube_client::Error::LinesCodecMaxLineLengthExceeded),
        };
        let unfilled = CachedError::Unread(ReadError::NotSynced {
            kind: "ConfigMap".into(),
            cause: "connection".into(),
        });
        let elsewhere = CachedError::Unread(ReadError::Namespace {
            kind: "ConfigMap".into(),
            namespace: "a".into(),
            cached: Vec::new(),
        });
        let deposed = client::Error::NotLeader { request: request() };
        let invalid = client::Error::Invalid {
            request: request(),
            message: "no name".into(),
        };
        for (case, error, outage) in [
            ("internal error", answer(500), true),
            ("unavailable", answer(503), true),
            ("too many requests", answer(429), true),
            ("request timeout", answer(408), true),
            ("no answer", late, true),
            ("broken connection", transport, true),
            ("deposed", deposed, true),
            ("forbidden", answer(403), false),
            ("conflict", answer(409), false),
            ("refused as it is", answer(422), false),
            ("no request", invalid, false),
        ] {
            assert_eq!(Error::from(Wrapped(error)).is_outage(), outage, "{case}");
        }
        let away = || client::Error::Transport {
            request: request(),
            sent: false,
            source: Box::new(kube_client::Error::LinesCodecMaxLineLengthExceeded),
        };
        let deposed = client::Error::NotLeader { request: request() };
        let (unreachable, refusing) = (ServerOutage::Unreachable, ServerOutage::Refusing);
        let conflict = Error::from(answer(409));
        assert!(conflict.is_answer_of_the_server() && conflict.server_outage().is_none());
        for (case, error, of_server) in [
            ("away", Error::from(Wrapped(away())), Some(unreachable)),
            (
                "away, as any outage",
                Error::outage(away()),
                Some(unreachable),
            ),
            ("busy", Error::from(answer(429)), Some(refusing)),
            ("away, for good", Error::from(Terminal::new(away())), None),
            ("a gateway", Error::outage("the gateway is gone"), None),
            ("not the leader", Error::from(deposed), None),
        ] {
            assert_eq!(error.server_outage(), of_server, "{case}");
            assert!(!error.is_answer_of_the_server(), "{case}");
        }
        assert!(Error::from(unfilled).is_outage());
        assert!(!Error::from(elsewhere).is_outage());
        assert!(Error::from(RateLimited::new("busy", Duration::ZERO)).is_outage());
        assert!(Error::rate_limited("busy", Duration::ZERO).is_outage());
        assert!(Error::outage("the gateway is gone").is_outage());
        assert!(!Error::message("no such unit").is_outage());
        assert!(!Error::from(fmt::Error).is_outage());
    }
}
