//! Which BlockList of an import has which entry. Pure.
//!
//! An entry stays in its list, and a new one goes into the first list with room, so that an edit of the file changes few
//! objects. An entry that stands keeps its end: the second import of a file changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use ipblock_operator::api::{ListEntry, MOST_ENTRIES};
use ipblock_operator::target::Target;
use jiff::Timestamp;

/// The end of a ban, and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ban {
    /// `None`: without end.
    pub(super) until: Option<Timestamp>,
    pub(super) reason: Option<String>,
}

/// A list of an earlier import.
#[derive(Clone, Debug, Default)]
pub(super) struct Present {
    pub(super) entries: Vec<ListEntry>,
    /// It is suspended by hand: its entries are not enforced, and new ones go elsewhere.
    pub(super) suspended: bool,
}

/// What is to be written, by the numbers of the lists.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) creates: BTreeMap<u32, Vec<ListEntry>>,
    pub(super) changes: BTreeMap<u32, Vec<ListEntry>>,
    pub(super) deletes: BTreeSet<u32>,
    pub(super) added: usize,
    pub(super) extended: usize,
    pub(super) unchanged: usize,
    /// Entries that the file does not have any more, and whose time is not over.
    pub(super) removed: usize,
}

/// Brings `lists` in line with `wanted`. With `extend`, entries that stand get new ends.
pub(super) fn plan(
    lists: &BTreeMap<u32, Present>,
    wanted: &BTreeMap<Target, Ban>,
    extend: bool,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    let mut seen = BTreeSet::new();
    let mut drafts: BTreeMap<u32, (Vec<ListEntry>, bool)> = BTreeMap::new();
    for (number, list) in lists {
        let mut kept = Vec::with_capacity(list.entries.len());
        let mut changed = false;
        for entry in &list.entries {
            let stays = plan.stays(entry, wanted, &mut seen, extend, now);
            changed |= stays.as_ref() != Some(entry);
            kept.extend(stays);
        }
        drafts.insert(*number, (kept, changed));
    }
    let mut waiting = wanted.iter().filter(|(target, _)| !seen.contains(*target));
    plan.added = wanted.len() - seen.len();
    let mut free = (0..).filter(|number| !lists.contains_key(number));
    for (number, (entries, changed)) in &mut drafts {
        if !lists[number].suspended {
            let before = entries.len();
            let room = MOST_ENTRIES.saturating_sub(before);
            entries.extend(waiting.by_ref().take(room).map(written));
            *changed |= entries.len() > before;
        }
    }
    loop {
        let entries: Vec<ListEntry> = waiting.by_ref().take(MOST_ENTRIES).map(written).collect();
        match free.next().filter(|_| !entries.is_empty()) {
            Some(number) => plan.creates.insert(number, entries),
            None => break,
        };
    }
    for (number, (entries, changed)) in drafts {
        if entries.is_empty() {
            plan.deletes.insert(number);
        } else if changed {
            plan.changes.insert(number, entries);
        }
    }
    plan
}

/// What the entries of `lists` still ban at `now`.
pub(super) fn targets(lists: &BTreeMap<u32, Present>, now: Timestamp) -> BTreeSet<Target> {
    let entries = lists.values().flat_map(|list| &list.entries);
    let entries = entries.filter(|entry| stands(entry, now));
    entries
        .filter_map(|entry| entry.target.parse().ok())
        .collect()
}

fn written((target, ban): (&Target, &Ban)) -> ListEntry {
    ListEntry {
        target: target.to_string(),
        // Whole seconds, as the operator reads them.
        until: ban.until.map(|until| format!("{until:.0}")),
        reason: ban.reason.clone(),
    }
}

fn stands(entry: &ListEntry, now: Timestamp) -> bool {
    match entry.until.as_deref().filter(|text| !text.is_empty()) {
        None => true,
        Some(text) => text
            .trim()
            .parse()
            .is_ok_and(|until: Timestamp| until > now),
    }
}

// === impl Plan ===

impl Plan {
    /// The entry as its list has it afterwards; `None`: the list loses it.
    fn stays(
        &mut self,
        entry: &ListEntry,
        wanted: &BTreeMap<Target, Ban>,
        seen: &mut BTreeSet<Target>,
        extend: bool,
        now: Timestamp,
    ) -> Option<ListEntry> {
        let stands = stands(entry, now);
        let target = entry.target.parse::<Target>().ok();
        let Some((target, ban)) = target.and_then(|target| wanted.get_key_value(&target)) else {
            self.removed += usize::from(stands);
            return None;
        };
        // One that is over is added again, at its place or elsewhere.
        if !stands || !seen.insert(*target) {
            return None;
        }
        let fresh = written((target, ban));
        if extend && fresh.until != entry.until {
            self.extended += 1;
            return Some(fresh);
        }
        self.unchanged += 1;
        Some(entry.clone())
    }

    /// Whether nothing is written.
    pub(super) fn is_empty(&self) -> bool {
        self.creates.is_empty() && self.changes.is_empty() && self.deletes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn wanted(count: usize, until: &str) -> BTreeMap<Target, Ban> {
        let ban = Ban {
            until: (!until.is_empty()).then(|| until.parse().unwrap()),
            reason: None,
        };
        let target = |n: usize| format!("11.{}.{}.{}", n >> 16, (n >> 8) & 255, n & 255);
        (0..count)
            .map(|n| (target(n).parse().unwrap(), ban.clone()))
            .collect()
    }

    /// The lists after `plan`.
    fn applied(mut lists: BTreeMap<u32, Present>, plan: Plan) -> BTreeMap<u32, Present> {
        for (number, entries) in plan.creates.into_iter().chain(plan.changes) {
            lists.entry(number).or_default().entries = entries;
        }
        lists.retain(|number, _| !plan.deletes.contains(number));
        lists
    }

    #[test]
    fn many_entries_fill_lists_and_a_second_import_changes_nothing() {
        let all = wanted(MOST_ENTRIES * 2 + 1, "2026-01-02T00:00:00Z");
        let first = plan(&BTreeMap::new(), &all, false, now());
        assert_eq!((first.added, first.creates.len()), (all.len(), 3));
        let lists = applied(BTreeMap::new(), first);
        let later = wanted(MOST_ENTRIES * 2 + 1, "2026-01-03T00:00:00Z");
        let again = plan(&lists, &later, false, now());
        assert!(again.is_empty());
        assert_eq!(again.unchanged, all.len());
        let extended = plan(&lists, &later, true, now());
        assert_eq!((extended.extended, extended.changes.len()), (all.len(), 3));
    }

    #[test]
    fn entries_that_left_the_file_leave_their_list_and_new_ones_fill_its_gap() {
        let all = wanted(MOST_ENTRIES + 10, "");
        let lists = applied(BTreeMap::new(), plan(&BTreeMap::new(), &all, false, now()));
        let mut edited = all.clone();
        edited.pop_first();
        let new: Target = "2001:db8::/48".parse().unwrap();
        edited.insert(new, edited.values().next().unwrap().clone());
        let change = plan(&lists, &edited, false, now());
        assert_eq!((change.added, change.removed), (1, 1));
        assert_eq!(change.changes.keys().collect::<Vec<_>>(), [&0]);
        let few = plan(&lists, &wanted(10, ""), false, now());
        assert_eq!((few.removed, few.unchanged), (MOST_ENTRIES, 10));
        assert_eq!((few.changes.len(), few.deletes.len()), (1, 1));
    }

    #[test]
    fn an_entry_that_is_over_is_added_again_and_a_suspended_list_gets_none() {
        let all = wanted(2, "2026-01-01T11:00:00Z");
        let lists = applied(BTreeMap::new(), plan(&BTreeMap::new(), &all, false, now()));
        assert!(targets(&lists, now()).is_empty());
        let again = plan(&lists, &wanted(2, "2026-01-02T00:00:00Z"), false, now());
        assert_eq!((again.added, again.removed), (2, 0));
        assert_eq!(again.changes[&0].len(), 2);
        let mut lists = applied(lists, again);
        lists.get_mut(&0).unwrap().suspended = true;
        let more = plan(&lists, &wanted(3, ""), false, now());
        assert_eq!((more.unchanged, more.added), (2, 1));
        assert_eq!(more.creates.keys().collect::<Vec<_>>(), [&1]);
    }
}
