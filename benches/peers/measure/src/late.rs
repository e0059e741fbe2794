//! `wqdelay`: when each key is due, and how late it was seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::flags::Flags;
use crate::keys;
use crate::latency::Sorted;
use crate::report::{Outcome, Report, Stop};
use crate::usage::{self, Stopwatch};

/// When each key is due.
#[derive(Debug)]
pub struct Due {
    origin: Instant,
    keys: Vec<Arc<str>>,
    /// In nanoseconds since the origin; written before the key is added.
    at: Vec<AtomicU64>,
    seen: AtomicU64,
}

/// The keys that one worker received.
#[derive(Debug)]
pub struct Seen {
    due: Arc<Due>,
    late: Vec<u64>,
    early: u64,
}

// === impl Due ===

impl Due {
    /// Times of `-n` keys. All memory except the queue's is allocated and touched here.
    ///
    /// # Errors
    /// If a flag cannot be read.
    pub fn of(flags: &Flags) -> Result<Self, Stop> {
        let count = flags.get("n", 1_000_000)?;
        Ok(Self {
            origin: Instant::now(),
            keys: keys::range(0, count),
            at: (0..count).map(|_| AtomicU64::new(u64::MAX)).collect(),
            seen: AtomicU64::new(0),
        })
    }

    /// Adds all keys with their delays; `workers` returns when the workers have received all.
    ///
    /// # Errors
    /// If not every key was seen once.
    pub fn run(
        &self,
        mut add_after: impl FnMut(Arc<str>, Duration),
        workers: impl FnOnce() -> Vec<Seen>,
    ) -> Outcome {
        usage::forget_peak();
        let before = usage::resident();
        let stopwatch = Stopwatch::start();
        for (number, key) in self.keys.iter().enumerate() {
            let delay = keys::delay(number);
            let due = (self.origin.elapsed() + delay).as_nanos();
            self.at[number].store(due as u64, Ordering::Release);
            add_after(Arc::clone(key), delay);
        }
        let added = stopwatch.stop();
        let seen = workers();
        let span = stopwatch.stop();
        let memory = usage::peak() - before;
        let early: u64 = seen.iter().map(|seen| seen.early).sum();
        let late: Vec<u64> = seen.into_iter().flat_map(|seen| seen.late).collect();
        if late.len() != self.keys.len() {
            return Err(Stop::wrong(format!(
                "{} of {} keys seen",
                late.len(),
                self.keys.len()
            )));
        }
        Ok(Report::new(late.len(), span)
            .latency(&Sorted::new(late))
            .extra("mem_mb", memory)
            .extra("add_secs", added.secs)
            .extra("early", early as f64))
    }
}

// === impl Seen ===

impl Seen {
    /// A record for a worker that is about to start.
    #[must_use]
    pub fn new(due: &Arc<Due>) -> Self {
        let mut late = vec![1; due.keys.len()];
        late.clear();
        Self {
            due: Arc::clone(due),
            late,
            early: 0,
        }
    }

    /// Records that `key` was handed out at `now`. True for the last of all keys.
    pub fn note(&mut self, key: &str, now: Instant) -> bool {
        let due = &self.due;
        let at = due.at[keys::number(key)].load(Ordering::Acquire);
        let now = (now - due.origin).as_nanos() as u64;
        self.early += u64::from(now < at);
        self.late.push(now.saturating_sub(at));
        due.seen.fetch_add(1, Ordering::Relaxed) + 1 == due.keys.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(count: usize) -> Arc<Due> {
        Arc::new(Due {
            origin: Instant::now(),
            keys: keys::range(0, count),
            at: (0..count).map(|_| AtomicU64::new(u64::MAX)).collect(),
            seen: AtomicU64::new(0),
        })
    }

    #[test]
    fn what_is_handed_out_at_once_is_early() {
        let due = due(100);
        let mut seen = Seen::new(&due);
        let mut last = 0;
        let keys = std::cell::RefCell::new(Vec::new());
        let report = due.run(
            |key, _| keys.borrow_mut().push(key),
            || {
                for key in keys.borrow().iter() {
                    last += usize::from(seen.note(key, Instant::now()));
                }
                assert!(seen.early > 90, "{}", seen.early);
                vec![seen]
            },
        );
        assert!(report.is_ok());
        assert_eq!(last, 1);
    }

    #[test]
    fn a_key_that_is_not_seen_is_missed() {
        let due = due(2);
        assert!(due.run(|_, _| {}, || vec![Seen::new(&due)]).is_err());
    }
}
