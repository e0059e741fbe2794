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

    /// Takes all chores, without waiting.
    pub(crate) fn take_chores(&self) -> Vec<Chore> {
        let taken = std::mem::take(&mut self.state.write().chores);
        taken.into_iter().collect()
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
        taken.into_iter().collect()
    }

    /// Adds a chore.
    pub(crate) fn add_chore(&self, chore: Chore) {
        self.state.write().chores.insert(chore);
        self.chores.notify_one();
    }

    /// The objects with `uid` as an owner.
    pub(crate) fn owned_by(&self, uid: &str) -> Vec<(String, Key)> {
        let state = self.state.read();
        state
            .owned
            .get(uid)
            .map(|owned| owned.iter().cloned().collect())
            .unwrap_or_default()
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

    /// Sets whether removals in `storage` wake the background task.
    pub(crate) fn set_ending(&self, storage: &str, ending: bool) {
        let mut state = self.state.write();
        if ending {
            state.ending.insert(storage.to_owned());
        } else {
            state.ending.remove(storage);
        }
    }
}
