//! What a cloud can do.

use std::time::Duration;

use crate::identity::Owner;
use crate::model::{HealthCheck, Protocol};

/// What a cloud can do. A provider declares it once; [`Wanted::fit`](crate::desired::Wanted::fit) adapts to it what a Service
/// asks for, so that nothing is compared that the cloud does not have.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    /// Whether a creation with a known [`Token`](super::Token) has the answer of the first one. Without, a creation whose
    /// answer was lost can have an effect after the next one, and the controller deletes what is too many.
    pub tokens: bool,
    /// The name of a load balancer whose Service requests none.
    pub default_name: fn(&Owner) -> String,
    /// Whether the name of a load balancer can change.
    pub renames: bool,
    /// The protocols of listeners.
    pub protocols: &'static [Protocol],
    /// Whether a listener can be limited to some sources. A Service that asks for it gets no load balancer otherwise.
    pub sources: bool,
    /// Whether these may be IPv6 ranges. A Service that asks for one gets no load balancer otherwise.
    pub ipv6_sources: bool,
    /// Whether backends have weights. Without, all backends count as equal.
    pub weights: bool,
    /// The longest affinity of a listener of a protocol. A Service that asks for a longer one gets this.
    pub longest_affinity: fn(Protocol) -> Duration,
    /// The only time of an affinity; `None` if it can be set.
    pub affinity: Option<Duration>,
    /// The next health check that the cloud accepts.
    pub health_check: fn(&HealthCheck) -> HealthCheck,
    /// Whether a health check can be one of packets of UDP. Without, UDP ports are checked at the proxy of a node, which Pods
    /// do not have.
    pub udp_checks: bool,
    /// Whether a listener of a protocol lets connections of a backend that leaves go on for a while.
    pub drains: fn(Protocol) -> bool,
    /// Whether a listener of a protocol can send the PROXY protocol. A Service that asks for it gets no load balancer otherwise.
    pub proxy_protocol: fn(Protocol) -> bool,
    /// The annotations without an effect.
    pub lacks: &'static [Lack],
}

/// An annotation without an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The name after `lb.reeve.dev/`.
    pub annotation: &'static str,
    /// The reason, as the end of a sentence about the cloud.
    pub reason: &'static str,
}

// === impl Abilities ===

impl Abilities {
    /// All that a Service can ask for.
    pub const ALL: Self = Self {
        tokens: true,
        default_name: Owner::default_name,
        renames: true,
        protocols: &[
            Protocol::Tcp,
            Protocol::Udp,
            Protocol::Http,
            Protocol::Https,
        ],
        sources: true,
        ipv6_sources: true,
        weights: true,
        longest_affinity: |_| Duration::MAX,
        affinity: None,
        health_check: HealthCheck::clone,
        udp_checks: true,
        drains: |_| true,
        proxy_protocol: |_| true,
        lacks: &[],
    };
}
