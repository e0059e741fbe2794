//! Values by address range: which ranges contain, equal or lie inside a target.
//!
//! The ranges are ordered by family, first address and length, so that what lies inside a range follows it. A range
//! around a target has one possible place for each prefix length in use: a lookup costs a few searches in the order,
//! however many ranges there are.
//!
//! [`Prefixes::meeting`] compares an IPv6 target with the IPv6 forms of IPv4 ranges too (mapped, NAT64, 6to4): behind a
//! dual-stack proxy they are the same client.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::target::Target;

/// Values by range; each range has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefixes<T> {
    entries: BTreeMap<Key, T>,
    /// How many ranges there are of each family and prefix length.
    lengths: BTreeMap<(bool, u8), usize>,
}

/// Family (IPv6 is `true`), first address, prefix length.
type Key = (bool, u128, u8);

// === impl Prefixes ===

impl<T> Prefixes<T> {
    /// No ranges.
    #[must_use]
    pub fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
            lengths: BTreeMap::new(),
        }
    }

    /// How many ranges there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sets the value of a range, unless it has one.
    pub fn add(&mut self, target: Target, value: T) {
        let key = key(&target);
        if let std::collections::btree_map::Entry::Vacant(place) = self.entries.entry(key) {
            place.insert(value);
            *self.lengths.entry((key.0, key.2)).or_default() += 1;
        }
    }

    /// The value of exactly this range.
    #[must_use]
    pub fn get(&self, target: &Target) -> Option<&T> {
        self.entries.get(&key(target))
    }

    /// Removes all ranges.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.lengths.clear();
    }

    /// All ranges, IPv4 first, in the order of their addresses.
    pub fn iter(&self) -> impl Iterator<Item = (Target, &T)> + Clone {
        self.entries
            .iter()
            .map(|(key, value)| (target(*key), value))
    }

    /// A range that shares an address with `target`, in any form that addresses take on their way: the narrowest around
    /// it, otherwise the first inside of it.
    #[must_use]
    pub fn meeting(&self, target: &Target) -> Option<(Target, &T)> {
        if self.entries.is_empty() {
            return None;
        }
        let direct = self.overlapping(key(target));
        direct.or_else(|| {
            let IpNet::V6(v6) = target.net() else {
                return None;
            };
            let forms = embedded(v6).into_iter().flatten();
            forms
                .map(|v4| key(&Target::range(IpNet::V4(v4))))
                .find_map(|key| self.overlapping(key))
        })
    }

    fn overlapping(&self, key: Key) -> Option<(Target, &T)> {
        let (family, first, length) = key;
        let lengths = self.lengths.range((family, 0)..=(family, length)).rev();
        for ((_, candidate), _) in lengths {
            let around = (family, first & mask(*candidate), *candidate);
            if let Some(value) = self.entries.get(&around) {
                return Some((target(around), value));
            }
        }
        let last = first | !mask(length);
        let inside = self.entries.range(key..=(family, last, u8::MAX));
        let mut inside = inside.filter(|(entry, _)| entry.2 >= length);
        inside.next().map(|(key, value)| (target(*key), value))
    }
}

impl<T> Default for Prefixes<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> FromIterator<(Target, T)> for Prefixes<T> {
    fn from_iter<I: IntoIterator<Item = (Target, T)>>(entries: I) -> Self {
        let mut all = Self::new();
        for (target, value) in entries {
            all.add(target, value);
        }
        all
    }
}

impl<T: Default> FromIterator<Target> for Prefixes<T> {
    fn from_iter<I: IntoIterator<Item = Target>>(targets: I) -> Self {
        let entries = targets.into_iter().map(|target| (target, T::default()));
        entries.collect()
    }
}

/// IPv4 addresses are put at the upper end of 128 bits, so that one mask serves both families.
fn key(target: &Target) -> Key {
    match target.net() {
        IpNet::V4(net) => (
            false,
            u128::from(u32::from(net.addr())) << 96,
            net.prefix_len(),
        ),
        IpNet::V6(net) => (true, u128::from(net.addr()), net.prefix_len()),
    }
}

fn target((v6, first, length): Key) -> Target {
    let address = if v6 {
        IpAddr::V6(Ipv6Addr::from(first))
    } else {
        IpAddr::V4(Ipv4Addr::from(
            u32::try_from(first >> 96).unwrap_or_default(),
        ))
    };
    // A key is made of a range, so its length fits.
    IpNet::new(address, length).map_or_else(|_| Target::host(address), Target::range)
}

fn mask(length: u8) -> u128 {
    match length {
        0 => 0,
        length => u128::MAX << (128 - u32::from(length.min(128))),
    }
}

/// The IPv4 ranges that an IPv6 range stands for or covers: mapped (`::ffff:0:0/96`), NAT64 (`64:ff9b::/96`) and 6to4
/// (`2002::/16`).
fn embedded(v6: Ipv6Net) -> [Option<Ipv4Net>; 3] {
    [
        (0xffff_u128 << 32, 96),
        (0x0064_ff9b_u128 << 96, 96),
        (0x2002_u128 << 112, 16),
    ]
    .map(|(base, length)| {
        let first = u128::from(v6.network());
        if v6.prefix_len() <= length {
            // Covers every form of this kind, or none.
            let covers = base & mask(v6.prefix_len()) == first;
            return covers.then(Ipv4Net::default);
        }
        if first & mask(length) != base {
            return None;
        }
        let bits = (first << length) >> 96;
        let address = Ipv4Addr::from(u32::try_from(bits).ok()?);
        let prefix = (v6.prefix_len() - length).min(32);
        Ipv4Net::new(address, prefix).ok().map(|net| net.trunc())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn target(text: &str) -> Target {
        text.parse().unwrap()
    }

    #[test]
    fn the_narrowest_range_around_a_target_is_found_before_those_inside_of_it() {
        let texts = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3"];
        let all: Prefixes<()> = texts.map(target).into_iter().collect();
        let found = |text| {
            let met = all.meeting(&target(text));
            met.map(|(range, ())| range.to_string())
        };
        assert_eq!(found("10.1.2.3").as_deref(), Some("10.1.2.3"));
        assert_eq!(found("10.1.2.4").as_deref(), Some("10.1.2.0/24"));
        assert_eq!(found("10.9.0.0/16").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(found("8.0.0.0/6").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(found("11.0.0.0"), None);
        assert_eq!(found("::a01:203"), None, "IPv6 with the same bits");
        assert_eq!(all.len(), 4);
    }

    #[test]
    fn the_first_value_of_a_range_stays() {
        let mut all = Prefixes::new();
        all.add(target("192.0.2.0/24"), "first");
        all.add(target("192.0.2.0/24"), "second");
        assert_eq!(all.get(&target("192.0.2.0/24")), Some(&"first"));
        assert_eq!(all.iter().count(), 1);
    }

    /// The IPv6 ranges that stand for the addresses of `v4`.
    fn forms(v4: Ipv4Net) -> impl Iterator<Item = Ipv6Net> {
        let bits = u128::from(u32::from(v4.network()));
        let length = v4.prefix_len();
        [
            ((0xffff << 32) | bits, 96 + length),
            ((0x0064_ff9b << 96) | bits, 96 + length),
            ((0x2002 << 112) | (bits << 80), 16 + length),
        ]
        .into_iter()
        .filter_map(|(address, length)| Ipv6Net::new(Ipv6Addr::from(address), length).ok())
    }

    /// One comparison of two ranges, without an order.
    fn meets(entry: &Target, asked: &Target) -> bool {
        entry.overlaps(asked)
            || match (entry.net(), asked.net()) {
                (IpNet::V4(entry), IpNet::V6(asked)) => {
                    forms(entry).any(|form| form.contains(&asked) || asked.contains(&form))
                }
                _ => false,
            }
    }

    fn range() -> impl Strategy<Value = Target> {
        // Few different bits, so that ranges overlap.
        let v4 = (0u32..64, 0u8..=32).prop_map(|(bits, length)| {
            let address = IpAddr::V4((0xc000_0200 | (bits << 3)).into());
            Target::range(IpNet::new(address, length).unwrap())
        });
        let base = prop_oneof![
            Just((0xffff_u128 << 32, 96_u32)),
            Just((0x0064_ff9b_u128 << 96, 96)),
            Just((0x2002_u128 << 112, 16)),
            Just((0x2001_0db8_u128 << 96, 96)),
        ];
        let v6 = (base, 0u128..64, 0u8..=128).prop_map(|((base, skip), bits, length)| {
            let v4 = 0xc000_0200 | (bits << 3);
            let address = IpAddr::V6((base | (v4 << (96 - skip))).into());
            Target::range(IpNet::new(address, length).unwrap())
        });
        prop_oneof![v4, v6]
    }

    proptest! {
        #[test]
        fn a_lookup_finds_a_range_exactly_when_a_search_through_all_of_them_does(
            entries in proptest::collection::vec(range(), 0..12),
            asked in range(),
        ) {
            let all: Prefixes<()> = entries.iter().copied().collect();
            let expected = entries.iter().any(|entry| meets(entry, &asked));
            let found = all.meeting(&asked);
            prop_assert_eq!(found.is_some(), expected, "{:?}", found);
            if let Some((range, ())) = found {
                prop_assert!(meets(&range, &asked));
                prop_assert!(entries.contains(&range));
            }
        }
    }
}
