//! A work queue that is obviously correct: plain vectors, searched from end to end, stepped
//! millisecond by millisecond.

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
    /// And a token bucket.
    Bucket,
    /// And the whole cut at [`MAX_WAIT`].
    MaxWait,
}

#[derive(Clone, Debug, Default)]
struct Key {
    wanted: Option<Wanted>,
    running: bool,
    failures: u32,
}

#[derive(Clone, Debug)]
struct Wanted {
    priority: i32,
    reasons: BTreeSet<&'static str>,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    /// The number gives the order among equals; it means nothing while the key runs.
    Ready { order: u64 },
    Later {
        /// Ready then, without a token.
        at: Option<u64>,
        /// In line from then on.
        join: Option<u64>,
        /// Its place in line.
        in_line: Option<u64>,
        /// The order among timers of one time.
        order: u64,
    },
}

/// What is handed out.
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
    Drain,
    Now,
}

#[derive(Clone, Debug)]
pub(crate) struct Reference {
    limit: Limit,
    now: u64,
    keys: BTreeMap<u8, Key>,
    /// How many milliseconds of refill the bucket holds.
    bucket: u64,
    count: u64,
    pub(crate) shutdown: Shutdown,
    pub(crate) refused: u64,
}

impl Reference {
    pub(crate) fn new(limit: Limit) -> Self {
        Self {
            limit,
            now: 0,
            keys: BTreeMap::new(),
            bucket: BURST * PERIOD,
            count: 0,
            shutdown: Shutdown::No,
            refused: 0,
        }
    }

    fn next_order(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn key(&mut self, key: u8) -> &mut Key {
        self.keys.entry(key).or_default()
    }

    pub(crate) fn add(
        &mut self,
        key: u8,
        after: Option<u64>,
        limited: bool,
        priority: i32,
        reason: Option<&'static str>,
    ) {
        if self.shutdown != Shutdown::No {
            self.refused += 1;
            return;
        }
        self.want(key, after, limited, priority, reason);
    }

    fn want(
        &mut self,
        key: u8,
        after: Option<u64>,
        limited: bool,
        priority: i32,
        reason: Option<&'static str>,
    ) {
        let mut at = after.map(|after| self.now + after);
        let mut join = None;
        if limited {
            let failures = self.key(key).failures;
            self.key(key).failures += 1;
            let own = (BASE << failures.min(20)).min(MAX);
            match self.limit {
                Limit::Exponential => at = min(at, Some(self.now + own)),
                Limit::Bucket => join = Some(self.now + own),
                Limit::MaxWait => {
                    join = Some(self.now + own.min(MAX_WAIT));
                    at = min(at, Some(self.now + MAX_WAIT));
                }
            }
        } else if after.is_none() {
            at = Some(self.now);
        }
        if let (Some(a), Some(j)) = (at, join)
            && j >= a
        {
            join = None;
        }
        let order = self.next_order();
        let now = self.now;
        let known = self.key(key);
        let mut wanted = known.wanted.take().unwrap_or(Wanted {
            priority,
            reasons: BTreeSet::new(),
            stage: Stage::Later {
                at: None,
                join: None,
                in_line: None,
                order,
            },
        });
        wanted.reasons.extend(reason);
        let rises = priority > wanted.priority;
        wanted.priority = wanted.priority.max(priority);
        match &mut wanted.stage {
            Stage::Ready { order: old } => {
                if rises {
                    *old = order;
                }
            }
            Stage::Later {
                at: old_at,
                join: old_join,
                in_line,
                order: old_order,
            } => {
                if at.is_some_and(|at| at <= now) {
                    wanted.stage = Stage::Ready { order };
                } else {
                    let before = min(*old_at, *old_join);
                    *old_at = min(*old_at, at);
                    if in_line.is_none() {
                        *old_join = min(*old_join, join);
                    }
                    if min(*old_at, *old_join) != before {
                        *old_order = order;
                    }
                }
            }
        }
        known.wanted = Some(wanted);
        self.settle_time();
    }

    /// Time passes.
    pub(crate) fn advance(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds {
            self.now += 1;
            self.bucket = (self.bucket + 1).min(BURST * PERIOD);
            self.settle_time();
        }
    }

    /// What happens by itself in this millisecond.
    fn settle_time(&mut self) {
        loop {
            let first = self
                .keys
                .iter()
                .filter_map(|(&key, known)| match known.wanted.as_ref()?.stage {
                    Stage::Later { in_line, .. } => Some((in_line?, key)),
                    Stage::Ready { .. } => None,
                })
                .min();
            if let Some((_, key)) = first
                && self.bucket >= PERIOD
            {
                self.bucket -= PERIOD;
                self.ready(key);
                continue;
            }
            let due = self
                .keys
                .iter()
                .filter_map(|(&key, known)| match known.wanted.as_ref()?.stage {
                    Stage::Later {
                        at, join, order, ..
                    } => Some((min(at, join)?, order, key)),
                    Stage::Ready { .. } => None,
                })
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
            at,
            join,
            in_line,
            order,
        } = &mut wanted.stage
        {
            if at.is_some_and(|at| at <= now) {
                self.ready(key);
            } else {
                *join = None;
                *in_line = Some(next);
                *order = next;
            }
        }
    }

    fn ready(&mut self, key: u8) {
        let order = self.next_order();
        if let Some(wanted) = &mut self.key(key).wanted {
            wanted.stage = Stage::Ready { order };
        }
    }

    fn queued(&self) -> impl Iterator<Item = (std::cmp::Reverse<i32>, u64, u8)> + '_ {
        self.keys.iter().filter_map(|(&key, known)| {
            let wanted = known.wanted.as_ref()?;
            match wanted.stage {
                Stage::Ready { order } if !known.running => {
                    Some((std::cmp::Reverse(wanted.priority), order, key))
                }
                _ => None,
            }
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.queued().count()
    }

    pub(crate) fn take(&mut self) -> Option<Handed> {
        let (_, _, key) = self.queued().min()?;
        let known = self.key(key);
        let wanted = known.wanted.take()?;
        known.running = true;
        Some(Handed {
            key,
            priority: wanted.priority,
            failures: known.failures,
            reasons: wanted.reasons,
        })
    }

    fn ended(&mut self, key: u8) {
        let order = self.next_order();
        let known = self.key(key);
        known.running = false;
        if let Some(wanted) = &mut known.wanted
            && let Stage::Ready { order: old } = &mut wanted.stage
        {
            *old = order;
        }
    }

    pub(crate) fn done(&mut self, key: u8) {
        self.ended(key);
    }

    pub(crate) fn forget(&mut self, key: u8) {
        self.key(key).failures = 0;
    }

    pub(crate) fn retry(&mut self, key: u8, priority: i32) {
        if self.shutdown == Shutdown::No {
            self.want(key, None, true, priority, Some("retry"));
        } else {
            self.key(key).failures += 1;
            self.refused += 1;
        }
        self.ended(key);
    }

    pub(crate) fn requeue_after(&mut self, key: u8, after: u64, priority: i32) {
        self.forget(key);
        if self.shutdown == Shutdown::No {
            self.want(key, Some(after), false, priority, Some("timer"));
        } else {
            self.refused += 1;
        }
        self.ended(key);
    }

    pub(crate) fn cancel(&mut self, key: u8) -> bool {
        self.key(key).wanted.take().is_some()
    }

    pub(crate) fn failures(&mut self, key: u8) -> u32 {
        self.key(key).failures
    }

    pub(crate) fn shut_down(&mut self, how: Shutdown) {
        self.shutdown = how;
        for known in self.keys.values_mut() {
            if let Some(wanted) = &known.wanted
                && matches!(wanted.stage, Stage::Later { .. })
            {
                known.wanted = None;
            }
        }
    }

    fn dirty(&self) -> bool {
        let mut keys = self.keys.values();
        keys.any(|known| known.running && known.wanted.is_some())
    }

    /// `get` would say that nothing comes any more.
    pub(crate) fn closed(&self) -> bool {
        match self.shutdown {
            Shutdown::No => false,
            Shutdown::Drain => self.len() == 0 && !self.dirty(),
            Shutdown::Now => self.len() == 0,
        }
    }

    pub(crate) fn drained(&self) -> bool {
        match self.shutdown {
            Shutdown::No => false,
            Shutdown::Drain => self.len() == 0 && !self.keys.values().any(|known| known.running),
            Shutdown::Now => true,
        }
    }

    /// Waiting or in line, ready, in flight.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let later = self.keys.values().filter(|known| {
            let stage = known.wanted.as_ref().map(|wanted| &wanted.stage);
            matches!(stage, Some(Stage::Later { .. }))
        });
        let running = self.keys.values().filter(|known| known.running);
        (later.count(), self.len(), running.count())
    }
}

fn min(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}
