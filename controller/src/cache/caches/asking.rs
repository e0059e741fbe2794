//! What the caches show of a write, and what the server says of one whose answer was lost.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kube_core::ObjectMeta;
use tokio::time::{Instant, timeout_at};

use super::super::store::{Store, scope_of};
use super::Caches;
use crate::client::writes::{self, Effect, Standing, Write};
use crate::client::{self, Client, GroupKind};

/// How many questions about lost writes the server of one cluster gets in a second, of all controllers and readers.
const ASKS: usize = 8;
/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(5);
/// The pause after the first question of a waiter that had no answer; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest such pause, and the longest `Retry-After` that is honoured: writes are not lost for longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The questions about lost writes that the server of one cluster may still get.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// When the current second began, and how many were asked in it.
    second: Option<(Instant, usize)>,
    /// The server asked to be left alone until then.
    not_before: Option<Instant>,
}

/// When one waiter, a key or a read, may ask about its lost writes. Each question without an answer doubles the pause.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pause: Duration,
    next: Option<Instant>,
}

/// What became of the questions of one waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Asked {
    /// None was asked: nothing is lost, or the budget is used up.
    Nothing,
    /// Each was answered.
    Answered,
    /// One at least was not.
    Silent,
}

// === impl Budget ===

impl Budget {
    /// Takes one question, if there is one left.
    fn take(&mut self, now: Instant) -> bool {
        if self.not_before.is_some_and(|not_before| now < not_before) {
            return false;
        }
        let fresh = |(begin, _): &(Instant, usize)| now - *begin < Duration::from_secs(1);
        let (begin, asked) = self.second.filter(fresh).unwrap_or((now, 0));
        self.second = Some((begin, (asked + 1).min(ASKS)));
        asked < ASKS
    }

    /// The server asked not to be called for so long.
    fn pause(&mut self, now: Instant, retry_after: Duration) {
        let until = now + retry_after.min(LONGEST_PAUSE);
        self.not_before = self.not_before.max(Some(until));
    }
}

// === impl Asking ===

impl Asking {
    /// For a key that has failed so often in a row: its first pause grows with its back-off.
    pub(crate) fn after(failures: u32) -> Self {
        let doubled = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
        Self {
            pause: FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE),
            next: None,
        }
    }

    pub(crate) fn is_due(&self) -> bool {
        self.next.is_none_or(|next| next <= Instant::now())
    }

    /// Whether anything was asked yet.
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
    async fn ask(&self, client: &Client, write: &Write, limit: Duration) -> Option<Effect> {
        if write.key.name.is_empty() {
            return self.ask_of_many(client, write, limit).await;
        }
        // Before the question: what is held later may have been made since.
        let held = self.held(write);
        match self.live(client, write, limit).await? {
            Ok(Some(meta)) => Some(write.effect.clone().then(Effect::of_written(&meta))),
            Ok(None) => Some(write.effect.absent(held)),
            Err(error) => {
                self.rest_after(&error);
                tracing::debug!(key = %write.key, %error, "a write may have happened; the server does not say");
                None
            }
        }
    }

    /// Asks nothing for as long as the server asked for in `error`.
    pub(super) fn rest_after(&self, error: &client::Error) {
        if let Some(retry_after) = error.retry_after() {
            let now = Instant::now();
            self.shared.asks.lock().pause(now, retry_after);
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
    /// and puts that in their place. Writes to what is not cached are left alone, and so are those for which the budget
    /// of the cluster has no question left.
    pub(crate) async fn ask_for_lost(
        &self,
        client: &Client,
        writes: impl IntoIterator<Item = &mut Write>,
        deadline: Instant,
    ) -> Asked {
        let now = Instant::now();
        let left = deadline.saturating_duration_since(now);
        if left.is_zero() {
            return Asked::Nothing;
        }
        let mut lost: Vec<&mut Write> = writes
            .into_iter()
            .filter(|write| write.is_lost() && self.covers(write))
            .take_while(|_| self.shared.asks.lock().take(now))
            .collect();
        if lost.is_empty() {
            return Asked::Nothing;
        }
        let asking = lost.iter_mut().map(async |write| {
            if let Some(effect) = self.ask(client, write, left).await {
                write.effect = effect;
            }
        });
        // What was answered by then is known.
        let _ = timeout_at(deadline, join_all(asking)).await;
        if lost.iter().any(|write| write.is_lost()) {
            Asked::Silent
        } else {
            Asked::Answered
        }
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
        let client = client.unbound().with_deadline(limit.min(ANSWER));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_gets_eight_questions_in_a_second_and_none_while_it_asks_for_rest() {
        let mut budget = Budget::default();
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let taken =
            |budget: &mut Budget, millis| (0..20).filter(|_| budget.take(at(millis))).count();
        assert_eq!(taken(&mut budget, 0), 8);
        assert_eq!(taken(&mut budget, 999), 0);
        assert_eq!(taken(&mut budget, 1000), 8);
        budget.pause(at(1000), Duration::from_secs(7));
        budget.pause(at(1000), Duration::from_secs(2));
        assert_eq!(taken(&mut budget, 7999), 0);
        assert_eq!(taken(&mut budget, 8000), 8);
        budget.pause(at(8000), Duration::from_secs(86_400));
        assert_eq!(taken(&mut budget, 68_000), 8, "a minute at most");
    }

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
