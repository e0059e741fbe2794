//! Which addresses may be called.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Metadata and platform services outside of the link-local ranges: Alibaba Cloud, Oracle Cloud, Azure.
const SERVICES_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];

/// The same over IPv6: Amazon, Google Cloud.
const SERVICES_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254),
    Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254),
];

/// Guards against a configuration that aims the operator at itself or at a cloud's metadata service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    /// Allows `127.0.0.0/8` and `::1`: for development, and for an agent on the same host network.
    pub allow_loopback: bool,
}

// === impl AddressPolicy ===

impl AddressPolicy {
    /// Whether `address` may be connected to.
    #[must_use]
    pub fn allows(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if let IpAddr::V6(v6) = address
            && let Some(v4) = translated(v6)
        {
            return self.allows(IpAddr::V4(v4));
        }
        match address {
            IpAddr::V4(v4) if v4.is_loopback() => self.allow_loopback,
            IpAddr::V6(v6) if v6.is_loopback() => self.allow_loopback,
            IpAddr::V4(v4) => {
                !(v4.is_link_local()
                    || v4.is_multicast()
                    || v4.is_broadcast()
                    || v4.octets()[0] == 0
                    || SERVICES_V4.contains(&v4))
            }
            IpAddr::V6(v6) => {
                !(v6.is_unicast_link_local()
                    || v6.is_multicast()
                    || v6.is_unspecified()
                    || SERVICES_V6.contains(&v6))
            }
        }
    }
}

/// The IPv4 address that a gateway on the way makes of `v6`: NAT64 (`64:ff9b::/96`) and 6to4 (`2002::/16`).
fn translated(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match v6.segments() {
        [0x0064, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_link_local_and_unspecified_addresses_are_refused() {
        for policy in [
            AddressPolicy::default(),
            AddressPolicy {
                allow_loopback: true,
            },
        ] {
            for refused in [
                "169.254.169.254",
                "100.100.100.200",
                "0.0.0.0",
                "224.0.0.1",
                "255.255.255.255",
                "fe80::1",
                "ff02::1",
                "::",
                "::ffff:169.254.169.254",
                "fd00:ec2::254",
                "fd20:ce::254",
                "168.63.129.16",
                "192.0.0.192",
                "64:ff9b::a9fe:a9fe",
                "64:ff9b::168.63.129.16",
                "2002:a9fe:a9fe::1",
            ] {
                assert!(!policy.allows(refused.parse().unwrap()), "{refused}");
            }
            for allowed in [
                "10.0.0.9",
                "192.0.2.1",
                "2001:db8::1",
                "fd12::1",
                "64:ff9b::192.0.2.1",
                "2002:c000:201::1",
            ] {
                assert!(policy.allows(allowed.parse().unwrap()), "{allowed}");
            }
        }
    }

    #[test]
    fn loopback_needs_the_switch() {
        for address in [
            "127.0.0.1",
            "127.8.8.8",
            "::1",
            "::ffff:127.0.0.1",
            "64:ff9b::127.0.0.1",
        ] {
            let address = address.parse().unwrap();
            assert!(!AddressPolicy::default().allows(address));
            let open = AddressPolicy {
                allow_loopback: true,
            };
            assert!(open.allows(address));
        }
    }
}
