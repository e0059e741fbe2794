//! Working off the chores that writes leave in the store.

use tokio::time::Instant;

use super::retries::Retries;
use super::work::Work;
use super::{collector, definitions, initial, namespaces};
use crate::core::Core;
use crate::store::Chore;

/// Works off `chores`; returns `false` if the disk refused a write.
///
/// A chore during which a restore began is worked off again: its writes were refused from then on. A chore whose write the disk refused goes back to the store, and is worked off again later. One that another reason
/// stopped, such as a step of admission, goes to `retries`. Nothing is done after the store is closed.
pub(super) async fn work_off(core: &Core, chores: Vec<Chore>, retries: &mut Retries) -> bool {
    let mut all = true;
    for chore in chores {
        if core.store.is_closed() {
            return true;
        }
        let work = Work::begin(core).await;
        let failures = core.store.failures();
        tracing::trace!(?chore, "lifecycle");
        let refused = act(&work, chore.clone(), retries).await;
        // Each chore starts from what is stored, so it can be worked off twice.
        if !work.stands() {
            core.store.add_chore(chore);
            continue;
        }
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
pub(super) async fn act(work: &Work<'_>, chore: Chore, retries: &Retries) -> Vec<Chore> {
    match &chore {
        Chore::Owner(_) | Chore::Dependent(..) | Chore::Finalize(..) => {
            collector::act(work, chore, retries).await
        }
        Chore::Namespace(name) => match namespaces::process(work, name).await {
            true => Vec::new(),
            false => vec![chore],
        },
        Chore::Definition(storage) => definitions::process(work, storage, retries).await,
        Chore::Initial(place) => match initial::create_missing(work, *place).await {
            true => Vec::new(),
            false => vec![chore],
        },
    }
}
