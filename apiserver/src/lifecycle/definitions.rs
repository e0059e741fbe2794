//! Definitions that terminate take their objects with them.

use std::sync::Arc;

use super::collector;
use super::internal::{Part, internal_request, is_stored};
use super::retries::Retries;
use crate::core::Core;
use crate::crd;
use crate::definitions::{self, CLEANUP, STORAGE};
use crate::resource::ResourceInfo;
use crate::store::Chore;
use crate::verbs::delete::{self, Options};

/// Gives a definition its status and, if it terminates, deletes its objects. Returns the chores to try again, because a
/// write was refused.
pub(super) async fn process(core: &Core, storage: &str, retries: &Retries) -> Vec<Chore> {
    let again = || vec![Chore::Definition(storage.to_owned())];
    let Some(definition) = core.store.get(STORAGE, storage) else {
        core.store.set_ending(storage, false);
        return Vec::new();
    };
    if !crd::is_established(&definition.value()["status"]) {
        definitions::settle(core, storage);
    }
    if !definition.is_terminating() {
        return Vec::new();
    }
    // Without a table, it never had objects.
    if let Some(info) = core.registry.of_storage(storage)
        && !delete_objects(core, &info).await
    {
        return again();
    }
    // From here on no object is added: a create that was on its way finds no resource.
    if core.store.seal(storage) {
        // A reference to an object that is gone can be resolved only while its kind is served.
        for chore in core.store.take_owner_chores() {
            let failures = core.store.failures();
            let mut refused = collector::act(core, chore.clone(), retries).await;
            if core.store.failures() != failures {
                // The store keeps the chores whose write the disk refused, and this one.
                core.store.add_chore(chore);
                return Vec::new();
            }
            if !refused.is_empty() {
                refused.extend(again());
                return refused;
            }
        }
        if !collector::drop_finalizer(core, STORAGE, &definition, CLEANUP).await {
            return again();
        }
    }
    Vec::new()
}

/// Returns `false` if a deletion was refused.
async fn delete_objects(core: &Core, info: &Arc<ResourceInfo>) -> bool {
    let mut all = true;
    for object in core.store.list(&info.storage, "").1 {
        if object.is_terminating() {
            continue;
        }
        let request = internal_request(core, info, object.key(), Part::ApiServer);
        if let Err(status) = delete::delete(core, &request, &Options::default()).await
            && is_stored(core, info, &object)
        {
            tracing::warn!(%status, object = %object.key(), "could not delete an object with its definition: it is retried");
            all = false;
        }
    }
    all
}
