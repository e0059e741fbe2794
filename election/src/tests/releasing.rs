//! When and how the lease is released.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use reeve_fake::Fate;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::fixture::{CONFIG_MAPS, Fixture, LEASE, config_map, create_through_kube};

#[tokio::test(start_paused = true)]
async fn releasing_leaves_the_lease_of_another_alone() {
    let fixture = Fixture::new();
    let mut one = fixture.leader("one").await;
    fixture.put_held_by("another");
    one.elector.release().await;
    assert_eq!(fixture.spec()["holderIdentity"], "another");
}

/// client-go: `TestReleaseOnCancellation_Leases`.
#[tokio::test(start_paused = true)]
async fn a_stop_in_the_middle_of_a_request_still_releases_the_lease() {
    for (case, method, delay) in [
        ("creating", Method::POST, 0),
        ("reading", Method::GET, 0),
        ("renewing", Method::PUT, 3),
    ] {
        let fixture = Fixture::new();
        let one = fixture.candidate("one");
        let slow = AtomicBool::new(true);
        let chosen = method.clone();
        fixture.fake.hook(move |method, _| {
            let first = *method == chosen && slow.swap(false, Ordering::Relaxed);
            first.then_some(Fate::Late(Duration::from_secs(1)))
        });
        let (stop, leading) = (CancellationToken::new(), watch::channel(false).0);
        let run = tokio::spawn(one.elector.lead(stop.clone(), leading));
        sleep(Duration::from_millis(delay * 1000 + 500)).await;
        stop.cancel();
        run.await.unwrap().unwrap();
        sleep(Duration::from_secs(5)).await;
        let lease = fixture.fake.object(LEASE);
        let holder = lease.map(|lease| lease["spec"]["holderIdentity"].clone());
        let expected = (method != Method::GET).then(|| json!(""));
        assert_eq!(holder, expected, "{case}");
        assert!(!one.fence.is_open(), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_after_a_write_without_an_answer_and_a_refused_one_releases_the_lease() {
    let fixture = Fixture::new();
    let one = fixture.candidate("one");
    // The lease is created, and the answer is lost. Updates are refused until the stop.
    let refuses = Arc::new(AtomicBool::new(true));
    let refused = Arc::clone(&refuses);
    fixture.fake.hook(move |method, _| match *method {
        Method::POST => Some(Fate::Lose),
        Method::PUT if refused.load(Ordering::Relaxed) => Some(Fate::Refuse(403)),
        _ => None,
    });
    let (stop, leading) = (CancellationToken::new(), watch::channel(false).0);
    let run = tokio::spawn(one.elector.lead(stop.clone(), leading));
    sleep(Duration::from_secs(20)).await;
    assert_eq!(fixture.spec()["holderIdentity"], "one");
    assert!(!one.fence.is_open());
    refuses.store(false, Ordering::Relaxed);
    stop.cancel();
    run.await.unwrap().unwrap();
    assert_eq!(fixture.spec()["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_could_only_not_read_has_nothing_to_release() {
    let fixture = Fixture::new();
    let one = fixture.candidate("one");
    fixture
        .fake
        .hook(|method, _| (*method == Method::GET).then_some(Fate::Refuse(503)));
    let (stop, leading) = (CancellationToken::new(), watch::channel(false).0);
    let run = tokio::spawn(one.elector.lead(stop.clone(), leading));
    sleep(Duration::from_secs(20)).await;
    let stopped = Instant::now();
    stop.cancel();
    run.await.unwrap().unwrap();
    assert_eq!(stopped.elapsed(), Duration::ZERO);
}

/// A write of the process that held the lease under this identity before may be in flight.
#[tokio::test(start_paused = true)]
async fn a_lease_taken_over_from_its_own_identity_is_released_after_the_margin() {
    for (led_for, released_after) in [(1, 4), (20, 0)] {
        let fixture = Fixture::new();
        fixture.put_held_by("one");
        let mut one = fixture.leader("one").await;
        let led = timeout(Duration::from_secs(led_for), one.elector.keep()).await;
        assert!(led.is_err(), "{led:?}");
        let begun = Instant::now();
        one.elector.release().await;
        let elapsed = begun.elapsed().as_secs_f64();
        assert!(
            (elapsed - f64::from(released_after)).abs() < 0.1,
            "{led_for}: {elapsed}"
        );
        assert_eq!(fixture.spec()["holderIdentity"], "");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_conflicts_all_the_time_costs_few_requests() {
    let fixture = Fixture::new();
    let mut one = fixture.leader("one").await;
    let requests = fixture.verbs().len();
    let conflict = |method: &Method, _: &str| (*method == Method::PUT).then_some(Fate::Refuse(409));
    fixture.fake.hook(conflict);
    let begun = Instant::now();
    one.elector.release().await;
    assert_eq!(begun.elapsed(), Duration::from_secs(10));
    // Four tries at once, then two a retry period; each is a read and a write.
    let requests = fixture.verbs().len() - requests;
    assert!((8..=2 * (4 + 2 * 5)).contains(&requests), "{requests}");
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_released_when_no_write_can_arrive_any_more() {
    for (case, wait, released_after) in [
        ("answered after three seconds", 20, 3),
        ("given up after a second, and may take four more", 1, 6),
    ] {
        let fixture = Fixture::new();
        let mut one = fixture.leader("one").await;
        fixture.fake.hook(|_, path| {
            let slow = path.contains("configmaps");
            slow.then_some(Fate::Slow(Duration::from_secs(3)))
        });
        let client = one.client(fixture.fake.client());
        let begun = Instant::now();
        let write = tokio::spawn(async move {
            let map = config_map("work");
            let _ = timeout(Duration::from_secs(wait), client.create(&map)).await;
        });
        sleep(Duration::from_millis(500)).await;
        one.elector.release().await;
        let elapsed = begun.elapsed().as_secs_f64();
        assert!(
            (elapsed - f64::from(released_after)).abs() < 0.1,
            "{case}: {elapsed}"
        );
        assert_eq!(fixture.spec()["holderIdentity"], "", "{case}");
        write.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_error_does_not_mean_that_a_write_has_landed() {
    // The time-out filter of the server answers 504, and the write arrives two seconds later.
    for (code, released_after, through_kube) in [
        (504, 5, false),
        (500, 5, false),
        (504, 5, true),
        (403, 0, false),
        (403, 0, true),
    ] {
        let fixture = Fixture::new();
        let mut one = fixture.leader("one").await;
        fixture.fake.hook(move |_, path| {
            let work = path.contains("configmaps");
            work.then_some(Fate::Abandon(code, Duration::from_secs(2)))
        });
        let (client, map) = (one.client(fixture.fake.client()), config_map("work"));
        if through_kube {
            create_through_kube(&client, &map).await.unwrap_err();
        } else {
            client.create(&map).await.unwrap_err();
        }
        let begun = Instant::now();
        one.elector.release().await;
        assert_eq!(begun.elapsed().as_secs(), released_after, "{code}");
        assert_eq!(fixture.spec()["holderIdentity"], "", "{code}");
        let landed = !fixture.fake.objects(CONFIG_MAPS).is_empty();
        assert_eq!(landed, released_after > 0, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_released_when_the_last_worker_has_ended_or_not_at_all() {
    for (case, works, expected) in [("ends", 3, ""), ("goes on", 60, "one")] {
        let fixture = Fixture::new();
        let mut one = fixture.leader("one").await;
        let (working, other) = (one.fence.work(), one.fence.work());
        drop(other);
        tokio::spawn(async move {
            sleep(Duration::from_secs(works)).await;
            drop(working);
        });
        let begun = Instant::now();
        one.elector.release().await;
        // It tries for the renew deadline.
        assert_eq!(begun.elapsed().as_secs(), works.min(10), "{case}");
        assert_eq!(fixture.spec()["holderIdentity"], expected, "{case}");
    }
}
