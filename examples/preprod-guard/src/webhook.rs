//! The webhooks: one decides about requests of pre-release callers, one records deletions and lost labels by others.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::RwLock;
use reeve_webhook::Webhook;
use reeve_webhook::admission::{Operation, Request, Verdict};
use tokio::time::Instant;

use crate::audit::Line;
use crate::config::{Config, Mode};
use crate::decision::{Decision, Rule, decide};
use crate::detector::{Change, Detector, Record};
use crate::identity::Environment;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::object::{Facts, Key};
use crate::state::State;
use crate::target::Target;

/// The path of the webhook that decides.
pub const DECIDE: &str = "/decide";

/// The path of the webhook that records.
pub const RECORD: &str = "/record";

type Now = dyn Fn() -> Timestamp + Send + Sync;
type Sink = dyn Fn(&Line) + Send + Sync;

/// The handler of both webhooks.
pub struct Guard {
    config: Arc<Config>,
    state: Arc<RwLock<State>>,
    now: Box<Now>,
    sink: Box<Sink>,
    live: Option<Live>,
    detector: Option<Arc<Detector>>,
    metrics: Metrics,
}

// === impl Guard ===

impl Guard {
    /// A guard with this view of the cluster. `now` returns the time, and `sink` takes the line of each decision.
    pub fn new(
        config: Arc<Config>,
        state: Arc<RwLock<State>>,
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
        sink: impl Fn(&Line) + Send + Sync + 'static,
    ) -> Self {
        Self {
            config,
            state,
            now: Box::new(now),
            sink: Box::new(sink),
            live: None,
            detector: None,
            metrics: Metrics::default(),
        }
    }

    /// Reads objects that the state does not have from the API server. Default: none is read.
    #[must_use]
    pub fn reading(mut self, live: Live) -> Self {
        self.live = Some(live);
        self
    }

    /// Passes changes of production objects to `detector`. Default: to none.
    #[must_use]
    pub fn detecting(mut self, detector: Arc<Detector>) -> Self {
        self.detector = Some(detector);
        self
    }

    /// Counts decisions in `metrics`.
    #[must_use]
    pub fn counting(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// The webhooks, at [`DECIDE`] and [`RECORD`].
    pub fn webhooks(self) -> [Webhook; 2] {
        let guard = Arc::new(self);
        let recorder = Arc::clone(&guard);
        let decide = Webhook::validating_any("decide", move |request: Request| {
            let guard = Arc::clone(&guard);
            async move { guard.decide(request).await }
        });
        let record = Webhook::validating_any("record", move |request: Request| {
            let guard = Arc::clone(&recorder);
            async move { guard.record(request).await }
        });
        [decide.at(DECIDE), record.at(RECORD)]
    }

    /// Decides about a request, and writes its line.
    pub async fn decide(&self, request: Request) -> Verdict {
        let (uid, deadline) = (request.uid.clone(), request.deadline);
        let mut target = Target::of(request, &self.config.mark);
        if self.config.callers.environment(&target.user) == Environment::PreRelease {
            let reads_namespace = !self.is_labelled(&target);
            let reads_parent = target.subresource.is_some();
            self.complete(&mut target, reads_parent, reads_namespace, deadline)
                .await;
        }
        let now = (self.now)();
        let decision = decide(&target, &self.state.read(), &self.config, now);
        let record = Line::of(&target, &decision, now).of_request(&uid);
        self.metrics.count(&record);
        (self.sink)(&record);
        if decision.denial.is_none() {
            self.detect(&target);
        }
        verdict(decision)
    }

    /// Allows a request, and records it if it deletes a production object or removes its label. The condition of the
    /// configuration keeps pre-release callers away, so one that comes here is not recorded: the detector reports it.
    pub async fn record(&self, request: Request) -> Verdict {
        let (uid, deadline) = (request.uid.clone(), request.deadline);
        let mut target = Target::of(request, &self.config.mark);
        if self.config.callers.environment(&target.user) == Environment::PreRelease {
            tracing::error!(
                user = target.user.username, object = %target.key,
                "a pre-release caller reached the webhook of records: its configuration was changed; install it again"
            );
            return Verdict::allow();
        }
        let (reads_parent, reads_namespace) = {
            let state = self.state.read();
            let is_unknown = |key: &Key| state.get(key).is_none();
            (
                target.subresource.is_some() && is_unknown(&target.key),
                is_unknown(&Key::namespace(&target.key.namespace)),
            )
        };
        self.complete(&mut target, reads_parent, reads_namespace, deadline)
            .await;
        if self.detect(&target) {
            let now = (self.now)();
            let record = Line::of(&target, &Decision::default(), now).of_request(&uid);
            self.metrics.count(&record);
            (self.sink)(&record);
        }
        Verdict::allow()
    }

    /// Whether each state of the request has a label of its own, so that its Namespace does not matter.
    fn is_labelled(&self, target: &Target) -> bool {
        let label = &self.config.mark.label;
        let mut states = target.states.iter();
        target.subresource.is_none() && states.all(|facts| facts.labels.contains_key(label))
    }

    /// Reads what the state may have late, or not at all: the object of a subresource, and the Namespace. Both reads run at
    /// the same time, and end before the API server stops waiting.
    async fn complete(
        &self,
        target: &mut Target,
        reads_parent: bool,
        reads_namespace: bool,
        deadline: Option<Instant>,
    ) {
        let namespace = Key::namespace(&target.key.namespace);
        let reads_namespace = reads_namespace && !namespace.name.is_empty();
        let parent = async {
            match reads_parent {
                true => self.read(&target.version, &target.key, deadline).await,
                false => None,
            }
        };
        let of_namespace = async {
            match reads_namespace {
                true => self.read("v1", &namespace, deadline).await,
                false => None,
            }
        };
        let (parent, of_namespace) = tokio::join!(parent, of_namespace);
        (target.parent, target.namespace) = (parent, of_namespace);
    }

    async fn read(&self, version: &str, key: &Key, deadline: Option<Instant>) -> Option<Facts> {
        let object = self.live.as_ref()?.read(version, key, deadline).await?;
        Some(Facts::of(&object, &self.config.mark))
    }

    /// Passes a change of a production object to the detector. Returns whether the request is one.
    fn detect(&self, target: &Target) -> bool {
        let Some(change) = self.change(target) else {
            return false;
        };
        let state = self.state.read();
        let facts = match target.subresource {
            None => target.states.first(),
            Some(_) => target.parent.as_ref().or_else(|| state.get(&target.key)),
        };
        let known = || state.get(&Key::namespace(&target.key.namespace));
        let namespace = target.namespace.as_ref().or_else(known);
        // The deletion of an object that ends has its record. A kubelet calls again when the containers have stopped.
        let Some(facts) = facts.filter(|facts| {
            let is_production = state.is_production_in(namespace, &target.key, facts, &self.config);
            is_production && (change != Change::Deletion || !facts.ends)
        }) else {
            return false;
        };
        if let Some(detector) = &self.detector {
            detector.recorded(Record {
                change,
                key: target.key.clone(),
                uid: facts.uid.clone(),
                user: target.user.username.clone(),
            });
        }
        true
    }

    /// The change that a request makes, if the detector observes it.
    fn change(&self, target: &Target) -> Option<Change> {
        let mark = &self.config.mark;
        let change = match (target.operation, target.subresource.as_deref()) {
            (Operation::Delete, None) | (Operation::Create, Some("eviction")) => Change::Deletion,
            (Operation::Update, None) => match target.states.as_slice() {
                [old, new] if old.has_label(mark) && !new.has_label(mark) => Change::Unmarked,
                _ => return None,
            },
            _ => return None,
        };
        (!target.dry_run).then_some(change)
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// The answer to the API server. A denial has no reason: kubectl would print it before the message.
fn verdict(decision: Decision) -> Verdict {
    let mut verdict = match &decision.denial {
        Some(finding) => {
            let code = if finding.rule == Rule::Unresolved {
                503
            } else {
                403
            };
            Verdict::deny(&finding.message).code(code).reason("")
        }
        None => Verdict::allow(),
    };
    for (finding, mode) in decision.noted {
        let name = serde_json::json!(finding.rule);
        let name = name.as_str().unwrap_or_default().to_owned();
        if mode == Mode::Warn {
            verdict = verdict.warn(&finding.message);
        }
        verdict = verdict.audit(name, finding.message);
    }
    verdict
}
