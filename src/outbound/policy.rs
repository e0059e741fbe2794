//! Which addresses may be called.

use std::net::{IpAddr, Ipv4Addr};

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
        match address.to_canonical() {
            IpAddr::V4(v4) if v4.is_loopback() => self.allow_loopback,
            IpAddr::V6(v6) if v6.is_loopback() => self.allow_loopback,
            IpAddr::V4(v4) => {
                !(v4.is_link_local()
                    || v4.is_multicast()
                    || v4.is_broadcast()
                    || v4.octets()[0] == 0
                    // Alibaba Cloud serves its metadata from a carrier-grade NAT address.
                    || v4 == Ipv4Addr::new(100, 100, 100, 200))
            }
            IpAddr::V6(v6) => {
                !(v6.is_unicast_link_local()
                    || v6.is_multicast()
                    || v6.is_unspecified()
                    // Amazon's metadata service over IPv6, fd00:ec2::254.
                    || v6.segments() == [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254])
            }
        }
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
            ] {
                assert!(!policy.allows(refused.parse().unwrap()), "{refused}");
            }
            for allowed in ["10.0.0.9", "192.0.2.1", "2001:db8::1", "fd12::1"] {
                assert!(policy.allows(allowed.parse().unwrap()), "{allowed}");
            }
        }
    }

    #[test]
    fn loopback_needs_the_switch() {
        for address in ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
            let address = address.parse().unwrap();
            assert!(!AddressPolicy::default().allows(address));
            let open = AddressPolicy {
                allow_loopback: true,
            };
            assert!(open.allows(address));
        }
    }
}
