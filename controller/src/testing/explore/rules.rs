//! Rules about what happens in a run.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::run::Wrong;
use super::trace::{Happened, Trace};

/// What an effect does once; `None` of all others.
type Once = Box<dyn Fn(&str) -> Option<String>>;

/// Those of one exploration.
#[derive(Default)]
pub(super) struct Rules {
    /// What happens once at most, by the name of the rule.
    pub(super) once: Vec<(String, Once)>,
    /// The most conflicts of a run.
    pub(super) conflicts: Option<usize>,
    /// The longest time to the last effect.
    pub(super) within: Option<Duration>,
}

// === impl Rules ===

impl Rules {
    /// The first rule that a run breaks.
    pub(super) fn broken(&self, trace: &Trace) -> Option<Wrong> {
        let twice = || self.twice(trace);
        let conflicts = || self.conflicts(trace);
        twice().or_else(conflicts).or_else(|| self.late(trace))
    }

    fn twice(&self, trace: &Trace) -> Option<Wrong> {
        self.once.iter().find_map(|(rule, key)| {
            let mut seen = BTreeSet::new();
            let mut applied = trace
                .effects()
                .filter(|(_, outcome)| is_applied(outcome))
                .filter_map(|(point, _)| key(&point.what));
            let twice = applied.find(|key| !seen.insert(key.clone()))?;
            Some(Wrong {
                rule: rule.clone(),
                how: format!("{twice} happened twice"),
            })
        })
    }

    fn conflicts(&self, trace: &Trace) -> Option<Wrong> {
        let most = self.conflicts?;
        let met = trace.effects().filter(|(point, outcome)| {
            outcome.starts_with("409") && !point.what.starts_with("create ")
        });
        let met = met.count();
        (met > most).then(|| Wrong {
            rule: format!("a run meets at most {most} conflicts"),
            how: format!("it met {met}"),
        })
    }

    /// Finds an effect that is too late after the last step or fault.
    fn late(&self, trace: &Trace) -> Option<Wrong> {
        let within = self.within?;
        let mut since = Duration::ZERO;
        for entry in trace.entries() {
            match &entry.happened {
                Happened::Effect { point, .. } if entry.process > 0 => {
                    let took = entry.at.saturating_sub(since);
                    if took > within {
                        return Some(Wrong {
                            rule: format!("all is done within {within:?}"),
                            how: format!("{point} came after {took:?}"),
                        });
                    }
                }
                Happened::Effect { .. }
                | Happened::Fault(_)
                | Happened::Released
                | Happened::Started(_)
                | Happened::Rest
                | Happened::Step(_) => since = entry.at,
                Happened::Seen(_) | Happened::Killed => {}
            }
        }
        None
    }
}

/// Whether an effect with this outcome took place.
fn is_applied(outcome: &str) -> bool {
    outcome.starts_with("20") || outcome.starts_with("done")
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").finish_non_exhaustive()
    }
}
