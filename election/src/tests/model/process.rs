//! A process of the simulated world: a machine, its fence, and its requests.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reeve_clock::{Random, scaled};

use crate::Options;
use crate::machine::{Event, Machine, Now};

/// Time for which a write that was given up may still arrive.
const MARGIN: Duration = Duration::from_secs(5);

/// A process, its run, and the number of its request.
pub(super) type Sender = (usize, u64, u64);

/// What reaches a process.
#[derive(Debug)]
pub(super) enum Message {
    Stop,
    /// The answer to a request of the elector.
    Answer(Event),
    /// A write under the lease was answered or given up. Settled: it cannot arrive any more.
    WorkEnded {
        settled: bool,
    },
    Timer,
    /// The writes under the lease may have landed.
    Landing,
    News(Event),
    /// No answer to a watch in time.
    WatchDeadline,
    /// The next write under the lease.
    Work,
    /// Starts again after a loss.
    Restart,
}

/// One process. It can be paused, and killed.
pub(super) struct Process {
    pub(super) identity: String,
    /// Counts the starts. What belongs to an earlier run is lost.
    pub(super) run: u64,
    /// `None` while the process is down.
    pub(super) machine: Option<Machine>,
    pub(super) stops: bool,
    pub(super) paused: bool,
    /// Waits for the end of a pause.
    pub(super) inbox: Vec<(Sender, Message)>,
    /// Own time for each second of true time.
    rate: f64,
    pub(super) wall: Timestamp,
    seed: u64,
    /// The end of the time in which writes may be sent, on the own clock.
    pub(super) fence: Option<Duration>,
    numbers: u64,
    pub(super) request: Option<u64>,
    pub(super) timer: Option<u64>,
    pub(super) watch: Option<u64>,
    pub(super) watch_answered: bool,
    /// Events of the watch that the machine does not await yet.
    pub(super) unread: VecDeque<Event>,
    /// Writes under the lease that are in flight.
    pub(super) writes: Vec<u64>,
    pub(super) given_up: Option<Duration>,
    /// Times of the requests of the elector, within the last ten seconds.
    recent: VecDeque<Duration>,
    /// The moment of the last step, and the steps in it.
    steps: (Duration, u32),
}

// === impl Process ===

impl Process {
    pub(super) fn down(wall: Timestamp, rate: f64, seed: u64) -> Self {
        Self {
            identity: String::new(),
            run: 0,
            machine: None,
            stops: false,
            paused: false,
            inbox: Vec::new(),
            rate,
            wall,
            seed,
            fence: None,
            numbers: 0,
            request: None,
            timer: None,
            watch: None,
            watch_answered: false,
            unread: VecDeque::new(),
            writes: Vec::new(),
            given_up: None,
            recent: VecDeque::new(),
            steps: (Duration::ZERO, 0),
        }
    }

    pub(super) fn start(&mut self, identity: String) {
        self.end();
        self.identity.clone_from(&identity);
        (self.stops, self.paused) = (false, false);
        self.inbox.clear();
        let random = Random::seeded(self.seed.wrapping_add(self.run));
        self.machine = Some(Machine::new(
            Options::new("ns", "lock").identity(identity),
            random,
        ));
    }

    /// The process is gone, and all that it waits for.
    pub(super) fn end(&mut self) {
        self.run += 1;
        (self.machine, self.fence) = (None, None);
        (self.request, self.timer, self.watch) = (None, None, None);
        self.unread.clear();
        self.writes.clear();
        self.given_up = None;
    }

    pub(super) fn close_watch(&mut self) {
        self.watch = None;
        self.unread.clear();
    }

    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// The time of the process: its own clocks at the true time `now`.
    pub(super) fn now(&self, now: Duration) -> Now {
        let boot = scaled(now, self.rate);
        let date = self.wall + SignedDuration::try_from(boot).unwrap();
        Now { boot, date }
    }

    /// The true time, in whole milliseconds, in which `wait` passes on the own clock.
    pub(super) fn true_wait(&self, wait: Duration) -> Duration {
        let millis = (wait.as_secs_f64() / self.rate * 1000.0).ceil();
        Duration::from_secs_f64(millis / 1000.0)
    }

    pub(super) fn is_open(&self, now: Duration) -> bool {
        self.fence.is_some_and(|until| self.now(now).boot < until)
    }

    /// As [`Fence::lands_in`](crate::Fence::lands_in).
    pub(super) fn lands_in(&self, now: Duration) -> Option<Duration> {
        if !self.writes.is_empty() {
            return None;
        }
        let passed = |at| self.now(now).boot.saturating_sub(at);
        let left = self.given_up.map(|at| MARGIN.saturating_sub(passed(at)));
        Some(left.unwrap_or_default())
    }

    /// Counts a request of the elector. Returns how many it sent in the last ten seconds.
    pub(super) fn count_request(&mut self, now: Duration) -> usize {
        self.recent.push_back(now);
        let before = now.saturating_sub(Duration::from_secs(10));
        while self.recent.front().is_some_and(|at| *at < before) {
            self.recent.pop_front();
        }
        self.recent.len()
    }

    /// Counts a step. Returns how many there were at this moment.
    pub(super) fn count_step(&mut self, now: Duration) -> u32 {
        if self.steps.0 != now {
            self.steps = (now, 0);
        }
        self.steps.1 += 1;
        self.steps.1
    }
}

// === impl Message ===

impl Message {
    /// The order in which an elector and its clients handle what is ready at the end of a pause.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Stop => 0,
            Self::Answer(_) => 1,
            Self::Timer | Self::WatchDeadline => 2,
            Self::WorkEnded { .. } | Self::Landing => 3,
            Self::News(_) => 4,
            Self::Work | Self::Restart => 5,
        }
    }
}
