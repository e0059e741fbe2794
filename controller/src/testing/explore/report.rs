//! What an exploration found, as values and as text.

use std::fmt;
use std::time::Duration;

use super::PLAN_VARIABLE;
use super::plan::Plan;
use super::run::Wrong;
use super::trace::Trace;

/// What an exploration found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The number of runs.
    pub runs: usize,
    /// The number of different plans that were made: of one fault, of two, drawn ones and those of the test itself.
    pub plans: usize,
    /// The number of plans that were tried.
    pub tried: usize,
    /// The number of plans with a fault whose point the run did not reach, so that it did not happen.
    pub unreached: usize,
    /// The real time of all runs.
    pub took: Duration,
    /// The number of crashes that were left out, because they are the same as others.
    pub pruned: usize,
    /// What a run without faults does that goes wrong under faults or load: deletions by name alone, conflicts.
    pub notes: Vec<String>,
    /// What went wrong, each under its smallest plan. One at most, unless [`Explorer::every_failure`](super::Explorer::every_failure) is set.
    pub failures: Vec<Broken>,
}

/// A plan under which the program goes wrong.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The plan.
    pub plan: Plan,
    /// The rule that it breaks.
    pub wrong: Wrong,
    /// The number of plans that were tried, with it.
    pub tried: usize,
    /// What happened.
    pub timeline: Trace,
}

// === impl Report ===

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.runs as f64 / self.took.as_secs_f64().max(1e-9);
        let (runs, tried, plans) = (self.runs, self.tried, self.plans);
        let took = self.took.as_secs_f64();
        write!(
            f,
            "{tried} of {plans} plans in {runs} runs and {took:.1} s, {rate:.0} runs a second; "
        )?;
        if self.unreached > 0 {
            write!(
                f,
                "{} had a fault whose point was not reached; ",
                self.unreached
            )?;
        }
        if self.pruned > 0 {
            write!(f, "{} were left out as like others; ", self.pruned)?;
        }
        match self.failures.len() {
            0 => f.write_str("nothing goes wrong")?,
            count => write!(f, "{count} plans go wrong")?,
        }
        self.notes.iter().try_for_each(|note| write!(f, "; {note}"))
    }
}

// === impl Broken ===

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            plan,
            wrong,
            tried,
            timeline,
        } = self;
        writeln!(f, "plan {tried} goes wrong: {plan}")?;
        writeln!(f, "  rule:  {}", wrong.rule)?;
        writeln!(f, "  found: {}", wrong.how)?;
        write!(f, "{timeline}")?;
        write!(f, "run it again with {PLAN_VARIABLE}='{plan}'")
    }
}
