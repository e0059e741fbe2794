//! The way back to a template in a running server: each object that changed since is written again.
//!
//! Clients see it as writes: watches go on, versions grow, and caches follow. That is what the reset of a real control
//! plane ([`control_plane`](crate::control_plane)) does to them too. Nothing is asked: no admission, no finalizers.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use crate::core::Core;
use crate::definitions::{self, STORAGE};
use crate::meta;
use crate::store::{CommitError, Copy, Difference, Expected, Object, PersistError};
use crate::verbs::conversion;

const NAMESPACES: &str = "namespaces";
/// Writes of other clients that one object may lose to.
const TRIES: usize = 100;

/// The reason why a server was not brought back to a template, or only a part of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// Another client writes an object all the time.
    #[error("{0} changed {TRIES} times meanwhile: stop what writes it, and restore again")]
    Raced(String),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Closed,
    /// The data directory cannot be written.
    #[error(transparent)]
    Persist(PersistError),
}

/// Brings the objects back to `copy`; returns how many were written or removed.
pub(crate) fn restore(core: &Core, copy: &Copy) -> Result<usize, RestoreError> {
    let mut written = 0;
    let mut definitions = Vec::new();
    let mut namespaces = Vec::new();
    for one in copy.differences(&core.store) {
        match one.storage.as_str() {
            STORAGE => definitions.push(one),
            NAMESPACES => namespaces.push(one),
            // Watches of a kind see the end of its objects before that of the kind.
            _ if one.then.is_none() => written += usize::from(write(core, &one)?),
            _ => {}
        }
    }
    for one in definitions {
        written += usize::from(write_definition(core, &one)?);
    }
    for one in namespaces {
        written += usize::from(write(core, &one)?);
    }
    // A kind that ended and began again has lost objects that had not changed.
    let mut others = copy.differences(&core.store);
    others.retain(|one| one.storage != STORAGE && one.storage != NAMESPACES && one.then.is_some());
    for one in owners_first(others) {
        written += usize::from(write(core, &one)?);
    }
    Ok(written)
}

/// Writes or removes the object of a difference. Returns `false` if nothing was to be done.
fn write(core: &Core, one: &Difference) -> Result<bool, RestoreError> {
    let (storage, key) = (&one.storage, one.key.as_str());
    let wanted = one.then.as_ref();
    let wanted = wanted.map(|then| content(core, storage, then));
    for _ in 0..TRIES {
        let now = core.store.get(storage, key);
        let (expected, value) = match (&now, &one.then) {
            (None, None) => return Ok(false),
            (Some(now), Some(then)) if now.is_the_same(then) => return Ok(false),
            (Some(now), _) if wanted.as_ref().is_some_and(|wanted| is_as(now, wanted)) => {
                return Ok(false);
            }
            (Some(now), _) => (Expected::Version(now.version()), wanted.clone()),
            (None, Some(_)) => (Expected::Absent, wanted.clone()),
        };
        // Another object of the name goes before this one comes: a client never sees that a uid changes.
        let replaces = |then: &Arc<Object>| now.as_ref().is_some_and(|now| now.uid() != then.uid());
        let is_other = one.then.as_ref().is_some_and(replaces);
        let value = value.filter(|_| !is_other);
        match core.store.commit(storage, key, expected, value) {
            Ok(_) if is_other => {}
            Ok(_) => return Ok(true),
            Err(CommitError::Raced) => {}
            // The namespace was ending when the copy was made, and so was this object; or the kind ends just now.
            Err(CommitError::Namespace | CommitError::NoTable(_)) => return Ok(false),
            Err(CommitError::Closed) => return Err(RestoreError::Closed),
            Err(CommitError::Persist(error)) => return Err(RestoreError::Persist(error)),
        }
    }
    Err(RestoreError::Raced(format!("{storage} {key}")))
}

/// As [`write`], and serves the kind as it was.
fn write_definition(core: &Core, one: &Difference) -> Result<bool, RestoreError> {
    let name = one.key.name();
    let now = core.store.get(STORAGE, name);
    if one.then.is_some() && now.is_some_and(|now| now.is_terminating()) {
        // Its kind takes no new objects any more, so it ends before it begins again.
        let end = Difference {
            then: None,
            ..one.clone()
        };
        write(core, &end)?;
        definitions::settle(core, name);
    }
    let written = write(core, one)?;
    definitions::settle(core, name);
    Ok(written)
}

/// An object is removed if its owner is missing, so owners come before their dependents.
fn owners_first(mut left: Vec<Difference>) -> Vec<Difference> {
    let mut ordered = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let missing: HashSet<String> = left
            .iter()
            .filter(|one| !one.exists)
            .filter_map(|one| Some(one.then.as_ref()?.uid()?.to_owned()))
            .collect();
        let waits = |one: &Difference| {
            let mut owners = one.then.iter().flat_map(|object| object.owner_uids());
            owners.any(|uid| missing.contains(uid))
        };
        let (later, now): (Vec<_>, Vec<_>) = left.into_iter().partition(waits);
        if now.is_empty() {
            // Owners of each other, in any order.
            ordered.extend(later);
            break;
        }
        ordered.extend(now);
        left = later;
    }
    ordered
}

/// The content with its `apiVersion`, as clients have seen it: it is newer than the schema of its kind when it is written.
fn content(core: &Core, storage: &str, object: &Object) -> Value {
    let info = core.registry.of_storage(storage).filter(|info| info.custom);
    let info = info.and_then(|info| {
        let (group, version) = object.api_version().split_once('/')?;
        core.registry.find(group, version, &info.plural)
    });
    let mut value = conversion::content(info.as_deref(), object);
    if !object.api_version().is_empty() {
        let api_version = Value::from(object.api_version());
        meta::object_mut(&mut value).insert("apiVersion".to_owned(), api_version);
    }
    value
}

/// Whether an object differs from `wanted` in its version at most.
fn is_as(now: &Object, wanted: &Value) -> bool {
    let is_of_version = match wanted.get("apiVersion") {
        Some(version) => version == now.api_version(),
        None => now.api_version().is_empty(),
    };
    let fields = |value: &Value| {
        let mut value = value.clone();
        meta::object_mut(&mut value).remove("apiVersion");
        value["metadata"]["resourceVersion"].take();
        value
    };
    is_of_version && fields(&now.value()) == fields(wanted)
}
