//! Restores while the background task is about to write what it decided before.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::{FutureExt, ready};
use parking_lot::Mutex;
use tokio::time::sleep;

use super::*;
use crate::admission::{Admission, AdmissionRequest, Answer, Server};
use crate::disk::simulated::{self, Step};
use crate::restore::restore;
use crate::store::Copy;
use crate::verbs::delete::{self, Options};

const MAPS: &str = "configmaps";

/// Brings the server back to a copy when it is asked about one write: it was decided, and is not stored yet.
#[derive(Default)]
struct Restorer {
    core: OnceLock<Arc<Core>>,
    /// `DELETE configmaps/x`, and the copy.
    at: Mutex<Option<(String, Copy)>>,
}

// === impl Restorer ===

impl std::fmt::Debug for Restorer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Restorer").finish_non_exhaustive()
    }
}

impl Admission for Restorer {
    fn name(&self) -> &'static str {
        "Restorer"
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
        let mut at = self.at.lock();
        if let Some((_, copy)) = at.take_if(|(planned, _)| *planned == write) {
            restore(self.core.get().unwrap(), &copy).unwrap();
        }
        ready(Ok(())).boxed()
    }
}

/// A server with a namespace, two owners of one object, and objects of a custom kind; it goes back to this.
async fn restored_at(write: &str, removed: (&str, &str)) -> (ApiServer, Vec<(String, String)>) {
    let restorer = Arc::new(Restorer::default());
    let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1);
    let builder = ApiServer::builder()
        .clock(clock)
        .admission(restorer.clone());
    let server = builder.start().await.unwrap();
    let core = server.core();
    let _ = restorer.core.set(core.clone());
    let namespace =
        json!({"metadata": {"name": "n", "uid": "n"}, "spec": {"finalizers": ["kubernetes"]}});
    store(core, "namespaces", "", namespace);
    let info = core.registry.of_storage(definitions::STORAGE).unwrap();
    let request = internal_request(
        &Work::begin(core).await,
        &info,
        &Key::from(FOOS),
        Part::ApiServer,
    );
    let created = crate::verbs::create::create(core, &request, foos("d", "c")).await;
    created.unwrap();
    let reference =
        |uid: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": uid, "uid": uid});
    for (storage, namespace, name, owners) in [
        (MAPS, "default", "one", &[][..]),
        (MAPS, "default", "two", &[]),
        (MAPS, "default", "of-one", &["one"]),
        (MAPS, "default", "of-both", &["one", "two"]),
        (MAPS, "n", "inside", &[]),
        (FOOS, "default", "foo", &[]),
    ] {
        let owners: Vec<Value> = owners.iter().map(|uid| reference(uid)).collect();
        let object = json!({"metadata": {"name": name, "namespace": namespace, "uid": name, "ownerReferences": owners}});
        store(core, storage, namespace, object);
    }
    sleep(Duration::from_secs(1)).await;
    let before = everything(core);
    *restorer.at.lock() = Some((write.to_owned(), core.store.copy()));
    let (storage, key) = removed;
    let info = core.registry.of_storage(storage).unwrap();
    let work = Work::begin(core).await;
    let request = internal_request(&work, &info, &Key::from(key), Part::ApiServer);
    let deleted = delete::delete(core, &request, &Options::default()).await;
    deleted.unwrap();
    sleep(Duration::from_secs(10)).await;
    assert!(restorer.at.lock().is_none(), "{write} was not decided");
    (server, before)
}

/// The objects of the test: their keys, and their uids with the owners.
fn everything(core: &Core) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for storage in [MAPS, FOOS, "namespaces", definitions::STORAGE] {
        for object in core.store.list(storage, "").1 {
            let owners: Vec<&str> = object.owner_uids().collect();
            let state = format!("{:?} {owners:?} {}", object.uid(), object.is_terminating());
            all.push((format!("{storage} {}", object.key()), state));
        }
    }
    all
}

#[tokio::test(start_paused = true)]
async fn what_was_decided_before_a_restore_is_not_written_after_it() {
    for (write, removed) in [
        ("DELETE configmaps/of-one", (MAPS, "default/one")),
        ("UPDATE configmaps/of-both", (MAPS, "default/one")),
        ("DELETE configmaps/inside", ("namespaces", "n")),
        ("UPDATE namespaces/n", ("namespaces", "n")),
        ("DELETE foos/foo", (definitions::STORAGE, FOOS)),
    ] {
        let (server, before) = restored_at(write, removed).await;
        assert_eq!(everything(server.core()), before, "{write}");
    }
}

#[tokio::test(start_paused = true)]
async fn chores_wait_while_a_restore_runs() {
    let server = server().await;
    let core = server.core();
    let restoring = core.store.begin_restore();
    let owned = json!({"metadata": {"name": "owned", "namespace": "default", "uid": "o", "ownerReferences":
        [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "owner"}]}});
    store(core, MAPS, "default", owned);
    sleep(Duration::from_secs(10)).await;
    let is_there = || core.store.get(MAPS, "default/owned").is_some();
    assert!(is_there(), "its owner may come yet");
    drop(restoring);
    sleep(Duration::from_secs(1)).await;
    assert!(!is_there());
}

#[tokio::test(start_paused = true)]
async fn a_restore_and_the_end_of_events_share_syncs() {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!(
        "reeve-restore-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let builder = ApiServer::builder().data_dir(&directory).sync_writes(true);
    let server = builder.start().await.unwrap();
    let core = server.core();
    let copy = core.store.copy();
    let syncs = || {
        let steps = simulated::take(&directory);
        let syncs = steps.iter().filter(|(_, step)| matches!(step, Step::Sync));
        syncs.count()
    };
    let make = |storage: &str| {
        for n in 0..200 {
            let object = json!({"metadata": {"name": format!("o-{n}"), "namespace": "default", "uid": format!("{storage}-{n}")}});
            store(core, storage, "default", object);
        }
    };
    make(MAPS);
    simulated::record(&directory);
    assert_eq!(restore(core, &copy).unwrap(), 200);
    assert_eq!(syncs(), 1);
    make("events");
    simulated::record(&directory);
    core.store.age(Duration::from_secs(3600 * 2));
    while core.store.count("events") > 0 {
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(syncs(), 1);
    server.shutdown().await.unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
}
