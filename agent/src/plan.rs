//! The difference between a set in the kernel and the list, and the brake on mass lifts: pure functions.

use std::time::Duration;

use tokio::time::Instant;

use crate::interval::{Left, Span, Timed, flatten};

/// An element of the kernel may end this much before the list's end. The difference comes from the server's date, which
/// has whole seconds; each element gets at most one second too much from it, and one more from rounding up.
const EARLY: Duration = Duration::from_millis(1500);

/// An element of the kernel may end this much after the list's end.
const LATE: Duration = Duration::from_secs(3);

/// What to change in one set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Elements to delete, sorted, as they are in the kernel.
    pub remove: Vec<Span>,
    /// Elements to add, sorted, with rounded times.
    pub add: Vec<Timed>,
}

/// Elements that are changed together: those to add lie within those to remove and beyond, and overlap no other group.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group<'a> {
    pub(crate) remove: &'a [Span],
    pub(crate) add: &'a [Timed],
}

/// Holds back an answer that lifts many bans at once, until the same was seen again after a pause.
#[derive(Debug)]
pub struct Brake {
    settings: BrakeSettings,
    /// When an answer first lifted too much, and how many elements it lifted.
    since: Option<(Instant, usize)>,
}

/// When the brake holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrakeSettings {
    /// Up to this number of elements in the kernel every answer is applied.
    pub above: usize,
    /// The percentage of the elements that one answer may lift. 100 switches the brake off.
    pub percent: u8,
    /// How long lifts wait for an answer that confirms them.
    pub pause: Duration,
}

// === impl Timed ===

impl Timed {
    /// Whether the kernel ends this element as soon as an explicit change could.
    fn ends_soon(&self) -> bool {
        !self.left.exceeds(Left::of(Duration::ZERO), LATE)
    }
}

// === impl Plan ===

impl Plan {
    /// The changes from `observed`, which the kernel has, to `desired`. Both are sorted and free of overlaps.
    #[must_use]
    pub fn between(observed: &[Timed], desired: &[Timed]) -> Self {
        let (mut remove, mut add): (Vec<Timed>, Vec<Timed>) = Default::default();
        let mut observed = observed.iter().peekable();
        for wanted in desired {
            while let Some(before) = observed.next_if(|found| found.span < wanted.span) {
                remove.push(*before);
            }
            if let Some(found) = observed.next_if(|found| found.span == wanted.span) {
                let early = wanted.left.exceeds(found.left, EARLY);
                let late = found.left.exceeds(wanted.left, LATE);
                if !early && !late {
                    continue;
                }
                remove.push(*found);
            }
            add.push(Timed::new(wanted.span, wanted.left.rounded_up()));
        }
        remove.extend(observed);
        // The kernel ends these by itself in a moment. One in the place of another has to go.
        let in_the_way = |span: Span| {
            let at = add.partition_point(|timed| timed.span.last < span.first);
            add.get(at).is_some_and(|timed| timed.span.overlaps(span))
        };
        let remove = remove
            .into_iter()
            .filter(|found| !found.ends_soon() || in_the_way(found.span))
            .map(|found| found.span)
            .collect();
        Self { remove, add }
    }

    /// Whether nothing is to be changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty()
    }

    /// How many elements are deleted and added.
    #[must_use]
    pub fn len(&self) -> usize {
        self.remove.len() + self.add.len()
    }

    /// The groups, in order. A transaction has whole groups only, so that no address is free between two of them and no
    /// element meets one that is still there.
    pub(crate) fn groups(&self) -> Vec<Group<'_>> {
        let (mut removed, mut added) = (0, 0);
        let mut groups = Vec::new();
        loop {
            let (from_removed, from_added) = (removed, added);
            let Some(mut end) = first_of(self, removed, added) else {
                return groups;
            };
            // Everything that begins up to the end of the group belongs to it, and may move the end.
            loop {
                if let Some(span) = self.remove.get(removed).filter(|span| span.first <= end) {
                    end = end.max(span.last);
                    removed += 1;
                } else if let Some(timed) =
                    self.add.get(added).filter(|timed| timed.span.first <= end)
                {
                    end = end.max(timed.span.last);
                    added += 1;
                } else {
                    break;
                }
            }
            groups.push(Group {
                remove: &self.remove[from_removed..removed],
                add: &self.add[from_added..added],
            });
        }
    }
}

/// Where the next element of the plan begins.
fn first_of(plan: &Plan, removed: usize, added: usize) -> Option<u128> {
    let remove = plan.remove.get(removed).map(|span| span.first);
    let add = plan.add.get(added).map(|timed| timed.span.first);
    match (remove, add) {
        (Some(remove), Some(add)) => Some(remove.min(add)),
        (found, None) | (None, found) => found,
    }
}

/// The elements of the kernel that `desired` ends earlier, in whole or in part, except for those that end in a moment.
#[must_use]
pub fn lifted(observed: &[Timed], desired: &[Timed]) -> Vec<Timed> {
    let mut from = 0;
    observed
        .iter()
        .filter(|found| {
            while desired
                .get(from)
                .is_some_and(|wanted| wanted.span.last < found.span.first)
            {
                from += 1;
            }
            !found.ends_soon() && !stands(**found, &desired[from..])
        })
        .copied()
        .collect()
}

/// Whether `desired` bans all of `found` for as long.
fn stands(found: Timed, desired: &[Timed]) -> bool {
    let mut next = found.span.first;
    for wanted in desired {
        if wanted.span.first > next || found.left.exceeds(wanted.left, LATE) {
            return false;
        }
        match wanted.span.last.checked_add(1) {
            Some(after) if after <= found.span.last => next = after,
            _ => return true,
        }
    }
    false
}

/// `desired` and the elements that it lifts, which stay with the time that they have left.
#[must_use]
pub fn with_kept(desired: &[Timed], kept: &[Timed]) -> Vec<Timed> {
    flatten(desired.iter().chain(kept).copied())
}

// === impl Brake ===

impl Brake {
    /// A brake that holds nothing yet.
    #[must_use]
    pub fn new(settings: BrakeSettings) -> Self {
        Self {
            settings,
            since: None,
        }
    }

    /// Whether the lift of `lifted` of `observed` elements has to wait. `answered` is when the server last sent or
    /// confirmed the list that lifts them.
    pub fn holds(&mut self, lifted: usize, observed: usize, answered: Instant) -> bool {
        let BrakeSettings {
            above,
            percent,
            pause,
        } = self.settings;
        if observed <= above || lifted * 100 <= usize::from(percent) * observed {
            self.since = None;
            return false;
        }
        // An answer that lifts clearly more than the first one confirms nothing.
        let (since, _) = match self.since {
            Some((since, first)) if lifted <= first + first / 10 => (since, first),
            _ => *self.since.insert((answered, lifted)),
        };
        answered < since + pause
    }

    /// The elements that were not held back are lifted: what a later answer lifts is confirmed for itself.
    pub fn applied(&mut self) {
        self.since = None;
    }

    /// Whether an answer is held back.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn timed(first: u128, last: u128, seconds: u64) -> Timed {
        Timed::new(Span { first, last }, Left::of(Duration::from_secs(seconds)))
    }

    #[test]
    fn an_element_that_is_as_desired_stays() {
        let set = [timed(1, 1, 60), timed(5, 9, 30)];
        assert!(Plan::between(&set, &set).is_empty());
        // The seconds by which a date is uncertain.
        assert!(Plan::between(&[timed(1, 1, 62)], &[timed(1, 1, 60)]).is_empty());
        assert!(Plan::between(&[timed(1, 1, 60)], &[timed(1, 1, 61)]).is_empty());
    }

    #[test]
    fn a_longer_or_shorter_ban_is_deleted_and_added() {
        for seconds in [600, 10] {
            let plan = Plan::between(&[timed(1, 1, 60)], &[timed(1, 1, seconds)]);
            assert_eq!(plan.remove, [Span { first: 1, last: 1 }]);
            assert_eq!(plan.add, [timed(1, 1, seconds)]);
        }
        let indefinite = Timed::new(Span { first: 1, last: 1 }, Left::INDEFINITE);
        assert_eq!(Plan::between(&[timed(1, 1, 60)], &[indefinite]).len(), 2);
        assert_eq!(Plan::between(&[indefinite], &[timed(1, 1, 60)]).len(), 2);
        assert!(Plan::between(&[indefinite], &[indefinite]).is_empty());
    }

    #[test]
    fn an_element_that_ends_in_a_moment_is_left_to_the_kernel() {
        let found = [timed(1, 1, 2), timed(5, 8, 2)];
        assert!(Plan::between(&found, &[]).is_empty());
        assert!(lifted(&found, &[]).is_empty());
        // Unless it is in the place of another.
        let plan = Plan::between(&found, &[timed(6, 6, 60)]);
        assert_eq!(plan.remove, [Span { first: 5, last: 8 }]);
    }

    #[test]
    fn strays_are_removed_and_missing_ones_added() {
        let plan = Plan::between(
            &[timed(1, 1, 9), timed(7, 8, 9)],
            &[timed(3, 3, 9), timed(7, 8, 9)],
        );
        assert_eq!(plan.remove, [Span { first: 1, last: 1 }]);
        assert_eq!(plan.add, [timed(3, 3, 9)]);
    }

    #[test]
    fn a_group_holds_a_range_and_the_pieces_that_replace_it() {
        let plan = Plan::between(
            &[timed(1, 1, 9), timed(10, 20, 9)],
            &[
                timed(10, 14, 9),
                timed(15, 15, 90),
                timed(16, 20, 9),
                timed(30, 30, 9),
            ],
        );
        let groups = plan.groups();
        assert_eq!(groups.len(), 3);
        assert_eq!((groups[0].remove.len(), groups[0].add.len()), (1, 0));
        assert_eq!((groups[1].remove.len(), groups[1].add.len()), (1, 3));
        assert_eq!((groups[2].remove.len(), groups[2].add.len()), (0, 1));
    }

    #[test]
    fn a_ban_that_ends_earlier_in_part_is_lifted() {
        let found = [timed(10, 20, 60)];
        assert!(lifted(&found, &[timed(0, 30, 60)]).is_empty());
        assert!(lifted(&found, &[timed(0, 14, 70), timed(15, 30, 60)]).is_empty());
        for desired in [
            &[][..],
            &[timed(10, 19, 60)],
            &[timed(11, 20, 60)],
            &[timed(10, 14, 60), timed(16, 20, 60)],
            &[timed(10, 20, 50)],
        ] {
            assert_eq!(lifted(&found, desired), found, "{desired:?}");
        }
    }

    fn brake() -> Brake {
        Brake::new(BrakeSettings {
            above: 100,
            percent: 50,
            pause: Duration::from_secs(60),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_mass_lift_waits_until_an_answer_after_the_pause_confirms_it() {
        let mut brake = brake();
        let first = Instant::now();
        assert!(brake.holds(51, 101, first));
        assert!(brake.holds(51, 101, first + Duration::from_secs(59)));
        // No later answer: time alone does not release it.
        assert!(brake.holds(51, 101, first));
        assert!(!brake.holds(51, 101, first + Duration::from_secs(60)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_lifts_little_ends_the_wait_of_the_one_before() {
        let mut brake = brake();
        let first = Instant::now();
        assert!(brake.holds(101, 101, first));
        assert!(!brake.holds(0, 101, first + Duration::from_secs(30)));
        assert!(!brake.is_on());
        assert!(brake.holds(101, 101, first + Duration::from_secs(61)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_lifts_more_is_confirmed_for_itself() {
        let mut brake = brake();
        let first = Instant::now();
        let later = |seconds| first + Duration::from_secs(seconds);
        assert!(brake.holds(60, 101, first));
        // A feed that shrinks a little meanwhile is confirmed.
        assert!(brake.holds(63, 101, later(30)));
        assert!(brake.holds(101, 101, later(61)), "all in place of a part");
        assert!(!brake.holds(101, 101, later(121)));
        brake.applied();
        assert!(!brake.is_on());
        assert!(brake.holds(101, 101, later(122)), "the next one");
    }

    #[tokio::test(start_paused = true)]
    async fn small_sets_and_small_shares_pass() {
        let mut brake = brake();
        assert!(!brake.holds(100, 100, Instant::now()));
        assert!(!brake.holds(50, 101, Instant::now()));
        assert!(brake.holds(51, 101, Instant::now()));
    }

    fn pieces() -> impl Strategy<Value = Vec<Timed>> {
        prop::collection::vec((0_u128..60, 0_u128..9, 1_u64..4), 0..12).prop_map(|entries| {
            flatten(
                entries
                    .into_iter()
                    .map(|(first, size, hours)| timed(first, first + size, hours * 3600)),
            )
        })
    }

    proptest! {
        #[test]
        fn a_plan_makes_the_kernel_equal_to_the_list(observed in pieces(), desired in pieces()) {
            let plan = Plan::between(&observed, &desired);
            let mut kernel = observed.clone();
            for group in plan.groups() {
                for span in group.remove {
                    let at = kernel.iter().position(|found| found.span == *span);
                    kernel.remove(at.expect("an element that is there"));
                }
                for timed in group.add {
                    prop_assert!(kernel.iter().all(|found| !found.span.overlaps(timed.span)));
                    kernel.push(*timed);
                }
            }
            kernel.sort_unstable();
            prop_assert_eq!(kernel, desired);
        }

        #[test]
        fn nothing_is_lifted_from_a_list_that_keeps_what_it_would_lift(observed in pieces(), desired in pieces()) {
            let kept = lifted(&observed, &desired);
            let together = with_kept(&desired, &kept);
            prop_assert!(lifted(&observed, &together).is_empty());
            prop_assert!(lifted(&desired, &together).is_empty());
        }
    }
}
