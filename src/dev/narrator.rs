//! The output of the demonstration, and its checks.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Prints titles, commands, transitions and checks, each with the time since the start. Cloning is
/// cheap; clones print to the same place.
#[derive(Clone, Debug)]
pub(super) struct Narrator {
    started: Instant,
    colours: bool,
    /// Only counts, for tests.
    silent: bool,
    tally: Arc<Mutex<Tally>>,
}

#[derive(Debug, Default)]
struct Tally {
    chapters: usize,
    held: usize,
    broken: Vec<String>,
}

// === impl Narrator ===

impl Narrator {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            colours: io::stdout().is_terminal(),
            silent: false,
            tally: Arc::default(),
        }
    }

    /// One that only counts.
    #[cfg(test)]
    pub(super) fn silent() -> Self {
        Self {
            silent: true,
            ..Self::new()
        }
    }

    /// Begins a numbered chapter.
    pub(super) fn chapter(&self, title: &str) {
        let number = {
            let mut tally = self.tally.lock();
            tally.chapters += 1;
            tally.chapters
        };
        self.print("");
        self.print(&self.painted("1", &format!("{number:2}. {title}")));
    }

    /// The command that does the same.
    pub(super) fn command(&self, command: &str) {
        self.print(&self.painted("36", &format!("    $ {command}")));
    }

    /// An event that happened now.
    pub(super) fn happened(&self, what: &str) {
        let seconds = self.started.elapsed().as_secs_f64();
        self.print(&format!("  {seconds:6.2} s  {what}"));
    }

    /// A remark.
    pub(super) fn remark(&self, text: &str) {
        self.print(&format!("            {text}"));
    }

    /// Checks an expectation.
    pub(super) fn expect(&self, what: &str, held: bool) {
        let mut tally = self.tally.lock();
        if held {
            tally.held += 1;
            drop(tally);
            self.print(&self.painted("32", &format!("         ✓  {what}")));
        } else {
            tally.broken.push(what.to_owned());
            drop(tally);
            self.print(&self.painted("31", &format!("         ✗  {what}")));
        }
    }

    /// How many expectations did not hold, and of how many.
    pub(super) fn result(&self) -> (usize, usize) {
        let tally = self.tally.lock();
        (tally.broken.len(), tally.broken.len() + tally.held)
    }

    /// Sums up.
    pub(super) fn conclude(&self) {
        let seconds = self.started.elapsed().as_secs_f64();
        let (broken, all) = self.result();
        self.print("");
        if broken == 0 {
            let text = format!("All {all} expectations held, in {seconds:.1} s.");
            self.print(&self.painted("1;32", &text));
        } else {
            let text = format!("{broken} of {all} expectations did NOT hold:");
            self.print(&self.painted("1;31", &text));
            for what in &self.tally.lock().broken {
                self.print(&format!("  ✗ {what}"));
            }
        }
    }

    pub(super) fn print(&self, line: &str) {
        if self.silent {
            return;
        }
        // A closed output needs no more lines.
        let _ = writeln!(io::stdout().lock(), "{line}");
    }

    fn painted(&self, colour: &str, text: &str) -> String {
        if self.colours {
            format!("\u{1b}[{colour}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}
