//! The state machine alone, in the simulated world.

use std::time::Duration;

use proptest::prelude::*;

use super::faults::{CANDIDATES, Event, Fault, config, event, histories, timeline};
use super::world::{Setting, play};

fn violations(history: &[Event], setting: Setting) -> Vec<String> {
    play(timeline(history), setting)
}

/// Clocks that run by up to one in two hundred faster or slower than true.
fn rates() -> impl Strategy<Value = [f64; CANDIDATES]> {
    prop::array::uniform3(prop_oneof![2 => Just(1.0), 1 => 0.995..1.005])
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn the_fences_of_two_never_let_writes_through(
        history in histories(),
        rates in rates(),
        seed: u64,
    ) {
        let setting = Setting { gated: true, rates, seed };
        let found = violations(&history, setting);
        prop_assert!(found.is_empty(), "{:#?}", &found[..found.len().min(5)]);
    }
}

#[test]
fn without_the_fence_a_pause_longer_than_the_lease_is_found() {
    let pause = |candidate| event(10, candidate, Fault::Pause(Duration::from_secs(25)));
    let history = [pause(0), pause(1), pause(2)];
    let mut setting = Setting::default();
    assert_eq!(violations(&history, setting), Vec::<String>::new());
    setting.gated = false;
    let found = violations(&history, setting);
    assert!(
        found.iter().any(|text| text.contains("is accepted under")),
        "{found:?}"
    );
}

/// Found at random: a write of the process that crashed is in flight while its successor of the same identity takes the
/// lease and releases it.
#[test]
fn a_release_waits_for_the_writes_of_the_process_before_the_restart() {
    let millis = Duration::from_millis;
    let history = [
        event(20, 0, Fault::Slow(millis(4400), millis(400))),
        Event {
            after: millis(400),
            ..event(0, 0, Fault::Crash(millis(200), true))
        },
        Event {
            after: millis(500),
            ..event(0, 0, Fault::Stop(Duration::from_secs(20)))
        },
    ];
    for seed in 0..10 {
        let setting = Setting {
            seed,
            ..Setting::default()
        };
        assert_eq!(
            violations(&history, setting),
            Vec::<String>::new(),
            "{seed}"
        );
    }
}

/// The limit in the documentation of the crate: 10 to 15.
#[test]
fn only_a_clock_that_runs_slower_by_more_than_the_renew_deadline_to_the_lease_is_found() {
    let cut = |candidate| event(0, candidate, Fault::Cut(Duration::from_secs(40)));
    for (rate, safe) in [(0.7, true), (0.6, false)] {
        for leader in 0..CANDIDATES {
            // The others start later, so that the one with the slow clock leads.
            let crash = |candidate| {
                let length = Duration::from_secs(2);
                event(0, candidate, Fault::Crash(length, true))
            };
            let others = (0..CANDIDATES).filter(|other| *other != leader);
            let mut history: Vec<Event> = others.map(crash).collect();
            let mut late = cut(leader);
            late.after = Duration::from_secs(20);
            history.push(late);
            let mut setting = Setting::default();
            setting.rates[leader] = rate;
            let found = violations(&history, setting);
            assert_eq!(found.is_empty(), safe, "{leader} at {rate}: {found:?}");
        }
    }
}
