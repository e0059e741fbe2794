//! The marks by which the controller recognises its own: tags, names and tokens in the cloud; the finalizer, labels and
//! the state annotation on the Service. None of them uses a name that another Service can have later, only its uid.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::model::{LbId, LoadBalancer, Tags};
use crate::provider::Token;

/// The finalizer of a Service with a load balancer. All cloud controllers share it.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// The class of this controller in `spec.loadBalancerClass`.
pub const CLASS: &str = "reeve.dev/lb";
/// The prefix of all annotations and labels of this controller.
pub const PREFIX: &str = "lb.reeve.dev/";
/// The label with the id of the Service's load balancer.
pub const ID_LABEL: &str = "lb.reeve.dev/loadbalancer-id";
/// The label with the [hash](crate::hash) that was last applied in full.
pub const HASH_LABEL: &str = "lb.reeve.dev/hash";
/// The annotation with [`Note`], in JSON.
pub const NOTE_ANNOTATION: &str = "lb.reeve.dev/state";

/// The prefix of the controller's tags. A Service cannot set such tags itself.
pub const TAG_PREFIX: &str = "reeve.dev/";
/// The tag with the id of the cluster.
pub const CLUSTER_TAG: &str = "reeve.dev/cluster";
/// The tag with the uid of the Service.
pub const UID_TAG: &str = "reeve.dev/service-uid";
/// The tag with the namespace and name of the Service, for people and for the search for orphans.
pub const SERVICE_TAG: &str = "reeve.dev/service";

/// The longest [`ClusterId`]: so that a [`PortName`] has at most 80 characters.
const LONGEST_CLUSTER: usize = 27;

/// The id of a cluster, unique in the account of the cloud: 1 to 27 of `a-z`, `0-9` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterId(String);

/// A Service of a cluster, as the cloud knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The cluster.
    pub cluster: ClusterId,
    /// The Service's uid.
    pub uid: String,
    /// The Service's namespace and name.
    pub name: String,
}

/// The name of the listener and of the group of one port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortName {
    /// The port of the Service.
    pub port: u16,
    /// The protocol of the port in the Service, in lower case.
    pub protocol: String,
    /// The Service's uid.
    pub uid: String,
    /// The cluster.
    pub cluster: String,
}

/// What the controller has to remember of a Service besides the id of its load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Note {
    /// The number of load balancers of this Service that were lost or given up. It is part of the token of a creation, since a cloud
    /// answers a token that it has seen with the id of the first creation, though that load balancer is gone.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: u32,
    /// The time of the last decision to create a load balancer, while its result is not known.
    /// [`Provider::visible_within`](crate::provider::Provider::visible_within) is not counted from it, but from the moment
    /// from which no process can send the creation any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creating: Option<Timestamp>,
    /// The time at which the cloud knew the token of a creation, with other settings or for a load balancer without the
    /// tags of the Service: an earlier creation took effect, and the search by tags has to show its load balancer, unless
    /// that one is gone or was given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mismatched: Option<Timestamp>,
    /// Own load balancers to delete once the reused one serves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub retired: Vec<LbId>,
    /// The reused load balancers that may have listeners of this Service.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reused: Vec<LbId>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The text is not a [`ClusterId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an id of a cluster: 1 to {LONGEST_CLUSTER} of a-z, 0-9 and -")]
pub struct InvalidCluster(String);

// === impl ClusterId ===

impl ClusterId {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tags of all load balancers of the cluster.
    #[must_use]
    pub fn tags(&self) -> Tags {
        [(CLUSTER_TAG.to_owned(), self.0.clone())].into()
    }
}

impl std::str::FromStr for ClusterId {
    type Err = InvalidCluster;

    fn from_str(text: &str) -> Result<Self, InvalidCluster> {
        let fits = (1..=LONGEST_CLUSTER).contains(&text.len());
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if fits && text.chars().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidCluster(text.to_owned()))
        }
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Owner ===

impl Owner {
    /// The owner that `service` is.
    #[must_use]
    pub fn of(cluster: &ClusterId, service: &Service) -> Self {
        let meta = &service.metadata;
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        Self {
            cluster: cluster.clone(),
            uid: part(&meta.uid),
            name: format!("{}/{}", part(&meta.namespace), part(&meta.name)),
        }
    }

    /// The tags of its load balancer, which identify it: cluster and uid.
    #[must_use]
    pub fn identity(&self) -> Tags {
        let mut tags = self.cluster.tags();
        tags.insert(UID_TAG.to_owned(), self.uid.clone());
        tags
    }

    /// All tags that the controller sets on its load balancer.
    #[must_use]
    pub fn tags(&self) -> Tags {
        let mut tags = self.identity();
        tags.insert(SERVICE_TAG.to_owned(), self.name.clone());
        tags
    }

    /// Whether `balancer` was created for it.
    #[must_use]
    pub fn owns(&self, balancer: &LoadBalancer) -> bool {
        let identity = self.identity();
        identity
            .iter()
            .all(|(key, value)| balancer.tags.get(key) == Some(value))
    }

    /// The token of the creation of its load balancer: a function of cluster, uid and generation, so a process that
    /// takes over after a crash sends the same.
    #[must_use]
    pub fn token(&self, generation: u32) -> Token {
        let mut hash = Sha256::new();
        for part in [self.cluster.as_str(), &self.uid, &generation.to_string()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Token::new(hex(&hash.finalize()))
    }

    /// The default name of its load balancer, as long as cloud-provider's.
    #[must_use]
    pub fn default_name(&self) -> String {
        let uid = self.uid.chars().filter(char::is_ascii_alphanumeric);
        std::iter::once('a').chain(uid).take(32).collect()
    }

    /// The name of a port's listener and group.
    #[must_use]
    pub fn port_name(&self, port: u16, protocol: &str) -> PortName {
        PortName {
            port,
            protocol: protocol.to_ascii_lowercase(),
            uid: self.uid.clone(),
            cluster: self.cluster.0.clone(),
        }
    }

    /// Whether a listener or group with this name is one of this Service's.
    #[must_use]
    pub fn named(&self, name: &str) -> bool {
        let name = PortName::parse(name);
        name.is_some_and(|name| name.uid == self.uid && name.cluster == self.cluster.0)
    }
}

/// Whether a controller of any cluster created `balancer`.
#[must_use]
pub fn is_managed(balancer: &LoadBalancer) -> bool {
    balancer.tags.contains_key(CLUSTER_TAG)
}

/// Lower case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

// === impl PortName ===

impl PortName {
    /// Reads a name; `None` if the controller did not make it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let mut next = || parts.next().filter(|part| !part.is_empty());
        if next()? != "k8s" {
            return None;
        }
        let name = Self {
            port: next()?.parse().ok()?,
            protocol: next()?.to_owned(),
            uid: next()?.to_owned(),
            cluster: next()?.to_owned(),
        };
        parts.next().is_none().then_some(name)
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            port,
            protocol,
            uid,
            cluster,
        } = self;
        write!(f, "k8s/{port}/{protocol}/{uid}/{cluster}")
    }
}

// === impl Note ===

impl Note {
    /// The note of `service`. One that cannot be read counts as a creation, the most careful reading.
    #[must_use]
    pub fn of(service: &Service, now: Timestamp) -> Self {
        let annotations = service.metadata.annotations.as_ref();
        let Some(text) = annotations.and_then(|all| all.get(NOTE_ANNOTATION)) else {
            return Self::default();
        };
        serde_json::from_str(text).unwrap_or_else(|_| Self {
            creating: Some(now),
            ..Self::default()
        })
    }

    /// The text of the annotation.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The id that the label of `service` holds.
#[must_use]
pub fn recorded(service: &Service) -> Option<LbId> {
    let id = service.metadata.labels.as_ref()?.get(ID_LABEL)?;
    (!id.is_empty()).then(|| LbId(id.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(uid: &str) -> Owner {
        Owner {
            cluster: "shop-1".parse().unwrap(),
            uid: uid.to_owned(),
            name: "shop/web".to_owned(),
        }
    }

    const UID: &str = "0c1ee8f5-6c2b-4f55-8d5c-6a1f7f5b9a10";

    #[test]
    fn a_port_name_is_read_as_it_was_written_and_fits_into_eighty_characters() {
        let longest = Owner {
            cluster: "c".repeat(LONGEST_CLUSTER).parse().unwrap(),
            ..owner(UID)
        };
        let name = longest.port_name(65535, "SCTP");
        assert!(name.to_string().len() <= 80, "{name}");
        assert_eq!(PortName::parse(&name.to_string()), Some(name.clone()));
        assert!(longest.named(&name.to_string()));
        assert!(!owner("another").named(&name.to_string()));
        for foreign in [
            "",
            "web",
            "k8s/80/tcp/uid",
            "k8s/80/tcp/uid/c/more",
            "k8s/x/tcp/uid/c",
            "k8s//tcp/uid/c",
            "lb/80/tcp/uid/c",
        ] {
            assert_eq!(PortName::parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_token_depends_on_the_cluster_the_uid_and_the_generation_alone() {
        let token = owner(UID).token(0);
        assert_eq!(token.as_str().len(), 64);
        let renamed = Owner {
            name: "shop/other".to_owned(),
            ..owner(UID)
        };
        assert_eq!(renamed.token(0), token);
        let elsewhere = Owner {
            cluster: "shop-2".parse().unwrap(),
            ..owner(UID)
        };
        for other in [owner(UID).token(1), owner("u").token(0), elsewhere.token(0)] {
            assert_ne!(other, token);
        }
    }

    #[test]
    fn a_cluster_id_is_short_and_plain() {
        for good in ["a", "shop-1", &"x".repeat(27)] {
            assert_eq!(good.parse::<ClusterId>().unwrap().as_str(), good);
        }
        for bad in ["", "Shop", "a/b", "a b", &"x".repeat(28)] {
            assert!(bad.parse::<ClusterId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_unreadable_note_counts_as_a_creation_under_way() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut service = Service::default();
        assert_eq!(Note::of(&service, now), Note::default());
        let note = Note {
            generation: 2,
            creating: Some(now),
            reused: vec!["lb-1".into()],
            ..Note::default()
        };
        let mut put = |text: String| {
            service.metadata.annotations = Some([(NOTE_ANNOTATION.to_owned(), text)].into());
            Note::of(&service, now)
        };
        assert_eq!(put(note.text()), note);
        assert_eq!(put("{}".to_owned()), Note::default());
        assert_eq!(put("nonsense".to_owned()).creating, Some(now));
    }
}
