//! How a standby notices that the lease is free.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use reeve_fake::{Fate, clock};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::fixture::{Fixture, LEASE, LEASES, held_by};
use crate::Options;

/// The longest wait between two polls.
const LONGEST_POLL: f64 = 2.0 * 2.2;

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_once() {
    let fixture = Fixture::new();
    let mut one = fixture.leader("one").await;
    let waiting = tokio::spawn(fixture.candidate("two").time_to_lead());
    sleep(Duration::from_secs(7)).await;
    let fail_once = AtomicBool::new(true);
    fixture.fake.hook(move |method, _| {
        let first = *method == Method::PUT && fail_once.swap(false, Ordering::Relaxed);
        first.then_some(Fate::Refuse(409))
    });
    one.elector.release().await;
    assert!(!one.fence.is_open());
    assert_eq!(one.metrics.leads.get(), 0);
    let spec = fixture.spec();
    assert_eq!(spec["holderIdentity"], "");
    assert_eq!(spec["leaseDurationSeconds"], 1);
    assert_eq!(spec["leaseTransitions"], 0);
    let released = Instant::now();
    waiting.await.unwrap();
    assert!(released.elapsed() <= Duration::from_millis(10));
    assert_eq!(fixture.spec()["holderIdentity"], "two");
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_was_suspended_reads_the_lease_before_it_takes_it() {
    let fixture = Fixture::new();
    let mut one = fixture.leader("one").await;
    let other = clock();
    let options = Options::new("ns", "lock").identity("two");
    let waiting = tokio::spawn(fixture.candidate_with(&other, options).time_to_lead());
    sleep(Duration::from_secs(1)).await;
    other.suspend(Duration::from_secs(14));
    assert!(one.keeps(Duration::from_secs(60)).await);
    assert!(!waiting.is_finished(), "one leads on");
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn without_a_watch_the_lease_is_polled_with_client_gos_jitter() {
    for (case, fate) in [("refused", Fate::Refuse(403)), ("stuck", Fate::Hang)] {
        let fixture = Fixture::new();
        let fake = &fixture.fake;
        fixture.put_held_by("another");
        fake.hook(move |_, path| (path == LEASES).then(|| fate.clone()));
        let waiting = tokio::spawn(fixture.candidate("two").time_to_lead());
        for second in 0..60 {
            sleep(Duration::from_secs(1)).await;
            let mut renewed = held_by("another");
            renewed["spec"]["renewTime"] = json!(format!("2020-01-01T00:00:{second:02}.000000Z"));
            fake.put(LEASE, renewed);
        }
        let verbs = fixture.verbs();
        let count = |verb: &str| verbs.iter().filter(|other| *other == verb).count();
        let (reads, watches) = (count("GET"), count("WATCH"));
        // Every 2 to 4.4 seconds, 3.2 on average; watches with growing pauses.
        assert!((14..=30).contains(&reads), "{case}: {reads}");
        assert!((2..=6).contains(&watches), "{case}: {watches}");
        fixture.put_held_by("");
        let released = Instant::now();
        waiting.await.unwrap();
        let waited = released.elapsed();
        assert!(waited.as_secs_f64() <= LONGEST_POLL, "{case}: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_shows_nothing_does_not_keep_the_lease_from_being_read() {
    let fixture = Fixture::new();
    fixture.put_held_by("another");
    let waiting = tokio::spawn(fixture.candidate("two").time_to_lead());
    sleep(Duration::from_secs(1)).await;
    fixture.fake.hold_watches(true);
    fixture.put_held_by("");
    let released = Instant::now();
    waiting.await.unwrap();
    assert!(released.elapsed().as_secs_f64() <= LONGEST_POLL);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_changes_hands_all_the_time_costs_few_requests() {
    let fixture = Fixture::new();
    fixture.put_held_by("another");
    let conflict = |method: &Method, _: &str| (*method == Method::PUT).then_some(Fate::Refuse(409));
    fixture.fake.hook(conflict);
    let waiting = tokio::spawn(fixture.candidate("two").time_to_lead());
    for turn in 0..600 {
        fixture.put_held_by(if turn % 2 == 0 { "" } else { "another" });
        sleep(Duration::from_millis(100)).await;
    }
    waiting.abort();
    // A try is a read and a write: three at once, then one a retry period.
    let requests = fixture.verbs().len();
    assert!(requests <= 2 * (3 + 30) + 10, "{requests} in a minute");
}
