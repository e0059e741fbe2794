//! Definitions that terminate take their objects with them.

use std::sync::Arc;

use super::collector;
use super::internal::{Part, internal_request, is_stored};
use super::retries::Retries;
use super::work::Work;
use crate::crd;
use crate::definitions::{self, CLEANUP, STORAGE};
use crate::resource::ResourceInfo;
use crate::store::Chore;
use crate::verbs::delete::{self, Options};

/// Gives a definition its status and, if it terminates, deletes its objects. Returns the chores to try again, because a
/// write was refused.
pub(super) async fn process(work: &Work<'_>, storage: &str, retries: &Retries) -> Vec<Chore> {
    let again = || vec![Chore::Definition(storage.to_owned())];
    let Some(definition) = work.store.get(STORAGE, storage) else {
        work.store.set_ending(storage, false);
        return Vec::new();
    };
    let terminates = definition.is_terminating();
    // Before the objects are listed: each that goes or comes later is a chore.
    work.store.set_ending(storage, terminates);
    if !terminates {
        if !crd::is_established(&definition.value()["status"]) {
            definitions::settle(work, storage);
        }
        return Vec::new();
    }
    // Without a table, it never had objects.
    if let Some(info) = work.registry.of_storage(storage)
        && !delete_objects(work, &info).await
    {
        return again();
    }
    // From here on no object is added: a create that was on its way finds no resource.
    if work.store.seal(storage, work.decision()) {
        // A reference to an object that is gone can be resolved only while its kind is served.
        let mut left = work.store.take_owner_chores().into_iter();
        while let Some(chore) = left.next() {
            let failures = work.store.failures();
            let mut refused = collector::act(work, chore.clone(), retries).await;
            let is_stopped = work.store.failures() != failures || !work.stands();
            if !is_stopped && refused.is_empty() {
                continue;
            }
            for chore in left {
                work.store.add_chore(chore);
            }
            if is_stopped {
                // This chore and that of the definition begin again from the store.
                work.store.add_chore(chore);
                return Vec::new();
            }
            refused.extend(again());
            return refused;
        }
        if !collector::drop_finalizer(work, STORAGE, &definition, CLEANUP).await {
            return again();
        }
    }
    Vec::new()
}

/// Returns `false` if a deletion was refused.
async fn delete_objects(work: &Work<'_>, info: &Arc<ResourceInfo>) -> bool {
    let mut all = true;
    for object in work.store.list(&info.storage, "").1 {
        if object.is_terminating() {
            continue;
        }
        let request = internal_request(work, info, object.key(), Part::ApiServer);
        if let Err(status) = delete::delete(work, &request, &Options::default()).await
            && is_stored(work, info, &object)
        {
            tracing::warn!(%status, object = %object.key(), "could not delete an object with its definition: it is retried");
            all = false;
        }
    }
    all
}
