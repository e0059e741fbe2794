//! What the status of a candidate shows from its start to its end.

use std::time::Duration;

use reeve_fake::Fate;
use tokio::time::sleep;

use super::fixture::Fixture;
use crate::State;

#[tokio::test(start_paused = true)]
async fn a_leader_shows_its_renewals_and_after_the_release_no_holder() {
    let fixture = Fixture::new();
    let mut one = fixture.candidate("one");
    let status = one.elector.status().clone();
    assert_eq!(
        (status.get().state, status.get().holder),
        (State::Idle, None)
    );
    let start = fixture.clock.now();
    one.elector.acquire().await;
    let led = status.get();
    assert_eq!(led.state, State::Leading);
    assert_eq!(led.holder.as_deref(), Some("one"));
    assert_eq!((led.renewals, led.last_renewal), (0, Some(start)));
    assert!(one.keeps(Duration::from_secs(5)).await);
    let kept = status.get();
    assert_eq!((kept.renewals, kept.since), (2, start));
    assert!(kept.last_renewal > Some(start) && kept.last_error.is_none());
    one.elector.release().await;
    let released = status.get();
    assert_eq!((released.state, released.holder), (State::Idle, None));
}

#[tokio::test(start_paused = true)]
async fn a_candidate_shows_the_holder_and_a_loser_the_cause() {
    let fixture = Fixture::new();
    let mut one = fixture.leader("one").await;
    let mut two = fixture.candidate("two");
    let status = two.elector.status().clone();
    let waits = tokio::spawn(async move { two.elector.acquire().await });
    sleep(Duration::from_secs(1)).await;
    assert_eq!(status.get().state, State::Candidate);
    assert_eq!(status.get().holder.as_deref(), Some("one"));
    waits.abort();
    fixture.fake.hook(|_, _| Some(Fate::Refuse(500)));
    let status = one.elector.status().clone();
    let lost = one.elector.keep().await;
    drop(one);
    let shown = status.get();
    assert_eq!(shown.state, State::Lost, "also when the elector is gone");
    assert_eq!(shown.last_error.unwrap().message, lost.to_string());
}
