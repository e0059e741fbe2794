//! Clocks that are ahead, and clocks that are set.

use super::*;

/// The clocks of a replica that was started at a fixed time.
fn at(now: Timestamp) -> Now {
    let since_boot = now.as_second() - 1_700_000_000;
    Now {
        wall: now,
        elapsed: Duration::from_secs(since_boot.unsigned_abs()),
    }
}

fn trusting(contents: &Contents) -> Bundles {
    Bundles {
        entries: vec![Bundle {
            configuration: "configuration".to_owned(),
            authorities: contents.bundle.iter().map(|one| one.id).collect(),
        }],
        complete: true,
    }
}

#[test]
fn certificates_of_a_replica_whose_clock_is_ahead_are_replaced() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let good = contents(now, 1, 1);
    let mut memory = Memory::default();
    memory.decide(
        at(now),
        &Found::Contents(good.clone()),
        &trusting(&good),
        &LIVES,
    );
    let year = Duration::from_secs(365 * 24 * 3600);
    let mut ahead = contents(now + year, 2, 2);
    ahead.bundle.extend(&good.bundle);
    let later = now + Duration::from_secs(60);
    let found = Found::Contents(ahead.clone());
    // Even when the configurations have trusted the new authority for long, the good leaf stays.
    memory.decide(at(later), &found, &trusting(&ahead), &LIVES);
    let decision = memory.decide(
        at(later + LIVES.propagation),
        &found,
        &trusting(&ahead),
        &LIVES,
    );
    assert!(!decision.adopt);
    let Some(Write::Confirm(authorities, configurations)) = decision.write else {
        panic!("{:?}", decision.write);
    };
    ahead.confirm(&authorities, &configurations);
    let found = Found::Contents(ahead.clone());
    let decision = memory.decide(
        at(later + LIVES.propagation),
        &found,
        &trusting(&ahead),
        &LIVES,
    );
    assert!(!decision.adopt);
    assert_eq!(decision.write, Some(Write::Announce));
    // A difference of minutes between clocks replaces nothing.
    let soon = contents(now + Duration::from_secs(300), 1, 3);
    let mut memory = Memory::default();
    let decision = memory.decide(
        at(now),
        &Found::Contents(soon.clone()),
        &trusting(&soon),
        &LIVES,
    );
    assert_eq!((decision.adopt, decision.write), (true, None));
}

#[test]
fn a_clock_that_is_set_changes_no_wait() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let mut good = contents(now, 1, 1);
    let hour = Duration::from_secs(3600);
    // Good at all times of the test.
    good.leaf.expires = now + hour * 9;
    good.bundle[0].expires = now + hour * 9;
    let found = Found::Contents(good.clone());
    for set in [now - hour / 2, now + hour * 2] {
        let mut memory = Memory::default();
        let mut ready_after = |wall: Timestamp, seconds: u64| {
            let elapsed = Duration::from_secs(seconds);
            memory.decide(Now { wall, elapsed }, &found, &trusting(&good), &LIVES);
            memory.ready
        };
        let ready = [
            ready_after(now, 0),
            ready_after(set, 20),
            ready_after(set, 30),
        ];
        assert_eq!(ready, [false, false, true], "{set}");
    }
}
