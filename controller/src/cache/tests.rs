//! Views, forms and the life of stores, against the built-in API server.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::{DynamicObject, PartialObjectMeta};
use parking_lot::Mutex;
use reeve_apiserver::ApiServer;
use reeve_clock::Clock;
use reeve_informer::{Event, ObjectKey};
use serde_json::json;
use tokio::time::sleep;

use super::*;
use crate::Client;
use crate::metrics::Metrics;

pub(super) struct Cluster {
    pub(super) server: ApiServer,
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) metrics: Metrics,
}

impl Cluster {
    pub(super) async fn start() -> Self {
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 7);
        let builder = ApiServer::builder().clock(clock.clone());
        let server = builder.start().await.unwrap();
        Self {
            client: Client::new(server.client()),
            server,
            clock,
            metrics: Metrics::new(),
        }
    }

    pub(super) fn caches(&self) -> Caches {
        self.caches_with(CacheOptions::new())
    }

    pub(super) fn caches_with(&self, options: CacheOptions) -> Caches {
        options.validate().unwrap();
        Caches::new(
            self.server.client(),
            self.clock.clone(),
            options,
            self.metrics.informers(),
        )
    }

    pub(super) async fn create(&self, name: &str) {
        let map: ConfigMap = serde_json::from_value(json!({
            "metadata": {"namespace": "default", "name": name, "labels": {"app": name}},
            "data": {"key": name}}))
        .unwrap();
        self.client.create(&map).await.unwrap();
    }

    /// The number of watches of ConfigMaps that began.
    pub(super) fn watches(&self) -> usize {
        self.server.requests().count("watch", "configmaps")
    }
}

const SOON: Duration = Duration::from_secs(5);

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

#[tokio::test(start_paused = true)]
async fn one_store_and_one_watch_serve_every_view_of_a_kind() {
    let cluster = Cluster::start().await;
    cluster.create("a").await;
    let caches = cluster.caches();
    let kind = Kind::of::<ConfigMap>();
    // Metadata is requested first, and the form is decided after all requests.
    let metadata = caches
        .keep(&View::<PartialObjectMeta<ConfigMap>>::metadata())
        .unwrap();
    let dynamic = caches.keep(&View::dynamic(&kind)).unwrap();
    let typed = caches.keep(&View::<ConfigMap>::typed()).unwrap();
    caches.start();
    for synced in [
        metadata.wait_synced(SOON).await,
        dynamic.wait_synced(SOON).await,
        typed.wait_synced(SOON).await,
    ] {
        synced.unwrap();
    }
    assert_eq!(cluster.watches(), 1);
    let (first, again) = (typed.get(&key("a")).unwrap(), typed.list().unwrap());
    assert!(
        Arc::ptr_eq(&first.unwrap(), &again[0]),
        "the typed view is what is stored"
    );
    let object = dynamic.get(&key("a")).unwrap().unwrap();
    assert_eq!(object.data["data"]["key"], "a");
    assert_eq!(object.types.as_ref().unwrap().kind, "ConfigMap");
    let object = metadata.list().unwrap().remove(0);
    assert_eq!(object.metadata.name.as_deref(), Some("a"));
    assert_eq!(object.types.as_ref().unwrap().api_version, "v1");
    // A dynamic view of a type that Rust code may also name: the same view.
    let named = caches.lister::<PartialObjectMeta<ConfigMap>>().unwrap();
    assert_eq!(named.list().unwrap().len(), 1);
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_is_asked_for_and_stored_as_metadata() {
    let cluster = Cluster::start().await;
    cluster.create("a").await;
    let caches = cluster.caches();
    let metadata = caches
        .keep(&View::<PartialObjectMeta<ConfigMap>>::metadata())
        .unwrap();
    caches.start();
    metadata.wait_synced(SOON).await.unwrap();
    assert!(caches.lister::<ConfigMap>().is_err(), "it is not watched");
    // A later view with a greater need gets it, from a second store.
    let typed = caches.keep(&View::<ConfigMap>::typed()).unwrap();
    typed.wait_synced(SOON).await.unwrap();
    assert!(typed.get(&key("a")).unwrap().unwrap().data.is_some());
    assert_eq!(cluster.watches(), 2);
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn handlers_get_events_through_their_views() {
    let cluster = Cluster::start().await;
    cluster.create("a").await;
    let caches = cluster.caches();
    let reported: Arc<Mutex<Vec<String>>> = Arc::default();
    let typed = Arc::clone(&reported);
    let typed = caches
        .add_handler(
            &View::<ConfigMap>::typed(),
            "typed",
            move |event: Event<ConfigMap>| {
                let name = event.object().unwrap().metadata.name.clone().unwrap();
                typed.lock().push(format!("typed {name}"));
            },
        )
        .unwrap();
    let metadata = Arc::clone(&reported);
    let metadata = caches
        .add_handler(
            &View::<PartialObjectMeta<ConfigMap>>::metadata(),
            "metadata",
            move |event: Event<PartialObjectMeta<ConfigMap>>| {
                let name = event.object().unwrap().metadata.name.clone().unwrap();
                metadata.lock().push(format!("metadata {name}"));
            },
        )
        .unwrap();
    let dynamic = Arc::clone(&reported);
    let dynamic = caches
        .add_handler(
            &View::dynamic(&Kind::of::<ConfigMap>()),
            "dynamic",
            move |event: Event<DynamicObject>| {
                let value = event.object().unwrap().data["data"]["key"].clone();
                dynamic.lock().push(format!("dynamic {value}"));
            },
        )
        .unwrap();
    caches.start();
    for registration in [&typed, &metadata, &dynamic] {
        registration.wait_synced().await;
    }
    cluster.create("b").await;
    sleep(SOON).await;
    drop(typed);
    cluster.create("c").await;
    sleep(SOON).await;
    let mut reported = reported.lock().clone();
    reported.sort();
    assert_eq!(
        reported,
        [
            "dynamic \"a\"",
            "dynamic \"b\"",
            "dynamic \"c\"",
            "metadata a",
            "metadata b",
            "metadata c",
            "typed a",
            "typed b"
        ]
    );
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_unused_stops_after_the_linger_and_a_later_user_has_a_new_one() {
    let cluster = Cluster::start().await;
    let caches = cluster.caches();
    let view = View::<ConfigMap>::typed();
    let lister = caches.keep(&view).unwrap();
    let first = caches.add_handler(&view, "first", |_| {}).unwrap();
    caches.start();
    lister.wait_synced(SOON).await.unwrap();
    drop(lister);
    caches.release(view.kind());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(caches.health().len(), 1, "a handler uses it");
    drop(first);
    assert!(caches.lister::<ConfigMap>().is_err());
    sleep(Duration::from_secs(10)).await;
    let second = caches.add_handler(&view, "second", |_| {}).unwrap();
    second.wait_synced().await;
    assert_eq!(cluster.watches(), 1, "it had not stopped yet");
    drop(second);
    sleep(Duration::from_secs(60)).await;
    let third = caches.add_handler(&view, "third", |_| {}).unwrap();
    third.wait_synced().await;
    assert_eq!(cluster.watches(), 2);
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_informer_of_another_form_is_not_kept() {
    let cluster = Cluster::start().await;
    let own = KindOptions::new().form(StoreForm::Compact);
    let caches = cluster.caches_with(CacheOptions::new().for_kind::<ConfigMap>(own));
    caches.start();
    let refused = caches.informer::<ConfigMap>().map(drop).unwrap_err();
    assert!(matches!(refused, CacheError::OtherForm { .. }), "{refused}");
    assert!(caches.lister::<ConfigMap>().is_err(), "it is not used");
    assert_eq!(caches.check(), Ok(()), "nor misses it");
    // A kept kind is kept once, and released once.
    let view = View::<ConfigMap>::typed();
    for _ in 0..3 {
        caches.keep(&view).unwrap();
    }
    caches.release(view.kind());
    assert!(caches.lister::<ConfigMap>().is_err());
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_packed_kind_is_read_as_it_is_and_takes_less_memory() {
    let cluster = Cluster::start().await;
    for number in 0..10 {
        cluster.create(&format!("map-{number}")).await;
    }
    let mut owned = Vec::new();
    for own in [KindOptions::new(), KindOptions::new().pack()] {
        let own = own.form(StoreForm::Compact);
        let caches = cluster.caches_with(CacheOptions::new().for_kind::<ConfigMap>(own));
        let lister = caches.keep(&View::<ConfigMap>::typed()).unwrap();
        caches.start();
        lister.wait_synced(SOON).await.unwrap();
        let map = lister.get(&ObjectKey::namespaced("default", "map-7"));
        let data = map.unwrap().unwrap().data.clone().unwrap();
        assert_eq!(data["key"], "map-7");
        owned.push(lister.health().unwrap().bytes.owned);
        caches.stop().await;
    }
    // Protobuf leaves less to share than JSON, of which the packed texts of ten objects are longer than either.
    assert!(owned[1] < owned[0], "{owned:?}");
}

#[tokio::test(start_paused = true)]
async fn a_type_is_read_of_a_kind_that_is_watched_dynamically_before_the_start_too() {
    let cluster = Cluster::start().await;
    cluster.create("a").await;
    let caches = cluster.caches();
    let dynamic = View::dynamic(&Kind::of::<ConfigMap>());
    let dynamic = caches.keep(&dynamic).unwrap();
    let typed = caches.lister::<ConfigMap>().unwrap();
    caches.start();
    dynamic.wait_synced(SOON).await.unwrap();
    let map = typed.get(&key("a")).unwrap().unwrap();
    assert_eq!(map.data.as_ref().unwrap()["key"], "a");
    assert!(caches.lister::<ConfigMap>().is_ok(), "as after it");
    assert_eq!(cluster.watches(), 1);
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_function_of_an_index_may_use_the_caches() {
    let cluster = Cluster::start().await;
    cluster.create("a").await;
    let caches = cluster.caches();
    let view = View::<ConfigMap>::typed();
    let lister = caches.keep(&view).unwrap();
    caches.start();
    lister.wait_synced(SOON).await.unwrap();
    let inside = caches.clone();
    let named = move |_: &ConfigMap| {
        let cached = inside.lister::<ConfigMap>().is_ok();
        vec![Arc::from(if cached { "cached" } else { "not" })]
    };
    caches.add_index(&view, "state", named).unwrap();
    assert_eq!(lister.by_index("state", "cached").unwrap().len(), 1);
    // A refused one does not affect another.
    assert!(caches.add_index(&view, "state", |_| Vec::new()).is_err());
    assert_eq!(lister.by_index("state", "cached").unwrap().len(), 1);
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_read_before_the_cache_is_filled_says_so() {
    let cluster = Cluster::start().await;
    let caches = cluster.caches();
    assert_eq!(
        caches.lister::<ConfigMap>().unwrap_err().to_string(),
        "ConfigMap (v1) is not cached: watch it in a controller, or keep it with Caches::keep"
    );
    let lister = caches.keep(&View::<ConfigMap>::typed()).unwrap();
    assert_eq!(
        lister.get(&key("a")).unwrap_err().to_string(),
        "ConfigMap (v1) is not cached yet: the manager has not started its caches, or makes its indexes"
    );
    caches.start();
    let error = lister.list().unwrap_err().to_string();
    assert!(
        error.starts_with("ConfigMap (v1) is not cached yet: configmaps: not synced"),
        "{error}"
    );
    lister.wait_synced(SOON).await.unwrap();
    assert!(lister.get(&key("a")).unwrap().is_none());
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_index_may_be_added_again_if_it_is_certainly_the_same() {
    fn named(map: &ConfigMap) -> Vec<Arc<str>> {
        map.metadata
            .name
            .iter()
            .map(|name| Arc::from(name.as_str()))
            .collect()
    }
    let cluster = Cluster::start().await;
    cluster.create("a").await;
    let caches = cluster.caches();
    let view = View::<ConfigMap>::typed();
    let captured = Arc::<str>::from("x");
    let capturing = |value: &Arc<str>| {
        let value = Arc::clone(value);
        move |_: &ConfigMap| vec![Arc::clone(&value)]
    };
    let lister = caches.keep(&view).unwrap();
    for round in 0..2 {
        // The second time its store has it.
        caches.add_index(&view, "name", named).unwrap();
        caches.add_index(&view, "none", |_| Vec::new()).unwrap();
        caches.add_label_index(view.kind(), "app").unwrap();
        let added = caches.add_index(&view, "captured", capturing(&captured));
        assert_eq!(added.is_ok(), round == 0, "what it captured may differ");
        if let Err(error) = added {
            let text = error.to_string();
            assert!(
                text.contains("ConfigMap") && text.contains("\"captured\""),
                "{text}"
            );
            assert!(text.contains("closure that captures nothing"), "{text}");
        }
        caches.start();
        lister.wait_synced(SOON).await.unwrap();
    }
    assert!(caches.add_index(&view, "name", |_| Vec::new()).is_err());
    let pointer: fn(&ConfigMap) -> Vec<Arc<str>> = named;
    assert!(caches.add_index(&view, "name", pointer).is_err());
    assert_eq!(lister.by_index("name", "a").unwrap().len(), 1);
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn indexes_are_added_before_and_after_the_start_and_stay() {
    let cluster = Cluster::start().await;
    for name in ["a", "b"] {
        cluster.create(name).await;
    }
    let caches = cluster.caches();
    let view = View::<ConfigMap>::typed();
    let value = |map: &ConfigMap| -> Vec<Arc<str>> {
        let data = map.data.iter().flatten();
        data.map(|(_, value)| Arc::from(value.as_str())).collect()
    };
    caches.add_index(&view, "value", value).unwrap();
    caches.add_index(&view, "value", value).unwrap();
    let lister = caches.keep(&view).unwrap();
    caches.start();
    lister.wait_synced(SOON).await.unwrap();
    let metadata = View::<PartialObjectMeta<ConfigMap>>::metadata();
    caches
        .add_index(&metadata, "name", |map| {
            map.metadata
                .name
                .iter()
                .map(|name| Arc::from(name.as_str()))
                .collect()
        })
        .unwrap();
    caches.add_label_index(view.kind(), "app").unwrap();
    let names = |found: Vec<Arc<ConfigMap>>| -> String {
        found
            .iter()
            .filter_map(|map| map.metadata.name.clone())
            .collect()
    };
    for _ in 0..2 {
        let lister = caches.keep(&view).unwrap();
        lister.wait_synced(SOON).await.unwrap();
        assert_eq!(names(lister.by_index("value", "a").unwrap()), "a");
        assert_eq!(names(lister.by_index("name", "b").unwrap()), "b");
        assert!(lister.by_index("none", "b").is_err());
        let fields = "value=b".parse().unwrap();
        let labels = kube_core::Selector::default();
        let found = lister.select_fields(Some("default"), &labels, &fields);
        assert_eq!(names(found.unwrap()), "b");
        let labels = [("app".to_owned(), "a".to_owned())].into_iter().collect();
        assert_eq!(names(lister.select(None, &labels).unwrap()), "a");
        drop(lister);
        caches.release(view.kind());
        sleep(Duration::from_secs(60)).await;
    }
    caches.stop().await;
}
