//! Informers that keep the state and the detector up to date.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Event as ClusterEvent;
use kube_core::{DynamicObject, PartialObjectMeta};
use parking_lot::RwLock;
use reeve_controller::cache::{CacheError, Caches, Registration, View};
use reeve_controller::{Event, ObjectKey};
use serde_json::{Value, json};

use crate::config::Config;
use crate::detector::{Detector, uid_of_record};
use crate::kinds::{Guarded, Watched};
use crate::object::{Facts, Key};
use crate::state::State;

/// The informers of the guard. Dropping it ends them.
#[derive(Debug)]
pub struct Watch {
    registrations: Vec<Registration>,
    state: Arc<RwLock<State>>,
    guarded: BTreeSet<(String, String)>,
}

/// The writer of one kind into the state.
#[derive(Clone)]
struct Writer {
    group: String,
    plural: String,
    config: Arc<Config>,
    state: Arc<RwLock<State>>,
    detector: Arc<Detector>,
}

/// The newest state of the object of an event; `None` for a deletion.
fn newest<T>(event: &Event<T>) -> Option<&T> {
    match event {
        Event::Added { object, .. } | Event::Updated { new: object, .. } => Some(object),
        Event::Deleted { .. } => None,
    }
}

// === impl Watch ===

impl Watch {
    /// Begins to watch `kinds` and the records of other replicas.
    ///
    /// # Errors
    /// When a kind cannot be watched with the options of the caches.
    pub fn new(
        caches: &Caches,
        kinds: &[Guarded],
        config: &Arc<Config>,
        state: &Arc<RwLock<State>>,
        detector: &Arc<Detector>,
    ) -> Result<Self, CacheError> {
        let mut registrations = Vec::new();
        for guarded in kinds {
            let kind = guarded.kind();
            let writer = Writer {
                group: guarded.resource.group.clone(),
                plural: guarded.resource.plural.clone(),
                config: Arc::clone(config),
                state: Arc::clone(state),
                detector: Arc::clone(detector),
            };
            let registration = match guarded.watched {
                Watched::No => continue,
                Watched::Metadata => {
                    let handler = move |event: Event<PartialObjectMeta<DynamicObject>>| {
                        let key = event.key();
                        let object =
                            newest(&event).map(|object| json!({"metadata": object.metadata}));
                        writer.write(&key, object.as_ref());
                    };
                    caches.add_handler(&View::metadata_of(&kind), "guard", handler)?
                }
                Watched::Whole => {
                    let handler = move |event: Event<DynamicObject>| {
                        let key = event.key();
                        let object = newest(&event).map(|object| json!(object));
                        writer.write(&key, object.as_ref());
                    };
                    caches.add_handler(&View::dynamic(&kind), "guard", handler)?
                }
            };
            registrations.push(registration);
        }
        let detector = Arc::clone(detector);
        let records = move |event: Event<ClusterEvent>| {
            if let Some(uid) = newest(&event).and_then(uid_of_record) {
                detector.heard(uid);
            }
        };
        registrations.push(caches.add_handler(&View::typed(), "records", records)?);
        let guarded = kinds.iter().map(|guarded| {
            let resource = &guarded.resource;
            (resource.group.clone(), resource.kind.clone())
        });
        Ok(Self {
            registrations,
            state: Arc::clone(state),
            guarded: guarded.collect(),
        })
    }

    /// Waits until the state has each object of the first lists.
    pub async fn synced(&self, config: &Config) {
        for registration in &self.registrations {
            registration.wait_synced().await;
        }
        let mut state = self.state.write();
        state.synced = true;
        let unlabelled = state.unlabelled(&config.mark);
        let kinds = self.registrations.len() - 1;
        tracing::info!(
            kinds,
            unlabelled,
            label = config.mark.label,
            "caches synced"
        );
        // Their deletion is not called, and the garbage collector deletes what they own.
        for (group, kind) in state.owner_kinds(&config.mark).difference(&self.guarded) {
            tracing::warn!(
                group,
                kind,
                "production objects have owners of a kind that is not guarded; add it to `kinds`"
            );
        }
    }
}

// === impl Writer ===

impl Writer {
    /// Writes the newest state of an object; `None` if it was deleted.
    fn write(&self, key: &ObjectKey, object: Option<&Value>) {
        let key = self.key(key);
        let mark = &self.config.mark;
        let mut state = self.state.write();
        if let Some(object) = object {
            state.put(key, Facts::of(object, mark));
        } else if let Some(facts) = state.remove(&key)
            && key.resource != "namespaces"
            && state.is_production(&key.namespace, &facts, mark)
        {
            self.detector.gone(key, &facts);
        }
    }

    fn key(&self, key: &ObjectKey) -> Key {
        Key {
            group: self.group.clone(),
            resource: self.plural.clone(),
            namespace: key.namespace.as_deref().unwrap_or_default().to_owned(),
            name: key.name.to_string(),
        }
    }
}
