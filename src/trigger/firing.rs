//! The alerts that keep a ban: which fire, and when a resolved one lifts it. Pure.
//!
//! A trigger with `resolved: lift` records the alerts of a ban in an annotation of its block. An alert that is resolved
//! is removed, and the last one lifts the ban. Precisely, a resolved alert lifts a ban only if
//!
//! * a trigger with `resolved: lift` made this very ban, and the alert is one of that trigger,
//! * no other alert that was received for the address is still firing, of whichever trigger,
//! * `spec.duration` is as the triggers wrote it: an edited ban is the editor's,
//! * no other tool keeps the block (`kubectl apply`, Argo CD, Helm, an owner).
//!
//! The lift is an end of the ban's duration, not `spec.unblock`: the next alert bans at once, without a grace.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::{ALERTS, IPBlock, IPBlockStatus, Phase};
use crate::duration;

/// Alerts that are recorded; with more the ban is not lifted before its end.
const MOST: usize = 32;

/// The content of the annotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Firing {
    /// The trigger that made the ban.
    trigger: String,
    /// Which ban of the block it is: 1 is the first.
    ban: i64,
    /// `spec.duration` as it was written.
    duration: String,
    /// `trigger/fingerprint` of each alert that fires.
    alerts: BTreeSet<String>,
    /// There were more alerts than are recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    more: bool,
}

/// What a resolved alert changes about a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing.
    LeaveAlone,
    /// Other alerts fire: these are the ones.
    Forget(Firing),
    /// The ban ends now: this is the new `spec.duration`.
    Lift(String),
}

// === impl Firing ===

impl Firing {
    /// The record of a ban that `trigger` makes for `duration`, because of `alert`.
    pub(super) fn new(trigger: &str, ban: i64, duration: &str, alert: &str) -> Self {
        Self {
            trigger: trigger.to_owned(),
            ban,
            duration: duration.to_owned(),
            alerts: BTreeSet::from([mark(trigger, alert)]),
            more: false,
        }
    }

    /// The record on `block`, if the ban that it is about stands or comes about.
    pub(super) fn of(block: &IPBlock) -> Option<Self> {
        let firing: Self = serde_json::from_str(block.annotation(ALERTS)?).ok()?;
        let status = block.status.as_ref();
        let (bans, phase) = status.map_or((0, None), |it| (it.bans(), it.phase.as_ref()));
        let counted = match phase {
            Some(Phase::Active) if bans == firing.ban => true,
            // The ban that is asked for is not counted yet.
            Some(Phase::Active) => bans + 1 == firing.ban && asked(block),
            _ => {
                bans + 1 == firing.ban
                    && (!status.is_some_and(IPBlockStatus::is_over) || asked(block))
            }
        };
        counted.then_some(firing)
    }

    /// Adds `alert` of `trigger`, and the duration that is written with it. Whether that changes anything.
    pub(super) fn add(&mut self, trigger: &str, alert: &str, duration: Option<&str>) -> bool {
        let before = self.clone();
        if let Some(duration) = duration {
            duration.clone_into(&mut self.duration);
        }
        let mark = mark(trigger, alert);
        if self.alerts.len() < MOST {
            self.alerts.insert(mark);
        } else if !self.alerts.contains(&mark) {
            self.more = true;
        }
        *self != before
    }

    /// Whether `alert` of `trigger` fires.
    pub(super) fn has(&self, trigger: &str, alert: &str) -> bool {
        self.alerts.contains(&mark(trigger, alert))
    }

    /// The text of the annotation.
    pub(super) fn text(&self) -> String {
        // Texts and numbers always have a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The change that the end of `alert`, of `trigger`, makes to `block`.
pub(super) fn resolve(block: &IPBlock, trigger: &str, alert: &str, now: Timestamp) -> Change {
    let Some(mut firing) = Firing::of(block) else {
        return Change::LeaveAlone;
    };
    if block.is_kept_elsewhere() || block.spec.unblock == Some(true) {
        return Change::LeaveAlone;
    }
    let removed = firing.alerts.remove(&mark(trigger, alert));
    // Only the trigger that made the ban lifts it.
    if firing.trigger != trigger || !firing.alerts.is_empty() || firing.more {
        return if removed {
            Change::Forget(firing)
        } else {
            Change::LeaveAlone
        };
    }
    let present = block.spec.duration.as_deref().map(duration::parse);
    let written = duration::parse(&firing.duration);
    if !removed || present.as_ref() != Some(&written) {
        return Change::LeaveAlone;
    }
    let status = block.status.as_ref();
    let began = status
        .filter(|status| status.is(&Phase::Active))
        .and_then(IPBlockStatus::blocked_at);
    // A ban that does not stand yet ends right after it does.
    let passed = began.map_or(1, |began| now.duration_since(began).as_secs());
    // The ban may last longer than was written. The same duration would be the same request, and change nothing.
    let same = |passed: i64| {
        let passed = u64::try_from(passed).map(Duration::from_secs);
        passed.ok() == written.ok()
    };
    let ended = if same(passed) { passed - 1 } else { passed };
    Change::Lift(format!("{}s", ended.max(1)))
}

/// Whether a ban is asked for or begun that is not made yet.
fn asked(block: &IPBlock) -> bool {
    block.spec.trigger == Some(true) || block.has_begun_ban()
}

fn mark(trigger: &str, alert: &str) -> String {
    format!("{trigger}/{alert}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{IPBlockSpec, IPBlockStatus, write_time};

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    /// Banned by `am` for an hour, ten minutes ago, because of the alert `one`.
    fn banned() -> IPBlock {
        let spec = IPBlockSpec {
            duration: Some("1h".into()),
            ..IPBlockSpec::default()
        };
        let mut block = IPBlock::new("a", spec);
        keep(&mut block, &Firing::new("am", 1, "1h", "one"));
        let began = now() - jiff::SignedDuration::from_mins(10);
        block.status = Some(IPBlockStatus {
            phase: Some(Phase::Active),
            ban_count: Some(1),
            blocked_at: Some(write_time(began)),
            ..IPBlockStatus::default()
        });
        block
    }

    fn keep(block: &mut IPBlock, firing: &Firing) {
        let annotations = block.metadata.annotations.get_or_insert_default();
        annotations.insert(ALERTS.into(), firing.text());
    }

    fn status(block: &mut IPBlock) -> &mut IPBlockStatus {
        block.status.as_mut().unwrap()
    }

    #[test]
    fn the_last_resolved_alert_ends_the_duration_now() {
        let block = banned();
        let lift = Change::Lift("600s".into());
        assert_eq!(resolve(&block, "am", "one", now()), lift);
        assert_eq!(resolve(&block, "am", "two", now()), Change::LeaveAlone);
        assert_eq!(resolve(&block, "other", "one", now()), Change::LeaveAlone);
        let before = now() - jiff::SignedDuration::from_hours(1);
        let skewed = resolve(&block, "am", "one", before);
        assert_eq!(
            skewed,
            Change::Lift("1s".into()),
            "a duration is not negative"
        );
    }

    #[test]
    fn a_ban_that_has_lasted_as_long_as_was_written_is_ended_by_another_duration() {
        let mut block = banned();
        keep(&mut block, &Firing::new("am", 1, "10m", "one"));
        block.spec.duration = Some("10m".into());
        let lift = Change::Lift("599s".into());
        assert_eq!(resolve(&block, "am", "one", now()), lift);
    }

    #[test]
    fn another_alert_that_fires_keeps_the_ban_whichever_trigger_sent_it() {
        let mut block = banned();
        let mut firing = Firing::of(&block).unwrap();
        assert!(firing.add("grafana", "g", None));
        assert!(!firing.add("grafana", "g", None), "known already");
        keep(&mut block, &firing);
        let Change::Forget(left) = resolve(&block, "am", "one", now()) else {
            panic!("the alert of grafana fires");
        };
        assert_eq!(left.alerts, BTreeSet::from(["grafana/g".to_owned()]));
        keep(&mut block, &left);
        assert_eq!(resolve(&block, "am", "one", now()), Change::LeaveAlone);
    }

    #[test]
    fn an_alert_of_another_trigger_that_is_over_holds_the_ban_no_longer() {
        let mut block = banned();
        let mut firing = Firing::of(&block).unwrap();
        firing.add("grafana", "g", None);
        keep(&mut block, &firing);
        let Change::Forget(left) = resolve(&block, "grafana", "g", now()) else {
            panic!("it is forgotten");
        };
        keep(&mut block, &left);
        assert!(!left.has("grafana", "g"));
        let lifted = resolve(&block, "am", "one", now());
        assert!(matches!(lifted, Change::Lift(_)), "{lifted:?}");
    }

    #[test]
    fn a_ban_that_people_made_or_changed_is_theirs() {
        let leave = |name: &str, change: &dyn Fn(&mut IPBlock)| {
            let mut block = banned();
            change(&mut block);
            let resolved = resolve(&block, "am", "one", now());
            assert_eq!(resolved, Change::LeaveAlone, "{name}");
        };
        leave("by hand", &|block| block.metadata.annotations = None);
        leave("edited", &|block| block.spec.duration = Some("2h".into()));
        leave("edited away", &|block| block.spec.duration = None);
        leave("banned again", &|block| status(block).ban_count = Some(2));
        leave("over", &|block| status(block).phase = Some(Phase::Expired));
        leave("unblocked", &|block| block.spec.unblock = Some(true));
        leave("kept elsewhere", &|block| {
            let labels = block.metadata.labels.get_or_insert_default();
            labels.insert("argocd.argoproj.io/instance".into(), "x".into());
        });
        leave("unreadable", &|block| {
            let annotations = block.metadata.annotations.get_or_insert_default();
            annotations.insert(ALERTS.into(), "{".into());
        });
        let mut same = banned();
        same.spec.duration = Some("60m".into());
        assert!(matches!(
            resolve(&same, "am", "one", now()),
            Change::Lift(_)
        ));
    }

    #[test]
    fn a_ban_that_does_not_stand_yet_is_lifted_too() {
        let mut block = banned();
        for phase in [None, Some(Phase::Pending)] {
            status(&mut block).phase = phase;
            status(&mut block).ban_count = None;
            let lift = Change::Lift("1s".into());
            assert_eq!(resolve(&block, "am", "one", now()), lift);
        }
        // Asked again after an earlier ban.
        keep(&mut block, &Firing::new("am", 2, "1h", "one"));
        status(&mut block).phase = Some(Phase::Expired);
        status(&mut block).ban_count = Some(1);
        assert_eq!(resolve(&block, "am", "one", now()), Change::LeaveAlone);
        block.spec.trigger = Some(true);
        assert!(matches!(
            resolve(&block, "am", "one", now()),
            Change::Lift(_)
        ));
        // The reconciler has taken the trigger, and waits for the gateway.
        block.spec.trigger = Some(false);
        let place = crate::api::Place::new("xdp", "192.0.2.250:8080");
        let begun = crate::api::Intent::new("192.0.2.7".parse().unwrap(), place, 2);
        let annotations = block.metadata.annotations.get_or_insert_default();
        annotations.insert(crate::api::INTENT.into(), begun.to_string());
        let lift = Change::Lift("1s".into());
        assert_eq!(resolve(&block, "am", "one", now()), lift);
    }

    #[test]
    fn with_more_alerts_than_are_recorded_the_ban_runs_to_its_end() {
        let mut block = banned();
        let mut firing = Firing::of(&block).unwrap();
        for number in 0..MOST {
            firing.add("am", &number.to_string(), None);
        }
        assert!(firing.more && firing.alerts.len() == MOST);
        for number in 0..MOST {
            keep(&mut block, &firing);
            if let Change::Forget(left) = resolve(&block, "am", &number.to_string(), now()) {
                firing = left;
            }
        }
        keep(&mut block, &firing);
        assert!(matches!(
            resolve(&block, "am", "one", now()),
            Change::Forget(_)
        ));
    }
}
