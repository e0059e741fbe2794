//! The webhook of records, and the detector that reads them.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Namespace};
use kube_core::params::ListParams;
use preprod_guard::detector::{Change, Detector, Journal, Observed, Record};
use preprod_guard::live::Live;
use preprod_guard::metrics::Metrics;
use reeve_apiserver::ApiServer;
use reeve_client::Client;
use reeve_clock::Clock;
use reeve_webhook::admission::Operation;
use reeve_webhook::testing::Call;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::scenario::{
    CALLERS, POD, call, delete, guard_of, guard_reading, key, plain, production, state, update,
};

/// The objects of the lines that the webhook of records writes.
async fn recorded(call: Call) -> Vec<Value> {
    let guard = guard_of(CALLERS, state());
    assert!(call.to(&guard.recorder).await.allowed(), "{call}");
    let lines = guard.lines.lock();
    lines.iter().map(|line| line["target"].clone()).collect()
}

#[tokio::test]
async fn deletions_evictions_and_lost_labels_of_production_objects_are_recorded() {
    let body = json!({"metadata": {"name": "web-0", "namespace": "hbox"}});
    let kind = ("policy", "Eviction", "pods");
    let evict = call(Operation::Create, kind, None, Some(body));
    let evict = evict.subresource("", "v1", "pods", "eviction");
    for (call, target) in [
        (delete(POD, production("web-0")), "pods/hbox/web-0"),
        (evict, "pods/hbox/web-0/eviction"),
        (
            update(POD, production("web-0"), plain("web-0")),
            "pods/hbox/web-0",
        ),
    ] {
        assert_eq!(recorded(call.user("admin")).await, [target]);
    }
}

#[tokio::test]
async fn other_requests_are_not_recorded() {
    let mut ending = production("web-0");
    ending["metadata"]["deletionTimestamp"] = json!("2026-01-19T00:00:00Z");
    for call in [
        delete(POD, plain("try-0")),
        delete(POD, production("web-0")).dry_run(),
        // The kubelet calls again at the end of each Pod, after any deletion.
        delete(POD, ending),
        update(POD, production("web-0"), production("web-0")),
        update(POD, plain("try-0"), plain("try-0")),
    ] {
        let none: [Value; 0] = [];
        assert_eq!(recorded(call.user("admin")).await, none);
    }
}

#[tokio::test]
async fn a_pre_release_caller_that_changed_the_configurations_records_nothing() {
    let none: [Value; 0] = [];
    assert_eq!(recorded(delete(POD, production("web-0"))).await, none);
}

#[tokio::test]
async fn a_namespace_is_read_when_the_object_has_no_label() {
    let server = ApiServer::builder().start().await.unwrap();
    let client = Client::new(server.client());
    for (name, environment) in [("hbox", "production"), ("unknown", "production")] {
        let namespace = json!({"metadata": {"name": name, "labels": {"environment": environment}}});
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        client.create(&namespace).await.unwrap();
    }
    let live = Live::new(client);
    // The informers have the Namespace `hbox` without its label, and `unknown` not at all.
    let guard = guard_reading(CALLERS, state(), Some(live));
    let reply = delete(POD, plain("try-0")).to(&guard.webhook).await;
    assert!(
        reply.message().contains("DELETE production pod"),
        "{}",
        reply.message()
    );
    let mut elsewhere = plain("try-1");
    elsewhere["metadata"]["namespace"] = json!("unknown");
    let elsewhere = delete(POD, elsewhere).user("admin");
    elsewhere.to(&guard.recorder).await;
    let last = guard.lines.lock().last().cloned().unwrap();
    assert_eq!(last["target"], "pods/unknown/try-1");
    server.shutdown().await.unwrap();
}

fn observed(name: &str) -> Observed {
    Observed {
        change: Change::Deletion,
        key: key("", "pods", name),
        uid: format!("uid-{name}"),
    }
}

fn record(name: &str) -> Record {
    let Observed { change, key, uid } = observed(name);
    let user = "admin".to_owned();
    Record {
        change,
        key,
        uid,
        user,
    }
}

/// The reasons and objects of the Events in the namespace of the guard, sorted.
async fn events(client: &Client) -> Vec<(String, String)> {
    let all = ListParams::default();
    let list = client.list::<Event>(Some("preprod-guard"), &all).await;
    let events = list.unwrap().items.into_iter().map(|event| {
        let object = event.related.and_then(|related| related.field_path);
        (event.reason.unwrap(), object.unwrap())
    });
    let mut events: Vec<_> = events.collect();
    events.sort();
    events
}

#[tokio::test]
async fn the_detector_writes_records_until_its_stop_and_reports_what_has_none() {
    let server = ApiServer::builder().start().await.unwrap();
    let client = Client::new(server.client());
    let namespace = json!({"metadata": {"name": "preprod-guard"}});
    let namespace: Namespace = serde_json::from_value(namespace).unwrap();
    client.create(&namespace).await.unwrap();
    let journal = Journal::new(
        client.clone(),
        Clock::system(),
        "preprod-guard",
        "preprod-guard",
    );
    let (detector, waiting) = Detector::new(Duration::ZERO, Metrics::default());
    for name in ["recorded", "observed-first", "bypassed"] {
        if name == "observed-first" {
            detector.observed(observed(name));
        }
        if name != "bypassed" {
            detector.recorded(record(name));
        }
        detector.observed(observed(name));
    }
    let stop = CancellationToken::new();
    let running = {
        let (detector, stop) = (detector.clone(), stop.clone());
        tokio::spawn(async move { detector.run(waiting, journal, stop).await })
    };
    let gone = (
        "ProductionObjectGone".to_owned(),
        "pods/hbox/bypassed".to_owned(),
    );
    let reported = async {
        while !events(&client).await.contains(&gone) {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(60), reported).await.unwrap();
    // Of many records that arrive with the stop, none is lost.
    for number in 0..100 {
        detector.recorded(record(&format!("last-{number}")));
    }
    stop.cancel();
    timeout(Duration::from_secs(60), running)
        .await
        .unwrap()
        .unwrap();
    let all = events(&client).await;
    let of = |reason: &str| all.iter().filter(|(of, _)| of == reason).count();
    assert_eq!(of("ProductionObjectGone"), 1, "{all:?}");
    assert_eq!(of("ProductionObjectDeletion"), 102);
    server.shutdown().await.unwrap();
}
