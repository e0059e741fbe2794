//! The scenarios of controllers: `ctrlcold`, `ctrlburst`, `ctrlwrite`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::control::Server;
use crate::flags::Flags;
use crate::keys;
use crate::report::{Outcome, Report, Stop};
use crate::usage::Stopwatch;

/// Which objects were reconciled.
#[derive(Debug)]
pub struct Progress {
    /// The version that was seen last, by number.
    versions: Vec<AtomicU64>,
    /// Only versions above this one count.
    above: AtomicU64,
    newest: AtomicU64,
    /// Objects up to this version have to be written once; 0: none.
    written: u64,
    done: AtomicUsize,
    runs: AtomicUsize,
}

/// The patch of a reconcile: `PATCH …/status`, as a merge patch.
pub const STATUS: &str = r#"{"status":{"phase":"active"}}"#;

/// Runs the scenario of the flags. `start` starts a controller with the given number of workers, which records each
/// reconcile; dropping the returned value ends it.
///
/// # Errors
/// If a flag cannot be read, or objects are not reconciled.
pub fn run<C>(flags: &Flags, start: impl FnOnce(&Server, usize, Arc<Progress>) -> C) -> Outcome {
    let count = flags.get("n", 10_000)?;
    let workers = flags.get("threads", 1)?;
    let server = Server::of(flags)?;
    let version = server.reset(count)?;
    let written = if flags.scenario == "ctrlwrite" {
        version
    } else {
        0
    };
    let progress = Arc::new(Progress::new(count, written));
    let cold = Stopwatch::start();
    let controller = start(&server, workers, Arc::clone(&progress));
    progress.wait(count)?;
    let mut span = cold.stop();
    let mut runs = progress.runs();
    if flags.scenario == "ctrlburst" {
        progress.begin_again();
        let burst = Stopwatch::start();
        server.burst(count, 0)?;
        progress.wait(count)?;
        span = burst.stop();
        runs = progress.runs() - runs;
    }
    drop(controller);
    Ok(Report::new(count, span).extra("runs", runs as f64))
}

// === impl Progress ===

impl Progress {
    /// An object in a version up to `written` has to be written, and counts when the watch shows the write.
    fn new(count: usize, written: u64) -> Self {
        Self {
            versions: (0..count).map(|_| AtomicU64::new(0)).collect(),
            above: AtomicU64::new(written),
            newest: AtomicU64::new(0),
            written,
            done: AtomicUsize::new(0),
            runs: AtomicUsize::new(0),
        }
    }

    /// The object of this name was reconciled, in this version.
    pub fn note(&self, name: &str, version: u64) {
        let above = self.above.load(Ordering::Acquire);
        let last = self.versions[keys::number(name)].swap(version, Ordering::AcqRel);
        self.newest.fetch_max(version, Ordering::AcqRel);
        self.runs.fetch_add(1, Ordering::Relaxed);
        if last <= above && version > above {
            self.done.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Whether the object in this version has to be written.
    #[must_use]
    pub fn is_to_be_written(&self, version: u64) -> bool {
        version <= self.written
    }

    /// From now on, only versions newer than all that were seen count.
    fn begin_again(&self) {
        self.above
            .store(self.newest.load(Ordering::Acquire), Ordering::Release);
        self.done.store(0, Ordering::Release);
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    fn wait(&self, count: usize) -> Result<(), Stop> {
        let deadline = Instant::now() + Duration::from_secs(120);
        while self.done.load(Ordering::Acquire) < count {
            if Instant::now() > deadline {
                let done = self.done.load(Ordering::Acquire);
                return Err(Stop::wrong(format!(
                    "{done} of {count} objects were reconciled"
                )));
            }
            thread::sleep(Duration::from_micros(500));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_counts_once_and_only_when_it_is_new() {
        let progress = Progress::new(2, 0);
        progress.note("name-0000000000", 5);
        progress.note("name-0000000000", 5);
        assert!(progress.done.load(Ordering::Relaxed) == 1);
        progress.note("name-0000000001", 6);
        assert!(progress.wait(2).is_ok());
        progress.begin_again();
        progress.note("name-0000000000", 6);
        assert_eq!(progress.done.load(Ordering::Relaxed), 0);
        progress.note("name-0000000000", 7);
        assert_eq!(progress.done.load(Ordering::Relaxed), 1);
        assert_eq!(progress.runs(), 5);
    }

    #[test]
    fn what_is_to_be_written_counts_when_it_comes_back() {
        let progress = Progress::new(1, 7);
        progress.note("name-0000000000", 7);
        assert!(progress.is_to_be_written(7) && !progress.is_to_be_written(8));
        assert_eq!(progress.done.load(Ordering::Relaxed), 0);
        progress.note("name-0000000000", 8);
        assert_eq!(progress.done.load(Ordering::Relaxed), 1);
        assert!(!Progress::new(1, 0).is_to_be_written(1));
    }
}
