//! The brakes that are engaged, as Events of the ConfigMap report them.

use crate::guard::brake;

/// A brake that is engaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Engaged {
    /// The reason of its Event.
    pub(super) reason: &'static str,
    /// The trigger or the source; empty for the brakes of the whole operator.
    subject: String,
    /// What it holds, and the text that releases it.
    pub(super) note: String,
}

// === impl Engaged ===

impl Engaged {
    pub(super) fn new(reason: &'static str, subject: &str, note: String) -> Self {
        Self {
            reason,
            subject: subject.to_owned(),
            note,
        }
    }

    /// Whether `other` is the same brake. It may hold more by now.
    pub(super) fn is(&self, other: &Self) -> bool {
        (self.reason, &self.subject) == (other.reason, &other.subject)
    }

    /// The reason and the note of the Event for its end. `annotation` is the one of the ConfigMap that releases brakes.
    pub(super) fn ended(&self, annotation: Option<&str>) -> (&'static str, String) {
        let mut words = self.note.split([' ', ',']);
        let released = words.any(|word| !word.is_empty() && brake::releases(annotation, word));
        let mut what = self.reason.to_owned();
        if !self.subject.is_empty() {
            what.push_str(&format!(", {}", self.subject));
        }
        if released {
            return ("BrakeReleased", format!("the brake is released ({what})"));
        }
        let note = format!("the brake has ended without a release ({what})");
        ("BrakeEnded", note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::configuration::memory::Memory;

    fn of(trigger: &str, id: &str) -> Engaged {
        let note = format!("the brake holds the lifts of {trigger}: set the annotation to {id}");
        Engaged::new("ResolvedLiftsBraked", trigger, note)
    }

    #[test]
    fn the_end_of_one_of_two_brakes_is_reported() {
        let mut memory = Memory::default();
        let (am, grafana) = (of("am", "alerts-am-7"), of("grafana", "alerts-grafana-8"));
        let both = vec![am.clone(), grafana.clone()];
        assert_eq!(memory.brakes_changed(both.clone()), (both.clone(), vec![]));
        assert_eq!(memory.brakes_changed(both), (vec![], vec![]));
        let left = vec![grafana.clone()];
        assert_eq!(memory.brakes_changed(left), (vec![], vec![am]));
        // It holds more, and is still the same brake.
        let more = of("grafana", "alerts-grafana-9");
        let changed = memory.brakes_changed(vec![more.clone()]);
        assert_eq!(changed, (vec![more.clone()], vec![]));
        assert_eq!(memory.brakes_changed(vec![]), (vec![], vec![more]));
    }

    #[test]
    fn a_brake_that_ends_by_itself_is_not_reported_as_released() {
        let am = of("am", "alerts-am-7");
        for (annotation, reason) in [
            (None, "BrakeEnded"),
            (Some(""), "BrakeEnded"),
            (Some("alerts-am-6"), "BrakeEnded"),
            (Some("alerts-am-7"), "BrakeReleased"),
            (Some("other, alerts-am-7"), "BrakeReleased"),
        ] {
            let (given, note) = am.ended(annotation);
            assert_eq!(given, reason, "{annotation:?}");
            assert!(note.ends_with("(ResolvedLiftsBraked, am)"), "{note}");
        }
        let bans = "set the annotation to bans-7, or raise bansPerMinute".to_owned();
        let bans = Engaged::new("BansBraked", "", bans);
        assert_eq!(bans.ended(Some("bans-7")).0, "BrakeReleased");
    }
}
