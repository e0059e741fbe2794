//! The audit log for people: readable lines, with filters, as they are written.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::Deserialize;

/// The lines that are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The whole name of the caller; `None` for all.
    pub user: Option<String>,
    /// `allow` or `deny`; `None` for both.
    pub verdict: Option<String>,
}

/// A line of the log. (`audit::Line` writes it.)
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    time: Timestamp,
    user: String,
    op: String,
    target: String,
    decision: String,
    rule: Option<String>,
    message: String,
    #[serde(default)]
    dry_run: bool,
}

/// A file that another process writes.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    open: Option<Open>,
    /// The start of a line whose end is not written yet.
    pending: Vec<u8>,
}

#[derive(Debug)]
struct Open {
    file: File,
    identity: (u64, u64),
    read: u64,
}

// === impl Filter ===

impl Filter {
    /// A line for people; `None` for one that is not shown. A line that is not a record is shown as it is, if there is no
    /// filter.
    #[must_use]
    pub fn readable(&self, line: &str) -> Option<String> {
        let Ok(line) = serde_json::from_str::<Line>(line) else {
            let shows_all = *self == Self::default() && !line.trim().is_empty();
            return shows_all.then(|| printable(&format!("unreadable: {line}")));
        };
        let is_one = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        if !is_one(&self.user, &line.user) || !is_one(&self.verdict, &line.decision) {
            return None;
        }
        let mut notes = Vec::new();
        notes.extend(line.rule.map(|rule| format!("rule {rule}")));
        if line.dry_run {
            notes.push("dry run".to_owned());
        }
        let notes = match notes.as_slice() {
            [] => String::new(),
            notes => format!(" ({})", notes.join(", ")),
        };
        Some(printable(&format!(
            "{:.0} {:5} {} {} {}: {}{notes}",
            line.time, line.decision, line.user, line.op, line.target, line.message
        )))
    }
}

/// The text without control characters: names in requests could otherwise write to the terminal.
fn printable(text: &str) -> String {
    let shown = text
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c });
    shown.collect()
}

// === impl Tail ===

impl Tail {
    /// The file at `path`, which may not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            open: None,
            pending: Vec::new(),
        }
    }

    /// Skips what is in the file now.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn skip(&mut self) -> io::Result<()> {
        self.lines()?;
        self.pending.clear();
        Ok(())
    }

    /// The whole lines since the last call. A file that was replaced or cut short is read from its start.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn lines(&mut self) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        // What is left of a replaced file comes first.
        self.read(&mut lines)?;
        let found = match std::fs::metadata(&self.path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(lines),
            Err(error) => return Err(error),
        };
        let is_same = self.open.as_ref().is_some_and(|open| {
            open.identity == (found.dev(), found.ino()) && open.read <= found.len()
        });
        if !is_same {
            let file = File::open(&self.path)?;
            let metadata = file.metadata()?;
            self.pending.clear();
            self.open = Some(Open {
                file,
                identity: (metadata.dev(), metadata.ino()),
                read: 0,
            });
            self.read(&mut lines)?;
        }
        Ok(lines)
    }

    fn read(&mut self, lines: &mut Vec<String>) -> io::Result<()> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        open.file.seek(SeekFrom::Start(open.read))?;
        let count = open.file.read_to_end(&mut self.pending)?;
        open.read += count as u64;
        while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            lines.push(String::from_utf8_lossy(&line[..end]).into_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    const DENIED: &str = r#"{"time":"2026-01-20T00:00:00.5Z","user":"hbox-pre","op":"DELETE","target":"pods/hbox/web-0","decision":"deny","rule":"production","message":"no","dryRun":true}"#;
    const ALLOWED: &str = r#"{"time":"2026-01-20T00:00:01Z","user":"otto","op":"UPDATE","target":"pods/hbox/try-0","decision":"allow","message":"pass","dryRun":false}"#;

    #[test]
    fn a_line_is_readable_and_filters_compare_whole_names() {
        let all = Filter::default();
        assert_eq!(
            all.readable(DENIED).unwrap(),
            "2026-01-20T00:00:00Z deny  hbox-pre DELETE pods/hbox/web-0: no (rule production, dry run)"
        );
        assert_eq!(
            all.readable(ALLOWED).unwrap(),
            "2026-01-20T00:00:01Z allow otto UPDATE pods/hbox/try-0: pass"
        );
        assert_eq!(all.readable("broken").unwrap(), "unreadable: broken");
        let of = |user: Option<&str>, verdict: Option<&str>| Filter {
            user: user.map(str::to_owned),
            verdict: verdict.map(str::to_owned),
        };
        for (filter, denied, allowed) in [
            (of(Some("hbox-pre"), None), true, false),
            (of(Some("hbox"), None), false, false),
            (of(None, Some("allow")), false, true),
            (of(Some("otto"), Some("deny")), false, false),
        ] {
            assert_eq!(filter.readable(DENIED).is_some(), denied, "{filter:?}");
            assert_eq!(filter.readable(ALLOWED).is_some(), allowed, "{filter:?}");
            assert_eq!(filter.readable("broken"), None);
        }
    }

    #[test]
    fn a_name_cannot_write_to_the_terminal() {
        let line = DENIED.replace("web-0", "web\\u001b[2J");
        let shown = Filter::default().readable(&line).unwrap();
        assert!(shown.contains("web\u{fffd}[2J"), "{shown}");
    }

    #[test]
    fn lines_come_whole_also_after_a_rotation() {
        let path = std::env::temp_dir().join(format!("preprod-guard-tail-{}", std::process::id()));
        let moved = path.with_extension("1");
        let append = |path: &PathBuf, text: &str| {
            let file = fs::OpenOptions::new().create(true).append(true).open(path);
            file.unwrap().write_all(text.as_bytes()).unwrap();
        };
        fs::remove_file(&path).ok();
        let mut tail = Tail::new(&path);
        assert!(tail.lines().unwrap().is_empty());
        append(&path, "old\n");
        tail.skip().unwrap();
        append(&path, "one\ntw");
        assert_eq!(tail.lines().unwrap(), ["one"]);
        append(&path, "o\n");
        fs::rename(&path, &moved).unwrap();
        append(&moved, "three\n");
        append(&path, "four\n");
        assert_eq!(tail.lines().unwrap(), ["two", "three", "four"]);
        fs::write(&path, "5\n").unwrap();
        assert_eq!(tail.lines().unwrap(), ["5"]);
        fs::remove_file(&path).unwrap();
        assert!(tail.lines().unwrap().is_empty());
        fs::remove_file(&moved).unwrap();
    }
}
