//! `starve`: how often each of many keys runs when all request to run again at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::flags::Flags;
use crate::keys;
use crate::report::{Outcome, Report, Stop};
use crate::usage::Stopwatch;

/// How often each key ran.
#[derive(Debug)]
pub struct Runs {
    keys: Vec<Arc<str>>,
    runs: Vec<AtomicU64>,
    all: AtomicU64,
    limit: u64,
    work: Option<Duration>,
}

// === impl Runs ===

impl Runs {
    /// Runs of `-n` keys, ten a key on average; `-work` is the duration of a run in µs.
    ///
    /// # Errors
    /// If a flag cannot be read.
    pub fn of(flags: &Flags) -> Result<Self, Stop> {
        let count = flags.get("n", 1000)?;
        let work = flags.get("work", 0)?;
        Ok(Self {
            keys: keys::range(0, count),
            runs: (0..count).map(|_| AtomicU64::new(0)).collect(),
            all: AtomicU64::new(0),
            limit: 10 * count as u64,
            work: (work > 0).then(|| Duration::from_micros(work)),
        })
    }

    /// The duration of a run.
    #[must_use]
    pub fn work(&self) -> Option<Duration> {
        self.work
    }

    /// Counts a run of `key` that is about to start. False if all runs have been made: skip this one.
    pub fn note(&self, key: &str) -> bool {
        let counts = self.all.fetch_add(1, Ordering::Relaxed) < self.limit;
        if counts {
            self.runs[keys::number(key)].fetch_add(1, Ordering::Relaxed);
        }
        counts
    }

    /// Calls `run` with the keys; it returns when [`Runs::note`] returns false.
    ///
    /// # Errors
    /// If `run` returned earlier.
    pub fn measure(&self, run: impl FnOnce(Vec<Arc<str>>)) -> Outcome {
        let stopwatch = Stopwatch::start();
        run(self.keys.clone());
        let span = stopwatch.stop();
        let runs = || self.runs.iter().map(|runs| runs.load(Ordering::Relaxed));
        if runs().sum::<u64>() != self.limit {
            return Err(Stop::wrong(format!(
                "{} of {} runs",
                runs().sum::<u64>(),
                self.limit
            )));
        }
        Ok(Report::new(self.limit as usize, span)
            .extra("keys", self.keys.len() as f64)
            .extra("ran", runs().filter(|&runs| runs > 0).count() as f64)
            .extra("min_runs", runs().min().unwrap_or(0) as f64)
            .extra("max_runs", runs().max().unwrap_or(0) as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_by_key_up_to_ten_each() {
        let runs = Runs::of(&Flags::parse_line("starve -n=3")).unwrap();
        let report = runs.measure(|keys| while runs.note(&keys[1]) {});
        let text = format!("{:?}", report.unwrap());
        assert!(text.contains("\"max_runs\": Number(30.0)"), "{text}");
        assert!(text.contains("\"ran\": Number(1.0)"), "{text}");
    }
}
