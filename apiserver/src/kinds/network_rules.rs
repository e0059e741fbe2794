//! The checks of NetworkPolicies and IngressClasses.

use std::net::IpAddr;

use serde_json::Value;

use super::check::port;
use super::immutable;
use super::selectors;
use crate::field::{Errors, FieldError, Path};
use crate::names;
use crate::table::cells::{items, string};

const PROTOCOLS: &[&str] = &["TCP", "UDP", "SCTP"];
const DIRECTIONS: &[&str] = &["Ingress", "Egress"];
const SCOPES: &[&str] = &["Cluster", "Namespace"];
/// The longest name of a controller of Ingresses.
const LONGEST_CONTROLLER: usize = 250;

/// Checks a NetworkPolicy. Networks that the `old` one has too may be in any form.
pub(super) fn policy(policy: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (&policy["spec"], Path::new("spec"));
    let known = networks(old);
    selectors::validate(&spec["podSelector"], &path.child("podSelector"), errors);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let path = path.child(direction);
        for (at, rule) in items(&spec[direction]).iter().enumerate() {
            let path = path.index(at);
            for (at, port) in items(&rule["ports"]).iter().enumerate() {
                policy_port(port, &path.child("ports").index(at), errors);
            }
            for (at, one) in items(&rule[peers]).iter().enumerate() {
                peer(one, &known, &path.child(peers).index(at), errors);
            }
        }
    }
    let (types, path) = (items(&spec["policyTypes"]), path.child("policyTypes"));
    if types.len() > DIRECTIONS.len() {
        errors.push(FieldError::invalid(
            &path,
            spec["policyTypes"].clone(),
            "may not specify more than two policyTypes",
        ));
        return;
    }
    for (at, direction) in types.iter().enumerate() {
        if !DIRECTIONS.contains(&string(direction)) {
            errors.push(FieldError::not_supported(
                &path.index(at),
                direction.clone(),
                DIRECTIONS,
            ));
        }
    }
}

/// The networks that a policy names.
fn networks(policy: Option<&Value>) -> Vec<&str> {
    let spec = policy.map_or(&Value::Null, |policy| &policy["spec"]);
    let ingress = items(&spec["ingress"])
        .iter()
        .flat_map(|rule| items(&rule["from"]));
    let egress = items(&spec["egress"])
        .iter()
        .flat_map(|rule| items(&rule["to"]));
    ingress
        .chain(egress)
        .map(|peer| &peer["ipBlock"])
        .flat_map(|block| std::iter::once(&block["cidr"]).chain(items(&block["except"])))
        .map(string)
        .collect()
}

fn policy_port(one: &Value, path: &Path, errors: &mut Errors) {
    if !one["protocol"].is_null() && !PROTOCOLS.contains(&string(&one["protocol"])) {
        errors.push(FieldError::not_supported(
            &path.child("protocol"),
            one["protocol"].clone(),
            PROTOCOLS,
        ));
    }
    if !one["port"].is_null() {
        port(&one["port"], &path.child("port"), errors);
    }
    let Some(last) = one["endPort"].as_i64() else {
        return;
    };
    let path = path.child("endPort");
    match &one["port"] {
        Value::Number(first) => {
            if first.as_i64().is_some_and(|first| last < first) {
                let text = "must be greater than or equal to `port`";
                errors.push(FieldError::invalid(&path, one["port"].clone(), text));
            }
            port(&one["endPort"], &path, errors);
        }
        Value::Null => errors.push(FieldError::invalid(
            &path,
            last,
            "may not be specified when `port` is not specified",
        )),
        _ => errors.push(FieldError::invalid(
            &path,
            last,
            "may not be specified when `port` is non-numeric",
        )),
    }
}

fn peer(peer: &Value, known: &[&str], path: &Path, errors: &mut Errors) {
    let mut named = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if !peer[field].is_null() {
            named += 1;
            selectors::validate(&peer[field], &path.child(field), errors);
        }
    }
    let block = &peer["ipBlock"];
    if !block.is_null() {
        ip_block(block, known, &path.child("ipBlock"), errors);
        if named > 0 {
            errors.push(FieldError::forbidden(
                path,
                "may not specify both ipBlock and another peer",
            ));
        }
    } else if named == 0 {
        errors.push(FieldError::required(path, "must specify a peer"));
    }
}

fn ip_block(block: &Value, known: &[&str], path: &Path, errors: &mut Errors) {
    let cidr = string(&block["cidr"]);
    if cidr.is_empty() {
        errors.push(FieldError::required(&path.child("cidr"), ""));
        return;
    }
    let Some(whole) = network(cidr, known, &path.child("cidr"), errors) else {
        return;
    };
    for (at, except) in items(&block["except"]).iter().enumerate() {
        let (path, text) = (path.child("except").index(at), string(except));
        let Some(part) = network(text, known, &path, errors) else {
            continue;
        };
        if !whole.contains(part) {
            errors.push(FieldError::invalid(
                &path,
                text,
                "must be a strict subset of `cidr`",
            ));
        }
    }
}

/// Refuses a text that is not a network, unless it is one of `known`.
pub(super) fn network(
    text: &str,
    known: &[&str],
    path: &Path,
    errors: &mut Errors,
) -> Option<Network> {
    let network = Network::parse(text);
    if network.is_none() && !known.contains(&text) {
        errors.push(FieldError::invalid(
            path,
            text,
            "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        ));
    }
    network
}

/// The first bits that the addresses of a network have in common.
#[derive(Clone, Copy)]
pub(super) struct Network {
    pub(super) address: IpAddr,
    bits: u32,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let digits = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits: u32 = bits.parse().ok().filter(|_| digits)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        (bits <= most).then_some(Self { address, bits })
    }

    /// Whether `other` is a smaller part.
    fn contains(self, other: Self) -> bool {
        let same = match (self.address, other.address) {
            (IpAddr::V4(mine), IpAddr::V4(theirs)) => {
                let differing = mine.to_bits() ^ theirs.to_bits();
                differing.leading_zeros() >= self.bits
            }
            (IpAddr::V6(mine), IpAddr::V6(theirs)) => {
                let differing = mine.to_bits() ^ theirs.to_bits();
                differing.leading_zeros() >= self.bits
            }
            _ => false,
        };
        same && self.bits < other.bits
    }
}

/// Checks an IngressClass.
pub(super) fn ingress_class(class: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (&class["spec"], Path::new("spec"));
    let at = path.child("controller");
    if let Some(old) = old {
        immutable::field(&spec["controller"], &old["spec"]["controller"], &at, errors);
    }
    let controller = string(&spec["controller"]);
    if controller.len() > LONGEST_CONTROLLER {
        errors.push(FieldError::too_long(&at, 250));
    }
    domain_prefixed_path(controller, &at, errors);
    if !spec["parameters"].is_null() {
        parameters(&spec["parameters"], &path.child("parameters"), errors);
    }
}

/// Checks a name such as `example.com/controller`.
/// Refuses a name that is not a domain and a path.
pub(super) fn domain_prefixed_path(name: &str, path: &Path, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let Some((domain, rest)) = name
        .split_once('/')
        .filter(|(domain, rest)| !domain.is_empty() && !rest.is_empty())
    else {
        errors.push(FieldError::invalid(
            path,
            name,
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        ));
        return;
    };
    for problem in names::dns_subdomain(domain) {
        errors.push(FieldError::invalid(path, domain, problem));
    }
    let is_allowed =
        |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !rest.bytes().all(is_allowed) {
        errors.push(FieldError::invalid(
            path,
            rest,
            names::format_error("Invalid path", "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+", &[]),
        ));
    }
}

fn parameters(reference: &Value, path: &Path, errors: &mut Errors) {
    if !reference["apiGroup"].is_null() {
        let group = string(&reference["apiGroup"]);
        for problem in names::dns_subdomain(group) {
            errors.push(FieldError::invalid(&path.child("apiGroup"), group, problem));
        }
    }
    for field in ["kind", "name"] {
        let (text, path) = (string(&reference[field]), path.child(field));
        if text.is_empty() {
            errors.push(FieldError::required(&path, ""));
        }
        for problem in names::path_segment(text) {
            errors.push(FieldError::invalid(&path, text, problem));
        }
    }
    let (scope, namespace) = (string(&reference["scope"]), &reference["namespace"]);
    let of_namespace = path.child("namespace");
    match scope {
        "Namespace" if namespace.is_null() => errors.push(FieldError::required(
            &of_namespace,
            "`parameters.scope` is set to 'Namespace'",
        )),
        "Namespace" => {
            let name = string(namespace);
            for problem in names::dns_label(name) {
                errors.push(FieldError::invalid(&of_namespace, name, problem));
            }
        }
        "Cluster" if !namespace.is_null() => errors.push(FieldError::forbidden(
            &of_namespace,
            "`parameters.scope` is set to 'Cluster'",
        )),
        "Cluster" => {}
        _ => errors.push(FieldError::not_supported(
            &path.child("scope"),
            scope,
            SCOPES,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_its_strict_parts() {
        let contains = |whole: &str, part: &str| {
            let network = |text| Network::parse(text).expect("a network");
            network(whole).contains(network(part))
        };
        assert!(contains("10.0.0.0/8", "10.1.0.0/16"));
        assert!(contains("0.0.0.0/0", "10.1.0.0/16"));
        assert!(contains("2001:db8::/32", "2001:db8:1::/48"));
        assert!(!contains("10.0.0.0/8", "10.0.0.0/8"));
        assert!(!contains("10.0.0.0/8", "11.0.0.0/16"));
        assert!(!contains("0.0.0.0/0", "2001:db8::/48"));
        for text in ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.0/", "a/8"] {
            assert!(Network::parse(text).is_none(), "{text}");
        }
    }
}
