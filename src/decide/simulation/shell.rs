//! The API server, the gateways, and the shell that runs plans between them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;
use tokio::time::Instant;

use super::*;
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
    coverage: Coverage,
    pub(super) queue: BTreeSet<String>,
    wakes: BTreeMap<String, Timestamp>,
    pub(super) faults: std::vec::IntoIter<Fault>,
    budget: usize,
    pub(super) expected: Expected,
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
            queue: BTreeSet::new(),
            wakes: BTreeMap::new(),
            budget: 12,
            faults: faults.into_iter(),
            expected: Expected::default(),
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
        self.wakes.clear();
        self.queue = self.objects.keys().cloned().collect();
        for (key, block) in &self.objects {
            if let Some((standing, until)) = recorded_claim(block, self.place.as_ref()) {
                self.coverage.set(key, standing, until);
            }
        }
    }

    /// Writes to an object as the server does.
    fn write(&mut self, key: &str, change: impl FnOnce(&mut IPBlock)) -> Result<bool, Killed> {
        let fault = self.fault();
        match fault {
            Fault::KilledBefore => return Err(Killed),
            Fault::FailsBefore => return Ok(false),
            _ => {}
        }
        if let Some(mut block) = self.objects.get(key).cloned() {
            let before = block.status.clone().unwrap_or_default();
            let spec = block.spec.clone();
            change(&mut block);
            if block.spec != spec {
                block.metadata.generation =
                    block.metadata.generation.map(|generation| generation + 1);
            }
            let held = block
                .metadata
                .finalizers
                .as_ref()
                .is_some_and(|all| !all.is_empty());
            let after = block.status.clone().unwrap_or_default();
            self.expected.status(key, &before, &after, self.now);
            if block.is_deleting() && !held {
                self.objects.remove(key);
            } else {
                self.objects.insert(key.to_owned(), block);
            }
            self.queue.insert(key.to_owned());
        }
        match fault {
            Fault::KilledAfter => Err(Killed),
            Fault::FailsAfter => Ok(false),
            _ => Ok(true),
        }
    }

    fn patch(&mut self, key: &str, patch: &Patch) -> Result<bool, Killed> {
        let patch = patch.clone();
        self.write(key, |block| {
            let mut value = serde_json::to_value(&*block).unwrap();
            merge(&mut value, &patch.to_merge_patch(block));
            *block = serde_json::from_value(value).unwrap();
        })
    }

    fn call(&mut self, key: &str, call: &Call) -> Result<bool, Killed> {
        if self.dead.contains(&call.standing.place) {
            return Ok(false);
        }
        let fault = self.fault();
        match fault {
            Fault::KilledBefore => return Err(Killed),
            Fault::FailsBefore => return Ok(false),
            _ => {}
        }
        let addresses = addresses(&call.standing.target);
        let enforced = self
            .enforced
            .entry(call.standing.place.clone())
            .or_default();
        match call.operation {
            Operation::Ban(_) => enforced.extend(addresses),
            Operation::Unban => {
                enforced.retain(|address| !addresses.contains(address));
                for doubtful in self.coverage.doubt(&call.standing.target, key) {
                    self.queue.insert(doubtful.to_string());
                }
            }
        }
        match fault {
            Fault::KilledAfter => Err(Killed),
            Fault::FailsAfter => Ok(false),
            _ => Ok(true),
        }
    }

    pub(super) fn reconcile(&mut self, key: &str) -> Result<(), Killed> {
        self.wakes.remove(key);
        let Some(block) = self.objects.get(key).cloned() else {
            if let Some(claim) = self.coverage.claim(key).cloned() {
                let neighbours = self.coverage.neighbours(&claim.standing.target, key);
                let call = lift_orphan(&claim.standing, &neighbours, self.now);
                if self.call(key, &call)? {
                    self.coverage.remove(key);
                } else {
                    self.retry(key, &call);
                }
            }
            return Ok(());
        };
        let mut neighbours = Vec::new();
        for target in targets(&block) {
            for neighbour in self.coverage.neighbours(&target, key) {
                if !neighbours.contains(&neighbour) {
                    neighbours.push(neighbour);
                }
            }
        }
        let here = |claim: &&Claim| {
            let place = self.place.as_ref();
            place.is_none_or(|place| claim.standing.place == *place)
        };
        let claim = self.coverage.claim(key).filter(here);
        let assert = match claim.and_then(|claim| claim.asserted) {
            Some(asserted) if self.instant() < asserted + RESYNC => {
                Assert::In(asserted + RESYNC - self.instant())
            }
            _ => Assert::Due,
        };
        let policy = self.policy.clone();
        let place = self.place.clone();
        let world = World {
            policy: &policy,
            place: place.as_ref().ok_or("no engine is configured"),
            max_duration: None,
            retention: Some(RETENTION),
            unblock_grace: GRACE,
            neighbours: &neighbours,
            assert,
            resync: RESYNC,
        };
        let plan = decide(&block, &world, self.now);
        if plan.collects() {
            return self.collect(key, &block);
        }
        if let Some(before) = plan.before()
            && !self.patch(key, before)?
        {
            self.queue.insert(key.to_owned());
            return Ok(());
        }
        if let Some((standing, until)) = plan.claim() {
            self.coverage.set(key, standing, until);
        } else if !plan.calls().is_empty() {
            self.coverage.lifting(key);
        }
        let mut failed = None;
        let mut left_behind = Vec::new();
        for call in plan.calls() {
            if self.call(key, call)? {
                continue;
            }
            if !call.required {
                left_behind.push(call.standing.clone());
                continue;
            }
            failed.get_or_insert(call);
            if !plan.lifts() {
                break;
            }
        }
        if let Some(call) = failed {
            let failure = Failure {
                reason: "Fault".into(),
                message: "fault".into(),
            };
            let generation = self
                .objects
                .get(key)
                .and_then(|block| block.metadata.generation);
            let settled = plan.fail(call, &failure, generation, self.now);
            if let Some(status) = settled.status {
                self.write(key, |block| block.status = Some(status))?;
            }
            self.retry(key, call);
            return Ok(());
        }
        let generation = self
            .objects
            .get(key)
            .and_then(|block| block.metadata.generation);
        let settled = plan.settle(self.now, generation, &left_behind);
        let active = settled
            .status
            .as_ref()
            .or(block.status.as_ref())
            .is_some_and(|status| status.is(&Phase::Active));
        assert!(
            !active || block.is_deleting() || settled.wake.is_some(),
            "an active block without a next wake: {plan:?}"
        );
        let lifted = plan.claim().is_none() && !plan.calls().is_empty();
        if !active || lifted || (block.is_deleting() && !plan.is_rest()) {
            self.coverage.remove(key);
        } else if plan.claim().is_some() {
            let at = self.instant();
            self.coverage.asserted(key, at);
        }
        if let Some(status) = settled.status
            && !self.write(key, |block| block.status = Some(status))?
        {
            self.queue.insert(key.to_owned());
            return Ok(());
        }
        if let Some(after) = plan.after(&left_behind)
            && !self.patch(key, &after)?
        {
            self.queue.insert(key.to_owned());
            return Ok(());
        }
        if let Some(wake) = settled.wake {
            self.wakes.insert(
                key.to_owned(),
                self.now + SignedDuration::try_from(wake).unwrap(),
            );
        }
        Ok(())
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

    /// Another try, at once unless the gateway is dead.
    fn retry(&mut self, key: &str, call: &Call) {
        if self.dead.contains(&call.standing.place) {
            self.wakes.insert(key.to_owned(), self.now + RETRY);
        } else {
            self.queue.insert(key.to_owned());
        }
    }

    /// Deletes an object that was kept for long enough.
    fn collect(&mut self, key: &str, block: &IPBlock) -> Result<(), Killed> {
        self.expected.collected(key, block, self.now);
        let now = self.now;
        let done = self.write(key, |block| {
            block.metadata.deletion_timestamp = Some(Time(now));
        })?;
        if !done {
            self.queue.insert(key.to_owned());
        }
        Ok(())
    }

    /// From now on nothing fails that is not dead, and a gateway is configured that is alive.
    pub(super) fn mend(&mut self) {
        self.budget = 0;
        let place = self.place.take();
        let place = place.filter(|place| !self.dead.contains(place));
        self.place = Some(place.unwrap_or_else(|| gateway(GATEWAYS.len() - 1)));
        self.queue.extend(self.objects.keys().cloned());
    }

    /// What is enforced at gateways that answer.
    pub(super) fn alive(&self) -> impl Iterator<Item = (&Place, &BTreeSet<u32>)> {
        let alive = |place: &Place| !self.dead.contains(place);
        self.enforced.iter().filter(move |(place, _)| alive(place))
    }
}
