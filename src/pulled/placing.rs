//! Which BlockList has which entries of a source.
//!
//! An object that is written is written whole, so a change of the source should touch few lists. An entry stays in its
//! list. A new one goes to a list that is written anyway, else to the list with the most room, else to a new list. With a
//! hash of the address, or with ranges of addresses, 100 new entries would be written into up to 100 lists; here they go
//! into one. A list that has lost all of its entries is deleted. When there are more than twice as many lists as the
//! entries need, the smallest are merged into the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::entry::{Entries, Entry};
use super::sink::SOON;
use crate::api::MOST_ENTRIES;
use crate::sets::Until;
use crate::target::Target;

/// Ends that differ by less are the same end, in seconds: an answer is some time on its way.
const SAME: i64 = 60;

/// What a ban lacks to the longest that is allowed: the clocks of the operator and of the API server differ.
const MARGIN: Duration = Duration::from_secs(60);

/// An entry as it is written. 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) target: Target,
    pub(super) until: Until,
}

/// The entries of each list by its number, in the order of their targets.
pub(super) type Lists = BTreeMap<u32, Arc<[Item]>>;

/// What ends are judged by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: Timestamp,
    /// How often the source is pulled.
    pub(super) interval: Duration,
    /// The longest ban; `None`: no limit.
    pub(super) longest: Option<Duration>,
}

/// Lists that are not open for entries.
#[derive(Debug, Default)]
pub(super) struct Closed {
    /// The numbers that other objects have.
    pub(super) taken: BTreeSet<u32>,
    /// Those that a user suspended: they keep their entries, which are not enforced, and get no others.
    pub(super) suspended: BTreeSet<u32>,
}

/// The entries of lists that the source does not list any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gone {
    /// Those that stand for some time yet, in order.
    pub(super) targets: Vec<Target>,
    /// All entries of lists that stand for some time yet.
    pub(super) standing: usize,
}

/// What is to be written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// The lists to write, with all of their entries: first those that gain or lose entries, then those that are renewed.
    pub(super) writes: Vec<(u32, Arc<[Item]>)>,
    /// The lists to delete: the source has nothing of them any more.
    pub(super) empty: Vec<u32>,
    /// The lists to delete once all writes have succeeded: another list has their entries.
    pub(super) deletes: Vec<u32>,
}

/// A list as it would be written.
#[derive(Debug, Default)]
struct Draft {
    items: Vec<Item>,
    /// Entries come or go.
    changed: bool,
    /// The ends have to be written.
    due: bool,
    /// Its entries go to other lists.
    merged: bool,
    /// Another list has an entry of it, too.
    elsewhere: bool,
}

/// Compares `lists` with what the source lists.
pub(super) fn gone(lists: &Lists, entries: &Entries, now: Timestamp) -> Gone {
    let soon = now.saturating_add(SOON).unwrap_or(Timestamp::MAX);
    let (mut targets, mut standing) = (Vec::new(), 0);
    for item in lists.values().flat_map(|items| items.iter()) {
        if item.until.at().is_none_or(|end| end > soon) {
            standing += 1;
            if !entries.contains(&item.target) {
                targets.push(item.target);
            }
        }
    }
    targets.sort_unstable();
    targets.dedup();
    Gone { targets, standing }
}

/// Brings `lists` in line with `entries`. With `hold`, entries that are not listed any more stay until their end.
pub(super) fn plan(
    lists: &Lists,
    entries: &Entries,
    closed: &Closed,
    hold: bool,
    moment: &Moment,
) -> Plan {
    let mut seen = vec![false; entries.len()];
    let mut drafts: BTreeMap<u32, Draft> = BTreeMap::new();
    for (number, items) in lists {
        let draft = draft(items, entries, &mut seen, hold, moment);
        drafts.insert(*number, draft);
    }
    let listed = entries.iter().zip(&seen);
    let new = listed.filter(|(_, seen)| !**seen);
    let mut waiting: Vec<Item> = new
        .map(|((target, entry), _)| Item {
            target: *target,
            until: moment.end(entry),
        })
        .collect();
    merge(&mut drafts, &mut waiting, closed);
    place(&mut drafts, waiting, closed);
    let mut plan = Plan::default();
    let (mut renewed, mut new) = (Vec::new(), Vec::new());
    for (number, mut draft) in drafts {
        if draft.items.is_empty() {
            let moved = draft.merged || draft.elsewhere;
            let deletes = if moved {
                &mut plan.deletes
            } else {
                &mut plan.empty
            };
            deletes.push(number);
            continue;
        }
        if !(draft.changed || draft.due) {
            continue;
        }
        draft.items.sort_unstable_by_key(|item| item.target);
        let write = (number, draft.items.into());
        if !lists.contains_key(&number) {
            new.push(write);
        } else if draft.changed {
            plan.writes.push(write);
        } else {
            renewed.push(write);
        }
    }
    plan.writes.append(&mut renewed);
    // Last: where new lists are refused, as by a quota, the bans of the others are still prolonged.
    plan.writes.append(&mut new);
    plan
}

/// One list, without new entries. Marks those of `entries` that it has as seen.
fn draft(
    items: &[Item],
    entries: &Entries,
    seen: &mut [bool],
    hold: bool,
    moment: &Moment,
) -> Draft {
    let mut draft = Draft::default();
    let mut ended = 0;
    for item in items {
        match entries.position(&item.target) {
            // Another list has it, since a merge that was not finished.
            Some(position) if seen[position] => {
                draft.changed = true;
                draft.elsewhere = true;
            }
            Some(position) => {
                seen[position] = true;
                let until = moment.end(entries.at(position));
                draft.due |= moment.is_due(item.until, until);
                draft.items.push(Item { until, ..*item });
            }
            None if moment.left(item.until) <= 0 => ended += 1,
            None if hold => draft.items.push(*item),
            None => draft.changed = true,
        }
    }
    // Ended entries enforce nothing, so they leave when the list is written for another reason, or is mostly over.
    draft.changed |= ended > 0 && ended * 2 >= items.len();
    draft
}

/// Takes the smallest lists apart when there are more than twice as many as the entries need.
fn merge(drafts: &mut BTreeMap<u32, Draft>, waiting: &mut Vec<Item>, closed: &Closed) {
    let open = drafts
        .iter()
        .filter(|(number, _)| !closed.suspended.contains(number));
    let sizes = open.map(|(number, it)| (it.items.len(), *number));
    let mut sizes: Vec<(usize, u32)> = sizes.filter(|(size, _)| *size > 0).collect();
    let all: usize = waiting.len() + sizes.iter().map(|(size, _)| size).sum::<usize>();
    let needed = all.div_ceil(MOST_ENTRIES).max(1);
    if sizes.len() <= 2 * needed + 1 {
        return;
    }
    sizes.sort_unstable();
    for (_, number) in &sizes[..sizes.len() - needed] {
        if let Some(draft) = drafts.get_mut(number) {
            waiting.append(&mut draft.items);
            draft.merged = true;
        }
    }
}

fn place(drafts: &mut BTreeMap<u32, Draft>, mut waiting: Vec<Item>, closed: &Closed) {
    let mut open: Vec<(bool, usize, u32)> = drafts
        .iter()
        .filter(|(number, _)| !closed.suspended.contains(number))
        .filter(|(_, draft)| !draft.merged && draft.items.len() < MOST_ENTRIES)
        .map(|(number, it)| (!(it.changed || it.due), it.items.len(), *number))
        .collect();
    open.sort_unstable();
    waiting.sort_unstable_by_key(|item| item.target);
    let mut waiting = waiting.into_iter();
    for (_, size, number) in open {
        if waiting.len() == 0 {
            return;
        }
        let draft = drafts.entry(number).or_default();
        draft
            .items
            .extend(waiting.by_ref().take(MOST_ENTRIES - size));
        draft.changed = true;
    }
    let mut number = 0;
    while waiting.len() > 0 {
        while closed.taken.contains(&number) || drafts.contains_key(&number) {
            number += 1;
        }
        let draft = Draft {
            items: waiting.by_ref().take(MOST_ENTRIES).collect(),
            changed: true,
            ..Draft::default()
        };
        drafts.insert(number, draft);
    }
}

// === impl Moment ===

impl Moment {
    /// When a ban for `entry` ends that begins now.
    fn end(&self, entry: &Entry) -> Until {
        let longest = self.longest.unwrap_or(Duration::MAX);
        let allowed = longest.saturating_sub(MARGIN.min(longest / 2));
        let lasts = SignedDuration::try_from(entry.duration.min(allowed));
        let end = self.now.checked_add(lasts.unwrap_or(SignedDuration::MAX));
        Until::new(Some(end.unwrap_or(Timestamp::MAX)))
    }

    /// Seconds until the end.
    fn left(&self, until: Until) -> i64 {
        let end = until.at().map(Timestamp::as_second);
        end.map_or(i64::MAX, |end| end - self.now.as_second())
    }

    /// Whether an entry that ends at `has` has to be written to end at `wants`: the ban would not last until the second
    /// next pull, or not for half of its time, or it would last too long.
    fn is_due(&self, has: Until, wants: Until) -> bool {
        let (has, wants) = (self.left(has), self.left(wants));
        let interval = i64::try_from(self.interval.as_secs()).unwrap_or(i64::MAX);
        let gains = wants.saturating_sub(has);
        let is_short = has < (wants / 2).max(interval.saturating_mul(3) / 2);
        (is_short && gains > SAME.min(wants / 4)) || gains < -SAME
    }
}

#[cfg(test)]
#[path = "placing_tests.rs"]
mod tests;
