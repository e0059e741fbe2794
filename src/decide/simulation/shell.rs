//! The API server and the gateways in memory, and the performer of runs between them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;
use tokio::time::Instant;

use super::*;
use crate::guard::{Ask, Hold, Limiter, Scope, Settings};
use crate::policy::Policy;

/// The operator was killed.
pub(super) struct Killed;

/// A step that ends the run.
enum Broken {
    /// With the process.
    Killed,
    /// The process goes on, and does not know whether the write took effect.
    Failed,
}

pub(super) struct Simulation {
    start: Timestamp,
    base: Instant,
    pub(super) now: Timestamp,
    pub(super) objects: BTreeMap<String, IPBlock>,
    pub(super) enforced: BTreeMap<Place, BTreeSet<u32>>,
    pub(super) dead: BTreeSet<Place>,
    pub(super) policy: Policy,
    pub(super) place: Option<Place>,
    pub(super) coverage: Coverage,
    /// The caps, the limiter of this process, and the new bans that it let pass.
    pub(super) caps: Option<Settings>,
    limiter: Limiter,
    admitted: Vec<Timestamp>,
    /// Blocks that wait, and for which this process lifted what may have stood.
    clean: BTreeSet<String>,
    pub(super) queue: BTreeSet<String>,
    wakes: BTreeMap<String, Timestamp>,
    pub(super) faults: std::vec::IntoIter<Fault>,
    budget: usize,
    /// The version that was written last.
    version: u64,
    /// A call that the present run depends on went to a gateway that is dead.
    dead_call: bool,
    /// The calls of the present run ban.
    banning: bool,
    pub(super) expected: Expected,
    pub(super) audit: Audit,
}

pub(super) fn addresses(target: &Target) -> BTreeSet<u32> {
    let net = target.net();
    net.hosts()
        .chain([net.network(), net.broadcast()])
        .filter_map(|address| match address {
            IpAddr::V4(v4) => Some(u32::from(v4)),
            IpAddr::V6(_) => None,
        })
        .collect()
}

fn merge(target: &mut Value, patch: &Value) {
    if let (Value::Object(target), Value::Object(patch)) = (&mut *target, patch) {
        for (key, value) in patch {
            if value.is_null() {
                target.remove(key);
            } else {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        return;
    }
    *target = match patch {
        Value::Object(patch) => {
            let mut fresh = Value::Object(serde_json::Map::new());
            merge(&mut fresh, &Value::Object(patch.clone()));
            fresh
        }
        other => other.clone(),
    };
}

impl Simulation {
    pub(super) fn new(faults: Vec<Fault>) -> Self {
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        Self {
            start,
            base: Instant::now(),
            now: start,
            objects: BTreeMap::new(),
            enforced: BTreeMap::new(),
            dead: BTreeSet::new(),
            policy: Policy::default(),
            place: Some(gateway(0)),
            coverage: Coverage::default(),
            caps: None,
            limiter: Limiter::default(),
            admitted: Vec::new(),
            clean: BTreeSet::new(),
            queue: BTreeSet::new(),
            wakes: BTreeMap::new(),
            budget: 12,
            version: 0,
            dead_call: false,
            banning: false,
            faults: faults.into_iter(),
            expected: Expected::default(),
            audit: Audit::default(),
        }
    }

    fn instant(&self) -> Instant {
        self.base + Duration::try_from(self.now.duration_since(self.start)).unwrap()
    }

    fn fault(&mut self) -> Fault {
        let fault = self.faults.next().unwrap_or(Fault::None);
        if fault == Fault::None || self.budget == 0 {
            return Fault::None;
        }
        self.budget -= 1;
        fault
    }

    pub(super) fn kill(&mut self) {
        self.coverage.clear();
        self.limiter = Limiter::default();
        self.admitted.clear();
        self.clean.clear();
        self.wakes.clear();
        self.queue = self.objects.keys().cloned().collect();
        for (key, block) in &self.objects {
            if let Some((standing, until)) = recorded_claim(block, self.place.as_ref()) {
                self.coverage.recall(key, standing, until);
            }
        }
    }

    /// Whether this fault comes next, at a step that has it.
    fn has(&mut self, fault: Fault) -> bool {
        let has = self.budget > 0 && self.faults.as_slice().first() == Some(&fault);
        if has {
            self.fault();
        }
        has
    }

    /// Writes to the version `base` of an object as the server does.
    fn write(
        &mut self,
        base: &IPBlock,
        change: impl FnOnce(&mut IPBlock),
    ) -> Result<Outcome, Broken> {
        let key = base.key();
        let fault = self.fault();
        match fault {
            Fault::KilledBefore => return Err(Broken::Killed),
            Fault::FailsBefore => return Err(Broken::Failed),
            Fault::Overtaken(how) => self.overtake(&key, how),
            _ => {}
        }
        let Some(mut block) = self.objects.get(&key).cloned() else {
            return Ok(Outcome::Gone);
        };
        if block.metadata.resource_version != base.metadata.resource_version {
            return Ok(Outcome::Conflict);
        }
        let before = block.status.clone().unwrap_or_default();
        let spec = block.spec.clone();
        change(&mut block);
        self.stamp(&mut block, &spec);
        let held = block
            .metadata
            .finalizers
            .as_ref()
            .is_some_and(|all| !all.is_empty());
        let after = block.status.clone().unwrap_or_default();
        self.expected.status(&key, &before, &after, self.now);
        self.audit.changes(&key, &before, &after);
        if block.is_deleting() {
            self.expected.deleted(&key);
        }
        if block.is_deleting() && !held {
            self.objects.remove(&key);
        } else {
            self.objects.insert(key.clone(), block.clone());
        }
        self.queue.insert(key);
        match fault {
            Fault::KilledAfter => Err(Broken::Killed),
            Fault::FailsAfter => Err(Broken::Failed),
            _ => Ok(Outcome::Object(block.into())),
        }
    }

    /// A new version, and a new generation if the spec changed.
    pub(super) fn stamp(&mut self, block: &mut IPBlock, spec: &IPBlockSpec) {
        self.version += 1;
        block.metadata.resource_version = Some(self.version.to_string());
        if block.spec != *spec {
            block.metadata.generation = block.metadata.generation.map(|number| number + 1);
        }
    }

    /// Another client writes the object first.
    fn overtake(&mut self, key: &str, how: Overtaking) {
        match how {
            Overtaking::By => self.edit(key, |block| {
                block.spec.by = Some(match block.spec.by.as_deref() {
                    Some("one") => "another".into(),
                    _ => "one".into(),
                });
            }),
            Overtaking::Duration(duration) => self.set_duration(key, duration),
            Overtaking::Deletion => self.delete(key),
        }
    }

    fn patch(&mut self, base: &IPBlock, patch: &Patch) -> Result<Outcome, Broken> {
        self.write(base, |block| {
            let mut value = serde_json::to_value(&*block).unwrap();
            merge(&mut value, &patch.to_merge_patch(base));
            *block = serde_json::from_value(value).unwrap();
        })
    }

    fn call(&mut self, key: &str, call: &Call) -> Result<Outcome, Broken> {
        let untouched = self.coverage.touch(key, &call.standing.place);
        let outcome = self.answer(key, call);
        if let (true, Ok(Outcome::Failed(failure))) = (untouched, &outcome)
            && !failure.may_have_happened
        {
            self.coverage.untouched(key, &call.standing.place);
        }
        outcome
    }

    fn answer(&mut self, key: &str, call: &Call) -> Result<Outcome, Broken> {
        let failed = |may_have_happened| {
            Ok(Outcome::Failed(Failure {
                reason: "Fault".into(),
                message: "fault".into(),
                may_have_happened,
                ..Failure::default()
            }))
        };
        if self.dead.contains(&call.standing.place) {
            self.dead_call |= call.required || !self.objects.contains_key(key);
            return failed(false);
        }
        let fault = self.fault();
        match fault {
            Fault::KilledBefore => return Err(Broken::Killed),
            Fault::FailsBefore => return failed(false),
            _ => {}
        }
        let addresses = addresses(&call.standing.target);
        let enforced = self
            .enforced
            .entry(call.standing.place.clone())
            .or_default();
        match call.operation {
            Operation::Ban(_) => enforced.extend(addresses),
            Operation::Unban => enforced.retain(|address| !addresses.contains(address)),
        }
        match fault {
            Fault::KilledAfter => Err(Broken::Killed),
            Fault::FailsAfter => failed(true),
            _ => Ok(Outcome::Done),
        }
    }

    /// The decision about a block, or the lift of what it left behind.
    fn decide(&mut self, key: &str) -> Option<Run> {
        let Some(block) = self.objects.get(key).cloned() else {
            let claim = self.coverage.claim(key)?;
            let targets = [claim.target];
            let neighbours = self.coverage.neighbours(&targets, key);
            return Some(Run::orphan(&claim.standing(), &neighbours, self.now));
        };
        let place = self.place.clone();
        let place = place.as_ref();
        let coverage = &self.coverage;
        let mut world = World {
            policy: &self.policy,
            place: place.ok_or("no engine is configured"),
            followers: &[],
            max_duration: None,
            retention: Some(RETENTION),
            unblock_grace: GRACE,
            neighbours: &coverage.neighbours(&targets(&block), key),
            assert: coverage.assert(key, place, RESYNC, self.instant()),
            resync: RESYNC,
            untouched: coverage.untouched_places(key),
            rails: Rails::default(),
        };
        let block = Arc::new(block);
        let run = decide(&block, &world, self.now);
        let (Some(caps), Some((standing, until))) = (&self.caps, run.new_ban()) else {
            return Some(run);
        };
        if coverage.claim(key).is_some() {
            return Some(run);
        }
        let asked = Ask {
            namespace: "default",
            source: "manual",
        };
        let active = |scope: &Scope| coverage.count(scope);
        let now = self.instant();
        let admitted = self.limiter.admit(asked, caps, active, now, String::new);
        let Err(held) = admitted else {
            self.admitted.push(self.now);
            self.coverage.reserve(key, standing, until);
            self.is_within_the_caps();
            return Some(run);
        };
        let hold = Hold {
            reason: held.reason(),
            message: held.to_string(),
            retry_in: held.retry_in(0),
            may_stand: !self.clean.contains(key),
        };
        world.rails.hold = Some(&hold);
        let run = decide(&block, &world, self.now);
        Some(run)
    }

    /// There are never more bans, and in no minute more new ones, than the caps allow.
    fn is_within_the_caps(&self) {
        let Some(limit) = self.caps.as_ref().map(|caps| caps.limits.all) else {
            return;
        };
        let count = self.coverage.len();
        // Those that stood before this process began are not lifted because of a cap.
        assert!(
            limit.active.is_none_or(|most| count <= most),
            "{count} bans"
        );
        let recent = self.admitted.iter().rev();
        let recent = recent.take_while(|at| self.now.duration_since(**at).as_secs() < 60);
        let recent = recent.count();
        assert!(
            limit.per_minute.is_none_or(|most| recent <= most),
            "{recent} in a minute"
        );
    }

    pub(super) fn reconcile(&mut self, key: &str) -> Result<(), Killed> {
        self.wakes.remove(key);
        self.dead_call = false;
        self.audit.begins();
        let Some(mut run) = self.decide(key) else {
            return Ok(());
        };
        loop {
            let outcome = match run.step().clone() {
                Step::End(wake) => {
                    self.audit.ends(key);
                    if !run.holds() {
                        self.clean.remove(key);
                    } else if matches!(wake, Wake::After(_)) {
                        self.clean.insert(key.to_owned());
                    }
                    self.wake(key, &run, wake);
                    return Ok(());
                }
                step => match self.perform(key, &step, run.block()) {
                    Err(Broken::Killed) => return Err(Killed),
                    outcome => outcome,
                },
            };
            if run.advance(outcome, self.now).is_err() {
                self.queue.insert(key.to_owned());
                return Ok(());
            }
        }
    }

    fn perform(&mut self, key: &str, step: &Step, block: &IPBlock) -> Result<Outcome, Broken> {
        match step {
            Step::Delete => {
                self.expected.collected(key, block, self.now);
                let now = self.now;
                self.write(block, |block| {
                    block.metadata.deletion_timestamp = Some(Time(now));
                })
            }
            Step::RecordIntent(patch) => {
                self.audit.intends(key);
                self.patch(block, patch)
            }
            Step::Finish(patch) => self.patch(block, patch),
            Step::WriteStatus(status) | Step::ShowProgress(status) => {
                let before = block.status.clone().unwrap_or_default();
                let written = self.write(block, |block| {
                    block.status = Some(IPBlockStatus::clone(status));
                });
                if matches!(
                    (step, &written),
                    (Step::WriteStatus(_), Ok(Outcome::Object(_)))
                ) {
                    self.audit.wrote(&before, status);
                }
                written
            }
            Step::Read => Ok(match self.objects.get(key) {
                Some(live) => Outcome::Object(live.clone().into()),
                None => Outcome::Gone,
            }),
            Step::Call(call) => {
                self.is_recorded(key, call);
                self.audit.calls(key, call);
                if self.has(Fault::Slow) {
                    return Ok(Outcome::Slow);
                }
                self.call(key, call)
            }
            Step::Await(call) => self.call(key, call),
            Step::Claim(change) => {
                self.banning = matches!(change, ClaimChange::Begin { .. });
                let at = self.instant();
                drop(self.coverage.apply(key, change, at));
                Ok(Outcome::Done)
            }
            Step::Recheck(target) => {
                let overlapping = self.coverage.recheck(target, key);
                self.queue
                    .extend(overlapping.iter().map(ToString::to_string));
                Ok(Outcome::Done)
            }
            Step::CheckFence if self.has(Fault::Fenced) => Err(Broken::Failed),
            Step::CheckFence => {
                self.audit.checked();
                Ok(Outcome::Done)
            }
            Step::Report(report) => {
                self.audit.reported(key, block, report);
                Ok(Outcome::Done)
            }
            Step::End(_) => Ok(Outcome::Done),
        }
    }

    /// What is about to be banned is recorded in an object that the finalizer holds.
    fn is_recorded(&self, key: &str, call: &Call) {
        let Some(block) = self.objects.get(key).filter(|_| self.banning) else {
            return;
        };
        let intent: Intent = block.annotation(INTENT).unwrap().parse().unwrap();
        let mut standings = std::iter::once(&intent.standing).chain(&intent.also);
        assert!(
            block.is_held() && standings.any(|standing| *standing == call.standing),
            "{key}: {call:?} is not recorded: {block:?}"
        );
    }

    fn wake(&mut self, key: &str, run: &Run, wake: Wake) {
        let after = match wake {
            Wake::OnChange => None,
            Wake::After(wake) => Some(wake),
            // At once, unless the gateway is dead.
            Wake::Retry { at_latest, .. } if self.dead_call => {
                Some(at_latest.map_or(RETRY, |wake| wake.min(RETRY)))
            }
            Wake::Retry { .. } => {
                self.queue.insert(key.to_owned());
                None
            }
        };
        if let Some(after) = after {
            let at = self.now + SignedDuration::try_from(after).unwrap();
            self.wakes.insert(key.to_owned(), at);
        }
        let active = self.objects.get(key).is_some_and(|block| {
            let status = block.status.as_ref();
            !block.is_deleting() && status.is_some_and(|status| status.is(&Phase::Active))
        });
        assert!(
            !active || wake != Wake::OnChange,
            "an active block without a next wake: {run:?}"
        );
    }

    /// Runs everything that is queued or due now.
    pub(super) fn settle(&mut self) {
        for _ in 0..2_000 {
            let due: Vec<String> = self
                .wakes
                .iter()
                .filter(|(_, at)| **at <= self.now)
                .map(|(key, _)| key.clone())
                .collect();
            self.queue.extend(due);
            let Some(key) = self.queue.pop_first() else {
                return self.at_rest();
            };
            if self.reconcile(&key).is_err() {
                self.kill();
            }
        }
        let shown: Vec<_> = self.queue.iter().map(|key| self.objects.get(key)).collect();
        panic!("does not come to rest at {}: {shown:?}", self.now);
    }

    pub(super) fn pass(&mut self, seconds: u64) {
        let until = self.now + SignedDuration::from_secs(seconds as i64);
        self.settle();
        while let Some(next) = self.wakes.values().copied().filter(|at| *at <= until).min() {
            self.now = self.now.max(next);
            self.settle();
        }
        self.now = until;
        self.settle();
    }

    /// From now on nothing fails that is not dead, and a gateway is configured that is alive.
    pub(super) fn mend(&mut self) {
        self.budget = 0;
        let place = self.place.take();
        let place = place.filter(|place| !self.dead.contains(place));
        self.place = Some(place.unwrap_or_else(|| gateway(GATEWAYS.len() - 1)));
        self.queue.extend(self.objects.keys().cloned());
    }

    /// The enforced addresses of gateways that answer.
    pub(super) fn alive(&self) -> impl Iterator<Item = (&Place, &BTreeSet<u32>)> {
        let alive = |place: &Place| !self.dead.contains(place);
        self.enforced.iter().filter(move |(place, _)| alive(place))
    }
}
