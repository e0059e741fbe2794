//! The stored forms of an object: skipped fields, JSON that is decoded on reading, custom types.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_derive::Resource;
use reeve_informer::{
    Builder, Compact, Endpoint, Form, Gauges, InformerIdentity, InformerMetrics, Measurement,
    MetricsProvider, ObjectKey, SharedInformer, Stored, ViewError,
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::harness::{clock, millis};
use crate::script::*;
use crate::setup::run_until;

/// Runs an informer of `S` until the test ends.
async fn started<S: Form>(
    script: &Script,
    configure: impl FnOnce(Builder<S>) -> Builder<S>,
) -> SharedInformer<S> {
    let builder = SharedInformer::<S>::builder_for(script.client(), Endpoint::of::<ConfigMap>())
        .clock(clock());
    let informer = configure(builder).build();
    run_until(&informer, &CancellationToken::new());
    informer.wait_synced().await.unwrap();
    informer
}

fn get<S: Stored>(informer: &SharedInformer<S>, name: &str) -> Arc<S> {
    let key = ObjectKey::namespaced("n", name);
    informer.lister().get(&key).expect("it is there")
}

#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl MetricsProvider for Count {
    fn informer(&self, _: &InformerIdentity, _: Weak<dyn Gauges>) -> Box<dyn InformerMetrics> {
        Box::new(self.clone())
    }
}

impl InformerMetrics for Count {
    fn record(&self, measurement: Measurement) {
        if measurement == Measurement::Unreadable {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_compact_object_that_does_not_decode_is_an_error_for_each_reader_and_counts_once_a_version()
 {
    let (sender, receiver) = mpsc::unbounded_channel::<Bit>();
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "1"), broken("b", "2")]),
        Answer::Live(Arc::new(receiver.into())),
    ]);
    let count = Arc::new(Count::default());
    let metrics = Arc::clone(&count);
    let informer = started::<Compact<ConfigMap>>(&script, |builder| builder.metrics(metrics)).await;
    let counted = || {
        let health = informer.health();
        assert_eq!(health.unreadable, count.0.load(Ordering::Relaxed) as u64);
        assert_eq!((health.objects, health.quarantined_count), (2, 0));
        health.unreadable
    };
    assert_eq!(counted(), 0, "before any read");
    for _ in 0..3 {
        let error = get(&informer, "b").typed().unwrap_err();
        assert!(matches!(error, ViewError::Undecodable { .. }));
        assert!(!error.to_string().contains("top-secret"));
        assert!(get(&informer, "a").typed().is_ok());
        assert_eq!(counted(), 1);
    }
    assert!(get(&informer, "b").metadata().is_ok());
    sender.send(event("MODIFIED", &broken("b", "11"))).unwrap();
    millis(1).await;
    assert_eq!(counted(), 1);
    assert!(get(&informer, "b").typed().is_err());
    assert_eq!(counted(), 2);
    sender.send(modified("b", "12")).unwrap();
    millis(1).await;
    assert!(get(&informer, "b").typed().is_ok());
    assert_eq!(counted(), 2);
}

#[tokio::test(start_paused = true)]
async fn labels_and_owners_of_a_compact_object_that_do_not_decode_are_none_and_count() {
    let object = |name: &str, more: &str| {
        format!(r#"{{"metadata":{{"name":"{name}","namespace":"n","resourceVersion":"1"{more}}}}}"#)
    };
    let script = Script::new([
        no_streaming(),
        list(
            "10",
            &[
                object("plain", ""),
                object("null", r#","labels":null,"ownerReferences":null"#),
                object("bad", r#","labels":{"a":5}"#),
                object("worse", r#","ownerReferences":[{"name":7}]"#),
            ],
        ),
        watch([]),
    ]);
    let informer = started::<Compact<ConfigMap>>(&script, |builder| builder).await;
    for (name, counted) in [("plain", 0), ("null", 0), ("bad", 1), ("worse", 2)] {
        for _ in 0..2 {
            let entry = get(&informer, name);
            assert_eq!(entry.label("a"), None);
            assert!(entry.owner_references().is_empty());
            assert_eq!(informer.health().unreadable, counted, "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn skipped_fields_are_in_no_form_and_decoded_objects_are_kept_by_option() {
    let script = || Script::new([no_streaming(), list("10", &[object("a", "1")]), watch([])]);
    let skip = || ".data".parse().unwrap();
    let typed = started::<ConfigMap>(&script(), |builder| builder.skip(skip())).await;
    assert_eq!(get(&typed, "a").data, None);
    let compact = started::<Compact<ConfigMap>>(&script(), |builder| builder.skip(skip())).await;
    let entry = get(&compact, "a");
    assert!(!entry.json().contains("\"data\"") && entry.uid() == "uid-a");
    assert!(!Arc::ptr_eq(
        &entry.typed().unwrap(),
        &entry.typed().unwrap()
    ));
    let one = NonZeroUsize::MIN;
    let kept = started::<Compact<ConfigMap>>(&script(), |builder| builder.cache_decoded(one)).await;
    let first = get(&kept, "a").typed().unwrap();
    assert!(first.data.is_some());
    assert!(Arc::ptr_eq(&first, &get(&kept, "a").typed().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn packed_objects_are_read_as_others_and_the_store_counts_less_for_them() {
    let script = || {
        let objects: Vec<String> = (0..20)
            .map(|number| object(&format!("o-{number}"), "7"))
            .collect();
        Script::new([no_streaming(), list("10", &objects), watch([])])
    };
    let plain = started::<Compact<ConfigMap>>(&script(), |builder| builder).await;
    let packed = started::<Compact<ConfigMap>>(&script(), Builder::pack).await;
    for number in 0..20 {
        let name = format!("o-{number}");
        let (plain, packed) = (get(&plain, &name), get(&packed, &name));
        assert_eq!(packed.json(), plain.json());
        assert_eq!(packed.typed().unwrap(), plain.typed().unwrap());
        assert_eq!(packed.key(), plain.key());
    }
    let (plain, packed) = (plain.health().bytes, packed.health().bytes);
    assert_eq!(packed.entries, plain.entries);
    assert!(packed.owned < plain.owned, "{packed:?} {plain:?}");
}

/// A ConfigMap of which only one entry is stored.
#[derive(Clone, Debug, PartialEq, Resource, Serialize, Deserialize)]
#[resource(inherit = ConfigMap, crates(kube_core = "::kube_core"))]
struct Versioned {
    metadata: ObjectMeta,
    data: VersionedData,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct VersionedData {
    version: String,
}

#[tokio::test(start_paused = true)]
async fn a_custom_type_keeps_its_fields_and_objects_that_it_cannot_read_are_quarantined() {
    let (sender, receiver) = mpsc::unbounded_channel::<Bit>();
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "1"), broken("b", "2")]),
        Answer::Live(Arc::new(receiver.into())),
    ]);
    let informer = SharedInformer::<Versioned>::builder(script.client())
        .clock(clock())
        .build();
    informer
        .add_indexer("version", |map| Ok(vec![map.data.version.as_str().into()]))
        .unwrap();
    tokio::spawn({
        let informer = informer.clone();
        async move { informer.run(CancellationToken::new()).await }
    });
    informer.wait_synced().await.unwrap();
    sender.send(modified("a", "11")).unwrap();
    millis(1).await;
    let found = informer.lister().by_index("version", "11").unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].uid(), found[0].data.version.as_str()),
        ("uid-a", "11")
    );
    assert_eq!(informer.health().quarantined_count, 1);
}

/// A ConfigMap whose type panics at unexpected content.
#[derive(Clone, Debug, Resource, Serialize, Deserialize)]
#[resource(inherit = ConfigMap, crates(kube_core = "::kube_core"))]
struct Touchy {
    metadata: ObjectMeta,
    #[serde(deserialize_with = "no_sixes")]
    data: VersionedData,
}

fn no_sixes<'de, D: serde::Deserializer<'de>>(document: D) -> Result<VersionedData, D::Error> {
    let data = VersionedData::deserialize(document)?;
    assert!(!data.version.starts_with('6'), "on purpose: {data:?}");
    Ok(data)
}

#[tokio::test(start_paused = true)]
async fn a_type_that_panics_at_an_object_costs_that_object_only() {
    let first = [object("a", "5"), object("b", "6"), object("c", "7")];
    let expired = || vec![wait(5), error(410, "Expired")];
    let then = |first: Vec<Bit>| {
        ending(
            first
                .into_iter()
                .chain([
                    modified("a", "61"),
                    modified("c", "62"),
                    modified("c", "71"),
                ])
                .chain(expired()),
        )
    };
    let again = [object("a", "61"), object("b", "69"), object("c", "75")];
    let events = |objects: &[String], version: &str| {
        let events = objects.iter().map(|object| event("ADDED", object));
        let events: Vec<_> = events.chain([initial_end(version)]).collect();
        events
    };
    let pages = Script::new([
        no_streaming(),
        list("10", &first),
        then(vec![]),
        list("80", &again),
        watch([]),
    ]);
    let streams = Script::new([then(events(&first, "10")), watch(events(&again, "80"))]);
    for script in [pages, streams] {
        let informer = started::<Touchy>(&script, |builder| builder).await;
        let state = || {
            let objects = informer.lister().list();
            let mut versions: Vec<_> = objects.iter().map(|map| map.data.version.clone()).collect();
            versions.sort();
            let quarantined = informer.health().quarantined;
            let mut names: Vec<_> = quarantined
                .iter()
                .map(|object| format!("{}: {}", object.key.name, object.error))
                .collect();
            names.sort();
            (versions.join(" "), names)
        };
        let panicked = |name: &str| format!("{name}: its type panicked as it was read");
        millis(10).await;
        assert_eq!(state(), ("5 71".into(), vec![panicked("a"), panicked("b")]));
        millis(20_000).await;
        assert_eq!(informer.last_sync_resource_version().as_str(), "80");
        assert_eq!(state(), ("5 75".into(), vec![panicked("a"), panicked("b")]));
        let text = format!("{:?}", informer.health());
        assert!(!text.contains("on purpose"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_type_that_panics_at_a_compact_object_is_an_error_for_its_reader() {
    let objects = [object("a", "5"), object("b", "6")];
    let script = Script::new([no_streaming(), list("10", &objects), watch([])]);
    let informer = started::<Compact<Touchy>>(&script, |builder| builder).await;
    assert_eq!(get(&informer, "a").typed().unwrap().data.version, "5");
    for _ in 0..2 {
        let error = get(&informer, "b").typed().unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
        assert_eq!(informer.health().unreadable, 1);
    }
}
