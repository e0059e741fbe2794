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
use crate::store::{CommitError, Copy, Difference, Expected, Object, PersistError, Wanted};
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
///
/// The background task writes nothing meanwhile, and nothing afterwards that it decided before. Writes that do not depend
/// on each other share batches of the log.
pub(crate) fn restore(core: &Core, copy: &Copy) -> Result<usize, RestoreError> {
    let _restoring = core.store.begin_restore();
    let mut written = 0;
    let (mut removed, mut definitions, mut namespaces) = (Vec::new(), Vec::new(), Vec::new());
    for one in copy.differences(&core.store) {
        match one.storage.as_str() {
            STORAGE => definitions.push(one),
            NAMESPACES => namespaces.push(one),
            _ if one.then.is_none() => removed.push(one),
            _ => {}
        }
    }
    // Watches of a kind see the end of its objects before that of the kind.
    written += write(core, &removed)?;
    for one in definitions {
        written += write_definition(core, &one)?;
    }
    written += write(core, &namespaces)?;
    // A kind that ended and began again has lost objects that had not changed.
    let mut others = copy.differences(&core.store);
    others.retain(|one| one.storage != STORAGE && one.storage != NAMESPACES && one.then.is_some());
    for step in owners_first(others) {
        written += write(core, &step)?;
    }
    Ok(written)
}

/// Writes or removes the objects of differences; returns the number of those that were not as wanted.
fn write(core: &Core, differences: &[Difference]) -> Result<usize, RestoreError> {
    let mut left: Vec<(&Difference, Option<Value>)> = differences
        .iter()
        .map(|one| {
            let then = one.then.as_ref();
            (one, then.map(|then| content(core, &one.storage, then)))
        })
        .collect();
    let mut written = 0;
    for _ in 0..TRIES {
        let mut steps = Vec::new();
        for (one, wanted) in left {
            if let Some((step, is_last)) = next_step(core, one, wanted.as_ref()) {
                steps.push((one, wanted, step, is_last));
            }
        }
        if steps.is_empty() {
            return Ok(written);
        }
        let writes = steps.iter().map(|(_, _, step, _)| step.clone()).collect();
        let results = core.store.commit_all(writes);
        left = Vec::new();
        for ((one, wanted, _, is_last), result) in steps.into_iter().zip(results) {
            match result {
                Ok(_) if is_last => written += 1,
                Ok(_) | Err(CommitError::Raced | CommitError::Restored) => left.push((one, wanted)),
                // The namespace was ending when the copy was made, and so was this object; or the kind ends just now. What
                // is written together has been stored before, and is not measured.
                Err(CommitError::Namespace | CommitError::NoTable(_) | CommitError::TooLarge) => {}
                Err(CommitError::Closed) => return Err(RestoreError::Closed),
                Err(CommitError::Persist(error)) => return Err(RestoreError::Persist(error)),
            }
        }
    }
    match left.first() {
        Some((one, _)) => Err(RestoreError::Raced(format!("{} {}", one.storage, one.key))),
        None => Ok(written),
    }
}

/// The next write of an object, and whether it is as wanted after that. `None` if nothing is to be done.
fn next_step(core: &Core, one: &Difference, wanted: Option<&Value>) -> Option<(Wanted, bool)> {
    let now = core.store.get(&one.storage, one.key.as_str());
    let expected = match (&now, &one.then) {
        (None, None) => return None,
        (Some(now), Some(then)) if now.is_the_same(then) => return None,
        (Some(now), _) if wanted.is_some_and(|wanted| is_as(now, wanted)) => return None,
        (Some(now), _) => Expected::Version(now.version()),
        (None, Some(_)) => Expected::Absent,
    };
    // Another object of the name goes before this one comes: a client never sees that a uid changes.
    let replaces = |then: &Arc<Object>| now.as_ref().is_some_and(|now| now.uid() != then.uid());
    let is_other = one.then.as_ref().is_some_and(replaces);
    let step = Wanted {
        storage: one.storage.clone(),
        key: one.key.clone(),
        expected,
        value: wanted.filter(|_| !is_other).cloned(),
    };
    Some((step, !is_other))
}

/// As [`write`], and serves the kind as it was.
fn write_definition(core: &Core, one: &Difference) -> Result<usize, RestoreError> {
    let name = one.key.name();
    let now = core.store.get(STORAGE, name);
    if one.then.is_some() && now.is_some_and(|now| now.is_terminating()) {
        // Its kind takes no new objects any more, so it ends before it begins again.
        let end = Difference {
            then: None,
            ..one.clone()
        };
        write(core, &[end])?;
        definitions::settle(core, name);
    }
    let written = write(core, std::slice::from_ref(one))?;
    definitions::settle(core, name);
    Ok(written)
}

/// An object is removed if its owner is missing, so owners come before their dependents: the objects of each step depend
/// on those of earlier ones.
fn owners_first(mut left: Vec<Difference>) -> Vec<Vec<Difference>> {
    let mut steps = Vec::new();
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
            steps.push(later);
            break;
        }
        steps.push(now);
        left = later;
    }
    steps
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
