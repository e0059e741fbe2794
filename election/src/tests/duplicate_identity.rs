//! Two processes of one identity.

use std::time::Duration;

use http::Method;
use reeve_clock::Clock;
use reeve_fake::Fate;
use tokio::time::{Instant, sleep};

use super::fixture::{Fixture, LEASES};
use crate::{Lost, Options};

#[tokio::test(start_paused = true)]
async fn of_two_processes_with_one_identity_the_first_stops_when_the_second_takes_the_lease() {
    for (case, watched, within) in [
        ("seen by the watch", true, Duration::from_millis(10)),
        ("seen at the renewal", false, Duration::from_secs(2)),
    ] {
        let fixture = Fixture::new();
        // No two clocks agree to the microsecond.
        let other = Clock::simulated("2026-01-01T00:00:00.000123Z".parse().unwrap(), 2);
        let mut two = fixture.candidate_with(&other, Options::new("ns", "lock").identity("web-0"));
        if !watched {
            fixture.fake.hook(|method, path| {
                (*method == Method::GET && path == LEASES).then_some(Fate::Refuse(403))
            });
        }
        let mut one = fixture.leader("web-0").await;
        let first = tokio::spawn(async move { (one.elector.keep().await, Instant::now()) });
        sleep(Duration::from_millis(4300)).await;
        two.elector.acquire().await;
        let taken = Instant::now();
        let kept = two.keeps(Duration::from_secs(60)).await;
        assert!(kept, "{case}: the second goes on");
        assert_eq!(
            (two.fence.is_open(), one.fence.is_open()),
            (true, false),
            "{case}"
        );
        let (lost, at) = first.await.unwrap();
        let identity = "web-0".to_owned();
        assert_eq!(lost, Lost::DuplicateIdentity { identity }, "{case}");
        assert!(at.duration_since(taken) <= within, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn releasing_leaves_the_lease_of_a_duplicate_alone() {
    let fixture = Fixture::new();
    let mut one = fixture.leader("web-0").await;
    fixture.put_held_by("web-0");
    one.elector.release().await;
    assert_eq!(fixture.spec()["holderIdentity"], "web-0");
}

#[tokio::test(start_paused = true)]
async fn after_a_duplicate_was_found_its_lease_is_respected_until_it_ends() {
    for (found, waits) in [(false, 0), (true, 15)] {
        let fixture = Fixture::new();
        fixture.put_held_by("web-0");
        let mut one = fixture.candidate("web-0");
        one.elector = one.elector.duplicate_identity(found);
        let waited = one.time_to_lead().await;
        assert_eq!(waited.as_secs(), waits);
    }
}
