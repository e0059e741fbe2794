//! The annotations of a Service that configure its load balancer.
//!
//! An annotation that is not set leaves its attribute as it is; at the creation the default of [`TABLE`] counts. A wrong
//! value or an unknown name is a [`Problem`]: nothing is created from a Service with one, since a mistake in
//! `address-type` would make a private service public, and of an existing load balancer only the backends change.

mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;

use crate::identity::{NOTE_ANNOTATION, PREFIX, TAG_PREFIX};
use crate::model::{
    AddressType, InstanceCharge, IpVersion, LbId, Protocol, Scheduler, Tags, TrafficCharge,
};
pub use table::{Row, TABLE};

/// What a Service asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "TABLE describes each")]
pub struct Annotations {
    pub name: Option<String>,
    pub address_type: Option<AddressType>,
    pub ip_version: Option<IpVersion>,
    pub subnet: Option<String>,
    pub zone: Option<String>,
    pub resource_group: Option<String>,
    pub spec: Option<String>,
    pub instance_charge: Option<InstanceCharge>,
    pub traffic_charge: Option<TrafficCharge>,
    pub bandwidth: Option<u32>,
    pub delete_protection: Option<bool>,
    pub modification_protection: Option<bool>,
    pub tags: Tags,
    pub reuse: Option<LbId>,
    pub override_listeners: bool,
    pub preserve_on_delete: bool,
    pub to_pods: bool,
    pub backend_labels: BTreeMap<String, String>,
    pub scheduler: Scheduler,
    pub protocol_ports: BTreeMap<u16, Protocol>,
    pub certificate: Option<String>,
    pub domain_certificates: BTreeMap<String, String>,
    pub health_check_http: Option<bool>,
    pub health_check_path: Option<String>,
    pub health_check_port: Option<u16>,
    pub health_check_interval: Option<Duration>,
    pub health_check_timeout: Option<Duration>,
    pub healthy_threshold: Option<u8>,
    pub unhealthy_threshold: Option<u8>,
    pub drain: Option<Duration>,
    pub proxy_protocol: bool,
    pub hostname: Option<String>,
    pub ip_mode: Option<String>,
}

/// A mistake in a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field or annotation.
    pub field: String,
    /// The mistake.
    pub message: String,
}

// === impl Problem ===

impl Problem {
    /// A mistake in `field`.
    #[must_use]
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

// === impl Annotations ===

impl Annotations {
    /// Reads the annotations of `service`, and the mistakes in them. A value with a mistake counts as not set.
    #[must_use]
    pub fn parse(service: &Service) -> (Self, Vec<Problem>) {
        let mut parsed = Self::default();
        let mut problems = Vec::new();
        for (key, value) in service.metadata.annotations.iter().flatten() {
            let Some(name) = key.strip_prefix(PREFIX) else {
                continue;
            };
            if key == NOTE_ANNOTATION {
                continue;
            }
            if let Err(message) = parsed.set(name, value.trim()) {
                problems.push(Problem::new(key, message));
            }
        }
        let mut missing = |name: &str, message: &str| {
            problems.push(Problem::new(format!("{PREFIX}{name}"), message));
        };
        if parsed.traffic_charge == Some(TrafficCharge::PayByBandwidth)
            && parsed.bandwidth.is_none()
        {
            missing(
                "traffic-charge",
                "paybybandwidth needs the annotation bandwidth",
            );
        }
        let https = parsed
            .protocol_ports
            .values()
            .any(|one| *one == Protocol::Https);
        if https && parsed.certificate.is_none() {
            missing("protocol-ports", "https needs the annotation certificate");
        }
        (parsed, problems)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "name" => self.name = Some(text(value, 80)?),
            "address-type" => self.address_type = Some(one_of(value, AddressType::NAMED)?),
            "ip-version" => self.ip_version = Some(one_of(value, IpVersion::NAMED)?),
            "subnet" => self.subnet = Some(subnets(value)?),
            "zone" => self.zone = Some(text(value, 128)?),
            "resource-group" => self.resource_group = Some(text(value, 128)?),
            "spec" => self.spec = Some(text(value, 64)?),
            "instance-charge" => self.instance_charge = Some(one_of(value, InstanceCharge::NAMED)?),
            "traffic-charge" => self.traffic_charge = Some(one_of(value, TrafficCharge::NAMED)?),
            "bandwidth" => self.bandwidth = Some(number(value, 1, 5000)?),
            "delete-protection" => self.delete_protection = Some(on(value)?),
            "modification-protection" => self.modification_protection = Some(on(value)?),
            "tags" => self.tags = tags(value)?,
            "reuse" => self.reuse = Some(LbId(text(value, 128)?)),
            "override-listeners" => self.override_listeners = truth(value)?,
            "preserve-on-delete" => {
                // A deletion cannot be undone: what cannot be read preserves.
                self.preserve_on_delete = true;
                self.preserve_on_delete = truth(value)?;
            }
            "backends" => self.to_pods = one_of(value, &[("nodes", false), ("pods", true)])?,
            "backend-labels" => self.backend_labels = pairs(value)?,
            "scheduler" => self.scheduler = one_of(value, Scheduler::NAMED)?,
            "protocol-ports" => self.protocol_ports = protocols(value)?,
            "certificate" => self.certificate = Some(text(value, 128)?),
            "domain-certificates" => self.domain_certificates = pairs(value)?,
            "health-check" => {
                self.health_check_http = Some(one_of(value, &[("tcp", false), ("http", true)])?);
            }
            "health-check-path" if value.starts_with('/') => {
                self.health_check_path = Some(text(value, 80)?);
            }
            "health-check-path" => return Err(format!("{value:?} does not begin with /")),
            "health-check-port" => self.health_check_port = Some(number(value, 1, u16::MAX)?),
            "health-check-interval" => self.health_check_interval = Some(seconds(value, 1, 50)?),
            "health-check-timeout" => self.health_check_timeout = Some(seconds(value, 1, 300)?),
            "healthy-threshold" => self.healthy_threshold = Some(number(value, 2, 10)?),
            "unhealthy-threshold" => self.unhealthy_threshold = Some(number(value, 2, 10)?),
            "drain" if value == "0" => self.drain = None,
            "drain" => self.drain = Some(seconds(value, 10, 900)?),
            "proxy-protocol" => self.proxy_protocol = on(value)?,
            "hostname" => self.hostname = Some(text(value, 253)?),
            "ip-mode" => {
                let all = [("VIP", "VIP"), ("Proxy", "Proxy")];
                self.ip_mode = Some(one_of(value, &all)?.to_owned());
            }
            _ => return Err("unknown annotation; `ccm annotations` lists all".to_owned()),
        }
        Ok(())
    }
}

fn text(value: &str, longest: usize) -> Result<String, String> {
    match value.chars().count() {
        0 => Err("empty".to_owned()),
        length if length > longest => Err(format!("longer than {longest} characters")),
        _ => Ok(value.to_owned()),
    }
}

/// Several subnets have one order, because a provider reports them in its own.
fn subnets(value: &str) -> Result<String, String> {
    let mut all: Vec<_> = value.split(',').map(str::trim).collect();
    all.sort_unstable();
    all.dedup();
    if all.len() > 1 && all[0].is_empty() {
        return Err(format!("{value:?} has an empty id"));
    }
    text(&all.join(","), 512)
}

fn one_of<T: Copy>(value: &str, all: &[(&str, T)]) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| *name == value);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
        format!("{value:?} is none of {}", names.join(", "))
    })
}

fn on(value: &str) -> Result<bool, String> {
    one_of(value, &[("on", true), ("off", false)])
}

fn truth(value: &str) -> Result<bool, String> {
    one_of(value, &[("true", true), ("false", false)])
}

fn number<T>(value: &str, least: T, most: T) -> Result<T, String>
where
    T: FromStr + PartialOrd + fmt::Display,
{
    match value.parse::<T>() {
        Ok(number) if number >= least && number <= most => Ok(number),
        _ => Err(format!("{value:?} is no number from {least} to {most}")),
    }
}

fn seconds(value: &str, least: u64, most: u64) -> Result<Duration, String> {
    number(value, least, most).map(Duration::from_secs)
}

fn items(value: &str) -> impl Iterator<Item = &str> {
    value
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

fn pairs(value: &str) -> Result<BTreeMap<String, String>, String> {
    items(value)
        .map(|item| match item.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(format!("{item:?} is not of the form key=value")),
        })
        .collect()
}

/// Tags of people. Those of the controller say whose a load balancer is, and what is deleted with a Service.
fn tags(value: &str) -> Result<Tags, String> {
    let tags = pairs(value)?;
    match tags.keys().find(|key| key.starts_with(TAG_PREFIX)) {
        Some(key) => Err(format!("the controller alone sets tags such as {key:?}")),
        None => Ok(tags),
    }
}

fn protocols(value: &str) -> Result<BTreeMap<u16, Protocol>, String> {
    let mut all = BTreeMap::new();
    for item in items(value) {
        let wrong = || format!("{item:?} is not of the form https:443");
        let (protocol, port) = item.split_once(':').ok_or_else(wrong)?;
        let names = [
            ("tcp", Protocol::Tcp),
            ("http", Protocol::Http),
            ("https", Protocol::Https),
        ];
        let protocol = one_of(protocol, &names)?;
        let port: u16 = number(port, 1, u16::MAX)?;
        if all.insert(port, protocol).is_some() {
            return Err(format!("port {port} is there twice"));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(annotations: &[(&str, &str)]) -> (Annotations, Vec<String>) {
        let mut service = Service::default();
        let all = annotations.iter();
        let all = all.map(|(name, value)| (format!("{PREFIX}{name}"), (*value).to_owned()));
        service.metadata.annotations = Some(all.collect());
        let (parsed, problems) = Annotations::parse(&service);
        (parsed, problems.iter().map(Problem::to_string).collect())
    }

    #[test]
    fn every_annotation_of_the_table_is_known_and_rejects_nonsense() {
        for Row { name, .. } in TABLE {
            let (parsed, problems) = parse(&[(name, "")]);
            let accepts_empty = [
                "tags",
                "backend-labels",
                "domain-certificates",
                "protocol-ports",
            ];
            if accepts_empty.contains(name) {
                assert!(problems.is_empty(), "{name}: {problems:?}");
            } else {
                assert_eq!(problems.len(), 1, "{name}");
                assert!(!problems[0].contains("unknown"), "{}", problems[0]);
            }
            let default = Annotations {
                // A deletion cannot be undone.
                preserve_on_delete: *name == "preserve-on-delete",
                ..Annotations::default()
            };
            assert_eq!(parsed, default, "{name} is as if not set");
        }
        let (_, problems) = parse(&[("address-kind", "intranet")]);
        assert_eq!(
            problems,
            ["lb.reeve.dev/address-kind: unknown annotation; `ccm annotations` lists all"]
        );
    }

    #[test]
    fn values_are_read() {
        let (parsed, problems) = parse(&[
            ("address-type", "intranet"),
            ("traffic-charge", "paybybandwidth"),
            ("bandwidth", "50"),
            ("delete-protection", "off"),
            ("tags", "team=shop, tier=web"),
            ("protocol-ports", "https:443, http:80"),
            ("certificate", "cert-1"),
            ("health-check-interval", "7"),
            ("drain", "30"),
            ("subnet", "subnet-2, subnet-1,subnet-2"),
            ("state", "{}"),
        ]);
        assert_eq!(problems, [] as [String; 0]);
        assert_eq!(parsed.address_type, Some(AddressType::Intranet));
        assert_eq!(parsed.bandwidth, Some(50));
        assert_eq!(parsed.delete_protection, Some(false));
        assert_eq!(parsed.tags["tier"], "web");
        assert_eq!(parsed.protocol_ports[&443], Protocol::Https);
        assert_eq!(parsed.health_check_interval, Some(Duration::from_secs(7)));
        assert_eq!(parsed.drain, Some(Duration::from_secs(30)));
        assert_eq!(parsed.subnet.as_deref(), Some("subnet-1,subnet-2"));
    }

    #[test]
    fn mistakes_name_the_annotation_and_the_allowed_values() {
        for (name, value, message) in [
            (
                "address-type",
                "public",
                "\"public\" is none of internet, intranet",
            ),
            ("subnet", "a,,b", "\"a,,b\" has an empty id"),
            ("bandwidth", "0", "\"0\" is no number from 1 to 5000"),
            ("bandwidth", "5001", "\"5001\" is no number from 1 to 5000"),
            ("tags", "team", "\"team\" is not of the form key=value"),
            (
                "tags",
                "team=shop,reeve.dev/service-uid=u",
                "the controller alone sets tags such as \"reeve.dev/service-uid\"",
            ),
            (
                "protocol-ports",
                "443",
                "\"443\" is not of the form https:443",
            ),
            ("protocol-ports", "http:80,tcp:80", "port 80 is there twice"),
            (
                "protocol-ports",
                "https:443",
                "https needs the annotation certificate",
            ),
            (
                "traffic-charge",
                "paybybandwidth",
                "paybybandwidth needs the annotation bandwidth",
            ),
            (
                "health-check-path",
                "healthz",
                "\"healthz\" does not begin with /",
            ),
            ("drain", "5", "\"5\" is no number from 10 to 900"),
        ] {
            let (_, problems) = parse(&[(name, value)]);
            assert_eq!(problems, [format!("{PREFIX}{name}: {message}")]);
        }
    }
}
