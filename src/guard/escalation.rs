//! How long the next ban of an address lasts that was banned before.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::api::{Escalated, IPBlockStatus};
use crate::duration;
use crate::target::Target;

/// Repeated bans grow by a factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Escalation {
    /// Each ban lasts this many times the one before. Default 2.
    pub factor: f64,
    /// The longest ban that it makes. Default `7d`. A longer request is granted as it is.
    pub cap: Duration,
    /// For each time this long without a ban one step is taken back. Default `7d`.
    pub decay: Duration,
    /// Up to this part is taken off a lengthened ban, by its address, so that bans that began together do not end
    /// together. Default 0.1.
    pub jitter: f64,
}

impl Default for Escalation {
    fn default() -> Self {
        const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
        Self {
            factor: 2.0,
            cap: WEEK,
            decay: WEEK,
            jitter: 0.1,
        }
    }
}

// === impl Escalation ===

impl Escalation {
    /// The step of the next ban, 1 for a first one, by the status that the last one left.
    ///
    /// A ban that was lifted by hand was a mistake, and does not count.
    #[must_use]
    pub fn next_step(&self, status: &IPBlockStatus, now: Timestamp) -> i64 {
        let bans = status.bans();
        let last = status.escalation.as_ref().map_or(bans, |last| last.step);
        let by_hand = i64::from(status.lifted_by_hand().is_some() && last > 0);
        let ended = status.unblocked_at().or(status.blocked_at());
        let quiet = ended.map_or(SignedDuration::ZERO, |ended| now.duration_since(ended));
        let decay = self.decay.as_secs().max(1);
        let decayed = u64::try_from(quiet.as_secs()).unwrap_or(0) / decay;
        let decayed = i64::try_from(decayed).unwrap_or(i64::MAX);
        last.saturating_sub(by_hand)
            .saturating_sub(decayed)
            .max(0)
            .saturating_add(1)
    }

    /// How long the ban of `target` in `step` lasts that was requested for `asked`; `most` is the longest ban at all.
    #[must_use]
    pub fn granted(
        &self,
        target: &Target,
        asked: Duration,
        step: i64,
        most: Option<Duration>,
    ) -> Duration {
        let cap = most.map_or(self.cap, |most| most.min(self.cap));
        if step <= 1 || asked >= cap {
            return asked;
        }
        let exponent = i32::try_from(step - 1).unwrap_or(i32::MAX);
        let length = asked.as_secs_f64() * self.factor.powi(exponent);
        let length = length.min(cap.as_secs_f64());
        let spread = length * (1.0 - self.jitter * share(target));
        let seconds = duration::whole_seconds(Duration::from_secs_f64(spread));
        Duration::from_secs(seconds).clamp(asked, cap)
    }

    /// The next length of a ban that lasts `present` in all; `None`: it is as long as it may be.
    #[must_use]
    pub fn longer(&self, present: Duration, most: Option<Duration>) -> Option<Duration> {
        let cap = most.map_or(self.cap, |most| most.min(self.cap));
        let next = Duration::try_from_secs_f64(present.as_secs_f64() * self.factor);
        let next = next.unwrap_or(Duration::MAX).min(cap);
        let next = Duration::from_secs(duration::whole_seconds(next)).min(cap);
        (next > present).then_some(next)
    }
}

// === impl Escalated ===

impl Escalated {
    /// The record of a ban in `step` for `granted` that was requested for `asked`.
    #[must_use]
    pub fn new(step: i64, asked: Duration, granted: Duration) -> Self {
        Self {
            step,
            asked: duration::display(asked),
            granted: duration::display(granted),
        }
    }
}

impl IPBlockStatus {
    /// How long the present ban lasts if its spec requests `asked`: longer if it was lengthened for the same request.
    #[must_use]
    pub fn granted(&self, asked: Option<Duration>) -> Option<Duration> {
        let lengthened = self.escalation.as_ref().filter(|lengthened| {
            let same = duration::parse(&lengthened.asked).ok();
            same.is_some() && same == asked
        });
        let granted = lengthened.and_then(|it| duration::parse(&it.granted).ok());
        granted.or(asked)
    }
}

/// From 0 to below 1, the same for an address in every process.
fn share(target: &Target) -> f64 {
    let hash = target
        .to_string()
        .bytes()
        .fold(2_166_136_261_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
        });
    // The low bits of this hash depend on the last characters most.
    f64::from(hash % 1009) / 1009.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn target(text: &str) -> Target {
        text.parse().unwrap()
    }

    fn exact() -> Escalation {
        Escalation {
            jitter: 0.0,
            cap: 24 * HOUR,
            decay: 48 * HOUR,
            ..Escalation::default()
        }
    }

    #[test]
    fn each_ban_lasts_twice_the_one_before_up_to_the_cap() {
        let length = |step| exact().granted(&target("192.0.2.7"), HOUR, step, None);
        let hours = [1, 1, 2, 4, 8, 16, 24, 24].map(|hours| HOUR * hours);
        for (step, expected) in (0..).zip(hours) {
            assert_eq!(length(step), expected, "step {step}");
        }
        assert_eq!(length(i64::MAX), 24 * HOUR);
        let limited = exact().granted(&target("192.0.2.7"), HOUR, 9, Some(5 * HOUR));
        assert_eq!(limited, 5 * HOUR, "maxDuration");
        let long = exact().granted(&target("192.0.2.7"), 100 * HOUR, 9, None);
        assert_eq!(long, 100 * HOUR, "a longer request is granted as it is");
    }

    #[test]
    fn a_lengthened_ban_ends_earlier_by_its_address_and_a_first_one_exactly() {
        let spread = Escalation {
            jitter: 0.1,
            ..exact()
        };
        let mut lengths = std::collections::BTreeSet::new();
        for last in 0..100 {
            let target = Target::host([192, 0, 2, last].into());
            assert_eq!(spread.granted(&target, HOUR, 1, None), HOUR);
            let granted = spread.granted(&target, HOUR, 2, None);
            assert_eq!(granted, spread.granted(&target, HOUR, 2, None));
            assert!(
                granted > HOUR.mul_f64(1.79) && granted <= 2 * HOUR,
                "{granted:?}"
            );
            lengths.insert(granted);
        }
        assert!(lengths.len() > 60, "{} different lengths", lengths.len());
    }

    #[test]
    fn quiet_time_and_a_lift_by_hand_take_steps_back() {
        let mut status = IPBlockStatus {
            ban_count: Some(9),
            unblocked_at: Some("2026-01-01T00:00:00Z".into()),
            escalation: Some(Escalated::new(4, HOUR, 8 * HOUR)),
            ..IPBlockStatus::default()
        };
        let step =
            |status: &IPBlockStatus, at: &str| exact().next_step(status, at.parse().unwrap());
        assert_eq!(step(&status, "2026-01-01T01:00:00Z"), 5);
        assert_eq!(step(&status, "2026-01-03T00:00:00Z"), 4);
        assert_eq!(step(&status, "2026-01-05T00:00:00Z"), 3);
        assert_eq!(step(&status, "2027-01-01T00:00:00Z"), 1);
        status.escalation = None;
        assert_eq!(
            step(&status, "2026-01-01T01:00:00Z"),
            10,
            "by the count of bans"
        );
        assert_eq!(step(&IPBlockStatus::default(), "2026-01-01T01:00:00Z"), 1);
        status.phase = Some(crate::api::Phase::Expired);
        let at = status.unblocked_at().unwrap();
        let (yes, by) = (crate::api::ConditionStatus::True, crate::api::UNBLOCKED);
        status.set_condition(crate::api::condition::READY, yes, by, "", at);
        assert_eq!(step(&status, "2026-01-01T01:00:00Z"), 9, "a mistake");
    }

    #[test]
    fn an_active_ban_grows_by_the_factor_until_the_cap() {
        assert_eq!(exact().longer(HOUR, None), Some(2 * HOUR));
        assert_eq!(exact().longer(20 * HOUR, None), Some(24 * HOUR));
        assert_eq!(exact().longer(24 * HOUR, None), None);
        assert_eq!(exact().longer(HOUR, Some(HOUR)), None);
    }
}
