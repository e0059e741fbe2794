//! The group `regressions`: this state beside the program of an earlier one, in turn.

use serde_json::Value;

use crate::plan::Unit::{PerSecond, SecondsEach};
use crate::plan::{Case, Column, Figure, Group, Program};
use crate::run::{Cell, Results};
use crate::table;

/// A figure below this share of the earlier one fails.
const LEAST: f64 = 0.9;

const NOTES: &str = "\
A short form of the other groups with this state and an earlier one, in turn. The best round of each counts, because other load only makes a round worse. A \
scenario fails when it has less than nine tenths of the earlier rate and takes more than ten ninths of the earlier processor time. `.ci/regressions` \
gives both glibc's allocator.";

const BOTH: &[Figure] = &[
    Figure::value("rate", "rate", PerSecond),
    Figure::value("CPU of one", "cpu", SecondsEach),
];

/// The cases; the column `before` is the earlier state.
pub(crate) fn group() -> Group {
    let case = |title, scenario, count, flags| Case {
        title,
        scenario,
        count,
        flags,
        own_flags: &[],
        secured: false,
        variants: &[],
        figures: BOTH,
    };
    Group {
        title: "This state and an earlier one",
        notes: NOTES,
        server: true,
        columns: vec![
            Column::new("before", Program::Before, "ours"),
            Column::new("ours", Program::Ours, "ours"),
        ],
        cases: vec![
            case("queue, 1 + 1 threads", "wq", 500_000, &["-threads=1"]),
            case("queue, 4 + 4 threads", "wq", 500_000, &["-threads=4"]),
            case("timers", "wqdelay", 200_000, &[]),
            case("50,000 ConfigMaps listed", "sync", 50_000, &[]),
            case("20,000 Pods listed", "sync", 20_000, &["-kind=pods"]),
            case(
                "20,000 custom resources listed",
                "sync",
                20_000,
                &["-kind=ipblocks"],
            ),
            case(
                "changes of ConfigMaps",
                "steady",
                20_000,
                &["-events=100000"],
            ),
            case(
                "changes of Pods",
                "steady",
                10_000,
                &["-kind=pods", "-events=20000"],
            ),
            case(
                "2,000 changes a second",
                "latency",
                10_000,
                &["-rate=2000", "-events=6000"],
            ),
            case("reads by key", "get", 50_000, &["-threads=2", "-secs=1"]),
            case("reconciles", "ctrlcold", 10_000, &["-threads=8"]),
            case(
                "status writes",
                "ctrlwrite",
                5_000,
                &["-kind=ipblocks", "-threads=8"],
            ),
        ],
    }
}

/// The cases that got worse, a sentence each.
pub(crate) fn worse(group: &Group, results: &Results) -> Vec<String> {
    let reports = |row: usize, place: usize| match results.cells.get(&(row, place)) {
        Some(Cell::Reports(reports)) => reports.as_slice(),
        Some(Cell::Skipped) | None => &[],
    };
    let mut worse = Vec::new();
    for (row, case) in group.cases.iter().enumerate() {
        let (before, now) = (reports(row, 0), reports(row, 1));
        let (Some(rate), Some(cost)) = (
            ratio(before, now, rate_of),
            ratio(before, now, |report| Some(1.0 / cost_of(report)?)),
        ) else {
            worse.push(format!("{}: one of the two has no report", case.title));
            continue;
        };
        // These keep to a rate that was asked for.
        let paced = matches!(case.scenario, "latency" | "wqdelay");
        if cost < LEAST && (paced || rate < LEAST) {
            worse.push(format!(
                "{}: {:.0} % of the rate, {:.0} % of the processor time",
                case.title,
                rate * 100.0,
                100.0 / cost
            ));
        }
    }
    worse
}

fn rate_of(report: &Value) -> Option<f64> {
    table::number(report, "rate")
}

fn cost_of(report: &Value) -> Option<f64> {
    Some(table::number(report, "cpu")? / table::number(report, "n")?)
}

/// The best of `now` as a share of the best of `before`; more is better.
fn ratio(before: &[Value], now: &[Value], of: impl Fn(&Value) -> Option<f64>) -> Option<f64> {
    let best = |reports: &[Value]| reports.iter().filter_map(&of).reduce(f64::max);
    Some(best(now)? / best(before)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_best_rounds_are_compared() {
        let group = group();
        let report = |rate: f64, cpu: f64| json!({ "n": 1, "rate": rate, "cpu": cpu });
        let worse_of = |before: Vec<Value>, now: Vec<Value>| {
            let mut results = Results::default();
            for row in 0..group.cases.len() {
                for (place, reports) in [(0, before.clone()), (1, now.clone())] {
                    results.cells.insert((row, place), Cell::Reports(reports));
                }
            }
            worse(&group, &results)
        };
        let before = vec![report(100.0, 1.0), report(90.0, 1.1)];
        assert!(worse_of(before.clone(), vec![report(40.0, 3.0), report(95.0, 1.05)]).is_empty());
        let slower = worse_of(before.clone(), vec![report(85.0, 1.25)]);
        assert_eq!(slower.len(), group.cases.len());
        assert_eq!(
            slower[0],
            "queue, 1 + 1 threads: 85 % of the rate, 125 % of the processor time"
        );
        // Slower beside other load, with no more processor time.
        assert!(worse_of(before.clone(), vec![report(50.0, 1.0)]).is_empty());
        assert_eq!(worse_of(before, Vec::new()).len(), group.cases.len());
    }
}
