//! Addresses and node ports of Services that are being written.

use std::collections::{BTreeSet, HashSet};
use std::net::Ipv4Addr;

use parking_lot::{Mutex, MutexGuard};

/// The values that writes under way have chosen, and that no stored object has yet.
///
/// The lock is held only while values are chosen. A claim lasts until its write is stored, refused or dropped.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<Claimed>);

#[derive(Debug, Default)]
struct Claimed {
    addresses: HashSet<Ipv4Addr>,
    ports: BTreeSet<u64>,
}

/// The choice of values for one object. It is made as a whole, or not at all.
pub(super) struct Choice<'a> {
    claims: &'a Claims,
    others: MutexGuard<'a, Claimed>,
    own: Claimed,
}

/// The values of one write; they are free again when it is dropped, unless an object with them is stored.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    claims: &'a Claims,
    own: Claimed,
}

// === impl Claims ===

impl Claims {
    /// Begins a choice; others wait for its end.
    pub(super) fn choose(&self) -> Choice<'_> {
        Choice {
            claims: self,
            others: self.0.lock(),
            own: Claimed::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let claimed = self.0.lock();
        claimed.addresses.is_empty() && claimed.ports.is_empty()
    }
}

// === impl Choice ===

impl<'a> Choice<'a> {
    /// The addresses that other writes have claimed.
    pub(super) fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.others.addresses.iter().copied()
    }

    /// The node ports that other writes have claimed.
    pub(super) fn ports(&self) -> impl Iterator<Item = u64> {
        self.others.ports.iter().copied()
    }

    pub(super) fn add_address(&mut self, address: Ipv4Addr) {
        self.own.addresses.insert(address);
    }

    pub(super) fn add_ports(&mut self, ports: impl IntoIterator<Item = u64>) {
        self.own.ports.extend(ports);
    }

    /// Ends the choice.
    pub(super) fn claim(mut self) -> Claim<'a> {
        self.others.addresses.extend(&self.own.addresses);
        self.others.ports.extend(&self.own.ports);
        Claim {
            claims: self.claims,
            own: self.own,
        }
    }
}

// === impl Claim ===

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut claimed = self.claims.0.lock();
        claimed
            .addresses
            .retain(|address| !self.own.addresses.contains(address));
        claimed.ports.retain(|port| !self.own.ports.contains(port));
    }
}
