//! Random histories against a small model of API server, gateway and shell.
//!
//! The gateway enforces addresses, not entries: lifting a range opens every address in it, whoever else
//! wants it banned. That is harsher than the real ones, and holds only if what remains is asserted again.
//! Faults are injected at every step: a call may fail before or after it took effect, and the operator may
//! be killed before or after every write.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::Value;
use tokio::time::Instant;

use super::*;
use crate::api::{IPBlockSpec, IPBlockStatus, Place};
use crate::policy::Policy;
use crate::target::Target;

const RESYNC: Duration = Duration::from_secs(300);
const TARGETS: [&str; 6] = [
    "192.0.2.1",
    "192.0.2.2",
    "192.0.2.0/30",
    "192.0.2.0/28",
    "192.0.2.9",
    "192.0.2.8/30",
];

/// One thing that happens.
#[derive(Clone, Debug)]
enum Happening {
    Create {
        block: usize,
        target: usize,
        duration: Option<u64>,
        ours: bool,
    },
    CreateOriginals {
        block: usize,
        target: usize,
        duration: u64,
        age: u64,
    },
    Delete(usize),
    Unblock(usize),
    Trigger(usize),
    TriggerByAnnotation(usize, u8),
    Duration(usize, Option<u64>),
    BreakDuration(usize),
    Relabel(usize),
    Allowlist(Option<usize>),
    Move(usize),
    Unconfigure,
    Pass(u64),
    GatewayForgets,
    Kill,
}

/// What goes wrong at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    FailsBefore,
    FailsAfter,
    KilledBefore,
    KilledAfter,
}

/// The operator was killed.
struct Killed;

struct Simulation {
    start: Timestamp,
    base: Instant,
    now: Timestamp,
    objects: BTreeMap<String, IPBlock>,
    enforced: BTreeMap<Place, BTreeSet<u32>>,
    policy: Policy,
    place: Option<Place>,
    coverage: Coverage,
    queue: BTreeSet<String>,
    wakes: BTreeMap<String, Timestamp>,
    faults: std::vec::IntoIter<Fault>,
    budget: usize,
}

fn addresses(target: &Target) -> BTreeSet<u32> {
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
    fn new(faults: Vec<Fault>) -> Self {
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        Self {
            start,
            base: Instant::now(),
            now: start,
            objects: BTreeMap::new(),
            enforced: BTreeMap::new(),
            policy: Policy::default(),
            place: Some(Place::new("dry-run", "a")),
            coverage: Coverage::default(),
            queue: BTreeSet::new(),
            wakes: BTreeMap::new(),
            budget: 12,
            faults: faults.into_iter(),
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

    fn kill(&mut self) {
        self.coverage.clear();
        self.wakes.clear();
        self.queue = self.objects.keys().cloned().collect();
        for (key, block) in &self.objects {
            let status = block.status.clone().unwrap_or_default();
            if let (true, Some(intent)) = (
                status.is(&Phase::Active),
                block
                    .annotation(crate::api::INTENT)
                    .and_then(|text| text.parse::<Intent>().ok()),
            ) {
                self.coverage.set(key, intent.standing, status.expires_at());
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

    fn reconcile(&mut self, key: &str) -> Result<(), Killed> {
        self.wakes.remove(key);
        let Some(block) = self.objects.get(key).cloned() else {
            if let Some(claim) = self.coverage.claim(key).cloned() {
                let neighbours = self.coverage.neighbours(&claim.standing.target, key);
                let call = lift_orphan(&claim.standing, &neighbours, self.now);
                if self.call(key, &call)? {
                    self.coverage.remove(key);
                } else {
                    self.queue.insert(key.to_owned());
                }
            }
            return Ok(());
        };
        let target: Option<Target> = block.spec.ip.parse().ok();
        let neighbours =
            target.map_or_else(Vec::new, |target| self.coverage.neighbours(&target, key));
        let assert = match self.coverage.claim(key).and_then(|claim| claim.asserted) {
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
            retention: None,
            neighbours: &neighbours,
            assert,
            resync: RESYNC,
        };
        let plan = decide(&block, &world, self.now);
        if let Some(before) = plan.before()
            && !self.patch(key, before)?
        {
            self.queue.insert(key.to_owned());
            return Ok(());
        }
        if let Some((standing, until)) = plan.claim() {
            self.coverage.set(key, standing, until);
        }
        let mut left_behind = Vec::new();
        for call in plan.calls() {
            if self.call(key, call)? {
                continue;
            }
            if !call.required {
                left_behind.push(call.standing.clone());
                continue;
            }
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
            self.queue.insert(key.to_owned());
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
        if !active || block.is_deleting() {
            self.coverage.remove(key);
        }
        if plan.claim().is_some() {
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
    fn settle(&mut self) {
        for _ in 0..2_000 {
            let due: Vec<String> = self
                .wakes
                .iter()
                .filter(|(_, at)| **at <= self.now)
                .map(|(key, _)| key.clone())
                .collect();
            self.queue.extend(due);
            let Some(key) = self.queue.pop_first() else {
                return;
            };
            if self.reconcile(&key).is_err() {
                self.kill();
            }
        }
        panic!("does not come to rest: {:?}", self.queue);
    }

    fn pass(&mut self, seconds: u64) {
        let until = self.now + SignedDuration::from_secs(seconds as i64);
        self.settle();
        while let Some(next) = self.wakes.values().copied().filter(|at| *at <= until).min() {
            self.now = self.now.max(next);
            self.settle();
        }
        self.now = until;
        self.settle();
    }

    fn happen(&mut self, happening: Happening) {
        let key = |block: usize| format!("default/{block}");
        match happening {
            Happening::Create {
                block,
                target,
                duration,
                ours,
            } => {
                let target: Target = TARGETS[target].parse().unwrap();
                let spec = IPBlockSpec {
                    ip: target.to_string(),
                    duration: duration.map(|seconds| format!("{seconds}s")),
                    ..IPBlockSpec::default()
                };
                let place = self.place.clone().filter(|_| ours);
                let object =
                    IPBlock::born(&block.to_string(), "default", &target, place.as_ref(), spec);
                self.create(&key(block), object);
            }
            Happening::CreateOriginals {
                block,
                target,
                duration,
                age,
            } => {
                let (Some(place), false) =
                    (self.place.clone(), self.objects.contains_key(&key(block)))
                else {
                    return;
                };
                let mut object = IPBlock::new(
                    &block.to_string(),
                    IPBlockSpec {
                        ip: TARGETS[target].into(),
                        duration: Some(format!("{duration}s")),
                        ..IPBlockSpec::default()
                    },
                );
                object.metadata.namespace = Some("default".into());
                let began = self.now - SignedDuration::from_secs(age as i64);
                object.status = Some(IPBlockStatus {
                    phase: Some(Phase::Active),
                    blocked_at: Some(
                        began
                            .to_zoned(jiff::tz::TimeZone::fixed(jiff::tz::offset(8)))
                            .strftime("%Y-%m-%dT%H:%M:%S%:z")
                            .to_string(),
                    ),
                    last_spec_hash: Some("0a".into()),
                    ..IPBlockStatus::default()
                });
                let target: Target = TARGETS[target].parse().unwrap();
                self.enforced
                    .entry(place)
                    .or_default()
                    .extend(addresses(&target));
                self.create(&key(block), object);
                // Deleted before it is taken over, it is beyond help; so it is taken over first.
                let faults = std::mem::take(&mut self.faults);
                self.settle();
                self.faults = faults;
            }
            Happening::Delete(block) => {
                let now = self.now;
                self.edit(&key(block), |object| {
                    object.metadata.deletion_timestamp = Some(Time(now));
                });
                let held = self.objects.get(&key(block)).is_some_and(IPBlock::is_held);
                if !held {
                    self.objects.remove(&key(block));
                }
            }
            Happening::Unblock(block) => {
                self.edit(&key(block), |object| object.spec.unblock = Some(true));
            }
            Happening::Trigger(block) => {
                self.edit(&key(block), |object| object.spec.trigger = Some(true));
            }
            Happening::TriggerByAnnotation(block, value) => self.edit(&key(block), |object| {
                object
                    .metadata
                    .annotations
                    .get_or_insert_default()
                    .insert(TRIGGER_ANNOTATION.into(), value.to_string());
            }),
            Happening::Duration(block, duration) => self.edit(&key(block), |object| {
                object.spec.duration = duration.map(|seconds| format!("{seconds}s"));
            }),
            Happening::BreakDuration(block) => {
                self.edit(&key(block), |object| {
                    object.spec.duration = Some("soon".into());
                });
            }
            Happening::Relabel(block) => self.edit(&key(block), |object| {
                object.spec.reason = Some("other".into());
            }),
            Happening::Allowlist(target) => {
                self.policy.allowlist = target
                    .map(|target| TARGETS[target].parse().unwrap())
                    .into_iter()
                    .collect();
                self.queue.extend(self.objects.keys().cloned());
            }
            Happening::Move(place) => {
                self.place = Some(Place::new("dry-run", ["a", "b"][place]));
                self.queue.extend(self.objects.keys().cloned());
            }
            Happening::Unconfigure => {
                self.place = None;
                self.queue.extend(self.objects.keys().cloned());
            }
            Happening::Pass(seconds) => self.pass(seconds),
            Happening::GatewayForgets => self.enforced.clear(),
            Happening::Kill => self.kill(),
        }
        // Not always run to rest: things happen in between.
        if let Some(key) = self.queue.pop_first()
            && self.reconcile(&key).is_err()
        {
            self.kill();
        }
    }

    fn create(&mut self, key: &str, mut object: IPBlock) {
        if self.objects.contains_key(key) {
            return;
        }
        object.metadata.generation = Some(1);
        object.metadata.uid = Some(key.into());
        object.metadata.creation_timestamp = Some(Time(self.now));
        self.objects.insert(key.into(), object);
        self.queue.insert(key.into());
    }

    fn edit(&mut self, key: &str, change: impl FnOnce(&mut IPBlock)) {
        if let Some(object) = self.objects.get_mut(key)
            && !object.is_deleting()
        {
            let spec = object.spec.clone();
            change(object);
            if object.spec != spec {
                object.metadata.generation =
                    object.metadata.generation.map(|generation| generation + 1);
            }
            self.queue.insert(key.into());
        }
    }

    fn check(&self) {
        let mut wanted: BTreeSet<u32> = BTreeSet::new();
        for (key, block) in &self.objects {
            let status = block.status.clone().unwrap_or_default();
            let shown = serde_json::to_string(block).unwrap();
            assert_ne!(
                block.spec.unblock,
                Some(true),
                "{key}: the flag is still set: {shown}"
            );
            if status.is(&Phase::Active) {
                let target: Target = block.spec.ip.parse().unwrap();
                assert!(
                    self.policy.refusal(&target).is_none(),
                    "{key} is allowlisted and banned: {shown}"
                );
                assert!(
                    status.expires_at().is_none_or(|until| until > self.now),
                    "{key} is overdue: {shown}"
                );
                wanted.extend(addresses(&target));
            }
            let late = status
                .condition(condition::READY)
                .is_some_and(|ready| ready.reason == "NotInTime");
            let broken = block.spec.duration.as_deref() == Some("soon");
            assert!(
                !status.is(&Phase::Pending),
                "{key} is pending for ever: {shown}"
            );
            assert!(status.phase.is_some(), "{key} was never looked at: {shown}");
            assert!(
                broken || late || !status.is(&Phase::Failed),
                "{key} failed: {shown}"
            );
            assert!(
                broken || block.spec.trigger != Some(true),
                "{key}: the trigger is still set: {shown}"
            );
            assert!(
                status.observed_generation == block.metadata.generation,
                "{key}: {shown}"
            );
        }
        for (place, enforced) in &self.enforced {
            let expected = if Some(place) == self.place.as_ref() {
                wanted.clone()
            } else {
                BTreeSet::new()
            };
            let show = |set: &BTreeSet<u32>| {
                set.iter()
                    .map(|a| Ipv4Addr::from(*a).to_string())
                    .collect::<Vec<_>>()
            };
            assert_eq!(
                show(enforced),
                show(&expected),
                "at {place}, objects {}",
                serde_json::to_string(&self.objects.values().collect::<Vec<_>>()).unwrap()
            );
        }
        if !wanted.is_empty() {
            let here = self
                .place
                .as_ref()
                .and_then(|place| self.enforced.get(place));
            assert!(
                here.is_some_and(|set| !set.is_empty()),
                "nothing is enforced"
            );
        }
    }
}

fn happening() -> impl Strategy<Value = Happening> {
    let block = 0usize..4;
    let target = 0usize..TARGETS.len();
    let duration = prop_oneof![Just(None), (5u64..400).prop_map(Some)];
    prop_oneof![
        6 => (block.clone(), target.clone(), duration.clone(), any::<bool>())
            .prop_map(|(block, target, duration, ours)| Happening::Create { block, target, duration, ours }),
        1 => (block.clone(), target.clone(), 5u64..400, 0u64..400)
            .prop_map(|(block, target, duration, age)| Happening::CreateOriginals { block, target, duration, age }),
        2 => block.clone().prop_map(Happening::Delete),
        2 => block.clone().prop_map(Happening::Unblock),
        2 => block.clone().prop_map(Happening::Trigger),
        1 => (block.clone(), 0u8..3).prop_map(|(block, value)| Happening::TriggerByAnnotation(block, value)),
        2 => (block.clone(), duration).prop_map(|(block, duration)| Happening::Duration(block, duration)),
        1 => block.clone().prop_map(Happening::BreakDuration),
        1 => block.prop_map(Happening::Relabel),
        1 => proptest::option::of(target).prop_map(Happening::Allowlist),
        1 => (0usize..2).prop_map(Happening::Move),
        1 => Just(Happening::Unconfigure),
        4 => (0u64..90).prop_map(Happening::Pass),
        1 => Just(Happening::GatewayForgets),
        1 => Just(Happening::Kill),
    ]
}

fn faults() -> impl Strategy<Value = Vec<Fault>> {
    proptest::collection::vec(
        prop_oneof![
            6 => Just(Fault::None),
            1 => Just(Fault::FailsBefore),
            1 => Just(Fault::FailsAfter),
            1 => Just(Fault::KilledBefore),
            1 => Just(Fault::KilledAfter),
        ],
        0..60,
    )
}

/// `default` cases, or as many as `PROPTEST_CASES` says.
fn cases(default: u32) -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = default;
    }
    config
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn at_rest_the_gateway_enforces_the_union_of_active_blocks_and_nothing_after_all_are_gone(
        history in proptest::collection::vec(happening(), 1..30),
        faults in faults(),
    ) {
        let mut simulation = Simulation::new(faults);
        for happening in history {
            simulation.happen(happening);
        }
        simulation.budget = 0;
        simulation.place.get_or_insert_with(|| Place::new("dry-run", "a"));
        simulation.queue.extend(simulation.objects.keys().cloned());
        // Twice the interval: what the gateway forgot or an earlier one kept is put right.
        simulation.pass(2 * RESYNC.as_secs() + 10);
        simulation.check();
        for block in 0..4 {
            simulation.happen(Happening::Delete(block));
        }
        simulation.pass(10);
        assert!(simulation.objects.is_empty(), "held for ever: {:?}", simulation.objects.keys());
        for (place, enforced) in &simulation.enforced {
            assert!(enforced.is_empty(), "leaked at {place}: {enforced:?}");
        }
    }
}
