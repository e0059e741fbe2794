//! Transitions after a stop: gives the lease back, if it is still ours.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;

use super::event::{Action, Failure, FailureKind, Now, Report};
use super::feed::Pace;
use super::role::{Release, ReleaseLimits, Role};
use super::step::Machine;
use crate::record::Record;

impl Machine {
    pub(super) fn stop(
        &mut self,
        role: &Role,
        limit: Duration,
        lands_in: Option<Duration>,
        now: Now,
    ) -> Role {
        self.actions.push(Action::Abandon);
        if !role.may_hold() || !self.options.release_on_stop {
            return Role::Idle;
        }
        let limits = ReleaseLimits {
            until: now.boot.saturating_add(limit),
            pace: Pace::new(now.boot, self.options.retry_period),
        };
        match lands_in.map(|left| left.max(self.inherited_lands_in(now))) {
            Some(Duration::ZERO) => self.read_to_release(limits),
            Some(left) if left > limit => {
                self.report(Report::ReleaseTooShort);
                Role::Idle
            }
            _ => Role::Releasing(limits, Release::Landing),
        }
    }

    /// Reads the lease once the writes of an earlier process of this identity have arrived, too.
    pub(super) fn landed(&mut self, limits: ReleaseLimits, now: Now) -> Role {
        let left = self.inherited_lands_in(now);
        if left.is_zero() {
            return self.read_to_release(limits);
        }
        Role::Releasing(limits, Release::Pausing(now.boot.saturating_add(left)))
    }

    fn inherited_lands_in(&self, now: Now) -> Duration {
        self.view
            .inherited_lands_in(self.options.margin(), now.boot)
    }

    pub(super) fn read_to_release(&mut self, limits: ReleaseLimits) -> Role {
        self.actions.push(Action::Read);
        Role::Releasing(limits, Release::Reading)
    }

    pub(super) fn release_as_read(
        &mut self,
        limits: ReleaseLimits,
        lease: Option<&Lease>,
        now: Now,
    ) -> Role {
        let Some(lease) = lease.filter(|lease| self.view.is_ours(lease)) else {
            return Role::Idle;
        };
        let mut lease = lease.clone();
        Record::of(&lease).released(now.date).apply(&mut lease);
        self.actions.push(Action::Update(Box::new(lease)));
        Role::Releasing(limits, Release::Writing)
    }

    pub(super) fn released(&mut self) -> Role {
        self.report(Report::Released);
        Role::Idle
    }

    pub(super) fn not_released(
        &mut self,
        mut limits: ReleaseLimits,
        failure: Failure,
        now: Now,
    ) -> Role {
        let later = now.boot.saturating_add(self.options.retry_period);
        match failure.kind {
            FailureKind::NotFound => Role::Idle,
            FailureKind::Conflict => match limits.pace.take(now.boot) {
                Ok(()) => self.read_to_release(limits),
                Err(at) => Role::Releasing(limits, Release::Pausing(at)),
            },
            FailureKind::Refused | FailureKind::Ambiguous => {
                let cause = failure.cause;
                self.report(Report::NotReleased { cause });
                Role::Releasing(limits, Release::Pausing(later))
            }
        }
    }

    pub(super) fn give_up_release(&mut self, phase: &Release) -> Role {
        self.actions.push(Action::Abandon);
        self.report(match phase {
            Release::Landing => Report::StillWorking,
            _ => Report::ReleaseTooSlow,
        });
        Role::Idle
    }
}
