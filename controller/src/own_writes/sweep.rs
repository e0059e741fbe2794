//! Keys that do not come back: drops their writes, or finds objects that are gone without an event.

use std::convert::Infallible;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::asking::LIVE_READ_LIMIT;
use super::effect::{Effect, Standing};
use super::tracker::{LOOKS, Own, OwnWrites, Place};
use crate::reconcile::RequestKey;

/// The time for the events of a write before its object is checked, and the interval of the checks.
const SWEEP: Duration = Duration::from_secs(1);
/// The number of live reads of hidden objects at once.
const ASKS: usize = 8;
/// The time after which a live read replaces the wait for a store that has not reached a write, and after which a key
/// that has not come back is dropped.
const LATE: Duration = Duration::from_secs(600);

/// The result of a sweep.
struct Found<R> {
    /// Objects that need a live read.
    asks: Vec<(R, Own)>,
    /// Keys with an object that is gone.
    gone: Vec<R>,
}

/// The server's answer about a hidden object.
enum Answer {
    Gone,
    There,
    /// It does not answer now.
    Silent,
    /// It refuses the read.
    Refused,
}

// === impl Own ===

impl Own {
    /// Reads whether the written object exists.
    async fn ask(&self) -> Answer {
        let Effect::Version { uid, .. } = &self.write.effect else {
            return Answer::There;
        };
        let Place { caches, client } = &*self.place;
        caches.turn_to_sweep().await;
        let live = caches.live(client, &self.write, LIVE_READ_LIMIT).await;
        if let Some(Err(error)) = &live {
            caches.rest_after(error);
        }
        match live {
            // The kind is not watched any more.
            None => Answer::There,
            Some(Ok(live)) => match live {
                Some(live) if live.uid == *uid => Answer::There,
                _ => Answer::Gone,
            },
            Some(Err(error)) if error.is_outage() => Answer::Silent,
            Some(Err(error)) => {
                tracing::warn!(
                    object = %self.write.key, %error,
                    "could not check whether an object written by this controller still exists"
                );
                Answer::Refused
            }
        }
    }
}

// === impl OwnWrites ===

impl<R: RequestKey> OwnWrites<R> {
    /// Handles keys that do not come back, until dropped: calls `gone` with each key of an object that is gone without
    /// ever having been in a cache.
    pub(crate) async fn sweep(&self, gone: impl Fn(R)) -> Infallible {
        let mut questions = FuturesUnordered::new();
        loop {
            // Includes the records from before the begin: reads before it were cut off with their workers.
            self.begin_sweep();
            while !self.is_empty() {
                let due = Instant::now() + SWEEP;
                while let Ok(Some((key, own, answer))) = timeout_at(due, questions.next()).await {
                    if self.take_answer(&key, &own, &answer) {
                        gone(key);
                    }
                }
                sleep_until(due).await;
                self.forget_seen();
                let found = self.look_for_hidden(ASKS - questions.len());
                found.gone.into_iter().for_each(&gone);
                questions.extend(found.asks.into_iter().map(async |(key, own): (R, Own)| {
                    let answer = own.ask().await;
                    (key, own, answer)
                }));
            }
            // Their keys came back.
            questions.clear();
            self.news.notified().await;
        }
    }

    /// Drops the reads of the sweep before.
    fn begin_sweep(&self) {
        let mut noted = self.noted.lock();
        let hidden = noted.hidden.values_mut().flatten();
        hidden.for_each(|hidden| hidden.asking = false);
    }

    /// Forgets writes that are shown by now, and those whose time is over.
    fn forget_seen(&self) {
        let keys: Vec<R> = self.noted.lock().unseen.keys().cloned().collect();
        // Not all under one lock: workers need it, too.
        for key in keys {
            let mut noted = self.noted.lock();
            let Some(unseen) = noted.unseen.get_mut(&key) else {
                continue;
            };
            let age = unseen.since.elapsed();
            if unseen.held.is_some() || age < SWEEP {
                continue;
            }
            // A lost write is read from the server when the key comes.
            let keeps = |own: &Own| age < self.limit || (own.is_lost() && age < LATE);
            let mut looks = LOOKS;
            unseen
                .writes
                .retain_mut(|own| keeps(own) && (looks == 0 || !own.is_seen(&mut looks)));
            if unseen.writes.is_empty() {
                noted.unseen.remove(&key);
            }
        }
    }

    /// Checks the objects that no cache showed, and returns at most `room` that need a live read, those with the
    /// longest time since their last read first.
    fn look_for_hidden(&self, room: usize) -> Found<R> {
        let keys: Vec<R> = self.noted.lock().hidden.keys().cloned().collect();
        let (mut gone, mut unknown) = (Vec::new(), Vec::new());
        for key in keys {
            let mut noted = self.noted.lock();
            let Some(hidden) = noted.hidden.get_mut(&key) else {
                continue;
            };
            hidden.retain(|one| {
                let age = one.since.elapsed();
                let ask = match one.own.standing() {
                    _ if age < SWEEP => return true,
                    None | Some(Standing::Shown) => return false,
                    Some(Standing::Replaced) => {
                        gone.push(key.clone());
                        return false;
                    }
                    Some(Standing::Passed) => true,
                    Some(Standing::Behind) => age >= LATE,
                };
                if ask && !one.asking {
                    unknown.push((one.asked, key.clone(), one.own.clone()));
                }
                true
            });
            if hidden.is_empty() {
                noted.hidden.remove(&key);
            }
        }
        unknown.sort_by_key(|(asked, ..)| *asked);
        unknown.truncate(room);
        let asks = unknown.into_iter().map(|(_, key, own)| (key, own));
        let asks = asks.filter(|(key, own)| self.begin_asking(key, own));
        Found {
            asks: asks.collect(),
            gone,
        }
    }

    /// Marks an object as being read from the server; false if it is not followed any more.
    fn begin_asking(&self, key: &R, own: &Own) -> bool {
        let mut noted = self.noted.lock();
        let mut hidden = noted.hidden.get_mut(key).into_iter().flatten();
        let hidden = hidden.find(|hidden| hidden.own.is_same(own));
        if let Some(hidden) = hidden {
            hidden.asking = true;
            return true;
        }
        false
    }

    /// Takes the server's answer about an object that no cache showed. True if its key has to come back.
    fn take_answer(&self, key: &R, own: &Own, answer: &Answer) -> bool {
        if matches!(answer, Answer::Silent) {
            let mut noted = self.noted.lock();
            let mut hidden = noted.hidden.get_mut(key).into_iter().flatten();
            if let Some(hidden) = hidden.find(|hidden| hidden.own.is_same(own)) {
                (hidden.asking, hidden.asked) = (false, Some(Instant::now()));
            }
            return false;
        }
        let gone = self.forget_hidden(key, own) && matches!(answer, Answer::Gone);
        if gone {
            tracing::debug!(%key, object = %own.write.key, "an own object was deleted without a watch event");
        }
        gone
    }

    /// Forgets one object; false if it is not followed any more, because its key came back or wrote it again.
    fn forget_hidden(&self, key: &R, own: &Own) -> bool {
        let mut noted = self.noted.lock();
        let Some(hidden) = noted.hidden.get_mut(key) else {
            return false;
        };
        let before = hidden.len();
        hidden.retain(|hidden| !hidden.own.is_same(own));
        let found = hidden.len() < before;
        if hidden.is_empty() {
            noted.hidden.remove(key);
        }
        found
    }
}
