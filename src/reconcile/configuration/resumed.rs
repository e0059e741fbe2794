//! A restart beside an edit: the rules before it, with which the entries of lists are compared.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ConfigurationReconciler;
use crate::config::{self, Config, allowlist, keys};

// === impl ConfigurationReconciler ===

impl ConfigurationReconciler {
    /// Before the first configuration is in force: has the guard compare it with the rules that the brake of an earlier
    /// process held it against, or with those that were in force last.
    pub(super) fn resume(&self, data: &BTreeMap<String, String>, config: &Config) {
        let held = self.consumers.record.rules();
        let last = self.memory.lock().good.as_ref().map(rules);
        let engaged = held.is_some();
        let Some(before) = held.or(last).filter(|before| *before != rules(data)) else {
            return;
        };
        self.memory.lock().rules = Some(before.clone()).filter(|_| engaged);
        let mut all = data.clone();
        all.retain(|key, _| !keys::REFUSING.contains(&&**key));
        all.extend(before);
        let mut before = match config::parse_first(&all, &self.options) {
            Ok(before) => before,
            Err(error) => {
                tracing::warn!(%error, "could not read the rules of the last configuration; its edit is not braked for lists");
                return;
            }
        };
        let now = self.consumers.time.now();
        (before.policy.allowlist, _) = allowlist::at(&before.allowlist, now);
        // What is found in the cluster and by names is not edited, and protected now.
        before.policy.discovered = Arc::clone(&config.policy.discovered);
        before.policy.resolved = config.policy.resolved.clone();
        self.consumers.guard.resume(Arc::new(before), engaged);
    }

    /// Has the record keep the rules before the edit whose lifts of entries are held, for a restart.
    pub(super) fn keep_rules(&self) {
        let guard = &self.consumers.guard;
        let mut memory = self.memory.lock();
        match guard.lifts() {
            Some(lifts) if lifts.lists.refused > 0 => {
                if memory.rules.is_none() {
                    memory.rules = memory.good.as_ref().map(rules);
                }
            }
            // It is not judged yet.
            _ if guard.holds_lists() => return,
            _ => memory.rules = None,
        }
        self.consumers.record.set_rules(memory.rules.clone());
    }
}

/// The keys of `data` that decide what is refused.
fn rules(data: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let keys = keys::REFUSING.iter();
    let rules = keys.filter_map(|key| Some(((*key).to_owned(), data.get(*key)?.clone())));
    rules.collect()
}
