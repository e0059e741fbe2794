//! Whole electors, against the scripted API server.

use std::time::Duration;

use proptest::prelude::*;

use super::faults::{CALM, Event, Fault, TROUBLE, config, event, histories, timeline};
use super::shell_world::play;

fn violations(history: &[Event], gated: bool) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let limit = TROUBLE * 4 + CALM;
        tokio::time::timeout(limit, play(timeline(history), gated))
            .await
            .expect("it ends")
    })
}

proptest! {
    // A case is 160 virtual seconds of three processes and their tasks.
    #![proptest_config(config(8))]

    #[test]
    fn the_fences_of_two_never_let_writes_through(history in histories()) {
        let found = violations(&history, true);
        prop_assert!(found.is_empty(), "{:#?}", &found[..found.len().min(5)]);
    }
}

#[test]
fn without_the_fence_a_pause_longer_than_the_lease_is_found() {
    let pause = |candidate| event(10, candidate, Fault::Pause(Duration::from_secs(25)));
    let history = [pause(0), pause(1), pause(2)];
    assert_eq!(violations(&history, true), Vec::<String>::new());
    let found = violations(&history, false);
    assert!(
        found.iter().any(|text| text.contains("is accepted under")),
        "{found:?}"
    );
}
