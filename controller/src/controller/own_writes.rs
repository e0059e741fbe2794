//! The writes of the keys of one controller that its caches have not shown yet.
//!
//! A key is held back until they show what it wrote ([`OwnWrites::hold`]). Keys that do not come back are looked after
//! by a sweep ([`OwnWrites::sweep`]), about once a second while there are any:
//!
//! * what the caches show by now, or have not shown within the time-out, is forgotten;
//! * an **object of ours that no cache ever showed** may be deleted unseen: a list made again, or a history cut short,
//!   has neither its creation nor its deletion, so no event brings the key back. When a store has passed the version
//!   of the write and has not the object, the server is asked, once. If the object is gone the key comes back; if it is
//!   there it is not selected, and no event of it will ever come.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use reeve_informer::ObjectKey;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::cache::Caches;
use crate::client::Client;
use crate::client::writes::{Effect, FIRST_LOOK, LAST_LOOK, Standing, Write};
use crate::reconcile::RequestKey;

/// How long the events of a write have before it is looked what became of it, and how often that is.
const SWEEP: Duration = Duration::from_secs(1);
/// How many objects the server is asked for at once, and after each other [`SWEEP`].
const ASKS: usize = 8;
/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(5);
/// A store that has not come to a write for so long is not waited for any more: the server is asked.
const LATE: Duration = Duration::from_secs(600);

/// The writes of all keys of a controller.
pub(super) struct OwnWrites<R> {
    /// How long a key waits for its own.
    limit: Duration,
    caches: Caches,
    client: Client,
    noted: Mutex<Noted<R>>,
    /// Something was noted.
    news: Notify,
}

struct Noted<R> {
    unseen: HashMap<R, Unseen>,
    /// Objects that a key wrote and that no cache has shown.
    hidden: HashMap<R, Vec<Hidden>>,
}

/// What a key waits for.
struct Unseen {
    writes: Vec<Write>,
    since: Instant,
    look: Duration,
    /// The key was put back for it, and so will come.
    held: bool,
}

#[derive(Clone)]
struct Hidden {
    write: Write,
    since: Instant,
}

/// Whether a key may be reconciled.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Its caches show what it wrote.
    Go,
    /// They do not: look again after this long.
    Wait(Duration),
    /// They do not in time, this object's write for one.
    Late(ObjectKey),
}

/// What the server says of a hidden object.
enum Answer {
    Gone,
    There,
    /// It does not answer now.
    Silent,
    /// It does not tell us.
    Refused,
}

// === impl OwnWrites ===

impl<R: RequestKey> OwnWrites<R> {
    pub(super) fn new(limit: Duration, caches: &Caches, client: &Client) -> Self {
        Self {
            limit,
            caches: caches.clone(),
            client: client.clone(),
            noted: Mutex::default(),
            news: Notify::new(),
        }
    }

    /// Notes what the last run of `key` wrote.
    pub(super) fn remember(&self, key: &R, mut writes: Vec<Write>) {
        writes.retain(|write| self.caches.covers(write));
        if writes.is_empty() {
            return;
        }
        let mut noted = self.noted.lock();
        self.follow(&mut noted, key, &writes);
        let unseen = Unseen {
            writes,
            since: Instant::now(),
            look: FIRST_LOOK,
            held: false,
        };
        noted.unseen.insert(key.clone(), unseen);
        drop(noted);
        self.news.notify_one();
    }

    /// Whether `key` may be reconciled.
    pub(super) async fn hold(&self, key: &R) -> Hold {
        let unseen = self.noted.lock().unseen.remove(key);
        let Some(mut unseen) = unseen else {
            return self.go(key, Hold::Go);
        };
        let deadline = self.deadline(&unseen);
        self.caches
            .ask_for_lost(&self.client, &mut unseen.writes, deadline)
            .await;
        unseen.writes.retain(|write| !self.caches.has_seen(write));
        let Some(first) = unseen.writes.first() else {
            return self.go(key, Hold::Go);
        };
        let waited = unseen.since.elapsed();
        if waited >= self.limit {
            let first = first.key.clone();
            self.follow(&mut self.noted.lock(), key, &unseen.writes);
            return self.go(key, Hold::Late(first));
        }
        let pause = unseen.look.min(self.limit.saturating_sub(waited));
        unseen.look = (unseen.look * 2).min(LAST_LOOK);
        unseen.held = true;
        self.noted.lock().unseen.insert(key.clone(), unseen);
        Hold::Wait(pause)
    }

    /// Until when the server may be asked for lost writes: no longer than the key waits for all of them, but a key that
    /// comes late for the first time asks once.
    fn deadline(&self, unseen: &Unseen) -> Instant {
        let over = unseen.since.checked_add(self.limit);
        let once = Instant::now() + ANSWER.min(self.limit);
        match over {
            Some(over) if unseen.held => over,
            over => over.unwrap_or(once).max(once),
        }
    }

    /// What the caches show now of the objects of `key`, its next run sees.
    fn go(&self, key: &R, hold: Hold) -> Hold {
        let mut noted = self.noted.lock();
        if let Some(hidden) = noted.hidden.get_mut(key) {
            hidden.retain(|hidden| self.caches.standing(&hidden.write) == Some(Standing::Behind));
            if hidden.is_empty() {
                noted.hidden.remove(key);
            }
        }
        hold
    }

    /// Follows those of the written objects that no cache shows.
    fn follow(&self, noted: &mut Noted<R>, key: &R, writes: &[Write]) {
        let mut hidden = noted.hidden.remove(key).unwrap_or_default();
        let since = Instant::now();
        for write in writes {
            if write.effect == Effect::Unknown {
                continue;
            }
            hidden.retain(|hidden| !hidden.write.is_of(write));
            let standing = self.caches.standing(write);
            if standing.is_some_and(|standing| standing != Standing::Shown) {
                let write = write.clone();
                hidden.push(Hidden { write, since });
            }
        }
        if !hidden.is_empty() {
            noted.hidden.insert(key.clone(), hidden);
        }
    }

    /// Looks after keys that do not come back, for ever: calls `gone` with each of which an object is gone that no
    /// cache ever showed.
    pub(super) async fn sweep(&self, gone: impl Fn(R)) -> Infallible {
        loop {
            self.news.notified().await;
            while !self.is_empty() {
                sleep(SWEEP).await;
                self.forget_seen();
                self.look_for_hidden().await.into_iter().for_each(&gone);
            }
        }
    }

    /// Forgets what is shown by now, and what is not waited for any more.
    fn forget_seen(&self) {
        let keys: Vec<R> = self.noted.lock().unseen.keys().cloned().collect();
        // Not all under one lock: workers want it, too.
        for key in keys {
            let mut noted = self.noted.lock();
            let Some(unseen) = noted.unseen.get_mut(&key) else {
                continue;
            };
            let age = unseen.since.elapsed();
            if unseen.held || age < SWEEP {
                continue;
            }
            unseen.writes.retain(|write| !self.caches.has_seen(write));
            if unseen.writes.is_empty() || age >= self.limit {
                noted.unseen.remove(&key);
            }
        }
    }

    /// Looks what became of the objects that no cache showed. The keys of those that are gone.
    async fn look_for_hidden(&self) -> Vec<R> {
        let keys: Vec<R> = self.noted.lock().hidden.keys().cloned().collect();
        let (mut gone, mut asked) = (Vec::new(), Vec::new());
        for key in keys {
            let mut noted = self.noted.lock();
            let Some(hidden) = noted.hidden.get_mut(&key) else {
                continue;
            };
            hidden.retain(|one| {
                let age = one.since.elapsed();
                let ask = match self.caches.standing(&one.write) {
                    _ if age < SWEEP => return true,
                    None | Some(Standing::Shown) => return false,
                    Some(Standing::Replaced) => {
                        gone.push(key.clone());
                        return false;
                    }
                    Some(Standing::Passed) => true,
                    Some(Standing::Behind) => age >= LATE,
                };
                if ask && asked.len() < ASKS {
                    asked.push((key.clone(), one.write.clone()));
                }
                true
            });
            if hidden.is_empty() {
                noted.hidden.remove(&key);
            }
        }
        let answers = asked.iter().map(|(_, write)| self.ask(write));
        let answers = join_all(answers).await;
        for ((key, write), answer) in asked.into_iter().zip(answers) {
            if matches!(answer, Answer::Silent) || !self.forget_hidden(&key, &write) {
                continue;
            }
            if matches!(answer, Answer::Gone) {
                tracing::debug!(%key, object = %write.key, "an own object is gone that no watch told of");
                gone.push(key);
            }
        }
        gone
    }

    async fn ask(&self, write: &Write) -> Answer {
        let Effect::Version { uid, .. } = &write.effect else {
            return Answer::There;
        };
        match self.caches.live(&self.client, write, ANSWER).await {
            // Nobody watches the kind any more.
            None => Answer::There,
            Some(Ok(live)) => match live {
                Some(live) if live.uid == *uid => Answer::There,
                _ => Answer::Gone,
            },
            Some(Err(error)) if error.is_outage() => Answer::Silent,
            Some(Err(error)) => {
                tracing::warn!(
                    object = %write.key, %error,
                    "whether an own object is gone that no watch told of, the server does not say"
                );
                Answer::Refused
            }
        }
    }

    /// Forgets one object; false if it is not followed any more, for its key came back or wrote it again.
    fn forget_hidden(&self, key: &R, write: &Write) -> bool {
        let mut noted = self.noted.lock();
        let Some(hidden) = noted.hidden.get_mut(key) else {
            return false;
        };
        let before = hidden.len();
        hidden.retain(|hidden| hidden.write != *write);
        let found = hidden.len() < before;
        if hidden.is_empty() {
            noted.hidden.remove(key);
        }
        found
    }

    /// Whether nothing is noted. Gives memory back then.
    pub(super) fn is_empty(&self) -> bool {
        let mut noted = self.noted.lock();
        let empty = noted.unseen.is_empty() && noted.hidden.is_empty();
        if empty {
            *noted = Noted::default();
        }
        empty
    }
}

impl<R> Default for Noted<R> {
    fn default() -> Self {
        Self {
            unseen: HashMap::new(),
            hidden: HashMap::new(),
        }
    }
}
