//! Addresses and node ports of Services that are being written.

use std::collections::{BTreeSet, HashSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::taken::Taken;
use crate::store::{Key, Store};

/// The values that writes under way have chosen, and that no stored object has yet.
///
/// The lock is held only while values are chosen. A claim lasts until its write is stored, refused or dropped.
#[derive(Debug, Default)]
pub(crate) struct Claims(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    claimed: Claimed,
    taken: Taken,
}

#[derive(Debug, Default)]
struct Claimed {
    addresses: HashSet<Ipv4Addr>,
    ports: BTreeSet<u64>,
}

/// The choice of values for one object. It is made as a whole, or not at all.
pub(super) struct Choice<'a> {
    claims: &'a Claims,
    others: MutexGuard<'a, State>,
    own: Claimed,
}

/// The values of one write; they are free again when it is dropped, unless an object with them is stored.
#[derive(Debug)]
pub(crate) struct Claim {
    all: Arc<Mutex<State>>,
    own: Claimed,
}

// === impl Claims ===

impl Claims {
    /// Begins a choice among what no object of `store` has; others wait for its end.
    pub(super) fn choose(&self, store: &Store) -> Choice<'_> {
        let mut others = self.0.lock();
        // A claim that has ended was stored before, so the store is read under the lock.
        others.taken.follow(store);
        Choice {
            claims: self,
            others,
            own: Claimed::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let state = self.0.lock();
        let claimed = &state.claimed;
        claimed.addresses.is_empty() && claimed.ports.is_empty()
    }
}

// === impl Choice ===

impl Choice<'_> {
    /// Whether a Service has the address, or another write has claimed it.
    pub(super) fn is_taken(&self, address: Ipv4Addr) -> bool {
        self.others.taken.has_address(address) || self.others.claimed.addresses.contains(&address)
    }

    /// The node ports that Services but this one have, or other writes have claimed.
    pub(super) fn ports_of_others(&self, key: &Key) -> BTreeSet<u64> {
        let claimed = self.others.claimed.ports.iter().copied();
        self.others
            .taken
            .ports_of_others(key)
            .chain(claimed)
            .collect()
    }

    pub(super) fn add_address(&mut self, address: Ipv4Addr) {
        self.own.addresses.insert(address);
    }

    pub(super) fn add_ports(&mut self, ports: impl IntoIterator<Item = u64>) {
        self.own.ports.extend(ports);
    }

    /// Ends the choice.
    pub(super) fn claim(mut self) -> Claim {
        self.others.claimed.addresses.extend(&self.own.addresses);
        self.others.claimed.ports.extend(&self.own.ports);
        Claim {
            all: Arc::clone(&self.claims.0),
            own: self.own,
        }
    }
}

// === impl Claim ===

impl Drop for Claim {
    fn drop(&mut self) {
        let mut state = self.all.lock();
        let claimed = &mut state.claimed;
        for address in &self.own.addresses {
            claimed.addresses.remove(address);
        }
        for port in &self.own.ports {
            claimed.ports.remove(port);
        }
    }
}
