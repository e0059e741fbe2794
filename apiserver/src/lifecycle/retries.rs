//! Chores whose write was refused, and when each is tried again.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::store::Chore;

/// The wait after the first refusal; it doubles with each further one. (client-go: `DefaultTypedControllerRateLimiter`.)
pub(super) const FIRST: Duration = Duration::from_millis(5);
/// The longest wait.
pub(super) const LONGEST: Duration = Duration::from_secs(1_000);

/// Chores that wait, each by itself. At most one for each stored object, because a chore names one.
#[derive(Debug, Default)]
pub(super) struct Retries {
    by_time: BTreeSet<(Instant, Chore)>,
    chores: HashMap<Chore, Waiting>,
}

/// A chore that was refused.
#[derive(Debug)]
struct Waiting {
    refusals: u32,
    due: Instant,
}

// === impl Retries ===

impl Retries {
    /// Plans the next try of a chore that was refused at `now`.
    pub(super) fn refused(&mut self, chore: Chore, now: Instant) {
        let former = self.remove(&chore);
        let refusals = former.map_or(0, |former| former.refusals) + 1;
        let wait = FIRST.saturating_mul(2_u32.saturating_pow(refusals - 1));
        let due = now + wait.min(LONGEST);
        self.by_time.insert((due, chore.clone()));
        self.chores.insert(chore, Waiting { refusals, due });
    }

    /// Forgets the refusals of a chore that succeeded.
    pub(super) fn succeeded(&mut self, chore: &Chore) {
        self.remove(chore);
    }

    fn remove(&mut self, chore: &Chore) -> Option<Waiting> {
        let found = self.chores.remove(chore)?;
        self.by_time.remove(&(found.due, chore.clone()));
        Some(found)
    }

    /// Takes the chores that are due at `now`; their refusals are kept.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Chore> {
        let mut due = Vec::new();
        while let Some((at, _)) = self.by_time.first()
            && *at <= now
        {
            due.extend(self.by_time.pop_first().map(|(_, chore)| chore));
        }
        due
    }

    /// Whether a chore waits for its next try.
    pub(super) fn has(&self, chore: &Chore) -> bool {
        let found = self.chores.get(chore);
        found.is_some_and(|found| self.by_time.contains(&(found.due, chore.clone())))
    }

    /// Waits until a chore is due.
    pub(super) async fn wait(&self) {
        match self.by_time.first() {
            Some((at, _)) => sleep_until(*at).await,
            None => std::future::pending().await,
        }
    }

    /// All chores that wait.
    pub(super) fn chores(&self) -> impl Iterator<Item = Chore> {
        self.chores.keys().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chore(uid: &str) -> Chore {
        Chore::Owner(uid.to_owned())
    }

    #[test]
    fn the_wait_of_each_chore_doubles_up_to_the_longest() {
        let (mut retries, start) = (Retries::default(), Instant::now());
        retries.refused(chore("other"), start);
        let mut now = start;
        let mut waits = Vec::new();
        for _ in 0..20 {
            retries.refused(chore("x"), now);
            let due = retries.chores[&chore("x")].due;
            waits.push((due - now).as_millis());
            now = due;
            assert!(retries.take_due(now).contains(&chore("x")));
        }
        assert_eq!(waits[..4], [5, 10, 20, 40]);
        assert_eq!(waits[17..], [655_360, 1_000_000, 1_000_000]);
        retries.succeeded(&chore("x"));
        retries.refused(chore("x"), now);
        assert_eq!(retries.take_due(now + FIRST), [chore("x")]);
    }

    #[test]
    fn a_chore_that_is_refused_before_it_is_due_waits_once() {
        let (mut retries, now) = (Retries::default(), Instant::now());
        retries.refused(chore("x"), now);
        retries.refused(chore("x"), now);
        assert!(retries.take_due(now + FIRST).is_empty());
        assert_eq!(retries.take_due(now + FIRST * 2), [chore("x")]);
        assert!(retries.take_due(now + LONGEST).is_empty());
    }
}
