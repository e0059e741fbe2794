//! The transitions of the machine.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use reeve_clock::Random;

use super::event::{Action, Event, Failure, Now, Report};
use super::feed::Feed;
use super::role::{Release, Request, Role};
use super::view::View;
use crate::options::Options;
use crate::record::{Decision, Record};

/// One candidate for one lease.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(super) options: Options,
    /// The source of the jitter between polls.
    pub(super) random: Random,
    pub(super) view: View,
    role: Role,
    /// The actions of the current step.
    pub(super) actions: Vec<Action>,
}

// === impl Machine ===

impl Machine {
    /// A candidate that does not contend yet.
    pub(crate) fn new(options: Options, random: Random) -> Self {
        Self {
            view: View::new(options.holder().unwrap_or_default().to_owned()),
            options,
            random,
            role: Role::Idle,
            actions: Vec::new(),
        }
    }

    /// With `found`, a lease in its own identity that it did not write is another's.
    pub(crate) fn set_duplicate_identity(&mut self, found: bool) {
        self.view.duplicate_identity = found;
    }

    pub(crate) fn role(&self) -> &Role {
        &self.role
    }

    /// Moves on by one event, and returns what follows from it, in order.
    pub(crate) fn step(&mut self, event: Event, now: Now) -> Vec<Action> {
        let role = std::mem::replace(&mut self.role, Role::Idle);
        self.role = self.next(role, event, now);
        if self.role.feed().is_some_and(|feed| feed.open(now.boot)) {
            self.actions.push(Action::OpenWatch);
        }
        std::mem::take(&mut self.actions)
    }

    /// The time of the next [`Event::Timer`].
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        let (at, or_at) = match &self.role {
            Role::Idle | Role::Acquiring(..) | Role::Lost(_) => return None,
            Role::Standby(contender, try_at) => (*try_at, contender.feed.reopens()),
            Role::Leading(term, renew_at) => {
                (self.deadline(term).min(*renew_at), term.feed.reopens())
            }
            Role::Renewing(term, _) => (self.deadline(term), None),
            Role::Releasing(limits, Release::Pausing(retry_at)) => (limits.until, Some(*retry_at)),
            Role::Releasing(limits, _) => (limits.until, None),
        };
        Some(or_at.map_or(at, |or_at| or_at.min(at)))
    }

    /// Whether events of the watch are due. They wait while a request is in flight.
    pub(crate) fn awaits_news(&self) -> bool {
        matches!(self.role, Role::Standby(..) | Role::Leading(..))
    }

    /// Whether [`Event::Landed`] is due.
    pub(crate) fn awaits_landing(&self) -> bool {
        matches!(self.role, Role::Releasing(_, Release::Landing))
    }

    /// The transition table.
    fn next(&mut self, role: Role, event: Event, now: Now) -> Role {
        use Event::{Contend, Deleted, Landed, Read, Shown, Stop, Timer, WatchEnded, Written};
        use Release::{Landing, Pausing};
        use Request::{Writing, WritingUnread};
        use Role::{Acquiring, Idle, Leading, Releasing, Renewing, Standby};
        match (role, event) {
            (role @ (Idle | Role::Lost(_) | Releasing(..)), Contend) => self.contend(&role, now),
            (role, Stop { limit, lands_in }) => self.stop(&role, limit, lands_in, now),

            // Without the lease: tries when it may be free.
            (Standby(contender, try_at), Timer) if try_at <= now.boot => self.take(contender, now),
            (Standby(contender, try_at), Shown(lease)) => {
                self.standby_is_shown(contender, try_at, *lease, now)
            }
            (Standby(contender, try_at), Deleted) => {
                self.standby_sees_deletion(contender, try_at, now)
            }
            (Standby(mut contender, try_at), WatchEnded(cause)) => {
                self.watch_ended(&mut contender.feed, cause, now);
                Standby(contender, try_at)
            }
            (Acquiring(contender, _), Read(Ok(lease))) => {
                self.take_as_read(contender, lease.as_deref(), now)
            }
            (Acquiring(contender, _), Read(Err(failure))) => self.not_read(contender, failure, now),
            (Acquiring(contender, Writing(at) | WritingUnread(at)), Written(Ok(lease))) => {
                self.taken(contender, *lease, at, now)
            }
            (Acquiring(contender, WritingUnread(_)), Written(Err(failure))) => {
                self.take_by_slow_path(contender, failure)
            }
            (Acquiring(contender, _), Written(Err(failure))) => {
                self.not_taken(contender, failure, now)
            }

            // With the lease: renews it, and stops at the renew deadline.
            (Leading(term, _) | Renewing(term, _), Timer) if self.is_over(&term, now) => {
                self.lose_by_deadline(term)
            }
            (Leading(term, renew_at), Timer) if renew_at <= now.boot => self.renew(term, now),
            (Leading(term, renew_at), Shown(lease)) => {
                self.leader_is_shown(term, renew_at, &lease, now)
            }
            (Leading(term, renew_at), Deleted) => self.leader_sees_change(term, renew_at, now),
            (Leading(mut term, renew_at), WatchEnded(cause)) => {
                self.watch_ended(&mut term.feed, cause, now);
                Leading(term, renew_at)
            }
            (Renewing(term, _), Read(Ok(lease))) => self.renew_as_read(term, lease.as_deref(), now),
            (Renewing(term, _), Read(Err(failure))) => self.not_renewed(term, failure, now),
            (Renewing(term, Writing(at) | WritingUnread(at)), Written(Ok(lease))) => {
                self.renewed(term, *lease, at, now)
            }
            (Renewing(term, WritingUnread(_)), Written(Err(failure))) => {
                Renewing(term, self.slow_path(failure))
            }
            (Renewing(term, _), Written(Err(failure))) => self.not_renewed(term, failure, now),

            // After a stop: gives the lease back, if it is still ours.
            (Releasing(limits, phase), Timer) if limits.until <= now.boot => {
                self.give_up_release(&phase)
            }
            (Releasing(limits, Landing), Landed) => self.landed(limits, now),
            (Releasing(limits, Pausing(retry_at)), Timer) if retry_at <= now.boot => {
                self.read_to_release(limits)
            }
            (Releasing(limits, _), Read(Ok(lease))) => {
                self.release_as_read(limits, lease.as_deref(), now)
            }
            (Releasing(..), Written(Ok(_))) => self.released(),
            (Releasing(limits, _), Read(Err(failure)) | Written(Err(failure))) => {
                self.not_released(limits, failure, now)
            }

            // An early timer, and events that are not awaited.
            (
                role,
                Contend | Timer | Read(_) | Written(_) | Shown(_) | Deleted | WatchEnded(_)
                | Landed,
            ) => role,
        }
    }
}

// === Requests and reports ===

impl Machine {
    /// Writes the lease without a read if it is ours to the knowledge of this process, else reads it.
    pub(super) fn first_request(&mut self, now: Now) -> Request {
        if self.view.holds(now.boot)
            && let Decision::Update(record) = self.decide(now)
        {
            return Request::WritingUnread(self.update(&record, now));
        }
        self.actions.push(Action::Read);
        Request::Reading
    }

    /// Reads the lease after a write without a read has failed.
    pub(super) fn slow_path(&mut self, failure: Failure) -> Request {
        let cause = failure.cause;
        self.report(Report::SlowPath { cause });
        self.actions.push(Action::Read);
        Request::Reading
    }

    pub(super) fn decide(&self, now: Now) -> Decision {
        self.view.decide(self.options.lease_duration, now)
    }

    pub(super) fn create(&mut self, record: &Record, now: Now) -> Request {
        let mut lease = self.draft(record);
        lease.metadata.name = Some(self.options.name.clone());
        lease.metadata.namespace = Some(self.options.namespace.clone());
        self.actions.push(Action::Create(Box::new(lease)));
        Request::Writing(now.boot)
    }

    /// Returns the time when the update is sent.
    pub(super) fn update(&mut self, record: &Record, now: Now) -> Duration {
        let lease = self.draft(record);
        self.actions.push(Action::Update(Box::new(lease)));
        now.boot
    }

    /// The lease to write.
    fn draft(&mut self, record: &Record) -> Lease {
        self.view.writes(record);
        let mut lease = self.view.draft(record);
        if !self.options.labels.is_empty() {
            let labels = lease.metadata.labels.get_or_insert_default();
            labels.extend(self.options.labels.clone());
        }
        lease
    }

    fn watch_ended(&mut self, feed: &mut Feed, cause: Option<String>, now: Now) {
        feed.close(now.boot);
        if let Some(cause) = cause {
            self.report(Report::NotWatched { cause });
        }
    }

    pub(super) fn report(&mut self, report: Report) {
        self.actions.push(Action::Report(report));
    }
}
