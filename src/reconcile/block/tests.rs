//! The reconciler of blocks without an API server.

use futures::StreamExt;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::decide::run::DUE_FIRST;

#[derive(Debug)]
struct Silent;

impl Announcer for Silent {
    fn announce(&self, _: &IPBlock, _: &Announcement, _: Timestamp) {}
}

fn unused_client() -> kube_client::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let nowhere = "http://127.0.0.1:1".parse().unwrap();
    kube_client::Client::try_from(kube_client::Config::new(nowhere)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_block_that_found_no_room_in_the_queue_is_requested_when_there_is_room() {
    let (again, mut requests) = reeve_controller::source::channel::<Request>(1);
    let connector = super::super::Gateways {
        allow_loopback: false,
        guard: crate::engine::GuardSettings::default(),
        metrics: crate::engine::Metrics::new(),
    };
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    let coverage = Arc::<Mutex<Coverage>>::default();
    let losses = Arc::new(Losses::new(crate::guard::Metrics::default()));
    let engines = Arc::new(Engines::new(Arc::new(connector)));
    let checks = super::super::Checks {
        losses: Arc::clone(&losses),
        live: Live::new(),
        engines: Arc::clone(&engines),
        coverage: Arc::clone(&coverage),
        again: again.clone(),
    };
    let reconciler = BlockReconciler::new(Dependencies {
        live: Live::new(),
        engines,
        coverage: Arc::clone(&coverage),
        locks: KeyedLocks::new(),
        time: Time::new(reeve_clock::Clock::simulated(start, 1)),
        again: again.clone(),
        announcer: Arc::new(Silent),
        audit: audit::Log::off(),
        metrics: Metrics::new(),
        record: Arc::new(Record::new("default")),
        sets: Arc::new(Sets::new(crate::sets::Dependencies {
            time: Time::new(reeve_clock::Clock::simulated(start, 1)),
            leading: tokio::sync::watch::channel(true).1,
            metrics: crate::sets::Metrics::default(),
            counts: Metrics::new(),
            client: unused_client(),
        })),
        standby: Arc::default(),
        guard: guard::Guard::new(crate::guard::Metrics::default()),
        losses,
        namespace: None,
    });
    let standing = crate::api::Standing {
        target: "192.0.2.0/24".parse().unwrap(),
        place: crate::api::Place::new("dry-run", ""),
    };
    coverage.lock().set("ns/range", standing, None);
    let lifted = "192.0.2.7".parse().unwrap();
    let other = Request::namespaced("ns", "other");
    again.try_send(other.clone()).unwrap();
    for _ in 0..2 {
        let overlapping = coverage.lock().recheck(&lifted, "ns/lifted");
        reconciler.request(overlapping);
    }
    let _checks = AbortOnDropHandle::new(tokio::spawn(async move { checks.request().await }));
    let mut next = async || requests.next().await.unwrap().request;
    assert_eq!(next().await, other);
    assert_eq!(next().await, Request::namespaced("ns", "range"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    again.try_send(other).expect("it was requested once");
}

#[test]
fn many_standing_bans_are_asserted_less_often_and_those_of_set_engines_once_an_hour() {
    let gateway = Place::new("iptables", "192.0.2.250:9521");
    let sets = Place::new("sets", "");
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    for (place, claims, expected) in [
        (Some(&gateway), 30_000, minutes(5)),
        (Some(&gateway), 60_000, minutes(10)),
        (None, 60_000, minutes(10)),
        (Some(&sets), 100_000, minutes(60)),
    ] {
        assert_eq!(
            spread(RESYNC, place, claims),
            expected,
            "{place:?} {claims}"
        );
    }
    assert_eq!(spread(minutes(90), Some(&sets), 1), minutes(90));
}

#[test]
fn a_ban_that_is_due_before_the_next_try_to_assert_it_is_requested_when_it_is_due() {
    let shown = |at_latest, attempt| {
        let wake = Wake::Retry {
            priority: None,
            at_latest,
        };
        format!("{:?}", conclude(wake, attempt, 10))
    };
    let soon = Duration::from_secs(3);
    let retry = format!("{:?}", Outcome::retry());
    let due = format!("{:?}", Outcome::requeue_after(soon));
    assert_eq!(shown(Some(soon), 0), retry, "the try comes first");
    assert_eq!(shown(Some(soon), 10), due);
    assert_eq!(shown(Some(LONGEST_RETRY), u32::MAX), retry);
    assert_eq!(shown(None, 10), retry);
}

#[test]
fn a_gateway_that_refuses_all_assertions_is_called_a_hundred_times_a_second_in_the_end() {
    let tried = |attempt, priority, at_latest, claims| {
        let wake = Wake::Retry {
            priority: Some(priority),
            at_latest,
        };
        format!("{:?}", conclude(wake, attempt, claims))
    };
    let shown = |priority, at_latest, claims| tried(10, priority, at_latest, claims);
    let seconds = Duration::from_secs;
    let after = |time, priority| {
        let outcome = Outcome::requeue_after(time).with_priority(priority);
        format!("{outcome:?}")
    };
    let low = LOW_PRIORITY;
    let retry = format!("{:?}", Outcome::retry().with_priority(low));
    assert_eq!(shown(low, None, 1_000), retry, "the back-off is longer");
    assert_eq!(tried(0, low, None, 1_000), retry, "and has to become so");
    assert_eq!(shown(low, None, 10_000), after(seconds(100), low));
    let due = Some(seconds(20));
    assert_eq!(shown(low, due, 10_000), after(seconds(20), low));
    let lift = format!("{:?}", Outcome::retry().with_priority(DUE_FIRST));
    assert_eq!(shown(DUE_FIRST, None, 10_000), lift);
}
