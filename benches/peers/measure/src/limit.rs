//! `wqlimit`: nanoseconds a failure, and a success after it, over distinct keys.

use std::sync::Arc;

use crate::flags::Flags;
use crate::keys;
use crate::report::{Outcome, Report, Stop};
use crate::usage::Stopwatch;

/// The counter of failures.
pub trait Limiter {
    /// Makes every key ready to be settled; called before each of the two, and not timed.
    fn prepare(&mut self, _keys: &[Arc<str>]) {}

    /// Every key failed.
    fn when(&mut self, keys: &[Arc<str>]);

    /// Every key succeeded.
    fn forget(&mut self, keys: &[Arc<str>]);

    /// How often a key has failed.
    fn failures(&self, key: &Arc<str>) -> u32;
}

/// Does both for all keys twice and reports the second run, when memory has been touched.
///
/// # Errors
/// If failures were not counted, or not forgotten.
pub fn run(flags: &Flags, mut limiter: impl Limiter) -> Outcome {
    let keys: Vec<Arc<str>> = keys::range(0, flags.get("n", 1_000_000)?);
    let last = keys.last().ok_or_else(|| Stop::wrong("-n=0: no keys"))?;
    let mut report = None;
    for _ in 0..2 {
        let all = Stopwatch::start();
        limiter.prepare(&keys);
        let stopwatch = Stopwatch::start();
        limiter.when(&keys);
        let when = stopwatch.stop();
        if limiter.failures(last) != 1 {
            return Err(Stop::wrong("a failure was not counted"));
        }
        limiter.prepare(&keys);
        let stopwatch = Stopwatch::start();
        limiter.forget(&keys);
        let forget = stopwatch.stop();
        if limiter.failures(last) != 0 {
            return Err(Stop::wrong("a failure was not forgotten"));
        }
        let nanoseconds = |secs: f64| secs * 1e9 / keys.len() as f64;
        report = Some(
            Report::new(keys.len(), all.stop())
                .extra("when_ns", nanoseconds(when.secs))
                .extra("forget_ns", nanoseconds(forget.secs))
                .extra("when_cpu_ns", nanoseconds(when.cpu.all))
                .extra("forget_cpu_ns", nanoseconds(forget.cpu.all)),
        );
    }
    report.ok_or_else(|| Stop::wrong("nothing was measured"))
}
