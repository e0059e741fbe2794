//! Load balancers, listeners, groups of backends: what the cloud has. The wanted state is built of the same types.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Tags of a load balancer: at most one value for each key.
pub type Tags = BTreeMap<String, String>;

/// The cloud's id of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LbId(pub String);

/// The cloud's id of a group of backends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId(pub String);

/// The network of the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AddressType {
    /// Public.
    Internet,
    /// Inside the private network only.
    Intranet,
}

/// The version of the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpVersion {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// The charge for traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrafficCharge {
    /// By the transferred bytes.
    PayByTraffic,
    /// By the reserved bandwidth.
    PayByBandwidth,
}

/// The charge for the load balancer itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InstanceCharge {
    /// By its size.
    PayBySpec,
    /// By its use.
    PayByUse,
}

/// The charge for traffic, and the bandwidth in Mbit/s: one call sets both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Internet {
    /// The charge.
    pub charge: TrafficCharge,
    /// The bandwidth in Mbit/s; at [`TrafficCharge::PayByTraffic`] a limit, 0 for none.
    pub bandwidth: u32,
}

/// The state of a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is being set up. It has an id, and refuses changes.
    Pending,
    /// It serves.
    Active,
    /// It carries no traffic, since it was switched off, or since it is being set up in a cloud that does not distinguish the
    /// two. In the first case it accepts changes.
    Inactive,
    /// The cloud has locked it, as for an unpaid bill. It refuses changes until people act.
    Locked,
    /// It is being deleted. It refuses changes.
    Deleting,
}

/// The attributes that cannot change after the creation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fixed {
    /// The network of the address.
    pub address_type: AddressType,
    /// The version of the address.
    pub ip_version: IpVersion,
    /// The subnet of the address, for [`AddressType::Intranet`]; unset, the cloud selects one.
    pub subnet: Option<String>,
    /// The main zone; unset, the cloud selects one.
    pub zone: Option<String>,
    /// The resource group; unset, the default one.
    pub resource_group: Option<String>,
}

/// A load balancer to create. [`Provider::create`](crate::provider::Provider::create) has the rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Create {
    /// The name. In some clouds two load balancers of an account have different names.
    pub name: String,
    /// The attributes that cannot change later.
    pub fixed: Fixed,
    /// The charge for traffic and the bandwidth; unset, the cloud's default.
    pub internet: Option<Internet>,
    /// The charge for the load balancer; unset, the cloud's default.
    pub instance_charge: Option<InstanceCharge>,
    /// The size, such as `slb.s1.small`; unset, the cloud's default.
    pub spec: Option<String>,
    /// The tags, which it carries from its first moment.
    pub tags: Tags,
    /// Those of the tags that no other load balancer has: a cloud without tokens finds the load balancer of an earlier
    /// creation by them.
    pub identity: Tags,
}

/// The address of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Address {
    /// An IP address.
    Ip(IpAddr),
    /// A host name, whose IP addresses may change.
    Host(String),
}

/// A load balancer as the cloud describes it, without its listeners and groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancer {
    /// The id.
    pub id: LbId,
    /// The name.
    pub name: String,
    /// The state.
    pub state: State,
    /// The address. It exists from the creation on.
    pub address: Address,
    /// The attributes that cannot change.
    pub fixed: Fixed,
    /// The charge for traffic and the bandwidth.
    pub internet: Internet,
    /// The charge for the load balancer.
    pub instance_charge: InstanceCharge,
    /// The size.
    pub spec: String,
    /// Whether the cloud refuses to delete it.
    pub delete_protection: bool,
    /// Whether the cloud refuses to change its name, charges, size and bandwidth.
    pub modification_protection: bool,
    /// The tags.
    pub tags: Tags,
}

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// HTTP: the load balancer reads requests.
    Http,
    /// HTTPS: it also ends TLS, with [`ListenerSettings::certificate`].
    Https,
}

/// The identity of a listener on its load balancer. A port has one listener for UDP, and one for the other three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ListenerKey {
    /// The port, 1 to 65535.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
}

/// The choice of a backend for a new connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// In turn, by weight.
    #[default]
    Wrr,
    /// In turn.
    Rr,
    /// The least connections, by weight.
    Wlc,
}

/// The question that a health check asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Probe {
    /// Opens a connection.
    Tcp,
    /// Sends a packet.
    Udp,
    /// Requests this path; a status of 200 to 399 is healthy.
    Http {
        /// The path.
        path: String,
    },
}

/// The health check of a listener's backends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheck {
    /// The question.
    pub probe: Probe,
    /// The port of every backend that is checked; unset, the backend's own.
    pub port: Option<u16>,
    /// The time between two checks, in whole seconds.
    pub interval: Duration,
    /// The time limit of one check, in whole seconds.
    pub timeout: Duration,
    /// The number of good answers in a row after which a backend is healthy.
    pub healthy: u8,
    /// The number of bad answers in a row after which a backend is unhealthy.
    pub unhealthy: u8,
}

/// The settings of a listener. [`Provider::set_listener`](crate::provider::Provider::set_listener) replaces all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerSettings {
    /// The name, by which the controller recognises its own listeners: the cloud stores it and does not read it. At most
    /// 80 characters, of letters, digits, `-`, `.`, `_` and `/`.
    pub name: String,
    /// The group of backends.
    pub group: GroupId,
    /// The choice of a backend.
    pub scheduler: Scheduler,
    /// The time in whole seconds that a client stays with its backend; unset, not at all.
    pub affinity: Option<Duration>,
    /// The sources that may connect, sorted; empty for all. The listener is never open to more, not for a moment.
    pub sources: Vec<IpNet>,
    /// The health check.
    pub health_check: HealthCheck,
    /// The time in whole seconds that connections of a removed backend go on; unset, they are cut.
    pub drain: Option<Duration>,
    /// Whether backends get the address of the client by the PROXY protocol, version 2.
    pub proxy_protocol: bool,
    /// The id of the certificate, for [`Protocol::Https`].
    pub certificate: Option<String>,
}

/// A listener as the cloud has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// The port and the protocol.
    pub key: ListenerKey,
    /// The settings. The group is empty if the listener forwards to none, as one made by hand may.
    pub settings: ListenerSettings,
    /// The certificates of further domains, by domain, for [`Protocol::Https`].
    pub domains: BTreeMap<String, String>,
    /// Whether it accepts connections. A new listener is stopped.
    pub running: bool,
}

/// The kind of the servers in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Targets {
    /// [`Server::Instance`].
    Instances,
    /// [`Server::Address`].
    Addresses,
}

/// A group to create. In some clouds its protocol and the kind of its servers are fixed at the creation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewGroup {
    /// The name, as [`ListenerSettings::name`].
    pub name: String,
    /// The protocol of the listener that will forward to it.
    pub protocol: Protocol,
    /// The kind of its servers.
    pub targets: Targets,
}

/// A group of backends as the cloud has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The id.
    pub id: GroupId,
    /// The name, as [`ListenerSettings::name`].
    pub name: String,
    /// The only kind of servers that it takes; `None` if it takes all.
    pub targets: Option<Targets>,
    /// The backends.
    pub backends: Vec<Backend>,
}

/// A server behind a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Server {
    /// An instance of the cloud, by its id.
    Instance(String),
    /// An address of the private network, such as that of a Pod.
    Address(IpAddr),
}

/// A server and port that gets traffic. The server and the port are its identity in a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Backend {
    /// The server.
    pub server: Server,
    /// The port.
    pub port: u16,
    /// The share of new connections, 0 to 100.
    pub weight: u8,
}

/// Names of the values of an enum, as annotations have them and plans print them.
macro_rules! named {
    ($type:ident { $($variant:ident: $name:literal),* }) => {
        // === impl $type ===

        impl $type {
            /// The values with their names.
            pub const NAMED: &'static [(&'static str, Self)] = &[$(($name, Self::$variant)),*];

            /// The name.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),*
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

named!(AddressType {
    Internet: "internet",
    Intranet: "intranet"
});
named!(IpVersion {
    Ipv4: "ipv4",
    Ipv6: "ipv6"
});
named!(TrafficCharge {
    PayByTraffic: "paybytraffic",
    PayByBandwidth: "paybybandwidth"
});
named!(InstanceCharge {
    PayBySpec: "paybyspec",
    PayByUse: "paybyuse"
});
named!(Scheduler {
    Wrr: "wrr",
    Rr: "rr",
    Wlc: "wlc"
});
named!(Protocol {
    Tcp: "tcp",
    Udp: "udp",
    Http: "http",
    Https: "https"
});
named!(State {
    Pending: "pending",
    Active: "active",
    Inactive: "inactive",
    Locked: "locked",
    Deleting: "deleting"
});

// === impl LbId ===

impl fmt::Display for LbId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for LbId {
    fn from(id: &str) -> Self {
        Self(id.to_owned())
    }
}

// === impl Address ===

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Host(name) => f.write_str(name),
        }
    }
}

// === impl GroupId ===

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Protocol ===

impl Protocol {
    /// Whether it shares its ports with `other`: UDP has ports of its own.
    #[must_use]
    pub fn shares_ports_with(self, other: Self) -> bool {
        (self == Self::Udp) == (other == Self::Udp)
    }
}

// === impl ListenerKey ===

impl fmt::Display for ListenerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.protocol, self.port)
    }
}

// === impl Server ===

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance(id) => f.write_str(id),
            Self::Address(address) => address.fmt(f),
        }
    }
}

// === impl Backend ===

impl Backend {
    /// The identity in a group.
    #[must_use]
    pub fn key(&self) -> (&Server, u16) {
        (&self.server, self.port)
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Server::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port)?,
            server => write!(f, "{server}:{}", self.port)?,
        }
        write!(f, "={}", self.weight)
    }
}
