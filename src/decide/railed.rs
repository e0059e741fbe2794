//! What the guard rails do to a decision: waits, shadow mode, lengthened bans, refusals that are braked.

use std::time::Duration;

use jiff::Timestamp;

use crate::api::{Phase, write_time};
use crate::duration;
use crate::guard::Hold;

use super::decision::Decision;
use super::facts::{Request, end, span};
use super::plan::{LIFT_BRAKED, Patch, Plan, Problem, Purpose, RESOLVED_BRAKED};

// === impl Decision ===

impl Decision<'_> {
    /// When the present ban began, and when it ends.
    pub(super) fn granted(&self, request: Request) -> (Timestamp, Option<Timestamp>) {
        let began = self.facts.began(self.now);
        let granted = self.facts.status.granted(request.duration);
        (began, granted.map(|granted| end(began, granted)))
    }

    /// Lifts what stands for `purpose`, or keeps it until its end while the brake holds such lifts.
    pub(super) fn unless_braked(
        &self,
        request: Request,
        purpose: impl FnOnce(bool) -> Purpose,
    ) -> Plan {
        let active = self.facts.is(&Phase::Active);
        let present = self.facts.held.first().or(self.facts.withdrawn());
        // To keep a block whose address was edited is to ban the new one, which is refused.
        let moved = present.is_some_and(|present| present.target != request.target);
        let keeps = self.world.rails.keeps_refused;
        if let Some(why) = keeps.filter(|_| active && !moved) {
            let (began, granted) = self.granted(request);
            // A resolved alert ended the spec's duration. The brake keeps the ban until the end that was granted.
            let resolved = self.facts.is_resolved();
            let granted = granted.filter(|granted| !resolved || *granted > self.now);
            // Alerts do not lengthen a ban that is refused.
            let until = [granted, self.facts.status.expires_at()];
            let until = until.into_iter().flatten().min();
            let problem = Problem {
                reason: LIFT_BRAKED,
                message: why.to_owned(),
            };
            return self.keep(request, began, until, Some(problem));
        }
        self.lift_for(purpose)
    }

    /// Keeps an active block, until its end while a brake holds the lifts of resolved alerts.
    pub(super) fn keep_unresolved(&self, request: Request) -> Plan {
        let (began, until) = self.granted(request);
        let granted = self.facts.status.expires_at();
        let early = self.facts.is_resolved()
            && until.is_some_and(|until| until <= self.now)
            && granted.is_none_or(|granted| granted > self.now);
        if let Some(why) = self.world.rails.keeps_resolved.filter(|_| early) {
            let problem = Problem {
                reason: RESOLVED_BRAKED,
                message: format!("its alerts are resolved; {why}"),
            };
            return self.keep(request, began, granted, Some(problem));
        }
        let mut plan = self.keep(request, began, until, None);
        plan.resolved = early && plan.ends();
        plan
    }

    /// Shows what would happen to a block whose source is in shadow mode.
    pub(super) fn show(&self, request: Request, source: &str) -> Plan {
        let target = request.target;
        let (_, granted) = self.next_length(request);
        let length = granted.map_or_else(
            || "without end".to_owned(),
            |granted| format!("for {}", duration::display(granted)),
        );
        let message = format!(
            "would ban {target} {length}: the source {source} is in shadow mode; to ban what it reports, remove it from shadowSources, or shadow from its trigger"
        );
        self.unless_braked(request, |lifted| Purpose::Shadow { message, lifted })
    }

    /// The step and the length of the next ban.
    pub(super) fn next_length(&self, request: Request) -> (i64, Option<Duration>) {
        let Some(escalation) = self.world.rails.escalation else {
            return (1, request.duration);
        };
        let step = escalation.next_step(&self.facts.status, self.now);
        let most = self.world.max_duration;
        let granted = request
            .duration
            .map(|asked| escalation.granted(&request.target, asked, step, most));
        (step, granted)
    }

    /// Waits with the ban that `plan` makes. A request that the object's age does not tell is recorded, so that it ends
    /// unless the ban comes about within its own time.
    pub(super) fn hold(&self, request: Request, hold: &Hold, plan: Plan) -> Plan {
        let intent = plan.before.as_ref().and_then(|patch| patch.intent.as_ref());
        let asked = intent.and_then(|intent| intent.as_ref()?.asked);
        let known = self.facts.intent.as_ref().filter(|_| self.facts.attempted);
        let recorded = asked.is_some() && known.and_then(|known| known.asked) != asked;
        let until = if recorded {
            asked
                .zip(request.duration)
                .map(|(asked, duration)| end(asked, duration))
        } else {
            self.facts.window_end(request.duration)
        };
        let end = until.map_or_else(String::new, |until| {
            format!(" (given up at {})", write_time(until))
        });
        let left = until.map(|until| span(self.now, until));
        let purpose = Purpose::Hold {
            reason: hold.reason,
            message: format!("not banned yet{end}: {}", hold.message),
            retry_in: left.map_or(hold.retry_in, |left| left.min(hold.retry_in)),
        };
        let before = plan.before.filter(|_| recorded).unwrap_or_default();
        let calls = if hold.may_stand {
            self.lifting()
        } else {
            Vec::new()
        };
        self.build(before, calls, purpose, Patch::default())
    }
}
