//! Working off the chores that writes leave in the store.

use tokio::time::Instant;

use super::retries::Retries;
use super::{collector, definitions, initial, namespaces};
use crate::core::Core;
use crate::store::Chore;

/// Works off `chores`; returns `false` if the disk refused a write.
///
/// A chore whose write the disk refused goes back to the store, and is worked off again later. One that another reason
/// stopped, such as a step of admission, goes to `retries`. Nothing is done after the store is closed.
pub(super) async fn work_off(core: &Core, chores: Vec<Chore>, retries: &mut Retries) -> bool {
    let mut all = true;
    for chore in chores {
        if core.store.is_closed() {
            return true;
        }
        let failures = core.store.failures();
        tracing::trace!(?chore, "lifecycle");
        let refused = act(core, chore.clone(), retries).await;
        // Each chore starts from what is stored, so it can be worked off twice.
        if core.store.failures() != failures {
            core.store.add_chore(chore);
            all = false;
            continue;
        }
        if !refused.contains(&chore) {
            retries.succeeded(&chore);
        }
        let now = Instant::now();
        for chore in refused {
            retries.refused(chore, now);
        }
    }
    all
}

/// Works off one chore; returns the chores to try again, because a write was refused.
pub(super) async fn act(core: &Core, chore: Chore, retries: &Retries) -> Vec<Chore> {
    match &chore {
        Chore::Owner(_) | Chore::Dependent(..) | Chore::Finalize(..) => {
            collector::act(core, chore, retries).await
        }
        Chore::Namespace(name) => match namespaces::process(core, name).await {
            true => Vec::new(),
            false => vec![chore],
        },
        Chore::Definition(storage) => definitions::process(core, storage, retries).await,
        Chore::Initial(place) => match initial::create_missing(core, *place).await {
            true => Vec::new(),
            false => vec![chore],
        },
    }
}
