//! The brake on lifts by resolved alerts: a sender that is away looks like the end of all its alerts.
//!
//! Each trigger has a brake of its own, with the bounds of the brake on edits ([`super::brake`]). Each lift is decided by
//! itself, so the lifts of the last minutes are counted, and those before the bound have passed. A lift counts when it
//! begins: a gateway that is away delays its end, not the bound. What the brake holds stays until its own end, its release,
//! or the next alert.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::brake::releases;
use super::held::RELEASE;
use super::settings::Brake;

/// The time within which lifts count together: senders report the end of a group of alerts every few minutes.
pub(crate) const WINDOW: Duration = Duration::from_secs(600);

/// After a release the brake lets lifts pass for this long.
const RELEASED: Duration = Duration::from_secs(600);

/// What every text that releases such a brake begins with.
const PREFIX: &str = "alerts-";

/// Where the reason of a held lift begins.
const WHY: &str = "the brake holds the lifts";

/// The brakes of all triggers.
#[derive(Debug, Default)]
pub(super) struct Resolved(BTreeMap<String, OfTrigger>);

#[derive(Debug, Default)]
struct OfTrigger {
    /// The blocks whose lifts began within the window, each once: a lift that fails is tried again.
    lifted: VecDeque<(Instant, Arc<str>)>,
    /// The same blocks, and whether each has no claim any more.
    known: HashMap<Arc<str>, bool>,
    /// Those without a claim.
    ended: usize,
    /// The blocks whose lifts began and did not end yet, however long ago. To hold one of them would ban again what the
    /// gateway may have lifted.
    begun: HashSet<Arc<str>>,
    /// Some of them were recalled, in any order.
    unsorted: bool,
    engaged: Option<Engaged>,
    /// Until when the brake is off after its release.
    released: Option<Instant>,
}

#[derive(Debug)]
struct Engaged {
    id: String,
    why: String,
    /// The blocks that it holds.
    held: HashSet<Arc<str>>,
}

// === impl Resolved ===

impl Resolved {
    /// Counts the lift of block `key`, which `trigger` made and which is one of `standing` claims of it. `None`: no lifts are
    /// counted. A claim goes after the lift, and [`Self::claimed`] reports it.
    ///
    /// # Errors
    /// Why it has to wait. `time` names a brake that engages with it.
    pub(super) fn admit(
        &mut self,
        key: &str,
        trigger: Option<&str>,
        standing: usize,
        brake: Brake,
        now: Instant,
        time: impl Fn() -> String,
    ) -> Result<(), String> {
        if brake.lift_percent == 0 {
            return Ok(());
        }
        // The trigger may have been removed or renamed, or the source of the block edited.
        let mut engaged = self.0.values().filter_map(|of| of.engaged.as_ref());
        if let Some(engaged) = engaged.find(|engaged| engaged.held.contains(key)) {
            return Err(engaged.why.clone());
        }
        let Some(trigger) = trigger else {
            return Ok(());
        };
        let of = self.0.entry(trigger.to_owned()).or_default();
        if of.begun.contains(key) {
            return Ok(());
        }
        if let Some(engaged) = &mut of.engaged {
            engaged.held.insert(key.into());
            return Err(engaged.why.clone());
        }
        of.prune(now);
        let passes = of.released.is_some_and(|until| now < until);
        if passes || of.known.contains_key(key) {
            of.begun.insert(key.into());
            return Ok(());
        }
        let count = of.lifted.len() + 1;
        let all = standing.saturating_add(of.ended);
        let part = count.saturating_mul(100) >= all.saturating_mul(brake.lift_percent.into());
        if !part || count < brake.lift_least.max(1) {
            let key: Arc<str> = key.into();
            of.known.insert(Arc::clone(&key), false);
            of.begun.insert(Arc::clone(&key));
            of.lifted.push_back((now, key));
            return Ok(());
        }
        let id = format!("{PREFIX}{trigger}-{}", time());
        let why = format!(
            "{WHY} of bans whose alerts of the trigger {trigger} are resolved: the lifts of {} of its {all} bans began within ten minutes (brake.liftPercent); the others stay until their end. Check the sender; if the alerts are over, set the annotation {RELEASE} of the ConfigMap to {id}",
            count - 1
        );
        tracing::warn!("{why}");
        of.engaged = Some(Engaged {
            id,
            why: why.clone(),
            held: HashSet::from([key.into()]),
        });
        Err(why)
    }

    /// An earlier process lifted block `key`, which `trigger` made, and began at `at`.
    pub(super) fn recall_lifted(&mut self, key: &str, trigger: &str, at: Instant) {
        let of = self.0.entry(trigger.to_owned()).or_default();
        if of.known.contains_key(key) {
            return;
        }
        let key: Arc<str> = key.into();
        of.known.insert(Arc::clone(&key), true);
        of.ended += 1;
        of.lifted.push_back((at, key));
        of.unsorted = true;
    }

    /// A brake of an earlier process holds block `key`, whose status has `message`.
    pub(super) fn recall(
        &mut self,
        key: &str,
        message: &str,
        released: Option<&str>,
        now: Instant,
    ) {
        let words = message.split_whitespace();
        let id = words.rev().find(|word| word.starts_with(PREFIX));
        let trigger = id.and_then(|id| id.strip_prefix(PREFIX)?.rsplit_once('-'));
        let why = message.find(WHY).and_then(|at| message.get(at..));
        let (Some(id), Some((trigger, _)), Some(why)) = (id, trigger, why) else {
            return;
        };
        let of = self.0.entry(trigger.to_owned()).or_default();
        if releases(released, id) {
            of.released = Some(now + RELEASED);
            return;
        }
        let engaged = of.engaged.get_or_insert_with(|| Engaged {
            id: id.to_owned(),
            why: why.to_owned(),
            held: HashSet::new(),
        });
        engaged.held.insert(key.into());
    }

    /// Releases the brakes that `annotation` names, and all if they are off. Whether one was engaged.
    pub(super) fn release(&mut self, annotation: Option<&str>, brake: Brake, now: Instant) -> bool {
        let mut freed = false;
        for of in self.0.values_mut() {
            let Some(engaged) = &of.engaged else { continue };
            if brake.lift_percent == 0 || releases(annotation, &engaged.id) {
                *of = OfTrigger {
                    released: Some(now + RELEASED),
                    begun: std::mem::take(&mut of.begun),
                    ..OfTrigger::default()
                };
                freed = true;
            }
        }
        freed
    }

    /// The claim of block `key` ended, or began again.
    pub(super) fn claimed(&mut self, key: &str, claimed: bool) {
        for of in self.0.values_mut() {
            of.begun.remove(key);
            let Some(ended) = of.known.get_mut(key) else {
                continue;
            };
            if std::mem::replace(ended, !claimed) == claimed {
                of.ended = if claimed { of.ended - 1 } else { of.ended + 1 };
            }
        }
    }

    /// Nothing is held for block `key` any more. A brake that holds nothing ends. Whether one did.
    pub(super) fn forget(&mut self, key: &str) -> bool {
        let mut ended = false;
        for of in self.0.values_mut() {
            let Some(engaged) = &mut of.engaged else {
                continue;
            };
            if engaged.held.remove(key) && engaged.held.is_empty() {
                of.engaged = None;
                ended = true;
            }
        }
        ended
    }

    /// The triggers whose brakes are engaged, each with what is held, in words.
    pub(super) fn held(&self) -> Vec<(String, String)> {
        let held = self.0.iter().filter_map(|(trigger, of)| {
            let engaged = of.engaged.as_ref()?;
            Some((trigger.clone(), engaged.why.clone()))
        });
        held.collect()
    }

    /// Whether a brake is engaged.
    pub(super) fn is_engaged(&self) -> bool {
        self.0.values().any(|of| of.engaged.is_some())
    }
}

// === impl OfTrigger ===

impl OfTrigger {
    fn prune(&mut self, now: Instant) {
        if std::mem::take(&mut self.unsorted) {
            let lifted = self.lifted.make_contiguous();
            lifted.sort_unstable_by_key(|(at, _)| *at);
        }
        while let Some((at, key)) = self.lifted.front()
            && *at + WINDOW <= now
        {
            if self.known.remove(key) == Some(true) {
                self.ended -= 1;
            }
            self.lifted.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BRAKE: Brake = Brake {
        bans_per_minute: None,
        lift_percent: 50,
        lift_least: 10,
    };

    /// Lifts `count` of `standing` bans, and returns how many were held.
    fn lift(
        resolved: &mut Resolved,
        trigger: &str,
        standing: usize,
        count: usize,
        now: Instant,
    ) -> usize {
        let mut stand = standing;
        (0..count)
            .filter(|number| {
                let key = format!("default/{trigger}-{number}");
                let admitted =
                    resolved.admit(&key, Some(trigger), stand, BRAKE, now, || "7".into());
                if admitted.is_ok() {
                    stand -= 1;
                    resolved.claimed(&key, false);
                }
                admitted.is_err()
            })
            .count()
    }

    #[test]
    fn a_wave_of_resolved_alerts_is_held_at_the_bound_and_another_trigger_is_not() {
        let (mut resolved, now) = (Resolved::default(), Instant::now());
        assert_eq!(
            lift(&mut resolved, "am", 100, 100, now),
            51,
            "49 of 100 passed"
        );
        assert_eq!(lift(&mut resolved, "grafana", 100, 49, now), 0);
        let held = resolved.held();
        assert_eq!(held.len(), 1);
        assert!(
            held[0].1.contains("the lifts of 49 of its 100 bans began"),
            "{held:?}"
        );
        assert!(held[0].1.ends_with("to alerts-am-7"), "{held:?}");
    }

    #[test]
    fn few_lifts_and_lifts_far_apart_pass() {
        let (mut resolved, mut now) = (Resolved::default(), Instant::now());
        assert_eq!(
            lift(&mut resolved, "am", 9, 9, now),
            0,
            "fewer than liftLeast"
        );
        for _ in 0..5 {
            now += WINDOW;
            assert_eq!(lift(&mut resolved, "am", 100, 40, now), 0);
        }
    }

    #[test]
    fn a_lift_that_is_tried_again_counts_once() {
        let (mut resolved, now) = (Resolved::default(), Instant::now());
        for _ in 0..100 {
            let again = resolved.admit("default/a", Some("am"), 20, BRAKE, now, String::new);
            assert_eq!(again, Ok(()));
        }
    }

    #[test]
    fn lifts_that_the_gateway_has_not_confirmed_count_once() {
        let (mut resolved, now) = (Resolved::default(), Instant::now());
        let mut admit = |number: usize| {
            let key = format!("default/{number}");
            resolved.admit(&key, Some("am"), 200, BRAKE, now, || "7".into())
        };
        assert!((1..100).all(|number| admit(number).is_ok()));
        let why = admit(100).unwrap_err();
        assert!(why.contains("the lifts of 99 of its 200 bans"), "{why}");
        assert_eq!(admit(1), Ok(()), "one that has begun goes on");
        assert!(admit(101).is_err());
    }

    #[test]
    fn a_lift_that_has_begun_goes_on_after_the_window_and_after_a_release() {
        let (mut resolved, mut now) = (Resolved::default(), Instant::now());
        let admit = |resolved: &mut Resolved, number: usize, now| {
            let key = format!("default/{number}");
            resolved.admit(&key, Some("am"), 20, BRAKE, now, || "7".into())
        };
        let passed = |resolved: &mut Resolved, now| {
            (0..20)
                .filter(|number| admit(resolved, *number, now).is_ok())
                .count()
        };
        assert_eq!(passed(&mut resolved, now), 9);
        assert!(resolved.release(Some("alerts-am-7"), BRAKE, now));
        assert_eq!(passed(&mut resolved, now), 20);
        // The gateway is away all that time.
        now += RELEASED + WINDOW;
        assert_eq!(passed(&mut resolved, now), 20);
        for number in 0..20 {
            resolved.claimed(&format!("default/{number}"), false);
        }
        assert_eq!(passed(&mut resolved, now), 9, "new bans of the same blocks");
    }

    #[test]
    fn a_ban_that_is_made_again_counts_among_those_that_stand() {
        let (mut resolved, mut now) = (Resolved::default(), Instant::now());
        assert_eq!(lift(&mut resolved, "am", 20, 9, now), 0);
        for number in 0..9 {
            let key = format!("default/am-{number}");
            for _ in 0..2 {
                resolved.claimed(&key, true);
            }
        }
        let mut admit = |standing, key: &str, now| {
            let admitted = resolved.admit(key, Some("am"), standing, BRAKE, now, String::new);
            admitted.map_err(|why| why.contains("9 of its 20 bans"))
        };
        assert_eq!(admit(20, "default/other", now), Err(true));
        resolved = Resolved::default();
        assert_eq!(lift(&mut resolved, "am", 20, 9, now), 0);
        now += WINDOW;
        assert_eq!(lift(&mut resolved, "grafana", 1, 1, now), 0);
        let held = lift(&mut resolved, "am", 11, 10, now);
        assert_eq!(held, 1, "those before the window do not count");
    }

    #[test]
    fn lifts_of_an_earlier_process_count_until_they_are_ten_minutes_old() {
        let (mut resolved, start) = (Resolved::default(), Instant::now());
        for (number, seconds) in [(0, 300), (1, 0), (2, 200), (2, 200), (3, 100)] {
            let at = start + Duration::from_secs(seconds);
            resolved.recall_lifted(&format!("default/before-{number}"), "am", at);
        }
        // Two are left of the four: 9 lifts in all are fewer than half of 20.
        let now = start + WINDOW + Duration::from_secs(150);
        assert_eq!(lift(&mut resolved, "am", 18, 10, now), 3, "7 passed");
    }

    #[test]
    fn a_release_is_for_one_brake_and_lets_lifts_pass_for_ten_minutes() {
        let (mut resolved, mut now) = (Resolved::default(), Instant::now());
        assert_eq!(lift(&mut resolved, "am", 20, 20, now), 11);
        assert!(!resolved.release(Some("alerts-am-6"), BRAKE, now));
        assert!(!resolved.release(None, BRAKE, now));
        assert!(resolved.release(Some("x, alerts-am-7"), BRAKE, now));
        assert_eq!(lift(&mut resolved, "am", 11, 11, now), 0);
        now += RELEASED;
        assert_eq!(lift(&mut resolved, "am", 20, 20, now), 11);
        let off = Brake {
            lift_percent: 0,
            ..BRAKE
        };
        assert!(resolved.release(None, off, now) && !resolved.is_engaged());
    }

    #[test]
    fn what_a_brake_holds_stays_held_when_the_trigger_or_the_source_of_the_block_changes() {
        let (mut resolved, now) = (Resolved::default(), Instant::now());
        assert_eq!(lift(&mut resolved, "am", 20, 11, now), 2);
        for trigger in [Some("renamed"), Some("others"), None] {
            for (key, held) in [("default/am-9", true), ("default/new", false)] {
                let admitted = resolved.admit(key, trigger, 20, BRAKE, now, String::new);
                assert_eq!(admitted.is_err(), held, "{key} of {trigger:?}");
            }
        }
        assert!(resolved.release(Some("alerts-am-7"), BRAKE, now));
        let admitted = resolved.admit("default/am-9", None, 20, BRAKE, now, String::new);
        assert_eq!(admitted, Ok(()));
    }

    #[test]
    fn a_brake_that_holds_nothing_any_more_ends() {
        let (mut resolved, now) = (Resolved::default(), Instant::now());
        assert_eq!(lift(&mut resolved, "am", 20, 11, now), 2);
        assert!(!resolved.forget("default/am-0"), "it was lifted");
        assert!(!resolved.forget("default/am-9"));
        assert!(resolved.is_engaged());
        assert!(resolved.forget("default/am-10"));
        assert!(!resolved.is_engaged());
    }

    #[test]
    fn a_brake_is_found_again_in_the_blocks_that_it_holds() {
        let (mut resolved, now) = (Resolved::default(), Instant::now());
        assert_eq!(lift(&mut resolved, "am-1", 20, 11, now), 2);
        let (trigger, why) = resolved.held().remove(0);
        let message = format!("192.0.2.7 is banned without end; its alerts are resolved; {why}");
        let mut next = Resolved::default();
        next.recall("default/a", &message, Some("alerts-am-1-6"), now);
        assert_eq!(next.held(), [(trigger, why)]);
        assert_eq!(lift(&mut next, "am-1", 20, 1, now), 1);
        let mut released = Resolved::default();
        released.recall("default/a", &message, Some("alerts-am-1-7"), now);
        assert_eq!(lift(&mut released, "am-1", 20, 20, now), 0);
        let mut none = Resolved::default();
        for other in ["", "alerts-", "the brake holds the lifts", "alerts-am-7"] {
            none.recall("default/a", other, None, now);
        }
        assert!(!none.is_engaged());
    }
}
