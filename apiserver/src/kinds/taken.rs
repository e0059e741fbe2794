//! The addresses and ports of nodes that stored Services have.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;

use serde_json::Value;

use super::services::{has_node_ports, health_check_port, needs_health_check, node_ports};
use crate::store::{Key, Objects, Store};

const SERVICES: &str = "services";

/// The addresses and ports of Services in a state of the store. It follows the store write by write, so an allocation reads no
/// Service twice. The state stays in memory until the next allocation.
#[derive(Debug, Default)]
pub(super) struct Taken {
    seen: Objects,
    services: HashMap<Key, Values>,
    /// Each with the number of Services that have it.
    addresses: BTreeMap<Ipv4Addr, usize>,
    ports: BTreeMap<u64, usize>,
}

/// The address and the ports of one Service.
#[derive(Debug)]
struct Values {
    address: Option<Ipv4Addr>,
    ports: BTreeSet<u64>,
}

// === impl Taken ===

impl Taken {
    /// Follows the writes since the last time.
    pub(super) fn follow(&mut self, store: &Store) {
        let now = store.objects(SERVICES);
        let seen = std::mem::take(&mut self.seen);
        for (key, object) in seen.written_until(&now) {
            if let Some(before) = self.services.remove(key) {
                self.subtract(&before);
            }
            if let Some(object) = object {
                let values = Values::of(&object.to_value());
                self.add(&values);
                self.services.insert(key.clone(), values);
            }
        }
        self.seen = now;
    }

    fn add(&mut self, values: &Values) {
        if let Some(address) = values.address {
            *self.addresses.entry(address).or_default() += 1;
        }
        for port in &values.ports {
            *self.ports.entry(*port).or_default() += 1;
        }
    }

    fn subtract(&mut self, values: &Values) {
        if let Some(address) = values.address {
            less(&mut self.addresses, &address);
        }
        for port in &values.ports {
            less(&mut self.ports, port);
        }
    }

    /// Whether a Service has the address.
    pub(super) fn has_address(&self, address: Ipv4Addr) -> bool {
        self.addresses.contains_key(&address)
    }

    /// The ports of all Services but one.
    pub(super) fn ports_of_others(&self, key: &Key) -> impl Iterator<Item = u64> {
        let own = self.services.get(key);
        let is_own = move |port: &u64| own.is_some_and(|own| own.ports.contains(port));
        let others = self.ports.iter();
        let others = others.filter(move |(port, count)| **count > usize::from(is_own(port)));
        others.map(|(port, _)| *port)
    }
}

// === impl Values ===

impl Values {
    fn of(service: &Value) -> Self {
        let address = service["spec"]["clusterIP"].as_str();
        let mut ports = BTreeSet::new();
        if has_node_ports(service) {
            ports = node_ports(service);
            ports.extend(own_health_check_port(service));
        }
        Self {
            address: address.and_then(|address| address.parse().ok()),
            ports,
        }
    }
}

/// The port at which load balancers check nodes for this Service.
pub(super) fn own_health_check_port(service: &Value) -> Option<u64> {
    let number = health_check_port(service);
    u64::try_from(number)
        .ok()
        .filter(|&number| number != 0 && needs_health_check(service))
}

/// Counts one less, and forgets a count of zero.
fn less<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
