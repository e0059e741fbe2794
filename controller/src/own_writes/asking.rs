//! The live reads that settle a write whose answer was lost, and a delete of many that failed half-way.

use std::collections::HashMap;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use kube_core::params::ListParams;
use kube_core::{DynamicObject, ObjectMeta, PartialObjectMeta};
use reeve_informer::ObjectKey;
use tokio::time::{Instant, timeout_at};

use reeve_client::{self as client, Client, Objects, key_of};

use super::effect::{Effect, Write};
use crate::cache::{Caches, LONGEST_PAUSE, Query, Rank};

/// The time limit of one live read of an object, or of one page of a list.
pub(crate) const LIVE_READ_LIMIT: Duration = Duration::from_secs(5);
/// The pause after a waiter's first live read without an answer; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The number of places in the line of a cluster that one waiter takes at once.
const PLACES: usize = 8;

/// The schedule of the live reads of one waiter, a key or a read. Each read without an answer doubles the pause.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pause: Duration,
    next: Option<Instant>,
}

/// The result of the live reads of one waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Asked {
    /// No read was made: no write is lost, or the time is over.
    Nothing,
    /// Each read was answered.
    Answered,
    /// At least one read was not answered.
    Silent,
}

// === impl Asking ===

impl Asking {
    /// For a key with so many failures in a row: its first pause grows with its back-off.
    pub(crate) fn after(failures: u32) -> Self {
        let doubled = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
        Self {
            pause: FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE),
            next: None,
        }
    }

    pub(crate) fn is_due(&self) -> bool {
        self.pause(Instant::now()).is_zero()
    }

    /// The time until the waiter may read again.
    pub(crate) fn pause(&self, now: Instant) -> Duration {
        let next = self.next;
        next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now))
    }

    /// Whether a read was made.
    pub(crate) fn has_begun(&self) -> bool {
        self.next.is_some()
    }

    pub(crate) fn note(&mut self, asked: Asked) {
        match asked {
            Asked::Nothing => {}
            Asked::Answered => self.next = Some(Instant::now()),
            Asked::Silent => {
                self.next = Some(Instant::now() + self.pause);
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

// === impl Caches ===

impl Caches {
    /// Reads the effect of a write whose answer was lost from the server. `None` when the server does not answer.
    async fn ask(&self, client: &Client, write: &Write, limit: Duration) -> Option<Effect> {
        if write.key.name.is_empty() {
            return self.ask_of_many(client, write, limit).await;
        }
        // Before the read: an object that is held later may have been created since.
        let held = self.held(write);
        match self.live(client, write, limit).await? {
            Ok(Some(meta)) => Some(write.effect.clone().then(Effect::of_written(&meta))),
            Ok(None) => Some(write.effect.absent(held)),
            Err(error) => {
                self.rest_after(&error);
                tracing::debug!(key = %write.key, %error, "could not check whether a write happened");
                None
            }
        }
    }

    /// Waits for the sweep's turn to read from the server: while no key and no read waits for a live read.
    pub(crate) async fn turn_to_sweep(&self) {
        self.questions().turn(Rank::Sweep).await;
    }

    /// Pauses the live reads for the `Retry-After` of `error`.
    pub(crate) fn rest_after(&self, error: &client::Error) {
        if let Some(retry_after) = error.retry_after() {
            let now = Instant::now();
            self.questions().pause(now, retry_after);
        }
    }

    /// Settles the lost ones of `writes` by live reads until `deadline`, and replaces them with the result. Each read
    /// waits for its turn. Skips writes to objects that are not cached.
    pub(crate) async fn ask_for_lost(
        &self,
        client: &Client,
        writes: impl IntoIterator<Item = &mut Write>,
        deadline: Instant,
    ) -> Asked {
        let lost = writes.into_iter();
        let lost = lost.filter(|write| write.is_lost() && self.covers(write));
        let mut lost: Vec<&mut Write> = lost.collect();
        if lost.is_empty() || deadline <= Instant::now() {
            return Asked::Nothing;
        }
        let asking = stream::iter(&mut lost).for_each_concurrent(PLACES, async |write| {
            self.questions().turn(Rank::Waiting).await;
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(effect) = self.ask(client, write, left).await {
                write.effect = effect;
            }
        });
        // Answers that arrived by then are recorded.
        let _ = timeout_at(deadline, asking).await;
        if lost.iter().any(|write| write.is_lost()) {
            Asked::Silent
        } else {
            Asked::Answered
        }
    }

    /// The object of a write from the server, within `limit` and 5 s. `None` if the kind is not cached.
    pub(crate) async fn live(
        &self,
        client: &Client,
        write: &Write,
        limit: Duration,
    ) -> Option<Result<Option<ObjectMeta>, client::Error>> {
        let live = self.at_server(client, write, limit)?.get(&write.key).await;
        Some(client::optional(live).map(|live| live.map(|live| live.metadata)))
    }

    /// The kind of a write at the server, each read within `limit` and 5 s. `None` if the kind is not cached.
    fn at_server(
        &self,
        client: &Client,
        write: &Write,
        limit: Duration,
    ) -> Option<Objects<PartialObjectMeta<DynamicObject>>> {
        let slots = self.slots();
        let mut served = slots.iter();
        let slot = served.find(|slot| slot.kind.is_of_objects(&write.kind))?;
        // The write may be of a clone for another namespace, and this read is not a call of the program.
        let client = Client::unbound(client).with_deadline(limit.min(LIVE_READ_LIMIT));
        Some(client.dynamic_metadata(&slot.kind))
    }
}

// === impl Caches: a delete of many ===

impl Caches {
    /// Compares the objects of a place in the caches with a live list: those that are gone, and those that wait for
    /// their end. `None` when the server does not answer.
    ///
    /// Lists all objects of the place, whatever the delete selected: the state of an object at the time of the
    /// selection is not known any more.
    async fn ask_of_many(&self, client: &Client, write: &Write, limit: Duration) -> Option<Effect> {
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
        let namespace = write.key.namespace.as_deref();
        let objects = self.at_server(client, write, limit)?;
        let mut pages = objects.pages(namespace, &ListParams::default());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_pause_of_a_waiter_doubles_and_begins_with_its_failures() {
        let pauses = |failures: u32| {
            let mut asking = Asking::after(failures);
            let pauses = (0..10).map(|_| {
                asking.note(Asked::Silent);
                asking.next.unwrap().duration_since(Instant::now())
            });
            pauses.map(|pause| pause.as_millis()).collect::<Vec<_>>()
        };
        assert_eq!(pauses(0)[..4], [250, 500, 1000, 2000]);
        assert_eq!(pauses(3)[..4], [2000, 4000, 8000, 16_000]);
        assert_eq!(pauses(0)[9], 60_000);
        assert_eq!(pauses(u32::MAX)[0], 60_000);
    }
}
