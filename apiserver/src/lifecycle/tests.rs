//! The background task when the disk is full, when the server ends, and when other threads write.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use reeve_clock::Clock;
use serde_json::{Value, json};

use super::chores::act;
use super::internal::{Part, internal_request};
use super::namespaces;
use super::retries::Retries;
use super::task::RETRY_AFTER;
use super::work::Work;
use crate::core::Core;
use crate::definitions;
use crate::meta;
use crate::server::ApiServer;
use crate::store::{Chore, Expected, Key};

mod refusals;
mod restores;

/// Whatever hangs is given up after this.
const HANGS: Duration = Duration::from_secs(60);

async fn server() -> ApiServer {
    let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1);
    ApiServer::builder().clock(clock).start().await.unwrap()
}

fn store(core: &Core, storage: &str, namespace: &str, object: Value) -> Arc<crate::store::Object> {
    let key = Key::new(Some(namespace), meta::text(&object, "name"));
    core.store
        .commit(storage, key.as_str(), Expected::Absent, Some(object))
        .unwrap()
}

/// A namespace that terminates and is empty, an object with an absent and a present owner, and a definition
/// without status: each chore of these has something to write.
fn unfinished(core: &Core) -> Vec<Chore> {
    let gone = json!({"metadata": {"name": "gone", "uid": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"finalizers": ["kubernetes"]}});
    store(core, "namespaces", "", gone);
    let owner = json!({"metadata": {"name": "owner", "namespace": "default", "uid": "present"}});
    store(core, "configmaps", "default", owner);
    let reference = |name: &str, uid: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid});
    let owned = json!({"metadata": {"name": "owned", "namespace": "default", "uid": "o",
        "ownerReferences": [reference("owner", "present"), reference("gone", "absent")]}});
    let owned = store(core, "configmaps", "default", owned);
    let definition = json!({"metadata": {"name": "foos.example.com", "uid": "d"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    store(core, definitions::STORAGE, "", definition);
    vec![
        Chore::Namespace("gone".to_owned()),
        Chore::Dependent("configmaps".to_owned(), owned.key().clone()),
        Chore::Definition("foos.example.com".to_owned()),
    ]
}

fn is_finished(core: &Core) -> bool {
    let owned = core.store.get("configmaps", "default/owned").unwrap();
    core.store.get("namespaces", "gone").is_none()
        && owned.owner_uids().count() == 1
        && core.registry.find("example.com", "v1", "foos").is_some()
}

#[tokio::test(start_paused = true)]
async fn what_is_in_a_namespace_that_came_back_stays() {
    let server = server().await;
    let core = server.core();
    let map = json!({"metadata": {"name": "a", "namespace": "default", "uid": "a"}});
    store(core, "configmaps", "default", map);
    namespaces::delete_contents(&Work::begin(core).await, "default").await;
    assert!(core.store.get("configmaps", "default/a").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_gets_its_service_account_again() {
    let server = server().await;
    let core = server.core();
    let uid = || {
        let account = core.store.get("serviceaccounts", "default/default");
        account.and_then(|account| account.uid().map(str::to_owned))
    };
    let first = loop {
        match uid() {
            Some(uid) => break uid,
            None => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    let path = "/api/v1/namespaces/default/serviceaccounts/default";
    let delete = http::Request::delete(path).body(Vec::new()).unwrap();
    server.client().request_text(delete).await.unwrap();
    let second = loop {
        match uid() {
            Some(uid) if uid != first => break uid,
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    assert_ne!(second, first);
}

/// Does the chores in a thread of their own; `false` when they do not come to an end.
fn come_to_an_end(core: &Arc<Core>, chores: Vec<Chore>) -> bool {
    let (done, wait) = mpsc::channel();
    let core = core.clone();
    let runtime = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        for chore in chores {
            runtime.block_on(async {
                let work = Work::begin(&core).await;
                act(&work, chore, &Retries::default()).await
            });
        }
        let _ = done.send(());
    });
    wait.recv_timeout(HANGS).is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_chore_spins_while_the_disk_is_full() {
    let server = server().await;
    let core = server.core().clone();
    server.stop_lifecycle().await;
    let chores = unfinished(&core);
    core.store.break_disk(true);
    let before = core.store.revision();
    assert!(come_to_an_end(&core, chores));
    assert_eq!(core.store.revision(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_chore_spins_when_the_server_has_ended() {
    let server = server().await;
    let core = server.core().clone();
    server.stop_lifecycle().await;
    let chores = unfinished(&core);
    core.store.close().unwrap();
    assert!(come_to_an_end(&core, chores));
}

#[tokio::test(start_paused = true)]
async fn what_the_disk_stopped_is_done_when_it_has_room_again() {
    let server = server().await;
    let core = server.core();
    tokio::task::yield_now().await;
    unfinished(core);
    core.store.break_disk(true);
    core.store
        .add_chore(Chore::Definition("foos.example.com".to_owned()));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!is_finished(core));
    let failures = core.store.failures();
    assert!(failures < 1_000, "{failures} tries in a minute");
    core.store.break_disk(false);
    tokio::time::sleep(RETRY_AFTER * 2).await;
    assert!(is_finished(core));
}

#[tokio::test(start_paused = true)]
async fn an_idle_server_forgets_old_history_and_expires_events() {
    for ttl in [Some(Duration::from_secs(3600)), None] {
        let builder = ApiServer::builder().event_ttl(ttl);
        let server = builder.start().await.unwrap();
        let core = server.core();
        let start = core.store.revision();
        for n in 0..300 {
            let object = json!({"metadata": {"name": format!("x{n}"), "namespace": "default"}});
            store(core, "configmaps", "default", object);
        }
        let event = json!({"metadata": {"name": "e", "namespace": "default"}});
        store(core, "events", "default", event);
        let resumes = || core.store.check_start("configmaps", start).is_ok();
        tokio::time::sleep(Duration::from_secs(70)).await;
        assert!(resumes());
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(!resumes());
        tokio::time::sleep(Duration::from_secs(3500)).await;
        assert!(core.store.get("events", "default/e").is_some());
        tokio::time::sleep(Duration::from_secs(60)).await;
        let is_there = core.store.get("events", "default/e").is_some();
        assert_eq!(is_there, ttl.is_none());
    }
}

const FOOS: &str = "foos.example.com";

/// `foos.example.com` with this uid and category, stored but not served yet.
fn foos(uid: &str, category: &str) -> Value {
    json!({"metadata": {"name": FOOS, "uid": uid}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList", "categories": [category]},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
}

#[tokio::test]
async fn a_removal_that_comes_late_leaves_the_definition_that_was_created_again() {
    let server = server().await;
    server.stop_lifecycle().await;
    let core = server.core();
    let info = core.registry.of_storage(definitions::STORAGE).unwrap();
    let first = store(core, definitions::STORAGE, "", foos("first", "c"));
    definitions::after_write(core, &info, None, Some(&first));
    let current = core.store.get(definitions::STORAGE, FOOS).unwrap();
    let watch = core.store.follow(FOOS, "").unwrap();
    let expected = Expected::Version(current.version());
    core.store
        .commit(definitions::STORAGE, FOOS, expected, None)
        .unwrap();
    let second = store(core, definitions::STORAGE, "", foos("second", "c"));
    definitions::after_write(core, &info, None, Some(&second));
    assert_ne!(
        watch.has_changed().ok(),
        Some(false),
        "watches of the first one end"
    );
    let object = json!({"metadata": {"name": "x", "namespace": "default"}});
    store(core, FOOS, "default", object);
    definitions::after_write(core, &info, Some(&current), None);
    assert!(core.registry.find("example.com", "v1", "foos").is_some());
    assert_eq!(core.store.count(FOOS), 1);
    let status = &core.store.get(definitions::STORAGE, FOOS).unwrap();
    assert!(crate::crd::is_established(&status.value()["status"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_served_in_the_end_is_what_was_written_last() {
    let server = server().await;
    let core = server.core();
    let info = core.registry.of_storage(definitions::STORAGE).unwrap();
    let first = store(core, definitions::STORAGE, "", foos("d", "c"));
    definitions::after_write(core, &info, None, Some(&first));
    for round in 0..100 {
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let info = &info;
                scope.spawn(move || {
                    let category = format!("c-{round}-{thread}");
                    loop {
                        let current = core.store.get(definitions::STORAGE, FOOS).unwrap();
                        let mut new = current.to_value();
                        new["spec"]["names"]["categories"] = json!([category]);
                        let expected = Expected::Version(current.version());
                        let written =
                            core.store
                                .commit(definitions::STORAGE, FOOS, expected, Some(new));
                        if let Ok(written) = written {
                            definitions::after_write(core, info, Some(&current), Some(&written));
                            return;
                        }
                    }
                });
            }
        });
        let stored = core.store.get(definitions::STORAGE, FOOS).unwrap();
        let served = core.registry.find("example.com", "v1", "foos").unwrap();
        let names = &stored.value()["spec"]["names"];
        assert_eq!(names["categories"], json!(served.categories), "{round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_object_outlives_its_definition_however_late_it_is_created() {
    let server = server().await;
    let core = server.core();
    let info = core.registry.of_storage(definitions::STORAGE).unwrap();
    let work = &Work::begin(core).await;
    let definition = internal_request(work, &info, &Key::from(FOOS), Part::ApiServer);
    for round in 0..30 {
        let body = foos(&round.to_string(), "c");
        crate::verbs::create::create(core, &definition, body)
            .await
            .unwrap();
        let foos = core.registry.find("example.com", "v1", "foos").unwrap();
        let start = core.store.revision();
        let runtime = tokio::runtime::Handle::current();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (foos, runtime) = (&foos, &runtime);
                scope.spawn(move || {
                    for n in 0.. {
                        let key = Key::new(Some("default"), &format!("x-{thread}-{n}"));
                        let request = internal_request(work, foos, &key, Part::ApiServer);
                        let object = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": key.name()}});
                        let create = crate::verbs::create::create(core, &request, object);
                        if runtime.block_on(create).is_err() {
                            return;
                        }
                    }
                });
            }
            scope.spawn(|| {
                let options = crate::verbs::delete::Options::default();
                let delete = crate::verbs::delete::delete(core, &definition, &options);
                runtime.block_on(delete).unwrap();
            });
        });
        // The definition goes a moment before what it defined.
        let gone = async {
            while core.store.get(definitions::STORAGE, FOOS).is_some()
                || core.store.count(FOOS) > 0
                || core.registry.of_storage(FOOS).is_some()
            {
                tokio::task::yield_now().await;
            }
        };
        let gone = tokio::time::timeout(HANGS, gone).await;
        assert!(gone.is_ok(), "round {round}: the definition stays");
        let mut left = std::collections::BTreeSet::new();
        let mut cursor = start;
        while let Ok((events, seen)) = core.store.events_after(FOOS, cursor, 100) {
            for event in events {
                match event.change {
                    crate::store::Change::Deleted => left.remove(&event.key),
                    _ => left.insert(event.key),
                };
            }
            cursor = seen;
        }
        assert!(left.is_empty(), "round {round}: {left:?}");
    }
}

#[tokio::test]
async fn a_late_object_brings_back_the_chore_of_its_definition() {
    let server = server().await;
    let core = server.core();
    server.stop_lifecycle().await;
    let info = core.registry.of_storage(definitions::STORAGE).unwrap();
    let work = Work::begin(core).await;
    let definition = internal_request(&work, &info, &Key::from(FOOS), Part::ApiServer);
    let created = crate::verbs::create::create(core, &definition, foos("d", "c")).await;
    created.unwrap();
    let kept = |name: &str| json!({"metadata": {"name": name, "namespace": "default", "uid": name, "finalizers": ["example.com/x"]}});
    store(core, FOOS, "default", kept("first"));
    core.store.take_chores();
    let options = crate::verbs::delete::Options::default();
    let deleted = crate::verbs::delete::delete(core, &definition, &options).await;
    deleted.unwrap();
    // As after a chore that found no definition while this one was made and deleted.
    core.store.set_ending(FOOS, false);
    let chore = Chore::Definition(FOOS.to_owned());
    assert!(core.store.take_chores().contains(&chore));

    let retries = Retries::default();
    assert!(act(&work, chore.clone(), &retries).await.is_empty());
    let first = core.store.get(FOOS, "default/first").unwrap();
    assert!(first.is_terminating(), "it waits for its finalizer");
    assert_eq!(core.store.take_chores(), [], "and so does the definition");

    // Its create found a definition that did not terminate.
    store(core, FOOS, "default", kept("late"));
    assert_eq!(core.store.take_chores(), std::slice::from_ref(&chore));
    assert!(act(&work, chore.clone(), &retries).await.is_empty());
    for name in ["first", "late"] {
        let key = format!("default/{name}");
        let stored = core.store.get(FOOS, &key).unwrap();
        assert!(stored.is_terminating(), "{name}");
        let expected = Expected::Version(stored.version());
        core.store.commit(FOOS, &key, expected, None).unwrap();
        assert_eq!(
            core.store.take_chores(),
            std::slice::from_ref(&chore),
            "{name}"
        );
    }
    assert!(act(&work, chore, &retries).await.is_empty());
    assert!(core.store.get(definitions::STORAGE, FOOS).is_none());
}

#[tokio::test]
async fn a_definition_that_was_never_served_and_may_not_go_leaves_no_chore() {
    let server = server().await;
    let core = server.core();
    server.stop_lifecycle().await;
    let info = core.registry.of_storage(definitions::STORAGE).unwrap();
    let work = Work::begin(core).await;
    let other = internal_request(&work, &info, &Key::from(FOOS), Part::ApiServer);
    let created = crate::verbs::create::create(core, &other, foos("d", "c")).await;
    created.unwrap();
    // Its kind is taken by the other one.
    let name = "bars.example.com";
    let mut conflicting = foos("e", "c");
    conflicting["metadata"] = json!({"name": name, "finalizers": ["example.com/x"]});
    conflicting["spec"]["names"]["plural"] = json!("bars");
    conflicting["spec"]["names"]["singular"] = json!("bar");
    let definition = internal_request(&work, &info, &Key::from(name), Part::ApiServer);
    let created = crate::verbs::create::create(core, &definition, conflicting).await;
    created.unwrap();
    let options = crate::verbs::delete::Options::default();
    let deleted = crate::verbs::delete::delete(core, &definition, &options).await;
    deleted.unwrap();
    let stored = core.store.get(definitions::STORAGE, name).unwrap();
    assert!(stored.is_terminating());
    assert!(!crate::crd::is_established(&stored.value()["status"]));

    let chore = Chore::Definition(name.to_owned());
    assert!(core.store.take_chores().contains(&chore));
    let retries = Retries::default();
    for _ in 0..2 {
        assert!(act(&work, chore.clone(), &retries).await.is_empty());
    }
    // The first one wrote: the finalizer of the server is gone.
    assert_eq!(core.store.take_chores(), std::slice::from_ref(&chore));
    assert!(act(&work, chore, &retries).await.is_empty());
    assert_eq!(core.store.take_chores(), []);
    let left = core.store.get(definitions::STORAGE, name).unwrap();
    assert_eq!(left.finalizers().collect::<Vec<_>>(), ["example.com/x"]);
}

#[tokio::test]
async fn a_namespace_made_again_while_the_former_one_ends_stays_as_it_is() {
    let server = server().await;
    let core = server.core();
    server.stop_lifecycle().await;
    let namespace = |uid: &str| json!({"metadata": {"name": "n", "uid": uid}, "spec": {"finalizers": ["kubernetes"]}});
    let mut former = namespace("former");
    former["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let former = store(core, "namespaces", "", former);
    let expected = Expected::Version(former.version());
    core.store
        .commit("namespaces", "n", expected, None)
        .unwrap();
    let made = store(core, "namespaces", "", namespace("second"));
    namespaces::finish(
        &Work::begin(core).await,
        &former,
        &namespaces::Left::default(),
    )
    .await;
    let stored = core.store.get("namespaces", "n").unwrap();
    assert_eq!(stored.version(), made.version());
    assert_eq!(stored.value()["spec"]["finalizers"], json!(["kubernetes"]));
}

#[tokio::test]
async fn what_an_earlier_release_stored_lets_go_of_its_finalizer() {
    let server = server().await;
    let core = server.core();
    server.stop_lifecycle().await;
    let metadata = json!({"name": "x", "namespace": "default", "uid": "u", "finalizers": ["foregroundDeletion"],
        "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
    // Neither canonical nor, by the rules of today, valid.
    let pod = json!({"hostNetwork": false, "containers": [
        {"name": "c", "image": "", "resources": {"limits": {"cpu": "1000m"}}},
    ]});
    let job = json!({"template": {"spec": pod}, "suspend": false});
    let scaled =
        json!({"scaleTargetRef": {"apiVersion": "v1", "kind": "Deployment", "name": "web"}});
    let claim = json!({"resources": {"requests": {"storage": "1024Mi"}}});
    for (storage, spec) in [
        ("pods", pod),
        ("jobs.batch", job.clone()),
        ("statefulsets.apps", job),
        ("cronjobs.batch", json!({"schedule": "@often"})),
        ("horizontalpodautoscalers.autoscaling", scaled),
        ("persistentvolumeclaims", claim),
    ] {
        let object = json!({"metadata": metadata, "spec": spec});
        let stored = store(core, storage, "default", object);
        let chore = Chore::Finalize(storage.to_owned(), stored.key().clone());
        act(&Work::begin(core).await, chore, &Retries::default()).await;
        assert!(core.store.get(storage, "default/x").is_none(), "{storage}");
    }
}
