//! The results: values by row and server, kept in a file, shown as a table of medians.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::server::Subject;

/// The unit of a figure, and which side is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// More of a rate is better.
    PerSecond,
    /// Seconds; less is better.
    Seconds,
    /// Bytes; less is better.
    Bytes,
    /// A number that is neither.
    Count,
}

/// Values by row and column.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Rows in the order of their first value.
    rows: Vec<Row>,
    /// The rounds that are complete, of each suite and server.
    complete: BTreeMap<(String, Subject), usize>,
    kept: Option<PathBuf>,
}

#[derive(Debug)]
struct Row {
    suite: String,
    title: String,
    unit: Unit,
    values: BTreeMap<Subject, Vec<f64>>,
}

/// The values of one suite on one server in one round.
#[derive(Debug, Default)]
pub(crate) struct Values(Vec<(String, Unit, f64)>);

// === impl Unit ===

impl Unit {
    const ALL: [Self; 4] = [Self::PerSecond, Self::Seconds, Self::Bytes, Self::Count];

    fn key(self) -> &'static str {
        match self {
            Self::PerSecond => "/s",
            Self::Seconds => "s",
            Self::Bytes => "B",
            Self::Count => "n",
        }
    }

    /// Three significant digits, with the prefix that suits.
    fn show(self, value: f64) -> String {
        let scales: &[(f64, &str)] = match self {
            Self::PerSecond => &[(1e6, " M/s"), (1e3, " k/s"), (1.0, "/s")],
            Self::Seconds => &[(1.0, " s"), (1e-3, " ms"), (1e-6, " µs")],
            Self::Bytes => &[(1e9, " GB"), (1e6, " MB"), (1e3, " KB")],
            Self::Count => &[(1.0, "")],
        };
        let fits = scales.iter().find(|(scale, _)| value >= *scale);
        let (scale, suffix) = fits.or(scales.last()).copied().unwrap_or((1.0, ""));
        let scaled = value / scale;
        let digits = if scaled >= 100.0 || self == Self::Count {
            0
        } else if scaled >= 10.0 {
            1
        } else {
            2
        };
        format!("{scaled:.digits$}{suffix}")
    }
}

// === impl Values ===

impl Values {
    pub(crate) fn add(&mut self, title: impl Into<String>, unit: Unit, value: f64) {
        self.0.push((title.into(), unit, value));
    }
}

// === impl Report ===

impl Report {
    /// A report that appends to `kept`, and starts with what is there.
    pub(crate) fn keeping(kept: Option<PathBuf>) -> Result<Self> {
        let mut report = Self::default();
        if let Some(path) = kept.as_deref().filter(|path| path.exists()) {
            let text =
                std::fs::read_to_string(path).map_err(Error::io(path.display().to_string()))?;
            for line in text.lines() {
                let value: Value = serde_json::from_str(line)?;
                report.read(&value).ok_or_else(|| {
                    Error::Setup(format!("{}: not a line of this bench", path.display()))
                })?;
            }
        }
        report.kept = kept;
        Ok(report)
    }

    fn read(&mut self, line: &Value) -> Option<()> {
        let suite = line["suite"].as_str()?;
        let subject = Subject::of_key(line["server"].as_str()?)?;
        let mut values = Values::default();
        for value in line["values"].as_array()? {
            let unit = value[1].as_str()?;
            let unit = Unit::ALL.into_iter().find(|one| one.key() == unit)?;
            values.add(value[0].as_str()?, unit, value[2].as_f64()?);
        }
        self.take(suite, subject, values);
        Some(())
    }

    /// The rounds of `suite` with `subject` so far.
    pub(crate) fn rounds(&self, suite: &str, subject: Subject) -> usize {
        let key = (suite.to_owned(), subject);
        self.complete.get(&key).copied().unwrap_or_default()
    }

    /// Adds the values of one round, and keeps them.
    pub(crate) fn add(&mut self, suite: &str, subject: Subject, values: Values) -> Result<()> {
        if let Some(path) = &self.kept {
            let rows: Vec<Value> = values
                .0
                .iter()
                .map(|(title, unit, value)| json!([title, unit.key(), value]))
                .collect();
            let line = json!({"suite": suite, "server": subject.key(), "values": rows});
            append(path, &line).map_err(Error::io(path.display().to_string()))?;
        }
        self.take(suite, subject, values);
        Ok(())
    }

    fn take(&mut self, suite: &str, subject: Subject, values: Values) {
        for (title, unit, value) in values.0 {
            let found = self
                .rows
                .iter_mut()
                .find(|row| row.suite == suite && row.title == title);
            if let Some(row) = found {
                row.values.entry(subject).or_default().push(value);
                continue;
            }
            self.rows.push(Row {
                suite: suite.to_owned(),
                title,
                unit,
                values: BTreeMap::from([(subject, vec![value])]),
            });
        }
        *self
            .complete
            .entry((suite.to_owned(), subject))
            .or_default() += 1;
    }

    /// The table of one suite, in Markdown; empty without values.
    pub(crate) fn table(&self, suite: &str) -> String {
        let rows: Vec<&Row> = self.rows.iter().filter(|row| row.suite == suite).collect();
        let columns: Vec<Subject> = Subject::ALL
            .into_iter()
            .filter(|subject| rows.iter().any(|row| row.values.contains_key(subject)))
            .collect();
        if columns.is_empty() {
            return String::new();
        }
        let mut text = String::from("| |");
        for column in &columns {
            let _ = write!(text, " {} |", column.title());
        }
        text.push_str("\n|---|");
        text.push_str(&"---|".repeat(columns.len()));
        text.push('\n');
        for row in rows {
            let _ = write!(text, "| {} |", row.title);
            for column in &columns {
                let _ = write!(text, " {} |", row.cell(*column));
            }
            text.push('\n');
        }
        text
    }
}

// === impl Row ===

impl Row {
    /// The median, its spread, and how many times better than the real server it is.
    fn cell(&self, subject: Subject) -> String {
        let Some(values) = self.values.get(&subject) else {
            return "–".to_owned();
        };
        let (value, spread) = median(values);
        let mut text = self.unit.show(value);
        if values.len() > 1 && value > 0.0 {
            let _ = write!(text, " ±{:.0} %", spread / value * 100.0);
        }
        let real = self
            .values
            .get(&Subject::Real)
            .map(|values| median(values).0);
        if let (Some(real), true) = (real, subject != Subject::Real && value > 0.0) {
            let times = match self.unit {
                Unit::PerSecond => value / real,
                Unit::Seconds | Unit::Bytes => real / value,
                Unit::Count => return text,
            };
            let digits = usize::from(times < 100.0);
            let _ = write!(text, ", {times:.digits$}×");
        }
        text
    }
}

fn append(path: &Path, line: &Value) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)?;
    writeln!(file, "{line}")
}

/// The median, and half the distance between the smallest and the largest.
fn median(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else {
        return (0.0, 0.0);
    };
    (sorted[sorted.len() / 2], (last - first) / 2.0)
}

/// The value below which `share` of `sorted` lies; 0 for none.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index of a list"
    )]
    let place = (last as f64 * share).round() as usize;
    sorted.get(place).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(rate: f64, cpu: f64) -> Values {
        let mut values = Values::default();
        values.add("writes", Unit::PerSecond, rate);
        values.add("CPU a write", Unit::Seconds, cpu);
        values
    }

    #[test]
    fn a_table_shows_medians_and_how_many_times_better_ours_is() -> Result<()> {
        let mut report = Report::default();
        for rate in [900.0, 1000.0, 5000.0] {
            report.add("writes", Subject::Real, values(rate, 0.001))?;
        }
        report.add("writes", Subject::Ours, values(12_000.0, 0.000_05))?;
        let table = report.table("writes");
        assert!(
            table.contains("| writes | 1.00 k/s ±205 % | 12.0 k/s, 12.0× |"),
            "{table}"
        );
        assert!(
            table.contains("| CPU a write | 1.00 ms ±0 % | 50.0 µs, 20.0× |"),
            "{table}"
        );
        Ok(())
    }

    #[test]
    fn a_kept_line_is_read_again() -> Result<()> {
        let path =
            std::env::temp_dir().join(format!("apiserver-bench-{}.kept", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut report = Report::keeping(Some(path.clone()))?;
        report.add("writes", Subject::Ours, values(1.0, 2.0))?;
        let again = Report::keeping(Some(path.clone()))?;
        assert_eq!(again.table("writes"), report.table("writes"));
        assert_eq!(again.rounds("writes", Subject::Ours), 1);
        assert_eq!(again.rounds("writes", Subject::Real), 0);
        std::fs::remove_file(&path).map_err(Error::io("kept"))
    }

    #[test]
    fn a_percentile_of_nothing_is_zero() {
        assert_eq!(percentile(&[], 0.99), 0.0);
        assert_eq!(percentile(&[1.0, 2.0, 3.0], 0.5), 2.0);
        assert_eq!(percentile(&[1.0, 2.0, 3.0], 0.99), 3.0);
    }
}
