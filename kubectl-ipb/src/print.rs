//! Aligned columns, and the formats of `-o`.

use std::fmt::Write as _;
use std::io::Write as _;

use serde::Serialize;

use crate::error::Error;

/// Rows under a head, as kubectl aligns them: three spaces between columns.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

// === impl Table ===

impl Table {
    /// A table with this head; without a head for an empty one.
    pub(crate) fn new<const N: usize>(head: [&str; N]) -> Self {
        let mut table = Self { rows: Vec::new() };
        if N > 0 {
            table.row(head.iter().map(ToString::to_string));
        }
        table
    }

    /// Adds a row. Control characters and line breaks in its cells are replaced.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter().map(|cell| clean(&cell));
        self.rows.push(cells.collect());
    }

    /// The text. The last column is not padded.
    pub(crate) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                let widths = cells.map(|cell| cell.chars().count());
                widths.max().unwrap_or_default()
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(line, "{cell:width$}   ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// The text in one line, without control characters: what users write into a block must not steer the terminal.
pub(crate) fn clean(text: &str) -> String {
    let printed = text.chars().map(|one| match one {
        '\n' | '\t' | '\r' => ' ',
        _ if one.is_control() => '\u{fffd}',
        _ => one,
    });
    printed.collect()
}

/// `value` as JSON with two spaces of indent, and a line break at its end.
pub(crate) fn json(value: &impl Serialize) -> Result<String, Error> {
    let mut text =
        serde_json::to_string_pretty(value).map_err(|error| Error::Encode(error.to_string()))?;
    text.push('\n');
    Ok(text)
}

/// `value` as YAML.
pub(crate) fn yaml(value: &impl Serialize) -> Result<String, Error> {
    serde_saphyr::to_string(value).map_err(|error| Error::Encode(error.to_string()))
}

/// Prints to the standard output. A closed pipe (`| head`) is not an error.
pub(crate) fn out(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints a line to the standard error.
#[allow(clippy::print_stderr, reason = "a program says what is wrong there")]
pub(crate) fn note(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_the_last_is_not_padded() {
        let mut table = Table::new(["NAME", "IP", "REASON"]);
        table.row(["a", "192.0.2.7", "two\nlines\x1b[2J"].map(String::from));
        table.row(["longer", "::1", ""].map(String::from));
        let wanted = "NAME     IP          REASON\na        192.0.2.7   two lines\u{fffd}[2J\nlonger   ::1\n";
        assert_eq!(table.text(), wanted);
        assert_eq!(Table::new([]).text(), "");
    }
}
