//! Working off the chores that writes leave in the store.

use super::{collector, definitions, namespaces};
use crate::core::Core;
use crate::store::Chore;

/// Works off `chores`; returns `false` if the disk refused a write.
///
/// A chore whose write was refused goes back to the store, and is worked off again later. Nothing is done after the
/// store is closed.
pub(super) async fn work_off(core: &Core, chores: Vec<Chore>) -> bool {
    let mut all = true;
    for chore in chores {
        if core.store.is_closed() {
            return true;
        }
        let failures = core.store.failures();
        tracing::trace!(?chore, "lifecycle");
        act(core, chore.clone()).await;
        // Each chore starts from what is stored, so it can be worked off twice.
        if core.store.failures() != failures {
            core.store.add_chore(chore);
            all = false;
        }
    }
    all
}

/// Works off one chore.
pub(super) async fn act(core: &Core, chore: Chore) {
    match chore {
        Chore::Owner(_) | Chore::Dependent(..) | Chore::Finalize(..) => {
            collector::act(core, chore).await;
        }
        Chore::Namespace(name) => namespaces::process(core, &name).await,
        Chore::Definition(storage) => definitions::process(core, &storage).await,
    }
}
