//! The requests to the server follow the options.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use reeve_informer::{Endpoint, Selection};
use serde_json::json;

use super::tests::Cluster;
use super::*;

const SOON: Duration = Duration::from_secs(5);

/// Three namespaces with a ConfigMap of the front tier, `a`, and one of the back tier, `b`, each.
pub(super) async fn tiers() -> Cluster {
    let cluster = Cluster::start().await;
    for namespace in ["blue", "green", "red"] {
        let object: Namespace =
            serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        cluster.client.create(&object).await.unwrap();
        for (name, tier) in [("a", "front"), ("b", "back")] {
            let map: ConfigMap = serde_json::from_value(json!({
                "metadata": {"namespace": namespace, "name": name, "labels": {"tier": tier}},
                "data": {"size": "large"}}))
            .unwrap();
            cluster.client.create(&map).await.unwrap();
        }
    }
    cluster.server.requests().clear();
    cluster
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                let digits = std::str::from_utf8(&digits).unwrap();
                u8::from_str_radix(digits, 16).unwrap()
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}

fn line(path: &str, labels: &str, fields: &str) -> String {
    format!("{path} labels={labels} fields={fields}")
}

/// The parameters of the lists and watches of a kind.
pub(super) fn sent(cluster: &Cluster, kind: &Kind) -> BTreeSet<String> {
    let requests = cluster.server.requests().all();
    let asked = requests.iter().filter(|request| {
        ["list", "watch"].contains(&request.verb.as_str())
            && request.resource == kind.resource().plural
    });
    asked
        .map(|request| {
            let of = |name: &str| {
                let mut pairs = request.query.split('&');
                let value = pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
                value.map(decoded).unwrap_or_default()
            };
            line(&request.path, &of("labelSelector"), &of("fieldSelector"))
        })
        .collect()
}

/// Their parameters by the options.
pub(super) fn wanted(caches: &Caches, kind: &Kind) -> BTreeSet<String> {
    let endpoint = Endpoint::for_type::<kube_core::DynamicObject>(kind.resource());
    let places = caches.resolved(kind).unwrap();
    places
        .iter()
        .map(|place| {
            let Selection {
                scope,
                labels,
                fields,
            } = &place.selection;
            line(&endpoint.path(scope), labels, fields)
        })
        .collect()
}

fn keys(lister: &Lister<ConfigMap>) -> String {
    let list = lister.list().unwrap();
    let keys = list.iter().map(|map| {
        let meta = &map.metadata;
        let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        format!("{}/{}", namespace.unwrap(), name.unwrap())
    });
    keys.collect::<Vec<_>>().join(" ")
}

#[tokio::test(start_paused = true)]
async fn lists_and_watches_ask_for_what_the_options_come_to_and_the_store_holds_that() {
    let (new, own) = (CacheOptions::new, KindOptions::new);
    let labels = |selector: &str| Selected::new().labels(selector);
    let fields = |selector: &str| Selected::new().fields(selector);
    let any = Selected::new;
    let everything = "blue/a blue/b green/a green/b red/a red/b";
    for (case, options, watches, held) in [
        ("nothing said", new(), 1, everything),
        (
            "labels of all kinds",
            new().selected(labels("tier=front")),
            1,
            "blue/a green/a red/a",
        ),
        (
            "labels of the kind",
            new().for_kind::<ConfigMap>(own().labels("tier in (back)")),
            1,
            "blue/b green/b red/b",
        ),
        (
            "labels of the kind instead of those of all kinds",
            new()
                .selected(labels("tier=back"))
                .for_kind::<ConfigMap>(own().labels("tier=front")),
            1,
            "blue/a green/a red/a",
        ),
        (
            "fields that name one of the others",
            new()
                .in_namespace("red", any())
                .in_all_others(any())
                .for_kind::<ConfigMap>(own().fields("metadata.namespace=blue")),
            2,
            "blue/a blue/b",
        ),
        (
            "labels that nothing has",
            new().selected(labels("tier=none")),
            1,
            "",
        ),
        (
            "fields of all kinds",
            new().selected(fields("metadata.name=a")),
            1,
            "blue/a green/a red/a",
        ),
        (
            "fields of the kind",
            new().for_kind::<ConfigMap>(own().fields("metadata.name!=a")),
            1,
            "blue/b green/b red/b",
        ),
        (
            "fields and labels, which contradict",
            new()
                .selected(fields("metadata.name=a"))
                .for_kind::<ConfigMap>(own().labels("tier=back")),
            1,
            "",
        ),
        (
            "a namespace by its field",
            new().for_kind::<ConfigMap>(own().fields("metadata.namespace=red")),
            1,
            "red/a red/b",
        ),
        (
            "a namespace and a name by their fields",
            new().selected(fields("metadata.namespace=red,metadata.name=b")),
            1,
            "red/b",
        ),
        (
            "one namespace",
            new().in_namespace("red", any()),
            1,
            "red/a red/b",
        ),
        (
            "two namespaces",
            new().in_namespace("red", any()).in_namespace("blue", any()),
            2,
            "blue/a blue/b red/a red/b",
        ),
        (
            "two namespaces, labels of one",
            new()
                .in_namespace("red", labels("tier=front"))
                .in_namespace("blue", any()),
            2,
            "blue/a blue/b red/a",
        ),
        (
            "two namespaces, labels of all kinds but in one",
            new()
                .selected(labels("tier=front"))
                .in_namespace("red", labels(""))
                .in_namespace("blue", any()),
            2,
            "blue/a red/a red/b",
        ),
        (
            "two namespaces, fields of each",
            new()
                .in_namespace("red", fields("metadata.name=a"))
                .in_namespace("blue", fields("metadata.name=b")),
            2,
            "blue/b red/a",
        ),
        (
            "labels of the kind before those of the namespaces",
            new()
                .in_namespace("red", labels("tier=front"))
                .in_namespace("blue", labels("tier=none"))
                .for_kind::<ConfigMap>(own().labels("tier=back")),
            2,
            "blue/b red/b",
        ),
        (
            "namespaces of the kind instead of those of all kinds",
            new()
                .in_namespace("red", any())
                .for_kind::<ConfigMap>(own().in_namespace("green", any())),
            1,
            "green/a green/b",
        ),
        (
            "labels of a namespace of the kind before those of the kind",
            new().for_kind::<ConfigMap>(
                own()
                    .labels("tier=front")
                    .in_namespace("red", labels("tier=back"))
                    .in_namespace("green", any()),
            ),
            2,
            "green/a red/b",
        ),
        (
            "every namespace of the kind whatever all kinds have",
            new()
                .in_namespace("red", any())
                .for_kind::<ConfigMap>(own().in_every_namespace()),
            1,
            everything,
        ),
        (
            "a namespace and all others, which is everything",
            new().in_namespace("red", any()).in_all_others(any()),
            2,
            everything,
        ),
        (
            "two namespaces and all others, each in its own way",
            new()
                .in_namespace("red", labels("tier=front"))
                .in_namespace("blue", fields("metadata.name=b"))
                .in_all_others(labels("tier=back")),
            3,
            "blue/b green/b red/a",
        ),
        (
            "all others and fields of all kinds",
            new()
                .selected(fields("metadata.name!=b"))
                .in_namespace("red", fields(""))
                .in_all_others(any()),
            2,
            "blue/a green/a red/a red/b",
        ),
        (
            "all others alone are every namespace",
            new().in_all_others(labels("tier=front")),
            1,
            "blue/a green/a red/a",
        ),
        (
            "all others of the kind, without what the namespaces of all kinds say",
            new()
                .in_namespace("red", labels("tier=front"))
                .for_kind::<ConfigMap>(
                    own()
                        .in_namespace("green", labels("tier=none"))
                        .in_all_others(any()),
                ),
            2,
            "blue/a blue/b red/a red/b",
        ),
    ] {
        let cluster = tiers().await;
        let caches = cluster.caches_with(options);
        let kind = Kind::of::<ConfigMap>();
        let lister = caches.keep(&View::<ConfigMap>::typed()).unwrap();
        caches.start();
        lister.wait_synced(SOON).await.unwrap();
        // An object changes, and every watch begins again.
        tokio::time::sleep(SOON).await;
        cluster.server.close_watches();
        tokio::time::sleep(SOON).await;
        assert_eq!(sent(&cluster, &kind), wanted(&caches, &kind), "{case}");
        assert_eq!(wanted(&caches, &kind).len(), watches, "{case}");
        assert_eq!(keys(&lister), held, "{case}");
        caches.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn kinds_without_namespaces_are_cached_whole_beside_those_of_some_namespaces() {
    let cluster = tiers().await;
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    cluster.client.create(&node).await.unwrap();
    let options = CacheOptions::new()
        .in_namespace("red", Selected::new())
        .in_all_others(Selected::new());
    let caches = cluster.caches_with(options);
    let nodes = caches.keep(&View::<Node>::typed()).unwrap();
    let maps = caches.keep(&View::<ConfigMap>::typed()).unwrap();
    caches.start();
    nodes.wait_synced(SOON).await.unwrap();
    maps.wait_synced(SOON).await.unwrap();
    let kind = Kind::of::<Node>();
    let whole = line("/api/v1/nodes", "", "");
    assert_eq!(sent(&cluster, &kind), BTreeSet::from([whole]));
    assert_eq!(wanted(&caches, &kind), sent(&cluster, &kind));
    // The namespace of the key is ignored.
    let key = reeve_informer::ObjectKey::namespaced("red", "n");
    assert!(nodes.get(&key).unwrap().is_some());
    assert_eq!(nodes.list().unwrap().len(), 1);
    assert!(caches.namespaces_of(&kind).is_none());
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_read_where_nothing_is_cached_is_an_error_that_says_what_is() {
    let cluster = tiers().await;
    let options = CacheOptions::new()
        .in_namespace("red", Selected::new())
        .in_namespace("blue", Selected::new());
    let caches = cluster.caches_with(options);
    let maps = caches.keep(&View::<ConfigMap>::typed()).unwrap();
    caches.start();
    maps.wait_synced(SOON).await.unwrap();
    let wanted = "ConfigMap (v1) is not cached in the namespace \"green\", only in [\"blue\", \"red\"]: add it to the \
                  namespaces of the CacheOptions, or at run time with Caches::namespaces";
    let key = reeve_informer::ObjectKey::namespaced("green", "a");
    assert_eq!(maps.get(&key).unwrap_err().to_string(), wanted);
    assert_eq!(maps.namespace("green").unwrap_err().to_string(), wanted);
    let all = kube_core::Selector::default();
    let error = maps.select(Some("green"), &all).unwrap_err();
    assert_eq!(error.to_string(), wanted);
    let absent = reeve_informer::ObjectKey::namespaced("red", "none");
    assert!(maps.get(&absent).unwrap().is_none());
    assert_eq!(keys(&maps), "blue/a blue/b red/a red/b");
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn namespaces_change_while_handlers_watch() {
    let cluster = tiers().await;
    let options = CacheOptions::new()
        .in_namespace("red", Selected::new())
        .in_namespace("blue", Selected::new().labels("tier=front"))
        .for_kind::<ConfigMap>(KindOptions::new());
    let caches = cluster.caches_with(options);
    let view = View::<ConfigMap>::typed();
    let reported = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let noted = std::sync::Arc::clone(&reported);
    let handler = caches
        .add_handler(&view, "handler", move |event| {
            let sign = match &event {
                reeve_informer::Event::Added { .. } => '+',
                reeve_informer::Event::Updated { .. } => '~',
                reeve_informer::Event::Deleted { .. } => '-',
            };
            noted.lock().push(format!("{sign}{}", event.key()));
        })
        .unwrap();
    let take = || {
        let mut reported = std::mem::take(&mut *reported.lock());
        reported.sort();
        reported.join(" ")
    };
    caches.start();
    handler.wait_synced().await;
    assert_eq!(take(), "+blue/a +red/a +red/b");
    let maps = caches.lister::<ConfigMap>().unwrap();
    let namespaces = caches.namespaces().clone();
    assert!(namespaces.insert("green") && namespaces.remove("blue"));
    maps.wait_synced(SOON).await.unwrap();
    tokio::time::sleep(SOON).await;
    assert_eq!(take(), "+green/a +green/b -blue/a");
    assert!(matches!(
        maps.namespace("blue"),
        Err(ReadError::Namespace { .. })
    ));
    // Its options hold when it comes back.
    assert!(namespaces.insert("blue"));
    maps.wait_synced(SOON).await.unwrap();
    tokio::time::sleep(SOON).await;
    assert_eq!(take(), "+blue/a");
    // Every one of the others, too.
    namespaces.set_with_others(["blue"]);
    maps.wait_synced(SOON).await.unwrap();
    tokio::time::sleep(SOON).await;
    assert_eq!(take(), "");
    assert_eq!(keys(&maps), "blue/a green/a green/b red/a red/b");
    assert!(maps.namespace("default").unwrap().is_empty());
    drop(handler);
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn transforms_and_skipped_paths_are_those_of_the_place() {
    let cluster = tiers().await;
    let mark = |value: &'static str| {
        Selected::new().transform_metadata(move |meta| {
            let marks = meta.annotations.get_or_insert_default();
            marks.insert("mark".to_owned(), value.to_owned());
        })
    };
    let options = CacheOptions::new()
        .selected(mark("all").skip([".data.size".parse().unwrap()]))
        .in_namespace("red", mark("red"))
        .in_namespace("blue", Selected::new().no_transform().skip([]))
        .in_all_others(Selected::new());
    let caches = cluster.caches_with(options);
    let maps = caches.keep(&View::<ConfigMap>::typed()).unwrap();
    caches.start();
    maps.wait_synced(SOON).await.unwrap();
    let seen: Vec<String> = maps
        .list()
        .unwrap()
        .iter()
        .filter(|map| map.metadata.name.as_deref() == Some("a"))
        .map(|map| {
            let marks = map.metadata.annotations.as_ref();
            let mark = marks.and_then(|marks| marks.get("mark"));
            let size = map.data.as_ref().and_then(|data| data.get("size"));
            format!(
                "{} {mark:?} {}",
                map.metadata.namespace.as_deref().unwrap(),
                size.is_some()
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            "blue None true",
            "green Some(\"all\") false",
            "red Some(\"red\") false"
        ]
    );
    assert!(
        maps.list()
            .unwrap()
            .iter()
            .all(|map| map.metadata.managed_fields.is_none())
    );
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn forms_convert_for_readers_or_fail_with_the_option() {
    let cluster = tiers().await;
    for form in [StoreForm::Typed, StoreForm::Compact, StoreForm::Metadata] {
        let own = KindOptions::new().form(form);
        let caches = cluster.caches_with(CacheOptions::new().for_kind::<ConfigMap>(own));
        let kind = Kind::of::<ConfigMap>();
        let key = reeve_informer::ObjectKey::namespaced("red", "a");
        let metadata = View::<kube_core::PartialObjectMeta<ConfigMap>>::metadata();
        let metadata = caches.keep(&metadata).unwrap();
        let (typed, dynamic) = (
            caches.keep(&View::<ConfigMap>::typed()),
            caches.keep(&View::dynamic(&kind)),
        );
        cluster.server.requests().clear();
        caches.start();
        metadata.wait_synced(SOON).await.unwrap();
        assert_eq!(cluster.watches(), 1, "{form:?}");
        let object = metadata.get(&key).unwrap().unwrap();
        let labels = object.metadata.labels.as_ref().unwrap();
        assert_eq!(labels["tier"], "front", "{form:?}");
        if form == StoreForm::Metadata {
            assert_eq!(
                typed.unwrap_err().to_string(),
                "the options store only metadata of ConfigMap (v1), but all of it is requested: store it as \
                 StoreForm::Typed or StoreForm::Compact in CacheOptions, or watch its metadata"
            );
            assert!(dynamic.is_err());
        } else {
            let map = typed.unwrap().get(&key).unwrap().unwrap();
            assert_eq!(map.data.as_ref().unwrap()["size"], "large", "{form:?}");
            let object = dynamic.unwrap().get(&key).unwrap().unwrap();
            assert_eq!(object.data["data"]["size"], "large", "{form:?}");
            assert_eq!(object.types.as_ref().unwrap().kind, "ConfigMap");
            let informer = caches.informer::<ConfigMap>();
            assert_eq!(informer.is_ok(), form == StoreForm::Typed);
            if let Ok(informer) = informer {
                let entry = informer.lister().get(&key).unwrap();
                assert!(Arc::ptr_eq(&entry.cast().unwrap(), &map));
            }
        }
        caches.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_type_stores_the_type_in_either_order_of_views() {
    let cluster = tiers().await;
    let own = KindOptions::new().transform(|map: &mut ConfigMap| map.data = None);
    let caches = cluster.caches_with(CacheOptions::new().for_kind::<ConfigMap>(own));
    let dynamic = View::dynamic(&Kind::of::<ConfigMap>());
    let dynamic = caches.keep(&dynamic).unwrap();
    caches.start();
    dynamic.wait_synced(SOON).await.unwrap();
    let maps = caches.lister::<ConfigMap>().unwrap();
    assert!(maps.list().unwrap().iter().all(|map| map.data.is_none()));
    let objects = dynamic.list().unwrap();
    assert!(
        objects
            .iter()
            .all(|object| object.data.get("data").is_none())
    );
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn resyncs_of_kinds_are_within_a_tenth_of_the_period_and_apart() {
    let cluster = tiers().await;
    let period = Duration::from_secs(1000);
    let caches = cluster.caches_with(CacheOptions::new().resync(period));
    let (view, nodes) = (View::<ConfigMap>::typed(), View::<Namespace>::typed());
    let times: std::sync::Arc<parking_lot::Mutex<[Vec<Duration>; 2]>> = Default::default();
    let started = tokio::time::Instant::now();
    let (first, second) = (times.clone(), times.clone());
    let maps = caches.add_handler(&view, "maps", move |event| {
        if matches!(&event, reeve_informer::Event::Updated { .. }) {
            first.lock()[0].push(started.elapsed());
        }
    });
    let namespaces = caches.add_handler(&nodes, "namespaces", move |event| {
        if matches!(&event, reeve_informer::Event::Updated { .. }) {
            second.lock()[1].push(started.elapsed());
        }
    });
    caches.start();
    tokio::time::sleep(Duration::from_secs(1500)).await;
    let times = times.lock().clone();
    let at = |kind: usize| times[kind].first().copied().unwrap();
    for kind in [0, 1] {
        let seconds = at(kind).as_secs_f64();
        assert!((900.0..=1101.0).contains(&seconds), "{seconds}");
    }
    assert_eq!(times[0].len(), 6, "each object once");
    let apart = at(0).abs_diff(at(1));
    assert!(apart > Duration::from_secs(1), "{apart:?}");
    drop((maps, namespaces));
    caches.stop().await;
}
