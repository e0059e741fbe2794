//! What a user writes: a [`Reconciler`], which looks at one key and says what is next with an [`Outcome`].
//!
//! What each result does to the queue (controller-runtime: `Controller.reconcileHandler`):
//!
//! | result | failures of the key | the key | `result` label |
//! |---|---|---|---|
//! | `Err` | one more | again after its back-off | `error` |
//! | `Err`, [rate-limited](Error::rate_limited) | one more | again after its back-off, and not before it was asked for | `error` |
//! | `Err`, no [outage](Error::outage), and [`max_retries`](crate::controller::Builder::max_retries) are over | forgotten | not again until something changes | `error` |
//! | `Err`, terminal, or [`Outcome::terminal`] | forgotten | not again until something changes | `error` |
//! | [`Outcome::requeue_after`] a delay | forgotten | again after the delay | `requeue_after` |
//! | [`Outcome::retry`] | one more | again after its back-off | `requeue` |
//! | [`Outcome::done`], or a delay of zero | forgotten | not again until something changes | `success` |
//! | a panic | one more | again after its back-off | `error` |
//! | the time-out | one more | again after its back-off | `error` |
//!
//! The back-off of a key is 5 ms · 2ⁿ after `n` failures in a row, up to 1000 s after errors of its own and up to 60 s
//! after [outages](Error::outage) ([`Builder::rate_limiter`](crate::controller::Builder::rate_limiter)).
//!
//! The priority with which a key comes back is the one it was handed out with, unless [`Outcome::with_priority`] or
//! [`Error::with_priority`] say another.
//!
//! Two rows differ from controller-runtime: there a terminal error leaves the key's failure record behind for ever, and
//! nothing honours `Retry-After`.

use std::error::Error as StdError;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use reeve_informer::ObjectKey;
use reeve_workqueue::Cause;

use crate::cache::ReadError;
use crate::client;
use crate::context::Context;

/// What a controller is asked to reconcile unless it says otherwise: the key of an object.
pub type Request = ObjectKey;

/// What a request must be: a small value that names one piece of work. Implemented by whatever fits.
///
/// `Display` is how it appears in logs.
pub trait RequestKey:
    Hash + Eq + Clone + fmt::Debug + fmt::Display + Send + Sync + 'static
{
}

impl<T> RequestKey for T where
    T: Hash + Eq + Clone + fmt::Debug + fmt::Display + Send + Sync + 'static
{
}

/// Brings the world for one request closer to what is wanted.
///
/// Called with a key, not with what changed: read the current state, decide, write, and say what is next.
/// Never called twice at once for the same request. Must be idempotent: it runs again after a crash, a
/// resync, a failed write.
pub trait Reconciler<R = Request>: Send + Sync + 'static {
    /// What a failed run returns; any error converts ([`Error`]).
    type Error: Into<Error>;

    /// Reconciles `request` once.
    ///
    /// The future is dropped at its next await when the grace period of a stop ends, when the lease is lost,
    /// or when the time-out of the controller passes; the key is then tried again, here or by the next leader.
    fn reconcile(
        &self,
        ctx: Context,
        request: R,
    ) -> impl Future<Output = Result<Outcome, Self::Error>> + Send;
}

impl<R: Send + 'static, T: Reconciler<R>> Reconciler<R> for Arc<T> {
    type Error = T::Error;

    fn reconcile(
        &self,
        ctx: Context,
        request: R,
    ) -> impl Future<Output = Result<Outcome, Self::Error>> + Send {
        T::reconcile(self, ctx, request)
    }
}

/// A reconciler made of an async function.
#[derive(Clone, Copy, Debug)]
pub struct Function<F>(F);

/// Makes a reconciler of an async function of a context and a request.
pub fn function<R, F, Fut, E>(function: F) -> Function<F>
where
    F: Fn(Context, R) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, E>> + Send,
    E: Into<Error>,
{
    Function(function)
}

impl<R, F, Fut, E> Reconciler<R> for Function<F>
where
    R: Send + 'static,
    F: Fn(Context, R) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, E>> + Send,
    E: Into<Error>,
{
    type Error = E;

    fn reconcile(
        &self,
        ctx: Context,
        request: R,
    ) -> impl Future<Output = Result<Outcome, E>> + Send {
        (self.0)(ctx, request)
    }
}

/// What is next for a request that was reconciled.
#[derive(Debug)]
#[must_use]
pub struct Outcome {
    pub(crate) next: Next,
    pub(crate) priority: Option<i32>,
}

#[derive(Debug)]
pub(crate) enum Next {
    Done,
    RequeueAfter(Duration),
    Retry,
    Terminal(Error),
}

// === impl Outcome ===

impl Outcome {
    /// Nothing is left to do until something changes.
    pub fn done() -> Self {
        Self::of(Next::Done)
    }

    /// All is well, and the request is wanted again after `delay`. Zero is [`Outcome::done`].
    ///
    /// An event for the key brings it earlier and removes this timer, so say the next wake each time.
    pub fn requeue_after(delay: Duration) -> Self {
        if delay.is_zero() {
            return Self::done();
        }
        Self::of(Next::RequeueAfter(delay))
    }

    /// Not there yet, though nothing failed: again after the key's back-off, which grows.
    pub fn retry() -> Self {
        Self::of(Next::Retry)
    }

    /// Trying again cannot help until something changes: counted and logged as an error, not retried.
    pub fn terminal(error: impl Into<Error>) -> Self {
        Self::of(Next::Terminal(error.into()))
    }

    /// Gives the request this priority when it comes back. Unset, it keeps the one it was handed out with.
    pub fn with_priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }

    fn of(next: Next) -> Self {
        Self {
            next,
            priority: None,
        }
    }
}

/// Why a reconcile failed. Any error converts into it with `?`.
///
/// Like a boxed error it does not implement [`std::error::Error`] itself; [`Error::source`] gives what it holds.
#[derive(Debug)]
pub struct Error {
    source: Box<dyn StdError + Send + Sync>,
    class: Class,
    outage: bool,
    priority: Option<i32>,
}

/// What is to be done about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// The key is tried again after its back-off.
    Transient,
    /// Whoever refused asked not to be called again before so long: the key waits that long at least.
    RateLimited {
        /// How long.
        retry_after: Duration,
    },
    /// The key is left alone until something changes.
    Terminal,
}

/// The kind of [`Cause`] of an outage.
pub(crate) const OUTAGE: &str = "outage";
/// The kind of [`Cause`] of a refusal that says when to come again.
pub(crate) const RATE_LIMITED: &str = "rate limited";

// === impl Error ===

impl Error {
    /// An error that is retried, from a message.
    #[must_use]
    pub fn message(message: impl Into<String>) -> Self {
        Self::of_class(message.into().into(), Class::Transient)
    }

    /// An error that trying again cannot mend (controller-runtime: `reconcile.TerminalError`).
    #[must_use]
    pub fn terminal(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::of_class(source.into(), Class::Terminal)
    }

    /// An error of who asked not to be called again before `retry_after`. The key waits that long, or its back-off if
    /// that is longer; a change of what is watched brings it earlier.
    ///
    /// An API server's answer that says so converts into this by itself, wherever it is in the chain of sources.
    #[must_use]
    pub fn rate_limited(
        source: impl Into<Box<dyn StdError + Send + Sync>>,
        retry_after: Duration,
    ) -> Self {
        Self::of_class(source.into(), Class::RateLimited { retry_after }).with_outage(true)
    }

    /// An error of a system that is down or out of reach: no fault of the request, which is never given up for it
    /// ([`max_retries`](crate::controller::Builder::max_retries)).
    ///
    /// An error of this crate's client that says so ([`client::Error::is_outage`](crate::client::Error::is_outage)), or
    /// that its cache is not filled or its lease not held, converts into this by itself, wherever it is in the chain of
    /// sources.
    #[must_use]
    pub fn outage(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::of_class(source.into(), Class::Transient).with_outage(true)
    }

    fn of_class(source: Box<dyn StdError + Send + Sync>, class: Class) -> Self {
        Self {
            source,
            class,
            outage: false,
            priority: None,
        }
    }

    fn with_outage(mut self, outage: bool) -> Self {
        self.outage = outage;
        self
    }

    /// Gives the request this priority when it comes back. Unset, it keeps the one it was handed out with.
    #[must_use]
    pub fn with_priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }

    /// What is to be done about it.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class
    }

    /// Whether the key is left alone until something changes.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.class == Class::Terminal
    }

    /// Whether a system that is down or out of reach is to blame, and not the request: [`Error::outage`], and whatever is
    /// rate-limited.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        self.outage
    }

    pub(crate) fn priority(&self) -> Option<i32> {
        self.priority
    }

    pub(crate) fn into_terminal(mut self) -> Self {
        self.class = Class::Terminal;
        self
    }

    /// As the queue keeps it.
    pub(crate) fn cause(&self) -> Cause {
        let cause = Cause::new(self);
        match self.class {
            Class::Transient if self.outage => cause.class(OUTAGE),
            Class::Transient => cause,
            Class::RateLimited { retry_after } => {
                cause.class(RATE_LIMITED).retry_after(retry_after)
            }
            Class::Terminal => cause.class("terminal"),
        }
    }

    /// What failed.
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
        let (class, outage) = (class_of(&error), is_outage(&error));
        Self::of_class(Box::new(error), class).with_outage(outage)
    }
}

/// Marks an error as terminal inside an error type of your own; found anywhere in the chain of sources.
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

/// Marks an error inside an error type of your own as one of who asked not to be called again before a time; found
/// anywhere in the chain of sources.
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

/// The class that the chain of sources says, the outermost mark first.
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

/// Whether anything in the chain of sources says that the request is not to blame.
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
        let cache = error.downcast_ref::<ReadError>();
        let outage = match client {
            Some(client::Error::NotLeader { .. }) => true,
            Some(client::Error::Unread(error)) => unread(error),
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
        let unfilled = client::Error::Unread(ReadError::NotSynced {
            kind: "ConfigMap".into(),
            cause: "connection".into(),
        });
        let elsewhere = client::Error::Unread(ReadError::Namespace {
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
            ("cache not filled", unfilled, true),
            ("deposed", deposed, true),
            ("not cached there", elsewhere, false),
            ("forbidden", answer(403), false),
            ("conflict", answer(409), false),
            ("refused as it is", answer(422), false),
            ("no request", invalid, false),
        ] {
            assert_eq!(Error::from(Wrapped(error)).is_outage(), outage, "{case}");
        }
        assert!(Error::from(RateLimited::new("busy", Duration::ZERO)).is_outage());
        assert!(Error::rate_limited("busy", Duration::ZERO).is_outage());
        assert!(Error::outage("the gateway is gone").is_outage());
        assert!(!Error::message("no such unit").is_outage());
        assert!(!Error::from(fmt::Error).is_outage());
    }

    #[test]
    fn a_delay_of_zero_is_done() {
        assert!(matches!(
            Outcome::requeue_after(Duration::ZERO).next,
            Next::Done
        ));
    }
}
