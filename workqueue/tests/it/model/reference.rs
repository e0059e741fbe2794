//! A work queue that is obviously correct: plain vectors, searched from end to end, stepped
//! millisecond by millisecond.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const PERIOD: u64 = 10;
pub(crate) const BURST: u64 = 3;
pub(crate) const BASE: u64 = 2;
pub(crate) const MAX: u64 = 50;
pub(crate) const MAX_WAIT: u64 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Exponential back-off alone.
    Exponential,
    /// With a token bucket.
    Bucket,
    /// All of it cut at [`MAX_WAIT`].
    MaxWait,
}

/// Configuration of the queue. Times are milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub(crate) limit: Limit,
    pub(crate) ageing: Option<u64>,
    pub(crate) fair: bool,
    pub(crate) min_interval: u64,
    pub(crate) expiry: u64,
}

/// The tenant of a key, and its weight.
pub(crate) fn tenant(key: u8) -> (u8, u32) {
    (key % 2, u32::from(key % 2) + 1)
}

/// The request of an add.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wish {
    pub(crate) after: Option<u64>,
    pub(crate) limited: bool,
    /// The minimum delay of the server.
    pub(crate) least: u64,
    pub(crate) priority: i32,
    pub(crate) reasons: BTreeSet<&'static str>,
}

#[derive(Clone, Debug, Default)]
struct Key {
    wanted: Option<Wanted>,
    running: bool,
    failures: u32,
    error: Option<String>,
    /// Since when the key has been kept for its failures only.
    recorded: Option<u64>,
    handed_out: Option<u64>,
}

#[derive(Clone, Debug)]
struct Wanted {
    priority: i32,
    reasons: BTreeSet<&'static str>,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    /// The number orders equal items; it has no meaning while the key runs.
    Ready { order: u64, since: u64 },
    Later {
        wait: Wait,
        /// Position in the token queue.
        in_line: Option<u64>,
        /// Order among timers of the same time.
        order: u64,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct Wait {
    /// Ready at this time, without a token.
    at: Option<u64>,
    /// In the token queue from this time on.
    join: Option<u64>,
}

/// An item that is handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handed {
    pub(crate) key: u8,
    pub(crate) priority: i32,
    pub(crate) failures: u32,
    pub(crate) reasons: BTreeSet<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shutdown {
    No,
    Delayed,
    Drain,
    Now,
}

#[derive(Clone, Debug)]
pub(crate) struct Reference {
    config: Config,
    pub(crate) now: u64,
    keys: BTreeMap<u8, Key>,
    /// Milliseconds of refill in the bucket.
    bucket: u64,
    count: u64,
    pub(crate) shutdown: Shutdown,
    stopped: bool,
    pub(crate) refused: u64,
    /// For each priority: the tenants with ready items, in the order of their turns, and the rest of each turn.
    turns: BTreeMap<Reverse<i32>, Vec<(u8, u32)>>,
    /// The last hand-out went past an overdue item.
    owed: bool,
}

impl Wait {
    fn first(&self) -> Option<u64> {
        min(self.at, self.join)
    }

    fn without_useless_line(mut self) -> Self {
        if let (Some(join), Some(ready)) = (self.join, self.at)
            && join >= ready
        {
            self.join = None;
        }
        self
    }
}

impl Reference {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            now: 0,
            keys: BTreeMap::new(),
            bucket: BURST * PERIOD,
            count: 0,
            shutdown: Shutdown::No,
            stopped: false,
            refused: 0,
            turns: BTreeMap::new(),
            owed: false,
        }
    }

    fn next_order(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn key(&mut self, key: u8) -> &mut Key {
        self.keys.entry(key).or_default()
    }

    pub(crate) fn add(&mut self, key: u8, wish: Wish) {
        if self.shutdown != Shutdown::No {
            self.refused += 1;
            return;
        }
        if self.failures(key) == 0 {
            self.clear_failures(key);
        }
        if wish.limited {
            self.key(key).failures += 1;
        }
        self.want(key, wish);
        self.remember(key);
    }

    /// The times the request waits for; `None`: none. The failure is counted already.
    fn wait(&mut self, key: u8, wish: &Wish) -> Option<Wait> {
        let now = self.now;
        let mut wait = Wait {
            at: wish.after.map(|after| now + after),
            ..Wait::default()
        };
        if wish.limited {
            let failures = self.key(key).failures;
            let own = (BASE << (failures - 1).min(20)).min(MAX);
            match self.config.limit {
                Limit::Exponential => wait.at = min(wait.at, Some(now + own.max(wish.least))),
                Limit::Bucket => wait.join = Some(now + own.max(wish.least)),
                Limit::MaxWait => {
                    wait.join = Some(now + own.min(MAX_WAIT).max(wish.least));
                    wait.at = min(wait.at, Some(now + MAX_WAIT.max(wish.least)));
                }
            }
        }
        let at_once = wait.first().is_none() || wait.at.is_some_and(|at| at <= now);
        let until = self
            .key(key)
            .handed_out
            .map(|at| at + self.config.min_interval);
        let held = until.filter(|&until| until > now);
        match (at_once, held) {
            (true, None) => None,
            (false, None) => Some(wait.without_useless_line()),
            (true, Some(until)) => Some(Wait {
                at: Some(until),
                ..Wait::default()
            }),
            (false, Some(until)) => {
                let later = |at: u64| at.max(until);
                let wait = wait.without_useless_line();
                let wait = Wait {
                    at: wait.at.map(later),
                    join: wait.join.map(later),
                };
                Some(wait.without_useless_line())
            }
        }
    }

    fn want(&mut self, key: u8, wish: Wish) {
        let wait = self.wait(key, &wish);
        let order = self.next_order();
        let known = self.key(key);
        let was_queued = !known.running
            && matches!(
                known.wanted,
                Some(Wanted {
                    stage: Stage::Ready { .. },
                    ..
                })
            );
        let mut wanted = known.wanted.take().unwrap_or(Wanted {
            priority: wish.priority,
            reasons: BTreeSet::new(),
            stage: Stage::Later {
                wait: Wait::default(),
                in_line: None,
                order,
            },
        });
        wanted.reasons.extend(wish.reasons);
        let rises = wish.priority > wanted.priority;
        let before = wanted.priority;
        wanted.priority = wanted.priority.max(wish.priority);
        let mut becomes_ready = false;
        match (&mut wanted.stage, wait) {
            (Stage::Ready { order: old, .. }, _) => {
                if rises {
                    *old = order;
                }
            }
            (Stage::Later { .. }, None) => becomes_ready = true,
            (
                Stage::Later {
                    wait: old,
                    in_line,
                    order: old_order,
                },
                Some(new),
            ) => {
                let first = old.first();
                old.at = min(old.at, new.at);
                if in_line.is_none() {
                    old.join = min(old.join, new.join);
                }
                if old.first() != first {
                    *old_order = order;
                }
            }
        }
        known.wanted = Some(wanted);
        if becomes_ready {
            self.ready(key);
        } else if rises && was_queued {
            self.leave_class(key, before);
            self.enter_class(key);
        }
        self.settle_time();
    }

    /// Advances time.
    pub(crate) fn advance(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds {
            self.now += 1;
            self.bucket = (self.bucket + 1).min(BURST * PERIOD);
            self.settle_time();
        }
    }

    fn later(&self) -> impl Iterator<Item = (u8, &Wait, Option<u64>, u64)> + '_ {
        self.keys.iter().flat_map(|(&key, known)| {
            known
                .wanted
                .iter()
                .filter_map(move |wanted| match &wanted.stage {
                    Stage::Later {
                        wait,
                        in_line,
                        order,
                    } => Some((key, wait, *in_line, *order)),
                    Stage::Ready { .. } => None,
                })
        })
    }

    /// Applies the timers and tokens of this millisecond.
    fn settle_time(&mut self) {
        loop {
            let in_line = self
                .later()
                .filter_map(|(key, _, place, _)| Some((place?, key)));
            if let Some((_, key)) = in_line.min()
                && self.bucket >= PERIOD
            {
                self.bucket -= PERIOD;
                self.ready(key);
                continue;
            }
            let timers = self.later();
            let due = timers
                .filter_map(|(key, wait, _, order)| Some((wait.first()?, order, key)))
                .min();
            match due {
                Some((when, _, key)) if when <= self.now => self.fire(key),
                _ => return,
            }
        }
    }

    fn fire(&mut self, key: u8) {
        let next = self.next_order();
        let now = self.now;
        let Some(wanted) = &mut self.key(key).wanted else {
            return;
        };
        if let Stage::Later {
            wait,
            in_line,
            order,
        } = &mut wanted.stage
        {
            if wait.at.is_some_and(|at| at <= now) {
                self.ready(key);
            } else {
                wait.join = None;
                *in_line = Some(next);
                *order = next;
            }
        }
    }

    fn ready(&mut self, key: u8) {
        let order = self.next_order();
        let since = self.now;
        let known = self.key(key);
        if let Some(wanted) = &mut known.wanted {
            wanted.stage = Stage::Ready { order, since };
        }
        if !known.running {
            self.enter_class(key);
        }
    }

    fn tenant(&self, key: u8) -> (u8, u32) {
        if self.config.fair {
            tenant(key)
        } else {
            (0, 1)
        }
    }

    /// Adds its tenant to the turns of its priority, if it is not there.
    fn enter_class(&mut self, key: u8) {
        let (tenant, weight) = self.tenant(key);
        let Some(wanted) = &self.keys[&key].wanted else {
            return;
        };
        let turns = self.turns.entry(Reverse(wanted.priority)).or_default();
        if !turns.iter().any(|&(other, _)| other == tenant) {
            turns.push((tenant, weight));
        }
    }

    /// Removes its tenant from the turns if it has no other item.
    fn leave_class(&mut self, key: u8, priority: i32) {
        let (tenant, _) = self.tenant(key);
        let mut others = self.queued();
        let left = others.any(|(p, t, ..)| p == priority && t == tenant);
        drop(others);
        if !left && let Some(turns) = self.turns.get_mut(&Reverse(priority)) {
            turns.retain(|&(other, _)| other != tenant);
        }
    }

    /// Priority, tenant, order, key, since.
    fn queued(&self) -> impl Iterator<Item = (i32, u8, u64, u8, u64)> + '_ {
        self.keys.iter().filter_map(|(&key, known)| {
            let wanted = known.wanted.as_ref()?;
            match wanted.stage {
                Stage::Ready { order, since } if !known.running => {
                    Some((wanted.priority, self.tenant(key).0, order, key, since))
                }
                _ => None,
            }
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.queued().count()
    }

    pub(crate) fn take(&mut self) -> Option<Handed> {
        if self.stopped {
            return None;
        }
        // The next item of each priority, highest first.
        let mut heads = Vec::new();
        for (priority, turns) in &self.turns {
            if let Some(&(tenant, _)) = turns.first() {
                let of_tenant = self
                    .queued()
                    .filter(|&(p, t, ..)| p == priority.0 && t == tenant);
                heads.extend(of_tenant.min_by_key(|&(_, _, order, ..)| order));
            }
        }
        let &(mut priority, mut tenant, _, mut key, _) = heads.first()?;
        let overdue = heads[1..].iter().min_by_key(|&&(.., since)| since).copied();
        let overdue = overdue.filter(|&(.., since)| {
            let ageing = self.config.ageing;
            ageing.is_some_and(|ageing| since + ageing <= self.now)
        });
        match overdue {
            Some((p, t, _, k, _)) if self.owed => {
                (priority, tenant, key) = (p, t, k);
                self.owed = false;
            }
            Some(_) => self.owed = true,
            None => self.owed = false,
        }
        let now = self.now;
        let known = self.key(key);
        let wanted = known.wanted.take()?;
        known.running = true;
        known.handed_out = Some(now);
        let failures = known.failures;
        self.charge(priority, tenant, key);
        Some(Handed {
            key,
            priority: wanted.priority,
            failures,
            reasons: wanted.reasons,
        })
    }

    fn charge(&mut self, priority: i32, tenant: u8, key: u8) {
        self.leave_class(key, priority);
        let weight = self.tenant(key).1;
        if let Some(turns) = self.turns.get_mut(&Reverse(priority))
            && let Some(index) = turns.iter().position(|&(other, _)| other == tenant)
        {
            turns[index].1 -= 1;
            if turns[index].1 == 0 {
                turns.remove(index);
                turns.push((tenant, weight));
            }
        }
    }

    /// Called after each operation: determines whether a key is kept for its failures only.
    fn remember(&mut self, key: u8) {
        let now = self.now;
        let known = self.key(key);
        let idle = !known.running && known.wanted.is_none();
        if !idle || known.failures == 0 {
            known.recorded = None;
        } else if known.recorded.is_none() {
            known.recorded = Some(now);
        }
    }

    fn ended(&mut self, key: u8) {
        let order = self.next_order();
        let known = self.key(key);
        known.running = false;
        if let Some(wanted) = &mut known.wanted
            && let Stage::Ready { order: old, .. } = &mut wanted.stage
        {
            *old = order;
            self.enter_class(key);
        }
        self.remember(key);
    }

    pub(crate) fn done(&mut self, key: u8) {
        self.ended(key);
    }

    fn clear_failures(&mut self, key: u8) {
        let known = self.key(key);
        known.failures = 0;
        known.error = None;
    }

    pub(crate) fn forget(&mut self, key: u8) {
        self.clear_failures(key);
        self.remember(key);
    }

    pub(crate) fn retry(&mut self, key: u8, priority: i32, error: Option<String>, least: u64) {
        let known = self.key(key);
        known.failures += 1;
        if error.is_some() {
            known.error = error;
        }
        if self.shutdown == Shutdown::No {
            let wish = Wish {
                limited: true,
                least,
                priority,
                reasons: BTreeSet::from(["retry"]),
                ..Wish::default()
            };
            self.want(key, wish);
        } else {
            self.refused += 1;
        }
        self.ended(key);
    }

    pub(crate) fn requeue_after(&mut self, key: u8, after: u64, priority: i32) {
        self.clear_failures(key);
        if self.shutdown == Shutdown::No {
            let wish = Wish {
                after: Some(after),
                priority,
                reasons: BTreeSet::from(["timer"]),
                ..Wish::default()
            };
            self.want(key, wish);
        } else {
            self.refused += 1;
        }
        self.ended(key);
    }

    pub(crate) fn put_back(
        &mut self,
        key: u8,
        after: u64,
        priority: i32,
        reasons: BTreeSet<&'static str>,
    ) {
        self.key(key).handed_out = None;
        if self.shutdown == Shutdown::No {
            let wish = Wish {
                after: Some(after),
                priority,
                reasons,
                ..Wish::default()
            };
            self.want(key, wish);
        } else {
            self.refused += 1;
        }
        self.ended(key);
    }

    pub(crate) fn hasten(&mut self, key: u8, delay: u64) -> bool {
        let known = self.key(key);
        let later = |wanted: &Wanted| matches!(wanted.stage, Stage::Later { .. });
        let waits = !known.running && known.wanted.as_ref().is_some_and(later);
        if waits {
            let wish = Wish {
                after: Some(delay),
                priority: i32::MIN,
                ..Wish::default()
            };
            self.want(key, wish);
        }
        self.remember(key);
        waits
    }

    pub(crate) fn cancel(&mut self, key: u8) -> bool {
        let known = self.key(key);
        let wanted = known.wanted.take();
        if let Some(wanted) = &wanted {
            self.leave_class(key, wanted.priority);
        }
        self.remember(key);
        wanted.is_some()
    }

    pub(crate) fn failures(&mut self, key: u8) -> u32 {
        let (now, expiry) = (self.now, self.config.expiry);
        let known = self.key(key);
        match known.recorded {
            Some(at) if at + expiry <= now => 0,
            _ => known.failures,
        }
    }

    pub(crate) fn error(&mut self, key: u8) -> Option<String> {
        self.key(key).error.clone()
    }

    /// Returns the number of dropped items.
    pub(crate) fn shut_down(&mut self, how: Shutdown) -> usize {
        self.shutdown = how;
        if how == Shutdown::Delayed {
            return 0;
        }
        let dropped = self.later().count();
        for known in self.keys.values_mut() {
            if let Some(wanted) = &known.wanted
                && matches!(wanted.stage, Stage::Later { .. })
            {
                known.wanted = None;
            }
        }
        for key in 0..=u8::MAX {
            if self.keys.contains_key(&key) {
                self.remember(key);
            }
        }
        dropped
    }

    /// Stops handing out items.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    fn dirty(&self) -> usize {
        let keys = self.keys.values();
        let dirty = keys.filter(|known| {
            let stage = known.wanted.as_ref().map(|wanted| &wanted.stage);
            known.running && matches!(stage, Some(Stage::Ready { .. }))
        });
        dirty.count()
    }

    /// Whether `get` would return `None`.
    pub(crate) fn closed(&self) -> bool {
        match self.shutdown {
            _ if self.stopped => true,
            Shutdown::No => false,
            Shutdown::Drain | Shutdown::Delayed => {
                self.len() == 0 && self.dirty() == 0 && self.later().count() == 0
            }
            Shutdown::Now => self.len() == 0,
        }
    }

    pub(crate) fn drained(&self) -> bool {
        match self.shutdown {
            Shutdown::No => false,
            Shutdown::Drain | Shutdown::Delayed => self.closed() && self.counts().2 == 0,
            Shutdown::Now => true,
        }
    }

    /// Waiting, ready, in flight.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let running = self.keys.values().filter(|known| known.running);
        (self.later().count(), self.len(), running.count())
    }

    /// Still to be handed out, now or after the current run.
    pub(crate) fn left_ready(&self) -> usize {
        self.len() + self.dirty()
    }
}

fn min(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}
