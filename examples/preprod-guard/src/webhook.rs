//! The webhooks: one decides about requests of pre-release callers, one records deletions by others.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::RwLock;
use reeve_webhook::Webhook;
use reeve_webhook::admission::{Operation, Request, Verdict};

use crate::audit::Record;
use crate::config::{Config, Mode};
use crate::decision::{Decision, Rule, decide};
use crate::detector::{Deletion, Detector};
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
type Sink = dyn Fn(&Record) + Send + Sync;

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
        sink: impl Fn(&Record) + Send + Sync + 'static,
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

    /// Passes deletions of production objects to `detector`. Default: to none.
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
        let mut target = Target::of(request, &self.config.mark);
        if self.config.callers.environment(&target.user) == Environment::PreRelease {
            self.complete(&mut target).await;
        }
        let now = (self.now)();
        let decision = decide(&target, &self.state.read(), &self.config, now);
        let record = Record::of(&target, &decision, now);
        self.metrics.count(&record);
        (self.sink)(&record);
        if decision.denial.is_none() {
            self.detect(&target);
        }
        verdict(decision)
    }

    /// Allows a request, and records it if it deletes a production object.
    pub async fn record(&self, request: Request) -> Verdict {
        let mut target = Target::of(request, &self.config.mark);
        if target.subresource.is_some() && self.state.read().get(&target.key).is_none() {
            target.parent = self.read(&target.version, &target.key).await;
        }
        if self.detect(&target) {
            let record = Record::of(&target, &Decision::default(), (self.now)());
            self.metrics.count(&record);
            (self.sink)(&record);
        }
        Verdict::allow()
    }

    /// Reads what the state may have late, or not at all: the object of a subresource, and an unknown Namespace.
    async fn complete(&self, target: &mut Target) {
        if target.subresource.is_some() {
            target.parent = self.read(&target.version, &target.key).await;
        }
        let namespace = Key::namespace(&target.key.namespace);
        if !namespace.name.is_empty() && self.state.read().get(&namespace).is_none() {
            target.namespace = self.read("v1", &namespace).await;
        }
    }

    async fn read(&self, version: &str, key: &Key) -> Option<Facts> {
        let object = self.live.as_ref()?.read(version, key).await?;
        Some(Facts::of(&object, &self.config.mark))
    }

    /// Passes the deletion of a production object to the detector. Returns whether the request is one.
    fn detect(&self, target: &Target) -> bool {
        let deletes = match target.subresource.as_deref() {
            None => target.operation == Operation::Delete,
            Some(subresource) => subresource == "eviction",
        };
        if !deletes || target.dry_run {
            return false;
        }
        let state = self.state.read();
        let facts = match target.subresource {
            None => target.states.first(),
            Some(_) => target.parent.as_ref().or_else(|| state.get(&target.key)),
        };
        let Some(facts) = facts else {
            return false;
        };
        if !state.is_production(&target.key.namespace, facts, &self.config.mark) {
            return false;
        }
        if let Some(detector) = &self.detector {
            detector.recorded(Deletion {
                key: target.key.clone(),
                uid: facts.uid.clone(),
                user: target.user.username.clone(),
            });
        }
        true
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
