//! Exceptions: a path, a text and a reason in each line, separated by tabs.

use std::error::Error;

use crate::files::Files;

/// The exceptions of one check.
#[derive(Debug, Default)]
pub(crate) struct Allowed {
    file: String,
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    number: usize,
    /// The start of the paths that it is for; `*` for all.
    path: String,
    text: String,
    used: bool,
}

// === impl Allowed ===

impl Allowed {
    pub(crate) fn read(files: &Files, path: &str) -> Result<Self, Box<dyn Error>> {
        let text = files.text(path)?.unwrap_or_default();
        Ok(Self {
            file: path.to_owned(),
            lines: lines(&text).map_err(|number| {
                format!("{path}:{number}: a line is a path, a text and a reason, separated by tabs")
            })?,
        })
    }

    /// Whether `text` is an exception in the file `path`.
    pub(crate) fn has(&mut self, path: &str, text: &str) -> bool {
        let mut lines = self.lines.iter_mut();
        let found = lines
            .find(|line| line.text == text && (line.path == "*" || path.starts_with(&line.path)));
        found.map(|line| line.used = true).is_some()
    }

    /// The exceptions that are not needed, as lines to print.
    pub(crate) fn unused(&self) -> Vec<String> {
        let unused = self.lines.iter().filter(|line| !line.used);
        unused
            .map(|line| format!("{}:{}: not needed: {}", self.file, line.number, line.text))
            .collect()
    }
}

/// The exceptions in a text, or the number of the line that is wrong.
fn lines(text: &str) -> Result<Vec<Line>, usize> {
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let fields: Vec<&str> = line.split('\t').collect();
        let [path, text, reason] = fields[..] else {
            return Err(index + 1);
        };
        if reason.is_empty() {
            return Err(index + 1);
        }
        lines.push(Line {
            number: index + 1,
            path: path.to_owned(),
            text: text.to_owned(),
            used: false,
        });
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_is_for_a_path_and_a_text_and_must_be_needed() {
        let text = "# comment\n\ndocs/\tteh\ta reason\n*\tabd\ta reason\n";
        let mut allowed = Allowed {
            file: "x".to_owned(),
            lines: lines(text).unwrap(),
        };
        assert!(allowed.has("docs/a.md", "teh"));
        assert!(!allowed.has("a.md", "teh"));
        assert!(!allowed.has("docs/a.md", "the"));
        assert_eq!(allowed.unused(), ["x:4: not needed: abd"]);
        assert!(allowed.has("a.md", "abd"));
        assert!(allowed.unused().is_empty());
    }

    #[test]
    fn a_line_without_a_reason_is_wrong() {
        assert_eq!(lines("a\tb\tc\na\tb\n").unwrap_err(), 2);
        assert_eq!(lines("a\tb\t\n").unwrap_err(), 1);
    }
}
