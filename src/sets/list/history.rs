//! Versions of a list, and the changes since an earlier one.
//!
//! A version is computed from the content alone, so two replicas that serve the same targets serve the same version. It
//! is a sum over the entries: a change costs its own entries, not a walk over the list.

use std::collections::{BTreeMap, VecDeque};

use sha2::{Digest, Sha256};

use super::super::set::{Difference, Until};
use crate::target::Target;

/// Changes and batches that are remembered. An entry takes 36 bytes.
pub(super) const MOST_CHANGES: usize = 65_536;
const MOST_BATCHES: usize = 4096;

/// Which targets a reader asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Family {
    /// All.
    #[default]
    Both,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What a version is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// The targets, whatever their ends.
    Targets,
    /// The targets and their ends.
    Entries,
}

/// The versions of the entries of both families, of IPv4 and of IPv6, in the order of [`Family`].
pub(super) type Versions = [u128; 3];

/// The sum over the content of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fingerprint {
    v4: Sums,
    v6: Sums,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    targets: u128,
    entries: u128,
}

/// The latest changes of a list.
#[derive(Debug, Default)]
pub(super) struct History {
    batches: VecDeque<Batch>,
    changes: usize,
}

#[derive(Debug)]
struct Batch {
    /// Of the list before it, so that a request hashes nothing.
    before: Versions,
    changes: Vec<Difference>,
}

// === impl Family ===

impl Family {
    pub(super) fn has(self, target: &Target) -> bool {
        match self {
            Self::Both => true,
            Self::V4 => !target.is_ipv6(),
            Self::V6 => target.is_ipv6(),
        }
    }
}

// === impl Fingerprint ===

impl Fingerprint {
    /// Takes one change in.
    pub(super) fn change(&mut self, change: &Difference) {
        let sums = if change.target.is_ipv6() {
            &mut self.v6
        } else {
            &mut self.v4
        };
        if let Some(until) = change.before {
            let (target, entry) = digests(&change.target, until);
            sums.targets = sums.targets.wrapping_sub(target);
            sums.entries = sums.entries.wrapping_sub(entry);
        }
        if let Some(until) = change.after {
            let (target, entry) = digests(&change.target, until);
            sums.targets = sums.targets.wrapping_add(target);
            sums.entries = sums.entries.wrapping_add(entry);
        }
    }

    /// The version of a part of the list, 32 hexadecimal digits.
    pub(super) fn version(&self, family: Family, content: Content) -> String {
        written(self.digest(family, content))
    }

    /// The versions that agents enforce one of.
    pub(super) fn versions(&self) -> Versions {
        [Family::Both, Family::V4, Family::V6].map(|it| self.digest(it, Content::Entries))
    }

    fn digest(&self, family: Family, content: Content) -> u128 {
        let of = |sums: &Sums| match content {
            Content::Targets => sums.targets.to_be_bytes(),
            Content::Entries => sums.entries.to_be_bytes(),
        };
        let mut digest = Sha256::new();
        digest.update([family as u8, content as u8]);
        if family != Family::V6 {
            digest.update(of(&self.v4));
        }
        if family != Family::V4 {
            digest.update(of(&self.v6));
        }
        number(digest)
    }
}

fn digests(target: &Target, until: Until) -> (u128, u128) {
    let mut digest = Sha256::new();
    digest.update(target.to_string());
    let alone = digest.clone();
    digest.update([0]);
    let seconds = until.at().map_or(i64::MAX, jiff::Timestamp::as_second);
    digest.update(seconds.to_be_bytes());
    (number(alone), number(digest))
}

fn written(version: u128) -> String {
    format!("{version:032x}")
}

/// Reads what [`written`] writes, and nothing else: what a reader sends is in its answer.
fn read(text: &str) -> Option<u128> {
    let version = u128::from_str_radix(text, 16).ok()?;
    (written(version) == text).then_some(version)
}

fn number(digest: Sha256) -> u128 {
    let mut bytes = [0; 16];
    for (byte, from) in bytes.iter_mut().zip(digest.finalize()) {
        *byte = from;
    }
    u128::from_be_bytes(bytes)
}

// === impl History ===

impl History {
    /// Remembers a batch. One that is too large makes every earlier version unknown; `None`: it was not even collected.
    pub(super) fn push(&mut self, before: Versions, changes: Option<Vec<Difference>>) {
        let Some(changes) = changes else {
            *self = Self::default();
            return;
        };
        self.changes += changes.len();
        self.batches.push_back(Batch { before, changes });
        while self.changes > MOST_CHANGES || self.batches.len() > MOST_BATCHES {
            let Some(batch) = self.batches.pop_front() else {
                return;
            };
            self.changes -= batch.changes.len();
        }
    }

    /// The number of remembered changes.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.changes
    }

    /// What changed in the entries of a family since a version, the ends of removed targets being `None`. `None`: the
    /// version is not known any more, or never was.
    pub(super) fn since(
        &self,
        version: &str,
        family: Family,
        now: &Fingerprint,
    ) -> Option<BTreeMap<Target, Option<Until>>> {
        if now.version(family, Content::Entries) == version {
            return Some(BTreeMap::new());
        }
        let version = read(version)?;
        let is = |batch: &Batch| batch.before[family as usize] == version;
        // A list that went back to an earlier version has it twice: the later one is nearer.
        let first = self.batches.iter().rposition(is)?;
        let changes = self.batches.range(first..).flat_map(|it| &it.changes);
        let changes = changes.filter(|change| family.has(&change.target));
        Some(changes.map(|it| (it.target, it.after)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(target: &str, before: Option<i64>, after: Option<i64>) -> Difference {
        let until = |second: i64| {
            let at = jiff::Timestamp::from_second(1_800_000_000 + second).unwrap();
            Until::new(Some(at))
        };
        Difference {
            target: target.parse().unwrap(),
            before: before.map(until),
            after: after.map(until),
        }
    }

    /// A list that is changed, with its history.
    #[derive(Default)]
    struct Changing(Fingerprint, History);

    impl Changing {
        fn change(&mut self, target: &str, before: Option<i64>, after: Option<i64>) -> String {
            let change = difference(target, before, after);
            let earlier = self.0;
            self.0.change(&change);
            self.1.push(earlier.versions(), Some(vec![change]));
            self.version(Family::Both)
        }

        fn version(&self, family: Family) -> String {
            self.0.version(family, Content::Entries)
        }

        fn since(&self, version: &str, family: Family) -> Option<Vec<(String, bool)>> {
            let changes = self.1.since(version, family, &self.0)?;
            let shown = changes.iter();
            Some(
                shown
                    .map(|(it, end)| (it.to_string(), end.is_some()))
                    .collect(),
            )
        }
    }

    #[test]
    fn a_version_follows_from_the_content_whatever_the_way_to_it() {
        let (mut one, mut two) = (Changing::default(), Changing::default());
        one.change("192.0.2.1", None, Some(1));
        one.change("2001:db8::1", None, Some(2));
        two.change("2001:db8::1", None, Some(9));
        two.change("192.0.2.9", None, Some(1));
        two.change("192.0.2.1", None, Some(1));
        two.change("192.0.2.9", Some(1), None);
        two.change("2001:db8::1", Some(9), Some(2));
        for family in [Family::Both, Family::V4, Family::V6] {
            assert_eq!(one.version(family), two.version(family));
        }
        let targets = |it: &Changing| it.0.version(Family::Both, Content::Targets);
        let before = targets(&two);
        two.change("192.0.2.1", Some(1), Some(5));
        assert_eq!(targets(&two), before, "a moved end is no other target");
        assert_ne!(one.version(Family::V4), two.version(Family::V4));
        assert_eq!(one.version(Family::V6), two.version(Family::V6));
    }

    #[test]
    fn changes_since_a_version_are_merged_and_filtered_by_family() {
        let mut list = Changing::default();
        let empty = list.version(Family::Both);
        let empty_v6 = list.version(Family::V6);
        let first = list.change("192.0.2.1", None, Some(1));
        list.change("192.0.2.2", None, Some(1));
        list.change("192.0.2.1", Some(1), None);
        let last = list.change("2001:db8::1", None, Some(1));
        let shown = |entries: &[(&str, bool)]| -> Option<Vec<(String, bool)>> {
            Some(
                entries
                    .iter()
                    .map(|(it, on)| ((*it).to_owned(), *on))
                    .collect(),
            )
        };
        let (gone, v4, v6) = (
            ("192.0.2.1", false),
            ("192.0.2.2", true),
            ("2001:db8::1", true),
        );
        assert_eq!(list.since(&empty, Family::Both), shown(&[gone, v4, v6]));
        assert_eq!(list.since(&first, Family::Both), shown(&[gone, v4, v6]));
        assert_eq!(list.since(&empty_v6, Family::V6), shown(&[v6]));
        assert_eq!(list.since(&last, Family::Both), shown(&[]));
        assert_eq!(list.since("0", Family::Both), None);
        assert_eq!(
            list.since(&first, Family::V4),
            None,
            "that version is of both"
        );
    }

    #[test]
    fn a_version_in_other_digits_than_the_operators_is_not_known() {
        let mut list = Changing::default();
        let earlier = list.change("192.0.2.1", None, Some(1));
        list.change("192.0.2.2", None, Some(1));
        assert!(list.since(&earlier, Family::Both).is_some());
        for other in [
            earlier.to_uppercase(),
            format!("+{earlier}"),
            format!("0{earlier}"),
        ] {
            assert_eq!(list.since(&other, Family::Both), None, "{other}");
        }
    }

    #[test]
    fn of_two_equal_versions_the_later_one_counts() {
        let mut list = Changing::default();
        let one = list.change("192.0.2.1", None, Some(1));
        list.change("192.0.2.2", None, Some(1));
        let again = list.change("192.0.2.2", Some(1), None);
        assert_eq!(one, again);
        list.change("192.0.2.3", None, Some(1));
        let since = list.since(&one, Family::Both).unwrap();
        assert_eq!(since, [("192.0.2.3".to_owned(), true)]);
    }

    #[test]
    fn the_history_is_bounded() {
        let mut history = History::default();
        let change = difference("192.0.2.1", None, Some(1));
        let before = Versions::default();
        for _ in 0..MOST_BATCHES + 10 {
            history.push(before, Some(vec![change]));
        }
        assert_eq!(history.batches.len(), MOST_BATCHES);
        history.push(before, Some(vec![change; MOST_CHANGES]));
        assert_eq!((history.batches.len(), history.changes), (1, MOST_CHANGES));
        history.push(before, Some(vec![change; MOST_CHANGES + 1]));
        assert_eq!((history.batches.len(), history.changes), (0, 0));
    }
}
