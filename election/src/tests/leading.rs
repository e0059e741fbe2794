//! How the lease is renewed, and how its loss is noticed.

use std::time::Duration;

use http::Method;
use reeve_fake::{Fate, eventually};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::fixture::{Fixture, LEASE, LEASES, config_map};
use crate::Lost;

#[tokio::test(start_paused = true)]
async fn the_leader_renews_without_reading_and_reads_after_a_conflict() {
    let fixture = Fixture::new();
    let mut one = fixture.leader("one").await;
    assert!(one.keeps(Duration::from_secs(5)).await);
    fixture.put_label();
    assert!(one.keeps(Duration::from_millis(2500)).await);
    let expected = ["GET", "POST", "WATCH", "PUT", "PUT", "PUT", "GET", "PUT"];
    assert_eq!(fixture.verbs(), expected);
    let lease = fixture.fake.object(LEASE).unwrap();
    assert_eq!(lease["metadata"]["labels"]["added"], "by another");
    assert_eq!(lease["spec"]["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_another_may_lead() {
    let fixture = Fixture::new();
    for (case, fate) in [("hangs", Fate::Hang), ("refuses", Fate::Refuse(500))] {
        fixture.fake.no_hook();
        let mut one = fixture.leader("one").await;
        let renewed = Instant::now();
        fixture.fake.hook(move |_, _| Some(fate.clone()));
        let lost = one.elector.keep().await;
        assert!(matches!(lost, Lost::Deadline { .. }), "{case}: {lost}");
        assert_eq!(renewed.elapsed(), Duration::from_secs(10), "{case}");
        assert!(!one.fence.is_open(), "{case}");
        assert_eq!(one.metrics.leads.get(), 0, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_taken_by_another_is_lost_at_once() {
    let fixture = Fixture::new();
    let mut one = fixture.leader("one").await;
    fixture.put_held_by("another");
    let start = Instant::now();
    let lost = one.elector.keep().await;
    let holder = "another".to_owned();
    assert_eq!(lost, Lost::Taken { holder });
    assert!(start.elapsed() <= Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_leader_sees_at_once_that_its_lease_was_taken_emptied_or_deleted() {
    for (case, holder) in [
        ("taken", Some("another")),
        ("emptied", Some("")),
        ("deleted", None),
    ] {
        let fixture = Fixture::new();
        let mut one = fixture.leader("one").await;
        let keep = tokio::spawn(async move { (one.elector.keep().await, one.elector) });
        sleep(Duration::from_millis(4500)).await;
        let requests = fixture.verbs().len();
        match holder {
            Some(holder) => fixture.put_held_by(holder),
            None => fixture.fake.remove(LEASE),
        }
        sleep(Duration::from_millis(10)).await;
        assert_eq!(keep.is_finished(), case == "taken", "{case}");
        assert_eq!(one.fence.is_open(), case != "taken", "{case}");
        let expected = holder.filter(|holder| !holder.is_empty()).unwrap_or("one");
        assert_eq!(fixture.spec()["holderIdentity"], expected, "{case}");
        assert!(fixture.verbs().len() <= requests + 3, "{case}");
        keep.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_is_lost_is_still_ours() {
    let fixture = Fixture::new();
    let mut one = fixture.leader("one").await;
    let mut times = 0;
    fixture.fake.hook(move |method, _| {
        times += i32::from(*method == Method::PUT);
        (*method == Method::PUT && times == 1).then_some(Fate::Lose)
    });
    assert!(one.keeps(Duration::from_secs(30)).await);
    assert!(one.fence.is_open());
    assert_eq!(fixture.spec()["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_suspended_finds_its_fence_closed_and_the_lease_lost() {
    let fixture = Fixture::new();
    let mut one = fixture.leader("one").await;
    fixture.clock.suspend(Duration::from_secs(60));
    assert!(!one.fence.is_open(), "no timer has moved");
    let woken = Instant::now();
    let lost = one.elector.keep().await;
    assert!(matches!(lost, Lost::Deadline { .. }), "{lost}");
    assert_eq!(woken.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn leading_is_reported_and_a_renewal_that_had_to_read_is_counted() {
    let fixture = Fixture::new();
    let one = fixture.candidate("one");
    let (stop, leading) = (CancellationToken::new(), watch::channel(false).0);
    let leads = leading.subscribe();
    let run = tokio::spawn(one.elector.lead(stop.clone(), leading));
    eventually("leading", || *leads.borrow()).await;
    let counted = || (one.metrics.leads.get(), one.metrics.slow_path.get());
    assert_eq!(counted(), (1, 0));
    fixture.put_label();
    eventually("slow path", || counted().1 == 1).await;
    stop.cancel();
    run.await.unwrap().unwrap();
    assert!(!*leads.borrow());
    assert_eq!(counted(), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_leader_counts_from_when_it_requested_the_lease_and_not_from_the_answer() {
    let seconds = Duration::from_secs;
    for (case, method) in [("taken", Method::POST), ("renewed", Method::PUT)] {
        let fixture = Fixture::new();
        let mut one = fixture.candidate("one");
        // The write is executed at once and answered after four seconds. Then the server refuses requests for leases.
        let (slow, mut writes) = (method.clone(), 0);
        fixture.fake.hook(move |method, path| {
            let lease = path.starts_with(LEASES);
            if !lease || writes > 0 {
                return lease.then_some(Fate::Refuse(500));
            }
            writes += u32::from(*method == slow);
            (*method == slow).then_some(Fate::Late(seconds(4)))
        });
        one.elector.acquire().await;
        let mut sent_at = Instant::now();
        if case == "taken" {
            sent_at -= seconds(4);
        } else {
            // The first renewal comes after a retry period.
            sent_at += seconds(2);
        }
        let (fence, work) = (one.fence.clone(), one.client(fixture.fake.client()));
        let lost = tokio::spawn(async move { (one.elector.keep().await, Instant::now()) });
        sleep_until(sent_at + Duration::from_millis(9990)).await;
        assert!(work.create(&config_map("in-time")).await.is_ok(), "{case}");
        sleep_until(sent_at + seconds(10)).await;
        let refused = work.create(&config_map("late")).await.unwrap_err();
        assert!(
            matches!(refused, reeve_client::Error::NotLeader { .. }),
            "{case}: {refused}"
        );
        let (lost, at) = lost.await.unwrap();
        assert!(matches!(lost, Lost::Deadline { .. }), "{case}: {lost}");
        assert_eq!(at, sent_at + seconds(10), "{case}");
        // Others wait a lease duration from the time they saw the write, which is not before it was sent.
        fixture.fake.no_hook();
        let two = fixture.leader("two").await;
        assert!(two.fence.is_open() && !fence.is_open(), "{case}");
        assert!(Instant::now() >= sent_at + seconds(15), "{case}");
    }
}
