//! What the server serves, brought in line with the stored definitions.

use std::collections::HashMap;

use serde_json::Value;

use super::installed::Served;
use super::storage::STORAGE;
use super::versions;
use crate::core::Core;
use crate::crd;
use crate::meta;
use crate::ownership::{API_SERVER, Writer};
use crate::resource::ResourceInfo;
use crate::store::wanted::{Wanted, read};
use crate::store::{Chore, CommitError, Expected, Object};

/// Serves a definition after a write of it.
pub(crate) fn after_write(
    core: &Core,
    info: &ResourceInfo,
    old: Option<&Object>,
    new: Option<&Object>,
) {
    if info.storage == STORAGE
        && let Some(definition) = new.or(old)
    {
        settle(core, definition.name());
    }
}

/// Brings the served resources in line with the stored definition, which may be newer than the caller's.
pub(crate) fn settle(core: &Core, name: &str) {
    let mut installed = core.definitions.lock();
    let stored = core.store.get(STORAGE, name);
    let uid = stored.as_ref().and_then(|definition| definition.uid());
    let replaced = installed
        .get(name)
        .is_some_and(|served| Some(served.uid.as_str()) != uid);
    if replaced {
        installed.remove(name);
        core.registry.set(name, Vec::new());
        core.store.set_ending(name, false);
        core.store.drop_table(name);
    }
    if replaced || stored.is_none() {
        // Another definition may wait for the names that are free now.
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

/// Serves all stored definitions, for a restarted server.
pub(crate) fn serve_stored(core: &Core) {
    let mut installed = core.definitions.lock();
    for definition in core.store.list(STORAGE, "").1 {
        serve(core, &mut installed, &definition);
    }
}

/// Sets the status of a definition, and serves it once its names are accepted.
///
/// It is served before its status says so: a client that sees `Established` may create objects at once.
fn serve(core: &Core, installed: &mut HashMap<String, Served>, definition: &Object) {
    let key = definition.name();
    let established = write_status(core, key, |current, status| {
        let newly = crd::is_established(status) && !crd::is_established(&current["status"]);
        if newly {
            crd::mark_installing(status);
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
        let value = current.value();
        let now = Served {
            uid: current.uid().unwrap_or_default().to_owned(),
            content: (value["spec"].clone(), accepted["acceptedNames"].clone()),
        };
        let changed = installed
            .get(key)
            .is_some_and(|before| before.content != now.content);
        installed.insert(key.to_owned(), now);
        core.store.create_table(key);
        let mut resources = versions::resources(&current.value());
        versions::note_conversions(core, &mut resources);
        core.registry.set(key, resources);
        if changed {
            core.registry.end_watches(key);
        }
        write_status(core, key, |_, _| {});
    }
    if current.is_terminating() {
        core.store.set_ending(key, true);
        core.store.add_chore(Chore::Definition(key.to_owned()));
    }
}

/// What a definition reads of another one: most of that is its schema.
const NAMES: Wanted = Wanted::Fields(&[
    ("metadata", Wanted::Fields(&[("name", Wanted::Whole)])),
    ("spec", Wanted::Fields(&[("group", Wanted::Whole)])),
    (
        "status",
        Wanted::Fields(&[("acceptedNames", Wanted::Whole)]),
    ),
]);

/// The status of a stored definition, with respect to all others.
fn accept(core: &Core, definition: &Object) -> Value {
    let others: Vec<Value> = core
        .store
        .list(STORAGE, "")
        .1
        .iter()
        .filter(|other| other.name() != definition.name())
        .map(|other| read(other.encoded(), NAMES))
        .collect();
    crd::accept(&definition.value(), &others, &meta::time(core.clock.now()))
}

/// Writes the status of a definition, after `adjust`; `None` if the definition is gone or the write failed.
///
/// It commits without the pipeline, which would wait for admission under the lock of [`Installed`](super::Installed): one
/// slow step would stop the writes of all definitions. The status follows from a spec that was admitted, so a refusal would
/// leave a definition that is stored and never served. On a real server a controller writes it later, and admission sees that.
fn write_status(core: &Core, key: &str, adjust: impl Fn(&Value, &mut Value)) -> Option<()> {
    loop {
        let current = core.store.get(STORAGE, key)?;
        let mut status = accept(core, &current);
        let value = current.value();
        adjust(&value, &mut status);
        let mut new = Value::clone(&value);
        meta::object_mut(&mut new).insert("status".to_owned(), status);
        if new == *value {
            return Some(());
        }
        if let Some(info) = core.registry.of_storage(STORAGE) {
            Writer::internal(core, &info, "status", API_SERVER).record(&value, &mut new);
        }
        let expected = Expected::Version(current.version());
        match core.store.commit(STORAGE, key, expected, Some(new)) {
            Ok(_) => return Some(()),
            Err(CommitError::Raced) => {}
            Err(CommitError::Closed) => return None,
            Err(error) => {
                tracing::warn!(%error, definition = key, "could not write the status of the definition: it is retried");
                core.store.add_chore(Chore::Definition(key.to_owned()));
                return None;
            }
        }
    }
}
