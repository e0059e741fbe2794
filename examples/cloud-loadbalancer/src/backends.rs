//! The backends of a port: a pure function of the Service's mode, the nodes and the EndpointSlices.
//!
//! The set of nodes is stable (KEP-3458): readiness does not count, since the health check of the load balancer decides
//! faster and without a call to the cloud. [`Readiness::Exclude`] is for clouds without such checks.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use crate::annotations::Annotations;
use crate::model::{Backend, IpVersion, Server};

/// The label that keeps a node out of load balancers.
pub const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The label of an EndpointSlice with the name of its Service.
pub const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// The taint that the cluster autoscaler puts on a node before it deletes it.
pub const AUTOSCALER_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// The weight of a backend where all are equal, and the largest.
const FULL: u8 = 100;

/// The way from the load balancer to the Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// To the node port of every node, which forwards to any Pod.
    Cluster,
    /// To the node port of the nodes that have Pods, by their number (`externalTrafficPolicy: Local`).
    Local,
    /// To the Pods.
    Pod,
}

/// Whether nodes that are not ready get traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Readiness {
    /// They do: the load balancer's health check decides.
    #[default]
    Ignore,
    /// They do not.
    Exclude,
}

/// The objects that backends come from.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// All nodes.
    pub nodes: &'a [Arc<Node>],
    /// The EndpointSlices of the Service.
    pub slices: &'a [Arc<EndpointSlice>],
}

/// The rules for backends.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The way to the Pods.
    pub mode: Mode,
    /// Whether nodes that are not ready count.
    pub readiness: Readiness,
    /// The labels that a node must have.
    pub labels: &'a BTreeMap<String, String>,
    /// The version of Pod addresses.
    pub ip_version: IpVersion,
}

/// The mode of `service`.
#[must_use]
pub fn mode(service: &Service, annotations: &Annotations) -> Mode {
    let spec = service.spec.as_ref();
    let policy = spec.and_then(|spec| spec.external_traffic_policy.as_deref());
    match policy {
        _ if annotations.to_pods => Mode::Pod,
        Some("Local") => Mode::Local,
        _ => Mode::Cluster,
    }
}

/// The backends of `port`, sorted, each once.
#[must_use]
pub fn backends(port: &ServicePort, rules: &Rules<'_>, sources: Sources<'_>) -> Vec<Backend> {
    let set: BTreeSet<Backend> = match rules.mode {
        Mode::Pod => pods(port, rules, sources.slices),
        Mode::Cluster => nodes(port, rules, sources.nodes, |_| Some(FULL)),
        Mode::Local => {
            let counts = pods_by_node(rules, sources.slices);
            let most = counts.values().copied().max().unwrap_or(0);
            nodes(port, rules, sources.nodes, |name| {
                counts.get(name).map(|count| weight(*count, most))
            })
        }
    };
    set.into_iter().collect()
}

/// The weight of a node with `count` Pods, where another has `most`.
fn weight(count: usize, most: usize) -> u8 {
    let weight = if most <= usize::from(FULL) {
        count
    } else {
        (count * usize::from(FULL) / most).max(1)
    };
    u8::try_from(weight).unwrap_or(FULL)
}

fn nodes(
    port: &ServicePort,
    rules: &Rules<'_>,
    nodes: &[Arc<Node>],
    weight: impl Fn(&str) -> Option<u8>,
) -> BTreeSet<Backend> {
    let Some(node_port) = number(port.node_port) else {
        return BTreeSet::new();
    };
    let backend = |node: &Arc<Node>| {
        let name = node.metadata.name.as_deref()?;
        Some(Backend {
            server: Server::Instance(eligible(node, rules.readiness, rules.labels)?),
            port: node_port,
            weight: weight(name)?,
        })
    };
    nodes.iter().filter_map(backend).collect()
}

fn number(port: Option<i32>) -> Option<u16> {
    port.and_then(|port| u16::try_from(port).ok())
        .filter(|port| *port > 0)
}

/// The instance of `node`, if it may get traffic.
#[must_use]
pub fn eligible(
    node: &Node,
    readiness: Readiness,
    required: &BTreeMap<String, String>,
) -> Option<String> {
    let meta = &node.metadata;
    let label = |key: &str| meta.labels.as_ref().and_then(|labels| labels.get(key));
    let spec = node.spec.as_ref();
    let mut taints = spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let refused = meta.deletion_timestamp.is_some()
        || label(EXCLUDE_LABEL).is_some()
        || taints.any(|taint| taint.key == AUTOSCALER_TAINT)
        || required
            .iter()
            .any(|(key, value)| label(key) != Some(value))
        || (readiness == Readiness::Exclude && !is_ready(node));
    if refused {
        return None;
    }
    instance(spec?.provider_id.as_deref()?)
}

fn is_ready(node: &Node) -> bool {
    let status = node.status.as_ref();
    let mut conditions = status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|one| one.type_ == "Ready" && one.status == "True")
}

/// The id of the instance in a providerID: `i-1` in `aws:///eu-1a/i-1`, in `sim://r1.i-1` and in `r1.i-1`.
fn instance(provider_id: &str) -> Option<String> {
    let last = provider_id.rsplit('/').next().unwrap_or(provider_id);
    let id = last.split_once('.').map_or(last, |(_, id)| id);
    (!id.is_empty()).then(|| id.to_owned())
}

/// The endpoints of the version that get traffic: the ready ones, or if there is none, those that end and still serve
/// (KEP-1669).
fn serving(version: IpVersion, slices: &[Arc<EndpointSlice>]) -> Vec<(&EndpointSlice, &Endpoint)> {
    let family = match version {
        IpVersion::Ipv4 => "IPv4",
        IpVersion::Ipv6 => "IPv6",
    };
    let of_version = slices.iter().filter(|slice| slice.address_type == family);
    let all: Vec<_> = of_version
        .flat_map(|slice| {
            let endpoints = slice.endpoints.iter().flatten();
            endpoints.map(|endpoint| (&**slice, endpoint))
        })
        .collect();
    let is = |endpoint: &Endpoint, ending: bool| {
        let Some(conditions) = &endpoint.conditions else {
            return !ending;
        };
        let terminating = conditions.terminating.unwrap_or(false);
        let serving = conditions.serving.or(conditions.ready).unwrap_or(true);
        if ending {
            terminating && serving
        } else {
            !terminating && conditions.ready.unwrap_or(true)
        }
    };
    let select = |ending| {
        let all = all.iter().copied();
        all.filter(|(_, endpoint)| is(endpoint, ending))
            .collect::<Vec<_>>()
    };
    let ready = select(false);
    if ready.is_empty() {
        select(true)
    } else {
        ready
    }
}

/// The number of Pods on each node, each Pod once though two slices have it.
fn pods_by_node<'a>(
    rules: &Rules<'_>,
    slices: &'a [Arc<EndpointSlice>],
) -> BTreeMap<&'a str, usize> {
    let mut addresses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (_, endpoint) in serving(rules.ip_version, slices) {
        if let (Some(node), Some(address)) = (&endpoint.node_name, endpoint.addresses.first()) {
            addresses.entry(node).or_default().insert(address);
        }
    }
    addresses
        .into_iter()
        .map(|(node, all)| (node, all.len()))
        .collect()
}

/// The Pods, each slice with its own number of a named port.
fn pods(port: &ServicePort, rules: &Rules<'_>, slices: &[Arc<EndpointSlice>]) -> BTreeSet<Backend> {
    let wanted = port.name.as_deref().unwrap_or_default();
    let mut found = BTreeSet::new();
    for (slice, endpoint) in serving(rules.ip_version, slices) {
        let mut ports = slice.ports.iter().flatten();
        let target = ports.find(|one| one.name.as_deref().unwrap_or_default() == wanted);
        let Some(target) = target.and_then(|port| number(port.port)) else {
            continue;
        };
        let address = endpoint.addresses.first();
        if let Some(address) = address.and_then(|address| address.parse::<IpAddr>().ok()) {
            found.insert(Backend {
                server: Server::Address(address),
                port: target,
                weight: FULL,
            });
        }
    }
    found
}
