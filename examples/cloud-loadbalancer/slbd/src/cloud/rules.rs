//! The numbers of the rules, and the throttle.

use ipnet::Ipv4Net;
use jiff::{SignedDuration, Timestamp};

use super::Refusal;

/// What the cloud allows, and how slow it is.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The region. Default: `cn-loopback`.
    pub region: String,
    /// The addresses of load balancers. Default: 127.66.0.0/16.
    pub addresses: Ipv4Net,
    /// The time until a new load balancer accepts edits. Default: 200 ms.
    pub provision: SignedDuration,
    /// The time that a listener or a server group is busy after each edit. Default: none.
    pub settle: SignedDuration,
    /// The time until a creation, or a tag, is seen by lists and searches. Default: 500 ms.
    pub lag: SignedDuration,
    /// The calls a second that are granted, in bursts of as many. Default: all.
    pub calls_per_second: Option<u32>,
    /// Whether a second load balancer of the same name is refused. Default: no, as at the vendor.
    pub unique_names: bool,
    /// The most load balancers. Default: 1,000.
    pub balancers: usize,
    /// The most listeners of a load balancer. Default: 50.
    pub listeners: usize,
    /// The most server groups of a load balancer. Default: 100.
    pub groups: usize,
    /// The most backends of a server group. Default: 200.
    pub backends: usize,
    /// The most backends that one call names. Default: 40.
    pub backends_per_call: usize,
    /// The most tags of a load balancer. Default: 20.
    pub tags: usize,
    /// The most access control lists. Default: 200.
    pub access_lists: usize,
    /// The most entries of an access control list, and of a call. Default: 300.
    pub entries: usize,
    /// The most server certificates. Default: 100.
    pub certificates: usize,
    /// The most domains of an HTTPS listener that have a certificate of their own. Default: 20.
    pub domains: usize,
    /// How long a client token is remembered. Default: 24 hours.
    pub tokens_for: SignedDuration,
    /// The most client tokens that are remembered; more calls with tokens are throttled. Default: 10,000.
    pub tokens: usize,
}

/// The calls that the throttle still grants.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    /// Granted calls, in millionths; `None` before the first call.
    state: Option<(i128, Timestamp)>,
}

const MILLION: i128 = 1_000_000;

// === impl Rules ===

impl Default for Rules {
    fn default() -> Self {
        Self {
            region: "cn-loopback".to_owned(),
            addresses: Ipv4Net::new_assert([127, 66, 0, 0].into(), 16),
            provision: SignedDuration::from_millis(200),
            settle: SignedDuration::ZERO,
            lag: SignedDuration::from_millis(500),
            calls_per_second: None,
            unique_names: false,
            balancers: 1_000,
            listeners: 50,
            groups: 100,
            backends: 200,
            backends_per_call: 40,
            tags: 20,
            access_lists: 200,
            entries: 300,
            certificates: 100,
            domains: 20,
            tokens_for: SignedDuration::from_hours(24),
            tokens: 10_000,
        }
    }
}

// === impl Bucket ===

impl Bucket {
    /// Takes one call.
    pub(super) fn take(&mut self, rules: &Rules, now: Timestamp) -> Result<(), Refusal> {
        let Some(rate) = rules.calls_per_second.map(i128::from) else {
            return Ok(());
        };
        let full = rate * MILLION;
        let (have, last) = self.state.unwrap_or((full, now));
        // A clock that was set back grants nothing.
        let passed = now.duration_since(last).as_micros().max(0);
        let have = passed.saturating_mul(rate).saturating_add(have).min(full);
        if have < MILLION {
            self.state = Some((have, now));
            return Err(Refusal::throttled());
        }
        self.state = Some((have - MILLION, now));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_throttle_grants_its_rate_and_refills_with_time() {
        let rules = Rules {
            calls_per_second: Some(2),
            ..Rules::default()
        };
        let mut bucket = Bucket::default();
        let start = Timestamp::UNIX_EPOCH;
        assert!(bucket.take(&rules, start).is_ok());
        assert!(bucket.take(&rules, start).is_ok());
        assert_eq!(
            bucket.take(&rules, start).unwrap_err().code,
            "Throttling.User"
        );
        let later = start + SignedDuration::from_millis(500);
        assert!(bucket.take(&rules, later).is_ok());
        assert!(bucket.take(&rules, later).is_err());
        // Set back, the clock grants nothing; much later, a full second and no more.
        assert!(bucket.take(&rules, start).is_err());
        let end = start + SignedDuration::from_hours(1);
        assert!(bucket.take(&rules, end).is_ok());
        assert!(bucket.take(&rules, end).is_ok());
        assert!(bucket.take(&rules, end).is_err());
    }
}
