//! Random histories of faults.

use std::time::Duration;

use proptest::prelude::*;

pub(super) const CANDIDATES: usize = 3;
/// Maximum time in flight: within LeaseDuration − RenewDeadline, as the guarantee requires.
const SLOWEST: Duration = Duration::from_millis(4500);
/// Time in which faults happen.
pub(super) const TROUBLE: Duration = Duration::from_secs(120);
/// Time without faults after which everything works again: the lease, a restart and a retry.
pub(super) const CALM: Duration = Duration::from_secs(40);

/// One fault, which begins some time after the fault before.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) after: Duration,
    pub(super) candidate: usize,
    pub(super) fault: Fault,
}

#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// No message passes, in either direction.
    Cut(Duration),
    /// Each direction takes this long.
    Slow(Duration, Duration),
    /// The server answers writes of the lease with this code.
    Refuse(u16, Duration),
    /// The server executes requests, and the answers are lost.
    Deaf(Duration),
    /// The process is paused.
    Pause(Duration),
    /// The wall clock is set.
    Jump(i64),
    /// The process dies and comes back after a while, as itself or as another.
    Crash(Duration, bool),
    /// The process stops gracefully and comes back.
    Stop(Duration),
    /// Watches show nothing.
    Blind(Duration),
}

/// What happens to one candidate at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Cut { until: Duration },
    Slow { delay: Duration, until: Duration },
    Refuse { code: u16, until: Duration },
    Deaf { until: Duration },
    Pause,
    Resume,
    Jump { seconds: i64 },
    Crash,
    Stop,
    Start { identity: String },
    Blind,
    See,
}

/// The changes of a history in the order of their times. All faults end within [`TROUBLE`].
pub(super) fn timeline(history: &[Event]) -> Vec<(Duration, usize, Change)> {
    let mut changes = Vec::new();
    let (mut at, mut generations) = (Duration::ZERO, [0; CANDIDATES]);
    for event in history {
        at = (at + event.after).min(TROUBLE);
        let candidate = event.candidate;
        let end = |length: &Duration| (at + *length).min(TROUBLE);
        let mut add = |at: Duration, change: Change| changes.push((at, candidate, change));
        match &event.fault {
            Fault::Cut(length) => add(at, Change::Cut { until: end(length) }),
            Fault::Slow(delay, length) => {
                let (delay, until) = (*delay, end(length));
                add(at, Change::Slow { delay, until });
            }
            Fault::Refuse(code, length) => {
                let (code, until) = (*code, end(length));
                add(at, Change::Refuse { code, until });
            }
            Fault::Deaf(length) => add(at, Change::Deaf { until: end(length) }),
            Fault::Pause(length) => {
                add(at, Change::Pause);
                add(end(length), Change::Resume);
            }
            Fault::Jump(seconds) => add(at, Change::Jump { seconds: *seconds }),
            Fault::Crash(length, same) => {
                add(at, Change::Crash);
                generations[candidate] += u32::from(!same);
                let identity = identity(candidate, generations[candidate]);
                add(end(length), Change::Start { identity });
            }
            Fault::Stop(length) => {
                add(at, Change::Stop);
                let identity = identity(candidate, generations[candidate]);
                add(end(length), Change::Start { identity });
            }
            Fault::Blind(length) => {
                add(at, Change::Blind);
                add(end(length), Change::See);
            }
        }
    }
    changes.sort_by_key(|(at, ..)| *at);
    changes
}

/// The name of a candidate after it came back as another `generation` times.
pub(super) fn identity(candidate: usize, generation: u32) -> String {
    format!("pod-{candidate}-{generation}")
}

pub(super) fn histories() -> impl Strategy<Value = Vec<Event>> {
    let length = || (200_u64..30_000).prop_map(Duration::from_millis);
    let fault = prop_oneof![
        3 => length().prop_map(Fault::Cut),
        2 => (10_u64..4400, length())
            .prop_map(|(delay, length)| Fault::Slow(Duration::from_millis(delay), length)),
        2 => (prop_oneof![Just(409_u16), Just(500), Just(403)], length())
            .prop_map(|(code, length)| Fault::Refuse(code, length)),
        2 => length().prop_map(Fault::Deaf),
        4 => length().prop_map(Fault::Pause),
        1 => (-90_000_i64..90_000).prop_map(Fault::Jump),
        2 => (length(), any::<bool>()).prop_map(|(length, same)| Fault::Crash(length, same)),
        1 => length().prop_map(|length| Fault::Stop(length + SLOWEST * 3)),
        1 => length().prop_map(Fault::Blind),
    ];
    let event = (0_u64..20_000, 0..CANDIDATES, fault).prop_map(|(after, candidate, fault)| Event {
        after: Duration::from_millis(after),
        candidate,
        fault,
    });
    prop::collection::vec(event, 1..16)
}

pub(super) fn event(seconds: u64, candidate: usize, fault: Fault) -> Event {
    Event {
        after: Duration::from_secs(seconds),
        candidate,
        fault,
    }
}

/// The number of cases: `cases` unless `PROPTEST_CASES` is set.
pub(super) fn config(cases: u32) -> ProptestConfig {
    let set = std::env::var("PROPTEST_CASES").ok();
    ProptestConfig {
        cases: set.and_then(|text| text.parse().ok()).unwrap_or(cases),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}
