//! Writes of the background task that admission refuses.

use std::collections::BTreeSet;

use futures::future::{FutureExt, ready};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::super::retries::{FIRST, LONGEST};
use super::*;
use crate::admission::{Admission, AdmissionRequest, Answer, Server};
use crate::status::Status;
use crate::verbs::delete::{self, Options, Propagation};

const MAPS: &str = "configmaps";

/// The codes of a refusal: a webhook chooses its own, also those of an object that is gone or was changed meanwhile.
const CODES: [u16; 3] = [403, 404, 409];

/// Refuses some writes with a code, and records the times of its questions about them.
#[derive(Debug)]
struct Guard {
    code: u16,
    /// The operation, the resource and the name: `DELETE configmaps/x`.
    refused: Mutex<BTreeSet<String>>,
    asked: Mutex<Vec<Instant>>,
}

// === impl Guard ===

impl Admission for Guard {
    fn name(&self) -> &'static str {
        "Guard"
    }

    fn handles(&self, _: &AdmissionRequest<'_>) -> bool {
        true
    }

    fn mutate<'a>(
        &'a self,
        _: &'a Server<'_>,
        request: &'a mut AdmissionRequest<'_>,
    ) -> Answer<'a> {
        let (operation, plural) = (request.operation.name(), &request.request.info.plural);
        let write = format!("{operation} {plural}/{}", request.name());
        if !self.refused.lock().contains(&write) {
            return ready(Ok(())).boxed();
        }
        self.asked.lock().push(Instant::now());
        ready(Err(Status::new(self.code, "", "it stays"))).boxed()
    }
}

async fn guarded(code: u16, refused: &[&str]) -> (ApiServer, Arc<Guard>) {
    let guard = Arc::new(Guard {
        code,
        refused: Mutex::new(refused.iter().map(|&write| write.to_owned()).collect()),
        asked: Mutex::default(),
    });
    let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1);
    let builder = ApiServer::builder().clock(clock).admission(guard.clone());
    (builder.start().await.unwrap(), guard)
}

/// Stores an owner and its dependents, and deletes the owner.
async fn orphan(core: &Core, owner: &str, dependents: &[&str]) {
    delete_owner(core, owner, dependents, &Options::default()).await;
}

async fn delete_owner(core: &Core, owner: &str, dependents: &[&str], options: &Options) {
    let made = json!({"metadata": {"name": owner, "namespace": "default", "uid": owner}});
    let made = store(core, MAPS, "default", made);
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": owner});
    for name in dependents {
        let owned = json!({"metadata": {"name": name, "namespace": "default", "uid": name, "ownerReferences": [reference]}});
        store(core, MAPS, "default", owned);
    }
    sleep(FIRST).await;
    let info = core.registry.of_storage(MAPS).unwrap();
    let request = internal_request(&Work::begin(core).await, &info, made.key(), Part::ApiServer);
    delete::delete(core, &request, options).await.unwrap();
}

fn is_there(core: &Core, name: &str) -> bool {
    core.store.get(MAPS, &format!("default/{name}")).is_some()
}

#[tokio::test(start_paused = true)]
async fn a_refused_collection_is_tried_again_later_and_delays_no_other() {
    for code in CODES {
        let (server, guard) = guarded(code, &["DELETE configmaps/kept"]).await;
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
        assert_eq!(waits.len(), 13, "{code}: {waits:?}");
        // While it waits for its next try, the dependents of another owner go at once.
        orphan(core, "other", &["b"]).await;
        sleep(Duration::from_millis(1)).await;
        assert!(!is_there(core, "b"));
        guard.refused.lock().clear();
        sleep(LONGEST).await;
        assert!(!is_there(core, "kept"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_waits_while_its_dependent_may_not_lose_the_reference() {
    for code in CODES {
        let (server, guard) = guarded(code, &["UPDATE configmaps/b"]).await;
        let core = server.core();
        let orphans = Options {
            propagation: Some(Propagation::Orphan),
            ..Options::default()
        };
        delete_owner(core, "owner", &["a", "b"], &orphans).await;
        sleep(Duration::from_secs(10)).await;
        assert!(is_there(core, "owner"), "{code}");
        guard.refused.lock().clear();
        sleep(LONGEST * 2).await;
        assert!(!is_there(core, "owner") && is_there(core, "a") && is_there(core, "b"));
        let left = core.store.get(MAPS, "default/b").unwrap();
        assert_eq!(left.owner_uids().count(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_when_the_last_refusal_ends() {
    for code in CODES {
        let refused = ["DELETE configmaps/kept", "UPDATE namespaces/n"];
        let (server, guard) = guarded(code, &refused).await;
        let core = server.core();
        let namespace =
            json!({"metadata": {"name": "n", "uid": "n"}, "spec": {"finalizers": ["kubernetes"]}});
        store(core, "namespaces", "", namespace);
        for name in ["a", "kept", "z"] {
            let object = json!({"metadata": {"name": name, "namespace": "n", "uid": name}});
            store(core, MAPS, "n", object);
        }
        let info = core.registry.of_storage("namespaces").unwrap();
        let request = internal_request(
            &Work::begin(core).await,
            &info,
            &Key::from("n"),
            Part::NamespaceController,
        );
        let deleted = delete::delete(core, &request, &Options::default()).await;
        deleted.unwrap();
        for lifted in refused {
            sleep(Duration::from_secs(10)).await;
            let left = core.store.list(MAPS, "n/").1;
            let left: Vec<&str> = left.iter().map(|object| object.name()).collect();
            let expected: &[&str] = if guard.refused.lock().len() == 2 {
                &["kept"]
            } else {
                &[]
            };
            assert_eq!(left, expected, "{code}");
            assert!(core.store.get("namespaces", "n").is_some(), "{code}");
            guard.refused.lock().remove(lifted);
            sleep(LONGEST * 2).await;
        }
        assert!(core.store.get("namespaces", "n").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_goes_when_the_last_refusal_ends() {
    for code in CODES {
        let of_definition = format!("UPDATE customresourcedefinitions/{FOOS}");
        let refused = ["DELETE foos/kept", &of_definition];
        let (server, guard) = guarded(code, &refused).await;
        let core = server.core();
        let info = core.registry.of_storage(definitions::STORAGE).unwrap();
        let request = internal_request(
            &Work::begin(core).await,
            &info,
            &Key::from(FOOS),
            Part::ApiServer,
        );
        let created = crate::verbs::create::create(core, &request, foos("d", "c")).await;
        created.unwrap();
        let object = json!({"metadata": {"name": "kept", "namespace": "default", "uid": "kept"}});
        store(core, FOOS, "default", object);
        let deleted = delete::delete(core, &request, &Options::default()).await;
        deleted.unwrap();
        for (lifted, left) in refused.into_iter().zip([1, 0]) {
            sleep(Duration::from_secs(10)).await;
            assert_eq!(core.store.count(FOOS), left, "{code}");
            assert!(
                core.store.get(definitions::STORAGE, FOOS).is_some(),
                "{code}"
            );
            guard.refused.lock().remove(lifted);
            sleep(LONGEST * 2).await;
        }
        assert!(
            core.store.get(definitions::STORAGE, FOOS).is_none(),
            "{code}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_initial_object_that_was_refused_is_created_later() {
    let refused = [
        "CREATE namespaces/default",
        "CREATE priorityclasses/system-node-critical",
        "UPDATE servicecidrs/kubernetes",
    ];
    let (server, guard) = guarded(403, &refused).await;
    let core = server.core();
    let is_complete = || {
        let range = core
            .store
            .get("servicecidrs.networking.k8s.io", "kubernetes");
        let state = [
            core.store.get("namespaces", "default").is_some(),
            core.store.get("services", "default/kubernetes").is_some(),
            core.store
                .get("serviceaccounts", "default/default")
                .is_some(),
            core.store
                .get("priorityclasses.scheduling.k8s.io", "system-node-critical")
                .is_some(),
            range.is_some_and(|range| range.value()["status"]["conditions"].is_array()),
        ];
        assert!(state.iter().all(|&is| is == state[0]), "{state:?}");
        state[0]
    };
    sleep(Duration::from_secs(10)).await;
    assert!(!is_complete());
    guard.refused.lock().clear();
    sleep(LONGEST * 2).await;
    assert!(is_complete());
}
