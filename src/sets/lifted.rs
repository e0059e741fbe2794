//! Targets that were lifted before their ends.
//!
//! A reader that keeps the end of each ban by itself drops what is over. What was lifted earlier it drops only if it
//! reads so: this list is for readers whose position is not known.

use std::collections::{HashMap, VecDeque};

use super::set::{TargetSet, Until};
use crate::target::Target;

/// The most lifts that are remembered. Beyond them the earliest is forgotten. One takes about 50 bytes.
const MOST: usize = 65_536;

/// Lifted targets, each with the end that its ban had.
#[derive(Debug, Default)]
pub(super) struct Lifted {
    ends: TargetSet,
    order: VecDeque<Target>,
    /// How many of a target's places in `order` count no more: it was banned again, or lifted again.
    stale: HashMap<Target, u32>,
}

// === impl Lifted ===

impl Lifted {
    pub(super) fn add(&mut self, target: Target, until: Until) {
        self.remove(&target);
        self.ends.insert(target, until);
        self.order.push_back(target);
        if self.order.len() > MOST {
            self.forget_earliest();
        }
    }

    /// `target` is banned again.
    pub(super) fn remove(&mut self, target: &Target) {
        if self.ends.remove(target).is_some() {
            *self.stale.entry(*target).or_default() += 1;
        }
    }

    /// The lifted targets whose bans would not be over at `now`.
    pub(super) fn at(&mut self, now: Until) -> TargetSet {
        for target in self.ends.ended(now) {
            self.remove(&target);
        }
        if self.ends.is_empty() {
            self.order.clear();
            self.stale.clear();
        }
        self.ends.clone()
    }

    /// Forgets the earliest place in the order, and its lift, if that is the latest of its target.
    fn forget_earliest(&mut self) {
        let Some(earliest) = self.order.pop_front() else {
            return;
        };
        match self.stale.get_mut(&earliest) {
            Some(1) => {
                self.stale.remove(&earliest);
            }
            Some(places) => *places -= 1,
            None => {
                self.ends.remove(&earliest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn target(number: usize) -> Target {
        let address = Ipv4Addr::from(u32::try_from(number).unwrap());
        address.to_string().parse().unwrap()
    }

    #[test]
    fn lifts_are_bounded_and_the_earliest_goes_first() {
        let mut lifted = Lifted::default();
        for number in 0..=MOST {
            lifted.add(target(number), Until::NEVER);
        }
        let ends = lifted.at(Until::new(Some(jiff::Timestamp::UNIX_EPOCH)));
        assert_eq!((ends.len(), lifted.order.len()), (MOST, MOST));
        assert_eq!(ends.get(&target(0)), None);
        assert!(ends.get(&target(MOST)).is_some());
    }

    #[test]
    fn a_target_that_was_banned_in_between_is_forgotten_by_its_latest_lift() {
        let now = Until::new(Some(jiff::Timestamp::UNIX_EPOCH));
        let mut lifted = Lifted::default();
        for _ in 0..3 {
            lifted.add(target(0), Until::NEVER);
            lifted.remove(&target(0));
        }
        for number in 1..MOST {
            lifted.add(target(number), Until::NEVER);
        }
        lifted.add(target(0), Until::NEVER);
        assert!(lifted.at(now).get(&target(0)).is_some(), "it is the latest");
        for number in 1..MOST {
            lifted.add(target(MOST + number), Until::NEVER);
            assert!(lifted.order.len() <= MOST && lifted.stale.len() <= 1);
        }
        assert!(lifted.at(now).get(&target(0)).is_some());
        lifted.add(target(2 * MOST), Until::NEVER);
        assert_eq!(lifted.at(now).get(&target(0)), None, "it is the earliest");
        assert!(lifted.stale.is_empty());
    }

    #[test]
    fn a_target_that_is_lifted_twice_keeps_the_later_end_and_its_later_place() {
        let end = |second| Until::new(Some(jiff::Timestamp::from_second(second).unwrap()));
        let mut lifted = Lifted::default();
        lifted.add(target(0), end(1_800_000_000));
        lifted.add(target(1), end(1_800_000_000));
        lifted.add(target(0), end(1_900_000_000));
        lifted.forget_earliest();
        lifted.forget_earliest();
        let ends = lifted.at(end(1_700_000_000));
        assert_eq!(ends.get(&target(0)), Some(end(1_900_000_000)));
        assert_eq!(ends.len(), 1);
        assert!(lifted.at(end(1_900_000_000)).is_empty());
        assert!(lifted.order.is_empty() && lifted.stale.is_empty());
    }
}
