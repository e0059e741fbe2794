//! The writes of the keys of one controller that its caches have not shown yet.
//!
//! A key is held back until they show what it wrote ([`OwnWrites::hold`]). Keys that do not come back are looked after
//! by a sweep ([`OwnWrites::sweep`]), about once a second while there are any:
//!
//! * what the caches show by now, or have not shown within the time-out, is forgotten; but for writes whose answers were
//!   lost, which wait ten minutes for their key: its back-off may be longer than the time-out;
//! * an **object of ours that no cache ever showed** may be deleted unseen: a list made again, or a history cut short,
//!   has neither its creation nor its deletion, so no event brings the key back. When a store has passed the version
//!   of the write and has not the object, the server is asked, once. If the object is gone the key comes back; if it is
//!   there it is not selected, and no event of it will ever come.
//!
//! A write whose answer was lost is settled by one live read before its key goes on. No worker waits for that: the key
//! is put back, and the reads are made beside the workers ([`OwnWrites::ask_for_lost`]).

mod lost;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use parking_lot::{Mutex, MutexGuard};
use reeve_informer::ObjectKey;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::cache::{Asking, Caches};
use crate::client::Client;
use crate::client::writes::{Effect, FIRST_LOOK, LAST_LOOK, Standing, Write};
use crate::reconcile::RequestKey;

/// How long the events of a write have before it is looked what became of it, and how often that is.
const SWEEP: Duration = Duration::from_secs(1);
/// How many objects the server is asked for at once, and after each other [`SWEEP`].
const ASKS: usize = 8;
/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(5);
/// A store that has not come to a write for so long is not waited for any more: the server is asked. A key that has not
/// come back for so long is not waited for either.
const LATE: Duration = Duration::from_secs(600);

/// The writes of all keys of a controller.
pub(super) struct OwnWrites<R> {
    /// How long a key waits for its own.
    limit: Duration,
    noted: Mutex<Noted<R>>,
    /// Whether anything is noted: most keys write nothing, and need not take the lock. Set under it.
    any: AtomicBool,
    /// Something was noted.
    news: Notify,
    /// A key waits for the answer to a question about its lost writes.
    questions: Notify,
}

/// Where writes go: the caches of a cluster, and a client that asks it.
pub(super) struct Place {
    caches: Caches,
    client: Client,
}

/// A write and where it went.
#[derive(Clone)]
pub(super) struct Own {
    place: Arc<Place>,
    write: Write,
}

struct Noted<R> {
    unseen: HashMap<R, Unseen>,
    /// Objects that a key wrote and that no cache has shown.
    hidden: HashMap<R, Vec<Hidden>>,
    /// Held keys with lost writes, about which the server is to be asked. Each key once.
    asks: Vec<R>,
    /// How many runs were noted: the number of the next.
    runs: u64,
}

/// What a key waits for.
struct Unseen {
    writes: Vec<Own>,
    since: Instant,
    look: Duration,
    /// Since when the key is put back for it, and so will come.
    held: Option<Instant>,
    /// The number of the run that wrote them.
    run: u64,
    asking: Asking,
    /// A question about the lost ones is under way.
    asked: bool,
}

#[derive(Clone)]
struct Hidden {
    own: Own,
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

// === impl Place ===

impl Place {
    pub(super) fn new(caches: &Caches, client: &Client) -> Arc<Self> {
        Arc::new(Self {
            caches: caches.clone(),
            client: client.clone(),
        })
    }

    /// What was written here.
    pub(super) fn own(self: &Arc<Self>, writes: Vec<Write>) -> Vec<Own> {
        let own = |write| Own {
            place: Arc::clone(self),
            write,
        };
        writes.into_iter().map(own).collect()
    }
}

// === impl Own ===

impl Own {
    /// Whether both are of one object.
    fn is_of(&self, other: &Self) -> bool {
        self.write.is_of(&other.write) && self.place.caches.is(&other.place.caches)
    }

    /// Whether it may have happened, and its effect is not known.
    fn is_lost(&self) -> bool {
        self.write.is_lost()
    }

    fn is_covered(&self) -> bool {
        self.place.caches.covers(&self.write)
    }

    fn is_seen(&self) -> bool {
        self.place.caches.has_seen(&self.write)
    }

    fn standing(&self) -> Option<Standing> {
        self.place.caches.standing(&self.write)
    }

    /// Asks whether the written object is there.
    async fn ask(&self) -> Answer {
        let Effect::Version { uid, .. } = &self.write.effect else {
            return Answer::There;
        };
        let Place { caches, client } = &*self.place;
        match caches.live(client, &self.write, ANSWER).await {
            // Nobody watches the kind any more.
            None => Answer::There,
            Some(Ok(live)) => match live {
                Some(live) if live.uid == *uid => Answer::There,
                _ => Answer::Gone,
            },
            Some(Err(error)) if error.is_outage() => Answer::Silent,
            Some(Err(error)) => {
                tracing::warn!(
                    object = %self.write.key, %error,
                    "whether an own object is gone that no watch told of, the server does not say"
                );
                Answer::Refused
            }
        }
    }
}

// === impl OwnWrites ===

impl<R: RequestKey> OwnWrites<R> {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            noted: Mutex::default(),
            any: AtomicBool::new(false),
            news: Notify::new(),
            questions: Notify::new(),
        }
    }

    /// Notes what the last run of `key` wrote.
    pub(super) fn remember(&self, key: &R, mut writes: Vec<Own>) {
        writes.retain(Own::is_covered);
        if writes.is_empty() {
            return;
        }
        let mut noted = self.noted.lock();
        follow(&mut noted, key, &writes);
        noted.runs += 1;
        let unseen = Unseen {
            writes,
            since: Instant::now(),
            look: FIRST_LOOK,
            held: None,
            run: noted.runs,
            asking: Asking::after(0),
            asked: false,
        };
        noted.unseen.insert(key.clone(), unseen);
        self.is_noted(noted);
    }

    /// Something was noted, under this lock.
    fn is_noted(&self, noted: MutexGuard<'_, Noted<R>>) {
        self.any.store(true, Ordering::Release);
        drop(noted);
        self.news.notify_one();
    }

    /// Workers begin: those before them, and what was asked for them, are gone. The keys come back, and have their time
    /// from now on, for the caches may have stood still meanwhile.
    pub(super) fn begin(&self) {
        let mut noted = self.noted.lock();
        noted.asks.clear();
        let now = Instant::now();
        for unseen in noted.unseen.values_mut() {
            (unseen.since, unseen.look) = (now, FIRST_LOOK);
            (unseen.held, unseen.asked) = (None, false);
        }
    }

    /// Whether `key`, which has failed so often in a row, may be reconciled.
    pub(super) fn hold(&self, key: &R, failures: u32) -> Hold {
        // What the last run of this key wrote was noted before the queue could hand it out again.
        if !self.any.load(Ordering::Acquire) {
            return Hold::Go;
        }
        let mut noted = self.noted.lock();
        let noted = &mut *noted;
        let Some(unseen) = noted.unseen.get_mut(key) else {
            return Self::go(noted, key, Hold::Go);
        };
        let now = Instant::now();
        let held = *unseen.held.get_or_insert_with(|| {
            unseen.asking = Asking::after(failures);
            now
        });
        unseen.writes.retain(|own| !own.is_seen());
        let Some(first) = unseen.writes.first() else {
            noted.unseen.remove(key);
            return Self::go(noted, key, Hold::Go);
        };
        let left = self.limit.saturating_sub(now - unseen.since);
        let lost = unseen.writes.iter().any(Own::is_lost);
        // A key that comes late, after a long back-off, has the server asked once all the same.
        let once = ANSWER.min(self.limit).saturating_sub(now - held);
        let answers = lost && (unseen.asked || !unseen.asking.has_begun());
        let left = if answers { left.max(once) } else { left };
        if left.is_zero() {
            let first = first.write.key.clone();
            let late = noted.unseen.remove(key);
            let writes = late.map(|late| late.writes).unwrap_or_default();
            follow(noted, key, &writes);
            self.news.notify_one();
            return Self::go(noted, key, Hold::Late(first));
        }
        if lost && !unseen.asked && unseen.asking.is_due() {
            unseen.asked = true;
            noted.asks.push(key.clone());
            self.questions.notify_one();
        }
        let pause = unseen.look.min(left);
        unseen.look = (unseen.look * 2).min(LAST_LOOK);
        Hold::Wait(pause)
    }

    /// What the caches show now of the objects of `key`, its next run sees.
    fn go(noted: &mut Noted<R>, key: &R, hold: Hold) -> Hold {
        if let Some(hidden) = noted.hidden.get_mut(key) {
            hidden.retain(|hidden| hidden.own.standing() == Some(Standing::Behind));
            if hidden.is_empty() {
                noted.hidden.remove(key);
            }
        }
        hold
    }

    /// Looks after keys that do not come back, for ever: calls `gone` with each of which an object is gone that no
    /// cache ever showed.
    pub(super) async fn sweep(&self, gone: impl Fn(R)) -> Infallible {
        loop {
            // What was noted before it began, too: those before were cut off with their workers.
            while !self.is_empty() {
                sleep(SWEEP).await;
                self.forget_seen();
                self.look_for_hidden().await.into_iter().for_each(&gone);
            }
            self.news.notified().await;
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
            if unseen.held.is_some() || age < SWEEP {
                continue;
            }
            // What was lost, the server is asked about when the key comes.
            let keeps = |own: &Own| age < self.limit || (own.is_lost() && age < LATE);
            unseen.writes.retain(|own| keeps(own) && !own.is_seen());
            if unseen.writes.is_empty() {
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
                if ask && asked.len() < ASKS {
                    asked.push((key.clone(), one.own.clone()));
                }
                true
            });
            if hidden.is_empty() {
                noted.hidden.remove(&key);
            }
        }
        let answers = asked.iter().map(|(_, own)| own.ask());
        let answers = join_all(answers).await;
        for ((key, own), answer) in asked.into_iter().zip(answers) {
            if matches!(answer, Answer::Silent) || !self.forget_hidden(&key, &own) {
                continue;
            }
            if matches!(answer, Answer::Gone) {
                tracing::debug!(%key, object = %own.write.key, "an own object is gone that no watch told of");
                gone.push(key);
            }
        }
        gone
    }

    /// Forgets one object; false if it is not followed any more, for its key came back or wrote it again.
    fn forget_hidden(&self, key: &R, own: &Own) -> bool {
        let mut noted = self.noted.lock();
        let Some(hidden) = noted.hidden.get_mut(key) else {
            return false;
        };
        let before = hidden.len();
        hidden.retain(|hidden| hidden.own.write != own.write || !hidden.own.is_of(own));
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
            // The runs stay counted: an answer that comes late is of none of those that are noted later.
            let runs = noted.runs;
            *noted = Noted::default();
            noted.runs = runs;
            self.any.store(false, Ordering::Release);
        }
        empty
    }
}

/// Follows those of the written objects that no cache shows.
fn follow<R: RequestKey>(noted: &mut Noted<R>, key: &R, writes: &[Own]) {
    let mut hidden = noted.hidden.remove(key).unwrap_or_default();
    let since = Instant::now();
    for own in writes {
        if own.is_lost() {
            continue;
        }
        hidden.retain(|hidden| !hidden.own.is_of(own));
        let standing = own.standing();
        if standing.is_some_and(|standing| standing != Standing::Shown) {
            let own = own.clone();
            hidden.push(Hidden { own, since });
        }
    }
    if !hidden.is_empty() {
        noted.hidden.insert(key.clone(), hidden);
    }
}

impl<R> Default for Noted<R> {
    fn default() -> Self {
        Self {
            unseen: HashMap::new(),
            hidden: HashMap::new(),
            asks: Vec::new(),
            runs: 0,
        }
    }
}
