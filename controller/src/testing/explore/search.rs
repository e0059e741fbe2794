//! The plans that are tried.

use std::collections::BTreeSet;

use reeve_clock::Random;

use super::plan::{Counts, Fault, Plan, Point};
use super::trace::{Happened, Trace};

/// Plans with one fault each, for the effects and events of `trace`. A crash before one of `follow` is left out: the one after
/// the effect before is the same.
pub(super) fn singles(trace: &Trace, follow: &BTreeSet<Point>, processes: usize) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (point, _) in trace.effects() {
        let at = || point.clone();
        faults.push(Fault::CrashAfter(at()));
        if !follow.contains(point) {
            faults.push(Fault::CrashBefore(at()));
        }
        faults.push(Fault::Lose(at()));
        faults.push(Fault::Refuse(at()));
        if processes > 1 {
            faults.push(Fault::Late(at()));
            faults.push(Fault::LateOn(at()));
        }
    }
    let (own, foreign) = events(trace);
    for point in foreign.iter().chain(&own) {
        faults.push(Fault::Hold(point.clone()));
        faults.push(Fault::HoldOn(point.clone()));
    }
    faults.extend(stale(trace));
    faults
}

/// A clock that is set at each effect.
pub(super) fn jumps(trace: &Trace) -> impl Iterator<Item = Fault> {
    let points = trace.effects().map(|(point, _)| point.clone());
    points.flat_map(|point| [Fault::Ahead(point.clone()), Fault::Back(point)])
}

/// The plans of an exploration, each once: a plan is the same in each order of its faults.
#[derive(Debug, Default)]
pub(super) struct Plans {
    all: Vec<Plan>,
    known: BTreeSet<Vec<Fault>>,
}

/// Draws plans of two faults or more at random.
#[derive(Debug)]
pub(super) struct Drawn {
    faults: Vec<Fault>,
    left: u64,
    seed: u64,
}

/// So many draws in a row without a new plan end the drawing: few plans are left, or none.
const DRAWS: usize = 1_000;

// === impl Plans ===

impl Plans {
    /// Adds a plan. False if it is known.
    pub(super) fn add(&mut self, plan: Plan) -> bool {
        let mut faults = plan.0.clone();
        faults.sort();
        let new = self.known.insert(faults);
        if new {
            self.all.push(plan);
        }
        new
    }

    pub(super) fn get(&self, nth: usize) -> Option<&Plan> {
        self.all.get(nth)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}

// === impl Drawn ===

impl Drawn {
    /// Draws up to `plans` plans of `faults`.
    pub(super) fn new(faults: Vec<Fault>, plans: u64) -> Self {
        Self {
            faults,
            left: plans,
            seed: 0,
        }
    }

    /// Adds a new plan. False if none is left.
    pub(super) fn add_to(&mut self, plans: &mut Plans) -> bool {
        let Some(left) = self.left.checked_sub(1) else {
            return false;
        };
        self.left = left;
        (0..DRAWS).any(|_| {
            let plan = draw(&self.faults, self.seed);
            self.seed += 1;
            plan.0.len() > 1 && plans.add(plan)
        })
    }
}

/// At most four of `faults`, drawn by `seed`. Some kinds of faults are left out: what one of them hides, others find.
fn draw(faults: &[Fault], seed: u64) -> Plan {
    let random = Random::seeded(seed);
    let kinds: BTreeSet<&str> = faults.iter().map(Fault::kind).collect();
    let kept: BTreeSet<&str> = kinds.into_iter().filter(|_| random.below(2) > 0).collect();
    let mut left: Vec<&Fault> = faults
        .iter()
        .filter(|fault| kept.contains(fault.kind()))
        .collect();
    let mut plan = Plan::default();
    let count = 2 + random.below(3);
    while (plan.0.len() as u64) < count && !left.is_empty() {
        let next = left.swap_remove(random.below(left.len() as u64) as usize);
        left.retain(|fault| fault.at() != next.at());
        plan = plan.and(next.clone());
    }
    plan
}

/// The same faults in another order: each prefix has some of all parts.
pub(super) fn spread(faults: Vec<Fault>) -> Vec<Fault> {
    let count = faults.len();
    // The part of the golden ratio leaves the most even gaps, however many steps are made.
    let golden = (count as f64 * 0.618).round() as usize;
    let step = (golden.max(1)..).find(|step| gcd(*step, count) == 1);
    let step = step.unwrap_or(1);
    (0..count)
        .map(|nth| faults[nth * step % count].clone())
        .collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The events of a trace: those of what processes wrote, and those of what others wrote.
fn events(trace: &Trace) -> (Vec<Point>, Vec<Point>) {
    let written: BTreeSet<String> = trace
        .effects()
        .map(|(effect, _)| about(&effect.what).replace("/status ", " "))
        .collect();
    let (mut own, mut foreign) = (Vec::new(), Vec::new());
    let mut counts = Counts::default();
    for entry in trace.entries() {
        if let Happened::Seen(what) = &entry.happened {
            let point = counts.next(entry.process, what);
            let events = if written.contains(about(what)) {
                &mut own
            } else {
                &mut foreign
            };
            events.push(point);
        }
    }
    (own, foreign)
}

/// `pods default/a` of `modified pods default/a`.
fn about(what: &str) -> &str {
    what.split_once(' ').map_or("", |(_, about)| about)
}

/// A restart after an effect that reads the state before an earlier event.
fn stale(trace: &Trace) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut seen: Vec<Point> = Vec::new();
    let mut counts = Counts::default();
    for entry in trace.entries() {
        match &entry.happened {
            Happened::Seen(what) => seen.push(counts.next(entry.process, what)),
            Happened::Effect { point, outcome } if entry.process > 0 => {
                // What did not change the server is in no later state of it.
                if outcome.starts_with("20") {
                    faults.push(Fault::Behind(point.clone()));
                }
                // The last ones first: a server is seldom far behind.
                let earlier = seen
                    .iter()
                    .rev()
                    .filter(|event| event.process == entry.process);
                faults.extend(earlier.take(LOOK_BACK).map(|before| Fault::Stale {
                    after: point.clone(),
                    before: before.clone(),
                }));
            }
            _ => {}
        }
    }
    faults
}

/// The number of events before an effect that a restart may not have seen.
const LOOK_BACK: usize = 12;

/// The number of times that a process does the same thing after a fault before that is a retry as those before.
const RETRIES: u32 = 3;

/// Second faults for a plan, within the effects that follow its fault in `trace`.
pub(super) fn seconds(plan: &Plan, trace: &Trace) -> Vec<Plan> {
    let entries = trace.entries();
    let first = entries
        .iter()
        .position(|entry| matches!(entry.happened, Happened::Fault(_)));
    let Some(first) = first else {
        return Vec::new();
    };
    let mut plans = Vec::new();
    let mut seen = BTreeSet::new();
    let mut counts = Counts::default();
    for entry in &entries[first..] {
        let Happened::Effect { point, .. } = &entry.happened else {
            continue;
        };
        if entry.process == 0
            || counts.next(entry.process, &point.what).nth > RETRIES
            || plan.0.iter().any(|fault| fault.at() == point)
            || !seen.insert(point)
        {
            continue;
        }
        for fault in [Fault::CrashAfter(point.clone()), Fault::Lose(point.clone())] {
            plans.push(plan.and(fault));
        }
    }
    plans
}

/// The smallest part of `plan` that still fails.
pub(super) fn shrink(plan: &Plan, fails: impl Fn(&Plan) -> bool) -> Plan {
    let mut smallest = plan.clone();
    let mut n = 0;
    while n < smallest.0.len() && smallest.0.len() > 1 {
        let less = smallest.without(n);
        if fails(&less) {
            smallest = less;
            n = 0;
        } else {
            n += 1;
        }
    }
    smallest
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::trace::Entry;
    use super::*;

    #[test]
    fn faults_are_spread_over_the_run_and_none_is_left_out() {
        for count in 0..40u32 {
            let fault = |nth| format!("lose P1 a {nth}").parse::<Fault>().unwrap();
            let faults: Vec<Fault> = (0..count).map(fault).collect();
            let mut spread = spread(faults.clone());
            if count >= 9 {
                let thirds = spread
                    .iter()
                    .take(4)
                    .map(|fault| fault.at().nth * 3 / count);
                assert_eq!(thirds.collect::<BTreeSet<u32>>().len(), 3, "{count}");
            }
            spread.sort();
            let mut all = faults;
            all.sort();
            assert_eq!(spread, all, "{count}");
        }
    }

    #[test]
    fn plans_that_are_drawn_are_new_and_have_faults_at_different_points() {
        let fault = |nth: u32| ["lose", "refuse", "back"].map(|kind| format!("{kind} P1 a {nth}"));
        let faults: Vec<Fault> = (1..10)
            .flat_map(fault)
            .map(|text| text.parse().unwrap())
            .collect();
        let all = |known: &[Plan]| -> Vec<Plan> {
            let (mut plans, mut drawn) = (Plans::default(), Drawn::new(faults.clone(), 300));
            for plan in known {
                assert!(plans.add(plan.clone()));
            }
            while drawn.add_to(&mut plans) {}
            plans.all.split_off(known.len())
        };
        let plans = all(&[]);
        assert_eq!(plans.len(), 300);
        let mut known = BTreeSet::new();
        for plan in &plans {
            let points: BTreeSet<&Point> = plan.0.iter().map(Fault::at).collect();
            assert_eq!(points.len(), plan.0.len(), "{plan}");
            assert!((2..=4).contains(&plan.0.len()), "{plan}");
            let faults: BTreeSet<&Fault> = plan.0.iter().collect();
            assert!(known.insert(faults), "{plan} was drawn twice");
        }
        for count in 2..=4 {
            assert!(plans.iter().any(|plan| plan.0.len() == count), "{count}");
        }
        assert_eq!(all(&[]), plans);
        let other_order = Plan(plans[3].0.iter().rev().cloned().collect());
        let others = all(&[other_order]);
        assert_eq!((&others[..3], &others[3..299]), (&plans[..3], &plans[4..]));
        assert!(!plans.contains(&others[299]));
    }

    #[test]
    fn drawing_ends_where_no_plan_is_left() {
        let of = |texts: &[&str]| {
            let faults = texts.iter().map(|text| text.parse().unwrap()).collect();
            let (mut plans, mut drawn) = (Plans::default(), Drawn::new(faults, u64::MAX));
            while drawn.add_to(&mut plans) {}
            plans.len()
        };
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&["lose P1 a 1"]), 0);
        assert_eq!(of(&["lose P1 a 1", "refuse P1 a 1"]), 0);
        // Three of two faults, and the one of all three.
        assert_eq!(of(&["lose P1 a 1", "lose P1 a 2", "refuse P1 a 3"]), 4);
    }

    #[test]
    fn a_retry_that_is_as_those_before_gets_no_second_fault() {
        let first: Plan = "lose P1 create secrets default/a 1".parse().unwrap();
        let mut trace = Trace::default();
        let mut counts = Counts::default();
        let mut push = |happened| {
            trace.push(Entry {
                at: Duration::ZERO,
                process: 1,
                happened,
            });
        };
        push(Happened::Fault(first.0[0].clone()));
        for what in ["create secrets default/a"; 9].iter().chain(&["call ban"]) {
            let point = counts.next(1, what);
            let outcome = "409".to_owned();
            push(Happened::Effect { point, outcome });
        }
        let plans = seconds(&first, &trace);
        let points: Vec<String> = plans
            .iter()
            .map(|plan| plan.0[1].at().to_string())
            .collect();
        let expected = [
            "P1 create secrets default/a 2",
            "P1 create secrets default/a 3",
            "P1 call ban 1",
        ];
        assert_eq!(points, expected.map(|point| [point; 2]).concat());
    }

    #[test]
    fn a_plan_shrinks_to_the_faults_that_matter() {
        let plan: Plan = "lose P1 a 1; refuse P1 b 1; crash-after P1 c 1; lose P1 d 1"
            .parse()
            .unwrap();
        let fails = |plan: &Plan| plan.to_string().contains("P1 c");
        assert_eq!(shrink(&plan, fails).to_string(), "crash-after P1 c 1");
        let both =
            |plan: &Plan| plan.to_string().contains("P1 a") && plan.to_string().contains("P1 d");
        assert_eq!(shrink(&plan, both).to_string(), "lose P1 a 1; lose P1 d 1");
    }
}
