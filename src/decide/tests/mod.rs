//! The rules, case by case.

mod banning;
mod coverage;
mod endings;
mod gateways;
mod neighbours;
mod originals;
mod policy;
mod rails;
mod requests;
mod steps;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::runbook_tests::explained;
use super::*;
use crate::api::{
    ConditionStatus, EngineStatus, FINALIZER, INTENT, IPBlock, IPBlockSpec, IPBlockStatus, Intent,
    Phase, Place, RELEASE_ANNOTATION, ResultCode, Standing, TRIGGER_ANNOTATION,
};
use crate::guard::{Escalation, Hold, Scope};
use crate::policy::{Allowed, Policy};
use crate::prefix::Prefixes;
use crate::sets::Capabilities;
use crate::target::Target;

const RESYNC: Duration = Duration::from_secs(300);
const DAY: i64 = 24 * 3600;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn here() -> Place {
    Place::new("iptables", "gateway:9521")
}

fn there() -> Place {
    Place::new("iptables", "new-gateway:9521")
}

fn xdp() -> Place {
    Place::new("xdp", "gateway:9521")
}

fn allowed(target: &str) -> Prefixes<Allowed> {
    std::iter::once(target.parse::<Target>().unwrap()).collect()
}

fn standing(target: &str, place: Place) -> Standing {
    Standing {
        target: target.parse().unwrap(),
        place,
    }
}

/// A decision, performed from its begin for each question.
#[derive(Debug)]
struct Plan(Run);

/// What a performed run wrote and reported.
#[derive(Clone, Debug)]
struct Settled {
    status: Option<IPBlockStatus>,
    announcements: Vec<Announcement>,
    /// When the block is decided about again, without another change; of a run that is retried: at the latest.
    wake: Option<Duration>,
    effect: Effect,
    retry: bool,
}

impl Plan {
    /// The steps of the run, in which calls have the outcomes that `answer` gives.
    fn perform(&self, at: Timestamp, answer: impl Fn(&Call) -> Outcome) -> Vec<Step> {
        let (mut run, mut steps) = (self.0.clone(), Vec::new());
        loop {
            let outcome = match run.step() {
                Step::End(_) => break,
                Step::Call(call) => answer(call),
                Step::RecordIntent(_) | Step::WriteStatus(_) | Step::Finish(_) => {
                    Outcome::Object(Arc::clone(run.block()))
                }
                _ => Outcome::Done,
            };
            if let Step::WriteStatus(status) | Step::ShowProgress(status) = run.step() {
                explained(run.block().status.as_ref(), status);
            }
            steps.push(run.step().clone());
            run.advance(Ok::<_, ()>(outcome), at).unwrap();
        }
        steps.push(run.step().clone());
        steps
    }

    /// The steps of the run, in which the calls for `left` fail.
    fn leaving(&self, at: Timestamp, left: &[Standing]) -> Vec<Step> {
        self.perform(at, |call| {
            if left.contains(&call.standing) {
                Outcome::Failed(refused())
            } else {
                Outcome::Done
            }
        })
    }

    fn before(&self) -> Option<&Patch> {
        match self.0.step() {
            Step::RecordIntent(patch) => Some(patch),
            _ => None,
        }
    }

    fn calls(&self) -> &[Call] {
        &self.0.plan.calls
    }

    fn after(&self, left: &[Standing]) -> Option<Patch> {
        let mut steps = self.leaving(now(), left).into_iter();
        steps.find_map(|step| match step {
            Step::Finish(patch) => Some(patch),
            _ => None,
        })
    }

    fn settle(&self, at: Timestamp, left: &[Standing]) -> Settled {
        Settled::of(self.leaving(at, left))
    }

    /// The call fails, and every one after it.
    fn fail(&self, call: &Call, failure: &Failure, at: Timestamp) -> Settled {
        let fails = self.calls().iter().skip_while(|it| *it != call);
        let fails: Vec<&Call> = fails.collect();
        Settled::of(self.perform(at, |call| {
            if fails.contains(&call) {
                Outcome::Failed(failure.clone())
            } else {
                Outcome::Done
            }
        }))
    }

    /// The status while the first call has no answer.
    fn in_progress(&self, at: Timestamp) -> Option<IPBlockStatus> {
        let steps = self.perform(at, |_| Outcome::Slow);
        steps.into_iter().find_map(|step| match step {
            Step::ShowProgress(status) => Some(*status),
            _ => None,
        })
    }

    fn is_rest(&self) -> bool {
        self.0.plan.purpose == plan::Purpose::Rest
    }

    fn collects(&self) -> bool {
        self.0.step() == &Step::Delete
    }

    fn lifts(&self) -> bool {
        self.0.plan.lifts()
    }
}

impl Settled {
    fn of(steps: Vec<Step>) -> Self {
        let mut settled = Self {
            status: None,
            announcements: Vec::new(),
            wake: None,
            effect: Effect::None,
            retry: false,
        };
        for step in steps {
            match step {
                Step::WriteStatus(status) => settled.status = Some(*status),
                Step::Report(report) => {
                    (settled.effect, settled.announcements) = (report.effect, report.announcements);
                }
                Step::End(Wake::After(wake)) => settled.wake = Some(wake),
                Step::End(Wake::Retry { at_latest, .. }) => {
                    (settled.wake, settled.retry) = (at_latest, true);
                }
                _ => {}
            }
        }
        settled
    }
}

/// Everything a case may set.
#[derive(Clone)]
struct Case {
    block: IPBlock,
    policy: Policy,
    place: Option<Place>,
    /// The gateway at which no new ban is made yet.
    unrecorded: Option<Place>,
    followers: Vec<Capabilities>,
    max: Option<Duration>,
    retention: Option<Duration>,
    grace: Duration,
    neighbours: Vec<Neighbour>,
    assert: Assert,
    untouched: Vec<Place>,
    hold: Option<Hold>,
    shadow: Option<&'static str>,
    escalation: Option<Escalation>,
    escalates_active: bool,
    keeps_refused: Option<&'static str>,
    keeps_resolved: Option<&'static str>,
}

impl Case {
    fn new(ip: &str, duration: &str) -> Self {
        let mut block = IPBlock::new(
            "a",
            IPBlockSpec {
                ip: ip.into(),
                duration: (!duration.is_empty()).then(|| duration.into()),
                ..IPBlockSpec::default()
            },
        );
        block.metadata.namespace = Some("default".into());
        block.metadata.generation = Some(1);
        block.metadata.creation_timestamp = Some(Time(now() - seconds(60)));
        Self {
            block,
            policy: Policy::default(),
            place: Some(here()),
            unrecorded: None,
            followers: Vec::new(),
            max: None,
            retention: None,
            grace: Duration::ZERO,
            neighbours: Vec::new(),
            assert: Assert::In(RESYNC),
            untouched: Vec::new(),
            hold: None,
            shadow: None,
            escalation: None,
            escalates_active: false,
            keeps_refused: None,
            keeps_resolved: None,
        }
    }

    fn rails(&self) -> Rails<'_> {
        Rails {
            hold: self.hold.as_ref(),
            shadow: self.shadow,
            escalation: self.escalation.as_ref(),
            escalates_active: self.escalates_active,
            keeps_refused: self.keeps_refused,
            keeps_resolved: self.keeps_resolved,
        }
    }

    /// As the operator left it, `age` seconds after its ban.
    fn active(ip: &str, duration: &str, age: i64) -> Self {
        let mut case = Self::new(ip, duration);
        let plan = case.at(now() - seconds(age));
        case.apply(&plan, now() - seconds(age));
        case
    }

    fn decide(&self) -> Plan {
        self.at(now())
    }

    fn at(&self, at: Timestamp) -> Plan {
        let world = World {
            policy: &self.policy,
            place: self.place.as_ref().ok_or("set engine and gatewayHost"),
            gateway: self.place.as_ref().or(self.unrecorded.as_ref()),
            followers: &self.followers,
            max_duration: self.max,
            retention: self.retention,
            unblock_grace: self.grace,
            neighbours: &self.neighbours,
            assert: self.assert,
            resync: RESYNC,
            untouched: &self.untouched,
            rails: self.rails(),
        };
        Plan(decide(&Arc::new(self.block.clone()), &world, at))
    }

    /// Performs a plan whose steps all succeed.
    fn apply(&mut self, plan: &Plan, at: Timestamp) -> Settled {
        for patch in [plan.before().cloned(), plan.after(&[])]
            .into_iter()
            .flatten()
        {
            let metadata = &mut self.block.metadata;
            match patch.finalizer {
                Some(true) => metadata.finalizers = Some(vec![FINALIZER.into()]),
                Some(false) => metadata.finalizers = None,
                None => {}
            }
            if let Some(intent) = patch.intent {
                let annotations = metadata.annotations.get_or_insert_default();
                match intent {
                    Some(intent) => annotations.insert(INTENT.into(), intent.to_string()),
                    None => annotations.remove(INTENT),
                };
            }
            if patch.clear_unblock {
                self.block.spec.unblock = Some(false);
            }
            if patch.clear_trigger {
                self.block.spec.trigger = Some(false);
            }
        }
        let settled = plan.settle(at, &[]);
        if let Some(status) = &settled.status {
            self.block.status = Some(status.clone());
        }
        settled
    }

    fn status(&self) -> IPBlockStatus {
        self.block.status.clone().unwrap_or_default()
    }

    fn annotate(&mut self, name: &str, value: &str) {
        self.block
            .metadata
            .annotations
            .get_or_insert_default()
            .insert(name.into(), value.into());
    }
}

fn operations(plan: &Plan) -> Vec<(String, Operation)> {
    plan.calls()
        .iter()
        .map(|call| {
            (
                format!(
                    "{} @ {}",
                    call.standing.target, call.standing.place.endpoint
                ),
                call.operation,
            )
        })
        .collect()
}

fn ban(target: &str, left: Option<u64>) -> (String, Operation) {
    (
        format!("{target} @ gateway:9521"),
        Operation::Ban(left.map(Duration::from_secs)),
    )
}

fn unban(target: &str) -> (String, Operation) {
    (format!("{target} @ gateway:9521"), Operation::Unban)
}

fn reasons(settled: &Settled) -> Vec<&'static str> {
    settled
        .announcements
        .iter()
        .map(|said| said.reason)
        .collect()
}

fn settle(plan: &Plan) -> Settled {
    plan.settle(now(), &[])
}

fn phase(settled: &Settled) -> Phase {
    settled
        .status
        .as_ref()
        .expect("a status is written")
        .phase
        .clone()
        .unwrap()
}

/// As the original leaves it: no finalizer, no end, the time of its own zone, an old hash.
fn originals(phase: Phase, age: i64) -> Case {
    let mut case = Case::new("192.0.2.7", "10m");
    let began = now() - seconds(age);
    let zone = jiff::tz::TimeZone::fixed(jiff::tz::offset(8));
    case.block.metadata.creation_timestamp = Some(Time(began));
    case.block.status = Some(IPBlockStatus {
        phase: Some(phase),
        result: Some(ResultCode::Success),
        blocked_at: Some(
            began
                .to_zoned(zone)
                .strftime("%Y-%m-%dT%H:%M:%S%:z")
                .to_string(),
        ),
        last_spec_hash: Some("9f86d081".into()),
        message: Some("limited".into()),
        ..IPBlockStatus::default()
    });
    case
}

fn refused() -> Failure {
    Failure {
        reason: "GatewayRefused".into(),
        message: "connection refused".into(),
        may_have_happened: false,
        ..Failure::default()
    }
}

/// Writes the patch before the first call, and the status of its failure.
fn fail(case: &mut Case, at: Timestamp) {
    let plan = case.at(at);
    if let Some(before) = plan.before().cloned() {
        case.block.metadata.finalizers = Some(vec![FINALIZER.into()]);
        if let Some(Some(intent)) = before.intent {
            case.annotate(INTENT, &intent.to_string());
        }
        if before.clear_trigger {
            case.block.spec.trigger = Some(false);
        }
    }
    let settled = plan.fail(&plan.calls()[0], &refused(), at);
    if let Some(status) = settled.status {
        case.block.status = Some(status);
    }
}

/// Writes the status of a lift that fails at `place`.
fn fail_to_lift(case: &mut Case, place: &Place, at: Timestamp) -> Settled {
    let plan = case.at(at);
    assert!(plan.lifts(), "{plan:?}");
    let mut calls = plan.calls().iter();
    let call = calls.find(|call| call.standing.place == *place).unwrap();
    let settled = plan.fail(call, &refused(), at);
    if let Some(status) = settled.status.clone() {
        case.block.status = Some(status);
    }
    settled
}
