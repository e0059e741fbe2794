//! Bugs, each as a reconciler in a wrong and in a right form.

use std::fmt::Write as _;
use std::time::Duration;

use reeve_controller::testing::explore::{Explorer, Plan, Report, World};
use serde::Serialize;

/// Explores a form: whether it is the right one, the most plans, and the plans to try first.
type Explore = Box<dyn Fn(bool, usize, Vec<Plan>) -> Report>;

/// One bug.
pub(super) struct Bug {
    /// What is wrong, in a few words.
    pub(super) name: &'static str,
    /// The bugs of Sieve's corpus that it is modelled on; empty: none.
    pub(super) like: &'static str,
    /// The kinds of faults that a plan which finds it begins with.
    finds: &'static [&'static str],
    explore: Explore,
}

/// A bug of `explorer`, which makes the right form for true.
pub(super) fn bug<S, W>(
    name: &'static str,
    like: &'static str,
    finds: &'static [&'static str],
    explorer: impl Fn(bool) -> Explorer<S> + 'static,
    scenario: W,
) -> Bug
where
    S: Default + Serialize + Send + 'static,
    W: AsyncFn(&World<S>) + 'static,
{
    let explore = Box::new(move |right, most, first| {
        let explorer = explorer(right).first(first);
        explorer
            .budget(most, Duration::from_secs(600))
            .run(&scenario)
    });
    Bug {
        name,
        like,
        finds,
        explore,
    }
}

// === impl Bug ===

impl Bug {
    /// Explores a form with at most so many plans.
    pub(super) fn explore(&self, right: bool, most: usize) -> Report {
        (self.explore)(right, most, Vec::new())
    }
}

/// The most plans that may be needed for a bug.
const MOST: usize = 400;
/// The plans that the right form of the first bug of a shape passes, and those of the others. The plan that finds the wrong
/// form is one of them. `REEVE_PLANS` sets another number for all.
const RIGHT: (usize, usize) = (12, 4);

/// Finds the wrong form of each bug, and passes its right form.
#[expect(clippy::print_stdout, reason = "docs/explore.md has these lines")]
pub(super) fn explored(shape: &str, bugs: &[Bug]) {
    let plans = std::env::var("REEVE_PLANS").ok();
    let plans: Option<usize> = plans.map(|text| text.parse().expect("REEVE_PLANS is a number"));
    let mut wrongs = String::new();
    for (n, bug) in bugs.iter().enumerate() {
        let wrong = bug.explore(false, MOST);
        let Some(found) = wrong.failures.first() else {
            let runs = wrong.runs;
            writeln!(wrongs, "{shape} {}: not found in {runs} runs", bug.name).unwrap();
            continue;
        };
        let kinds = found.plan.to_string();
        let kind = kinds.split(' ').next().unwrap_or_default();
        let like = if bug.like.is_empty() { "–" } else { bug.like };
        println!(
            "| {shape} | {} | {like} | {} | {:.2} | {} | `{}` |",
            bug.name,
            found.tried,
            wrong.took.as_secs_f64(),
            found.plan.0.len(),
            found.plan,
        );
        if !bug.finds.contains(&kind) || found.plan.0.len() > 3 {
            writeln!(
                wrongs,
                "{shape} {}: not by {:?}: {found}",
                bug.name, bug.finds
            )
            .unwrap();
        }
        let default = if n == 0 { RIGHT.0 } else { RIGHT.1 };
        let right = (bug.explore)(true, plans.unwrap_or(default), vec![found.plan.clone()]);
        if let Some(alarm) = right.failures.first() {
            writeln!(wrongs, "{shape} {}, the right form: {alarm}", bug.name).unwrap();
        }
    }
    assert!(wrongs.is_empty(), "{wrongs}");
}
