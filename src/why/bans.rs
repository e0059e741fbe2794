//! The standing bans as an index, for many addresses at once.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use jiff::Timestamp;

use super::entry::Entry;
use crate::target::Target;

/// A standing ban.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ban {
    /// What is banned.
    pub target: Target,
    /// Until when; `None`: without end.
    pub until: Option<Timestamp>,
    /// `namespace/name` of the block with that end.
    pub block: String,
}

/// All standing bans. A look-up costs one probe for each length of a prefix that is in use, at most 33 or 129.
#[derive(Clone, Debug, Default)]
pub struct Bans {
    by_target: BTreeMap<Target, Ban>,
    v4: BTreeSet<u8>,
    v6: BTreeSet<u8>,
}

// === impl Bans ===

impl Bans {
    /// Adds the ban of `entry` if it is active. Of several on one target the longest counts.
    pub fn add(&mut self, entry: &Entry) {
        if !entry.is_active() {
            return;
        }
        let target = entry.target;
        let lengths = if target.is_ipv6() {
            &mut self.v6
        } else {
            &mut self.v4
        };
        lengths.insert(target.prefix_len());
        let ban = Ban {
            target,
            until: entry.until,
            block: entry.key(),
        };
        match self.by_target.get_mut(&target) {
            Some(present) if is_later(ban.until, present.until) => *present = ban,
            Some(_) => {}
            None => {
                self.by_target.insert(target, ban);
            }
        }
    }

    /// The longest ban that covers all of `target`.
    #[must_use]
    pub fn covering(&self, target: &Target) -> Option<&Ban> {
        let lengths = if target.is_ipv6() { &self.v6 } else { &self.v4 };
        let mut longest: Option<&Ban> = None;
        for length in lengths.range(..=target.prefix_len()) {
            let Ok(range) = IpNet::new(target.address(), *length) else {
                continue;
            };
            if let Some(ban) = self.by_target.get(&Target::range(range))
                && longest.is_none_or(|longest| is_later(ban.until, longest.until))
            {
                longest = Some(ban);
            }
        }
        longest
    }

    /// How many targets are banned.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_target.len()
    }

    /// Whether nothing is banned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_target.is_empty()
    }
}

/// Whether `a` ends after `b`; `None` is without end.
fn is_later(a: Option<Timestamp>, b: Option<Timestamp>) -> bool {
    match (a, b) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(a), Some(b)) => a > b,
    }
}
