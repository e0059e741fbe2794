//! Faults on request: failures of a server, a proxy or a network, as rules of a test.
//!
//! A [`Rule`] selects requests, lets some of them pass first, hits a number of them, and defines the fault.
//! Rules are applied in the order they were added; delays add up, and the first rule that decides the answer
//! ends the search.
//!
//! ```
//! use std::time::Duration;
//! use reeve_apiserver::faults::Rule;
//! // The second and third update of a ConfigMap's status are refused for now.
//! let refuse = Rule::new().verb("update").resource("configmaps").after(1).times(2)
//!     .status(503, "etcd is electing a leader").retry_after(1);
//! // Every creation is stored, and its answer is lost.
//! let ambiguous = Rule::new().verb("create").lose_answer();
//! # let _ = (refuse, ambiguous, Duration::ZERO);
//! ```

mod form;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use reeve_clock::Clock;

use crate::rbac::Attributes;
use crate::status::Status;

pub(crate) use form::RuleForm;

/// The faults of one server. Clones share them.
#[derive(Clone, Debug)]
pub struct Faults(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    rules: Mutex<Vec<Armed>>,
    next: AtomicU64,
    no_bookmarks: AtomicBool,
    no_streaming_lists: AtomicBool,
}

#[derive(Debug)]
struct Armed {
    id: u64,
    rule: Rule,
    seen: u64,
    /// Shared with the handle, which counts on when the rule is removed.
    hits: Arc<AtomicU64>,
}

/// A rule in force; see [`Faults::add`].
#[derive(Clone, Debug)]
pub struct Handle {
    faults: Faults,
    id: u64,
    hits: Arc<AtomicU64>,
}

/// A rule and its counts at one time.
#[derive(Clone, Debug)]
pub(crate) struct RuleState {
    pub(crate) id: u64,
    pub(crate) rule: Rule,
    /// Requests that the rule selected.
    pub(crate) seen: u64,
    /// Requests that it hit.
    pub(crate) hits: u64,
}

/// The selection of requests, their number, and the fault.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Rule {
    verb: Option<String>,
    group: Option<String>,
    resource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
    agent: Option<String>,
    skip: u64,
    times: Option<u64>,
    probability: Option<f64>,
    action: Option<Action>,
}

#[derive(Clone, Debug)]
enum Action {
    Status(Status),
    DelayBefore(Duration),
    DelayAfter(Duration),
    Reset,
    LoseAnswer,
    Stall,
    Stale(u64),
    CloseEmpty,
    Stream { after: usize, end: StreamEnd },
}

/// The early end of a stream of a watch (or of a large answer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// The connection breaks.
    Reset,
    /// The answer ends as if it were complete.
    Close,
    /// Half a frame, then the end.
    Truncate,
    /// No more data is sent, and the stream does not end.
    Stall,
}

/// The faults of one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) delay_before: Duration,
    pub(crate) delay_after: Duration,
    pub(crate) instead: Option<Instead>,
    pub(crate) lose_answer: bool,
    pub(crate) stale: Option<u64>,
    pub(crate) stream: Option<(usize, StreamEnd)>,
}

/// The replacement of the request.
#[derive(Clone, Debug)]
pub(crate) enum Instead {
    Status(Status),
    Reset,
    Stall,
    CloseEmpty,
}

// === impl Rule ===

impl Rule {
    /// A rule for every request, without a fault yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only this verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    /// For paths without resources the HTTP method in lower case.
    pub fn verb(mut self, verb: impl Into<String>) -> Self {
        self.verb = Some(verb.into());
        self
    }

    /// Only this API group; empty for core.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Only this plural resource; for paths without resources the whole path (`/version`).
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// Only in this namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Only for this name (for creations, the name in the object is ignored).
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only for this subresource; empty for the object itself.
    pub fn subresource(mut self, subresource: impl Into<String>) -> Self {
        self.subresource = Some(subresource.into());
        self
    }

    /// Only when the `User-Agent` contains this.
    pub fn user_agent(mut self, part: impl Into<String>) -> Self {
        self.agent = Some(part.into());
        self
    }

    /// Lets this many matching requests pass first. Default 0.
    pub fn after(mut self, requests: u64) -> Self {
        self.skip = requests;
        self
    }

    /// Hits this many requests, then none. Default: all.
    pub fn times(mut self, requests: u64) -> Self {
        self.times = Some(requests);
        self
    }

    /// Hits each matching request with this probability, drawn from the clock's randomness.
    pub fn probability(mut self, probability: f64) -> Self {
        self.probability = Some(probability);
        self
    }

    /// Answers with a Status of this code instead, with the reason of the code.
    pub fn status(mut self, code: u16, message: impl Into<String>) -> Self {
        self.action = Some(Action::Status(Status::new(code, reason(code), message)));
        self
    }

    /// Answers with a plain text of this code instead, as proxies do, and priority and fairness with 429.
    pub fn text(mut self, code: u16, message: impl Into<String>) -> Self {
        let mut status = Status::new(code, "", message);
        status.plain_text = true;
        self.action = Some(Action::Status(status));
        self
    }

    /// Adds `Retry-After` (seconds) to the answer of [`Rule::status`] or [`Rule::text`].
    pub fn retry_after(mut self, seconds: u32) -> Self {
        if let Some(Action::Status(status)) = self.action.take() {
            self.action = Some(Action::Status(status.with_retry_after(seconds)));
        }
        self
    }

    /// Waits before the request is processed.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.action = Some(Action::DelayBefore(delay));
        self
    }

    /// Waits after a write was stored (or a read was made), before the answer.
    pub fn delay_answer(mut self, delay: Duration) -> Self {
        self.action = Some(Action::DelayAfter(delay));
        self
    }

    /// Breaks the connection before the request is processed.
    pub fn reset(mut self) -> Self {
        self.action = Some(Action::Reset);
        self
    }

    /// Executes the request, then breaks the connection: the outcome is unknown to the client.
    pub fn lose_answer(mut self) -> Self {
        self.action = Some(Action::LoseAnswer);
        self
    }

    /// Never answers; the connection stays open.
    pub fn stall(mut self) -> Self {
        self.action = Some(Action::Stall);
        self
    }

    /// Serves reads as of this version, as an API server with an old cache does.
    pub fn stale(mut self, version: u64) -> Self {
        self.action = Some(Action::Stale(version));
        self
    }

    /// Ends a watch at once, with status 200 and no event.
    pub fn close_empty(mut self) -> Self {
        self.action = Some(Action::CloseEmpty);
        self
    }

    /// Breaks the connection after this many pieces of the answer (for a watch: batches of events).
    pub fn reset_after(mut self, pieces: usize) -> Self {
        self.action = Some(Action::Stream {
            after: pieces,
            end: StreamEnd::Reset,
        });
        self
    }

    /// Ends the answer after this many pieces as if it were complete.
    pub fn close_after(mut self, pieces: usize) -> Self {
        self.action = Some(Action::Stream {
            after: pieces,
            end: StreamEnd::Close,
        });
        self
    }

    /// Sends half of the piece after this many, then ends the answer.
    pub fn truncate_after(mut self, pieces: usize) -> Self {
        self.action = Some(Action::Stream {
            after: pieces,
            end: StreamEnd::Truncate,
        });
        self
    }

    /// Sends this many pieces of the answer, then nothing more, with the connection open.
    pub fn stall_after(mut self, pieces: usize) -> Self {
        self.action = Some(Action::Stream {
            after: pieces,
            end: StreamEnd::Stall,
        });
        self
    }

    fn matches(&self, what: &Attributes, agent: &str) -> bool {
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        let resource = if what.is_resource() {
            &what.resource
        } else {
            &what.path
        };
        is(&self.verb, &what.verb)
            && is(&self.group, &what.group)
            && is(&self.resource, resource)
            && is(&self.namespace, &what.namespace)
            && is(&self.name, &what.name)
            && is(&self.subresource, &what.subresource)
            && self
                .agent
                .as_deref()
                .is_none_or(|part| agent.contains(part))
    }
}

/// The reason of a code.
fn reason(code: u16) -> &'static str {
    match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        406 => "NotAcceptable",
        409 => "Conflict",
        410 => "Expired",
        413 => "RequestEntityTooLarge",
        415 => "UnsupportedMediaType",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    }
}

// === impl Armed ===

impl Armed {
    fn state(&self) -> RuleState {
        RuleState {
            id: self.id,
            rule: self.rule.clone(),
            seen: self.seen,
            hits: self.hits.load(Ordering::Relaxed),
        }
    }
}

// === impl Handle ===

impl Handle {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Number of requests that the rule hit while it was in force. The count stays after [`Handle::remove`] or
    /// [`Faults::clear`].
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Removes the rule.
    pub fn remove(&self) {
        let mut rules = self.faults.0.rules.lock();
        rules.retain(|armed| armed.id != self.id);
    }
}

// === impl Faults ===

impl Faults {
    pub(crate) fn new(clock: Clock) -> Self {
        Self(Arc::new(Shared {
            clock,
            rules: Mutex::new(Vec::new()),
            next: AtomicU64::new(0),
            no_bookmarks: AtomicBool::new(false),
            no_streaming_lists: AtomicBool::new(false),
        }))
    }

    /// Adds a rule after the existing ones. Dropping the handle keeps it.
    pub fn add(&self, rule: Rule) -> Handle {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let hits = Arc::<AtomicU64>::default();
        self.0.rules.lock().push(Armed {
            id,
            rule,
            seen: 0,
            hits: Arc::clone(&hits),
        });
        Handle {
            faults: self.clone(),
            id,
            hits,
        }
    }

    /// The rules in force, in their order.
    pub(crate) fn all(&self) -> Vec<RuleState> {
        let rules = self.0.rules.lock();
        rules.iter().map(Armed::state).collect()
    }

    /// Removes a rule; returns its last state.
    pub(crate) fn remove(&self, id: u64) -> Option<RuleState> {
        let mut rules = self.0.rules.lock();
        let at = rules.iter().position(|armed| armed.id == id)?;
        Some(rules.remove(at).state())
    }

    /// Removes every rule and enables everything again.
    pub fn clear(&self) {
        self.0.rules.lock().clear();
        self.stop_bookmarks(false);
        self.refuse_streaming_lists(false);
    }

    /// Stops (or resumes) the bookmarks of all watches, also of those open. The bookmark that ends
    /// initial events is still sent.
    pub fn stop_bookmarks(&self, stop: bool) {
        self.0.no_bookmarks.store(stop, Ordering::Relaxed);
    }

    /// Refuses (or allows) `sendInitialEvents` with 422, as servers without the feature do.
    pub fn refuse_streaming_lists(&self, refuse: bool) {
        self.0.no_streaming_lists.store(refuse, Ordering::Relaxed);
    }

    pub(crate) fn sends_bookmarks(&self) -> bool {
        !self.0.no_bookmarks.load(Ordering::Relaxed)
    }

    pub(crate) fn refuses_streaming_lists(&self) -> bool {
        self.0.no_streaming_lists.load(Ordering::Relaxed)
    }

    /// The faults of a request.
    pub(crate) fn plan(&self, what: &Attributes, agent: &str) -> Plan {
        let mut plan = Plan::default();
        let mut rules = self.0.rules.lock();
        for armed in rules.iter_mut() {
            let Some(action) = &armed.rule.action else {
                continue;
            };
            if !armed.rule.matches(what, agent) {
                continue;
            }
            armed.seen += 1;
            // Counted under the lock.
            let hits = armed.hits.load(Ordering::Relaxed);
            if armed.seen <= armed.rule.skip || armed.rule.times.is_some_and(|times| hits >= times)
            {
                continue;
            }
            if armed
                .rule
                .probability
                .is_some_and(|probability| self.0.clock.random().unit() >= probability)
            {
                continue;
            }
            armed.hits.store(hits + 1, Ordering::Relaxed);
            match action {
                Action::DelayBefore(delay) => plan.delay_before += *delay,
                Action::DelayAfter(delay) => plan.delay_after += *delay,
                Action::Stale(version) => plan.stale = Some(*version),
                Action::LoseAnswer => plan.lose_answer = true,
                Action::Stream { after, end } => plan.stream = Some((*after, *end)),
                Action::Status(status) => plan.instead = Some(Instead::Status(status.clone())),
                Action::Reset => plan.instead = Some(Instead::Reset),
                Action::Stall => plan.instead = Some(Instead::Stall),
                Action::CloseEmpty => plan.instead = Some(Instead::CloseEmpty),
            }
            if plan.instead.is_some() {
                break;
            }
        }
        plan
    }
}
