//! The range of the cluster addresses of Services.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// Addresses at the beginning of a range that are given to a Service only on request.
const ON_REQUEST: u32 = 10;

/// A range of IPv4 addresses. (kube-apiserver: `--service-cluster-ip-range`.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServiceRange {
    /// The address of the network.
    network: u32,
    /// The length of the prefix in bits, 12 to 30.
    prefix: u32,
}

// === impl ServiceRange ===

impl Default for ServiceRange {
    /// 10.96.0.0/16.
    fn default() -> Self {
        Self {
            network: 0x0a60_0000,
            prefix: 16,
        }
    }
}

impl ServiceRange {
    fn size(self) -> u32 {
        1 << (32 - self.prefix)
    }

    /// The first address, which the Service of the server has.
    pub(crate) fn first(self) -> Ipv4Addr {
        Ipv4Addr::from(self.network + 1)
    }

    /// Whether a Service may have `address`.
    pub(super) fn contains(self, address: Ipv4Addr) -> bool {
        let address = u32::from(address);
        (self.network + 1..self.network + self.size() - 1).contains(&address)
    }

    /// The addresses for Services that request none, in order.
    pub(super) fn chosen(self) -> std::ops::RangeInclusive<u32> {
        let first = ON_REQUEST.min(self.size() / 2);
        self.network + first..=self.network + self.size() - 2
    }
}

impl FromStr for ServiceRange {
    type Err = String;

    /// The first range of a list such as `10.0.0.0/24,fd00::/112`.
    fn from_str(text: &str) -> Result<Self, String> {
        let first = text.split(',').next().unwrap_or_default();
        let (address, prefix) = first
            .split_once('/')
            .ok_or_else(|| format!("{first:?} is not a range such as 10.0.0.0/24"))?;
        let address: Ipv4Addr = address
            .parse()
            .map_err(|_| format!("{first:?} is not a range of IPv4 addresses"))?;
        let prefix: u32 = prefix
            .parse()
            .ok()
            .filter(|prefix| (12..=30).contains(prefix))
            .ok_or_else(|| format!("{first:?} has a prefix outside of /12 to /30"))?;
        let network = u32::from(address) & (u32::MAX << (32 - prefix));
        Ok(Self { network, prefix })
    }
}

impl fmt::Display for ServiceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.network), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> ServiceRange {
        text.parse().unwrap()
    }

    fn address(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    #[test]
    fn the_first_address_is_the_servers_and_the_next_ones_are_given_on_request() {
        let small = range("10.0.0.77/24,fd00::/112");
        assert_eq!(small.to_string(), "10.0.0.0/24");
        assert_eq!(small.first(), address("10.0.0.1"));
        let chosen: Vec<Ipv4Addr> = small.chosen().map(Ipv4Addr::from).collect();
        assert_eq!(chosen[0], address("10.0.0.10"));
        assert_eq!(chosen[chosen.len() - 1], address("10.0.0.254"));
        assert_eq!(ServiceRange::default(), range("10.96.0.0/16"));
        assert_eq!(ServiceRange::default().chosen().count(), 65_535 - 10);
    }

    #[test]
    fn neither_the_network_nor_its_broadcast_address_is_in_range() {
        let small = range("10.0.0.0/30");
        for (text, expected) in [
            ("10.0.0.0", false),
            ("10.0.0.1", true),
            ("10.0.0.2", true),
            ("10.0.0.3", false),
            ("10.0.1.1", false),
        ] {
            assert_eq!(small.contains(address(text)), expected, "{text}");
        }
        assert_eq!(
            small.chosen().map(Ipv4Addr::from).collect::<Vec<_>>(),
            [address("10.0.0.2")]
        );
    }

    #[test]
    fn what_is_not_a_range_of_a_server_is_refused() {
        for text in [
            "",
            "10.0.0.0",
            "fd00::/112",
            "10.0.0.0/31",
            "10.0.0.0/8",
            "10.0.0.0/x",
        ] {
            assert!(text.parse::<ServiceRange>().is_err(), "{text}");
        }
    }
}
