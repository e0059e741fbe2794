//! A decision at work: a machine without I/O, one [`Step`] at a time.
//!
//! A performer repeats two calls until [`Step::End`]: perform [`Run::step`], pass its outcome to [`Run::advance`].
//! `reconcile::act` performs the steps at the API server and the gateways, the simulation in memory.
//!
//! ```text
//! RecordIntent ─ Claim ─ (CheckFence ─ Call ─ Recheck)* ─ Claim ─ WriteStatus ─ Report ─ Finish ─ End
//! ```
//!
//! # Why in this order
//! | rule | what it prevents |
//! |---|---|
//! | finalizer and intent are one patch, written before the first call | a ban that no object records |
//! | the fence is checked before each call | a call of a process that was suspended while another one took over |
//! | the status is written after the calls | a status that claims what the gateway did not answer |
//! | the report follows the status, before the last patch; that of a release follows the patch | an Event that is lost: the next run does not see the transition |
//! | flags and the finalizer are removed last | a request that is forgotten, an object that goes while its ban stands |
//!
//! # When a step does not succeed
//! | step | outcome | what follows |
//! |---|---|---|
//! | any write | an error | the run ends; the next decision reads what was written |
//! | a patch | conflict | the next run decides about the other version |
//! | a status | conflict | a read; the status is written again if no other writer changed it, at most 5 times in all |
//! | any | the object is gone | the run ends; only the finalizer that was to be removed may be gone with it |
//! | a required call | failure | of a ban: the failure is written; of a lift: so it is, after the other calls |
//! | an optional call | failure | the run goes on; the status names what was left behind |
//! | a lift that may have happened | failure | as above, after the blocks that overlap at that gateway are requested |
//! | a call | no answer for a second | the status shows that, whether or not the write succeeds |

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use reeve_workqueue::LOW_PRIORITY;

use crate::api::condition::LIFT_HELD;
use crate::api::{EngineStatus, IPBlock, IPBlockStatus, Phase, Standing};
use crate::target::Target;

use super::coverage::{ClaimChange, Neighbour};
use super::facts::span;
use super::plan::{Call, Effect, Failure, Operation, Patch, Plan, Purpose, Report, holds_lift};

/// How often a status write that conflicts is tried before it is left to the next run.
const STATUS_WRITES: usize = 5;

/// How long an object stays that the operator may not delete, before it is tried again.
const COLLECT_AGAIN: Duration = Duration::from_secs(3600);

/// The priority of lifts: a flood of new blocks delays bans, not lifts.
pub const DUE_FIRST: i32 = 10;

/// What a performer does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Deletes the object in the version of [`Run::block`].
    Delete,
    /// Writes finalizer and intent to the version of [`Run::block`].
    RecordIntent(Patch),
    /// Changes the claim of the block.
    Claim(ClaimChange),
    /// Checks that this process may still act.
    CheckFence,
    /// Calls the engine, and waits for its answer for a second.
    Call(Call),
    /// Waits for the answer to the call that is in flight.
    Await(Call),
    /// Shows in the status that the call in flight takes long.
    ShowProgress(Box<IPBlockStatus>),
    /// Requests every block that overlaps a target that is lifted: the engine may no longer enforce it.
    Recheck(Target),
    /// The same for the blocks at the gateway of a lift that failed and may have happened.
    RecheckAt(Standing),
    /// Writes the status to the version of [`Run::block`].
    WriteStatus(Box<IPBlockStatus>),
    /// Reads the object.
    Read,
    /// Logs, counts and announces what happened.
    Report(Report),
    /// Sets flags back, and removes an intent that is done or the finalizer.
    Finish(Patch),
    /// Nothing is left to do.
    End(Wake),
}

/// The outcome of a step.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It is done.
    Done,
    /// The object as it was written or read.
    Object(Arc<IPBlock>),
    /// The object has another version.
    Conflict,
    /// There is no such object.
    Gone,
    /// The operator lacks the right.
    Forbidden,
    /// The call is in flight for a second.
    Slow,
    /// The call failed.
    Failed(Failure),
    /// The ban is confirmed by these engines.
    Confirmed(Vec<EngineStatus>),
}

/// When the queue hands the block out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// When the object or the configuration changes.
    OnChange,
    /// After this time, behind new blocks: its alarm requests a block whose ban is due.
    After(Duration),
    /// After its back-off.
    Retry {
        /// `None`: that of this run.
        priority: Option<i32>,
        /// The end of the ban, if that may come before the back-off is over.
        at_latest: Option<Duration>,
    },
}

/// One decision at work.
#[derive(Clone, Debug)]
pub struct Run {
    pub(super) plan: Plan,
    block: Arc<IPBlock>,
    step: Step,
    /// The steps after `step`. The last one is `End` once the calls are through.
    next: VecDeque<Step>,
    /// The required call that failed first.
    failed: Option<(Call, Failure)>,
    /// The optional calls that failed.
    left_behind: Vec<Standing>,
    /// Conflicts of the present status write.
    conflicts: usize,
}

// === impl Run ===

impl Run {
    pub(super) fn new(plan: Plan, block: Arc<IPBlock>) -> Self {
        let mut next = VecDeque::new();
        if plan.purpose == Purpose::Collect {
            next.extend([Step::Delete, Step::End(Wake::OnChange)]);
        }
        next.extend(plan.before.clone().map(Step::RecordIntent));
        if let Some((standing, until)) = plan.claim() {
            let fresh = !plan.named.contains(&standing.place);
            let shown = plan.base.target.as_deref();
            let shown = shown.is_none_or(|shown| shown.parse() == Ok(standing.target));
            next.push_back(Step::Claim(ClaimChange::Begin {
                standing,
                until,
                fresh,
                reported: shown && plan.base.shows_ban(),
            }));
        } else if !plan.calls.is_empty() {
            next.push_back(Step::Claim(ClaimChange::Lift));
        }
        for call in &plan.calls {
            next.extend([Step::CheckFence, Step::Call(call.clone())]);
        }
        let now = plan.now;
        let mut run = Self {
            plan,
            block,
            step: Step::End(Wake::OnChange),
            next,
            failed: None,
            left_behind: Vec::new(),
            conflicts: 0,
        };
        run.take_next(now);
        run
    }

    /// Lifts what a block that is gone left behind: another client removed its finalizer, or it never had one.
    #[must_use]
    pub fn orphan(standing: &Standing, neighbours: &[Neighbour], now: Timestamp) -> Self {
        let mut call = Call::lift(standing, neighbours, now);
        call.required = false;
        Self::new(Plan::orphan(call, now), Arc::default())
    }

    /// What a ban that is not made yet will claim; `None`: the run makes no new ban.
    #[must_use]
    pub fn new_ban(&self) -> Option<(Standing, Option<Timestamp>)> {
        let new = matches!(self.plan.purpose, Purpose::Ban { .. });
        self.plan.claim().filter(|_| new)
    }

    /// Whether a new ban waits.
    #[must_use]
    pub fn holds(&self) -> bool {
        matches!(self.plan.purpose, Purpose::Hold { .. })
    }

    /// Whether a ban is lifted before the end that was granted, because its alerts are resolved.
    #[must_use]
    pub fn lifts_resolved(&self) -> bool {
        self.plan.resolved
    }

    /// Whether a brake holds the lift of the ban.
    #[must_use]
    pub fn keeps_for_a_brake(&self) -> bool {
        match &self.plan.purpose {
            Purpose::Keep { problem, .. } => {
                problem.as_ref().is_some_and(|it| holds_lift(it.reason))
            }
            // Nothing is to be written: it is as the status says.
            Purpose::Rest => {
                let status = self.block.status.as_ref();
                status.is_some_and(|status| status.condition(LIFT_HELD).is_some())
            }
            _ => false,
        }
    }

    /// The step to perform now.
    #[must_use]
    pub fn step(&self) -> &Step {
        &self.step
    }

    /// The object as it was last read or written; writes are bound to its version.
    #[must_use]
    pub fn block(&self) -> &Arc<IPBlock> {
        &self.block
    }

    /// Goes on to the next step after `outcome` at `now`.
    ///
    /// # Errors
    /// The error of the step, if the run ends with it.
    pub fn advance<E>(&mut self, outcome: Result<Outcome, E>, now: Timestamp) -> Result<(), E> {
        let outcome = match outcome {
            Ok(Outcome::Object(live)) if self.step == Step::Read && !self.overwrites(&live) => {
                Outcome::Conflict
            }
            Ok(outcome) => outcome,
            // Progress is news only: the status after the call matters.
            Err(_) if self.shows_progress() => Outcome::Gone,
            Err(error) => return Err(error),
        };
        let done = std::mem::replace(&mut self.step, Step::Read);
        match (done, outcome) {
            (Step::Call(call), Outcome::Slow) => {
                let progress = self.plan.in_progress(self.block.metadata.generation, now);
                self.next.push_front(Step::Await(call));
                if let Some(status) = progress {
                    self.next.push_front(Step::ShowProgress(Box::new(status)));
                }
            }
            (Step::Call(call) | Step::Await(call), Outcome::Failed(failure)) => {
                let lifted = call.operation == Operation::Unban && failure.may_have_happened;
                let recheck = lifted.then(|| Step::RecheckAt(call.standing.clone()));
                self.call_failed(call, failure);
                recheck
                    .into_iter()
                    .for_each(|step| self.next.push_front(step));
            }
            (Step::Call(call) | Step::Await(call), Outcome::Confirmed(engines)) => {
                if self
                    .plan
                    .claim()
                    .is_some_and(|(own, _)| own == call.standing)
                {
                    self.plan.engines = engines;
                }
            }
            (Step::Call(call) | Step::Await(call), _) => {
                if call.operation == Operation::Unban {
                    self.next.push_front(Step::Recheck(call.standing.target));
                }
            }
            (write @ (Step::WriteStatus(_) | Step::ShowProgress(_)), Outcome::Conflict)
                if self.conflicts + 1 < STATUS_WRITES =>
            {
                self.conflicts += 1;
                self.next.push_front(write);
                self.next.push_front(Step::Read);
            }
            (Step::Read, Outcome::Conflict | Outcome::Gone)
                if matches!(self.next.front(), Some(Step::ShowProgress(_))) =>
            {
                self.next.pop_front();
                self.conflicts = 0;
            }
            (Step::ShowProgress(_), Outcome::Conflict | Outcome::Gone) => self.conflicts = 0,
            // The object went with its finalizer.
            (Step::Finish(patch), Outcome::Gone) if patch.finalizer == Some(false) => {}
            (Step::Delete, Outcome::Forbidden) => self.end(Wake::After(COLLECT_AGAIN)),
            (Step::End(wake), _) => self.end(wake),
            (_, Outcome::Conflict) => self.end(Wake::Retry {
                priority: None,
                at_latest: None,
            }),
            (_, Outcome::Gone) => self.end(Wake::OnChange),
            (done, Outcome::Object(block)) => {
                self.block = block;
                if done != Step::Read {
                    self.conflicts = 0;
                }
            }
            (
                _,
                Outcome::Done
                | Outcome::Forbidden
                | Outcome::Slow
                | Outcome::Failed(_)
                | Outcome::Confirmed(_),
            ) => {}
        }
        self.take_next(now);
        Ok(())
    }

    fn take_next(&mut self, now: Timestamp) {
        if self.next.is_empty() {
            self.conclude(now);
        }
        if let Some(next) = self.next.pop_front() {
            self.step = next;
        }
    }

    fn end(&mut self, wake: Wake) {
        self.next = VecDeque::from([Step::End(wake)]);
    }

    fn call_failed(&mut self, call: Call, failure: Failure) {
        if !call.required {
            self.left_behind.push(call.standing);
            return;
        }
        self.failed.get_or_insert((call, failure));
        if !self.plan.lifts() {
            self.next.clear();
        }
    }

    /// The steps after the last call.
    fn conclude(&mut self, now: Timestamp) {
        let generation = self.block.metadata.generation;
        if self.plan.purpose == Purpose::Orphan && !self.left_behind.is_empty() {
            return self.end(Wake::Retry {
                priority: None,
                at_latest: None,
            });
        }
        let failed = self.failed.take();
        let settled = match &failed {
            Some((call, failure)) => self.plan.fail(call, failure, generation, now),
            None => self.plan.settle(now, generation, &self.left_behind),
        };
        let (claim, finish) = match failed {
            Some(_) => (None, None),
            None => (
                self.claim_after(settled.status.as_ref()),
                self.plan.after(&self.left_behind).map(Step::Finish),
            ),
        };
        let effect = settled.report.effect;
        let shown = settled.status.as_ref().or(self.block.status.as_ref());
        let ends = shown.and_then(IPBlockStatus::expires_at);
        let wake = match (failed.is_some(), settled.wake) {
            (false, Some(wake)) => Wake::After(wake),
            (false, None) => Wake::OnChange,
            (true, _) => Wake::Retry {
                priority: Some(match effect {
                    // Nothing was due: it may have stood, and waits for a cap.
                    Effect::LiftFailed if self.holds() => LOW_PRIORITY,
                    Effect::LiftFailed => DUE_FIRST,
                    Effect::KeepFailed => LOW_PRIORITY,
                    _ => 0,
                }),
                // A due ban must not be lifted late because of a call that no longer matters.
                at_latest: ends
                    .map(|until| span(now, until))
                    .filter(|left| effect == Effect::KeepFailed && !left.is_zero()),
            },
        };
        let report = settled.report.some().map(Step::Report);
        self.next.extend(claim.map(Step::Claim));
        // The status is the transition: the next run does not see it again, whatever comes of the patch. Of a release
        // it is the patch that removes the finalizer.
        let by_status =
            settled.status.is_some() && !matches!(self.plan.purpose, Purpose::Release { .. });
        let write = |status| Step::WriteStatus(Box::new(status));
        self.next.extend(settled.status.map(write));
        if by_status {
            self.next.extend(report.into_iter().chain(finish));
        } else {
            self.next.extend(finish.into_iter().chain(report));
        }
        self.next.push_back(Step::End(wake));
    }

    /// The claim after calls that succeeded, given the status that is about to be written.
    fn claim_after(&self, status: Option<&IPBlockStatus>) -> Option<ClaimChange> {
        let status = status.or(self.block.status.as_ref());
        let active = status.is_some_and(|status| status.is(&Phase::Active));
        let claim = self.plan.claim();
        // A status that stays active although the calls lifted waits for a gateway that is not configured.
        let lifted = claim.is_none() && !self.plan.calls.is_empty();
        let leaves = self.block.is_deleting() && self.plan.purpose != Purpose::Rest;
        if !active || lifted || leaves {
            return Some(ClaimChange::Remove);
        }
        // The end is known exactly only now.
        let until = status.and_then(IPBlockStatus::expires_at);
        claim.map(|(standing, _)| ClaimChange::Confirm { standing, until })
    }

    /// Whether `step` only shows progress, or reads for a step that does.
    fn shows_progress(&self) -> bool {
        let step = match &self.step {
            Step::Read => self.next.front(),
            step => Some(step),
        };
        matches!(step, Some(Step::ShowProgress(_)))
    }

    /// Whether the status may be written to `live`: no other writer changed it, and an end that was moved counts.
    fn overwrites(&self, live: &IPBlock) -> bool {
        let (present, live_status) = (&self.block.status, &live.status);
        live.metadata.uid == self.block.metadata.uid
            && live_status.clone().unwrap_or_default() == present.clone().unwrap_or_default()
            && (!self.plan.ends() || live.metadata.generation == self.block.metadata.generation)
    }
}
