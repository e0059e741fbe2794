//! Writes of the background task that admission refuses.

use std::collections::BTreeSet;

use futures::future::{FutureExt, ready};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::super::retries::{FIRST, LONGEST};
use super::*;
use crate::admission::{Admission, AdmissionRequest, Answer, Operation, Server};
use crate::status::Status;
use crate::verbs::delete::{self, Options};

const MAPS: &str = "configmaps";

/// Refuses the deletion of some ConfigMaps, and records the times of its questions about them.
#[derive(Debug, Default)]
struct Guard {
    refused: Mutex<BTreeSet<String>>,
    asked: Mutex<Vec<Instant>>,
}

// === impl Guard ===

impl Admission for Guard {
    fn name(&self) -> &'static str {
        "Guard"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        request.operation == Operation::Delete && request.request.info.plural == MAPS
    }

    fn mutate<'a>(
        &'a self,
        _: &'a Server<'_>,
        request: &'a mut AdmissionRequest<'_>,
    ) -> Answer<'a> {
        if !self.refused.lock().contains(request.name()) {
            return ready(Ok(())).boxed();
        }
        self.asked.lock().push(Instant::now());
        ready(Err(Status::bad_request("it stays"))).boxed()
    }
}

async fn guarded(refused: &[&str]) -> (ApiServer, Arc<Guard>) {
    let guard = Arc::new(Guard::default());
    let refused = refused.iter().map(|&name| name.to_owned());
    guard.refused.lock().extend(refused);
    let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1);
    let builder = ApiServer::builder().clock(clock).admission(guard.clone());
    (builder.start().await.unwrap(), guard)
}

/// Stores an owner and its dependents, and deletes the owner.
async fn orphan(core: &Core, owner: &str, dependents: &[&str]) {
    let made = json!({"metadata": {"name": owner, "namespace": "default", "uid": owner}});
    let made = store(core, MAPS, "default", made);
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": owner});
    for name in dependents {
        let owned = json!({"metadata": {"name": name, "namespace": "default", "uid": name, "ownerReferences": [reference]}});
        store(core, MAPS, "default", owned);
    }
    sleep(FIRST).await;
    let info = core.registry.of_storage(MAPS).unwrap();
    let request = internal_request(core, &info, &made.key(), Part::ApiServer);
    let deleted = delete::delete(core, &request, &Options::default()).await;
    deleted.unwrap();
}

fn is_there(core: &Core, name: &str) -> bool {
    core.store.get(MAPS, &format!("default/{name}")).is_some()
}

#[tokio::test(start_paused = true)]
async fn a_refused_collection_is_tried_again_later_and_delays_no_other() {
    let (server, guard) = guarded(&["kept"]).await;
    let core = server.core();
    orphan(core, "owner", &["a", "kept", "z"]).await;
    sleep(Duration::from_millis(1)).await;
    assert!(!is_there(core, "a") && !is_there(core, "z"));
    sleep(Duration::from_secs(60)).await;
    assert!(is_there(core, "kept"));
    let asked = guard.asked.lock().clone();
    let waits: Vec<u128> = asked
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_millis())
        .collect();
    // A timer may be a millisecond late.
    for (n, wait) in waits.iter().enumerate() {
        let planned = FIRST.as_millis() << n;
        assert!((planned..=planned + 1).contains(wait), "{waits:?}");
    }
    assert_eq!(waits.len(), 13, "{waits:?}");
    // While it waits for its next try, the dependents of another owner go at once.
    orphan(core, "other", &["b"]).await;
    sleep(Duration::from_millis(1)).await;
    assert!(!is_there(core, "b"));
    guard.refused.lock().clear();
    sleep(LONGEST).await;
    assert!(!is_there(core, "kept"));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_when_the_last_of_its_objects_is_not_refused_any_more() {
    let (server, guard) = guarded(&["kept"]).await;
    let core = server.core();
    store(
        core,
        "namespaces",
        "",
        json!({"metadata": {"name": "n", "uid": "n"}, "spec": {"finalizers": ["kubernetes"]}}),
    );
    for name in ["a", "kept", "z"] {
        let object = json!({"metadata": {"name": name, "namespace": "n", "uid": name}});
        store(core, MAPS, "n", object);
    }
    let info = core.registry.of_storage("namespaces").unwrap();
    let request = internal_request(core, &info, &Key::from("n"), Part::NamespaceController);
    let deleted = delete::delete(core, &request, &Options::default()).await;
    deleted.unwrap();
    sleep(Duration::from_secs(10)).await;
    let left = core.store.list(MAPS, "n/").1;
    let left: Vec<&str> = left.iter().map(|object| object.name()).collect();
    assert_eq!(left, ["kept"]);
    guard.refused.lock().clear();
    sleep(Duration::from_secs(20)).await;
    assert!(core.store.get("namespaces", "n").is_none());
}
