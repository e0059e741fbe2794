//! A kind that cannot be cached stops its readers, and reports the cause.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::{
    ApiResource, DynamicObject, GroupVersionKind, ObjectMeta, PartialObjectMeta, Resource,
};
use reeve_apiserver::faults::Rule;
use reeve_informer::{HandlerOptions, ObjectKey};
use serde_json::json;
use tokio::time::sleep;

use super::caches::LOOK;
use super::wire_tests::tiers;
use super::*;

const SOON: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(600);

#[tokio::test(start_paused = true)]
async fn the_start_goes_on_at_once_when_the_caches_are_filled() {
    let cluster = tiers().await;
    let lists = Rule::new().resource("configmaps");
    let pause = Duration::from_millis(205);
    cluster.server.faults().add(lists.delay(pause));
    let caches = cluster.caches();
    let _maps = caches.keep(&View::<ConfigMap>::typed()).unwrap();
    let _secrets = caches.keep(&View::<Secret>::typed()).unwrap();
    caches.start();
    let begin = tokio::time::Instant::now();
    caches.settled(LONG).await;
    let took = begin.elapsed();
    assert!(pause <= took && took < pause + LOOK / 4, "{took:?}");
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_refused_is_named_with_its_cause_and_the_others_are_read() {
    let cluster = tiers().await;
    let refusal = Rule::new()
        .resource("secrets")
        .status(403, "no right to it");
    cluster.server.faults().add(refusal);
    let caches = cluster.caches();
    let maps = caches.keep(&View::<ConfigMap>::typed()).unwrap();
    let secrets = caches.keep(&View::<Secret>::typed()).unwrap();
    caches.start();
    // The start does not wait for failing kinds.
    let before = tokio::time::Instant::now();
    caches.settled(LONG).await;
    assert!(before.elapsed() < SOON);
    assert_eq!(maps.list().unwrap().len(), 6);
    let reported = [
        caches.check().unwrap_err(),
        secrets.list().unwrap_err().to_string(),
        secrets.wait_synced(SOON).await.unwrap_err().to_string(),
    ];
    for reported in reported {
        assert!(
            reported.contains("secrets: failing") && reported.contains("no right to it"),
            "{reported}"
        );
        assert!(!reported.contains("configmaps"), "{reported}");
    }
    let metrics = cluster.metrics.encode();
    let failures = metrics
        .lines()
        .find(|line| line.starts_with("reflector_failures") && line.contains("secrets"));
    assert!(failures.is_some(), "{metrics}");
    cluster.server.faults().clear();
    secrets.wait_synced(LONG).await.unwrap();
    assert_eq!(caches.check(), Ok(()));
    assert!(secrets.list().unwrap().is_empty());
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_refused_leaves_the_others_readable() {
    let cluster = tiers().await;
    let refusal = Rule::new().namespace("red").status(403, "no right to it");
    cluster.server.faults().add(refusal);
    let options = CacheOptions::new()
        .in_namespace("red", Selected::new())
        .in_namespace("blue", Selected::new());
    let caches = cluster.caches_with(options);
    let maps = caches.keep(&View::<ConfigMap>::typed()).unwrap();
    caches.start();
    sleep(SOON).await;
    assert_eq!(maps.namespace("blue").unwrap().len(), 2);
    for error in [maps.namespace("red").unwrap_err(), maps.list().unwrap_err()] {
        let error = error.to_string();
        assert!(error.contains("configmaps in red: failing"), "{error}");
    }
    caches.stop().await;
}

/// A wrong model of ConfigMaps.
#[derive(Clone, Debug, serde::Deserialize, serde::Serialize)]
struct Wrong {
    metadata: ObjectMeta,
    data: Size,
}

#[derive(Clone, Debug, serde::Deserialize, serde::Serialize)]
struct Size {
    /// All are large, but for one that has none.
    size: String,
}

impl Resource for Wrong {
    type DynamicType = ();
    type Scope = <ConfigMap as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        "ConfigMap".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "configmaps".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_store_of_a_kind_is_logged_with_the_remedy_of_its_cause() {
    const FORM: &str = "set the form of the kind";
    const TYPE: &str = "use one Rust type";
    let cluster = tiers().await;
    let metadata = View::<PartialObjectMeta<ConfigMap>>::metadata();
    for (form, typed, remedy) in [
        (None, false, Some(FORM)),
        (None, true, Some(TYPE)),
        // Stored as a dynamic object, which serves every view.
        (Some(StoreForm::Typed), false, None),
    ] {
        let (lines, _guard) = crate::fake::Lines::capture();
        let own = KindOptions::new();
        let own = form.map_or(own.clone(), |form| own.form(form));
        let caches = cluster.caches_with(CacheOptions::new().for_kind::<ConfigMap>(own));
        let first = if typed {
            caches.watch(&View::<ConfigMap>::typed(), true)
        } else {
            caches.watch(&metadata, true)
        };
        caches.start();
        let second = caches.watch(&View::<Wrong>::typed(), true);
        let log = lines.text();
        for text in [FORM, TYPE] {
            assert_eq!(log.contains(text), remedy == Some(text), "{form:?}: {log}");
        }
        drop((first.unwrap(), second.unwrap()));
        caches.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_decode_is_counted_and_the_rest_is_read() {
    for form in [StoreForm::Typed, StoreForm::Compact] {
        let cluster = tiers().await;
        let odd = json!({"metadata": {"namespace": "red", "name": "odd"}, "data": {"other": "x"}});
        let odd: ConfigMap = serde_json::from_value(odd).unwrap();
        cluster.client.create(&odd).await.unwrap();
        let own = KindOptions::new().form(form);
        let caches = cluster.caches_with(CacheOptions::new().for_kind::<Wrong>(own));
        let view = View::<Wrong>::typed();
        let reported = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reported);
        let handler = caches.add_handler(&view, "handler", move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        caches.start();
        let wrong = caches.view(&view).unwrap();
        wrong.wait_synced(SOON).await.unwrap();
        sleep(SOON).await;
        assert_eq!(wrong.list().unwrap().len(), 6, "{form:?}");
        assert_eq!(reported.load(Ordering::Relaxed), 6, "{form:?}");
        let health = wrong.health().unwrap();
        let counted = health.quarantined_count + usize::try_from(health.unreadable).unwrap();
        assert_eq!(counted, 1, "{form:?}");
        let key = ObjectKey::namespaced("red", "odd");
        match form {
            StoreForm::Typed => assert!(wrong.get(&key).unwrap().is_none()),
            _ => {
                let error = wrong.get(&key).unwrap_err().to_string();
                assert!(error.contains("cannot be read as its type"), "{error}");
            }
        }
        drop(handler);
        caches.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_no_such_type_is_counted_once_in_a_store_of_another() {
    for form in [None, Some(StoreForm::Compact)] {
        counted_once(form).await;
    }
}

async fn counted_once(form: Option<StoreForm>) {
    let cluster = tiers().await;
    let odd = json!({"metadata": {"namespace": "red", "name": "odd"}, "data": {"other": "x"}});
    let odd: ConfigMap = serde_json::from_value(odd).unwrap();
    cluster.client.create(&odd).await.unwrap();
    let options = form.map_or_else(CacheOptions::new, |form| CacheOptions::new().form(form));
    let caches = cluster.caches_with(options);
    caches
        .keep(&View::dynamic(&Kind::of::<ConfigMap>()))
        .unwrap();
    caches.start();
    let view = View::<Wrong>::typed();
    let reported = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reported);
    let handler = caches.add_handler(&view, "handler", move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let wrong = caches.view(&view).unwrap();
    wrong.wait_synced(SOON).await.unwrap();
    sleep(SOON).await;
    let unreadable = || wrong.health().unwrap().unreadable;
    assert_eq!(reported.load(Ordering::Relaxed), 6);
    for _ in 0..2 {
        assert_eq!(wrong.list().unwrap().len(), 6);
        let key = ObjectKey::namespaced("red", "odd");
        assert!(wrong.get(&key).is_err());
        assert_eq!(unreadable(), 1, "once a version");
    }
    let label = json!({"metadata": {"labels": {"n": "1"}}});
    cluster
        .client
        .patch::<ConfigMap>(
            &ObjectKey::namespaced("red", "odd"),
            crate::client::Patch::merge(label),
        )
        .await
        .unwrap();
    sleep(SOON).await;
    assert_eq!(unreadable(), 2);
    drop(handler);
    caches.stop().await;
}

fn widget() -> Kind {
    let gvk = GroupVersionKind::gvk("example.com", "v1", "Widget");
    Kind::namespaced(ApiResource::from_gvk_with_plural(&gvk, "widgets"))
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_there_yet_attaches_and_readiness_minds_only_if_it_is_needed() {
    let cluster = tiers().await;
    let caches = cluster.caches();
    let view = View::dynamic(&widget());
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&seen);
    let interest = caches.watch(&view, false).unwrap();
    let handler = caches.register(interest, &view, HandlerOptions::new(), move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    caches.start();
    sleep(LONG).await;
    assert_eq!(caches.check(), Ok(()), "it is not needed");
    let needed = caches.watch(&view, true).unwrap();
    let problem = caches.check().unwrap_err();
    assert!(problem.starts_with("widgets.example.com: "), "{problem}");
    drop(needed);
    assert_eq!(caches.check(), Ok(()));
    let lister = caches.view(&view).unwrap();
    assert!(matches!(lister.list(), Err(ReadError::NotSynced { .. })));
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]
        }
    }))
    .unwrap();
    cluster.client.create(&definition).await.unwrap();
    lister.wait_synced(LONG).await.unwrap();
    let kind = widget();
    let mut object = DynamicObject::new("w", kind.resource());
    object.metadata.namespace = Some("red".to_owned());
    object.data = json!({"size": 3});
    let widgets = cluster.client.dynamic(&kind);
    widgets.create(&object).await.unwrap();
    sleep(SOON).await;
    assert_eq!(seen.load(Ordering::Relaxed), 1);
    caches.kinds().add(kind.clone());
    let known = caches.dynamic(&kind.gvk()).unwrap();
    assert_eq!(known.list().unwrap()[0].data["size"], 3);
    drop(handler);
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_comes_has_a_while_before_readiness_minds() {
    let cluster = tiers().await;
    let stall = Rule::new().namespace("red").stall();
    cluster.server.faults().add(stall);
    let caches = cluster.caches_with(CacheOptions::new().in_namespace("blue", Selected::new()));
    let maps = caches.keep(&View::<ConfigMap>::typed()).unwrap();
    caches.start();
    maps.wait_synced(SOON).await.unwrap();
    caches.namespaces().insert("red");
    sleep(SOON).await;
    assert!(maps.list().is_err(), "it is not filled");
    assert_eq!(caches.check(), Ok(()), "but it was");
    sleep(LONG).await;
    let problem = caches.check().unwrap_err();
    assert!(problem.contains("configmaps in red: "), "{problem}");
    caches.stop().await;

    // A cache that never was filled has none.
    let both = CacheOptions::new()
        .in_namespace("blue", Selected::new())
        .in_namespace("red", Selected::new());
    let caches = cluster.caches_with(both);
    caches.keep(&View::<ConfigMap>::typed()).unwrap();
    caches.start();
    sleep(SOON).await;
    let problem = caches.check().unwrap_err();
    assert!(problem.contains("configmaps in red: "), "{problem}");
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_ended_is_no_ready_cache() {
    let cluster = tiers().await;
    let caches = cluster.caches();
    let maps = caches.keep(&View::<ConfigMap>::typed()).unwrap();
    caches.start();
    maps.wait_synced(SOON).await.unwrap();
    assert_eq!(caches.check(), Ok(()));
    // Whatever the cause.
    caches.stop().await;
    assert_eq!(caches.check(), Err("configmaps: stopped".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_read_is_bounded() {
    let cluster = tiers().await;
    cluster
        .server
        .faults()
        .add(Rule::new().resource("configmaps").stall());
    let caches = cluster.caches();
    let maps = caches.keep(&View::<ConfigMap>::typed()).unwrap();
    let before = tokio::time::Instant::now();
    let error = maps.wait_synced(SOON).await.unwrap_err();
    assert!(matches!(error, ReadError::NotStarted { .. }), "{error}");
    caches.start();
    let error = maps.wait_synced(SOON).await.unwrap_err();
    assert!(matches!(error, ReadError::NotSynced { .. }), "{error}");
    assert_eq!(before.elapsed(), SOON * 2);
    caches.stop().await;
}
