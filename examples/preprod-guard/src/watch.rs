//! Informers that keep the state and the detector up to date.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event as ClusterEvent;
use kube_core::{DynamicObject, PartialObjectMeta};
use parking_lot::RwLock;
use reeve_controller::cache::{CacheError, Caches, Registration, View};
use reeve_controller::{Event, ObjectKey};
use serde_json::{Value, json};
use tokio::time::interval;

use crate::config::{Config, Mark};
use crate::detector::{Change, Detector, Observed, of_record};
use crate::kinds::{Guarded, Watched};
use crate::object::{Facts, Key};
use crate::state::State;

/// The pause between two checks of the caches.
const CHECK_EVERY: Duration = Duration::from_secs(1);

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
            if let Some((change, uid)) = newest(&event).and_then(of_record) {
                detector.heard(change, uid);
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

    /// Waits until the state has each object of the first lists, and sets [`State::synced`]. From then on it follows `check`, the
    /// health of the caches: rules that search the state do not decide about what it had before a watch failed. Does not return.
    pub async fn follow(&self, config: &Config, check: impl Fn() -> Result<(), String>) {
        self.synced(config).await;
        follow(&self.state, check).await;
    }

    async fn synced(&self, config: &Config) {
        for registration in &self.registrations {
            registration.wait_synced().await;
        }
        let mut state = self.state.write();
        state.synced = true;
        let unlabelled = state.unlabelled(config);
        let kinds = self.registrations.len() - 1;
        tracing::info!(
            kinds,
            unlabelled,
            label = config.mark.label,
            "caches synced"
        );
        // Their deletion is not called, and the garbage collector deletes what they own.
        for (group, kind) in state.owner_kinds(config).difference(&self.guarded) {
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
        let mut state = self.state.write();
        let now = object.map(|object| Facts::of(object, &self.config.mark));
        let before = match &now {
            Some(facts) => state.put(key.clone(), facts.clone()),
            None => state.remove(&key),
        };
        let change = before.as_ref().and_then(|before| {
            let change = change(before, now.as_ref(), &self.config.mark)?;
            let is_production = state.is_production(&key, before, &self.config);
            is_production.then_some((change, before.uid.clone()))
        });
        drop(state);
        // The webhook of records is not called there.
        let exempt = self.config.exempt_namespaces.contains(&key.namespace);
        if let Some((change, uid)) = change.filter(|_| !exempt) {
            self.detector.observed(Observed { change, key, uid });
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

/// Sets [`State::synced`] to the result of `check`, every second. Does not return.
async fn follow(state: &RwLock<State>, check: impl Fn() -> Result<(), String>) {
    let mut checks = interval(CHECK_EVERY);
    loop {
        checks.tick().await;
        let result = check();
        let synced = result.is_ok();
        if state.read().synced == synced {
            continue;
        }
        match result {
            Ok(()) => tracing::info!("the caches are up to date again"),
            Err(error) => tracing::error!(
                error,
                "the caches are too old: rules that search them deny until they are up to date"
            ),
        }
        state.write().synced = synced;
    }
}

/// The change of an object that the detector judges. A deletion is judged when it begins: an object that ends is not judged
/// again when it is gone.
fn change(before: &Facts, now: Option<&Facts>, mark: &Mark) -> Option<Change> {
    match now {
        _ if before.ends => None,
        Some(now) if now.uid == before.uid && !now.ends => {
            (before.has_label(mark) && !now.has_label(mark)).then_some(Change::Unmarked)
        }
        // Its deletion begins, it is gone, or another object has its name.
        _ => Some(Change::Deletion),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::time::timeout;

    use super::*;

    fn facts(uid: &str, marked: bool, ends: bool) -> Facts {
        let mark = Config::default().mark;
        let mut facts = Facts {
            uid: uid.to_owned(),
            marked,
            ends,
            ..Facts::default()
        };
        if marked {
            facts.labels.insert(mark.label, mark.value);
        }
        facts
    }

    #[test]
    fn a_deletion_is_judged_once_when_it_begins() {
        let mark = Config::default().mark;
        let (lives, ends) = (facts("1", true, false), facts("1", true, true));
        let (bare, another) = (facts("1", false, false), facts("2", true, false));
        for (before, now, expected) in [
            (&lives, Some(&lives), None),
            (&lives, Some(&ends), Some(Change::Deletion)),
            (&ends, Some(&ends), None),
            (&ends, None, None),
            (&lives, None, Some(Change::Deletion)),
            (&lives, Some(&another), Some(Change::Deletion)),
            (&lives, Some(&bare), Some(Change::Unmarked)),
            (&bare, Some(&lives), None),
        ] {
            assert_eq!(change(before, now, &mark), expected, "{before:?} {now:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_state_is_not_synced_while_the_caches_fail() {
        let (state, fails) = (RwLock::new(State::default()), AtomicBool::new(false));
        let check = || match fails.load(Ordering::Relaxed) {
            true => Err("pods: the watch fails".to_owned()),
            false => Ok(()),
        };
        let following = follow(&state, check);
        tokio::pin!(following);
        for failing in [false, true, false] {
            fails.store(failing, Ordering::Relaxed);
            assert!(timeout(CHECK_EVERY * 2, &mut following).await.is_err());
            assert_eq!(state.read().synced, !failing);
        }
    }
}
