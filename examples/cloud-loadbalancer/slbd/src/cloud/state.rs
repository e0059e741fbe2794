//! The state: what is stored, and what the data plane is made of.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::settings::{self, Protocol};
use super::tokens::Remembered;
use super::{Context, Refusal};

/// All objects of the cloud.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Counts ids, so that none is used twice.
    pub(super) sequence: u64,
    /// Load balancers by id.
    pub balancers: BTreeMap<String, Balancer>,
    /// Server groups by id.
    pub groups: BTreeMap<String, Group>,
    /// Access control lists by id.
    pub(super) access_lists: BTreeMap<String, AccessList>,
    /// Certificates by id.
    #[serde(default)]
    pub certificates: BTreeMap<String, Certificate>,
    /// Answers by client token.
    pub(super) tokens: BTreeMap<String, Remembered>,
    /// The addresses of instances by id.
    pub(super) instances: BTreeMap<String, Ipv4Addr>,
}

/// A load balancer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Balancer {
    /// The id.
    pub id: String,
    /// The name.
    pub name: String,
    /// The address that its listeners bind.
    pub address: Ipv4Addr,
    /// Whether it is switched on.
    pub active: bool,
    /// Whether its deletion is refused.
    pub delete_protection: bool,
    /// The listeners, sorted by port and protocol.
    pub listeners: Vec<Listener>,
    /// The backends of its default server group, whose port is that of the listener.
    pub backends: Vec<Backend>,
    pub(super) tags: BTreeMap<String, Tag>,
    pub(super) internet: bool,
    pub(super) spec: Option<String>,
    pub(super) charge: String,
    pub(super) instance_charge: String,
    pub(super) bandwidth: i64,
    pub(super) modification_protection: bool,
    pub(super) modification_reason: Option<String>,
    /// Parameters of the creation that are only given back: zones, network, resource group.
    pub(super) place: BTreeMap<String, String>,
    pub(super) created_at: Timestamp,
    /// When it accepts edits.
    pub(super) ready_at: Timestamp,
    /// When the default server group accepts edits.
    pub(super) settled_at: Timestamp,
}

/// A listener of a load balancer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Listener {
    /// The port.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
    /// Whether it accepts connections. A new listener does not, until it is started.
    pub running: bool,
    /// The server group; the default one of the load balancer if absent.
    pub group: Option<String>,
    /// The port of the backends in the default server group.
    pub backend_port: Option<u16>,
    /// The other settings, with their defaults.
    pub settings: BTreeMap<String, String>,
    /// The certificates of further domains by the id of the extension, of an HTTPS listener.
    #[serde(default)]
    pub domains: BTreeMap<String, Domain>,
    pub(super) settled_at: Timestamp,
}

/// A domain of an HTTPS listener with a certificate of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// The domain, whose first part may be `*`.
    pub domain: String,
    /// The id of the certificate.
    pub certificate: String,
}

/// A server group of a load balancer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The id.
    pub id: String,
    /// The load balancer.
    pub balancer: String,
    /// The name.
    pub name: String,
    /// The backends.
    pub backends: Vec<Backend>,
    pub(super) created_at: Timestamp,
    pub(super) settled_at: Timestamp,
}

/// The kind of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An instance.
    Ecs,
    /// A network interface, such as that of a Pod.
    Eni,
    /// A container instance.
    Eci,
}

/// A backend of a server group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backend {
    /// The id of the instance or of the network interface.
    pub server: String,
    /// What `server` names.
    pub kind: Kind,
    /// The address, as sent or as the instance has it.
    pub address: Ipv4Addr,
    /// The port; 0 in a default server group.
    pub port: u16,
    /// The share of the traffic, 0 to 100. 0 gets no new connections.
    pub weight: u8,
    /// A free text.
    pub description: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Tag {
    pub(super) value: String,
    /// When searches find it.
    pub(super) visible_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct AccessList {
    pub(super) id: String,
    pub(super) name: String,
    /// Comments by network.
    pub(super) entries: BTreeMap<String, String>,
}

/// A certificate with its chain and its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// The id.
    pub id: String,
    /// The name.
    pub name: String,
    /// The chain, leaf first, as PEM.
    pub chain: String,
    /// The key.
    pub key: PrivateKey,
    /// SHA-1 of the leaf, as the API shows it.
    pub(super) fingerprint: String,
    pub(super) created_at: Timestamp,
}

/// A private key as PEM. Its `Debug` form does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PrivateKey(String);

// === impl State ===

impl State {
    /// An id that no object has or had.
    pub(super) fn new_id(&mut self, prefix: &str) -> String {
        self.sequence += 1;
        format!("{prefix}-{:06}", self.sequence)
    }

    pub(super) fn balancer(&self, id: &str) -> Result<&Balancer, Refusal> {
        let balancer = self.balancers.get(id);
        balancer.ok_or_else(|| Refusal::no_balancer(id))
    }

    /// The load balancer, ready for an edit.
    pub(super) fn balancer_mut(
        &mut self,
        context: Context<'_>,
        id: &str,
    ) -> Result<&mut Balancer, Refusal> {
        let balancer = self.balancers.get_mut(id);
        let balancer = balancer.ok_or_else(|| Refusal::no_balancer(id))?;
        if context.now < balancer.ready_at {
            return Err(Refusal::busy_balancer());
        }
        Ok(balancer)
    }

    pub(super) fn group(&self, id: &str) -> Result<&Group, Refusal> {
        self.groups.get(id).ok_or_else(Refusal::no_group)
    }

    pub(super) fn certificate(&self, id: &str) -> Result<&Certificate, Refusal> {
        let certificate = self.certificates.get(id);
        certificate.ok_or_else(|| Refusal::no_certificate(id))
    }

    /// The listeners that forward to a server group, with their load balancer.
    pub(super) fn users_of<'a>(
        &'a self,
        group: &'a str,
    ) -> impl Iterator<Item = (&'a Balancer, &'a Listener)> {
        self.listeners()
            .filter(move |(_, listener)| listener.group.as_deref() == Some(group))
    }

    /// All listeners, with their load balancer.
    pub fn listeners(&self) -> impl Iterator<Item = (&Balancer, &Listener)> {
        let balancers = self.balancers.values();
        balancers.flat_map(|balancer| balancer.listeners.iter().map(move |one| (balancer, one)))
    }

    /// The access control list of a listener that is switched on: whether its networks are the allowed ones, and the networks.
    #[must_use]
    pub fn access_of(&self, listener: &Listener) -> Option<(bool, Vec<&str>)> {
        let setting = |name: &str| listener.settings.get(name).map(String::as_str);
        if setting("AclStatus") != Some("on") {
            return None;
        }
        let list = self.access_lists.get(setting("AclId")?)?;
        let white = setting("AclType") == Some("white");
        Some((white, list.entries.keys().map(String::as_str).collect()))
    }
}

// === impl Listener ===

impl Listener {
    /// The ids of its certificates, that of all other domains first.
    pub fn certificates(&self) -> impl Iterator<Item = &str> {
        let first = self.settings.get(settings::CERTIFICATE);
        let domains = self.domains.values().map(|domain| &domain.certificate);
        first.into_iter().chain(domains).map(String::as_str)
    }
}

// === impl PrivateKey ===

impl PrivateKey {
    pub(super) fn new(pem: String) -> Self {
        Self(pem)
    }

    /// The key as PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PrivateKey(..)")
    }
}

// === impl Kind ===

impl Kind {
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "ecs" => Some(Self::Ecs),
            "eni" => Some(Self::Eni),
            "eci" => Some(Self::Eci),
            _ => None,
        }
    }

    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ecs => "ecs",
            Self::Eni => "eni",
            Self::Eci => "eci",
        }
    }
}
