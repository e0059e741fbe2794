//! The same controller against a real kube-apiserver, when `KUBEBUILDER_ASSETS` names one.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube_client::Config;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_core::params::{DeleteParams, ListParams};
use reeve_apiserver::control_plane::ControlPlane;
use reeve_clock::Clock;
use reeve_controller::client::connect::{Options, connect};
use reeve_controller::events::EventType;
use reeve_controller::{Client, leader_election};
use tokio::time::{Instant, sleep};

mod greeter;

use greeter::{FINALIZER, Greeter, Running, create, greeted, key};

fn lease(identity: &str) -> Option<leader_election::Options> {
    let options = leader_election::Options::new("default", "greeter", identity)
        .lease_duration(Duration::from_secs(3))
        .renew_deadline(Duration::from_secs(2))
        .retry_period(Duration::from_millis(500));
    Some(options)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_server_takes_all_that_is_written() {
    let Some(control_plane) = ControlPlane::from_assets().await.unwrap() else {
        eprintln!(
            "SKIPPED: KUBEBUILDER_ASSETS is not set; nothing is proven about a real kube-apiserver"
        );
        return;
    };
    let kubeconfig = Kubeconfig::from_yaml(&control_plane.kubeconfig()).unwrap();
    let defaults = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &defaults).await;
    let kube = connect(config.unwrap(), &Options::new()).unwrap();
    let client = Client::new(kube.clone());
    let clock = Clock::system();

    let (first, second) = (Greeter::default(), Greeter::default());
    let one = Running::start(kube.clone(), &clock, first.clone(), lease("pod-0")).await;
    create(&client, "a").await;
    greeted(&client, "a").await;
    let two = Running::start(kube.clone(), &clock, second.clone(), lease("pod-1")).await;
    sleep(Duration::from_secs(4)).await;
    let map = client.get::<ConfigMap>(&key("a")).await.unwrap();
    assert_eq!(
        map.metadata.finalizers.as_deref(),
        Some(&[FINALIZER.to_owned()][..])
    );
    assert_eq!(
        *first.writes.lock(),
        ["guard a", "greet a"],
        "each write once"
    );
    assert!(second.writes.lock().is_empty(), "the standby does not work");

    // A series, and all fields of an Event as the server wants them.
    let recorder = one.manager.recorder("example.com/greeter");
    for _ in 0..3 {
        recorder.event(
            &map,
            EventType::Warning,
            "Late",
            "Deliver",
            "the train is late",
        );
    }
    let late = async || {
        let events = client
            .list::<Event>(Some("default"), &ListParams::default())
            .await
            .unwrap();
        events
            .items
            .into_iter()
            .find(|event| event.reason.as_deref() == Some("Late"))
    };
    let end = Instant::now() + Duration::from_secs(20);
    while late()
        .await
        .and_then(|event| event.series)
        .is_none_or(|series| series.count < 2)
    {
        assert!(Instant::now() < end, "the series was not written");
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(
        one.metric("controller_runtime_reconcile_errors_total") as u32,
        0
    );

    // A graceful stop hands over; a crash does after the lease.
    one.end().await;
    create(&client, "b").await;
    let stopped = Instant::now();
    greeted(&client, "b").await;
    assert!(
        stopped.elapsed() < Duration::from_secs(3),
        "{:?}",
        stopped.elapsed()
    );
    let three = Running::start(kube, &clock, first.clone(), lease("pod-2")).await;
    sleep(Duration::from_secs(1)).await;
    two.run.abort();
    create(&client, "c").await;
    let crashed = Instant::now();
    greeted(&client, "c").await;
    assert!(
        crashed.elapsed() < Duration::from_secs(8),
        "{:?}",
        crashed.elapsed()
    );
    let held = client
        .get::<Lease>(&key("greeter"))
        .await
        .unwrap()
        .spec
        .unwrap();
    assert_eq!(held.holder_identity.as_deref(), Some("pod-2"));
    assert_eq!(held.lease_transitions, Some(2));

    // The finalizer holds the object until it is released.
    client
        .delete::<ConfigMap>(&key("a"), &DeleteParams::default())
        .await
        .unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while client.get::<ConfigMap>(&key("a")).await.is_ok() {
        assert!(Instant::now() < end, "the finalizer was not removed");
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(first.writes.lock().last().unwrap(), "release a");
    three.end().await;
}
