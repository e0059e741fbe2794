//! Transitions with the lease: renews it, and stops at the renew deadline.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;

use super::event::{Action, Failure, Now, Report};
use super::role::{Lost, Request, Role, Term};
use super::step::Machine;
use crate::record::Decision;

impl Machine {
    pub(super) fn lead(&mut self, term: Term, now: Now) -> Role {
        Role::Leading(term, now.boot.saturating_add(self.options.retry_period))
    }

    /// When leading ends without a renewal.
    pub(super) fn deadline(&self, term: &Term) -> Duration {
        term.renewed.saturating_add(self.options.renew_deadline)
    }

    pub(super) fn is_over(&self, term: &Term, now: Now) -> bool {
        self.deadline(term) <= now.boot
    }

    /// Tries to renew the lease.
    pub(super) fn renew(&mut self, term: Term, now: Now) -> Role {
        if self.is_over(&term, now) {
            return self.lose_by_deadline(term);
        }
        Role::Renewing(term, self.first_request(now))
    }

    /// Writes the lease that was read, unless another holds it.
    pub(super) fn renew_as_read(&mut self, term: Term, lease: Option<&Lease>, now: Now) -> Role {
        let duplicate = lease.is_some_and(|lease| self.view.is_duplicate(lease));
        self.view.read(lease, now.boot);
        if duplicate {
            let identity = self.options.holder().unwrap_or_default().to_owned();
            return self.lose(Lost::DuplicateIdentity { identity });
        }
        match self.decide(now) {
            Decision::Held { holder } => self.lose(Lost::Taken { holder }),
            _ if self.is_over(&term, now) => self.lose_by_deadline(term),
            Decision::Create(record) => Role::Renewing(term, self.create(&record, now)),
            Decision::Update(record) => {
                Role::Renewing(term, Request::Writing(self.update(&record, now)))
            }
        }
    }

    pub(super) fn renewed(
        &mut self,
        mut term: Term,
        lease: Lease,
        sent_at: Duration,
        now: Now,
    ) -> Role {
        self.view.written(lease, sent_at);
        self.actions.push(Action::RenewFence { sent_at });
        (term.renewed, term.cause) = (sent_at, None);
        self.lead(term, now)
    }

    pub(super) fn not_renewed(&mut self, mut term: Term, failure: Failure, now: Now) -> Role {
        let cause = failure.cause.clone();
        self.report(Report::NotRenewed { cause });
        term.cause = Some(failure.cause);
        self.lead(term, now)
    }

    pub(super) fn leader_is_shown(
        &mut self,
        mut term: Term,
        renew_at: Duration,
        lease: &Lease,
        now: Now,
    ) -> Role {
        term.feed.shows();
        if self.view.is_known(lease) || self.view.is_ours(lease) {
            return Role::Leading(term, renew_at);
        }
        self.leader_sees_change(term, renew_at, now)
    }

    /// Renews at once: another client wrote or deleted the lease.
    pub(super) fn leader_sees_change(
        &mut self,
        mut term: Term,
        renew_at: Duration,
        now: Now,
    ) -> Role {
        match term.feed.pace.take(now.boot) {
            Ok(()) => self.renew(term, now),
            Err(_) => Role::Leading(term, renew_at),
        }
    }

    pub(super) fn lose_by_deadline(&mut self, term: Term) -> Role {
        let cause = term.cause.unwrap_or_else(|| "no answer in time".to_owned());
        let deadline = self.options.renew_deadline;
        self.lose(Lost::Deadline { deadline, cause })
    }

    fn lose(&mut self, lost: Lost) -> Role {
        self.actions.extend([Action::CloseFence, Action::Abandon]);
        self.report(Report::Lost(lost.clone()));
        Role::Lost(lost)
    }
}
