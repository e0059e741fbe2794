//! The bans of both APIs. Pure: each query carries the time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

/// The XDP gateway removes expired entries this often.
const SYNC: Duration = Duration::from_secs(60);

/// The capacity of the XDP gateway's map per address family.
const XDP_CAPACITY: usize = 10_240;

/// Which of the two APIs enforces an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// `/limit` and `/unlimit`.
    Iptables,
    /// `/update` and `/remove`.
    Xdp,
}

/// One blocked target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// As it was sent.
    pub target: String,
    /// Which API.
    pub api: Api,
    /// When it was banned, or banned again.
    pub since: Timestamp,
    /// When the gateway stops on its own, its sync of a minute not counted; `None` is never.
    pub until: Option<Timestamp>,
}

/// The two maps.
#[derive(Debug)]
pub(crate) struct State {
    started: Timestamp,
    iptables: BTreeMap<String, Timestamp>,
    xdp: BTreeMap<String, XdpEntry>,
    updates: u64,
}

#[derive(Debug)]
struct XdpEntry {
    net: IpNet,
    since: Timestamp,
    /// `None` is permanent.
    until: Option<Timestamp>,
    /// The last written of two spellings of one prefix is the one in the kernel's map.
    update: u64,
}

/// The result of `/update`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    Added,
    Updated,
    Failed,
}

// === impl State ===

impl State {
    pub(crate) fn new(started: Timestamp) -> Self {
        Self {
            started,
            iptables: BTreeMap::new(),
            xdp: BTreeMap::new(),
            updates: 0,
        }
    }

    pub(crate) fn lose(&mut self) {
        self.iptables.clear();
        self.xdp.clear();
    }

    /// `Ok(true)` when it is new. The agent runs plain iptables: IPv4 only.
    pub(crate) fn limit(&mut self, ip: &str, now: Timestamp) -> Result<bool, String> {
        match net(ip) {
            Some(IpNet::V4(_)) => {
                let new = !self.iptables.contains_key(ip);
                self.iptables.entry(ip.to_owned()).or_insert(now);
                Ok(new)
            }
            _ => Err(format!("iptables: host/network `{ip}' not found")),
        }
    }

    pub(crate) fn unlimit(&mut self, ip: &str) {
        self.iptables.remove(ip);
    }

    pub(crate) fn limits(&self) -> Vec<&str> {
        self.iptables.keys().map(String::as_str).collect()
    }

    /// Bans for `seconds`, or indefinitely.
    pub(crate) fn update(&mut self, cidr: &str, seconds: Option<i64>, now: Timestamp) -> Update {
        let Some(net) = net(cidr) else {
            return Update::Failed;
        };
        let until = seconds.map(|seconds| {
            // Zero and negative times are stored as over already, and answered as a success.
            now.saturating_add(SignedDuration::from_secs(seconds))
                .unwrap_or(Timestamp::MAX)
        });
        self.updates += 1;
        let update = self.updates;
        if let Some(entry) = self.xdp.get_mut(cidr) {
            entry.since = now;
            entry.until = until;
            entry.update = update;
            return Update::Updated;
        }
        let family = |other: &IpNet| other.max_prefix_len() == net.max_prefix_len();
        if self.xdp.values().filter(|entry| family(&entry.net)).count() >= XDP_CAPACITY {
            return Update::Failed;
        }
        let entry = XdpEntry {
            net,
            since: now,
            until,
            update,
        };
        self.xdp.insert(cidr.to_owned(), entry);
        Update::Added
    }

    /// Whether there was such an entry.
    pub(crate) fn remove(&mut self, cidr: &str) -> bool {
        self.xdp.remove(cidr).is_some()
    }

    /// Everything that is blocked at `now`, by target.
    pub(crate) fn enforced(&self, now: Timestamp) -> Vec<Entry> {
        let iptables = self.iptables.iter().map(|(target, since)| Entry {
            target: target.clone(),
            api: Api::Iptables,
            since: *since,
            until: None,
        });
        let xdp = self
            .xdp
            .iter()
            .filter(|(_, entry)| entry.is_valid(self.started, now))
            .map(|(target, entry)| Entry {
                target: target.clone(),
                api: Api::Xdp,
                since: entry.since,
                until: entry.until,
            });
        iptables.chain(xdp).collect()
    }

    /// Whether a packet from `address` is dropped.
    pub(crate) fn drops(&self, address: IpAddr, now: Timestamp) -> bool {
        let limited = self
            .iptables
            .keys()
            .filter_map(|key| net(key))
            .any(|net| net.contains(&address));
        let longest = self
            .xdp
            .values()
            .filter(|entry| entry.net.contains(&address))
            .max_by_key(|entry| (entry.net.prefix_len(), entry.update));
        limited || longest.is_some_and(|entry| entry.is_valid(self.started, now))
    }
}

// === impl XdpEntry ===

impl XdpEntry {
    /// The kernel's program has no time: an entry is valid until the first sync after its end.
    fn is_valid(&self, started: Timestamp, now: Timestamp) -> bool {
        let Some(until) = self.until else {
            return true;
        };
        if until <= self.since {
            return false;
        }
        let sync = i128::try_from(SYNC.as_nanos()).unwrap_or(i128::MAX);
        let ticks_to =
            |at: Timestamp| (at.as_nanosecond() - started.as_nanosecond()).div_euclid(sync);
        let over_by_tick = ticks_to(until) + i128::from(!is_tick(started, until, sync));
        ticks_to(now) < over_by_tick
    }
}

fn is_tick(started: Timestamp, at: Timestamp, sync: i128) -> bool {
    (at.as_nanosecond() - started.as_nanosecond()).rem_euclid(sync) == 0
}

fn net(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .ok()
        .map(|net| net.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_temporary_ban_ends_at_the_first_sync_after_its_time() {
        let mut state = State::new(at(0));
        state.update("192.0.2.7", Some(10), at(55));
        for (now, dropped) in [
            (55, true),
            (64, true),
            (65, true),
            (119, true),
            (120, false),
        ] {
            assert_eq!(state.drops(address("192.0.2.7"), at(now)), dropped, "{now}");
        }
        state.update("192.0.2.7", Some(60), at(120));
        assert!(state.drops(address("192.0.2.7"), at(179)));
        assert!(!state.drops(address("192.0.2.7"), at(180)));
    }

    #[test]
    fn an_expired_address_is_a_hole_in_its_banned_range() {
        let mut state = State::new(at(0));
        state.update("192.0.2.0/24", None, at(0));
        state.update("192.0.2.7", Some(10), at(0));
        assert!(state.drops(address("192.0.2.7"), at(0)));
        assert!(!state.drops(address("192.0.2.7"), at(60)));
        assert!(state.drops(address("192.0.2.8"), at(60)));
        assert!(state.remove("192.0.2.7"));
        assert!(state.drops(address("192.0.2.7"), at(60)));
    }

    #[test]
    fn a_ban_of_no_seconds_is_stored_and_enforces_nothing() {
        let mut state = State::new(at(0));
        assert_eq!(state.update("192.0.2.7", Some(0), at(1)), Update::Added);
        assert_eq!(state.update("192.0.2.8", Some(-5), at(1)), Update::Added);
        assert!(state.enforced(at(1)).is_empty());
        assert_eq!(state.update("192.0.2.7", Some(5), at(1)), Update::Updated);
        assert_eq!(state.enforced(at(1)).len(), 1);
    }

    #[test]
    fn a_full_map_takes_no_more_of_that_family() {
        let mut state = State::new(at(0));
        for index in 0..XDP_CAPACITY {
            let address = std::net::Ipv4Addr::from(0x0a00_0000 + u32::try_from(index).unwrap());
            assert_eq!(
                state.update(&address.to_string(), None, at(0)),
                Update::Added
            );
        }
        assert_eq!(state.update("192.0.2.1", None, at(0)), Update::Failed);
        assert_eq!(state.update("10.0.0.1", None, at(0)), Update::Updated);
        assert_eq!(state.update("2001:db8::1", None, at(0)), Update::Added);
    }

    #[test]
    fn two_spellings_are_two_entries() {
        let mut state = State::new(at(0));
        state.update("192.0.2.7", None, at(0));
        state.update("192.0.2.7/32", Some(-1), at(0));
        assert!(
            !state.drops(address("192.0.2.7"), at(0)),
            "the later one is in the map"
        );
        state.remove("192.0.2.7/32");
        assert!(state.drops(address("192.0.2.7"), at(0)));
    }

    #[test]
    fn the_agent_limits_ipv4_only() {
        let mut state = State::new(at(0));
        assert_eq!(state.limit("192.0.2.0/24", at(0)), Ok(true));
        assert_eq!(state.limit("192.0.2.0/24", at(0)), Ok(false));
        assert!(state.limit("2001:db8::1", at(0)).is_err());
        assert!(state.limit("example.com", at(0)).is_err());
        assert!(state.drops(address("192.0.2.200"), at(99)));
        state.unlimit("192.0.2.0/24");
        assert!(!state.drops(address("192.0.2.200"), at(99)));
    }
}
