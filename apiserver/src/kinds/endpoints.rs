//! Endpoints and EndpointSlices.

use std::net::IpAddr;

use serde_json::Value;

use super::pod_spec::{one_of, port_number};
use super::pods::put;
use super::required;
use super::strategy::{Context, Strategy};
use crate::field::{Errors, FieldError, Path};
use crate::meta;
use crate::names;
use crate::resource::{Column, Generation, ResourceInfo};
use crate::table::cells::{aged, first_three, items, plain, string, text};
use crate::table::networking::endpoints;

const LINK_LOCAL: &str = "may not be in the link-local range (169.254.0.0/16, fe80::/10)";
const LINK_MULTICAST: &str =
    "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";

/// Endpoints.
#[derive(Debug)]
pub(super) struct Endpoints;

/// EndpointSlices.
#[derive(Debug)]
pub(super) struct EndpointSlices;

// === impl Endpoints ===

impl Strategy for Endpoints {
    fn describe(&self, info: &mut ResourceInfo) {
        info.create_on_update = true;
    }

    fn columns(&self) -> Vec<Column> {
        vec![text("Endpoints", endpoints), aged()]
    }

    fn default(&self, _: &ResourceInfo, object: &mut Value) {
        let subsets = object.get_mut("subsets").and_then(Value::as_array_mut);
        for subset in subsets.into_iter().flatten() {
            let ports = subset.get_mut("ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten() {
                put(meta::object_mut(port), "protocol", "TCP");
            }
        }
    }

    fn validate(&self, _: &Context<'_>, object: &Value, old: Option<&Value>, errors: &mut Errors) {
        if old.is_some_and(|old| old["subsets"] == object["subsets"]) {
            return;
        }
        for (at, subset) in items(&object["subsets"]).iter().enumerate() {
            let path = Path::new("subsets").index(at);
            let (ready, others) = (
                items(&subset["addresses"]),
                items(&subset["notReadyAddresses"]),
            );
            if ready.is_empty() && others.is_empty() {
                let text = "must specify `addresses` or `notReadyAddresses`";
                errors.push(FieldError::required(&path, text));
            }
            for (field, addresses) in [("addresses", ready), ("notReadyAddresses", others)] {
                for (at, one) in addresses.iter().enumerate() {
                    address(one, &path.child(field).index(at), errors);
                }
            }
            let ports = items(&subset["ports"]);
            for (at, one) in ports.iter().enumerate() {
                let path = path.child("ports").index(at);
                port(one, ports.len() > 1, &path, errors);
            }
        }
    }
}

fn address(address: &Value, path: &Path, errors: &mut Errors) {
    let (text, at) = (string(&address["ip"]), path.child("ip"));
    let ip: Option<IpAddr> = text.parse().ok();
    if ip.is_none() {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.push(FieldError::invalid(&at, text, detail));
    }
    let hostname = string(&address["hostname"]);
    if !hostname.is_empty() {
        refuse(hostname, names::dns_label, &path.child("hostname"), errors);
    }
    if let Some(node) = address["nodeName"].as_str() {
        refuse(node, names::dns_subdomain, &path.child("nodeName"), errors);
    }
    let problem = match ip {
        None => "must be a valid IP address".to_owned(),
        Some(ip) if ip.is_unspecified() => format!("may not be unspecified ({text})"),
        Some(ip) if ip.is_loopback() => {
            "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()
        }
        Some(IpAddr::V4(ip)) if ip.is_link_local() => LINK_LOCAL.to_owned(),
        Some(IpAddr::V6(ip)) if ip.is_unicast_link_local() => LINK_LOCAL.to_owned(),
        Some(IpAddr::V4(ip)) if ip.octets()[..3] == [224, 0, 0] => LINK_MULTICAST.to_owned(),
        Some(IpAddr::V6(ip)) if ip.segments()[0] & 0xff0f == 0xff02 => LINK_MULTICAST.to_owned(),
        Some(_) => return,
    };
    errors.push(FieldError::invalid(&at, text, problem));
}

fn port(port: &Value, needs_name: bool, path: &Path, errors: &mut Errors) {
    let name = string(&port["name"]);
    if !name.is_empty() {
        refuse(name, names::dns_label, &path.child("name"), errors);
    } else if needs_name {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
    let number = port["port"].as_i64().unwrap_or(0);
    port_number(number, &path.child("port"), errors);
    one_of(
        &port["protocol"],
        &path.child("protocol"),
        &["SCTP", "TCP", "UDP"],
        errors,
    );
    if let Some(protocol) = port["appProtocol"].as_str() {
        let path = path.child("appProtocol");
        refuse(protocol, names::qualified_name, &path, errors);
    }
}

fn refuse(text: &str, rule: fn(&str) -> Vec<String>, path: &Path, errors: &mut Errors) {
    for problem in rule(text) {
        errors.push(FieldError::invalid(path, text, problem));
    }
}

// === impl EndpointSlices ===

impl Strategy for EndpointSlices {
    fn describe(&self, info: &mut ResourceInfo) {
        info.generation = Generation::OutsideMetadata;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("AddressType", |value, _| plain(&value["addressType"])),
            text("Ports", |value, _| {
                let ports = items(&value["ports"]).iter();
                let ports = ports.map(|port| match port["port"].as_i64() {
                    Some(number) => number.to_string(),
                    None => port["name"].as_str().unwrap_or("*").to_owned(),
                });
                first_three(&some(ports.collect()))
            }),
            text("Endpoints", |value, _| {
                let all = items(&value["endpoints"]).iter();
                let all = all.flat_map(|one| items(&one["addresses"]));
                first_three(&some(
                    all.map(|address| string(address).to_owned()).collect(),
                ))
            }),
            aged(),
        ]
    }

    fn default(&self, _: &ResourceInfo, slice: &mut Value) {
        let ports = slice.get_mut("ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten() {
            let port = meta::object_mut(port);
            port.entry("name").or_insert_with(|| "".into());
            port.entry("protocol").or_insert_with(|| "TCP".into());
        }
    }

    fn validate(
        &self,
        context: &Context<'_>,
        slice: &Value,
        old: Option<&Value>,
        errors: &mut Errors,
    ) {
        required::validate(context.info, slice, errors);
        if old.is_some_and(|old| old["addressType"] != slice["addressType"]) {
            errors.push(FieldError::invalid(
                &Path::new("addressType"),
                slice["addressType"].clone(),
                "field is immutable",
            ));
        }
    }
}

/// An empty list is shown as `<unset>`.
fn some(all: Vec<String>) -> Vec<String> {
    if all.is_empty() {
        vec!["<unset>".to_owned()]
    } else {
        all
    }
}
