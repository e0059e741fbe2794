//! When a gateway is called, and when not: a state machine without I/O.
//!
//! ```text
//!            failures in a row, or calls that take long
//!   Closed ───────────────────────────────────────────▶ Open ──(its time is over)──▶ Probing
//!     ▲                                                  ▲                              │
//!     │  any answer that is not a gateway fault          └────── the probe failed ──────┤
//!     └──────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! While open, callers are turned away at once; then exactly one is let through to probe. Each time a
//! probe fails the open time doubles.

use std::time::Duration;

use tokio::time::Instant;

use super::Error;

/// When the breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// This many gateway faults in a row open it. Default 5.
    pub failures: u32,
    /// This many calls past `slow_after` at once open it, without waiting for their time-out. Default 4.
    pub slow_calls: usize,
    /// A call that has no answer after this long counts as slow. Default 1 s.
    pub slow_after: Duration,
    /// The first open time; doubled by each failed probe. Default 500 ms.
    pub first_open: Duration,
    /// The longest open time, so the longest that a recovered gateway is not noticed. Default 8 s.
    pub longest_open: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            failures: 5,
            slow_calls: 4,
            slow_after: Duration::from_secs(1),
            first_open: Duration::from_millis(500),
            longest_open: Duration::from_secs(8),
        }
    }
}

/// The state of one gateway.
#[derive(Debug)]
pub(super) struct Breaker {
    settings: Settings,
    state: State,
    /// Calls past `slow_after` that are still waiting, in any state.
    slow: usize,
}

#[derive(Debug)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
        /// How often it opened without an answer between.
        streak: u32,
        last: Error,
    },
    Probing {
        streak: u32,
        last: Error,
    },
}

/// What a caller may do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Call.
    Pass,
    /// Call, as the one whose outcome decides.
    Probe,
    /// Do not call: `last` is why.
    Refused { last: Error, retry_after: Duration },
}

/// Whether an outcome opened the breaker just now: then waiting callers are turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It was closed (or probing) and is open now.
    Opened,
    /// The breaker is as it was, for waiting callers.
    Unchanged,
}

// === impl Breaker ===

impl Breaker {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            state: State::Closed { failures: 0 },
            slow: 0,
        }
    }

    /// Requests a call at `now`.
    pub(super) fn admit(&mut self, now: Instant) -> Admission {
        match &self.state {
            State::Closed { .. } => Admission::Pass,
            State::Open {
                until,
                streak,
                last,
            } => {
                if now < *until {
                    return Admission::Refused {
                        last: last.clone(),
                        retry_after: *until - now,
                    };
                }
                self.state = State::Probing {
                    streak: *streak,
                    last: last.clone(),
                };
                Admission::Probe
            }
            State::Probing { last, .. } => Admission::Refused {
                last: last.clone(),
                retry_after: self.settings.first_open,
            },
        }
    }

    /// Whether a call that was admitted and then had to wait may still go.
    pub(super) fn refusal(&self, now: Instant) -> Option<(Error, Duration)> {
        match &self.state {
            State::Closed { .. } => None,
            State::Open { until, last, .. } => {
                Some((last.clone(), until.saturating_duration_since(now)))
            }
            State::Probing { last, .. } => Some((last.clone(), self.settings.first_open)),
        }
    }

    /// The gateway answered, with whatever result for this target: it works.
    pub(super) fn answered(&mut self) {
        self.state = State::Closed { failures: 0 };
    }

    /// A call ended in a gateway fault.
    pub(super) fn failed(&mut self, error: Error, probe: bool, now: Instant) -> Change {
        match &mut self.state {
            State::Closed { failures } => {
                *failures += 1;
                if *failures < self.settings.failures {
                    return Change::Unchanged;
                }
                self.open(0, error, now)
            }
            State::Probing { streak, .. } if probe => {
                let streak = streak.saturating_add(1);
                self.open(streak, error, now)
            }
            // Late results of calls from before it opened are no news.
            State::Open { .. } | State::Probing { .. } => Change::Unchanged,
        }
    }

    /// A call passed `slow_after`; `error` is its result if it never ends.
    pub(super) fn slow(&mut self, error: Error, now: Instant) -> Change {
        self.slow += 1;
        match self.state {
            State::Closed { .. } if self.slow >= self.settings.slow_calls => {
                self.open(0, error, now)
            }
            _ => Change::Unchanged,
        }
    }

    /// A slow call ended.
    pub(super) fn slow_ended(&mut self) {
        self.slow = self.slow.saturating_sub(1);
    }

    /// The probe was cancelled before its result: the next caller probes.
    pub(super) fn probe_abandoned(&mut self, now: Instant) {
        if let State::Probing { streak, last } = &self.state {
            self.state = State::Open {
                until: now,
                streak: *streak,
                last: last.clone(),
            };
        }
    }

    fn open(&mut self, streak: u32, last: Error, now: Instant) -> Change {
        let doubled = self
            .settings
            .first_open
            .saturating_mul(2_u32.saturating_pow(streak.min(16)));
        self.state = State::Open {
            until: now + doubled.min(self.settings.longest_open),
            streak,
            last,
        };
        Change::Opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbound;

    fn fault() -> Error {
        Error::NoAnswer {
            gateway: "g:1".into(),
            cause: outbound::Error::Refused,
        }
    }

    fn refused_for(milliseconds: u64) -> Admission {
        Admission::Refused {
            last: fault(),
            retry_after: Duration::from_millis(milliseconds),
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// Milliseconds pass.
        Wait(u64),
        /// A caller requests a call; it passes, probes, or is refused for this many milliseconds.
        Pass,
        Probe,
        Refused(u64),
        Answered,
        Failed(Change),
        ProbeFailed(Change),
        Slow(Change),
        SlowEnded,
        Abandoned,
    }

    fn run(steps: &[Step]) {
        let mut breaker = Breaker::new(Settings {
            failures: 3,
            slow_calls: 2,
            ..Settings::default()
        });
        let mut now = Instant::now();
        for (index, step) in steps.iter().enumerate() {
            let at = format!("step {index} of {steps:?}");
            match *step {
                Step::Wait(milliseconds) => now += Duration::from_millis(milliseconds),
                Step::Pass => assert_eq!(breaker.admit(now), Admission::Pass, "{at}"),
                Step::Probe => assert_eq!(breaker.admit(now), Admission::Probe, "{at}"),
                Step::Refused(ms) => assert_eq!(breaker.admit(now), refused_for(ms), "{at}"),
                Step::Answered => breaker.answered(),
                Step::Failed(change) => {
                    assert_eq!(breaker.failed(fault(), false, now), change, "{at}");
                }
                Step::ProbeFailed(change) => {
                    assert_eq!(breaker.failed(fault(), true, now), change, "{at}");
                }
                Step::Slow(change) => assert_eq!(breaker.slow(fault(), now), change, "{at}"),
                Step::SlowEnded => breaker.slow_ended(),
                Step::Abandoned => breaker.probe_abandoned(now),
            }
        }
    }

    use Change::{Opened, Unchanged};
    use Step::*;

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_faults_in_a_row_and_one_caller_probes() {
        run(&[
            Pass,
            Failed(Unchanged),
            Pass,
            Failed(Unchanged),
            Pass,
            Failed(Opened),
            Refused(500),
            Wait(200),
            Refused(300),
            Wait(300),
            Probe,
            Refused(500),
            Answered,
            Pass,
        ]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_between_starts_the_count_again() {
        run(&[
            Failed(Unchanged),
            Failed(Unchanged),
            Answered,
            Failed(Unchanged),
            Failed(Unchanged),
            Pass,
            Failed(Opened),
        ]);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_probes_double_the_open_time_up_to_its_bound() {
        let mut steps = vec![Failed(Unchanged), Failed(Unchanged), Failed(Opened)];
        for open in [500, 1000, 2000, 4000, 8000, 8000, 8000] {
            steps.extend([Refused(open), Wait(open), Probe, ProbeFailed(Opened)]);
        }
        run(&steps);
    }

    #[tokio::test(start_paused = true)]
    async fn the_open_time_is_short_again_after_an_answer() {
        run(&[
            Failed(Unchanged),
            Failed(Unchanged),
            Failed(Opened),
            Wait(500),
            Probe,
            ProbeFailed(Opened),
            Wait(1000),
            Probe,
            Answered,
            Failed(Unchanged),
            Failed(Unchanged),
            Failed(Opened),
            Refused(500),
        ]);
    }

    #[tokio::test(start_paused = true)]
    async fn late_results_of_earlier_calls_neither_prolong_nor_decide_a_probe() {
        run(&[
            Failed(Unchanged),
            Failed(Unchanged),
            Failed(Opened),
            Failed(Unchanged),
            Refused(500),
            Wait(500),
            Probe,
            Failed(Unchanged),
            Refused(500),
            ProbeFailed(Opened),
            Refused(1000),
        ]);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_calls_open_it_before_they_time_out() {
        run(&[
            Pass,
            Pass,
            Slow(Unchanged),
            Pass,
            Slow(Opened),
            Refused(500),
            SlowEnded,
            SlowEnded,
            Wait(500),
            Probe,
            Answered,
            Slow(Unchanged),
        ]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_slow_call_after_another_does_not_open_it() {
        run(&[
            Slow(Unchanged),
            SlowEnded,
            Answered,
            Slow(Unchanged),
            SlowEnded,
            Answered,
            Pass,
        ]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_is_cancelled_leaves_the_place_to_the_next_caller() {
        run(&[
            Failed(Unchanged),
            Failed(Unchanged),
            Failed(Opened),
            Wait(500),
            Probe,
            Abandoned,
            Probe,
            Answered,
            Pass,
        ]);
    }
}
