//! Rows of figures, and the table they make.

use std::fmt::Write as _;
use std::time::Duration;

/// One figure of one subject in one scenario.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) scenario: String,
    pub(crate) figure: String,
    pub(crate) subject: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
}

/// Every row of a run, in the order of measurement.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

// === impl Report ===

impl Report {
    pub(crate) fn add(
        &mut self,
        scenario: &str,
        figure: &str,
        subject: &str,
        value: f64,
        unit: &'static str,
    ) {
        eprintln!("  {scenario:<12} {figure:<44} {subject:<10} {value:>10.2} {unit}");
        self.rows.push(Row {
            scenario: scenario.into(),
            figure: figure.into(),
            subject: subject.into(),
            value,
            unit,
        });
    }

    pub(crate) fn quantiles(
        &mut self,
        scenario: &str,
        figure: &str,
        subject: &str,
        mut times: Vec<Duration>,
    ) {
        times.sort_unstable();
        for (name, at) in [("p50", 0.50), ("p99", 0.99), ("max", 1.0)] {
            if let Some(value) = quantile(&times, at) {
                self.add(
                    scenario,
                    &format!("{figure} {name}"),
                    subject,
                    value.as_secs_f64() * 1e3,
                    "ms",
                );
            }
        }
    }

    /// A Markdown table: a line for each figure, a column for each subject, medians over repeated runs.
    pub(crate) fn table(&self) -> String {
        let mut subjects: Vec<&str> = Vec::new();
        let mut figures: Vec<(&str, &str, &str)> = Vec::new();
        for row in &self.rows {
            if !subjects.contains(&row.subject.as_str()) {
                subjects.push(&row.subject);
            }
            let figure = (row.scenario.as_str(), row.figure.as_str(), row.unit);
            if !figures.contains(&figure) {
                figures.push(figure);
            }
        }
        let mut table = String::from("| scenario | figure | unit |");
        for subject in &subjects {
            let _ = write!(table, " {subject} |");
        }
        table.push_str("\n|---|---|---|");
        table.push_str(&"---|".repeat(subjects.len()));
        table.push('\n');
        for (scenario, figure, unit) in figures {
            let _ = write!(table, "| {scenario} | {figure} | {unit} |");
            for subject in &subjects {
                let mut values: Vec<f64> = self
                    .rows
                    .iter()
                    .filter(|row| {
                        row.scenario == scenario && row.figure == figure && row.subject == *subject
                    })
                    .map(|row| row.value)
                    .collect();
                values.sort_by(f64::total_cmp);
                match values.get(values.len() / 2) {
                    Some(median) => {
                        let _ = write!(table, " {median:.2} |");
                    }
                    None => table.push_str(" – |"),
                }
            }
            table.push('\n');
        }
        table
    }
}

/// The quantile `at` of the sorted `times`.
fn quantile(times: &[Duration], at: f64) -> Option<Duration> {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index into the slice"
    )]
    let index = ((times.len() as f64 * at).ceil() as usize).clamp(1, times.len().max(1)) - 1;
    times.get(index).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(quantile(&times, 0.5), Some(Duration::from_millis(50)));
        assert_eq!(quantile(&times, 0.99), Some(Duration::from_millis(99)));
        assert_eq!(quantile(&times, 1.0), Some(Duration::from_millis(100)));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn the_table_shows_the_median_of_repeated_runs() {
        let mut report = Report::default();
        for value in [3.0, 1.0, 2.0] {
            report.add("burst", "rate", "ours", value, "/s");
        }
        assert!(report.table().contains("| burst | rate | /s | 2.00 |"));
    }
}
