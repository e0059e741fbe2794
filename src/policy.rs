//! Which targets may be banned at all: the allowlist, the protected ranges, the widest range.
//!
//! Everything here is a pure function of a [`Policy`]; a refusal says which entry it is about. A
//! target is refused when it lies inside an entry *and* when an entry lies inside it: a banned /8
//! would otherwise take the allowlisted address in its middle with it. An IPv6 range is compared with
//! the IPv6 forms of an IPv4 entry too (mapped, NAT64, 6to4): behind a dual-stack proxy they are the
//! same client.

use std::fmt;
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;

use crate::prefix::Prefixes;
use crate::target::Target;

/// No configuration may allow a wider IPv4 range than this.
pub const FLOOR_V4: u8 = 8;
/// No configuration may allow a wider IPv6 range than this.
pub const FLOOR_V6: u8 = 32;
/// The widest IPv4 range unless configured.
pub const DEFAULT_MIN_PREFIX_V4: u8 = 24;
/// The widest IPv6 range unless configured.
pub const DEFAULT_MIN_PREFIX_V6: u8 = 48;

/// What a range of the configuration is, in a refusal.
pub(crate) const CONFIGURED: &str = "protectedRanges";

/// Never banned, anywhere.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("127.0.0.0/8", "loopback"),
    ("::1/128", "loopback"),
    ("0.0.0.0/8", "unspecified addresses"),
    ("::/128", "the unspecified address"),
    ("169.254.0.0/16", "link-local addresses"),
    ("fe80::/10", "link-local addresses"),
    ("224.0.0.0/4", "multicast"),
    ("ff00::/8", "multicast"),
    ("255.255.255.255/32", "broadcast"),
];

/// Protected by the switch `protectPrivate`.
pub const PRIVATE: &[(&str, &str)] = &[
    ("10.0.0.0/8", "private addresses"),
    ("172.16.0.0/12", "private addresses"),
    ("192.168.0.0/16", "private addresses"),
    ("100.64.0.0/10", "carrier-grade NAT addresses"),
    ("fc00::/7", "unique local addresses"),
];

/// What decides whether a target may be banned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Never banned: from the configuration, without the entries that ended.
    pub allowlist: Prefixes<Allowed>,
    /// Never banned beside [`BUILT_IN`]: the cluster's own addresses, gateways, configured ranges.
    pub protected: Prefixes<Arc<str>>,
    /// The addresses that the name of the gateway had lately: protected too, and not a configured rule.
    pub resolved: Prefixes<Arc<str>>,
    /// The addresses of nodes and Services: protected too, and not a configured rule.
    pub discovered: Arc<Prefixes<Arc<str>>>,
    /// Whether private ranges are protected too, see [`PRIVATE`]. Default off, as the original.
    pub protect_private: bool,
    /// The shortest IPv4 prefix that may be banned.
    pub min_prefix_v4: u8,
    /// The shortest IPv6 prefix that may be banned.
    pub min_prefix_v6: u8,
}

/// Until when a range is allowlisted, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// The end of the entry; `None`: it stays.
    pub until: Option<Timestamp>,
    /// The reason in the configuration.
    pub reason: Option<Arc<str>>,
}

/// A range that must not be banned, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protected {
    /// The range.
    pub target: Target,
    /// What it is, as the end of "overlaps …": "the API server", "loopback".
    pub what: String,
}

/// Why a target may not be banned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind of rule, for conditions, Events and metrics.
    pub kind: RefusalKind,
    /// The rule in a sentence.
    pub message: String,
}

// === impl Allowed ===

impl fmt::Display for Allowed {
    /// ` (reason, until …)`, or nothing.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.reason, self.until) {
            (None, None) => Ok(()),
            (Some(reason), None) => write!(formatter, " ({reason})"),
            (None, Some(until)) => write!(formatter, " (until {until:.0})"),
            (Some(reason), Some(until)) => write!(formatter, " ({reason}, until {until:.0})"),
        }
    }
}

// === impl Protected ===

impl FromIterator<Protected> for Prefixes<Arc<str>> {
    fn from_iter<I: IntoIterator<Item = Protected>>(all: I) -> Self {
        let entries = all
            .into_iter()
            .map(|entry| (entry.target, entry.what.into()));
        entries.collect()
    }
}

/// The kind of rule that refused a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// The allowlist of the configuration.
    Allowlisted,
    /// A protected range.
    Protected,
    /// The range is wider than allowed.
    TooWide,
}

// === impl RefusalKind ===

impl RefusalKind {
    /// The reason in one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowlisted => "Allowlisted",
            Self::Protected => "Protected",
            Self::TooWide => "RangeTooWide",
        }
    }
}

// === impl Policy ===

impl Default for Policy {
    fn default() -> Self {
        Self {
            allowlist: Prefixes::new(),
            protected: Prefixes::new(),
            resolved: Prefixes::new(),
            discovered: Arc::default(),
            protect_private: false,
            min_prefix_v4: DEFAULT_MIN_PREFIX_V4,
            min_prefix_v6: DEFAULT_MIN_PREFIX_V6,
        }
    }
}

impl Policy {
    /// Whether `target` may be banned; `None` is yes.
    ///
    /// The allowlist is checked first, then the protected ranges, then the width.
    #[must_use]
    pub fn refusal(&self, target: &Target) -> Option<Refusal> {
        self.allowlisted(target)
            .or_else(|| self.protected_range(target))
            .or_else(|| self.too_wide(target))
    }

    /// Whether `other` was configured as `self` was, whatever the name of the gateway stands for, whatever is in the
    /// cluster, and whichever entries of the allowlist ended. Those are compared as they were configured.
    #[must_use]
    pub fn has_rules_of(&self, other: &Self) -> bool {
        // Names every field, so that none is forgotten.
        let Self {
            allowlist: _,
            protected,
            resolved: _,
            discovered: _,
            protect_private,
            min_prefix_v4,
            min_prefix_v6,
        } = self;
        *protected == other.protected
            && *protect_private == other.protect_private
            && *min_prefix_v4 == other.min_prefix_v4
            && *min_prefix_v6 == other.min_prefix_v6
    }

    fn allowlisted(&self, target: &Target) -> Option<Refusal> {
        let (entry, allowed) = self.allowlist.meeting(target)?;
        let what = if entry == *target {
            format!("{target} is allowlisted{allowed}")
        } else if entry.contains(target) {
            format!("{target} is inside the allowlisted range {entry}{allowed}")
        } else if target.contains(&entry) {
            format!("{target} contains {entry}, which is allowlisted{allowed}")
        } else {
            format!("{target} covers an IPv6 form of {entry}, which is allowlisted{allowed}")
        };
        Some(Refusal {
            kind: RefusalKind::Allowlisted,
            message: format!("{what}; to ban it, remove the entry from whitelist"),
        })
    }

    fn protected_range(&self, target: &Target) -> Option<Refusal> {
        let named = |entry: Target, what: &str, remedy: &str| Refusal {
            kind: RefusalKind::Protected,
            message: if entry.contains(target) {
                format!("{target} is never banned: it belongs to {what} ({entry}){remedy}")
            } else if target.contains(&entry) {
                format!("{target} is never banned: it contains {what} ({entry}){remedy}")
            } else {
                format!(
                    "{target} is never banned: it covers an IPv6 form of {what} ({entry}){remedy}"
                )
            },
        };
        if let Some((range, what)) = ALWAYS.meeting(target) {
            return Some(named(range, what, ""));
        }
        if self.protect_private
            && let Some((range, what)) = PRIVATE_RANGES.meeting(target)
        {
            let remedy = "; to ban it, set protectPrivate to false";
            return Some(named(range, what, remedy));
        }
        if let Some((entry, what)) = self.protected.meeting(target) {
            let remedy = match &**what {
                CONFIGURED => "; to ban it, remove the range from protectedRanges",
                _ => "",
            };
            return Some(named(entry, what, remedy));
        }
        if let Some((entry, what)) = self.resolved.meeting(target) {
            return Some(named(entry, what, ""));
        }
        let (entry, what) = self.discovered.meeting(target)?;
        let remedy = "; to ban such addresses, set protectCluster to false";
        Some(named(entry, what, remedy))
    }

    fn too_wide(&self, target: &Target) -> Option<Refusal> {
        let least = if target.is_ipv6() {
            self.min_prefix_v6.max(FLOOR_V6)
        } else {
            self.min_prefix_v4.max(FLOOR_V4)
        };
        (target.prefix_len() < least).then(|| Refusal {
            kind: RefusalKind::TooWide,
            message: format!(
                "{target} is wider than /{least}, the widest range that may be banned here; ban narrower ranges, or lower {} in the configuration",
                if target.is_ipv6() { "minPrefixV6" } else { "minPrefixV4" }
            ),
        })
    }
}

/// [`BUILT_IN`] and [`PRIVATE`] for lookups. The tables are literals, and a test reads every one of them.
static ALWAYS: LazyLock<Prefixes<&'static str>> = LazyLock::new(|| table(BUILT_IN));
static PRIVATE_RANGES: LazyLock<Prefixes<&'static str>> = LazyLock::new(|| table(PRIVATE));

fn table(ranges: &[(&str, &'static str)]) -> Prefixes<&'static str> {
    ranges
        .iter()
        .filter_map(|(range, what)| Some((range.parse().ok()?, *what)))
        .collect()
}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;
    use proptest::prelude::*;

    use super::*;

    fn target(text: &str) -> Target {
        text.parse().unwrap()
    }

    fn policy() -> Policy {
        Policy {
            allowlist: ["198.51.100.0/24", "203.0.113.9", "2001:db8:a::/48"]
                .map(target)
                .into_iter()
                .collect(),
            protected: Prefixes::from_iter([Protected {
                target: target("192.0.2.1"),
                what: "the API server".into(),
            }]),
            ..Policy::default()
        }
    }

    #[test]
    fn refusals_name_the_rule_and_the_entry() {
        use RefusalKind::{Allowlisted, Protected, TooWide};
        for (given, kind, part_of_message) in [
            ("203.0.113.9", Allowlisted, "is allowlisted"),
            (
                "198.51.100.77",
                Allowlisted,
                "inside the allowlisted range 198.51.100.0/24",
            ),
            (
                "198.51.100.0/25",
                Allowlisted,
                "inside the allowlisted range",
            ),
            ("203.0.113.0/24", Allowlisted, "contains 203.0.113.9"),
            ("2001:db8::/32", Allowlisted, "contains 2001:db8:a::/48"),
            ("192.0.2.1", Protected, "the API server"),
            (
                "192.0.2.0/24",
                Protected,
                "contains the API server (192.0.2.1)",
            ),
            ("127.0.0.1", Protected, "loopback"),
            ("::1", Protected, "loopback"),
            ("::ffff:127.0.0.1", Protected, "loopback"),
            ("0.0.0.0", Protected, "unspecified"),
            ("169.254.169.254", Protected, "link-local"),
            ("fe80::1", Protected, "link-local"),
            ("224.0.0.1", Protected, "multicast"),
            ("ff02::1", Protected, "multicast"),
            ("255.255.255.255", Protected, "broadcast"),
            ("1.0.0.0/8", TooWide, "wider than /24"),
            ("2a00::/32", TooWide, "minPrefixV6"),
        ] {
            let refusal = policy()
                .refusal(&target(given))
                .unwrap_or_else(|| panic!("{given} is allowed"));
            assert_eq!(refusal.kind, kind, "{given}: {}", refusal.message);
            assert!(
                refusal.message.contains(part_of_message),
                "{given}: {}",
                refusal.message
            );
        }
    }

    #[test]
    fn no_ipv6_form_of_an_allowed_or_protected_ipv4_address_is_banned() {
        use RefusalKind::{Allowlisted, Protected, TooWide};
        let open = Policy {
            min_prefix_v6: FLOOR_V6,
            ..policy()
        };
        for (given, kind) in [
            // Holds all of ::ffff:0:0/96, in which every IPv4 address is.
            ("::fffe:0:0/95", Allowlisted),
            ("::ffff:0:0/95", Allowlisted),
            ("::/48", Allowlisted),
            ("64:ff9b::203.0.113.9", Allowlisted),
            ("64:ff9b::198.51.100.0/121", Allowlisted),
            ("64:ff9b::/96", Allowlisted),
            ("2002:cb00:7109::1", Allowlisted),
            ("2002:cb00:7109::/48", Allowlisted),
            ("2002:cb00:7100::/40", Allowlisted),
            ("64:ff9b::192.0.2.1", Protected),
            ("2002:7f00:1::/48", Protected),
        ] {
            let refusal = open.refusal(&target(given));
            let refusal = refusal.unwrap_or_else(|| panic!("{given} is allowed"));
            assert_eq!(refusal.kind, kind, "{given}: {}", refusal.message);
        }
        let message = open
            .refusal(&target("64:ff9b::203.0.113.9"))
            .unwrap()
            .message;
        assert!(message.contains("IPv6 form of 203.0.113.9"), "{message}");
        for given in [
            "64:ff9b::203.0.113.10",
            "2002:cb00:710a::/48",
            "2001:db8::/48",
        ] {
            assert_eq!(open.refusal(&target(given)), None, "{given}");
        }
        let wide = open.refusal(&target("2a00::/31")).unwrap();
        assert_eq!(wide.kind, TooWide);
    }

    #[test]
    fn a_refusal_shows_why_and_until_when_the_entry_is_allowlisted_and_what_to_change() {
        let allowed = Allowed {
            until: Some("2026-12-31T00:00:00Z".parse().unwrap()),
            reason: Some("office".into()),
        };
        let entry = target("203.0.113.0/24");
        let discovered: Prefixes<Arc<str>> =
            Prefixes::from_iter([(target("192.0.2.9"), "node one".into())]);
        let policy = Policy {
            allowlist: Prefixes::from_iter([(entry, allowed)]),
            discovered: Arc::new(discovered),
            ..Policy::default()
        };
        let message = |given| policy.refusal(&target(given)).unwrap().message;
        assert_eq!(
            message("203.0.113.7"),
            "203.0.113.7 is inside the allowlisted range 203.0.113.0/24 (office, until 2026-12-31T00:00:00Z); to ban it, remove the entry from whitelist"
        );
        assert_eq!(
            message("192.0.2.9"),
            "192.0.2.9 is never banned: it belongs to node one (192.0.2.9); to ban such addresses, set protectCluster to false"
        );
    }

    #[test]
    fn everything_else_may_be_banned() {
        for given in [
            "1.2.3.4",
            "10.1.2.3",
            "192.0.2.2",
            "203.0.114.0/24",
            "2001:db8::7",
            "2001:db8:b::/48",
        ] {
            assert_eq!(policy().refusal(&target(given)), None, "{given}");
        }
    }

    #[test]
    fn private_ranges_are_protected_by_a_switch() {
        let strict = Policy {
            protect_private: true,
            ..Policy::default()
        };
        for given in [
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "fd00::1",
        ] {
            assert_eq!(Policy::default().refusal(&target(given)), None, "{given}");
            assert_eq!(
                strict.refusal(&target(given)).unwrap().kind,
                RefusalKind::Protected,
                "{given}"
            );
        }
    }

    #[test]
    fn the_whole_internet_is_never_banned() {
        let open = Policy {
            min_prefix_v4: 0,
            min_prefix_v6: 0,
            ..Policy::default()
        };
        for given in ["0.0.0.0/0", "::/0", "64.0.0.0/7", "2000::/3"] {
            assert!(open.refusal(&target(given)).is_some(), "{given}");
        }
        assert_eq!(open.refusal(&target("64.0.0.0/8")), None);
    }

    #[test]
    fn every_built_in_range_is_a_range() {
        assert_eq!(ALWAYS.len(), BUILT_IN.len());
        assert_eq!(PRIVATE_RANGES.len(), PRIVATE.len());
    }

    proptest! {
        #[test]
        fn no_allowed_target_shares_an_address_with_the_allowlist(bits: u32, prefix in 8u8..=32, entry_bits: u32, entry_prefix in 8u8..=32) {
            let range = |bits: u32, prefix| Target::range(IpNet::new(std::net::IpAddr::V4(bits.into()), prefix).unwrap());
            // Half of the time close to each other, so that overlaps occur.
            let entry = range(if bits & 1 == 0 { bits ^ (entry_bits >> 16) } else { entry_bits }, entry_prefix);
            let policy = Policy { allowlist: Prefixes::from_iter([entry]), min_prefix_v4: 8, ..Policy::default() };
            let asked = range(bits, prefix);
            if policy.refusal(&asked).is_none() {
                let (a, b) = (asked.net(), entry.net());
                prop_assert!(!a.contains(&b.addr()) && !b.contains(&a.addr()));
            }
        }
    }
}
