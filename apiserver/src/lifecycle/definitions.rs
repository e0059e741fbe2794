//! CustomResourceDefinitions: a definition that is accepted becomes a resource; one that is deleted
//! takes its objects with it.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{collector, internal_request, versions};
use crate::core::Core;
use crate::crd;
use crate::meta;
use crate::resource::ResourceInfo;
use crate::store::{Chore, CommitError, Expected, Object};
use crate::verbs::delete::{self, Options};

/// Where definitions are stored.
pub(crate) const STORAGE: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// Keeps a definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Which definitions are served: the uid of each by its name.
///
/// The lock covers a definition's status, its resources in the registry and its table, so that the last of several
/// writers leaves what the last write asks for.
#[derive(Debug, Default)]
pub(crate) struct Installed(Mutex<HashMap<String, String>>);

/// A definition was written: serves what it says.
pub(crate) fn after_write(
    core: &Core,
    info: &ResourceInfo,
    old: Option<&Object>,
    new: Option<&Object>,
) {
    if info.storage == STORAGE
        && let Some(definition) = new.or(old)
    {
        settle_one(core, definition.name());
    }
}

/// Brings what is served in line with the definition as it is stored now, which may be newer than the caller's.
fn settle_one(core: &Core, name: &str) {
    let mut installed = core.definitions.0.lock();
    let stored = core.store.get(STORAGE, name);
    let uid = stored.as_ref().and_then(|definition| definition.uid());
    let replaced = installed
        .get(name)
        .is_some_and(|served| Some(served.as_str()) != uid);
    if replaced {
        installed.remove(name);
        core.registry.set(name, Vec::new());
        core.store.set_ending(name, false);
        core.store.drop_table(name);
    }
    if replaced || stored.is_none() {
        // Names that are free now may be what another definition waits for.
        for other in core.store.list(STORAGE, "").1 {
            if other.name() != name && !crd::is_established(&other.value()["status"]) {
                serve(core, &mut installed, &other);
            }
        }
    }
    if let Some(definition) = stored {
        serve(core, &mut installed, &definition);
    }
}

/// Serves all definitions that are stored, as a restarted server must.
pub(crate) fn serve_stored(core: &Core) {
    let mut installed = core.definitions.0.lock();
    for definition in core.store.list(STORAGE, "").1 {
        serve(core, &mut installed, &definition);
    }
}

/// Gives a definition its status, and serves it once its names are accepted.
///
/// It is served before it says so: whoever sees `Established` may create at once.
fn serve(core: &Core, installed: &mut HashMap<String, String>, definition: &Object) {
    let key = definition.name();
    let established = settle(core, key, |current, status| {
        let newly = crd::is_established(status) && !crd::is_established(&current["status"]);
        if newly {
            install(status);
        }
    });
    if established.is_none() {
        return;
    }
    let Some(current) = core.store.get(STORAGE, key) else {
        return;
    };
    let accepted = accept(core, &current);
    if crd::is_established(&accepted) {
        let uid = current.uid().unwrap_or_default().to_owned();
        installed.insert(key.to_owned(), uid);
        core.store.create_table(key);
        let mut resources = versions::resources(current.value());
        versions::note_conversions(core, current.value(), &mut resources);
        core.registry.set(key, resources);
        settle(core, key, |_, _| {});
    }
    if current.is_terminating() {
        core.store.set_ending(key, true);
        core.store.add_chore(Chore::Definition(key.to_owned()));
    }
}

/// The status of a new definition, which nobody has looked at yet.
pub(crate) fn initial_status(definition: &Value) -> Value {
    let stored: Vec<&Value> = definition["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == Value::Bool(true))
        .map(|version| &version["name"])
        .collect();
    json!({
        "conditions": null,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": stored,
    })
}

/// The step before a definition is established.
fn install(status: &mut Value) {
    let conditions = status["conditions"].as_array_mut();
    for condition in conditions.into_iter().flatten() {
        if condition["type"] == "Established" {
            condition["status"] = json!("False");
            condition["reason"] = json!("Installing");
        }
    }
}

/// The status of a stored definition beside all others.
fn accept(core: &Core, definition: &Object) -> Value {
    let others: Vec<Value> = core
        .store
        .list(STORAGE, "")
        .1
        .iter()
        .filter(|other| other.name() != definition.name())
        .map(|other| other.value().clone())
        .collect();
    crd::accept(definition.value(), &others, &meta::time(core.clock.now()))
}

/// Writes the status of a definition, after `adjust`; `None` when the definition is gone.
fn settle(core: &Core, key: &str, adjust: impl Fn(&Value, &mut Value)) -> Option<()> {
    loop {
        let current = core.store.get(STORAGE, key)?;
        let mut status = accept(core, &current);
        adjust(current.value(), &mut status);
        let mut new = current.value().clone();
        meta::object_mut(&mut new).insert("status".to_owned(), status);
        if new == *current.value() {
            return Some(());
        }
        let expected = Expected::Version(current.version());
        match core.store.commit(STORAGE, key, expected, Some(new)) {
            Ok(_) => return Some(()),
            Err(CommitError::Raced) => {}
            Err(CommitError::Closed) => return None,
            Err(error) => {
                tracing::warn!(%error, definition = key, "could not write the status of the definition; it is tried again");
                core.store.add_chore(Chore::Definition(key.to_owned()));
                return None;
            }
        }
    }
}

/// Says that a definition is on its way out.
pub(crate) fn mark_terminating(definition: &mut Value, now: Timestamp) {
    set_terminating(
        definition,
        now,
        "True",
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    );
}

fn set_terminating(
    definition: &mut Value,
    now: Timestamp,
    status: &str,
    reason: &str,
    message: &str,
) {
    let part = meta::map_at(meta::object_mut(definition), "status");
    let conditions = meta::list_at(part, "conditions");
    conditions.retain(|condition| condition["type"] != "Terminating");
    conditions.push(json!({
        "type": "Terminating", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": meta::time(now),
    }));
}

/// Finishes what a definition waits for: its status, and when it terminates the deletion of its objects.
pub(crate) fn look_after(core: &Core, storage: &str) {
    let Some(definition) = core.store.get(STORAGE, storage) else {
        core.store.set_ending(storage, false);
        return;
    };
    if !crd::is_established(&definition.value()["status"]) {
        settle_one(core, storage);
    }
    if !definition.is_terminating() {
        return;
    }
    // Without a table, it never had objects.
    if let Some(info) = core.registry.of_storage(storage) {
        delete_objects(core, &info);
    }
    // From here on none is added: one that was on its way finds no resource.
    if core.store.seal(storage) {
        // References to what is gone now can be told from others only while its kind is served.
        let chores = core.store.take_owner_chores();
        if !super::act_on(core, chores) {
            // What the disk stopped is kept, and so is this chore.
            return;
        }
        collector::drop_finalizer(core, STORAGE, &definition, CLEANUP);
    }
}

fn delete_objects(core: &Core, info: &Arc<ResourceInfo>) {
    for object in core.store.list(&info.storage, "").1 {
        if object.is_terminating() {
            continue;
        }
        let request = internal_request(core, info, &object.key());
        if let Err(status) = delete::delete(core, &request, &Options::default())
            && status.code != 404
        {
            tracing::warn!(%status, object = %object.key(), "could not delete an object with its definition");
        }
    }
}
