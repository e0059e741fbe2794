//! Electors against a small API server, under paused time.

use std::time::Duration;

use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use reeve_clock::Clock;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::elector::{Elector, Lost, Marks};
use super::*;
use reeve_client::Gated;

use reeve_client::Client;
use reeve_fake::{Fake, Fate, clock, eventually};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/lock";

struct Candidate {
    elector: Elector,
    fence: Fence,
    marks: Marks,
}

fn candidate(fake: &Fake, clock: &Clock, identity: &str) -> Candidate {
    candidate_with(fake, clock, Options::new("ns", "lock", identity))
}

fn candidate_with(fake: &Fake, clock: &Clock, options: Options) -> Candidate {
    let fence = Fence::closed(clock.clone());
    let marks = Marks::default();
    let elector = Elector::new(Client::new(fake.client()), options, clock.clone())
        .unwrap()
        .with_fence(fence.clone())
        .with_marks(marks.clone());
    Candidate {
        elector,
        fence,
        marks,
    }
}

/// Time from now until a candidate leads.
async fn time_to_lead(mut candidate: Candidate) -> Duration {
    let start = Instant::now();
    candidate.elector.acquire().await;
    start.elapsed()
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
    let unnamed = Options::new("ns", "lock", "");
    assert_eq!(unnamed.validate(), Err(Error::NoIdentity));
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
    assert_eq!(
        good().retry_period(Duration::ZERO).validate(),
        Err(Error::NoRetryPeriod)
    );
    for lease in [Duration::ZERO, Duration::from_millis(15_500)] {
        let refused = Err(Error::NotWholeSeconds { lease });
        assert_eq!(good().lease_duration(lease).validate(), refused);
    }
}

#[tokio::test(start_paused = true)]
async fn times_may_be_as_long_as_they_can_be() {
    let good = || Options::new("ns", "lock", "me");
    let both = good().lease_duration(Duration::MAX);
    let both = both.renew_deadline(Duration::MAX);
    assert!(matches!(both.validate(), Err(Error::LeaseTooShort { .. })));
    let retry = good().retry_period(Duration::MAX).validate();
    assert!(matches!(retry, Err(Error::DeadlineTooShort { .. })));

    let (fake, clock) = (Fake::default(), clock());
    let day = Duration::from_secs(86_400);
    let options = good().lease_duration(Duration::MAX);
    let options = options.renew_deadline(day * 9000);
    let options = options.retry_period(day * 7000);
    assert_eq!(options.validate(), Ok(()));
    let mut one = candidate_with(&fake, &clock, options);
    one.elector.acquire().await;
    assert!(one.fence.is_open());
    let kept = timeout(day * 400, one.elector.keep()).await;
    assert!(kept.is_err() && one.fence.is_open());

    let fence = Fence::closed(clock);
    fence.renewed(day, Duration::MAX, Duration::MAX);
    assert!(fence.is_open() && !fence.is_overdue(Duration::MAX));
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
    assert_eq!(one.marks.leads.get(), 1);
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
    // Each call of `keep` opens a watch of its own.
    let verbs: Vec<&str> = verbs.iter().map(String::as_str).collect();
    let expected = [
        "GET", "POST", "WATCH", "PUT", "PUT", "WATCH", "PUT", "GET", "PUT",
    ];
    assert_eq!(verbs, expected);
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
    // The times in the record are six years old; only the local observation counts.
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
    // The second candidate saw the last renewal when it was made, and a timer ends with the lease.
    let last: jiff::Timestamp = spec(&fake)["acquireTime"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(crashed.elapsed() <= Duration::from_secs(15), "{last}");
    assert!(crashed.elapsed() >= Duration::from_secs(13), "{last}");
    assert!(two.fence.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_once() {
    let (fake, clock) = (Fake::default(), clock());
    let mut one = candidate(&fake, &clock, "one");
    let mut two = candidate(&fake, &clock, "two");
    one.elector.acquire().await;
    let waiting = tokio::spawn(async move { two.elector.acquire().await });
    tokio::time::sleep(Duration::from_secs(7)).await;
    let fail_once = AtomicBool::new(true);
    fake.hook(move |method, _| {
        let first = *method == Method::PUT && fail_once.swap(false, Ordering::Relaxed);
        first.then_some(Fate::Refuse(409))
    });
    one.elector.release().await;
    assert!(!one.fence.is_open());
    assert_eq!(one.marks.leads.get(), 0);
    assert_eq!(spec(&fake)["holderIdentity"], "");
    assert_eq!(spec(&fake)["leaseDurationSeconds"], 1);
    assert_eq!(spec(&fake)["leaseTransitions"], 0);
    let released = Instant::now();
    waiting.await.unwrap();
    assert!(released.elapsed() <= Duration::from_millis(10));
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
        assert_eq!(one.marks.leads.get(), 0, "{case}");
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
async fn a_leader_sees_at_once_that_its_lease_was_taken_emptied_or_deleted() {
    for (case, holder) in [
        ("taken", Some("another")),
        ("emptied", Some("")),
        ("deleted", None),
    ] {
        let (fake, clock) = (Fake::default(), clock());
        let mut one = candidate(&fake, &clock, "one");
        one.elector.acquire().await;
        let keep = tokio::spawn(async move { (one.elector.keep().await, one.elector) });
        sleep(Duration::from_millis(4500)).await;
        let written = fake.log().len();
        match holder {
            Some(holder) => drop(fake.put(LEASE, held_by(holder))),
            None => fake.remove(LEASE),
        }
        sleep(Duration::from_millis(10)).await;
        assert_eq!(keep.is_finished(), case == "taken", "{case}");
        assert_eq!(one.fence.is_open(), case != "taken", "{case}");
        let expected = holder.filter(|holder| !holder.is_empty()).unwrap_or("one");
        assert_eq!(spec(&fake)["holderIdentity"], expected, "{case}");
        assert!(fake.log().len() <= written + 3, "{case}");
        keep.abort();
    }
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
async fn of_two_processes_with_one_identity_the_first_stops_when_the_second_takes_the_lease() {
    for (case, watched, within) in [
        ("seen by the watch", true, Duration::from_millis(10)),
        ("seen at the renewal", false, Duration::from_secs(2)),
    ] {
        let fake = Fake::default();
        // No two clocks agree to the microsecond.
        let other = Clock::simulated("2026-01-01T00:00:00.000123Z".parse().unwrap(), 2);
        let mut one = candidate(&fake, &clock(), "web-0");
        let mut two = candidate(&fake, &other, "web-0");
        if !watched {
            fake.hook(|method, path| {
                (*method == Method::GET && path == LEASES).then_some(Fate::Refuse(403))
            });
        }
        one.elector.acquire().await;
        let first = tokio::spawn(async move { (one.elector.keep().await, Instant::now()) });
        sleep(Duration::from_millis(4300)).await;
        two.elector.acquire().await;
        let taken = Instant::now();
        let kept = timeout(Duration::from_secs(60), two.elector.keep()).await;
        assert!(kept.is_err(), "{case}: the second goes on");
        assert_eq!(
            (two.fence.is_open(), one.fence.is_open()),
            (true, false),
            "{case}"
        );
        let (lost, at) = first.await.unwrap();
        let identity = "web-0".to_owned();
        assert_eq!(lost, Lost::Twin { identity }, "{case}");
        assert!(at.duration_since(taken) <= within, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn releasing_leaves_the_lease_of_a_twin_alone() {
    let (fake, clock) = (Fake::default(), clock());
    let mut one = candidate(&fake, &clock, "web-0");
    one.elector.acquire().await;
    fake.put(LEASE, held_by("web-0"));
    one.elector.release().await;
    assert_eq!(spec(&fake)["holderIdentity"], "web-0");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_ask_on_the_way_out_is_known_by_its_first_answer() {
    let (fake, clock) = (Fake::default(), clock());
    let mut one = candidate(&fake, &clock, "one");
    one.elector.acquire().await;
    let server = fake.client();
    let asking = kube_client::Client::new(
        tower::service_fn(move |request| {
            let server = server.clone();
            async move {
                let (parts, body) = Gated::request(request)?.into_parts();
                let bytes = http_body_util::BodyExt::collect(body).await?.to_bytes();
                let request = http::Request::from_parts(parts, bytes.into());
                server.send(request).await.map_err(tower::BoxError::from)
            }
        }),
        "ns",
    );
    let names = std::cell::Cell::new(0);
    let write = async |kube: kube_client::Client, through_kube: bool| {
        let client = Client::new(kube).gated(Some(one.fence.gate()));
        let mut map = ConfigMap::default();
        map.metadata.namespace = Some("ns".into());
        map.metadata.name = Some(format!("work-{}", names.replace(names.get() + 1)));
        if through_kube {
            let raw = kube_core::Request::new("/api/v1/namespaces/ns/configmaps")
                .create(&Default::default(), serde_json::to_vec(&map).unwrap());
            let written = client.kube().request::<ConfigMap>(raw.unwrap()).await;
            written.unwrap();
        } else {
            client.create(&map).await.unwrap();
        }
    };
    for through_kube in [false, true] {
        write(asking.clone(), through_kube).await;
        assert!(!one.fence.is_bypassed());
    }
    for through_kube in [false, true] {
        write(fake.client(), through_kube).await;
        assert!(one.fence.is_bypassed(), "{through_kube}");
        one.fence.forget_bypassed();
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_paused_finds_its_fence_closed() {
    let (fake, clock) = (Fake::default(), clock());
    let mut one = candidate(&fake, &clock, "one");
    one.elector.acquire().await;
    tokio::time::advance(Duration::from_millis(9_999)).await;
    assert!(one.fence.is_open());
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!one.fence.is_open(), "it closes by itself");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_suspended_finds_its_fence_closed_and_the_lease_lost() {
    let (fake, clock) = (Fake::default(), clock());
    let mut one = candidate(&fake, &clock, "one");
    one.elector.acquire().await;
    clock.suspend(Duration::from_secs(60));
    assert!(!one.fence.is_open(), "no timer has moved");
    let woken = Instant::now();
    let lost = one.elector.keep().await;
    assert!(matches!(lost, Lost::Deadline { .. }), "{lost}");
    assert_eq!(woken.elapsed(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_was_suspended_reads_the_lease_before_it_takes_it() {
    let (fake, clocks) = (Fake::default(), [clock(), clock()]);
    let mut one = candidate(&fake, &clocks[0], "one");
    one.elector.acquire().await;
    let mut two = candidate(&fake, &clocks[1], "two");
    let waiting = tokio::spawn(async move { two.elector.acquire().await });
    sleep(Duration::from_secs(1)).await;
    clocks[1].suspend(Duration::from_secs(14));
    let kept = timeout(Duration::from_secs(60), one.elector.keep()).await;
    assert!(kept.is_err() && !waiting.is_finished(), "one leads on");
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn without_a_watch_the_lease_is_polled_with_client_gos_jitter() {
    for (case, fate) in [("refused", Fate::Refuse(403)), ("stuck", Fate::Hang)] {
        let (fake, clock) = (Fake::default(), clock());
        fake.put(LEASE, held_by("another"));
        fake.hook(move |_, path| (path == LEASES).then(|| fate.clone()));
        let mut two = candidate(&fake, &clock, "two");
        let waiting = tokio::spawn(async move { two.elector.acquire().await });
        for second in 0..60 {
            sleep(Duration::from_secs(1)).await;
            let mut renewed = held_by("another");
            renewed["spec"]["renewTime"] = json!(format!("2020-01-01T00:00:{second:02}.000000Z"));
            fake.put(LEASE, renewed);
        }
        let count = |verb: &str| {
            let log = fake.log();
            log.iter().filter(|line| line.starts_with(verb)).count()
        };
        // Every 2 to 4.4 seconds, 3.2 on average; watches with growing pauses.
        assert!(
            (14..=30).contains(&count("GET")),
            "{case}: {}",
            count("GET")
        );
        assert!(
            (2..=6).contains(&count("WATCH")),
            "{case}: {}",
            count("WATCH")
        );
        fake.put(LEASE, held_by(""));
        let released = Instant::now();
        waiting.await.unwrap();
        let bound = Duration::from_secs_f64(2.0 * 2.2);
        assert!(
            released.elapsed() <= bound,
            "{case}: {:?}",
            released.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_shows_nothing_does_not_keep_the_lease_from_being_read() {
    let (fake, clock) = (Fake::default(), clock());
    fake.put(LEASE, held_by("another"));
    let mut two = candidate(&fake, &clock, "two");
    let waiting = tokio::spawn(async move { two.elector.acquire().await });
    sleep(Duration::from_secs(1)).await;
    fake.hold_watches(true);
    fake.put(LEASE, held_by(""));
    let released = Instant::now();
    waiting.await.unwrap();
    assert!(released.elapsed() <= Duration::from_secs_f64(2.0 * 2.2));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_changes_hands_all_the_time_costs_few_requests() {
    let (fake, clock) = (Fake::default(), clock());
    fake.put(LEASE, held_by("another"));
    let mut two = candidate(&fake, &clock, "two");
    fake.hook(|method, _| (*method == Method::PUT).then_some(Fate::Refuse(409)));
    let waiting = tokio::spawn(async move { two.elector.acquire().await });
    for turn in 0..600 {
        fake.put(LEASE, held_by(if turn % 2 == 0 { "" } else { "another" }));
        sleep(Duration::from_millis(100)).await;
    }
    waiting.abort();
    // A try is a read and a write: three at once, then one a retry period.
    let requests = fake.log().len();
    assert!(requests <= 2 * (3 + 30) + 10, "{requests} in a minute");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_taken_when_it_would_have_ended() {
    let (fake, clock) = (Fake::default(), clock());
    fake.put(LEASE, held_by("another"));
    let two = candidate(&fake, &clock, "two");
    let waiting = tokio::spawn(time_to_lead(two));
    sleep(Duration::from_secs(5)).await;
    fake.remove(LEASE);
    let waited = waiting.await.unwrap();
    assert!(waited >= Duration::from_secs(15), "{waited:?}");
    assert!(waited <= Duration::from_millis(15_100), "{waited:?}");
    assert_eq!(spec(&fake)["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn the_lease_carries_the_labels_it_is_told_to_beside_its_own() {
    let (fake, clock) = (Fake::default(), clock());
    let labelled = || Options::new("ns", "lock", "one").label("ring", "a");
    candidate_with(&fake, &clock, labelled())
        .elector
        .acquire()
        .await;
    assert_eq!(
        fake.object(LEASE).unwrap()["metadata"]["labels"],
        json!({"ring": "a"})
    );
    let mut foreign = held_by("");
    foreign["metadata"]["labels"] = json!({"kept": "yes"});
    fake.put(LEASE, foreign);
    candidate_with(&fake, &clock, labelled())
        .elector
        .acquire()
        .await;
    assert_eq!(
        fake.object(LEASE).unwrap()["metadata"]["labels"],
        json!({"kept": "yes", "ring": "a"})
    );
}

/// client-go: `TestReleaseOnCancellation_Leases`.
#[tokio::test(start_paused = true)]
async fn a_stop_in_the_middle_of_a_request_still_releases_the_lease() {
    for (case, method, delay) in [
        ("creating", Method::POST, 0),
        ("reading", Method::GET, 0),
        ("renewing", Method::PUT, 3),
    ] {
        let (fake, clock) = (Fake::default(), clock());
        let one = candidate(&fake, &clock, "one");
        let slow = AtomicBool::new(true);
        let chosen = method.clone();
        fake.hook(move |method, _| {
            let first = *method == chosen && slow.swap(false, Ordering::Relaxed);
            first.then_some(Fate::Late(Duration::from_secs(1)))
        });
        let (stop, leading) = (CancellationToken::new(), watch::channel(false).0);
        let run = tokio::spawn(one.elector.lead(stop.clone(), leading));
        sleep(Duration::from_millis(delay * 1000 + 500)).await;
        stop.cancel();
        run.await.unwrap().unwrap();
        sleep(Duration::from_secs(5)).await;
        let holder = fake
            .object(LEASE)
            .map(|lease| lease["spec"]["holderIdentity"].clone());
        let expected = (method != Method::GET).then(|| json!(""));
        assert_eq!(holder, expected, "{case}");
        assert!(!one.fence.is_open(), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn leading_is_told_and_a_renewal_that_had_to_read_is_counted() {
    let (fake, clock) = (Fake::default(), clock());
    let one = candidate(&fake, &clock, "one");
    let (stop, leading) = (CancellationToken::new(), watch::channel(false).0);
    let leads = leading.subscribe();
    let run = tokio::spawn(one.elector.lead(stop.clone(), leading));
    eventually("leading", || *leads.borrow()).await;
    assert_eq!((one.marks.leads.get(), one.marks.slow_path.get()), (1, 0));
    let mut foreign = fake.object(LEASE).unwrap();
    foreign["metadata"]["labels"] = json!({"added": "by another"});
    fake.put(LEASE, foreign);
    eventually("slow path", || one.marks.slow_path.get() == 1).await;
    stop.cancel();
    run.await.unwrap().unwrap();
    assert!(!*leads.borrow());
    assert_eq!((one.marks.leads.get(), one.marks.slow_path.get()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_released_when_no_write_can_arrive_any_more() {
    for (case, wait, released_after) in [
        ("answered after three seconds", 20, 3),
        ("given up after a second, and may take four more", 1, 6),
    ] {
        let (fake, clock) = (Fake::default(), clock());
        let mut one = candidate(&fake, &clock, "one");
        one.elector.acquire().await;
        fake.hook(|_, path| {
            let slow = path.contains("configmaps");
            slow.then_some(Fate::Slow(Duration::from_secs(3)))
        });
        let client = Client::new(fake.client()).gated(Some(one.fence.gate()));
        let begun = Instant::now();
        let write = tokio::spawn(async move {
            let mut map = ConfigMap::default();
            map.metadata.namespace = Some("ns".into());
            map.metadata.name = Some("work".into());
            let _ = timeout(Duration::from_secs(wait), client.create(&map)).await;
        });
        sleep(Duration::from_millis(500)).await;
        one.elector.release().await;
        let elapsed = begun.elapsed().as_secs_f64();
        assert!(
            (elapsed - f64::from(released_after)).abs() < 0.1,
            "{case}: {elapsed}"
        );
        assert_eq!(spec(&fake)["holderIdentity"], "", "{case}");
        write.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_prepared_before_and_sent_after_is_not_sent() {
    let (fake, clock) = (Fake::default(), clock());
    let mut one = candidate(&fake, &clock, "one");
    one.elector.acquire().await;
    let map = || {
        let mut map = ConfigMap::default();
        map.metadata.namespace = Some("ns".into());
        map.metadata.name = Some("work".into());
        map
    };
    // As `connect` does before the connection: checks the gate after all other layers.
    let server = fake.client();
    let gate = tower::service_fn(move |request| {
        let server = server.clone();
        async move {
            sleep(Duration::from_secs(3)).await;
            let (parts, body) = Gated::request(request)?.into_parts();
            let bytes = http_body_util::BodyExt::collect(body).await?.to_bytes();
            let request = http::Request::from_parts(parts, bytes.into());
            server.send(request).await.map_err(tower::BoxError::from)
        }
    });
    let client = Client::new(kube_client::Client::new(gate, "ns")).gated(Some(one.fence.gate()));
    sleep(Duration::from_secs(8)).await;
    let refused = client.create(&map()).await.unwrap_err();
    assert!(
        matches!(refused, reeve_client::Error::NotLeader { .. }),
        "{refused}"
    );
    assert!(!refused.is_ambiguous());
    let raw = kube_core::Request::new("/api/v1/namespaces/ns/configmaps")
        .create(&Default::default(), serde_json::to_vec(&map()).unwrap());
    let refused = client
        .kube()
        .request::<ConfigMap>(raw.unwrap())
        .await
        .unwrap_err();
    assert!(format!("{refused:?}").contains("Closed"), "{refused:?}");
    assert!(fake.objects("/api/v1/namespaces/ns/configmaps").is_empty());
    // Reading needs no lease.
    let key = reeve_client::ObjectKey::namespaced("ns", "work");
    assert!(
        client
            .get::<ConfigMap>(&key)
            .await
            .unwrap_err()
            .is_not_found()
    );
}

#[test]
fn the_identity_is_the_name_of_the_pod_or_else_the_host_and_something_random() {
    let clock = clock();
    let identity = |pod: Option<&str>, host: Option<&str>| {
        let look_up = |name: &str| match name {
            "POD_NAME" => pod.map(str::to_owned),
            "HOSTNAME" => host.map(str::to_owned),
            _ => None,
        };
        options::identity_by(look_up, &clock)
    };
    assert_eq!(identity(Some("web-0"), Some("node")), "web-0");
    for (pod, host, start) in [
        (None, Some("node"), "node_"),
        (Some(""), Some("node"), "node_"),
        (None, None, "local_"),
        (None, Some(""), "local_"),
    ] {
        let (one, two) = (identity(pod, host), identity(pod, host));
        assert_ne!(one, two, "two processes on one host");
        let random = one.strip_prefix(start).expect(start);
        let hex = |digit: char| digit.is_ascii_hexdigit();
        assert!(random.len() == 16 && random.chars().all(hex), "{one}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_error_does_not_say_that_a_write_has_landed() {
    // The time-out filter of the server answers 504, and the write arrives two seconds later.
    for (code, released_after, through_kube) in [
        (504, 5, false),
        (500, 5, false),
        (504, 5, true),
        (403, 0, false),
        (403, 0, true),
    ] {
        let (fake, clock) = (Fake::default(), clock());
        let mut one = candidate(&fake, &clock, "one");
        one.elector.acquire().await;
        fake.hook(move |_, path| {
            let work = path.contains("configmaps");
            work.then_some(Fate::Abandon(code, Duration::from_secs(2)))
        });
        let client = Client::new(fake.client()).gated(Some(one.fence.gate()));
        let mut map = ConfigMap::default();
        map.metadata.namespace = Some("ns".into());
        map.metadata.name = Some("work".into());
        if through_kube {
            let raw = kube_core::Request::new("/api/v1/namespaces/ns/configmaps")
                .create(&Default::default(), serde_json::to_vec(&map).unwrap());
            let written = client.kube().request::<ConfigMap>(raw.unwrap()).await;
            written.unwrap_err();
        } else {
            client.create(&map).await.unwrap_err();
        }
        let begun = Instant::now();
        one.elector.release().await;
        assert_eq!(begun.elapsed().as_secs(), released_after, "{code}");
        assert_eq!(spec(&fake)["holderIdentity"], "", "{code}");
        let landed = !fake.objects("/api/v1/namespaces/ns/configmaps").is_empty();
        assert_eq!(landed, released_after > 0, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_released_when_the_last_worker_has_ended_or_not_at_all() {
    for (case, works, expected) in [("ends", 3, ""), ("goes on", 60, "one")] {
        let (fake, clock) = (Fake::default(), clock());
        let mut one = candidate(&fake, &clock, "one");
        one.elector.acquire().await;
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
        assert_eq!(spec(&fake)["holderIdentity"], expected, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_counts_from_when_it_asked_for_the_lease_and_not_from_the_answer() {
    let seconds = Duration::from_secs;
    for (case, method) in [("taken", Method::POST), ("renewed", Method::PUT)] {
        let (fake, clock) = (Fake::default(), clock());
        let mut one = candidate(&fake, &clock, "one");
        // The write is executed at once and answered after four seconds. Then the server refuses requests for leases.
        let (slow, mut writes) = (method.clone(), 0);
        fake.hook(move |method, path| {
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
        let fence = one.fence.clone();
        let lost = tokio::spawn(async move { (one.elector.keep().await, Instant::now()) });
        let work = Client::new(fake.client()).gated(Some(fence.gate()));
        let write = async |name: &str| {
            let mut map = ConfigMap::default();
            map.metadata.namespace = Some("ns".into());
            map.metadata.name = Some(name.into());
            work.create(&map).await
        };
        tokio::time::sleep_until(sent_at + Duration::from_millis(9990)).await;
        assert!(write("in-time").await.is_ok(), "{case}");
        tokio::time::sleep_until(sent_at + seconds(10)).await;
        let refused = write("late").await.unwrap_err();
        assert!(
            matches!(refused, reeve_client::Error::NotLeader { .. }),
            "{case}: {refused}"
        );
        let (lost, at) = lost.await.unwrap();
        assert!(matches!(lost, Lost::Deadline { .. }), "{case}: {lost}");
        assert_eq!(at, sent_at + seconds(10), "{case}");
        // Others wait a lease duration from the time they saw the write, which is not before it was sent.
        let mut two = candidate(&fake, &clock, "two");
        fake.no_hook();
        two.elector.acquire().await;
        assert!(two.fence.is_open() && !fence.is_open(), "{case}");
        assert!(Instant::now() >= sent_at + seconds(15), "{case}");
    }
}

/// Records the holder of the lease at the time of its drop.
struct HolderAtDrop(Fake, std::sync::Arc<parking_lot::Mutex<Option<Value>>>);

impl Drop for HolderAtDrop {
    fn drop(&mut self) {
        *self.1.lock() = Some(spec(&self.0)["holderIdentity"].clone());
    }
}

#[tokio::test(start_paused = true)]
async fn work_runs_under_the_lease_and_is_dropped_before_the_lease_is_given_up() {
    for (case, ends, lost) in [
        ("the work ends", true, false),
        ("a stop", false, false),
        ("the lease is lost", false, true),
    ] {
        let (fake, clock) = (Fake::default(), clock());
        let one = candidate(&fake, &clock, "one");
        let (stop, holder) = (CancellationToken::new(), std::sync::Arc::default());
        let guard = HolderAtDrop(fake.clone(), std::sync::Arc::clone(&holder));
        let work = async move {
            let _guard = guard;
            if !ends {
                std::future::pending::<()>().await;
            }
            7
        };
        let running = tokio::spawn(one.elector.run(stop.clone(), work));
        let held = || fake.object(LEASE).is_some();
        eventually("the lease is taken", held).await;
        if lost {
            fake.put(LEASE, held_by("two"));
        } else if !ends {
            stop.cancel();
        }
        let ended = running.await.unwrap();
        match case {
            "the lease is lost" => assert!(matches!(ended, Err(Lost::Taken { .. })), "{ended:?}"),
            _ => assert_eq!(ended.unwrap(), ends.then_some(7), "{case}"),
        }
        let last = if lost { "two" } else { "" };
        assert_eq!(spec(&fake)["holderIdentity"], last, "{case}");
        let while_dropped = if lost { "two" } else { "one" };
        assert_eq!(*holder.lock(), Some(json!(while_dropped)), "{case}");
    }
}
