//! What a source lists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::target::Target;

/// An address that a source lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// How long it is to be banned from now on.
    pub(crate) duration: Duration,
    pub(crate) reason: Arc<str>,
}

/// The addresses that a source lists now, in order. Copies share memory: a million addresses with one duration take 18 MB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entries {
    targets: Arc<[Target]>,
    each: Each,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Each {
    /// All addresses have the same entry: a feed.
    Same(Entry),
    /// The entry of each address, in the order of the addresses.
    Own(Arc<[Entry]>),
}

/// The outcome of a pull.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pulled {
    pub(super) entries: Entries,
    /// Wrong lines, ranges that are not wanted, and entries past the limit.
    pub(super) left_out: usize,
    /// Whether the list is another than at the pull before.
    pub(super) changed: bool,
}

/// Why a pull brought nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub(super) struct Fault {
    pub(super) why: String,
    /// When to try again, if the server names a time.
    pub(super) after: Option<Duration>,
}

// === impl Entries ===

impl Entries {
    /// Every target with the same entry.
    pub(super) fn same(targets: BTreeSet<Target>, entry: Entry) -> Self {
        Self {
            targets: targets.into_iter().collect(),
            each: Each::Same(entry),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.targets.len()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// The addresses, in order.
    #[cfg(test)]
    pub(crate) fn targets(&self) -> &[Target] {
        &self.targets
    }

    pub(crate) fn contains(&self, target: &Target) -> bool {
        self.position(target).is_some()
    }

    /// The position of `target`, from 0.
    pub(super) fn position(&self, target: &Target) -> Option<usize> {
        self.targets.binary_search(target).ok()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Target, &Entry)> {
        let targets = self.targets.iter().enumerate();
        targets.map(|(position, target)| (target, self.at(position)))
    }

    /// The entry at a position.
    ///
    /// # Panics
    /// When there are not so many.
    pub(super) fn at(&self, position: usize) -> &Entry {
        match &self.each {
            Each::Same(entry) => entry,
            Each::Own(entries) => &entries[position],
        }
    }
}

impl Default for Entries {
    fn default() -> Self {
        Self::from(BTreeMap::new())
    }
}

impl From<BTreeMap<Target, Entry>> for Entries {
    fn from(entries: BTreeMap<Target, Entry>) -> Self {
        let (targets, each): (Vec<Target>, Vec<Entry>) = entries.into_iter().unzip();
        Self {
            targets: targets.into(),
            each: Each::Own(each.into()),
        }
    }
}

// === impl Fault ===

impl Fault {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            after: None,
        }
    }

    /// The fault of an answer with an error status. Its body may be anything, so it is not repeated.
    pub(super) fn of(answer: &http::Response<bytes::Bytes>) -> Self {
        let after = answer.headers().get(http::header::RETRY_AFTER);
        let after = after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        Self {
            why: format!("the server answered HTTP {}", answer.status().as_u16()),
            after: after.map(Duration::from_secs),
        }
    }
}
