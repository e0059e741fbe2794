//! Entries of lists after a restart: what stood is not known from the lists, which say what is wanted.
//!
//! The configuration that was in force before the edit says it. Until every list was read, entries that it accepts are kept,
//! whatever the configuration in force refuses; then the brake judges them.

use std::sync::Arc;

use super::Guard;
use crate::config::Config;
use crate::guard::brake::Part;

/// A restart beside an edit that was not judged yet, or that the brake holds.
#[derive(Debug)]
pub(super) struct Resumed {
    /// What was in force before the edit.
    before: Arc<Config>,
    /// The brake was engaged: it stays, however few entries are left.
    pub(super) engaged: bool,
    /// Every list was read.
    read: bool,
    /// Their entries were counted since.
    pub(super) counted: bool,
}

// === impl Guard ===

impl Guard {
    /// This process begins beside an edit of `before`. `engaged`: the brake of an earlier process held its lifts of entries.
    pub(crate) fn resume(&self, before: Arc<Config>, engaged: bool) {
        self.state.lock().resumed = Some(Resumed {
            before,
            engaged,
            read: false,
            counted: false,
        });
        self.holds.send_replace(true);
    }

    /// What an edit before the start is compared with, until it is judged.
    pub(crate) fn before(&self) -> Option<Arc<Config>> {
        let state = self.state.lock();
        state.resumed.as_ref().map(|it| Arc::clone(&it.before))
    }

    /// Every list was read: the next configuration is judged with their entries.
    pub(crate) fn lists_read(&self) {
        if let Some(resumed) = &mut self.state.lock().resumed {
            resumed.read = true;
        }
    }

    /// Whether the lists were read, and an edit before the start can be judged once their entries are counted.
    pub(crate) fn is_to_judge(&self) -> bool {
        let state = self.state.lock();
        state.resumed.as_ref().is_some_and(|resumed| resumed.read)
    }

    /// The entries of lists were counted for the next configuration. `all`: every list had been read before.
    pub(crate) fn counted(&self, lists: Part, all: bool) {
        let mut state = self.state.lock();
        state.listed = lists;
        if let Some(resumed) = &mut state.resumed {
            resumed.counted = all;
        }
    }

    /// Whether entries of lists that are refused now are kept: the brake on lifts is engaged, or has not judged yet.
    pub(crate) fn holds_lists(&self) -> bool {
        let state = self.state.lock();
        state.lifts.is_some() || state.resumed.is_some()
    }
}
