//! Electors against a small API server, under paused time.

use std::time::Duration;

use http::Method;
use prometheus_client::metrics::gauge::Gauge;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::elector::{Elector, Lost};
use super::*;
use crate::client::Client;
use crate::fake::{Fake, Fate, clock};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/lock";

struct Candidate {
    elector: Elector,
    fence: Fence,
    metric: Gauge,
}

fn candidate(fake: &Fake, clock: &Clock, identity: &str) -> Candidate {
    let fence = Fence::closed(clock.clone());
    let metric = Gauge::default();
    let elector = Elector::new(
        Client::new(fake.client()),
        Options::new("ns", "lock", identity),
        clock.clone(),
        fence.clone(),
        metric.clone(),
    );
    Candidate {
        elector,
        fence,
        metric,
    }
}

fn spec(fake: &Fake) -> Value {
    fake.object(LEASE).expect("a lease")["spec"].clone()
}

fn held_by(holder: &str) -> Value {
    json!({"metadata": {"annotations": {"kept": "yes"}}, "spec": {"holderIdentity": holder,
        "leaseDurationSeconds": 15, "leaseTransitions": 3,
        "acquireTime": "2020-01-01T00:00:00.000000Z", "renewTime": "2020-01-01T00:00:00.000000Z"}})
}

#[test]
fn options_that_do_not_fit_together_are_refused() {
    let good = || Options::new("ns", "lock", "me");
    let seconds = Duration::from_secs;
    assert_eq!(good().validate(), Ok(()));
    let nobody = Options::new("ns", "lock", "");
    assert_eq!(nobody.validate(), Err(Error::NoIdentity));
    assert_eq!(
        Options::new("", "lock", "me").validate(),
        Err(Error::NoName)
    );
    assert!(matches!(
        good().lease_duration(seconds(10)).validate(),
        Err(Error::LeaseTooShort { .. })
    ));
    assert!(matches!(
        good().retry_period(seconds(9)).validate(),
        Err(Error::DeadlineTooShort { .. })
    ));
    assert!(matches!(
        good().retry_period(Duration::ZERO).validate(),
        Err(Error::TooShort { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_does_not_exist_is_created_as_client_go_writes_it() {
    let (fake, clock) = (Fake::default(), clock());
    let mut one = candidate(&fake, &clock, "one");
    assert!(!one.fence.is_open());
    one.elector.acquire().await;
    let expected = json!({"holderIdentity": "one", "leaseDurationSeconds": 15, "leaseTransitions": 0,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z"});
    assert_eq!(spec(&fake), expected);
    assert!(one.fence.is_open());
    assert_eq!(one.metric.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_leader_renews_without_reading_and_reads_after_a_conflict() {
    let (fake, clock) = (Fake::default(), clock());
    let mut one = candidate(&fake, &clock, "one");
    one.elector.acquire().await;
    let kept = timeout(Duration::from_secs(5), one.elector.keep()).await;
    assert!(kept.is_err(), "it goes on leading");
    let mut foreign = fake.object(LEASE).unwrap();
    foreign["metadata"]["labels"] = json!({"added": "by another"});
    fake.put(LEASE, foreign);
    assert!(
        timeout(Duration::from_secs(3), one.elector.keep())
            .await
            .is_err()
    );
    let verbs: Vec<String> = fake
        .log()
        .iter()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(verbs, ["GET", "POST", "PUT", "PUT", "PUT", "GET", "PUT"]);
    let lease = fake.object(LEASE).unwrap();
    assert_eq!(lease["metadata"]["labels"]["added"], "by another");
    assert_eq!(lease["spec"]["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_held_lease_is_taken_when_it_was_not_renewed_for_its_duration() {
    let (fake, clock) = (Fake::default(), clock());
    fake.put(LEASE, held_by("another"));
    let mut one = candidate(&fake, &clock, "one");
    let start = Instant::now();
    one.elector.acquire().await;
    // The times in the record are six years old; only what was seen here counts.
    let waited = start.elapsed();
    assert!(waited >= Duration::from_secs(15), "{waited:?}");
    assert!(waited < Duration::from_millis(15_100), "{waited:?}");
    assert_eq!(spec(&fake)["leaseTransitions"], 4);
    assert_eq!(
        fake.object(LEASE).unwrap()["metadata"]["annotations"]["kept"],
        "yes"
    );
}

#[tokio::test(start_paused = true)]
async fn a_restarted_holder_takes_its_own_lease_back_at_once() {
    let (fake, clock) = (Fake::default(), clock());
    fake.put(LEASE, held_by("pod-0"));
    let mut one = candidate(&fake, &clock, "pod-0");
    let start = Instant::now();
    one.elector.acquire().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(spec(&fake)["leaseTransitions"], 3);
    assert_eq!(spec(&fake)["acquireTime"], "2020-01-01T00:00:00.000000Z");
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_another_leads_within_the_lease_and_a_retry() {
    let (fake, clock) = (Fake::default(), clock());
    let mut one = candidate(&fake, &clock, "one");
    let mut two = candidate(&fake, &clock, "two");
    one.elector.acquire().await;
    let waiting = tokio::spawn(async move {
        two.elector.acquire().await;
        two
    });
    assert!(
        timeout(Duration::from_secs(60), one.elector.keep())
            .await
            .is_err()
    );
    assert!(!waiting.is_finished(), "one renews, two waits");
    drop(one);
    let crashed = Instant::now();
    let two = waiting.await.unwrap();
    // Two must have seen the last renewal, at most a jittered retry late, and then wait the duration.
    let bound = Duration::from_secs_f64(15.0 + 2.0 * 2.2);
    assert!(crashed.elapsed() <= bound, "{:?}", crashed.elapsed());
    assert!(two.fence.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_within_a_retry() {
    let (fake, clock) = (Fake::default(), clock());
    let mut one = candidate(&fake, &clock, "one");
    let mut two = candidate(&fake, &clock, "two");
    one.elector.acquire().await;
    let waiting = tokio::spawn(async move { two.elector.acquire().await });
    tokio::time::sleep(Duration::from_secs(7)).await;
    let fail_once = std::sync::atomic::AtomicBool::new(true);
    fake.hook(move |method, _| {
        let first = *method == Method::PUT && fail_once.swap(false, Ordering::Relaxed);
        first.then_some(Fate::Refuse(409))
    });
    one.elector.release().await;
    assert!(!one.fence.is_open());
    assert_eq!(one.metric.get(), 0);
    assert_eq!(spec(&fake)["holderIdentity"], "");
    assert_eq!(spec(&fake)["leaseDurationSeconds"], 1);
    let released = Instant::now();
    waiting.await.unwrap();
    assert!(released.elapsed() <= Duration::from_secs_f64(2.0 * 2.2));
    assert_eq!(spec(&fake)["holderIdentity"], "two");
}

#[tokio::test(start_paused = true)]
async fn releasing_leaves_the_lease_of_another_alone() {
    let (fake, clock) = (Fake::default(), clock());
    let mut one = candidate(&fake, &clock, "one");
    one.elector.acquire().await;
    fake.put(LEASE, held_by("another"));
    one.elector.release().await;
    assert_eq!(spec(&fake)["holderIdentity"], "another");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_another_may_lead() {
    let (fake, clock) = (Fake::default(), clock());
    for (case, fate) in [("hangs", Fate::Hang), ("refuses", Fate::Refuse(500))] {
        let mut one = candidate(&fake, &clock, "one");
        fake.no_hook();
        one.elector.acquire().await;
        let renewed = Instant::now();
        fake.hook(move |_, _| Some(fate.clone()));
        let lost = one.elector.keep().await;
        assert!(matches!(lost, Lost::Deadline { .. }), "{case}: {lost}");
        assert_eq!(renewed.elapsed(), Duration::from_secs(10), "{case}");
        assert!(!one.fence.is_open(), "{case}");
        assert_eq!(one.metric.get(), 0, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_taken_by_another_is_lost_at_once() {
    let (fake, clock) = (Fake::default(), clock());
    let mut one = candidate(&fake, &clock, "one");
    one.elector.acquire().await;
    fake.put(LEASE, held_by("another"));
    let start = Instant::now();
    let lost = one.elector.keep().await;
    let holder = "another".to_owned();
    assert_eq!(lost, Lost::Taken { holder });
    assert!(start.elapsed() <= Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_is_lost_is_still_ours() {
    let (fake, clock) = (Fake::default(), clock());
    let mut one = candidate(&fake, &clock, "one");
    one.elector.acquire().await;
    let mut times = 0;
    fake.hook(move |method, _| {
        times += i32::from(*method == Method::PUT);
        (*method == Method::PUT && times == 1).then_some(Fate::Lose)
    });
    assert!(
        timeout(Duration::from_secs(30), one.elector.keep())
            .await
            .is_err()
    );
    assert!(one.fence.is_open());
    assert_eq!(spec(&fake)["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_paused_finds_its_fence_closed() {
    let (fake, clock) = (Fake::default(), clock());
    let mut one = candidate(&fake, &clock, "one");
    one.elector.acquire().await;
    tokio::time::advance(Duration::from_secs(14)).await;
    assert!(one.fence.is_open());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(!one.fence.is_open(), "nobody told it, and still");
}

#[test]
fn the_identity_is_the_name_of_the_pod() {
    // The variable is not set in tests; then it is the host and something random.
    let clock = Clock::system();
    assert_ne!(identity(&clock), identity(&clock));
}
