//! Transitions without the lease: tries to take it when it may be free.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;

use super::event::{Action, Failure, FailureKind, Now, Report};
use super::feed::{Feed, Pace};
use super::role::{Contender, Request, Role, Term};
use super::step::Machine;
use crate::options::JITTER;
use crate::record::Decision;

/// Time from the end of another's lease to the next try.
const AFTER_EXPIRY: Duration = Duration::from_millis(1);

impl Machine {
    pub(super) fn contend(&mut self, role: &Role, now: Now) -> Role {
        self.actions.push(Action::Abandon);
        let contender = Contender {
            feed: Feed::new(now.boot, self.options.retry_period),
            may_hold: role.may_hold(),
        };
        self.take(contender, now)
    }

    /// Tries to take the lease.
    pub(super) fn take(&mut self, contender: Contender, now: Now) -> Role {
        Role::Acquiring(contender, self.first_request(now))
    }

    pub(super) fn take_by_slow_path(&mut self, mut contender: Contender, failure: Failure) -> Role {
        contender.may_hold |= failure.kind == FailureKind::Ambiguous;
        Role::Acquiring(contender, self.slow_path(failure))
    }

    /// Writes the lease that was read, unless another holds it.
    pub(super) fn take_as_read(
        &mut self,
        mut contender: Contender,
        lease: Option<&Lease>,
        now: Now,
    ) -> Role {
        let changed = self.view.read(lease, now.boot);
        match self.decide(now) {
            Decision::Held { holder } => {
                self.report(Report::Held { holder });
                // An open watch should have shown the change.
                if changed && contender.feed.close(now.boot) {
                    self.actions.push(Action::CloseWatch);
                }
                self.stand_by(contender, now)
            }
            Decision::Create(record) => Role::Acquiring(contender, self.create(&record, now)),
            Decision::Update(record) => {
                Role::Acquiring(contender, Request::Writing(self.update(&record, now)))
            }
        }
    }

    pub(super) fn taken(
        &mut self,
        contender: Contender,
        lease: Lease,
        sent_at: Duration,
        now: Now,
    ) -> Role {
        self.view.written(lease, sent_at);
        let (mut feed, renewed, cause) = (contender.feed, sent_at, None);
        feed.pace = Pace::new(now.boot, self.options.retry_period);
        let term = Term {
            feed,
            renewed,
            cause,
        };
        if self.is_over(&term, now) {
            // The process was paused, and may not write under this lease any more.
            let (feed, may_hold) = (term.feed, true);
            return self.take(Contender { feed, may_hold }, now);
        }
        self.actions.push(Action::RenewFence { sent_at });
        self.report(Report::Leading);
        self.lead(term, now)
    }

    /// Stands by after a read that failed, which cannot have taken the lease.
    pub(super) fn not_read(&mut self, contender: Contender, failure: Failure, now: Now) -> Role {
        let cause = failure.cause;
        self.report(Report::NotTaken { cause });
        self.stand_by(contender, now)
    }

    pub(super) fn not_taken(
        &mut self,
        mut contender: Contender,
        failure: Failure,
        now: Now,
    ) -> Role {
        contender.may_hold |= failure.kind == FailureKind::Ambiguous;
        let cause = failure.cause;
        self.report(match failure.kind {
            FailureKind::Conflict => Report::WrittenFirst { cause },
            _ => Report::NotTaken { cause },
        });
        self.stand_by(contender, now)
    }

    fn stand_by(&mut self, contender: Contender, now: Now) -> Role {
        self.view.forget_old_writes();
        let try_at = self.next_try(now);
        Role::Standby(contender, try_at)
    }

    /// The end of another's lease, or the next poll if that is earlier. A lease that is over and could not be taken waits
    /// for the poll.
    fn next_try(&self, now: Now) -> Duration {
        let jittered = self.random.jitter(self.options.retry_period, JITTER);
        let wait = match self.view.held_for(now.boot) {
            Some(left) if !left.is_zero() => jittered.min(left.saturating_add(AFTER_EXPIRY)),
            _ => jittered,
        };
        now.boot.saturating_add(wait)
    }

    pub(super) fn standby_is_shown(
        &mut self,
        mut contender: Contender,
        try_at: Duration,
        lease: Lease,
        now: Now,
    ) -> Role {
        contender.feed.shows();
        if self.view.is_known(&lease) || !self.view.shown(lease, now.boot) {
            return Role::Standby(contender, try_at);
        }
        let try_at = self.next_try(now);
        match self.view.other_holder().map(str::to_owned) {
            Some(holder) => {
                self.report(Report::Held { holder });
                Role::Standby(contender, try_at)
            }
            None => self.take_early(contender, try_at, now),
        }
    }

    pub(super) fn standby_sees_deletion(
        &mut self,
        mut contender: Contender,
        try_at: Duration,
        now: Now,
    ) -> Role {
        contender.feed.shows();
        self.view.deleted();
        match self.view.held_for(now.boot) {
            Some(left) if !left.is_zero() => Role::Standby(contender, try_at),
            _ => self.take_early(contender, try_at, now),
        }
    }

    /// Tries to take the lease because of an event.
    fn take_early(&mut self, mut contender: Contender, try_at: Duration, now: Now) -> Role {
        match contender.feed.pace.take(now.boot) {
            Ok(()) => self.take(contender, now),
            Err(at) => Role::Standby(contender, at.min(try_at)),
        }
    }
}
