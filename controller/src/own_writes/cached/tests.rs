//! Each case of read-your-writes for a client outside of a reconcile.

mod lost;

use std::future::Future;
use std::pin::pin;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_core::PartialObjectMeta;
use kube_core::params::{DeleteParams, ListParams};
use serde_json::json;
use tokio::time::timeout;

use super::*;
use crate::cache::{Kind, ReadError};
use crate::client::{Error, Patch};
use crate::fake::{Fake, Fate, clock};
use crate::metrics::Metrics;
use crate::own_writes::effect::Notes;

struct World {
    fake: Fake,
    client: Client,
    caches: Caches,
    metrics: Metrics,
}

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/ns/configmaps/{name}")
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("ns", name)
}

impl World {
    /// With ConfigMaps `a` and `b` in the cache, and the watch held back.
    async fn start() -> Self {
        Self::start_with(crate::cache::CacheOptions::new()).await
    }

    async fn start_with(options: crate::cache::CacheOptions) -> Self {
        let fake = Fake::default();
        for name in ["a", "b"] {
            fake.put(&path(name), json!({"metadata": {}, "data": {"n": "0"}}));
        }
        let metrics = Metrics::new();
        let caches = Caches::new(fake.client(), clock(), options, metrics.informers());
        let lister = caches.keep(&View::<ConfigMap>::typed()).unwrap();
        caches.start();
        lister.wait_synced(Duration::from_secs(5)).await.unwrap();
        // The watch after the first list.
        sleep(Duration::from_secs(1)).await;
        fake.hold_watches(true);
        let client = Client::new(fake.client())
            .with_reading(Reading::new(&caches, &metrics, "test"))
            .with_notes(Arc::new(Notes::default()));
        Self {
            fake,
            client,
            caches,
            metrics,
        }
    }

    fn maps(&self) -> Cached<ConfigMap> {
        self.client.cached().unwrap()
    }

    async fn write(&self, name: &str, value: &str) -> Result<ConfigMap, Error> {
        let patch = Patch::merge(json!({"data": {"n": value}}));
        self.client.patch(&key(name), patch).await
    }

    async fn read(&self, name: &str) -> Option<String> {
        let map = self.maps().get(&key(name)).await.unwrap();
        map.and_then(|map| map.data.as_ref()?.get("n").cloned())
    }

    fn counted(&self, what: &str) -> bool {
        let line = format!("reeve_read_your_writes_{what}_total{{controller=\"test\"}} 1");
        self.metrics.encode().lines().any(|found| found == line)
    }

    async fn end(&self) {
        self.caches.stop().await;
    }
}

/// The duration of `future`; it must end within a minute.
async fn took<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let start = Instant::now();
    let value = timeout(Duration::from_secs(60), future)
        .await
        .expect("ends");
    (value, start.elapsed())
}

/// Reads `name` while its watch event is held back for five seconds.
async fn read_held(world: &World, name: &str) -> (Option<String>, Duration) {
    let start = Instant::now();
    let mut reading = pin!(world.read(name));
    assert!(
        timeout(Duration::from_secs(5), &mut reading).await.is_err(),
        "it waits"
    );
    world.fake.hold_watches(false);
    (reading.await, start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_read_waits_for_the_write_before_it() {
    let world = World::start().await;
    assert_eq!(
        took(world.read("a")).await,
        (Some("0".into()), Duration::ZERO)
    );
    world.write("a", "1").await.unwrap();
    // A write to another object is not waited for.
    assert_eq!(
        took(world.read("b")).await,
        (Some("0".into()), Duration::ZERO)
    );
    let (value, waited) = read_held(&world, "a").await;
    assert_eq!(value.as_deref(), Some("1"));
    assert!(waited < Duration::from_millis(5300), "{waited:?}");
    assert!(world.counted("waits") && !world.counted("timeouts"));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_is_seen_at_once() {
    let world = World::start().await;
    world.write("a", "0").await.unwrap();
    assert_eq!(
        took(world.read("a")).await,
        (Some("0".into()), Duration::ZERO)
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_create_and_a_delete_are_waited_for_and_a_delete_by_its_uid() {
    let world = World::start().await;
    let mut map = ConfigMap::default();
    (map.metadata.namespace, map.metadata.name) = (Some("ns".into()), Some("c".into()));
    map.data = Some([("n".to_owned(), "new".to_owned())].into());
    world.client.create(&map).await.unwrap();
    assert_eq!(read_held(&world, "c").await.0.as_deref(), Some("new"));

    world.fake.hold_watches(true);
    let params = DeleteParams::default();
    world
        .client
        .delete::<ConfigMap>(&key("c"), &params)
        .await
        .unwrap();
    // Another client creates it again: the uid is gone all the same.
    world.fake.put(
        &path("c"),
        json!({"metadata": {}, "data": {"n": "another"}}),
    );
    assert_ne!(read_held(&world, "c").await.0.as_deref(), Some("new"));
    sleep(Duration::from_secs(1)).await;
    let (value, waited) = took(world.read("c")).await;
    assert_eq!(
        (value.as_deref(), waited),
        (Some("another"), Duration::ZERO)
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_hold_our_object_yet_does_not_show_that_it_is_gone() {
    let world = World::start().await;
    let mut map = ConfigMap::default();
    (map.metadata.namespace, map.metadata.name) = (Some("ns".into()), Some("c".into()));
    world.client.create(&map).await.unwrap();
    let params = DeleteParams::default();
    world
        .client
        .delete::<ConfigMap>(&key("c"), &params)
        .await
        .unwrap();
    assert_eq!(read_held(&world, "c").await.0, None);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_the_selector_does_not_select_is_seen_when_its_version_has_passed() {
    let world = World::start().await;
    world.write("a", "1").await.unwrap();
    // As a server does with an object that leaves the selection, and a store that has passed it.
    world
        .fake
        .put(&path("b"), json!({"metadata": {}, "data": {"n": "2"}}));
    let mut reading = pin!(world.read("a"));
    assert!(timeout(Duration::from_secs(1), &mut reading).await.is_err());
    world.fake.drop_held(&path("a"));
    world.fake.hold_watches(false);
    assert_eq!(
        reading.await.as_deref(),
        Some("0"),
        "the store is past the write"
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_labels_the_cache_leaves_out_is_not_waited_for() {
    // The fake selects nothing: the test removes events that the server would not send.
    let selected = crate::cache::KindOptions::new().labels("app notin (db)");
    let options = crate::cache::CacheOptions::new().for_kind::<ConfigMap>(selected);
    let world = World::start_with(options).await;
    let write = async |name: &str, app: &str| {
        let patch = Patch::merge(json!({"metadata": {"labels": {"app": app}}}));
        let (client, key) = (&world.client, key(name));
        let written = client.patch::<ConfigMap>(&key, patch);
        written.await.unwrap()
    };
    let mut map = ConfigMap::default();
    map.metadata.name = Some("c".into());
    map.metadata.namespace = Some("ns".into());
    map.metadata.labels = Some([("app".into(), "db".into())].into());
    world.client.create(&map).await.unwrap();
    assert_eq!(took(world.read("c")).await.1, Duration::ZERO, "created");
    write("c", "db").await;
    world.write("c", "1").await.unwrap();
    assert_eq!(took(world.read("c")).await.1, Duration::ZERO, "changed");
    let all = took(world.maps().list(None)).await;
    assert_eq!(all.1, Duration::ZERO, "listed");
    world
        .client
        .delete::<ConfigMap>(&key("c"), &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(took(world.read("c")).await.1, Duration::ZERO, "deleted");
    // A write after which the object leaves the selection is waited for until the store has dropped it.
    write("a", "db").await;
    let mut reading = pin!(world.read("a"));
    assert!(timeout(Duration::from_secs(5), &mut reading).await.is_err());
    world.fake.drop_held(&path("a"));
    world.fake.drop_held(&path("c"));
    world.fake.remove(&path("a"));
    world.fake.hold_watches(false);
    assert_eq!(reading.await, None);
    // A write to a selected object is waited for.
    world.fake.hold_watches(true);
    write("b", "web").await;
    assert!(read_held(&world, "b").await.1 >= Duration::from_secs(5));
    assert!(!world.counted("timeouts"));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn when_the_time_is_over_the_read_goes_on_and_is_counted_and_does_not_wait_again() {
    let world = World::start().await;
    world.write("a", "1").await.unwrap();
    let maps = world.maps().wait_at_most(Duration::from_secs(3));
    let (found, waited) = took(maps.get(&key("a"))).await;
    let data = found.unwrap().unwrap().data.clone().unwrap();
    assert_eq!((data["n"].as_str(), waited), ("0", Duration::from_secs(3)));
    assert!(world.counted("timeouts"));
    assert_eq!(
        took(world.read("a")).await,
        (Some("0".into()), Duration::ZERO)
    );
    // Or without a limit.
    world.write("a", "1.5").await.unwrap();
    let maps = world.maps().wait_at_most(Duration::MAX);
    let a = key("a");
    let mut reading = pin!(maps.get(&a));
    let day = Duration::from_secs(86_400);
    assert!(timeout(day, &mut reading).await.is_err());
    world.fake.hold_watches(false);
    let data = reading.await.unwrap().unwrap().data.clone().unwrap();
    assert_eq!(data["n"], "1.5");
    world.fake.hold_watches(true);
    // The default is ten seconds.
    world.write("a", "2").await.unwrap();
    assert_eq!(took(world.read("a")).await.1, Duration::from_secs(10));
    // A server that does not answer does not make it longer.
    world.fake.hook(|_, _| Some(Fate::Hang));
    let cancelled = timeout(Duration::from_secs(1), world.write("a", "3")).await;
    assert!(cancelled.is_err());
    assert_eq!(took(world.read("a")).await.1, Duration::from_secs(10));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_read_and_a_client_can_opt_out() {
    let world = World::start().await;
    world.write("a", "1").await.unwrap();
    let now = world.maps().without_waiting();
    let found = now.get(&key("a")).now_or_never().expect("at once").unwrap();
    assert_eq!(found.unwrap().data.as_ref().unwrap()["n"], "0");
    let careless = world.client.clone().without_read_your_writes();
    let maps = careless.cached::<ConfigMap>().unwrap();
    assert_eq!(took(maps.get(&key("a"))).await.1, Duration::ZERO);
    // A clone shares the record of writes.
    let clone = world.client.clone().cached::<ConfigMap>().unwrap();
    assert!(
        timeout(Duration::from_secs(1), clone.get(&key("a")))
            .await
            .is_err()
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_list_waits_for_every_write_that_it_may_show() {
    let world = World::start().await;
    world.fake.put(
        "/api/v1/namespaces/other/configmaps/x",
        json!({"metadata": {}}),
    );
    world.write("a", "1").await.unwrap();
    let maps = world.maps();
    assert_eq!(
        took(maps.list(Some("other"))).await.1,
        Duration::ZERO,
        "another namespace"
    );
    for namespace in [Some("ns"), None] {
        let listing = maps.list(namespace);
        assert!(
            timeout(Duration::from_secs(1), listing).await.is_err(),
            "{namespace:?}"
        );
    }
    assert!(
        timeout(Duration::from_secs(1), maps.lister())
            .await
            .is_err()
    );
    world.fake.hold_watches(false);
    let all = maps.list(Some("ns")).await.unwrap();
    assert_eq!(all[0].data.as_ref().unwrap()["n"], "1");
    assert_eq!(maps.lister().await.len(), 3);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn every_view_sees_what_was_written_through_any_other() {
    let world = World::start().await;
    let kind = Kind::of::<ConfigMap>();
    let patch = Patch::merge(json!({"metadata": {"labels": {"app": "web"}}}));
    let metadata = world.client.metadata::<ConfigMap>();
    metadata.patch(&key("a"), patch).await.unwrap();
    let client = &world.client;
    let a = key("a");
    let dynamic = client.cached_as(&View::dynamic(&kind)).unwrap();
    let partial = client
        .cached_as(&View::<PartialObjectMeta<ConfigMap>>::metadata())
        .unwrap();
    let typed = world.maps();
    let views = [
        dynamic.get(&a).map(drop).boxed(),
        partial.get(&a).map(drop).boxed(),
        typed.get(&a).map(drop).boxed(),
    ];
    for mut view in views {
        assert!(timeout(Duration::from_secs(1), &mut view).await.is_err());
    }
    // Deleting many is waited for, one by one.
    world.fake.hold_watches(false);
    world.fake.hold_watches(true);
    let all = ListParams::default();
    let params = DeleteParams::default();
    world
        .client
        .delete_all_of::<ConfigMap>(Some("ns"), &all, &params)
        .await
        .unwrap();
    let maps = world.maps();
    let mut listing = pin!(maps.list(None));
    assert!(timeout(Duration::from_secs(1), &mut listing).await.is_err());
    world.fake.hold_watches(false);
    assert!(listing.await.unwrap().is_empty());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_from_a_cache_says_what_to_do() {
    let world = World::start().await;
    let log = world.fake.log().len();
    let uncached = world.client.cached::<Secret>().unwrap_err();
    assert!(matches!(uncached, CachedError::NotCached(_)));
    assert!(uncached.to_string().contains("Caches::keep"), "{uncached}");
    let without = Client::new(world.fake.client())
        .cached::<ConfigMap>()
        .unwrap_err();
    assert!(matches!(without, CachedError::NoCaches { .. }));
    assert!(without.to_string().contains("Manager::client"), "{without}");
    // Gives reads in the background their time.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(
        world.fake.log().len(),
        log,
        "nothing was asked of the server"
    );

    // A cache that is not filled: the read waits for it, and then returns the error.
    world
        .fake
        .hook(|_, path| path.ends_with("/secrets").then_some(Fate::Refuse(403)));
    world.caches.keep(&View::<Secret>::typed()).unwrap();
    let secrets = world.client.cached::<Secret>().unwrap();
    let (refused, waited) = took(secrets.get(&key("a"))).await;
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused, CachedError::Unread(ReadError::NotSynced { .. })),
        "{refused}"
    );
    assert_eq!(waited, Duration::from_secs(10));
    let at_once = secrets.without_waiting().get(&key("a")).now_or_never();
    assert!(at_once.expect("at once").is_err());
    world.end().await;
}
