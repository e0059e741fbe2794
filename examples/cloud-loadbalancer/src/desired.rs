//! The load balancer that a Service asks for: a pure function of the Service, its annotations, nodes and EndpointSlices.

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Service, ServicePort};

use crate::annotations::{Annotations, Problem};
use crate::backends::{self, Mode, Readiness, Rules, Sources};
use crate::identity::{Owner, PREFIX};
use crate::model::{
    AddressType, Backend, Create, Fixed, GroupId, HealthCheck, InstanceCharge, Internet, IpVersion,
    LbId, ListenerKey, ListenerSettings, LoadBalancer, Probe, Protocol, Tags, Targets,
    TrafficCharge,
};

/// The time that a client stays with its backend, unless the Service sets another.
const AFFINITY: Duration = Duration::from_secs(10_800);

/// The load balancer that a Service asks for. `None` in an attribute: leave it as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The Service.
    pub owner: Owner,
    /// The load balancer to reuse.
    pub reuse: Option<LbId>,
    /// Whether listeners of others are replaced.
    pub override_listeners: bool,
    /// The attributes that cannot change, as requested.
    pub address_type: Option<AddressType>,
    /// The version of the address, as requested.
    pub ip_version: Option<IpVersion>,
    /// The subnet, as requested.
    pub subnet: Option<String>,
    /// The zone, as requested.
    pub zone: Option<String>,
    /// The resource group, as requested.
    pub resource_group: Option<String>,
    /// The version at a creation that requests none: that of the Service's first family.
    pub family: IpVersion,
    /// The name.
    pub name: Option<String>,
    /// The name at a creation that requests none.
    pub default_name: String,
    /// Whether the name of a load balancer can change.
    pub renames: bool,
    /// The size.
    pub spec: Option<String>,
    /// The charge for the load balancer.
    pub instance_charge: Option<InstanceCharge>,
    /// The charge for traffic.
    pub traffic_charge: Option<TrafficCharge>,
    /// The bandwidth.
    pub bandwidth: Option<u32>,
    /// The delete protection.
    pub delete_protection: Option<bool>,
    /// The modification protection.
    pub modification_protection: Option<bool>,
    /// The tags; empty for a reused one.
    pub tags: Tags,
    /// The ports.
    pub ports: Vec<WantedPort>,
    /// The mistakes in the Service.
    pub problems: Vec<Problem>,
    /// The settings of the Service that have no effect in this cloud.
    pub unsupported: Vec<Problem>,
}

/// The listener and the group of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedPort {
    /// The port and protocol of the listener.
    pub key: ListenerKey,
    /// The settings of the listener, whose group is not known yet.
    pub settings: ListenerSettings,
    /// The certificates of further domains.
    pub domains: BTreeMap<String, String>,
    /// The kind of the backends.
    pub targets: Targets,
    /// The backends of the group.
    pub backends: Vec<Backend>,
}

// === impl Wanted ===

impl Wanted {
    /// Whether the annotations that select the backends have no mistake. With one they count as not set, and the backends
    /// are those of another mode, or none.
    pub(crate) fn knows_backends(&self) -> bool {
        let selects = ["backends", "backend-labels"].map(|name| format!("{PREFIX}{name}"));
        let mut problems = self.problems.iter();
        !problems.any(|problem| selects.contains(&problem.field))
    }

    /// The load balancer that `service` asks for, of a cloud that can do everything; see [`Wanted::fit`]. `remote` is the
    /// one that it has: its address selects the Pods'.
    #[must_use]
    pub fn of(
        owner: &Owner,
        service: &Service,
        sources: Sources<'_>,
        readiness: Readiness,
        remote: Option<&LoadBalancer>,
    ) -> Self {
        let (annotations, mut problems) = Annotations::parse(service);
        let sources_of_traffic = source_ranges(service, &mut problems);
        let family = family(service);
        let mode = backends::mode(service, &annotations);
        let rules = Rules {
            mode,
            readiness,
            labels: &annotations.backend_labels,
            ip_version: remote.map_or(annotations.ip_version.unwrap_or(family), |remote| {
                remote.fixed.ip_version
            }),
        };
        let mut ports = Vec::new();
        let spec = service.spec.as_ref();
        for port in spec.iter().flat_map(|spec| spec.ports.iter().flatten()) {
            match wanted_port(
                owner,
                service,
                &annotations,
                port,
                mode,
                &sources_of_traffic,
            ) {
                Ok(mut wanted) => {
                    wanted.backends = backends::backends(port, &rules, sources);
                    ports.push(wanted);
                }
                Err(problem) => problems.push(problem),
            }
        }
        for port in annotations.protocol_ports.keys() {
            let tcp = |wanted: &WantedPort| {
                wanted.key.port == *port && wanted.key.protocol != Protocol::Udp
            };
            if !ports.iter().any(tcp) {
                let message = format!("the Service has no TCP port {port}");
                problems.push(Problem::new("lb.reeve.dev/protocol-ports", message));
            }
        }
        let own = annotations.reuse.is_none();
        let mut tags = annotations.tags;
        if own {
            tags.extend(owner.tags());
        }
        Self {
            owner: owner.clone(),
            reuse: annotations.reuse,
            override_listeners: annotations.override_listeners,
            address_type: annotations.address_type,
            ip_version: annotations.ip_version,
            subnet: annotations.subnet,
            zone: annotations.zone,
            resource_group: annotations.resource_group,
            family,
            name: annotations.name,
            default_name: owner.default_name(),
            renames: true,
            spec: annotations.spec,
            instance_charge: annotations.instance_charge,
            traffic_charge: annotations.traffic_charge,
            bandwidth: annotations.bandwidth,
            delete_protection: annotations.delete_protection.or(own.then_some(true)),
            modification_protection: annotations.modification_protection.or(own.then_some(true)),
            tags,
            ports,
            problems,
            unsupported: Vec::new(),
        }
    }

    /// The creation of it.
    #[must_use]
    pub fn creation(&self) -> Create {
        let internet = self.bandwidth.is_some() || self.traffic_charge.is_some();
        Create {
            name: self
                .name
                .clone()
                .unwrap_or_else(|| self.default_name.clone()),
            fixed: Fixed {
                address_type: self.address_type.unwrap_or(AddressType::Internet),
                ip_version: self.ip_version.unwrap_or(self.family),
                subnet: self.subnet.clone(),
                zone: self.zone.clone(),
                resource_group: self.resource_group.clone(),
            },
            internet: internet.then(|| Internet {
                charge: self.traffic_charge.unwrap_or(TrafficCharge::PayByTraffic),
                bandwidth: self.bandwidth.unwrap_or(0),
            }),
            instance_charge: self.instance_charge,
            spec: self.spec.clone(),
            tags: self.tags.clone(),
            identity: self.owner.identity(),
        }
    }
}

fn family(service: &Service) -> IpVersion {
    let spec = service.spec.as_ref();
    let families = spec.and_then(|spec| spec.ip_families.as_ref());
    match families
        .and_then(|families| families.first())
        .map(String::as_str)
    {
        Some("IPv6") => IpVersion::Ipv6,
        _ => IpVersion::Ipv4,
    }
}

/// The allowed sources, sorted. A Service whose ranges cannot be read is a problem, and never open to all.
fn source_ranges(service: &Service, problems: &mut Vec<Problem>) -> Vec<IpNet> {
    let spec = service.spec.as_ref();
    let ranges = spec.and_then(|spec| spec.load_balancer_source_ranges.as_ref());
    let mut parsed = Vec::new();
    for range in ranges.into_iter().flatten() {
        match range.trim().parse::<IpNet>() {
            Ok(range) => parsed.push(range.trunc()),
            Err(_) => {
                let message = format!("{range:?} is no range of addresses");
                problems.push(Problem::new("spec.loadBalancerSourceRanges", message));
            }
        }
    }
    parsed.sort();
    parsed.dedup();
    parsed
}

fn wanted_port(
    owner: &Owner,
    service: &Service,
    annotations: &Annotations,
    port: &ServicePort,
    mode: Mode,
    sources: &[IpNet],
) -> Result<WantedPort, Problem> {
    let problem = |message: String| Problem::new("spec.ports", message);
    let number =
        u16::try_from(port.port).map_err(|_| problem(format!("{} is no port", port.port)))?;
    let given = port.protocol.as_deref().unwrap_or("TCP");
    let chosen = annotations.protocol_ports.get(&number).copied();
    let protocol = match (given, chosen) {
        ("TCP", chosen) => chosen.unwrap_or(Protocol::Tcp),
        // The annotation is about the TCP port of this number.
        ("UDP", _) => Protocol::Udp,
        (other, _) => {
            return Err(problem(format!(
                "port {number} is {other}, which load balancers have not"
            )));
        }
    };
    let secure = protocol == Protocol::Https;
    let domains = annotations.domain_certificates.iter();
    let domains = domains.filter(|_| secure);
    Ok(WantedPort {
        key: ListenerKey {
            port: number,
            protocol,
        },
        settings: ListenerSettings {
            name: owner.port_name(number, given).to_string(),
            group: GroupId(String::new()),
            scheduler: annotations.scheduler,
            affinity: affinity(service),
            sources: sources.to_vec(),
            health_check: health_check(service, annotations, protocol, mode),
            drain: annotations.drain,
            proxy_protocol: annotations.proxy_protocol,
            certificate: annotations.certificate.clone().filter(|_| secure),
        },
        domains: domains
            .map(|(domain, id)| (domain.clone(), id.clone()))
            .collect(),
        targets: match mode {
            Mode::Pod => Targets::Addresses,
            Mode::Cluster | Mode::Local => Targets::Instances,
        },
        backends: Vec::new(),
    })
}

fn affinity(service: &Service) -> Option<Duration> {
    let spec = service.spec.as_ref()?;
    if spec.session_affinity.as_deref() != Some("ClientIP") {
        return None;
    }
    let config = spec.session_affinity_config.as_ref();
    let client = config.and_then(|config| config.client_ip.as_ref());
    let seconds = client.and_then(|client| client.timeout_seconds);
    let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Some(seconds.map_or(AFFINITY, Duration::from_secs))
}

/// The health check. With `externalTrafficPolicy: Local` kube-proxy answers at `healthCheckNodePort` whether the node
/// has Pods, so the load balancer notices a Pod that moves before this controller does. A UDP port has the probe of its
/// protocol in any case.
fn health_check(
    service: &Service,
    annotations: &Annotations,
    protocol: Protocol,
    mode: Mode,
) -> HealthCheck {
    let spec = service.spec.as_ref();
    let node_port = spec.and_then(|spec| spec.health_check_node_port);
    let local = node_port
        .filter(|_| mode == Mode::Local)
        .and_then(|port| u16::try_from(port).ok())
        .filter(|port| *port > 0);
    let default_path = if local.is_some() { "/healthz" } else { "/" };
    // Clouds refuse another probe at a UDP listener. It goes to the backend's own port: `healthCheckNodePort` is TCP.
    let udp = protocol == Protocol::Udp;
    let http = !udp && annotations.health_check_http.unwrap_or(local.is_some());
    let probe = match protocol {
        Protocol::Udp => Probe::Udp,
        _ if http => Probe::Http {
            path: annotations
                .health_check_path
                .clone()
                .unwrap_or_else(|| default_path.to_owned()),
        },
        _ => Probe::Tcp,
    };
    let seconds = Duration::from_secs;
    HealthCheck {
        probe,
        port: annotations.health_check_port.or(local.filter(|_| http)),
        interval: annotations.health_check_interval.unwrap_or(seconds(2)),
        timeout: annotations.health_check_timeout.unwrap_or(seconds(5)),
        healthy: annotations.healthy_threshold.unwrap_or(3),
        unhealthy: annotations.unhealthy_threshold.unwrap_or(3),
    }
}
