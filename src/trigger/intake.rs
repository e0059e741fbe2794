//! From one alert to one object.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use parking_lot::RwLock;
use serde_json::json;

use super::alerts::{Resolved, Wanted};
use super::blocks::{Blocks, BlocksError};
use super::debounce::Debounce;
use super::firing::{self, Change, Firing};
use super::graced::Graced;
use super::metrics::Metrics;
use super::repeat::{self, Answer, Repeat, Rules};
use super::unfinished::Unfinished;
use crate::api::{
    self, ALERT_ANNOTATION, ALERTS, Alert, IPBlock, IPBlockSpec, IPBlockStatus, Place, RESOLVED,
};
use crate::duration;
use crate::guard::{Escalation, source_of};
use crate::inbound::Budget;
use crate::lock::KeyedLocks;
use crate::target::{Target, object_name};
use crate::time::Time;

/// How often a write that conflicts is tried.
const ATTEMPTS: usize = 5;

/// How long a deletion may hold up a delivery: the sender repeats it within this time. After it the gateway does not
/// lift the ban, so the address is still banned.
const DELETING: SignedDuration = SignedDuration::from_secs(60);

/// The part of the configuration that every trigger uses.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The namespace of new objects, where a trigger names none.
    pub namespace: String,
    /// The engine and gateway that new bans go to: their intent from birth.
    pub place: Option<Place>,
    /// How long a ban lasts when its alert has no duration. Alerts never ban without end.
    pub default_duration: Duration,
    /// The longest ban; `None`: no limit. An alert that asks for longer gets this: the attack is real.
    pub max_duration: Option<Duration>,
    /// What an alert does to an active block.
    pub repeated_alert: Repeat,
    /// How long a lift by `spec.unblock` counts against alerts.
    pub unblock_grace: Duration,
    /// How the bans of alerts grow.
    pub escalation: Option<Escalation>,
    /// The sources whose blocks are only shown: they are born without an intent, so that no gateway is called for them.
    pub shadow: BTreeSet<String>,
}

/// The outcome of one alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A new object.
    Created,
    /// An object that expired, failed or was skipped, or whose time passes without a ban, got `trigger`.
    Triggered,
    /// A ban lasts longer: one that stands, or one that is not made yet.
    Extended,
    /// The alert of a ban was the last one, and is over: the ban ends now.
    Lifted,
    /// The object needs no change.
    LeftAlone,
    /// The object has been in deletion for long, and its ban is not lifted.
    Stuck,
    /// Written a moment ago.
    Debounced,
    /// No object can be made of it.
    Rejected(String),
    /// Not written: the sender has to repeat it.
    Unavailable(String),
}

// === impl Outcome ===

impl Outcome {
    /// Whether the alert was looked at with its block, and has its effect.
    pub(super) fn is_carried_out(&self) -> bool {
        matches!(
            self,
            Self::Created | Self::Triggered | Self::Extended | Self::LeftAlone
        )
    }
}

/// The parts that all routes share.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) blocks: Arc<dyn Blocks>,
    pub(super) locks: KeyedLocks<Target>,
    pub(super) settings: Arc<RwLock<Arc<Settings>>>,
    pub(super) metrics: Metrics,
    pub(super) bodies: Budget,
    /// The time that bans end by: a clock that is off must not make one look overdue.
    pub(super) time: Time,
    /// The reports of alerts that met the grace.
    pub(super) graced: Arc<Graced>,
}

/// Writes the objects of one trigger.
#[derive(Debug)]
pub(super) struct Intake {
    pub(super) shared: Shared,
    pub(super) debounce: Arc<Debounce>,
    /// What requests did that could not do all.
    pub(super) unfinished: Unfinished,
    /// The trigger's name, as `spec.source`.
    pub(super) source: String,
    pub(super) namespace: Option<String>,
    /// A resolved alert lifts its ban: then the alerts of each ban are recorded, and no repeat is left out.
    pub(super) lifts: bool,
    /// What a repeat does, in place of the configured.
    pub(super) repeated: Option<Repeat>,
    /// A ban that the longest one keeps from being moved is requested again when it ends sooner than this.
    pub(super) renew_before: Duration,
}

// === impl Intake ===

impl Intake {
    /// Makes `wanted` an object. Safe to repeat, and to cancel at any point.
    pub(super) async fn take(&self, wanted: &Wanted) -> Outcome {
        let target = wanted.target;
        let _lock = self.shared.locks.lock(target).await;
        let ban = || {
            let settings = Arc::clone(&self.shared.settings.read());
            duration::parse(&lasting(wanted, &settings)).unwrap_or_default()
        };
        let recent = !self.lifts && self.debounce.is_recent(&target, ban());
        if (recent || self.unfinished.has(wanted)) && !self.has_ended(wanted) {
            self.shared.metrics.debounced.inc();
            return Outcome::Debounced;
        }
        let outcome = self.write(wanted).await;
        match &outcome {
            Outcome::Created | Outcome::Triggered | Outcome::Extended => {
                // An alert whose object is not written must not count as seen. Neither must one that changed
                // nothing: its ban may end within the window, and the next alert has to renew it.
                self.debounce.remember(target, ban());
            }
            Outcome::LeftAlone => self.debounce.changed_nothing(&target, ban()),
            Outcome::Stuck
            | Outcome::Debounced
            | Outcome::Lifted
            | Outcome::Rejected(_)
            | Outcome::Unavailable(_) => {}
        }
        outcome
    }

    /// Whether the ban of a recent alert is over already: the next alert has to ban again.
    fn has_ended(&self, wanted: &Wanted) -> bool {
        let settings = Arc::clone(&self.shared.settings.read());
        let namespace = self.namespace.as_deref().unwrap_or(&settings.namespace);
        let now = self.shared.time.now();
        [wanted.target.object_name(), object_name(&wanted.raw)]
            .iter()
            .any(|name| self.shared.blocks.has_ended(namespace, name, now))
    }

    /// Ends the ban that `resolved` is about, if that was its last alert. Safe to repeat, and to cancel at any point.
    pub(super) async fn resolve(&self, resolved: &Resolved) -> Outcome {
        let _lock = self.shared.locks.lock(resolved.target).await;
        self.unfinished.forget(&resolved.target);
        let settings = Arc::clone(&self.shared.settings.read());
        let namespace = self.namespace.as_deref().unwrap_or(&settings.namespace);
        self.tried(namespace, || self.ended(resolved, namespace))
            .await
    }

    async fn write(&self, wanted: &Wanted) -> Outcome {
        let settings = Arc::clone(&self.shared.settings.read());
        let namespace = self.namespace.as_deref().unwrap_or(&settings.namespace);
        self.tried(namespace, || self.attempt(wanted, namespace, &settings))
            .await
    }

    /// Repeats `attempt` while other clients change the object. By a clock that is wrong and not compared yet, a ban would look
    /// overdue, and a short alert would take its place.
    async fn tried<F>(&self, namespace: &str, attempt: impl Fn() -> F) -> Outcome
    where
        F: Future<Output = Result<Outcome, BlocksError>>,
    {
        self.shared.time.compared().await;
        for _ in 0..ATTEMPTS {
            match attempt().await {
                Ok(outcome) => return outcome,
                Err(BlocksError::Exists | BlocksError::Conflict) => {}
                Err(BlocksError::Gone) => {
                    return Outcome::Unavailable(format!(
                        "namespace {namespace} or the IPBlock kind does not exist"
                    ));
                }
                Err(BlocksError::Rejected(why)) => return Outcome::Rejected(why),
                Err(BlocksError::Unavailable(why)) => return Outcome::Unavailable(why),
            }
        }
        Outcome::Unavailable("other clients keep changing the object".into())
    }

    /// A create comes first: most addresses of an attack are new.
    async fn attempt(
        &self,
        wanted: &Wanted,
        namespace: &str,
        settings: &Settings,
    ) -> Result<Outcome, BlocksError> {
        let name = wanted.target.object_name();
        let older = self.older(namespace, &wanted.target, &wanted.raw).await?;
        if let Some(present) = older {
            return self.existing(&present, wanted, namespace, settings).await;
        }
        let spec = IPBlockSpec {
            ip: wanted.target.to_string(),
            reason: Some(wanted.reason.clone()),
            source: Some(self.source.clone()),
            by: wanted.by.clone(),
            duration: Some(lasting(wanted, settings)),
            ..IPBlockSpec::default()
        };
        let shown = settings.shadow.contains(&self.source);
        let place = settings.place.as_ref().filter(|_| !shown);
        let mut block = IPBlock::born(&name, namespace, &wanted.target, place, spec);
        if let Some(alert) = &wanted.named {
            let annotations = block.metadata.annotations.get_or_insert_default();
            annotations.insert(ALERT_ANNOTATION.to_owned(), alert.text());
        }
        if self.lifts {
            let duration = lasting(wanted, settings);
            let firing = Firing::new(&self.source, 1, &duration, &wanted.alert);
            let annotations = block.metadata.annotations.get_or_insert_default();
            annotations.insert(ALERTS.to_owned(), firing.text());
        }
        match self.shared.blocks.create(&block).await {
            Ok(()) => Ok(Outcome::Created),
            Err(BlocksError::Exists) => {
                match self.shared.blocks.get(namespace, &name).await? {
                    Some(present) => self.existing(&present, wanted, namespace, settings).await,
                    // Deleted between the two: create again.
                    None => Err(BlocksError::Conflict),
                }
            }
            Err(other) => Err(other),
        }
    }

    async fn existing(
        &self,
        present: &IPBlock,
        wanted: &Wanted,
        namespace: &str,
        settings: &Settings,
    ) -> Result<Outcome, BlocksError> {
        let name = present.metadata.name.as_deref().unwrap_or_default();
        if !is_for(present, &wanted.target) {
            return Ok(Outcome::Rejected(format!(
                "object {namespace}/{name} has the name for {} but is about another address",
                wanted.target
            )));
        }
        if let Some(since) = &present.metadata.deletion_timestamp {
            if self.shared.time.now().duration_since(since.0) > DELETING {
                return Ok(Outcome::Stuck);
            }
            // The next ban needs a new object, which cannot be made yet.
            return Ok(Outcome::Unavailable(format!(
                "object {namespace}/{name} is being deleted"
            )));
        }
        if self.only_shows(present, settings) {
            return Ok(Outcome::LeftAlone);
        }
        let duration = lasting(wanted, settings);
        let answer = self.answer(present, &duration, settings);
        if answer == Answer::LeaveAlone
            && repeat::is_graced(present, settings.unblock_grace, self.shared.time.now())
        {
            self.shared.metrics.graced.inc();
            if self.shared.graced.pass(wanted.target) {
                let source = &self.source;
                tracing::info!(%source, target = %wanted.target, "alert bans nothing: its address was lifted by hand a moment ago (unblockGrace)");
                let grace = duration::display(settings.unblock_grace);
                let note = format!(
                    "an alert of {source} bans nothing: spec.unblock lifted the ban less than {grace} ago (unblockGrace); to ban it now, set spec.trigger"
                );
                self.shared.blocks.report(present, "UnblockGrace", &note);
            }
        }
        let (spec, annotations, outcome) = match answer {
            Answer::LeaveAlone => match self.joined(present, wanted, None) {
                Some(annotations) => (json!({}), annotations, Outcome::LeftAlone),
                None => return Ok(Outcome::LeftAlone),
            },
            Answer::Trigger => {
                let bans = present.status.as_ref().map_or(0, IPBlockStatus::bans);
                let firing = Firing::new(&self.source, bans + 1, &duration, &wanted.alert);
                let text = self.lifts.then(|| firing.text());
                (
                    // The ban is that of this source: its caps and its shadow mode count.
                    json!({
                        "trigger": true,
                        "reason": wanted.reason,
                        "duration": duration,
                        "source": self.source,
                        "by": wanted.by,
                    }),
                    json!({
                        ALERTS: text,
                        RESOLVED: null,
                        // What asked for an earlier ban is not what asks for this one.
                        ALERT_ANNOTATION: wanted.named.as_ref().map(Alert::text),
                    }),
                    Outcome::Triggered,
                )
            }
            Answer::Extend(longer) => {
                let joined = if repeat::is_kept_by_brake(present, self.shared.time.now()) {
                    self.resumed(present, wanted, &longer)
                } else {
                    self.joined(present, wanted, Some(&longer))
                };
                let mut annotations = joined.unwrap_or_else(|| json!({}));
                // The ban is wanted again, and a late end must not take it back.
                annotations[RESOLVED] = serde_json::Value::Null;
                let spec = json!({ "duration": longer });
                (spec, annotations, Outcome::Extended)
            }
        };
        self.patch(present, &spec, &annotations).await?;
        Ok(outcome)
    }

    /// Whether this source is in shadow mode and `present` is the block of another: it shows its own blocks, and changes
    /// none that may be banned.
    fn only_shows(&self, present: &IPBlock, settings: &Settings) -> bool {
        settings.shadow.contains(&self.source) && source_of(present) != self.source
    }

    /// Whether `present` is the block of another source, which is in shadow mode.
    fn is_only_shown(&self, present: &IPBlock, settings: &Settings) -> bool {
        let theirs = source_of(present);
        theirs != self.source && settings.shadow.contains(theirs)
    }

    fn answer(&self, present: &IPBlock, duration: &str, settings: &Settings) -> Answer {
        let now = self.shared.time.now();
        // What only a source in shadow mode reported so far is banned for another one.
        if self.is_only_shown(present, settings)
            && present.spec.unblock != Some(true)
            && !repeat::is_graced(present, settings.unblock_grace, now)
        {
            return Answer::Trigger;
        }
        let rules = Rules {
            most: settings.max_duration,
            repeated: self.repeated.unwrap_or(settings.repeated_alert),
            grace: settings.unblock_grace,
            escalation: settings.escalation,
            renew_before: self.renew_before,
        };
        repeat::answer(present, duration, rules, now)
    }

    /// Whether `block` is another source's, and this one is in shadow mode.
    pub(super) fn leaves_to_others(&self, block: &IPBlock) -> bool {
        let settings = Arc::clone(&self.shared.settings.read());
        self.only_shows(block, &settings)
    }

    /// Whether `block` is another source's, and that one is in shadow mode.
    pub(super) fn takes_from_shadow(&self, block: &IPBlock) -> bool {
        let settings = Arc::clone(&self.shared.settings.read());
        self.is_only_shown(block, &settings)
    }

    /// Whether `wanted` would change nothing about `block`.
    pub(super) fn leaves_alone(&self, block: &IPBlock, wanted: &Wanted) -> bool {
        let settings = Arc::clone(&self.shared.settings.read());
        let duration = lasting(wanted, &settings);
        is_for(block, &wanted.target)
            && !block.is_deleting()
            && (self.only_shows(block, &settings)
                || self.answer(block, &duration, &settings) == Answer::LeaveAlone)
    }

    /// The annotation with this alert beside the others that keep the ban; `None` when it is there, and when the ban is
    /// not one that resolved alerts lift. Alerts of triggers without `resolved: lift` are recorded, too: they keep the ban.
    fn joined(
        &self,
        present: &IPBlock,
        wanted: &Wanted,
        duration: Option<&str>,
    ) -> Option<serde_json::Value> {
        let mut firing = Firing::of(present)?;
        let changed = firing.add(&self.source, &wanted.alert, duration);
        changed.then(|| json!({ ALERTS: firing.text() }))
    }

    /// The annotation of a ban that the brake keeps though its alerts were resolved, and that this alert asks for again.
    /// `None`: another trigger made the ban, so it runs to its end.
    fn resumed(
        &self,
        present: &IPBlock,
        wanted: &Wanted,
        duration: &str,
    ) -> Option<serde_json::Value> {
        let made = self.lifts && source_of(present) == self.source;
        let bans = present.status.as_ref().map_or(0, IPBlockStatus::bans);
        let firing = || Firing::new(&self.source, bans, duration, &wanted.alert);
        made.then(|| json!({ ALERTS: firing().text() }))
    }

    async fn ended(&self, resolved: &Resolved, namespace: &str) -> Result<Outcome, BlocksError> {
        let target = &resolved.target;
        let older = self.older(namespace, target, &resolved.raw).await?;
        let present = match older {
            Some(present) => Some(present),
            None => {
                let name = target.object_name();
                self.shared.blocks.get(namespace, &name).await?
            }
        };
        let Some(present) = present.filter(|it| is_for(it, target) && !it.is_deleting()) else {
            return Ok(Outcome::LeftAlone);
        };
        let now = self.shared.time.now();
        match firing::resolve(&present, &self.source, &resolved.alert, now) {
            Change::LeaveAlone => Ok(Outcome::LeftAlone),
            Change::Forget(firing) => {
                let annotations = json!({ ALERTS: firing.text() });
                self.patch(&present, &json!({}), &annotations).await?;
                Ok(Outcome::LeftAlone)
            }
            Change::Lift(duration) => {
                // A ban that is asked for and not made yet is not asked for any more.
                let trigger = present.spec.trigger.map(|_| false);
                let mut spec = json!({ "duration": duration });
                if let Some(trigger) = trigger {
                    spec["trigger"] = trigger.into();
                }
                let annotations = json!({ ALERTS: null, RESOLVED: api::write_time(now) });
                self.patch(&present, &spec, &annotations).await?;
                Ok(Outcome::Lifted)
            }
        }
    }

    /// The object that is named after the text of an alert, as the original names it.
    async fn older(
        &self,
        namespace: &str,
        target: &Target,
        raw: &str,
    ) -> Result<Option<IPBlock>, BlocksError> {
        let older = object_name(raw);
        if older == target.object_name() {
            return Ok(None);
        }
        let present = self.shared.blocks.get(namespace, &older).await?;
        Ok(present.filter(|present| is_for(present, target)))
    }

    async fn patch(
        &self,
        present: &IPBlock,
        spec: &serde_json::Value,
        annotations: &serde_json::Value,
    ) -> Result<(), BlocksError> {
        let mut patch = json!({
            // A precondition: a changed object is read again.
            "metadata": {
                "resourceVersion": present.metadata.resource_version,
            },
        });
        if annotations.as_object().is_some_and(|all| !all.is_empty()) {
            patch["metadata"]["annotations"] = annotations.clone();
        }
        if spec.as_object().is_some_and(|all| !all.is_empty()) {
            patch["spec"] = spec.clone();
        }
        let namespace = present.metadata.namespace.as_deref().unwrap_or_default();
        let name = present.metadata.name.as_deref().unwrap_or_default();
        match self.shared.blocks.patch(namespace, name, &patch).await {
            Err(BlocksError::Gone) => Err(BlocksError::Conflict),
            other => other,
        }
    }
}

/// The duration of the alert or else the default, and never more than the limit: an object over it would be refused.
fn lasting(wanted: &Wanted, settings: &Settings) -> String {
    let asked = wanted
        .duration
        .clone()
        .unwrap_or_else(|| duration::display(settings.default_duration));
    match (duration::parse(&asked), settings.max_duration) {
        (Ok(length), Some(most)) if length > most => duration::display(most),
        _ => asked,
    }
}

fn is_for(block: &IPBlock, target: &Target) -> bool {
    block.spec.ip.trim().parse() == Ok(*target)
}

#[cfg(test)]
mod debounce_tests;
#[cfg(test)]
mod lift_tests;
#[cfg(test)]
pub(super) mod tests;
