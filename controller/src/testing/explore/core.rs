//! What the parts of one run share: the faults that are left, the counts of points, and the trace.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::SignedDuration;
use parking_lot::Mutex;
use reeve_clock::Clock;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::plan::{Counts, Fault, Plan, Point};
use super::trace::{Entry, Happened, Trace};
use crate::metrics::Metrics;

/// The process of the scenario itself.
pub(super) const SCENARIO: usize = 0;
/// The most effects of processes from one rest to the next. A program that causes itself passes no virtual time, so the limit of
/// time does not end it.
pub(super) const MOST_EFFECTS: usize = 2_000;

/// By how much a fault sets the wall clock.
const JUMP: SignedDuration = SignedDuration::from_hours(1);

/// Shared by all taps of one run.
#[derive(Clone, Debug)]
pub(super) struct Core(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    started: Instant,
    clock: Clock,
    state: Mutex<State>,
    /// Notified when something that requests or events wait for ends.
    released: Notify,
    /// Notified when a process dies.
    died: Notify,
}

#[derive(Debug, Default)]
struct State {
    faults: Vec<Fault>,
    counts: Counts,
    trace: Trace,
    /// Effects, events and starts so far.
    activity: u64,
    /// Effects of processes since the last rest.
    effects: usize,
    processes: BTreeMap<usize, Life>,
    collections: BTreeSet<String>,
    deletions: HashMap<Point, Value>,
    /// By how much the wall clock is wrong.
    jumped: SignedDuration,
    /// Deletions without a precondition.
    unguarded: BTreeSet<String>,
    /// The requests on their way, and how many rests from now on they arrive.
    late: HashMap<Point, u8>,
    /// Of the latest event of each process and object.
    versions: HashMap<(usize, Point), u64>,
    /// Of the latest event of each process.
    latest: HashMap<usize, u64>,
    /// Effects that have begun and are not done.
    in_flight: usize,
    /// Effects before which a crash is one after the effect before.
    follow: BTreeSet<Point>,
    /// The metrics of the managers.
    metrics: Vec<Metrics>,
}

#[derive(Debug, Default)]
struct Life {
    incarnation: u32,
    dead: bool,
    /// How many rests from now on it stands still, with a request on its way.
    still: u8,
    /// It reads the past, as of this version.
    frozen: Option<u64>,
    /// The resources whose events are held, and how many rests from now on end that.
    held: BTreeMap<String, u8>,
}

/// What becomes of an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Passes,
    CrashBefore,
    CrashAfter,
    Lost,
    Refused,
    /// Until this many rests from now on.
    Late(u8),
    /// Too much has happened in this run: it never ends.
    Stuck,
    /// The process dies after it, and reads as of this version from then on.
    Stale(u64),
}

/// One incarnation of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Incarnation {
    pub(super) process: usize,
    pub(super) number: u32,
}

// === impl Core ===

impl Core {
    pub(super) fn new(plan: &Plan, clock: Clock) -> Self {
        let state = State {
            faults: plan.0.clone(),
            ..State::default()
        };
        Self(Arc::new(Shared {
            started: Instant::now(),
            clock,
            state: Mutex::new(state),
            released: Notify::new(),
            died: Notify::new(),
        }))
    }

    /// Begins another incarnation of a process.
    pub(super) fn start(&self, process: usize) -> Incarnation {
        let mut state = self.0.state.lock();
        let life = state.processes.entry(process).or_default();
        life.incarnation += 1;
        life.dead = false;
        life.still = 0;
        life.held.clear();
        let number = life.incarnation;
        state.note(self.0.started, process, Happened::Started(number));
        Incarnation { process, number }
    }

    /// The process ended by itself, or was killed at rest.
    pub(super) fn end(&self, process: usize) {
        self.0.state.lock().die(self.0.started, process);
        self.0.died.notify_one();
    }

    /// Waits until a process dies, or has died since the last wait.
    pub(super) async fn death(&self) {
        self.0.died.notified().await;
    }

    /// Waits without end if the incarnation is dead, and while its process stands still.
    pub(super) async fn alive(&self, incarnation: Incarnation) {
        loop {
            let released = self.0.released.notified();
            {
                let state = self.0.state.lock();
                match state.processes.get(&incarnation.process) {
                    Some(life) if life.dead || life.incarnation != incarnation.number => {}
                    Some(life) if life.still > 0 => {}
                    _ => return,
                }
            }
            released.await;
        }
    }

    /// The processes that are dead.
    pub(super) fn dead(&self) -> Vec<usize> {
        let state = self.0.state.lock();
        let dead = state.processes.iter().filter(|(_, life)| life.dead);
        dead.map(|(process, _)| *process).collect()
    }

    /// Counts an effect, and looks up what becomes of it.
    pub(super) fn effect(&self, process: usize, what: &str) -> (Point, Fate) {
        let mut state = self.0.state.lock();
        let point = state.counts.next(process, what);
        state.activity += 1;
        let now = self.0.started.elapsed();
        if state.in_flight == 0 && state.trace.ends_with_effect(process, now) {
            state.follow.insert(point.clone());
        }
        state.in_flight += 1;
        if process == SCENARIO {
            return (point, Fate::Passes);
        }
        state.effects += 1;
        if state.effects > MOST_EFFECTS {
            return (point, Fate::Stuck);
        }
        let mut faults = state.faults.iter();
        let found = faults.position(|fault| {
            let known = match fault {
                // An event that was not seen is a point that is not reached.
                Fault::Stale { before, .. } => {
                    state.versions.contains_key(&(process, before.clone()))
                }
                Fault::Behind(_) => state.latest.contains_key(&process),
                _ => true,
            };
            known && !fault.is_of_event() && *fault.at() == point
        });
        let fault = found.map(|found| state.faults.remove(found));
        let fate = match &fault {
            None | Some(Fault::Hold(_) | Fault::HoldOn(_)) => Fate::Passes,
            Some(Fault::Ahead(_)) => {
                self.0.clock.jump(JUMP);
                state.jumped += JUMP;
                Fate::Passes
            }
            Some(Fault::Back(_)) => {
                self.0.clock.jump(-JUMP);
                state.jumped -= JUMP;
                Fate::Passes
            }
            Some(Fault::CrashBefore(_)) => Fate::CrashBefore,
            Some(Fault::CrashAfter(_)) => Fate::CrashAfter,
            Some(Fault::Lose(_)) => Fate::Lost,
            Some(Fault::Refuse(_)) => Fate::Refused,
            Some(Fault::Late(_)) => Fate::Late(1),
            Some(Fault::LateOn(_)) => Fate::Late(2),
            Some(Fault::Stale { before, .. }) => {
                let version = state.versions.get(&(process, before.clone()));
                let version = version.copied().unwrap_or_default();
                Fate::Stale(version.saturating_sub(1))
            }
            Some(Fault::Behind(_)) => {
                Fate::Stale(state.latest.get(&process).copied().unwrap_or_default())
            }
        };
        if let Some(fault) = fault {
            state.note(self.0.started, process, Happened::Fault(fault));
        }
        (point, fate)
    }

    /// A process deletes this object, or tries to.
    pub(super) fn deletes(&self, point: &Point, object: Value) {
        let mut state = self.0.state.lock();
        state.deletions.insert(point.clone(), object);
    }

    /// A process deletes by name alone.
    pub(super) fn is_unguarded(&self, what: &str) {
        self.0.state.lock().unguarded.insert(what.to_owned());
    }

    /// The deletions by name alone.
    pub(super) fn unguarded(&self) -> BTreeSet<String> {
        self.0.state.lock().unguarded.clone()
    }

    /// What deletions found.
    pub(super) fn deletions(&self) -> HashMap<Point, Value> {
        self.0.state.lock().deletions.clone()
    }

    /// The outcome of an effect.
    pub(super) fn done(&self, point: Point, outcome: String) {
        let mut state = self.0.state.lock();
        let process = point.process;
        state.in_flight = state.in_flight.saturating_sub(1);
        state.note(self.0.started, process, Happened::Effect { point, outcome });
    }

    /// The resource of an effect, whose objects belong to the state at the end.
    pub(super) fn touches(&self, collection: &str) {
        let mut state = self.0.state.lock();
        if !state.collections.contains(collection) {
            state.collections.insert(collection.to_owned());
        }
    }

    pub(super) fn collections(&self) -> BTreeSet<String> {
        self.0.state.lock().collections.clone()
    }

    /// Kills the process; with a version it reads as of that when it starts again.
    pub(super) fn crash(&self, process: usize, frozen: Option<u64>) {
        let mut state = self.0.state.lock();
        state.die(self.0.started, process);
        if let Some(life) = state.processes.get_mut(&process) {
            life.frozen = frozen;
        }
        drop(state);
        self.0.died.notify_one();
    }

    /// The version as of which the process reads.
    pub(super) fn frozen(&self, process: usize) -> Option<u64> {
        self.0.state.lock().processes.get(&process)?.frozen
    }

    /// The process stands still for this many rests.
    pub(super) async fn stand_still(&self, process: usize, rests: u8) {
        if let Some(life) = self.0.state.lock().processes.get_mut(&process) {
            life.still = rests;
        }
        loop {
            let released = self.0.released.notified();
            let still = {
                let state = self.0.state.lock();
                let life = state.processes.get(&process);
                life.is_some_and(|life| life.still > 0)
            };
            if !still {
                return;
            }
            released.await;
        }
    }

    /// The process stands still from now on, and a request is on its way for this many rests. The request arrives though
    /// the process ends.
    pub(super) fn delay(&self, point: &Point, rests: u8) {
        let mut state = self.0.state.lock();
        state.late.insert(point.clone(), rests);
        if let Some(life) = state.processes.get_mut(&point.process) {
            life.still = rests;
        }
    }

    /// Waits until the request arrives.
    pub(super) async fn arrives(&self, point: &Point) {
        loop {
            let released = self.0.released.notified();
            if !self.0.state.lock().late.contains_key(point) {
                return;
            }
            released.await;
        }
    }

    /// An event arrives at a watch of `resource`. Waits while events of the resource are held.
    pub(super) async fn event(
        &self,
        incarnation: Incarnation,
        resource: &str,
        what: &str,
        version: u64,
    ) {
        {
            let mut state = self.0.state.lock();
            let point = state.counts.next(incarnation.process, what);
            let mut faults = state.faults.iter();
            let found = faults.position(|fault| fault.is_of_event() && *fault.at() == point);
            if let Some(found) = found {
                let fault = state.faults.remove(found);
                let rests = if matches!(fault, Fault::HoldOn(_)) {
                    2
                } else {
                    1
                };
                if let Some(life) = state.processes.get_mut(&incarnation.process) {
                    life.held.insert(resource.to_owned(), rests);
                }
                state.note(self.0.started, incarnation.process, Happened::Fault(fault));
            }
            state
                .versions
                .insert((incarnation.process, point.clone()), version);
            let latest = state.latest.entry(incarnation.process).or_default();
            *latest = version.max(*latest);
        }
        self.deliverable(incarnation, resource).await;
        let mut state = self.0.state.lock();
        state.activity += 1;
        state.note(
            self.0.started,
            incarnation.process,
            Happened::Seen(what.to_owned()),
        );
    }

    /// Waits while events of `resource` are held, and without end if the incarnation is dead.
    pub(super) async fn deliverable(&self, incarnation: Incarnation, resource: &str) {
        loop {
            self.alive(incarnation).await;
            let released = self.0.released.notified();
            {
                let state = self.0.state.lock();
                let life = state.processes.get(&incarnation.process);
                let waits = life.is_some_and(|life| {
                    life.frozen.is_some() || life.still > 0 || life.held.contains_key(resource)
                });
                if !waits {
                    return;
                }
            }
            released.await;
        }
    }

    /// Nothing happens any more: ends what lasts until then. Whether something ended. With `all`, everything ends.
    pub(super) fn rest(&self, all: bool) -> bool {
        let mut ended = false;
        {
            let mut state = self.0.state.lock();
            state.late.retain(|_, rests| {
                *rests = if all { 0 } else { rests.saturating_sub(1) };
                ended |= *rests == 0;
                *rests > 0
            });
            let jumped = std::mem::take(&mut state.jumped);
            if !jumped.is_zero() {
                self.0.clock.jump(-jumped);
                ended = true;
            }
            for life in state.processes.values_mut() {
                if life.still > 0 {
                    life.still = if all { 0 } else { life.still - 1 };
                    ended |= life.still == 0;
                }
                if !life.dead {
                    ended |= life.frozen.take().is_some();
                }
                life.held.retain(|_, rests| {
                    *rests = if all { 0 } else { rests.saturating_sub(1) };
                    ended |= *rests == 0;
                    *rests > 0
                });
            }
            if ended {
                state.note(self.0.started, SCENARIO, Happened::Released);
            }
        }
        if ended {
            self.0.released.notify_waiters();
        }
        ended
    }

    /// The effects that begin when nothing else happened since the effect before: a crash before one of these is a crash after
    /// that.
    pub(super) fn follow(&self) -> BTreeSet<Point> {
        self.0.state.lock().follow.clone()
    }

    /// Counts the panics of reconciles of a manager, too.
    pub(super) fn count_panics(&self, metrics: &Metrics) {
        self.0.state.lock().metrics.push(metrics.clone());
    }

    /// The reconciles that panicked.
    pub(super) fn reconcile_panics(&self) -> u64 {
        let state = self.0.state.lock();
        state.metrics.iter().map(Metrics::reconcile_panics).sum()
    }

    /// The faults of the plan whose points were not reached.
    pub(super) fn unreached(&self) -> Vec<Fault> {
        self.0.state.lock().faults.clone()
    }

    pub(super) fn activity(&self) -> u64 {
        self.0.state.lock().activity
    }

    /// Whether there were too many effects since the last rest.
    pub(super) fn is_stuck(&self) -> bool {
        self.0.state.lock().effects > MOST_EFFECTS
    }

    pub(super) fn rested(&self) {
        let mut state = self.0.state.lock();
        if state.effects <= MOST_EFFECTS {
            state.effects = 0;
        }
        state.note(self.0.started, SCENARIO, Happened::Rest);
    }

    pub(super) fn step(&self, text: &str) {
        let step = Happened::Step(text.to_owned());
        self.0.state.lock().note(self.0.started, SCENARIO, step);
    }

    pub(super) fn trace(&self) -> Trace {
        self.0.state.lock().trace.clone()
    }
}

// === impl State ===

impl State {
    fn note(&mut self, started: Instant, process: usize, happened: Happened) {
        let entry = Entry {
            at: started.elapsed(),
            process,
            happened,
        };
        self.trace.push(entry);
    }

    fn die(&mut self, started: Instant, process: usize) {
        if let Some(life) = self.processes.get_mut(&process)
            && !life.dead
        {
            life.dead = true;
            life.frozen = None;
            self.activity += 1;
            self.note(started, process, Happened::Killed);
        }
    }
}
