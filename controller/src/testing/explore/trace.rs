//! What happened in a run.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::plan::{Fault, Point};

/// The effects, events and faults of a run, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace(Vec<Entry>);

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Virtual time since the run began.
    pub at: Duration,
    /// The number of the process; 0 is the scenario.
    pub process: usize,
    /// What it was.
    pub happened: Happened,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Happened {
    /// An incarnation of the process started.
    Started(u32),
    /// It was killed, or it ended.
    Killed,
    /// It wrote to the API server, or called the world outside.
    Effect {
        /// Which.
        point: Point,
        /// The status of the answer, or the fault.
        outcome: String,
    },
    /// A watch delivered an event.
    Seen(String),
    /// A fault of the plan.
    Fault(Fault),
    /// Nothing happened any more, and what was held went on.
    Released,
    /// A step of the scenario.
    Step(String),
    /// Nothing happens any more, and the scenario goes on.
    Rest,
}

// === impl Trace ===

impl Trace {
    pub(super) fn push(&mut self, entry: Entry) {
        self.0.push(entry);
    }

    /// All entries.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// The effects of processes, with their outcomes.
    pub fn effects(&self) -> impl Iterator<Item = (&Point, &str)> {
        self.0.iter().filter_map(|entry| match &entry.happened {
            Happened::Effect { point, outcome } if entry.process > 0 => Some((point, &**outcome)),
            _ => None,
        })
    }

    /// Whether the last thing that happened, beside what `process` has seen, is an effect of `process` at this very time.
    pub(super) fn ends_with_effect(&self, process: usize, now: Duration) -> bool {
        let seen = |entry: &&Entry| {
            entry.process == process && matches!(entry.happened, Happened::Seen(_))
        };
        let last = self.0.iter().rev().find(|entry| !seen(entry));
        last.is_some_and(|entry| {
            let effect = matches!(entry.happened, Happened::Effect { .. });
            effect && process > 0 && entry.process == process && entry.at == now
        })
    }

    /// The deletions by processes that succeeded: the number of rests before each, and the effect.
    pub(super) fn deletions(&self) -> Vec<(usize, Point)> {
        let mut deletions = Vec::new();
        let mut rests = 0;
        for entry in &self.0 {
            match &entry.happened {
                Happened::Rest => rests += 1,
                Happened::Effect { point, outcome }
                    if entry.process > 0
                        && outcome.starts_with("20")
                        && point.what.starts_with("delete ") =>
                {
                    deletions.push((rests, point.clone()));
                }
                _ => {}
            }
        }
        deletions
    }

    /// A number that is the same for equal traces.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for entry in &self.0 {
            let at = entry.at.as_secs_f64();
            let by = match entry.process {
                0 => "scenario".to_owned(),
                process => format!("P{process}"),
            };
            let what = match &entry.happened {
                Happened::Started(1) => "starts".to_owned(),
                Happened::Started(nth) => format!("starts again ({nth})"),
                Happened::Killed => "ends".to_owned(),
                Happened::Effect { point, outcome } => format!("{} -> {outcome}", point.what),
                Happened::Seen(what) => format!("sees {what}"),
                Happened::Fault(fault) => format!("FAULT {fault}"),
                Happened::Released => "nothing happens any more; what was held goes on".to_owned(),
                Happened::Step(text) => text.clone(),
                Happened::Rest => "goes on".to_owned(),
            };
            writeln!(f, "  {at:>9.3}s  {by:<8}  {what}")?;
        }
        Ok(())
    }
}
