//! Which claims overlap a target: the neighbours of a decision, and what a lift may have removed.

use std::sync::Arc;

use ipnet::IpNet;

use super::{Coverage, Neighbour};
use crate::target::Target;

// === impl Coverage ===

impl Coverage {
    /// Drops the assertion times of the claims that overlap `target`, and returns their blocks: after a lift the engine
    /// may no longer enforce them.
    ///
    /// A claim is returned once until it is asserted. Otherwise two overlapping blocks whose lifts fail half-way, at a
    /// gateway that is gone, would wake each other without end.
    pub fn recheck(&mut self, target: &Target, except: &str) -> Vec<Arc<str>> {
        let mut keys = self.keys_overlapping(target, except);
        keys.retain(|key| {
            let Some(claim) = self.claims.get_mut(key) else {
                return false;
            };
            claim.asserted = None;
            !std::mem::replace(&mut claim.rechecked, true)
        });
        keys
    }

    /// Returns a block again at the next [`recheck`](Self::recheck): its request was not delivered.
    pub fn undelivered(&mut self, key: &str) {
        if let Some(claim) = self.claims.get_mut(key) {
            claim.rechecked = false;
        }
    }

    /// The recorded claims of other blocks that overlap one of `targets`, each once and in a fixed order.
    #[must_use]
    pub fn neighbours(&self, targets: &[Target], except: &str) -> Vec<Neighbour> {
        let mut all: Vec<Neighbour> = Vec::new();
        for key in targets
            .iter()
            .flat_map(|target| self.keys_overlapping(target, except))
        {
            if let Some(claim) = self.claims.get(&key)
                && !claim.reserved
                && all.iter().all(|neighbour| neighbour.key != *key)
            {
                all.push(Neighbour {
                    key: key.to_string(),
                    standing: claim.standing(),
                    until: claim.until,
                });
            }
        }
        all
    }

    fn keys_overlapping(&self, target: &Target, except: &str) -> Vec<Arc<str>> {
        let (family, first, length) = coordinates(target);
        let mut keys = Vec::new();
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
            let from = (family, network, candidate, Arc::<str>::from(""));
            keys.extend(
                self.order
                    .range(from..)
                    .take_while(|entry| (entry.0, entry.1, entry.2) == (family, network, candidate))
                    .map(|entry| Arc::clone(&entry.3)),
            );
        }
        // The target itself and what lies inside of it.
        let last = (first | !mask(length)).to_be_bytes();
        let from = (family, first.to_be_bytes(), length, Arc::<str>::from(""));
        keys.extend(
            self.order
                .range(from..)
                .take_while(|entry| entry.0 == family && entry.1 <= last)
                .filter(|entry| entry.2 >= length)
                .map(|entry| Arc::clone(&entry.3)),
        );
        keys.retain(|key| key.as_ref() != except);
        keys
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
