//! The performer of runs, between the API server and the gateways of [`servers`](super::servers).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

use super::servers::Broken;
use super::*;
use crate::decide::runbook_tests::explained;
use crate::guard::{Ask, Hold, Limiter, Scope, Settings};
use crate::policy::Policy;

/// The operator was killed.
pub(super) struct Killed;

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
    pub(super) budget: usize,
    /// The version that was written last.
    pub(super) version: u64,
    /// A call that the present run depends on went to a gateway that is dead.
    pub(super) dead_call: bool,
    /// The calls of the present run ban.
    banning: bool,
    pub(super) expected: Expected,
    pub(super) audit: Audit,
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
            audit: Audit::new(faults.is_empty()),
            faults: faults.into_iter(),
            expected: Expected::default(),
        }
    }

    fn instant(&self) -> Instant {
        self.base + Duration::try_from(self.now.duration_since(self.start)).unwrap()
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
            gateway: place,
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
            full: None,
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
                explained(Some(&before), status);
                let written = self.write(block, |block| {
                    block.status = Some(IPBlockStatus::clone(status));
                });
                if matches!(
                    (step, &written),
                    (Step::WriteStatus(_), Ok(Outcome::Object(_)))
                ) {
                    self.audit.wrote(&before, status);
                }
                if matches!(written, Ok(Outcome::Object(_))) {
                    self.coverage.report(key, status.shows_ban());
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
            Step::Recheck(_) | Step::RecheckAt(_) => {
                let overlapping = match step {
                    Step::RecheckAt(standing) => self.coverage.recheck_at(standing, key),
                    Step::Recheck(target) => self.coverage.recheck(target, key),
                    _ => Vec::new(),
                };
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
                let stays = self.shows_ban_beside(key, block);
                self.audit.reported(key, block, report, stays);
                Ok(Outcome::Done)
            }
            Step::End(_) => Ok(Outcome::Done),
        }
    }

    /// Whether the status of another block shows a ban of the same address.
    fn shows_ban_beside(&self, key: &str, block: &IPBlock) -> bool {
        let target = |block: &IPBlock| {
            let status = block.status.as_ref();
            status
                .and_then(|status| status.target.clone())
                .unwrap_or_else(|| block.spec.ip.clone())
        };
        let mut others = self.objects.iter().filter(|(other, _)| *other != key);
        others.any(|(_, other)| {
            let status = other.status.as_ref();
            status.is_some_and(IPBlockStatus::shows_ban) && target(other) == target(block)
        })
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
