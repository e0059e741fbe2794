//! Targets that were lifted before their ends.
//!
//! A reader that keeps the end of each ban by itself drops what is over. What was lifted earlier it drops only if it
//! reads so: this list is for readers whose position is not known.

use std::collections::VecDeque;

use super::set::{TargetSet, Until};
use crate::target::Target;

/// The most lifts that are remembered. Beyond them the earliest is forgotten. One takes about 50 bytes.
const MOST: usize = 65_536;

/// Lifted targets, each with the end that its ban had.
#[derive(Debug, Default)]
pub(super) struct Lifted {
    ends: TargetSet,
    order: VecDeque<Target>,
}

// === impl Lifted ===

impl Lifted {
    pub(super) fn add(&mut self, target: Target, until: Until) {
        self.ends.insert(target, until);
        self.order.push_back(target);
        if self.order.len() > MOST
            && let Some(earliest) = self.order.pop_front()
        {
            self.ends.remove(&earliest);
        }
    }

    /// `target` is banned again.
    pub(super) fn remove(&mut self, target: &Target) {
        self.ends.remove(target);
    }

    /// The lifted targets whose bans would not be over at `now`.
    pub(super) fn at(&mut self, now: Until) -> TargetSet {
        for target in self.ends.ended(now) {
            self.ends.remove(&target);
        }
        if self.ends.is_empty() {
            self.order.clear();
        }
        self.ends.clone()
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
}
