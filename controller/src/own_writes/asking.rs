//! The caches' view of a write, and the live reads that settle a write whose answer was lost.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use kube_core::ObjectMeta;
use tokio::time::{Instant, timeout_at};

use reeve_client::{self as client, Client, GroupKind};

use super::effect::{self, Effect, Standing, Write};
use crate::cache::{Caches, LONGEST_PAUSE, Rank, Store, scope_of};

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
    /// Whether a cache holds the kind.
    pub(crate) fn holds(&self, kind: &GroupKind) -> bool {
        let slots = self.slots();
        slots.iter().any(|slot| slot.kind.is_of_objects(kind))
    }

    /// Whether an object is cached, judged by its kind and key.
    pub(crate) fn covers(&self, write: &Write) -> bool {
        self.holding(write)
            .iter()
            .any(|store| store.may_hold(&write.key))
    }

    /// As [`Caches::has_seen`]. For a write to many objects, drops those that are seen. Checks at most `looks` objects
    /// and counts `looks` down: call again to continue.
    pub(crate) fn drop_seen(&self, write: &mut Write, looks: &mut usize) -> bool {
        let Effect::Each(writes) = &mut write.effect else {
            *looks = looks.saturating_sub(1);
            return self.has_seen(write);
        };
        while let Some(last) = writes.last() {
            if *looks == 0 || !self.has_seen(last) {
                return false;
            }
            *looks -= 1;
            writes.pop();
        }
        true
    }

    /// Whether the caches show the effect of `write`; true for an object that is not cached, or not any more.
    pub(crate) fn has_seen(&self, write: &Write) -> bool {
        if let Effect::Each(writes) = &write.effect {
            return writes.iter().all(|write| self.has_seen(write));
        }
        self.holding(write)
            .iter()
            .filter(|store| store.may_hold(&write.key))
            .all(|store| write.effect.is_seen(&seen(store, write)))
    }

    /// The state of a write's object in the caches; `None` if no cache would hold it, or its existence is unknown.
    pub(crate) fn standing(&self, write: &Write) -> Option<Standing> {
        let holding = self.holding(write);
        let stores = holding.iter().filter(|store| store.may_hold(&write.key));
        stores
            .filter_map(|store| write.effect.standing(&seen(store, write)))
            .max()
    }

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

    /// The uids of the object of a write in the caches.
    fn held(&self, write: &Write) -> Vec<Option<String>> {
        let holding = self.holding(write);
        let stores = holding.iter().filter(|store| store.may_hold(&write.key));
        stores
            .filter_map(|store| seen(store, write).object)
            .map(|(uid, _)| uid)
            .collect()
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
        let slots = self.slots();
        let mut served = slots
            .iter()
            .filter(|slot| slot.kind.is_of_objects(&write.kind));
        let kind = &served.next()?.kind;
        // The write may be of a clone for another namespace, and this read is not a call of the program.
        let client = Client::unbound(client).with_deadline(limit.min(LIVE_READ_LIMIT));
        let live = client.dynamic_metadata(kind).get(&write.key).await;
        Some(client::optional(live).map(|live| live.map(|live| live.metadata)))
    }

    /// The stores that hold the objects of a write, in any version of the API.
    pub(super) fn holding(&self, write: &Write) -> Vec<Arc<Store>> {
        let slots = self.slots();
        slots
            .iter()
            .filter(|slot| slot.kind.is_of_objects(&write.kind))
            .filter_map(|slot| slot.bare().cloned())
            .collect()
    }
}

/// The view of a write's object in a store.
fn seen(store: &Store, write: &Write) -> effect::View {
    // Events in other namespaces are not evidence for this one.
    let through = store.resource_version_in(&scope_of(&write.key));
    let object = store.get(write.key.as_ref());
    let object = object.and_then(|row| {
        let meta = row.metadata().ok()?;
        Some((meta.uid.clone(), meta.resource_version.clone()))
    });
    let labels = write.effect.state().and_then(|state| state.labels.as_ref());
    effect::View {
        object,
        through: (!through.is_empty()).then(|| through.as_str().to_owned()),
        left_out: labels.is_some_and(|labels| !store.selects(&write.key, labels)),
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
