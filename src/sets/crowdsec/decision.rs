//! Decisions as CrowdSec writes them.

use std::net::IpAddr;

use ipnet::IpNet;
use jiff::Timestamp;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::super::set::{Entry, TargetSet};
use crate::target::Target;

/// Where decisions come from, as bouncers show it.
pub(super) const ORIGIN: &str = "ipblock-operator";

/// The scenario of every decision.
const SCENARIO: &str = "ipblock";

/// The duration of a ban without end: ten years.
const WITHOUT_END: &str = "87600h0m0s";

/// The shortest duration, in milliseconds.
const SHORTEST: i128 = 1000;

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Decision {
    id: i64,
    origin: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    scope: &'static str,
    value: String,
    scenario: &'static str,
    duration: String,
    simulated: bool,
}

/// The scopes that a reader asks for; both by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scopes {
    pub(super) addresses: bool,
    pub(super) ranges: bool,
}

// === impl Decision ===

impl Decision {
    /// The decision about an entry at `now`; `None`: less than a second is left. Kernel sets have whole seconds, and
    /// none of them means without end.
    pub(super) fn new(entry: &Entry, now: Timestamp) -> Option<Self> {
        let duration = match entry.until.at() {
            Some(until) => {
                let left = until.duration_since(now).as_millis();
                if left < SHORTEST {
                    return None;
                }
                format!("{}.{:03}s", left / 1000, left % 1000)
            }
            None => WITHOUT_END.to_owned(),
        };
        Some(Self::of(&entry.target, duration))
    }

    fn of(target: &Target, duration: String) -> Self {
        Self {
            id: id(target),
            origin: ORIGIN,
            kind: "ban",
            scope: if target.is_host() { "Ip" } else { "Range" },
            value: target.to_string(),
            scenario: SCENARIO,
            duration,
            simulated: false,
        }
    }

    /// The decision that `target` is not banned any more: its time is over.
    pub(super) fn deleted(target: &Target) -> Self {
        Self::of(target, "-1s".into())
    }
}

/// The number of the decision about a target: the same in each replica, and exact in clients whose numbers have 53 bits.
fn id(target: &Target) -> i64 {
    let digest = Sha256::digest(target.to_string());
    let bits = digest.iter().take(7);
    let number = bits.fold(0_i64, |number, byte| (number << 8) | i64::from(*byte));
    (number >> 4).max(1)
}

// === impl Scopes ===

impl Scopes {
    pub(super) const BOTH: Self = Self {
        addresses: true,
        ranges: true,
    };

    /// Reads `ip,range`, in any case.
    pub(super) fn read(text: &str) -> Self {
        let has = |name: &str| {
            let mut scopes = text.split(',').map(str::trim);
            scopes.any(|scope| scope.eq_ignore_ascii_case(name))
        };
        Self {
            addresses: has("ip"),
            ranges: has("range"),
        }
    }

    pub(super) fn has(self, target: &Target) -> bool {
        if target.is_host() {
            self.addresses
        } else {
            self.ranges
        }
    }
}

/// The entries whose targets contain `target`, itself included, the widest first.
pub(super) fn containing(set: &TargetSet, target: &Target) -> Vec<Entry> {
    let wider = (0..=target.prefix_len()).filter_map(|length| {
        let net = match target.address() {
            IpAddr::V4(address) => IpNet::new(address.into(), length),
            IpAddr::V6(address) => IpNet::new(address.into(), length),
        };
        let target = Target::range(net.ok()?);
        let until = set.get(&target)?;
        Some(Entry { target, until })
    });
    wider.collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::set::Until;
    use super::*;

    #[test]
    fn a_decision_has_the_fields_and_durations_that_bouncers_read() {
        let now = "2026-01-01T00:00:00.5Z".parse().unwrap();
        let entry = |target: &str, until: Option<&str>| Entry {
            target: target.parse().unwrap(),
            until: Until::new(until.map(|text| text.parse().unwrap())),
        };
        let decision = Decision::new(&entry("192.0.2.7", Some("2026-01-01T01:00:00Z")), now);
        let decision = decision.unwrap();
        let value = serde_json::to_value(&decision).unwrap();
        for (field, expected) in [
            ("duration", "3599.500s"),
            ("origin", "ipblock-operator"),
            ("scope", "Ip"),
            ("type", "ban"),
            ("value", "192.0.2.7"),
            ("scenario", "ipblock"),
        ] {
            assert_eq!(value[field], expected, "{field}");
        }
        let range = Decision::new(&entry("2001:db8::/48", None), now).unwrap();
        assert_eq!(
            (range.scope, range.duration.as_str()),
            ("Range", "87600h0m0s")
        );
        for over in ["2025-12-31T23:59:59Z", "2026-01-01T00:00:01Z"] {
            let over = Decision::new(&entry("192.0.2.7", Some(over)), now);
            assert_eq!(over, None, "no duration of zero or less");
        }
        assert_ne!(range.id, decision.id);
        assert!(decision.id > 0 && decision.id < 1 << 53);
        let gone = Decision::deleted(&"192.0.2.7".parse().unwrap());
        assert_eq!((gone.id, gone.duration.as_str()), (decision.id, "-1s"));
    }

    #[test]
    fn scopes_are_read_in_any_case() {
        let target = |text: &str| text.parse().unwrap();
        let both = Scopes::read("ip,Range");
        assert_eq!(both, Scopes::BOTH);
        let one = Scopes::read("Ip");
        assert!(one.has(&target("192.0.2.7")) && !one.has(&target("192.0.2.0/24")));
        let none = Scopes::read("username");
        assert!(!none.has(&target("192.0.2.7")) && !none.has(&target("192.0.2.0/24")));
    }

    #[test]
    fn ranges_that_contain_an_address_are_found() {
        let targets = [
            "0.0.0.0/0",
            "192.0.2.0/24",
            "192.0.2.7",
            "192.0.2.8",
            "2001:db8::/32",
        ];
        let entries = targets.map(|target| Entry {
            target: target.parse().unwrap(),
            until: Until::NEVER,
        });
        let set: TargetSet = entries.into_iter().collect();
        let found = |text: &str| -> Vec<String> {
            let found = containing(&set, &text.parse().unwrap());
            found.iter().map(|entry| entry.target.to_string()).collect()
        };
        assert_eq!(
            found("192.0.2.7"),
            ["0.0.0.0/0", "192.0.2.0/24", "192.0.2.7"]
        );
        assert_eq!(found("192.0.2.0/25"), ["0.0.0.0/0", "192.0.2.0/24"]);
        assert_eq!(found("2001:db8::7"), ["2001:db8::/32"]);
        assert!(found("2001:db9::7").is_empty());
    }
}
