//! The webhooks of the stored configurations.

use std::sync::Arc;

use parking_lot::Mutex;

use super::hook::Hook;
use crate::meta;
use crate::store::Store;
use crate::table::cells::items;

/// All webhooks of one kind of configurations.
type All = Arc<[Arc<Hook>]>;

/// The webhooks of one kind of configurations, by the name of their configuration, read again after a change.
#[derive(Debug)]
pub(super) struct Hooks {
    storage: &'static str,
    /// Those of this version of the configurations.
    read: Mutex<Option<(u64, All)>>,
}

// === impl Hooks ===

impl Hooks {
    /// Those of the configurations in `storage`.
    pub(super) fn new(storage: &'static str) -> Self {
        Self {
            storage,
            read: Mutex::default(),
        }
    }

    /// The current webhooks. One whose entry did not change stays the same, with its connections.
    pub(super) fn current(&self, store: &Store) -> All {
        let version = store.last_change(self.storage);
        // Conditions are compiled without the lock. Two writers may do it at once: the next compares the version again.
        let read = self.read.lock().clone();
        if let Some((of, hooks)) = &read
            && *of == version
        {
            return hooks.clone();
        }
        let mut configurations = store.list(self.storage, "").1;
        configurations.sort_by(|one, other| one.name().cmp(other.name()));
        let configurations: Vec<_> = configurations.iter().map(|one| one.value()).collect();
        let hooks = configurations.iter().flat_map(|value| {
            let sources = items(&value["webhooks"]).iter();
            sources.map(move |source| (name(value), source))
        });
        let kept = |name: &str, source: &_| {
            let mut before = read.iter().flat_map(|(_, hooks)| &**hooks);
            before.find(|hook| hook.is_of(name, source)).cloned()
        };
        let hooks: All = hooks
            .map(|(name, source)| {
                kept(name, source).unwrap_or_else(|| Arc::new(Hook::read(name, source)))
            })
            .collect();
        *self.read.lock() = Some((version, hooks.clone()));
        hooks
    }
}

fn name(configuration: &serde_json::Value) -> &str {
    meta::text(configuration, "name")
}
