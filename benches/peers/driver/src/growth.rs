//! The group `growth`: how the cost of one object, change, read or reconcile depends on the number of objects.

use std::fmt::Write as _;

use serde_json::Value;

use crate::plan::{Case, Column, Group, Program};
use crate::run::{Cell, Results};
use crate::table::{self, Median};

/// The numbers of objects.
const SIZES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// Costs are fitted from this one of the sizes on, and drawn in relation to it or to the first one after it that is measured. Below it the
/// start of a program is most of the cost.
const BASE: usize = 1;

/// A cost: a line of the plot.
struct Cost {
    title: &'static str,
    scenario: &'static str,
    flags: &'static [&'static str],
    /// The smallest number of objects at which it can be measured.
    from: usize,
    /// The cost of one from a report, and its unit.
    of: fn(&Value) -> Option<f64>,
    unit: &'static str,
    colour: &'static str,
}

const COSTS: [Cost; 7] = [
    Cost {
        title: "list into a store, an object",
        scenario: "sync",
        flags: &[],
        from: 0,
        of: each,
        unit: "µs",
        colour: "#0b5394",
    },
    Cost {
        title: "memory, an object",
        scenario: "sync",
        flags: &[],
        from: 0,
        of: |report| table::number(report, "heap_obj"),
        unit: "bytes",
        colour: "#38761d",
    },
    Cost {
        title: "a change to a handler",
        scenario: "steady",
        flags: &["-events=100000"],
        from: 0,
        of: each,
        unit: "µs",
        colour: "#b45f06",
    },
    Cost {
        title: "list again, an object",
        scenario: "relist",
        flags: &[],
        // The difference of two times, each of which varies by more than a list of fewer objects.
        from: 100_000,
        of: |report| table::number(report, "extra.cpu_obj_us"),
        unit: "µs",
        colour: "#741b47",
    },
    Cost {
        title: "a read by key",
        scenario: "get",
        flags: &["-threads=1"],
        from: 0,
        of: each,
        unit: "µs",
        colour: "#999900",
    },
    Cost {
        title: "a list of a hundredth",
        scenario: "listns",
        flags: &[],
        from: 0,
        of: |report| Some(each(report)? / (table::number(report, "objects")? / 100.0)),
        unit: "µs an object",
        colour: "#45818e",
    },
    Cost {
        title: "a reconcile, 8 workers",
        scenario: "ctrlcold",
        flags: &["-threads=8"],
        from: 0,
        of: each,
        unit: "µs",
        colour: "#cc0000",
    },
];

const NOTES: &str = "\
Processor time of one object, change, read or reconcile of this project, in a store of 1,000 to 1,000,000 ConfigMaps of 363 bytes, and the live bytes of an \
object. *exponent* is the b of `cost of one = a × n^b`, fitted by least squares from 10,000 objects on: with 0 the whole costs n times as much, with 0.1 \
n^1.1 times. A list again is measured as the difference of two times, in which one of fewer than 100,000 objects is lost. At 1,000 objects the start of a program and its first requests count, too. Reads of a large store miss the caches of the processor.";

/// Microseconds of processor time of one.
fn each(report: &Value) -> Option<f64> {
    Some(table::number(report, "cpu")? / table::number(report, "n")? * 1e6)
}

/// Where the plot is in its picture.
const LEFT: f64 = 60.0;
const TOP: f64 = 20.0;
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 300.0;

/// Each scenario once at each size.
pub(crate) fn group() -> Group {
    let mut cases: Vec<Case> = Vec::new();
    for cost in &COSTS {
        if cases.iter().any(|case| case.scenario == cost.scenario) {
            continue;
        }
        cases.extend(SIZES.map(|count| Case {
            title: cost.scenario,
            scenario: cost.scenario,
            count,
            flags: cost.flags,
            own_flags: &[],
            secured: false,
            variants: &[],
            figures: &[],
        }));
    }
    Group {
        title: "Growth",
        notes: NOTES,
        server: true,
        columns: vec![Column::new("ours", Program::Ours, "ours")],
        cases,
    }
}

/// The medians of a cost at each size.
fn medians(group: &Group, results: &Results, cost: &Cost) -> [Option<f64>; SIZES.len()] {
    SIZES.map(|size| {
        if size < cost.from {
            return None;
        }
        let case = |case: &Case| case.scenario == cost.scenario && case.count == size;
        let row = group.cases.iter().position(case)?;
        let Some(Cell::Reports(reports)) = results.cells.get(&(row, 0)) else {
            return None;
        };
        let values = reports.iter().filter_map(|report| {
            let mut report = report.clone();
            report["objects"] = size.into();
            (cost.of)(&report)
        });
        Median::of_values(values.collect()).map(|median| median.value)
    })
}

/// The b of `y = a × x^b` by least squares; `None` for fewer than two points.
fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    let logs = points.iter().map(|(x, y)| (x.ln(), y.ln()));
    let logs: Vec<(f64, f64)> = logs
        .filter(|(x, y)| x.is_finite() && y.is_finite())
        .collect();
    let count = logs.len() as f64;
    let (x, y) = logs
        .iter()
        .fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
    let (x, y) = (x / count, y / count);
    let covariance: f64 = logs.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let variance: f64 = logs.iter().map(|point| (point.0 - x).powi(2)).sum();
    (logs.len() > 1).then_some(covariance / variance)
}

/// The points of a line from the base on.
fn fitted(values: &[Option<f64>]) -> Option<f64> {
    let points = SIZES.iter().zip(values).skip(BASE);
    let points = points.filter_map(|(size, value)| Some((*size as f64, (*value)?)));
    exponent(&points.collect::<Vec<_>>())
}

/// The table with its picture, in Markdown.
pub(crate) fn render(group: &Group, results: &Results, circumstances: &str) -> String {
    let mut text = format!(
        "# {}\n\n{circumstances}\n\n{}\n\n![Cost of one in relation to 10,000 objects](pictures/growth.svg)\n\n",
        group.title, group.notes
    );
    text.push_str(
        "| | 1,000 | 10,000 | 100,000 | 1,000,000 | exponent |\n|---|---|---|---|---|---|\n",
    );
    for cost in &COSTS {
        let values = medians(group, results, cost);
        let _ = write!(text, "| {}, {} |", cost.title, cost.unit);
        for value in values {
            let value = value.map_or_else(|| "–".to_owned(), table::digits);
            let _ = write!(text, " {value} |");
        }
        let exponent = fitted(&values).map_or_else(|| "–".to_owned(), |b| format!("{b:.2}"));
        let _ = writeln!(text, " {exponent} |");
    }
    text
}

/// The picture: both axes are logarithmic.
pub(crate) fn svg(group: &Group, results: &Results) -> String {
    // From a quarter to eight times the cost at the base.
    let across = |size: f64| LEFT + (size.log10() - 3.0) / 3.0 * WIDTH;
    let down = |ratio: f64| TOP + (3.0 - ratio.log2().clamp(-2.0, 3.0)) / 5.0 * HEIGHT;
    let mut text = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 370\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>Cost of one in relation to 10,000 objects</title>\n<rect width=\"760\" height=\"370\" fill=\"#fff\"/>\n",
    );
    for (size, label) in SIZES
        .iter()
        .zip(["1,000", "10,000", "100,000", "1,000,000"])
    {
        let x = across(*size as f64);
        let (bottom, below) = (TOP + HEIGHT, TOP + HEIGHT + 18.0);
        let _ = writeln!(
            text,
            "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#ddd\"/><text x=\"{x:.1}\" y=\"{below}\" text-anchor=\"middle\">{label}</text>"
        );
    }
    for (ratio, label) in [
        (0.25, "¼×"),
        (0.5, "½×"),
        (1.0, "1×"),
        (2.0, "2×"),
        (4.0, "4×"),
        (8.0, "8×"),
    ] {
        let (y, right) = (down(ratio), LEFT + WIDTH);
        let (before, lower) = (LEFT - 8.0, y + 4.0);
        let _ = writeln!(
            text,
            "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/><text x=\"{before}\" y=\"{lower:.1}\" text-anchor=\"end\">{label}</text>"
        );
    }
    let (middle, bottom) = (LEFT + WIDTH / 2.0, TOP + HEIGHT + 40.0);
    let _ = writeln!(
        text,
        "<text x=\"{middle}\" y=\"{bottom}\" text-anchor=\"middle\">objects in the store</text>"
    );
    for (place, cost) in COSTS.iter().enumerate() {
        let values = medians(group, results, cost);
        let (x, y) = (LEFT + WIDTH + 20.0, TOP + 20.0 + place as f64 * 26.0);
        let (line, lower, label) = (x + 22.0, y + 4.0, x + 30.0);
        let power = fitted(&values).map_or_else(String::new, |b| format!(", n^{b:.2}"));
        let _ = writeln!(
            text,
            "<path d=\"M{x} {y}H{line}\" stroke=\"{0}\" stroke-width=\"3\"/><text x=\"{label}\" y=\"{lower}\">{1}{power}</text>",
            cost.colour, cost.title
        );
        let Some(base) = values[BASE..].iter().flatten().next() else {
            continue;
        };
        let points = SIZES.iter().zip(values);
        let points = points.filter_map(|(size, value)| {
            Some(format!(
                "{:.1},{:.1}",
                across(*size as f64),
                down(value? / base)
            ))
        });
        let points = points.collect::<Vec<_>>().join(" ");
        let _ = writeln!(
            text,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>",
            cost.colour
        );
    }
    text.push_str("</svg>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Reports in which the cost of one is `cost` of the size.
    fn results(group: &Group, cost: fn(f64) -> f64) -> Results {
        let mut results = Results::default();
        for (row, case) in group.cases.iter().enumerate() {
            let size = case.count as f64;
            let report = json!({ "n": 10, "cpu": cost(size) * 10.0, "heap_obj": cost(size), "extra": { "cpu_obj_us": cost(size) } });
            results.cells.insert((row, 0), Cell::Reports(vec![report]));
        }
        results
    }

    #[test]
    fn the_exponent_is_that_of_the_cost_of_one() {
        let group = group();
        for (cost, expected) in [(|_| 3.0, "| 0.00 |"), (|size: f64| size.sqrt(), "| 0.50 |")]
            as [(fn(f64) -> f64, &str); 2]
        {
            let text = render(&group, &results(&group, cost), "");
            let line = text.lines().find(|line| line.starts_with("| memory"));
            assert!(line.unwrap().ends_with(expected), "{text}");
        }
        assert_eq!(exponent(&[(1.0, 1.0)]), None);
    }

    #[test]
    fn a_cost_without_reports_has_no_line() {
        let group = group();
        let drawn = svg(&group, &results(&group, |_| 2.0));
        assert_eq!(drawn.matches("<polyline").count(), COSTS.len());
        // Twice as high as the next line of the grid, so at 1×.
        assert!(drawn.contains("200.0,200.0"), "{drawn}");
        let none = svg(&group, &Results::default());
        assert_eq!(none.matches("<polyline").count(), 0);
    }
}
