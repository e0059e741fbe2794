//! What is freed by a change of the store is dropped after the change.

use std::sync::OnceLock;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_derive::Resource;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::*;

/// Counts the drops of what holds it, each of which must be able to change an index.
#[derive(Clone, Default)]
struct Dropped(Arc<State>);

#[derive(Default)]
struct State {
    indexer: OnceLock<Arc<Indexer<Owner>>>,
    drops: Mutex<usize>,
}

#[derive(Resource, Serialize, Deserialize)]
#[resource(inherit = ConfigMap, crates(kube_core = "::kube_core"))]
struct Owner {
    metadata: ObjectMeta,
    #[serde(skip)]
    dropped: Dropped,
}

struct OnDrop(Dropped);

impl Dropped {
    fn count(&self) {
        if let Some(indexer) = self.0.indexer.get() {
            assert!(indexer.writer.try_lock().is_some(), "it would wait");
            *self.0.drops.lock() += 1;
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.dropped.count();
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.count();
    }
}

#[test]
fn what_is_dropped_with_a_change_may_change_an_index() {
    let (indexer, dropped) = (Arc::new(Indexer::new()), Dropped::default());
    let metadata = ObjectMeta {
        name: Some("a".to_owned()),
        ..ObjectMeta::default()
    };
    let held = OnDrop(dropped.clone());
    let function = move |_: &Owner| {
        let _held = &held;
        Ok(Vec::new())
    };
    indexer.add_index("index", function).unwrap();
    let owner = |version: &str| {
        let resource_version = Some(version.to_owned());
        Arc::new(Owner {
            metadata: ObjectMeta {
                resource_version,
                ..metadata.clone()
            },
            dropped: dropped.clone(),
        })
    };
    let key = owner("1").key();
    indexer.change(|change| change.apply(Delta::Added(owner("9")), false));
    indexer.change(|change| change.advance("9".into()));
    assert!(dropped.0.indexer.set(Arc::clone(&indexer)).is_ok());
    let seen = |version| Delta::Deleted(Deletion::Seen(owner(version)));
    // Nothing of it comes into the store.
    for delta in [
        Delta::Updated(owner("9")),
        Delta::Updated(owner("8")),
        seen("7"),
    ] {
        indexer.change(|change| drop(change.apply(delta, false)));
    }
    assert_eq!(std::mem::take(&mut *dropped.0.drops.lock()), 3);
    indexer.change(|change| drop(change.apply(Delta::Sync(owner("9")), false)));
    assert_eq!(std::mem::take(&mut *dropped.0.drops.lock()), 1);
    let lost = Delta::Deleted(Deletion::FinalStateUnknown { key, last: None });
    indexer.change(|change| drop(change.apply(lost, false)));
    assert_eq!(*dropped.0.drops.lock(), 1);
    assert!(indexer.remove_index("index"));
    assert_eq!(*dropped.0.drops.lock(), 2);
}
