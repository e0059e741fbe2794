//! Which claims overlap a target: the neighbours of a decision, and what a lift may have removed.

use std::sync::Arc;

use ipnet::IpNet;

use super::claims::Number;
use super::{Claim, Coverage, Neighbour, Position};
use crate::api::Standing;
use crate::target::Target;

// === impl Coverage ===

impl Coverage {
    /// Drops the assertion times of the claims that overlap `target`, and returns their blocks: after a lift the engine
    /// may no longer enforce them.
    ///
    /// A claim is returned once until it is asserted. Otherwise two overlapping blocks whose lifts fail half-way, at a
    /// gateway that is gone, would wake each other without end.
    pub fn recheck(&mut self, target: &Target, except: &str) -> Vec<Arc<str>> {
        self.recheck_if(target, except, |_| true)
    }

    /// The same for the claims at the gateway of `standing`, after a lift there that failed and may have happened. Blocks that
    /// stand elsewhere have nothing to mend there: two that moved from one gateway would wake each other, as each assertion
    /// tries the lift again.
    pub fn recheck_at(&mut self, standing: &Standing, except: &str) -> Vec<Arc<str>> {
        let here = |claim: &Claim| *claim.place == standing.place;
        self.recheck_if(&standing.target, except, here)
    }

    fn recheck_if(
        &mut self,
        target: &Target,
        except: &str,
        concerns: impl Fn(&Claim) -> bool,
    ) -> Vec<Arc<str>> {
        let mut keys = Vec::new();
        for number in self.overlapping(target, except) {
            if let Some(claim) = self.claims.at_mut(number)
                && concerns(claim)
            {
                claim.asserted = None;
                if !std::mem::replace(&mut claim.rechecked, true) {
                    keys.extend(self.claims.key(number).cloned());
                }
            }
        }
        keys
    }

    /// The recorded claims of other blocks that overlap one of `targets`, each once and in a fixed order.
    #[must_use]
    pub fn neighbours(&self, targets: &[Target], except: &str) -> Vec<Neighbour> {
        let mut all: Vec<Neighbour> = Vec::new();
        for number in targets
            .iter()
            .flat_map(|target| self.overlapping(target, except))
        {
            if let Some((key, claim)) = self.claims.at(number)
                && !claim.reserved
                && all.iter().all(|neighbour| neighbour.key != **key)
            {
                all.push(Neighbour {
                    key: key.to_string(),
                    standing: claim.standing(),
                    until: claim.until,
                    reported: claim.reported,
                });
            }
        }
        all
    }

    /// The claims of other blocks that overlap `target`: those of one range in the order of their blocks.
    fn overlapping(&self, target: &Target, except: &str) -> Vec<Number> {
        let (family, first, length) = coordinates(target);
        let mut found: Vec<Position> = Vec::new();
        // Ranges around the target: one place for each prefix length in use.
        let mut shorter: Vec<u8> = self
            .lengths
            .keys()
            .filter(|(of, candidate)| *of == family && *candidate < length)
            .map(|(_, candidate)| *candidate)
            .collect();
        shorter.sort_unstable();
        for candidate in shorter {
            let network = (first & mask(candidate)).to_be_bytes();
            let around = (family, network, candidate, Number::MIN)
                ..=(family, network, candidate, Number::MAX);
            found.extend(self.order.range(around));
        }
        // The target itself and what lies inside of it.
        let last = (first | !mask(length)).to_be_bytes();
        let inside = (family, first.to_be_bytes(), length, Number::MIN)
            ..=(family, last, u8::MAX, Number::MAX);
        let inside = self.order.range(inside).filter(|entry| entry.2 >= length);
        found.extend(inside);
        let key = |position: &Position| self.claims.key(position.3);
        for same in found.chunk_by_mut(|one, other| (one.1, one.2) == (other.1, other.2)) {
            same.sort_by(|one, other| key(one).cmp(&key(other)));
        }
        let others = found
            .iter()
            .filter(|position| key(position).is_some_and(|key| **key != *except));
        others.map(|position| position.3).collect()
    }
}

/// IPv4 addresses are put at the upper end of 128 bits, so that one mask serves both families.
pub(super) fn coordinates(target: &Target) -> (bool, u128, u8) {
    match target.net() {
        IpNet::V4(net) => (
            false,
            u128::from(u32::from(net.addr())) << 96,
            net.prefix_len(),
        ),
        IpNet::V6(net) => (true, u128::from(net.addr()), net.prefix_len()),
    }
}

fn mask(length: u8) -> u128 {
    match length {
        0 => 0,
        length => u128::MAX << (128 - u32::from(length.min(128))),
    }
}
