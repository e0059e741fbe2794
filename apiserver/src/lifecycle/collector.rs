//! Garbage collection by owner references.
//!
//! A dependent is deleted when all its owners are gone, by uid. While one of them lives, references to
//! owners that are absent, or wait for this dependent, are dropped. An object that waits with
//! `foregroundDeletion` is removed after the dependents that block it; one with `orphan` leaves its dependents
//! without the reference. A reference that cannot be resolved (a kind that is not served, or a namespaced
//! kind named by a cluster-scoped object) protects its object.
//! (kubernetes: `pkg/controller/garbagecollector`.)

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::internal::{Part, internal_request, is_stored};
use super::retries::Retries;
use super::work::Work;
use crate::meta;
use crate::resource::ResourceInfo;
use crate::store::{Chore, Key, Object};
use crate::verbs::delete::{self, Options, Propagation};
use crate::verbs::update;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// The target of a reference.
enum Owner {
    Absent,
    Present,
    /// It is being deleted and waits for this dependent.
    Waiting,
    /// Its kind is not served, or is namespaced where the dependent is not.
    Unresolvable,
}

/// The source of the events about owner references.
const REPORTER: &str = "garbage-collector-controller";

/// Works off a chore about owners and dependents; others are not the collector's. Returns the chores to try again,
/// because a write was refused: one for each object.
pub(super) async fn act(work: &Work<'_>, chore: Chore, retries: &Retries) -> Vec<Chore> {
    match chore {
        Chore::Owner(uid) => owner_changed(work, &uid, retries).await,
        Chore::Dependent(storage, key) => references_changed(work, &storage, &key).await,
        Chore::Finalize(storage, key) => finalize(work, &storage, &key, retries).await,
        Chore::Namespace(_) | Chore::Definition(_) | Chore::Initial(_) => Vec::new(),
    }
}

/// Checks the dependents of an owner that is gone, and an owner that waits for a dependent that is gone.
async fn owner_changed(work: &Work<'_>, uid: &str, retries: &Retries) -> Vec<Chore> {
    let mut refused = Vec::new();
    for (storage, key) in work.store.owned_by(uid) {
        refused.extend(check_dependent(work, storage, key, retries).await);
    }
    // An object that waits for its dependents may go on.
    if let Some((storage, key)) = work.store.waiting_owner(uid) {
        refused.extend(finalize(work, &storage, &key, retries).await);
    }
    refused
}

/// Checks the owners of a dependent, unless its refused write waits for its next try. Each dependent that goes is a chore
/// for its owner, which does not repeat the others before their time.
async fn check_dependent(
    work: &Work<'_>,
    storage: String,
    key: Key,
    retries: &Retries,
) -> Option<Chore> {
    let chore = Chore::Dependent(storage.clone(), key.clone());
    let is_done = retries.has(&chore) || check_owners(work, &storage, &key).await;
    (!is_done).then_some(chore)
}

/// Checks the owners of an object whose references are new.
async fn references_changed(work: &Work<'_>, storage: &str, key: &Key) -> Vec<Chore> {
    if !work.options.garbage_collection {
        return Vec::new();
    }
    report_owner_elsewhere(work, storage, key).await;
    match check_owners(work, storage, key).await {
        true => Vec::new(),
        false => vec![Chore::Dependent(storage.to_owned(), key.clone())],
    }
}

/// Records a Warning event when an owner lives in another namespace than the object that names it: such a
/// reference is never valid. Only the first one is reported.
async fn report_owner_elsewhere(work: &Work<'_>, storage: &str, key: &Key) {
    let (Some(object), Some(info)) = (
        work.store.get(storage, key.as_str()),
        work.registry.of_storage(storage),
    ) else {
        return;
    };
    let value = object.value();
    let references = value["metadata"]["ownerReferences"].as_array();
    let elsewhere = references.into_iter().flatten().find(|reference| {
        let uid = reference["uid"].as_str();
        resource_of(work, reference).is_some_and(|kind| {
            kind.namespaced
                && !matches!(
                    owner(work, &object, reference),
                    Owner::Present | Owner::Waiting
                )
                && work
                    .store
                    .list(&kind.storage, "")
                    .1
                    .iter()
                    .any(|found| found.uid() == uid)
        })
    });
    let Some(reference) = elsewhere else { return };
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let namespace = object.namespace();
    let message = format!(
        "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}] does not exist in namespace {}",
        text("apiVersion"),
        text("kind"),
        text("name"),
        text("uid"),
        crate::field::quote(namespace)
    );
    record_warning(work, &info, &object, "OwnerRefInvalidNamespace", &message).await;
}

/// Records a Warning event for an object, as a controller's recorder does.
async fn record_warning(
    work: &Work<'_>,
    info: &ResourceInfo,
    about: &Object,
    reason: &str,
    message: &str,
) {
    let Some(events) = work.registry.find("", "v1", "events") else {
        return;
    };
    let namespace = match about.namespace() {
        "" => "default",
        namespace => namespace,
    };
    let now = work.clock.now();
    let name = format!("{}.{:x}", about.name(), now.as_nanosecond());
    let request = internal_request(
        work,
        &events,
        &Key::new(Some(namespace), &name),
        Part::GarbageCollector,
    );
    let mut involved = json!({
        "apiVersion": info.api_version(), "kind": info.kind, "name": about.name(), "uid": about.uid(),
    });
    if !about.namespace().is_empty() {
        involved["namespace"] = about.namespace().into();
    }
    let event = json!({
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": involved,
        "type": "Warning",
        "reason": reason,
        "message": message,
        "count": 1,
        "firstTimestamp": meta::time(now),
        "lastTimestamp": meta::time(now),
        "source": {"component": REPORTER},
        "reportingComponent": REPORTER,
        "reportingInstance": "",
    });
    if let Err(status) = crate::verbs::create::create(work, &request, event).await {
        tracing::debug!(%status, object = %about.key(), reason, "could not record an event");
    }
}

/// Deletes an object whose owners are all gone. Returns `false` if the write was refused.
async fn check_owners(work: &Work<'_>, storage: &str, key: &Key) -> bool {
    if !work.options.garbage_collection {
        return true;
    }
    let Some(object) = work.store.get(storage, key.as_str()) else {
        return true;
    };
    let value = object.value();
    let references = value["metadata"]["ownerReferences"].as_array();
    let Some(references) = references.filter(|references| !references.is_empty()) else {
        return true;
    };
    // A deletion is not undone: what is left follows when the object is gone.
    if object.is_terminating() {
        return true;
    }
    let (mut droppable, mut present, mut waiting) = (Vec::new(), false, false);
    for reference in references {
        let uid = reference["uid"].as_str().unwrap_or_default();
        match owner(work, &object, reference) {
            Owner::Absent => droppable.push(uid),
            Owner::Present => present = true,
            Owner::Waiting => {
                droppable.push(uid);
                waiting = true;
            }
            Owner::Unresolvable => return true,
        }
    }
    let Some(info) = work.registry.of_storage(storage) else {
        return true;
    };
    if present {
        // With its reference left in place, an owner that waits for this object would never be removed.
        return droppable.is_empty() || drop_references(work, &info, &object, &droppable).await;
    }
    let dependents = work.store.owned_by(object.uid().unwrap_or_default());
    let mut object = object;
    let propagation = if waiting && !dependents.is_empty() {
        // One that waits for its own dependents may wait for this one in turn: neither would go.
        let is_waiting = |(storage, key): &(String, Key)| {
            let dependent = work.store.get(storage, key.as_str());
            dependent.is_some_and(|it| {
                it.is_terminating() && it.finalizers().any(|finalizer| finalizer == FOREGROUND)
            })
        };
        if dependents.iter().any(is_waiting) {
            if !unblock_owners(work, &info, &object).await {
                return false;
            }
            match work.store.get(storage, key.as_str()) {
                Some(now) if now.uid() == object.uid() && has_same_owners(&now, &object) => {
                    object = now;
                }
                // Another owner is a chore of its own.
                _ => return true,
            }
        }
        Propagation::Foreground
    } else if object.has_collector_finalizer() {
        return remove(work, &info, &object, None).await;
    } else {
        Propagation::Background
    };
    remove(work, &info, &object, Some(propagation)).await
}

/// Deletes an object. Returns `false` if that was refused.
async fn remove(
    work: &Work<'_>,
    info: &Arc<ResourceInfo>,
    object: &Object,
    propagation: Option<Propagation>,
) -> bool {
    let request = internal_request(work, info, object.key(), Part::GarbageCollector);
    let mut options = Options {
        uid: object.uid().map(str::to_owned),
        // It may get another owner while admission is asked.
        version: Some(object.version().to_string()),
        propagation,
        ..Options::default()
    };
    let mut deleted = delete::delete(work, &request, &options).await;
    if deleted.as_ref().is_err_and(|status| status.code == 409)
        && let Some(now) = work.store.get(&info.storage, object.key().as_str())
        && now.uid() == object.uid()
        && now.version() != object.version()
    {
        if !has_same_owners(&now, object) {
            // It is decided about again.
            let key = object.key().clone();
            work.store
                .add_chore(Chore::Dependent(info.storage.clone(), key));
            return true;
        }
        options.version = None;
        deleted = delete::delete(work, &request, &options).await;
    }
    match deleted {
        // An object that is gone, or replaced by another one of its name, needs nothing.
        Err(status) if is_stored(work, info, object) => {
            tracing::warn!(%status, object = %object.key(), "could not delete an object whose owners are gone: it is retried");
            false
        }
        _ => true,
    }
}

/// Whether two states of an object have the same owners.
fn has_same_owners(one: &Object, other: &Object) -> bool {
    let owners = |object: &Object| {
        object
            .owner_uids()
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
    };
    owners(one) == owners(other)
}

/// The resource of the kind that a reference names.
fn resource_of(work: &Work<'_>, reference: &Value) -> Option<Arc<ResourceInfo>> {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (group, version) = match text("apiVersion").split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", text("apiVersion")),
    };
    let served = work.registry.served();
    served.of_kind(group, version, text("kind")).cloned()
}

fn owner(work: &Work<'_>, dependent: &Object, reference: &Value) -> Owner {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let Some(info) = resource_of(work, reference) else {
        return Owner::Unresolvable;
    };
    if info.namespaced && dependent.namespace().is_empty() {
        return Owner::Unresolvable;
    }
    let namespace = info.namespaced.then(|| dependent.namespace());
    let key = Key::new(namespace, text("name"));
    match work.store.get(&info.storage, key.as_str()) {
        Some(found) if found.uid() == Some(text("uid")) => {
            let waits = found.is_terminating()
                && found.finalizers().any(|finalizer| finalizer == FOREGROUND);
            if waits {
                Owner::Waiting
            } else {
                Owner::Present
            }
        }
        _ => Owner::Absent,
    }
}

async fn drop_references(
    work: &Work<'_>,
    info: &Arc<ResourceInfo>,
    object: &Object,
    uids: &[&str],
) -> bool {
    modify(work, info, object, |new| {
        let metadata = meta::metadata_mut(new);
        if let Some(Value::Array(references)) = metadata.get_mut("ownerReferences") {
            references
                .retain(|reference| !uids.contains(&reference["uid"].as_str().unwrap_or_default()));
        }
    })
    .await
}

/// Lets no owner wait for an object.
async fn unblock_owners(work: &Work<'_>, info: &Arc<ResourceInfo>, object: &Object) -> bool {
    modify(work, info, object, |new| {
        let references = meta::metadata_mut(new).get_mut("ownerReferences");
        let references = references.and_then(Value::as_array_mut);
        for reference in references.into_iter().flatten() {
            if reference["blockOwnerDeletion"] == true {
                reference["blockOwnerDeletion"] = false.into();
            }
        }
    })
    .await
}

/// Changes an object, unless another one has its name now. Returns whether the object is changed or gone.
async fn modify(
    work: &Work<'_>,
    info: &Arc<ResourceInfo>,
    object: &Object,
    modify: impl Fn(&mut Value) + Sync,
) -> bool {
    let key = object.key();
    let request = internal_request(work, info, key, Part::GarbageCollector);
    let uid = object.uid().unwrap_or_default();
    let modified = update::modify(work, &request, &|old| {
        let mut new = old.clone();
        if meta::text(old, "uid") == uid {
            modify(&mut new);
        }
        Ok(new)
    })
    .await;
    if let Err(status) = modified
        && is_stored(work, info, object)
    {
        tracing::warn!(%status, object = %key, "could not collect an object, or what it waits for: it is retried");
        return false;
    }
    true
}

/// Removes a finalizer of the collector if the object need not wait any more. Returns the chores to try again.
async fn finalize(work: &Work<'_>, storage: &str, key: &Key, retries: &Retries) -> Vec<Chore> {
    let mut refused = Vec::new();
    let object = work.store.get(storage, key.as_str());
    let Some(object) = object.filter(|object| object.is_terminating()) else {
        return refused;
    };
    let Some(uid) = object.uid().filter(|_| work.options.garbage_collection) else {
        return refused;
    };
    let again = || Chore::Finalize(storage.to_owned(), key.clone());
    let dependents = work.store.owned_by(uid);
    if object.finalizers().any(|finalizer| finalizer == ORPHAN) {
        let mut all_dropped = true;
        for (storage, key) in dependents {
            let Some(info) = work.registry.of_storage(&storage) else {
                continue;
            };
            if let Some(dependent) = work.store.get(&storage, key.as_str())
                && !drop_references(work, &info, &dependent, &[uid]).await
            {
                all_dropped = false;
            }
        }
        // Without its owner, a dependent with a reference would be collected.
        if !all_dropped || !drop_finalizer(work, storage, &object, ORPHAN).await {
            refused.push(again());
        }
    } else if object.finalizers().any(|finalizer| finalizer == FOREGROUND) {
        let mut blocked = false;
        for (storage, key) in dependents {
            let dependent = check_dependent(work, storage.clone(), key.clone(), retries);
            refused.extend(dependent.await);
            let left = work.store.get(&storage, key.as_str());
            blocked |= left.is_some_and(|dependent| blocks(&dependent, uid));
        }
        if !blocked && !drop_finalizer(work, storage, &object, FOREGROUND).await {
            refused.push(again());
        }
    }
    refused
}

fn blocks(dependent: &Object, uid: &str) -> bool {
    dependent.value()["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|reference| {
            reference["uid"] == uid && reference["blockOwnerDeletion"] == Value::Bool(true)
        })
}

/// Removes a finalizer; with the last one the object is removed. Returns `false` if the write was refused.
pub(super) async fn drop_finalizer(
    work: &Work<'_>,
    storage: &str,
    object: &Object,
    finalizer: &str,
) -> bool {
    let Some(info) = work.registry.of_storage(storage) else {
        return true;
    };
    modify(work, &info, object, |new| {
        let finalizers = meta::strings(new, "finalizers").into_iter();
        let left = finalizers.filter(|&name| name != finalizer);
        let left: Vec<String> = left.map(str::to_owned).collect();
        let left: Vec<&str> = left.iter().map(String::as_str).collect();
        meta::set_strings(new, "finalizers", &left);
    })
    .await
}
