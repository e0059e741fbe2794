//! What the caches show of a write, and what the server says of one whose answer was lost.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use kube_core::ObjectMeta;
use tokio::time::{Instant, timeout_at};

use super::super::store::{Store, scope_of};
use super::Caches;
use crate::client::writes::{self, Effect, Standing, Write};
use crate::client::{self, Client, GroupKind};

/// Of how many writes the server is asked at once what became of them.
const ASKS: usize = 8;

// === impl Caches ===

impl Caches {
    /// Whether anybody watches or keeps the kind.
    pub(crate) fn holds(&self, kind: &GroupKind) -> bool {
        let slots = self.slots();
        slots.iter().any(|slot| slot.kind.is_of_objects(kind))
    }

    /// Whether an object is cached, as far as its kind and key tell.
    pub(crate) fn covers(&self, write: &Write) -> bool {
        self.holding(write)
            .iter()
            .any(|store| store.may_hold(&write.key))
    }

    /// Whether the caches show what `write` did; true for what is not cached, or not any more.
    pub(crate) fn has_seen(&self, write: &Write) -> bool {
        if let Effect::Each(writes) = &write.effect {
            return writes.iter().all(|write| self.has_seen(write));
        }
        self.holding(write)
            .iter()
            .filter(|store| store.may_hold(&write.key))
            .all(|store| write.effect.is_seen(&seen(&**store, write)))
    }

    /// How the object of a write stands in the caches; `None` if none would hold it, or it is not known to be there.
    pub(crate) fn standing(&self, write: &Write) -> Option<Standing> {
        let holding = self.holding(write);
        let stores = holding.iter().filter(|store| store.may_hold(&write.key));
        stores
            .filter_map(|store| write.effect.standing(&seen(&**store, write)))
            .max()
    }

    /// Asks the server what became of a write whose answer was lost. `None` when it does not answer either.
    pub(crate) async fn ask(
        &self,
        client: &Client,
        write: &Write,
        limit: Duration,
    ) -> Option<Effect> {
        if write.key.name.is_empty() {
            return self.ask_of_many(client, write, limit).await;
        }
        // Before the question: what is held later may have been made since.
        let held = self.held(write);
        match self.live(client, write, limit).await? {
            Ok(Some(meta)) => Some(write.effect.clone().then(Effect::of_written(&meta))),
            Ok(None) => Some(write.effect.absent(held)),
            Err(error) => {
                tracing::debug!(key = %write.key, %error, "a write may have happened; the server does not say");
                None
            }
        }
    }

    /// The uids of the object of a write in the caches.
    fn held(&self, write: &Write) -> Vec<Option<String>> {
        let holding = self.holding(write);
        let stores = holding.iter().filter(|store| store.may_hold(&write.key));
        stores
            .filter_map(|store| seen(&**store, write).object)
            .map(|(uid, _)| uid)
            .collect()
    }

    /// Asks the server, for several at once and until `deadline`, what became of those writes whose answers were lost,
    /// and puts that in their place. Writes to what is not cached are left alone.
    pub(crate) async fn ask_for_lost(
        &self,
        client: &Client,
        writes: impl IntoIterator<Item = &mut Write>,
        deadline: Instant,
    ) {
        let lost = writes
            .into_iter()
            .filter(|write| matches!(write.effect, Effect::Unknown { .. }) && self.covers(write));
        let asking = stream::iter(lost).for_each_concurrent(ASKS, async |write| {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(effect) = self.ask(client, write, left).await {
                write.effect = effect;
            }
        });
        // What was answered by then is known.
        let _ = timeout_at(deadline, asking).await;
    }

    /// The object of a write as the server has it, within `limit` and 5 s. `None` if the kind is not cached.
    pub(crate) async fn live(
        &self,
        client: &Client,
        write: &Write,
        limit: Duration,
    ) -> Option<Result<Option<ObjectMeta>, client::Error>> {
        let slots = self.slots();
        let mut served = slots
            .iter()
            .filter(|slot| slot.kind.is_of_objects(&write.kind));
        let kind = &served.next()?.kind;
        // The note may be of a clone for another namespace, and it is no call of the program.
        let client = client
            .unbound()
            .with_deadline(limit.min(Duration::from_secs(5)));
        let live = client.dynamic_metadata(kind).get(&write.key).await;
        Some(client::optional(live).map(|live| live.map(|live| live.metadata)))
    }

    /// The stores of the objects of a write, in whatever version of the API.
    pub(super) fn holding(&self, write: &Write) -> Vec<Arc<dyn Store>> {
        let slots = self.slots();
        slots
            .iter()
            .filter(|slot| slot.kind.is_of_objects(&write.kind))
            .filter_map(|slot| slot.bare().cloned())
            .collect()
    }
}

/// What a store shows of the object of a write.
fn seen(store: &dyn Store, write: &Write) -> writes::View {
    // What happens in other namespaces says nothing of this one.
    let through = store.resource_version_in(&scope_of(&write.key));
    let object = store.get(write.key.as_ref());
    let object = object.and_then(|row| {
        let meta = row.metadata().ok()?;
        Some((meta.uid.clone(), meta.resource_version.clone()))
    });
    let labels = write.effect.state().and_then(|state| state.labels.as_ref());
    writes::View {
        object,
        through: (!through.is_empty()).then(|| through.as_str().to_owned()),
        left_out: labels.is_some_and(|labels| !store.selects(&write.key, labels)),
    }
}
