//! Producers on their own threads that add keys, and the time until all keys are done.

use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::flags::Flags;
use crate::keys::{self, HOT, Key};
use crate::report::{Outcome, Report, Stop};
use crate::usage::{Span, Stopwatch};

/// The numbers of adds, producers and workers.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Adds, of all producers together.
    pub count: usize,
    /// Producers, and as many workers.
    pub threads: usize,
    /// All adds go to the [`HOT`] keys; otherwise every key is added once.
    pub hot: bool,
}

/// The counts of several threads, without contention.
#[derive(Debug)]
pub struct Counters(Vec<Counter>);

/// One thread's count, on its own cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counter(AtomicU64);

// === impl Counters ===

impl Counters {
    /// One for each thread.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| Counter::default()).collect())
    }

    /// The counter of `thread`.
    #[must_use]
    pub fn of(&self, thread: usize) -> &Counter {
        &self.0[thread]
    }

    /// The sum of all.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0
            .iter()
            .map(|counter| counter.0.load(Ordering::Acquire))
            .sum()
    }
}

impl Counter {
    /// One more. Only one thread may count here.
    pub fn count(&self) {
        self.add(1);
    }

    /// Adds `count`. Only one thread may count here.
    pub fn add(&self, more: usize) {
        let sum = self.0.load(Ordering::Relaxed) + more as u64;
        self.0.store(sum, Ordering::Release);
    }
}

// === impl Plan ===

impl Plan {
    /// Of the scenarios `wq` and `wqdedup`.
    ///
    /// # Errors
    /// If a flag cannot be read.
    pub fn of(flags: &Flags) -> Result<Self, Stop> {
        Ok(Self {
            count: flags.get("n", 1_000_000)?,
            threads: flags.get("threads", 1)?,
            hot: flags.scenario == "wqdedup",
        })
    }

    /// The adds of producer `producer`.
    fn part(&self, producer: usize) -> Range<usize> {
        let until = |producer: usize| self.count * producer / self.threads;
        until(producer)..until(producer + 1)
    }

    /// Adds everything twice to the same queue, and reports the second time: memory has then been
    /// touched, and the structures have their size.
    ///
    /// `add` is cloned for each producer. When all producers have ended, `drained` is called with the number
    /// of times that all keys were added.
    ///
    /// # Errors
    /// If fewer keys were done than were added.
    pub fn run<K: Key>(
        &self,
        done: &Counters,
        add: impl FnMut(K) + Clone + Send,
        drained: impl Fn(u64) -> bool,
    ) -> Outcome {
        let tables: Vec<Vec<K>> = (0..self.threads)
            .map(|producer| {
                let part = self.part(producer);
                if self.hot {
                    keys::range(0, HOT)
                } else {
                    keys::range(part.start, part.end)
                }
            })
            .collect();
        self.round(&tables, &add, || drained(1));
        let before = done.sum();
        let span = self.round(&tables, &add, || drained(2));
        let runs = done.sum() - before;
        let least = if self.hot {
            HOT.min(self.count)
        } else {
            self.count
        } as u64;
        if runs < least || runs > self.count as u64 {
            return Err(Stop::wrong(format!(
                "{runs} runs of {least} keys in {} adds",
                self.count
            )));
        }
        Ok(Report::new(self.count, span).extra("runs", runs as f64))
    }

    fn round<K: Key>(
        &self,
        tables: &[Vec<K>],
        add: &(impl FnMut(K) + Clone + Send),
        drained: impl Fn() -> bool,
    ) -> Span {
        let start = Barrier::new(self.threads + 1);
        thread::scope(|scope| {
            let producers: Vec<_> = tables
                .iter()
                .enumerate()
                .map(|(producer, table)| {
                    let (mut add, start) = (add.clone(), &start);
                    let (steps, hot) = (self.part(producer).len(), self.hot);
                    scope.spawn(move || {
                        start.wait();
                        for step in 0..steps {
                            let index = if hot { keys::hot(step, producer) } else { step };
                            add(table[index].clone());
                        }
                    })
                })
                .collect();
            let stopwatch = Stopwatch::start();
            start.wait();
            for producer in producers {
                producer.join().expect("a producer that ends");
            }
            while !drained() {
                thread::sleep(Duration::from_micros(500));
            }
            stopwatch.stop()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn every_producer_adds_its_part() {
        let plan = Plan {
            count: 1001,
            threads: 4,
            hot: false,
        };
        let done = Counters::new(1);
        let added = std::sync::Mutex::new(Vec::new());
        let add = |key: Arc<str>| {
            let mut added = added.lock().unwrap();
            added.push(keys::number(&key));
            done.of(0).count();
        };
        let report = plan
            .run(&done, add, |times| done.sum() == 1001 * times)
            .unwrap();
        let mut added = added.into_inner().unwrap();
        added.sort_unstable();
        assert_eq!(
            added,
            (0..1001)
                .flat_map(|number| [number, number])
                .collect::<Vec<_>>()
        );
        drop(report);
    }

    #[test]
    fn a_queue_that_loses_keys_is_found_out() {
        let plan = Plan {
            count: 10,
            threads: 1,
            hot: false,
        };
        let done = Counters::new(1);
        assert!(plan.run(&done, |_: Arc<str>| {}, |_| true).is_err());
    }
}
