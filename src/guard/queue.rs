//! The blocks that wait for one cap, in the order of their first question.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::held::Scope;

/// A block that was called and has not asked since then is called again.
const ANSWER: Duration = Duration::from_secs(10);

/// A block that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) kind: &'static str,
    pub(super) scope: Scope,
    /// It is in the queue of its scope.
    pub(super) queued: bool,
    /// Nothing stands for it: this process has lifted what may have stood.
    pub(super) clean: bool,
}

/// The queue of one scope and one kind of cap.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The cap.
    pub(super) most: usize,
    keys: VecDeque<Arc<str>>,
    /// Entries of blocks that do not wait here any more.
    stale: usize,
    called: Vec<(Arc<str>, Instant)>,
    /// Calls that were not used: the block was gone, refused, held by another cap, or did not answer.
    unused: usize,
}

/// All blocks that wait.
pub(super) type All = HashMap<Arc<str>, Waiting>;

// === impl Queue ===

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it has no entry, and no block whose call may be lost.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.called.is_empty()
    }

    pub(super) fn push(&mut self, key: Arc<str>) {
        self.keys.push_back(key);
    }

    /// A block that was called keeps its turn.
    pub(super) fn push_first(&mut self, key: Arc<str>) {
        self.called.retain(|(called, _)| *called != key);
        self.keys.push_front(key);
    }

    /// A block whose call was not sent keeps its turn, and the room that it was called for.
    pub(super) fn put_back(&mut self, key: Arc<str>) {
        self.push_first(key);
        self.unused += 1;
    }

    /// The next block that waits here.
    pub(super) fn call(
        &mut self,
        all: &mut All,
        (kind, scope): (&str, &Scope),
        at: Instant,
    ) -> Option<Arc<str>> {
        while let Some(key) = self.keys.pop_front() {
            let waiting = all.get_mut(&key);
            let here = |it: &&mut Waiting| it.queued && it.kind == kind && it.scope == *scope;
            if let Some(waiting) = waiting.filter(here) {
                waiting.queued = false;
                self.called.push((Arc::clone(&key), at));
                return Some(key);
            }
            self.stale = self.stale.saturating_sub(1);
        }
        None
    }

    /// How many were called and have not asked yet. Those whose call was lost are put back in front.
    pub(super) fn pending(&mut self, all: &mut All, at: Instant) -> usize {
        let mut lost = Vec::new();
        self.called.retain(|(key, called)| {
            let waiting = all.get_mut(key).filter(|it| !it.queued);
            let Some(waiting) = waiting else { return false };
            let pending = at.duration_since(*called) < ANSWER;
            if !pending {
                waiting.queued = true;
                self.unused += 1;
                lost.push(Arc::clone(key));
            }
            pending
        });
        for key in lost.into_iter().rev() {
            self.keys.push_front(key);
        }
        self.called.len()
    }

    /// The calls that were not used, each once.
    pub(super) fn take_unused(&mut self) -> usize {
        std::mem::take(&mut self.unused)
    }

    /// A block does not wait here any more; `admitted`: it is banned. Its entry stays until there are as many such as
    /// others.
    pub(super) fn leave(
        &mut self,
        all: &All,
        key: &str,
        (kind, scope): (&str, &Scope),
        admitted: bool,
    ) {
        let calls = self.called.len();
        self.called.retain(|(called, _)| &**called != key);
        if !admitted {
            self.unused += calls - self.called.len();
        }
        self.stale += 1;
        if self.stale * 2 > self.keys.len() {
            self.keys.retain(|key| {
                let waiting = all.get(key);
                waiting.is_some_and(|it| it.queued && it.kind == kind && it.scope == *scope)
            });
            self.stale = 0;
        }
    }
}
