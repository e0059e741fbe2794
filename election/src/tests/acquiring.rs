//! How and when the lease is taken.

use std::time::Duration;

use http::Method;
use reeve_fake::Fate;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::fixture::{Fixture, LEASE, held_by};
use crate::Options;

#[tokio::test(start_paused = true)]
async fn a_lease_that_does_not_exist_is_created_as_client_go_writes_it() {
    let fixture = Fixture::new();
    let mut one = fixture.candidate("one");
    assert!(!one.fence.is_open());
    one.elector.acquire().await;
    let expected = json!({"holderIdentity": "one", "leaseDurationSeconds": 15, "leaseTransitions": 0,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z"});
    assert_eq!(fixture.spec(), expected);
    assert!(one.fence.is_open());
    assert_eq!(one.metrics.leads.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_held_lease_is_taken_when_it_was_not_renewed_for_its_duration() {
    let fixture = Fixture::new();
    fixture.put_held_by("another");
    // The times in the record are six years old; only the local observation counts.
    let waited = fixture.candidate("one").time_to_lead().await;
    assert!(waited >= Duration::from_secs(15), "{waited:?}");
    assert!(waited < Duration::from_millis(15_100), "{waited:?}");
    assert_eq!(fixture.spec()["leaseTransitions"], 4);
    let lease = fixture.fake.object(LEASE).unwrap();
    assert_eq!(lease["metadata"]["annotations"]["kept"], "yes");
}

#[tokio::test(start_paused = true)]
async fn a_restarted_holder_takes_its_own_lease_back_at_once() {
    let fixture = Fixture::new();
    fixture.put_held_by("pod-0");
    let waited = fixture.candidate("pod-0").time_to_lead().await;
    assert_eq!(waited, Duration::ZERO);
    let spec = fixture.spec();
    assert_eq!(spec["leaseTransitions"], 3);
    assert_eq!(spec["acquireTime"], "2020-01-01T00:00:00.000000Z");
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_another_leads_within_the_lease_and_a_retry() {
    let fixture = Fixture::new();
    let mut one = fixture.leader("one").await;
    let mut two = fixture.candidate("two");
    let waiting = tokio::spawn(async move {
        two.elector.acquire().await;
        two
    });
    assert!(one.keeps(Duration::from_secs(60)).await);
    assert!(!waiting.is_finished(), "one renews, two waits");
    drop(one);
    let crashed = Instant::now();
    let two = waiting.await.unwrap();
    // The second candidate saw the last renewal when it was made, and a timer ends with the lease.
    assert!(crashed.elapsed() <= Duration::from_secs(15));
    assert!(crashed.elapsed() >= Duration::from_secs(13));
    assert!(two.fence.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_taken_when_it_would_have_ended() {
    let fixture = Fixture::new();
    fixture.put_held_by("another");
    let waiting = tokio::spawn(fixture.candidate("two").time_to_lead());
    sleep(Duration::from_secs(5)).await;
    fixture.fake.remove(LEASE);
    let waited = waiting.await.unwrap();
    assert!(waited >= Duration::from_secs(15), "{waited:?}");
    assert!(waited <= Duration::from_millis(15_100), "{waited:?}");
    assert_eq!(fixture.spec()["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn the_lease_carries_the_labels_of_the_options_beside_its_own() {
    let fixture = Fixture::new();
    let labels = || fixture.fake.object(LEASE).unwrap()["metadata"]["labels"].clone();
    let candidate = || {
        let options = Options::new("ns", "lock")
            .identity("one")
            .label("ring", "a");
        fixture.candidate_with(&fixture.clock, options)
    };
    candidate().elector.acquire().await;
    assert_eq!(labels(), json!({"ring": "a"}));
    let mut foreign = held_by("");
    foreign["metadata"]["labels"] = json!({"kept": "yes"});
    fixture.fake.put(LEASE, foreign);
    candidate().elector.acquire().await;
    assert_eq!(labels(), json!({"kept": "yes", "ring": "a"}));
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_answer_comes_after_the_renew_deadline_is_renewed_before_it_is_led() {
    let fixture = Fixture::new();
    let mut one = fixture.candidate("one");
    // Executed at once, and answered after a second, in which the machine is suspended.
    fixture
        .fake
        .hook(|method, _| (*method == Method::POST).then_some(Fate::Late(Duration::from_secs(1))));
    let clock = fixture.clock.clone();
    tokio::spawn(async move {
        sleep(Duration::from_millis(500)).await;
        clock.suspend(Duration::from_secs(12));
    });
    one.elector.acquire().await;
    assert_eq!(fixture.verbs(), ["GET", "POST", "PUT"]);
    assert!(one.fence.is_open() && one.keeps(Duration::from_secs(30)).await);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_continued_by_the_next() {
    let fixture = Fixture::new();
    let mut one = fixture.candidate("one");
    fixture
        .fake
        .hook(|method, _| (*method == Method::POST).then_some(Fate::Late(Duration::from_secs(3))));
    let begun = Instant::now();
    let first = tokio::time::timeout(Duration::from_secs(1), one.elector.acquire()).await;
    assert!(first.is_err());
    one.elector.acquire().await;
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
    assert_eq!(fixture.verbs(), ["GET", "POST"]);
}

#[tokio::test(start_paused = true)]
async fn an_elector_that_leads_shows_that_when_it_is_asked_to_acquire_once_more() {
    let fixture = Fixture::new();
    let mut one = fixture.leader("one").await;
    one.elector.acquire().await;
    assert!(one.keeps(Duration::from_secs(30)).await);
    let status = one.elector.status().get();
    assert_eq!(status.state, crate::State::Leading);
    assert!(status.renewals > 5, "{status:?}");
}
