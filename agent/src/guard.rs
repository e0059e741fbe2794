//! Entries that this node never bans, whatever the list has.
//!
//! A packet from the node's own address arrives over loopback, and a node that bans the operator cannot learn that the
//! ban is lifted. A range that holds such an address is refused as a whole, because a part of it is not what was
//! requested.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::interval::{Family, Left, Span, Timed, flatten};

/// Loopback, link-local, unspecified and multicast addresses. Routers and neighbours of IPv6 use link-local addresses.
const SPECIAL: [&str; 8] = [
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/4",
    "::/128",
    "::1/128",
    "fe80::/10",
    "ff00::/8",
];

/// Why an entry is not enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// Loopback, link-local, unspecified or multicast.
    Special,
    /// An address of this node.
    Node,
    /// An address of the operator's endpoint.
    Operator,
    /// A range of `--protect`.
    Protected,
    /// Not an address or a range.
    Invalid,
    /// There are more entries than `--max-entries`; those that end first are left out.
    Overflow,
}

/// The addresses that no entry may hold.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// Merged spans, sorted.
    ranges: BTreeMap<(Refusal, Family), Vec<Timed>>,
}

// === impl Refusal ===

impl Refusal {
    /// All reasons.
    pub const ALL: [Self; 6] = [
        Self::Special,
        Self::Node,
        Self::Operator,
        Self::Protected,
        Self::Invalid,
        Self::Overflow,
    ];

    /// The value of the label `reason`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Special => "special",
            Self::Node => "node",
            Self::Operator => "operator",
            Self::Protected => "protected",
            Self::Invalid => "invalid",
            Self::Overflow => "overflow",
        }
    }
}

// === impl Guard ===

impl Guard {
    /// Protects special addresses, those of the node and of the operator, and the ranges of `--protect`.
    #[must_use]
    pub fn new(node: &[IpAddr], operator: &[IpAddr], protected: &[IpNet]) -> Self {
        let mut guard = Self::default();
        let special = SPECIAL.iter().filter_map(|range| range.parse().ok());
        guard.add(Refusal::Special, special);
        guard.add(Refusal::Node, node.iter().copied().map(IpNet::from));
        guard.add(Refusal::Operator, operator.iter().copied().map(IpNet::from));
        guard.add(Refusal::Protected, protected.iter().copied());
        guard
    }

    fn add(&mut self, reason: Refusal, ranges: impl Iterator<Item = IpNet>) {
        let mut families = BTreeMap::<Family, Vec<Timed>>::new();
        for range in ranges {
            let (family, span) = Span::of(range);
            let timed = Timed::new(span, Left::INDEFINITE);
            families.entry(family).or_default().push(timed);
        }
        for (family, spans) in families {
            self.ranges.insert((reason, family), flatten(spans));
        }
    }

    /// The reason why `span` may not be banned.
    #[must_use]
    pub fn refuses(&self, family: Family, span: Span) -> Option<Refusal> {
        Refusal::ALL.into_iter().find(|reason| {
            self.ranges.get(&(*reason, family)).is_some_and(|ranges| {
                let at = ranges.partition_point(|range| range.span.last < span.first);
                ranges
                    .get(at)
                    .is_some_and(|range| range.span.overlaps(span))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_a_protected_address_is_refused() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let guard = Guard::new(
            &[address("198.51.100.7"), address("2001:db8::7")],
            &[address("198.51.100.9")],
            &["203.0.113.0/28".parse().unwrap()],
        );
        for (target, reason) in [
            ("127.0.0.1/32", Some(Refusal::Special)),
            ("::1/128", Some(Refusal::Special)),
            ("::ffff:127.0.0.1/128", Some(Refusal::Special)),
            ("fe80::1/128", Some(Refusal::Special)),
            ("169.254.169.254/32", Some(Refusal::Special)),
            ("0.0.0.0/0", Some(Refusal::Special)),
            ("::/0", Some(Refusal::Special)),
            ("198.51.100.7/32", Some(Refusal::Node)),
            ("198.51.100.0/29", Some(Refusal::Node)),
            ("2001:db8::/32", Some(Refusal::Node)),
            ("198.51.100.9/32", Some(Refusal::Operator)),
            ("203.0.113.15/32", Some(Refusal::Protected)),
            ("203.0.112.0/23", Some(Refusal::Protected)),
            ("198.51.100.8/32", None),
            ("203.0.113.16/28", None),
            ("2001:db9::/32", None),
        ] {
            let (family, span) = Span::of(target.parse().unwrap());
            assert_eq!(guard.refuses(family, span), reason, "{target}");
        }
    }
}
