//! The simulated world: processes, their networks and one server, on one queue of occurrences.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reeve_clock::Random;

use super::faults::{CALM, CANDIDATES, Change, TROUBLE, identity};
use super::network::{Link, failed};
use super::process::{Message, Process, Sender};
use super::server::Server;
use crate::machine::{Action, Event, FailureKind, Machine, Role};

/// Deadline of a request of an elector.
const DEADLINE: Duration = Duration::from_secs(5);
/// Deadline of a write under the lease.
const WORK_DEADLINE: Duration = Duration::from_secs(1);
/// Time between two writes of a process.
const WORK_EVERY: Duration = Duration::from_millis(95);
/// Time until a process that lost the lease starts again.
const RESTART: Duration = Duration::from_secs(1);
/// Limit of a release.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of steps of one machine at one moment.
const MOST_STEPS: u32 = 30;
/// Maximum number of requests of one elector in ten seconds. A leader writes five times in ten seconds and may have to
/// read and write again each time; a standby reads and tries as often, and opens watches.
const MOST_REQUESTS: usize = 40;

/// What happens at one moment.
#[derive(Debug)]
pub(super) enum Occurrence {
    Change(usize, Change),
    /// A request of an elector reaches the server.
    RequestArrives(Sender, Action),
    /// A watch of an elector reaches the server.
    WatchArrives(Sender),
    /// A write under the lease of this identity reaches the server.
    WorkArrives(Sender, String),
    /// Something reaches a process, unless it is paused.
    Reaches(Sender, Message),
}

/// The settings of one history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// Whether writes check the fence; off to show that the audit finds violations.
    pub(super) gated: bool,
    /// Own time of each process for each second of true time.
    pub(super) rates: [f64; CANDIDATES],
    /// The seed of the jitter and of the network.
    pub(super) seed: u64,
}

pub(super) struct World {
    pub(super) now: Duration,
    queue: BTreeMap<(Duration, u64), Occurrence>,
    queued: u64,
    pub(super) server: Server,
    pub(super) links: [Link; CANDIDATES],
    pub(super) processes: Vec<Process>,
    /// Decides which messages are slow.
    pub(super) random: Random,
    gated: bool,
    /// The writes under the lease that were accepted, and their writers.
    pub(super) accepted: Vec<(Duration, String)>,
    pub(super) found: Vec<String>,
}

/// Plays `changes`, then a calm time, and returns the violations.
pub(super) fn play(changes: Vec<(Duration, usize, Change)>, setting: Setting) -> Vec<String> {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let process = |candidate: usize| {
        let skew = SignedDuration::from_mins(i64::try_from(candidate).unwrap() * 7 - 7);
        let seed = setting.seed.wrapping_add(candidate as u64 * 1000);
        Process::down(start + skew, setting.rates[candidate], seed)
    };
    let mut world = World {
        now: Duration::ZERO,
        queue: BTreeMap::new(),
        queued: 0,
        server: Server::default(),
        links: Default::default(),
        processes: (0..CANDIDATES).map(process).collect(),
        random: Random::seeded(setting.seed),
        gated: setting.gated,
        accepted: Vec::new(),
        found: Vec::new(),
    };
    for candidate in 0..CANDIDATES {
        world.start(candidate, identity(candidate, 0));
    }
    for (at, candidate, change) in changes {
        world.queue(at, Occurrence::Change(candidate, change));
    }
    world.run();
    world.found
}

// === impl World ===

impl World {
    fn run(&mut self) {
        while let Some(((at, _), occurrence)) = self.queue.pop_first() {
            if at > TROUBLE + CALM || self.found.len() > 20 {
                break;
            }
            self.now = at;
            match occurrence {
                Occurrence::Change(candidate, change) => self.change(candidate, change),
                Occurrence::RequestArrives(from, request) => self.request_arrives(from, request),
                Occurrence::WatchArrives(from) => self.watch_arrives(from),
                Occurrence::WorkArrives(from, identity) => self.work_arrives(from, identity),
                Occurrence::Reaches(to, message) => self.reaches(to, message),
            }
        }
        let recent = (TROUBLE + CALM).saturating_sub(Duration::from_secs(5));
        let holder = self.server.holder().unwrap_or_default();
        let writers = self.accepted.iter().filter(|(at, _)| *at > recent);
        let writers: Vec<&String> = writers.map(|(_, writer)| writer).collect();
        if writers.is_empty() || writers.iter().any(|writer| **writer != holder) {
            let text = format!("in the end {holder:?} leads and {writers:?} write");
            self.found.push(text);
        }
    }

    pub(super) fn queue(&mut self, at: Duration, occurrence: Occurrence) {
        self.queued += 1;
        self.queue.insert((at, self.queued), occurrence);
    }

    pub(super) fn send(&mut self, after: Duration, to: Sender, message: Message) {
        self.queue(self.now + after, Occurrence::Reaches(to, message));
    }

    fn change(&mut self, candidate: usize, change: Change) {
        let (link, process) = (&mut self.links[candidate], &mut self.processes[candidate]);
        match change {
            Change::Cut { until } => link.cut_until = until,
            Change::Slow { delay, until } => link.slow = (delay, until),
            Change::Refuse { code, until } => link.refuse = (code, until),
            Change::Deaf { until } => {
                link.deaf_until = until;
                // The connection of the watch breaks, too.
                let reset = Event::WatchEnded(Some("connection reset".to_owned()));
                let to = (candidate, process.run, process.watch.unwrap_or_default());
                self.send(Duration::ZERO, to, Message::News(reset));
            }
            Change::Pause => process.paused = true,
            Change::Resume => self.resume(candidate),
            Change::Jump { seconds } => process.wall += SignedDuration::from_secs(seconds),
            Change::Crash => process.end(),
            Change::Stop => {
                process.stops = true;
                let to = (candidate, process.run, 0);
                self.reaches(to, Message::Stop);
            }
            Change::Start { identity } => self.start(candidate, identity),
            Change::Blind => drop(self.server.blind(true)),
            Change::See => {
                for event in self.server.blind(false) {
                    self.show(event);
                }
            }
        }
    }

    fn start(&mut self, candidate: usize, identity: String) {
        let process = &mut self.processes[candidate];
        process.start(identity);
        let to = (candidate, process.run, 0);
        self.send(WORK_EVERY, to, Message::Work);
        self.step(candidate, Event::Contend);
    }

    fn resume(&mut self, candidate: usize) {
        let process = &mut self.processes[candidate];
        process.paused = false;
        let mut inbox = std::mem::take(&mut process.inbox);
        inbox.sort_by_key(|(_, message)| message.rank());
        for (to, message) in inbox {
            self.reaches(to, message);
        }
    }
}

// === What reaches a process ===

impl World {
    fn reaches(&mut self, to: Sender, message: Message) {
        let (candidate, run, number) = to;
        let cut = self.now < self.links[candidate].cut_until;
        let process = &mut self.processes[candidate];
        if process.run != run || (cut && matches!(message, Message::News(_))) {
            return;
        }
        if process.paused {
            process.inbox.push((to, message));
            return;
        }
        let now = process.now(self.now).boot;
        match message {
            Message::Stop => {
                process.fence = None;
                let (limit, lands_in) = (RELEASE_LIMIT, process.lands_in(self.now));
                self.step(candidate, Event::Stop { limit, lands_in });
            }
            Message::Answer(event) => {
                let awaited = process.request.take_if(|awaited| *awaited == number);
                if awaited.is_some() {
                    self.step(candidate, event);
                }
            }
            Message::Timer if process.timer == Some(number) => {
                let due = process.machine.as_ref().and_then(Machine::wake_at);
                match due {
                    Some(at) if at <= now => self.step(candidate, Event::Timer),
                    _ => self.set_timer(candidate),
                }
            }
            Message::WorkEnded { settled } => {
                let in_flight = process.writes.len();
                process.writes.retain(|write| *write != number);
                if process.writes.len() < in_flight && !settled {
                    process.given_up = Some(now);
                }
                self.check_landing(candidate);
            }
            Message::Landing => self.check_landing(candidate),
            Message::News(event) if process.watch == Some(number) => {
                process.unread.push_back(event);
                self.read_news(candidate);
            }
            Message::WatchDeadline if process.watch == Some(number) && !process.watch_answered => {
                let ended = Event::WatchEnded(Some("no answer".to_owned()));
                process.unread.push_back(ended);
                self.read_news(candidate);
            }
            Message::Work => self.work(candidate),
            Message::Restart if !process.stops => {
                let identity = process.identity.clone();
                self.start(candidate, identity);
            }
            Message::Timer | Message::News(_) | Message::WatchDeadline | Message::Restart => {}
        }
    }

    fn step(&mut self, candidate: usize, event: Event) {
        let process = &mut self.processes[candidate];
        let now = process.now(self.now);
        let Some(machine) = &mut process.machine else {
            return;
        };
        let actions = machine.step(event, now);
        if process.count_step(self.now) > MOST_STEPS {
            self.found.push(format!("{candidate} spins"));
            process.end();
            return;
        }
        for action in actions {
            self.perform(candidate, action);
        }
        let process = &mut self.processes[candidate];
        match process.machine.as_ref().map(Machine::role) {
            Some(Role::Lost(_)) => {
                process.end();
                let to = (candidate, process.run, 0);
                self.send(RESTART, to, Message::Restart);
            }
            Some(Role::Idle) => process.end(),
            _ => {
                self.set_timer(candidate);
                self.check_landing(candidate);
                self.read_news(candidate);
            }
        }
    }

    fn perform(&mut self, candidate: usize, action: Action) {
        let delay = self.delay(candidate);
        let process = &mut self.processes[candidate];
        match action {
            Action::Read | Action::Create(_) | Action::Update(_) => {
                let number = process.number();
                let requests = process.count_request(self.now);
                if process.request.replace(number).is_some() {
                    self.found.push(format!("two requests of {candidate}"));
                }
                if requests > MOST_REQUESTS {
                    let text = format!("{requests} requests of {candidate} in ten seconds");
                    self.found.push(text);
                }
                let to = (candidate, process.run, number);
                let late = failed(&action, FailureKind::Ambiguous);
                self.send(DEADLINE, to, Message::Answer(late));
                self.queue(self.now + delay, Occurrence::RequestArrives(to, action));
            }
            Action::OpenWatch => {
                let number = process.number();
                process.count_request(self.now);
                if process.watch.replace(number).is_some() {
                    self.found.push(format!("two watches of {candidate}"));
                }
                process.watch_answered = false;
                let to = (candidate, process.run, number);
                self.send(DEADLINE, to, Message::WatchDeadline);
                self.queue(self.now + delay, Occurrence::WatchArrives(to));
            }
            Action::CloseWatch => process.close_watch(),
            Action::Abandon => {
                process.request = None;
                process.close_watch();
            }
            Action::RenewFence { sent_at } => {
                process.fence = Some(sent_at + Duration::from_secs(10));
            }
            Action::CloseFence => process.fence = None,
            Action::Report(_) => {}
        }
    }

    fn set_timer(&mut self, candidate: usize) {
        let process = &mut self.processes[candidate];
        let Some(at) = process.machine.as_ref().and_then(Machine::wake_at) else {
            return;
        };
        let wait = at.saturating_sub(process.now(self.now).boot);
        let wait = process.true_wait(wait);
        let number = process.number();
        process.timer = Some(number);
        let to = (candidate, process.run, number);
        self.send(wait, to, Message::Timer);
    }

    /// Hands the machine the next event of its watch.
    fn read_news(&mut self, candidate: usize) {
        let process = &mut self.processes[candidate];
        if process.machine.as_ref().is_some_and(Machine::awaits_news)
            && let Some(event) = process.unread.pop_front()
        {
            if let Event::WatchEnded(_) = event {
                process.close_watch();
            }
            self.step(candidate, event);
        }
    }

    fn check_landing(&mut self, candidate: usize) {
        let process = &mut self.processes[candidate];
        if !process
            .machine
            .as_ref()
            .is_some_and(Machine::awaits_landing)
        {
            return;
        }
        match process.lands_in(self.now) {
            Some(Duration::ZERO) => self.step(candidate, Event::Landed),
            Some(left) => {
                let (wait, to) = (process.true_wait(left), (candidate, process.run, 0));
                self.send(wait, to, Message::Landing);
            }
            None => {}
        }
    }

    /// Writes without a check for leadership: only the fence holds the write back.
    fn work(&mut self, candidate: usize) {
        let process = &mut self.processes[candidate];
        if process.stops || process.machine.is_none() {
            return;
        }
        let (run, open) = (process.run, process.is_open(self.now));
        self.send(WORK_EVERY, (candidate, run, 0), Message::Work);
        if self.gated && !open {
            return;
        }
        for (other, process) in self.processes.iter().enumerate() {
            if other != candidate && process.is_open(self.now) {
                let text = format!("{candidate} writes while the fence of {other} is open");
                self.found.push(text);
            }
        }
        let process = &mut self.processes[candidate];
        let number = process.number();
        process.writes.push(number);
        let (to, identity) = ((candidate, run, number), process.identity.clone());
        self.send(WORK_DEADLINE, to, Message::WorkEnded { settled: false });
        let delay = self.delay(candidate);
        self.queue(self.now + delay, Occurrence::WorkArrives(to, identity));
    }
}

// === impl Setting ===

impl Default for Setting {
    fn default() -> Self {
        Self {
            gated: true,
            rates: [1.0; CANDIDATES],
            seed: 1,
        }
    }
}
