//! The table: a row a figure, a column a peer.

use serde_json::Value;

use crate::plan::{Column, Figure, Group, Unit};
use crate::run::{Cell, Results};

/// The median of several runs, and their spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Median {
    pub(crate) value: f64,
    /// Half the distance between the smallest and the largest, as a share of the median.
    pub(crate) spread: f64,
}

/// The whole text, in Markdown.
pub(crate) fn render(group: &Group, results: &Results, circumstances: &str) -> String {
    let mut text = format!("# {}, side by side\n\n{circumstances}\n\n", group.title);
    text.push_str(
        "`±` is half the distance between the smallest and the largest round, as a share of the median. \
         `n×` is how many times better ours is: more of a rate, less of a cost. `–`: the peer does not have the feature, or was not run.\n\n",
    );
    text.push_str(group.notes);
    text.push_str("\n\n| |");
    for column in &group.columns {
        text.push_str(&format!(" {} |", emphasize(column, column.name)));
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(group.columns.len()));
    text.push('\n');
    for (row, case) in group.cases.iter().enumerate() {
        for figure in case.figures {
            text.push_str(&format!("| {}: {} |", case.title, figure.title()));
            for (place, column) in group.columns.iter().enumerate() {
                let against = group
                    .columns
                    .iter()
                    .position(|other| other.name == column.against);
                let against = against.filter(|&other| other != place);
                let reference = against.map_or(&[][..], |other| reports(results, row, other));
                let content = figure.cell(reports(results, row, place), reference);
                text.push_str(&format!(" {} |", emphasize(column, &content)));
            }
            text.push('\n');
        }
    }
    text
}

/// The column that others are compared with is bold.
fn emphasize(column: &Column, text: &str) -> String {
    if column.against == column.name && text != "–" {
        format!("**{text}**")
    } else {
        text.to_owned()
    }
}

fn reports(results: &Results, row: usize, place: usize) -> &[Value] {
    match results.cells.get(&(row, place)) {
        Some(Cell::Reports(reports)) => reports,
        Some(Cell::Skipped) | None => &[],
    }
}

// === impl Figure ===

impl Figure {
    fn title(&self) -> &'static str {
        match self {
            Self::Value { title, .. } | Self::Runs { title } => title,
        }
    }

    /// The text of a cell, compared with the reports of ours if there are any.
    fn cell(&self, reports: &[Value], ours: &[Value]) -> String {
        match *self {
            Self::Value { field, unit, .. } => {
                let Some(median) = Median::of(reports, field, unit) else {
                    return "–".to_owned();
                };
                let mut text = unit.write(median.value);
                if reports.len() > 1 {
                    text.push_str(&format!(" ±{:.0} %", median.spread * 100.0));
                }
                if let Some(ours) = Median::of(ours, field, unit) {
                    text.push_str(&format!(
                        ", {}",
                        ratio(unit.better(ours.value, median.value))
                    ));
                }
                text
            }
            Self::Runs { .. } => {
                let all = |field| {
                    reports
                        .iter()
                        .filter_map(move |report| number(report, field))
                };
                let fewest = all("extra.min_runs").fold(f64::INFINITY, f64::min);
                let most = all("extra.max_runs").fold(0.0, f64::max);
                let ran = all("extra.ran").fold(f64::INFINITY, f64::min);
                match all("extra.keys").next() {
                    None => "–".to_owned(),
                    Some(keys) if ran < keys => format!("{fewest}–{most}, {ran} of {keys} ran"),
                    Some(_) if fewest < most => format!("{fewest}–{most}"),
                    Some(_) => format!("{most}"),
                }
            }
        }
    }
}

// === impl Median ===

impl Median {
    fn of(reports: &[Value], field: &str, unit: Unit) -> Option<Self> {
        let values = reports.iter().filter_map(|report| {
            let value = number(report, field)?;
            if unit == Unit::SecondsEach {
                Some(value / number(report, "n")?)
            } else {
                Some(value)
            }
        });
        Self::of_values(values.collect())
    }

    /// The median of values; `None` if there are none.
    pub(crate) fn of_values(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (least, most) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let value = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        let spread = if value > 0.0 {
            (most - least) / 2.0 / value
        } else {
            0.0
        };
        Some(Self { value, spread })
    }
}

/// A field of a report; `extra.NAME` for one of the extras.
pub(crate) fn number(report: &Value, field: &str) -> Option<f64> {
    field
        .split('.')
        .try_fold(report, |value, name| value.get(name))?
        .as_f64()
}

// === impl Unit ===

impl Unit {
    /// How many times better `ours` is.
    fn better(self, ours: f64, theirs: f64) -> f64 {
        if self == Self::PerSecond {
            ours / theirs
        } else {
            theirs / ours
        }
    }

    fn write(self, value: f64) -> String {
        match self {
            Self::PerSecond => match value {
                1e6.. => format!("{} M/s", digits(value / 1e6)),
                1e3.. => format!("{} k/s", digits(value / 1e3)),
                _ => format!("{}/s", digits(value)),
            },
            Self::SecondsEach => Self::Nanoseconds.write(value * 1e9),
            Self::Seconds => format!("{} s", digits(value)),
            Self::Nanoseconds => match value {
                1e9.. => format!("{} s", digits(value / 1e9)),
                1e6.. => format!("{} ms", digits(value / 1e6)),
                1e3.. => format!("{} µs", digits(value / 1e3)),
                _ => format!("{} ns", digits(value)),
            },
            Self::Microseconds => Self::Nanoseconds.write(value * 1e3),
            Self::Megabytes => format!("{} MB", digits(value)),
            Self::Factor => digits(value),
            Self::Bytes => match value {
                1e4.. => format!("{} KB", digits(value / 1e3)),
                _ => format!("{} B", digits(value)),
            },
        }
    }
}

/// Three significant digits.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        99.95.. => format!("{value:.0}"),
        9.995.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn ratio(value: f64) -> String {
    if value >= 9.95 {
        format!("{value:.0}×")
    } else {
        format!("{value:.2}×")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_higher_rate_and_a_lower_cost_are_better() {
        let reports = |rate: f64| vec![json!({ "n": 1000, "rate": rate, "cpu": 1.0 / rate })];
        let rate = Figure::Value {
            title: "",
            field: "rate",
            unit: Unit::PerSecond,
        };
        assert_eq!(rate.cell(&reports(1e6), &reports(2.5e6)), "1.00 M/s, 2.50×");
        let cost = Figure::Value {
            title: "",
            field: "cpu",
            unit: Unit::SecondsEach,
        };
        assert_eq!(cost.cell(&reports(1e3), &reports(2e3)), "1.00 µs, 2.00×");
    }

    #[test]
    fn the_median_and_the_spread_of_three_runs() {
        let reports = [90.0, 120.0, 100.0].map(|value| json!({ "extra": { "when_ns": value } }));
        let median = Median::of(&reports, "extra.when_ns", Unit::Nanoseconds).unwrap();
        assert_eq!(
            median,
            Median {
                value: 100.0,
                spread: 0.15
            }
        );
    }

    #[test]
    fn starvation_shows_the_worst_round() {
        let runs = |min: u32, max: u32, ran: u32| json!({ "extra": { "keys": 1000, "min_runs": min, "max_runs": max, "ran": ran } });
        let figure = Figure::Runs { title: "" };
        assert_eq!(
            figure.cell(&[runs(10, 10, 1000), runs(9, 11, 1000)], &[]),
            "9–11"
        );
        assert_eq!(
            figure.cell(&[runs(0, 46, 612)], &[]),
            "0–46, 612 of 1000 ran"
        );
        assert_eq!(figure.cell(&[], &[]), "–");
    }
}
