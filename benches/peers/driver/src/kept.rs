//! Reports that are kept in a file: an interrupted comparison continues with the next run.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::plan::{Case, Column};

/// The file, with one report a line.
#[derive(Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    /// The reports that the file had at the start.
    lines: Vec<Value>,
}

// === impl Kept ===

impl Kept {
    /// Reads the reports of a former call.
    pub(crate) fn open(path: PathBuf) -> Result<Self, String> {
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            read => read.map_err(|error| format!("{}: {error}", path.display()))?,
        };
        let lines = text.lines().map(|line| {
            serde_json::from_str(line).map_err(|error| format!("{}: {error}", path.display()))
        });
        let lines = lines.collect::<Result<_, _>>()?;
        Ok(Self { path, lines })
    }

    /// The kept report of `column` on `case` in this round.
    pub(crate) fn find(
        &self,
        round: usize,
        case: &Case,
        column: &Column,
        count: usize,
    ) -> Option<&Value> {
        let identity = identity(round, case, column, count);
        let line = self.lines.iter().find(|line| line["asked"] == identity)?;
        Some(&line["report"])
    }

    /// Keeps a report.
    pub(crate) fn add(
        &self,
        round: usize,
        case: &Case,
        column: &Column,
        count: usize,
        report: &Value,
    ) -> Result<(), String> {
        let line = json!({ "asked": identity(round, case, column, count), "report": report });
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path);
        file.and_then(|mut file| writeln!(file, "{line}"))
            .map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

/// What identifies a run.
fn identity(round: usize, case: &Case, column: &Column, count: usize) -> Value {
    json!([
        round,
        column.name,
        case.scenario,
        case.flags,
        case.secured,
        count
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::informer;

    #[test]
    fn only_a_kept_report_is_found_again() {
        let path = std::env::temp_dir().join(format!("kept-{}", std::process::id()));
        let group = informer::controller();
        let (case, column) = (&group.cases[0], &group.columns[0]);
        let kept = Kept::open(path.clone()).unwrap();
        kept.add(2, case, column, 7, &json!({ "rate": 3 })).unwrap();
        let kept = Kept::open(path.clone()).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(kept.find(2, case, column, 7), Some(&json!({ "rate": 3 })));
        assert_eq!(kept.find(1, case, column, 7), None);
        assert_eq!(kept.find(2, &group.cases[1], column, 7), None);
        assert_eq!(kept.find(2, case, &group.columns[1], 7), None);
        assert_eq!(kept.find(2, case, column, 8), None);
    }
}
