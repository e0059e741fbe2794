//! What every engine does, and which engines there are.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::Error;
use crate::outbound::BoxFuture;
use crate::target::Target;

/// The entries of each of the XDP gateway's two maps, IPv4 and IPv6. It answers "Failed to add" to one more.
const XDP_MAP: usize = 10_240;

/// Bans and unbans targets. Dyn-safe: the configuration chooses the engine.
pub trait Engine: Send + Sync + fmt::Debug {
    /// What this engine can do.
    fn capabilities(&self) -> Capabilities;

    /// Its gateway, as recorded in a block's intent: see [`Endpoint::as_str`](super::Endpoint::as_str); empty without one.
    fn endpoint(&self) -> &str;

    /// Blocks `target`, for `remaining` or indefinitely. To block a blocked target succeeds and, where the engine keeps
    /// time, sets the new time.
    ///
    /// # Errors
    /// When the target may not be blocked.
    fn ban<'a>(
        &'a self,
        target: &'a Target,
        remaining: Option<Remaining>,
    ) -> BoxFuture<'a, Result<Ban, Error>>;

    /// Unblocks `target`. To unblock a target that is not blocked succeeds.
    ///
    /// # Errors
    /// When the target may still be blocked.
    fn unban<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Unban, Error>>;

    /// The targets that the engine blocks now, or `None` for an engine without a list.
    ///
    /// # Errors
    /// When the engine has a list and does not answer.
    fn list(&self) -> BoxFuture<'_, Result<Option<BTreeSet<Target>>, Error>>;
}

/// What an engine can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The engine's name, as configured and as used in metric labels.
    pub name: &'static str,
    /// It calls a gateway, which the configuration has to name.
    pub gateway: bool,
    /// It bans IPv6 targets, not only IPv4 ones.
    pub ipv6: bool,
    /// It bans ranges, not only addresses.
    pub ranges: bool,
    /// It ends bans by itself, also without the operator; how exactly is its own matter, so a ban that is due is lifted.
    pub ttl: bool,
    /// The most targets of each address family that its gateway takes; `None`: no limit of its own.
    pub most: Option<usize>,
}

/// The result of a ban.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ban {
    /// The target was not blocked before.
    Added,
    /// The target was blocked already.
    Already,
}

/// The result of an unban.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unban {
    /// The target is not blocked any more.
    Removed,
    /// The target was not blocked.
    Absent,
}

/// How much longer a ban has to last, in whole seconds, at least one.
///
/// Rounded up: a gateway treats a ban of zero seconds as over already, and reports success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Remaining(u64);

/// The kind of an engine, as the configuration names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The iptables agent.
    Iptables,
    /// The XDP gateway.
    Xdp,
    /// Records and does nothing.
    DryRun,
    /// None of its own: the engines of [`crate::sets`] follow.
    Sets,
}

/// The configuration names an engine that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown engine {0:?}: use {names}", names = Kind::names())]
pub struct UnknownEngine(pub String);

// === impl Remaining ===

impl Remaining {
    /// `duration` rounded up to whole seconds; one second when less is left.
    #[must_use]
    pub fn new(duration: Duration) -> Self {
        Self(crate::duration::whole_seconds(duration))
    }

    /// Whole seconds, at least 1.
    #[must_use]
    pub fn as_secs(self) -> u64 {
        self.0
    }
}

impl From<Duration> for Remaining {
    fn from(duration: Duration) -> Self {
        Self::new(duration)
    }
}

// === impl Capabilities ===

impl Capabilities {
    /// Why this engine cannot ban `target`, whatever its gateway answers; `None`: it can.
    #[must_use]
    pub fn refusal(&self, target: &Target) -> Option<String> {
        let what = if target.is_ipv6() && !self.ipv6 {
            "IPv6"
        } else if !target.is_host() && !self.ranges {
            "ranges"
        } else {
            return None;
        };
        let name = self.name;
        Some(format!(
            "the engine {name} cannot ban {target}: it does not support {what}; configure an engine that does, such as xdp"
        ))
    }
}

// === impl Kind ===

impl Kind {
    /// Every kind.
    pub const ALL: &[Self] = &[Self::Xdp, Self::Iptables, Self::DryRun, Self::Sets];

    /// What engines of this kind can do.
    #[must_use]
    pub fn capabilities(self) -> Capabilities {
        match self {
            // The agent calls iptables, never ip6tables.
            Self::Iptables => Capabilities {
                name: "iptables",
                gateway: true,
                ipv6: false,
                ranges: true,
                ttl: false,
                most: None,
            },
            Self::Xdp => Capabilities {
                name: "xdp",
                gateway: true,
                ipv6: true,
                ranges: true,
                ttl: true,
                most: Some(XDP_MAP),
            },
            Self::DryRun => Capabilities {
                name: "dry-run",
                gateway: false,
                ipv6: true,
                ranges: true,
                ttl: false,
                most: None,
            },
            // Each of them says what it cannot express.
            Self::Sets => Capabilities {
                name: "sets",
                gateway: false,
                ipv6: true,
                ranges: true,
                ttl: false,
                most: None,
            },
        }
    }

    /// The name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.capabilities().name
    }

    /// The names of all kinds, for messages: `xdp, iptables or dry-run`.
    #[must_use]
    pub fn names() -> String {
        let names: Vec<&str> = Self::ALL.iter().map(|kind| kind.name()).collect();
        match names.split_last() {
            Some((last, others)) if !others.is_empty() => {
                format!("{} or {last}", others.join(", "))
            }
            _ => names.concat(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = UnknownEngine;

    fn from_str(name: &str) -> Result<Self, UnknownEngine> {
        let name = name.trim();
        let known = Self::ALL.iter().copied().find(|kind| kind.name() == name);
        known.ok_or_else(|| UnknownEngine(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_is_rounded_up_and_never_zero() {
        for (milliseconds, seconds) in [
            (0, 1),
            (1, 1),
            (999, 1),
            (1000, 1),
            (1001, 2),
            (59_999, 60),
            (60_000, 60),
        ] {
            let remaining = Remaining::new(Duration::from_millis(milliseconds));
            assert_eq!(remaining.as_secs(), seconds, "{milliseconds} ms");
        }
        assert_eq!(Remaining::new(Duration::MAX).as_secs(), u64::MAX);
    }

    #[test]
    fn an_engine_refuses_only_what_it_cannot_express() {
        let refusal = |kind: Kind, target: &str| {
            let target = target.parse().unwrap();
            kind.capabilities().refusal(&target)
        };
        for target in ["192.0.2.7", "192.0.2.0/24", "2001:db8::7", "2001:db8::/48"] {
            assert_eq!(refusal(Kind::Xdp, target), None);
            assert_eq!(refusal(Kind::DryRun, target), None);
            let ipv6 = target.contains(':');
            assert_eq!(refusal(Kind::Iptables, target).is_some(), ipv6, "{target}");
        }
        let addresses_only = Capabilities {
            ranges: false,
            ..Kind::Xdp.capabilities()
        };
        let refused = addresses_only.refusal(&"192.0.2.0/24".parse().unwrap());
        assert!(refused.unwrap().contains("ranges"));
    }

    #[test]
    fn every_engine_has_the_name_it_is_read_by() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(*kind));
        }
        let unknown = "nft".parse::<Kind>().unwrap_err();
        assert_eq!(unknown, UnknownEngine("nft".into()));
        let text = unknown.to_string();
        assert!(
            text.ends_with("use xdp, iptables, dry-run or sets"),
            "{text}"
        );
    }
}
