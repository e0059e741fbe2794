//! The chores of the background task: deletions to finish, owners and namespaces to look at.

use std::collections::BTreeSet;

use tokio::time::timeout_at;

use super::chore::Chore;
use super::object::Key;
use super::objects::Store;

// === impl Store ===

impl Store {
    /// Waits for chores and takes all of them; returns none when only upkeep is due.
    pub(crate) async fn next_chores(&self) -> Vec<Chore> {
        loop {
            let waiting = self.chores.notified();
            let taken = self.take_chores();
            if !taken.is_empty() {
                return taken;
            }
            match self.upkeep_at() {
                None => waiting.await,
                Some(due) => {
                    if timeout_at(due, waiting).await.is_err() {
                        return taken;
                    }
                }
            }
        }
    }

    /// Takes all chores, without waiting. A [copy](Store::copy) has them until [`Store::finish_chores`].
    pub(crate) fn take_chores(&self) -> Vec<Chore> {
        let mut guard = self.state.write();
        let state = &mut *guard;
        let taken = std::mem::take(&mut state.chores);
        state.unfinished.extend(taken.iter().cloned());
        taken.into_iter().collect()
    }

    /// Forgets the chores that were taken, except for those that are `left`.
    pub(crate) fn finish_chores(&self, left: impl Iterator<Item = Chore>) {
        let left: BTreeSet<Chore> = left.collect();
        let mut state = self.state.write();
        if state.unfinished != left {
            state.unfinished = left;
        }
    }

    /// Takes the chores about owners and their dependents.
    pub(crate) fn take_owner_chores(&self) -> Vec<Chore> {
        let is_about_owners =
            |chore: &Chore| matches!(chore, Chore::Owner(_) | Chore::Dependent(..));
        let mut state = self.state.write();
        let (taken, left) = std::mem::take(&mut state.chores)
            .into_iter()
            .partition::<BTreeSet<_>, _>(is_about_owners);
        state.chores = left;
        state.unfinished.extend(taken.iter().cloned());
        taken.into_iter().collect()
    }

    /// Adds a chore.
    pub(crate) fn add_chore(&self, chore: Chore) {
        self.state.write().chores.insert(chore);
        self.chores.notify_one();
    }

    /// The objects with `uid` as an owner.
    pub(crate) fn owned_by(&self, uid: &str) -> Vec<(String, Key)> {
        self.state.read().owned.of(uid).cloned().collect()
    }

    /// The object of this uid, if it waits for its dependents.
    pub(crate) fn waiting_owner(&self, uid: &str) -> Option<(String, Key)> {
        self.state.read().waiting.get(uid).cloned()
    }

    /// Sets whether removals in `namespace` wake the background task.
    pub(crate) fn set_terminating(&self, namespace: &str, terminating: bool) {
        let mut state = self.state.write();
        if terminating {
            state.terminating.insert(namespace.to_owned());
        } else {
            state.terminating.remove(namespace);
        }
    }

    /// Sets whether removals and late creations in `storage` wake the background task.
    pub(crate) fn set_ending(&self, storage: &str, ending: bool) {
        let mut state = self.state.write();
        if ending {
            state.ending.insert(storage.to_owned());
        } else {
            state.ending.remove(storage);
        }
    }
}
