//! The networks of the simulated world, and what reaches its server.

use std::time::Duration;

use reeve_clock::scaled;

use super::process::{Message, Sender};
use super::server::failure;
use super::world::{Occurrence, World};
use crate::machine::{Action, Event, FailureKind};

/// The network between one process and the server.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) cut_until: Duration,
    pub(super) slow: (Duration, Duration),
    pub(super) refuse: (u16, Duration),
    pub(super) deaf_until: Duration,
    /// When the last event of a watch arrives. None overtakes another.
    pub(super) news_until: Duration,
}

// === impl World ===

impl World {
    /// The time of one message between a candidate and the server. On a slow network messages overtake each other.
    pub(super) fn delay(&self, candidate: usize) -> Duration {
        match self.links[candidate].slow {
            (delay, until) if self.now < until => {
                let share = if self.random.below(2) == 0 {
                    1.0
                } else {
                    self.random.unit()
                };
                Duration::from_millis(1).max(scaled(delay, share))
            }
            _ => Duration::from_millis(1),
        }
    }

    pub(super) fn request_arrives(&mut self, from: Sender, request: Action) {
        let link = &self.links[from.0];
        if self.now < link.cut_until {
            return;
        }
        if !matches!(request, Action::Read) && self.now < link.refuse.1 {
            let kind = match link.refuse.0 {
                409 => FailureKind::Conflict,
                500 => FailureKind::Ambiguous,
                _ => FailureKind::Refused,
            };
            let refused = failed(&request, kind);
            self.send(Duration::ZERO, from, Message::Answer(refused));
            return;
        }
        let reset = failed(&request, FailureKind::Ambiguous);
        let (answer, shown) = self.server.execute(request);
        if let Some(shown) = shown {
            self.show(shown);
        }
        if self.now < self.links[from.0].deaf_until {
            self.send(Duration::ZERO, from, Message::Answer(reset));
        } else {
            let delay = self.delay(from.0);
            self.send(delay, from, Message::Answer(answer));
        }
    }

    pub(super) fn watch_arrives(&mut self, from: Sender) {
        let (candidate, run, number) = from;
        let process = &mut self.processes[candidate];
        if self.now < self.links[candidate].cut_until
            || process.run != run
            || process.watch != Some(number)
        {
            return;
        }
        process.watch_answered = true;
        if let Some(event) = self.server.watch(from) {
            self.send_news(from, event);
        }
    }

    /// Shows an event to all watches.
    pub(super) fn show(&mut self, event: Event) {
        let Some(event) = self.server.show(event) else {
            return;
        };
        let processes = &self.processes;
        let watchers = &mut self.server.watchers;
        watchers.retain(|(candidate, run, number)| {
            let process = &processes[*candidate];
            (process.run, process.watch) == (*run, Some(*number))
        });
        for watcher in watchers.clone() {
            self.send_news(watcher, event.clone());
        }
    }

    fn send_news(&mut self, to: Sender, event: Event) {
        let delay = self.delay(to.0);
        let link = &mut self.links[to.0];
        let at = (self.now + delay).max(link.news_until);
        link.news_until = at;
        self.queue(at, Occurrence::Reaches(to, Message::News(event)));
    }

    pub(super) fn work_arrives(&mut self, from: Sender, identity: String) {
        let link = &self.links[from.0];
        if self.now < link.cut_until {
            return;
        }
        let deaf = self.now < link.deaf_until;
        let delay = self.delay(from.0);
        let holder = self.server.holder();
        if holder.is_some_and(|holder| holder != identity) {
            let text = format!("a write of {identity} is accepted under {holder:?}");
            self.found.push(text);
        }
        self.accepted.push((self.now, identity));
        if deaf {
            self.send(Duration::ZERO, from, Message::WorkEnded { settled: false });
        } else {
            self.send(delay, from, Message::WorkEnded { settled: true });
        }
    }
}

/// The answer to `request` that it failed.
pub(super) fn failed(request: &Action, kind: FailureKind) -> Event {
    match request {
        Action::Read => Event::Read(Err(failure(kind))),
        _ => Event::Written(Err(failure(kind))),
    }
}
