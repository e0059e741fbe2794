//! Aligned columns, and colours.

use std::fmt::Write as _;

/// The emphasis of a cell or a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Style {
    #[default]
    Plain,
    Bold,
    Dim,
    Yellow,
    Red,
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

/// Rows under a head.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
}

/// The text of the terminal.
#[derive(Debug)]
pub(crate) struct Screen {
    text: String,
    colors: bool,
}

// === impl Cell ===

impl Cell {
    pub(crate) fn styled(text: impl Into<String>, style: Style) -> Self {
        Self {
            text: clean(&text.into()),
            style,
        }
    }

    /// `text`, in `style` if `marked`.
    pub(crate) fn marked(text: impl Into<String>, style: Style, marked: bool) -> Self {
        Self::styled(text, if marked { style } else { Style::Plain })
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text, Style::Plain)
    }
}

// === impl Table ===

impl Table {
    pub(crate) fn new<const N: usize>(head: [&str; N]) -> Self {
        let head = head.map(|name| Cell::styled(name, Style::Dim));
        Self {
            rows: vec![head.into()],
        }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.rows.push(cells.into());
    }

    /// The widths of the columns. The last column is not padded.
    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let widths = cells.map(|cell: &Cell| cell.text.chars().count());
            widths.max().unwrap_or_default()
        };
        (0..columns).map(width).collect()
    }
}

// === impl Screen ===

impl Screen {
    pub(crate) fn new(colors: bool) -> Self {
        Self {
            text: String::new(),
            colors,
        }
    }

    pub(crate) fn line(&mut self, text: &str, style: Style) {
        let text = clean(text);
        self.push(&text, style);
        self.text.push('\n');
    }

    pub(crate) fn gap(&mut self) {
        self.text.push('\n');
    }

    pub(crate) fn table(&mut self, table: &Table) {
        let widths = table.widths();
        for row in &table.rows {
            self.text.push_str("  ");
            for (place, cell) in row.iter().enumerate() {
                self.push(&cell.text, cell.style);
                if place + 1 < row.len() {
                    let pad = widths[place] + 2 - cell.text.chars().count();
                    let _ = write!(self.text, "{:pad$}", "");
                }
            }
            let kept = self.text.trim_end_matches(' ').len();
            self.text.truncate(kept);
            self.text.push('\n');
        }
    }

    /// An empty one with the same colours.
    pub(crate) fn same(&self) -> Self {
        Self::new(self.colors)
    }

    pub(crate) fn append(&mut self, other: Self) {
        self.text.push_str(&other.text);
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }

    fn push(&mut self, text: &str, style: Style) {
        let code = match style {
            Style::Plain => "",
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Yellow => "33",
            Style::Red => "1;31",
        };
        if code.is_empty() || !self.colors || text.is_empty() {
            self.text.push_str(text);
        } else {
            let _ = write!(self.text, "\x1b[{code}m{text}\x1b[0m");
        }
    }
}

/// The text in one line, without control characters: names and errors must not steer the terminal.
fn clean(text: &str) -> String {
    let printed = text.chars().map(|one| match one {
        '\n' | '\t' | '\r' => ' ',
        _ if one.is_control() => '\u{fffd}',
        _ => one,
    });
    printed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_colours_do_not_change_widths() {
        let mut table = Table::new(["name", "n", "error"]);
        table.row(["a".into(), Cell::styled("100", Style::Red), "".into()]);
        table.row(["longer".into(), "1".into(), "refused".into()]);
        let shown = |colors| {
            let mut screen = Screen::new(colors);
            screen.table(&table);
            screen.into_text()
        };
        let plain = "  name    n    error\n  a       100\n  longer  1    refused\n";
        assert_eq!(shown(false), plain);
        let colored = shown(true);
        assert!(colored.contains("\x1b[1;31m100\x1b[0m"), "{colored:?}");
    }

    #[test]
    fn names_and_errors_cannot_steer_the_terminal() {
        let mut screen = Screen::new(false);
        screen.line("a\x1b[2Jb\nc", Style::Plain);
        assert_eq!(screen.into_text(), "a\u{fffd}[2Jb c\n");
    }
}
