//! Settling of a delete of many whose answer was lost, or which failed half-way.

use std::collections::HashMap;
use std::time::Duration;

use kube_core::ObjectMeta;
use kube_core::params::ListParams;
use reeve_informer::ObjectKey;

use reeve_client::{self as client, Client, key_of};

use super::asking::LIVE_READ_LIMIT;
use super::effect::{Effect, Write};
use crate::cache::{Caches, Query};

// === impl Caches ===

impl Caches {
    /// Compares the objects of a place in the caches with a live list: those that are gone, and those that wait for
    /// their end. `None` when the server does not answer.
    ///
    /// Lists all objects of the place, whatever the delete selected: the state of an object at the time of the
    /// selection is not known any more.
    pub(super) async fn ask_of_many(
        &self,
        client: &Client,
        write: &Write,
        limit: Duration,
    ) -> Option<Effect> {
        // Before the list: an object that is held later may have been created since.
        let held = self.held_in_place_of(write);
        match self.live_in_place_of(client, write, limit).await? {
            Ok(live) => {
                let effects = held.into_iter().filter_map(|(key, uid)| {
                    let effect = match live.get(&(key.clone(), uid.clone())) {
                        None => Effect::Gone { uid, after: None },
                        Some(live) if live.deletion_timestamp.is_some() => Effect::of_written(live),
                        Some(_) => return None,
                    };
                    let kind = write.kind.clone();
                    Some(Write { kind, key, effect })
                });
                Some(Effect::Each(effects.collect()))
            }
            Err(error) => {
                self.rest_after(&error);
                tracing::debug!(
                    kind = %write.kind, namespace = write.key.namespace.as_deref(), %error,
                    "could not list the objects left by a delete of many"
                );
                None
            }
        }
    }

    /// The keys and uids of the objects in the place of a write, from the caches.
    fn held_in_place_of(&self, write: &Write) -> Vec<(ObjectKey, Option<String>)> {
        let query = match write.key.namespace.as_deref() {
            Some(namespace) => Query::Namespace(namespace),
            None => Query::All,
        };
        let mut held = Vec::new();
        for store in self.holding(write) {
            // Neither query uses an index, so neither fails.
            for row in store.find(&query).unwrap_or_default() {
                if let Ok(meta) = row.metadata() {
                    held.push((key_of(&meta), meta.uid.clone()));
                }
            }
        }
        held
    }

    /// The objects in the place of a write, from the server. `None` if the kind is not cached.
    async fn live_in_place_of(
        &self,
        client: &Client,
        write: &Write,
        limit: Duration,
    ) -> Option<Result<HashMap<(ObjectKey, Option<String>), ObjectMeta>, client::Error>> {
        let slots = self.slots();
        let mut served = slots
            .iter()
            .filter(|slot| slot.kind.is_of_objects(&write.kind));
        let kind = &served.next()?.kind;
        let client = Client::unbound(client).with_deadline(limit.min(LIVE_READ_LIMIT));
        let namespace = write.key.namespace.as_deref();
        let mut pages = client
            .dynamic_metadata(kind)
            .pages(namespace, &ListParams::default());
        let mut live = HashMap::new();
        loop {
            match pages.next().await {
                Ok(Some(page)) => live.extend(page.items.into_iter().map(|object| {
                    let meta = object.metadata;
                    ((key_of(&meta), meta.uid.clone()), meta)
                })),
                Ok(None) => return Some(Ok(live)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
