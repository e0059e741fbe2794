//! Ingresses, IngressClasses, NetworkPolicies, ServiceCIDRs and IPAddresses.

use k8s_openapi::api::networking::v1;
use serde_json::{Value, json};

use super::entry::Entry;
use super::strategy::{ALL_BUT_STATUS, Context, Paths, Strategy};
use super::{address_rules, ingress_rules, network_rules};
use crate::field::Errors;
use crate::meta;
use crate::resource::{Column, Generation, ResourceInfo};
use crate::table::cells::{age, aged, items, joined, plain, selector, string, text};
use crate::table::networking::{ingresses, parameters};

const GROUP: &str = "networking.k8s.io";

/// The kinds of this file.
pub(super) const KINDS: &[Entry] = &[
    Entry::of::<v1::IngressClass>(GROUP, "ingressclasses", &IngressClasses),
    Entry::of::<v1::Ingress>(GROUP, "ingresses", &Ingresses),
    Entry::of::<v1::IPAddress>(GROUP, "ipaddresses", &IpAddresses),
    Entry::of::<v1::NetworkPolicy>(GROUP, "networkpolicies", &NetworkPolicies),
    Entry::of::<v1::ServiceCIDR>(GROUP, "servicecidrs", &ServiceCidrs),
];

/// Ingresses.
#[derive(Debug)]
pub(super) struct Ingresses;

/// IngressClasses.
#[derive(Debug)]
pub(super) struct IngressClasses;

/// NetworkPolicies.
#[derive(Debug)]
pub(super) struct NetworkPolicies;

/// ServiceCIDRs.
#[derive(Debug)]
pub(super) struct ServiceCidrs;

/// IPAddresses.
#[derive(Debug)]
pub(super) struct IpAddresses;

// === impl Ingresses ===

impl Strategy for Ingresses {
    fn describe(&self, info: &mut ResourceInfo) {
        info.generation = Generation::Spec;
    }

    fn columns(&self) -> Vec<Column> {
        ingresses()
    }

    fn checks_spec(&self) -> bool {
        true
    }

    fn validate(&self, _: &Context<'_>, ingress: &Value, _: Option<&Value>, errors: &mut Errors) {
        ingress_rules::validate(ingress, errors);
    }
}

// === impl IngressClasses ===

impl Strategy for IngressClasses {
    fn describe(&self, info: &mut ResourceInfo) {
        info.generation = Generation::Spec;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("Controller", |value, _| plain(&value["spec"]["controller"])),
            text("Parameters", parameters),
            aged(),
        ]
    }

    fn default(&self, _: &ResourceInfo, class: &mut Value) {
        if let Some(parameters) = class.pointer_mut("/spec/parameters")
            && parameters.is_object()
        {
            let parameters = meta::object_mut(parameters);
            parameters
                .entry("scope")
                .or_insert_with(|| "Cluster".into());
        }
    }

    fn validate(&self, _: &Context<'_>, class: &Value, old: Option<&Value>, errors: &mut Errors) {
        network_rules::ingress_class(class, old, errors);
    }
}

// === impl NetworkPolicies ===

impl Strategy for NetworkPolicies {
    fn describe(&self, info: &mut ResourceInfo) {
        info.generation = Generation::Spec;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("Pod-Selector", |value, _| {
                selector(&value["spec"]["podSelector"])
            }),
            aged(),
        ]
    }

    fn default(&self, _: &ResourceInfo, policy: &mut Value) {
        let spec = meta::map_at(meta::object_mut(policy), "spec");
        for direction in ["ingress", "egress"] {
            let rules = spec.get_mut(direction).and_then(Value::as_array_mut);
            for rule in rules.into_iter().flatten() {
                let ports = rule.get_mut("ports").and_then(Value::as_array_mut);
                for port in ports.into_iter().flatten() {
                    let port = meta::object_mut(port);
                    port.entry("protocol").or_insert_with(|| "TCP".into());
                }
            }
        }
        if items(spec.get("policyTypes").unwrap_or(&Value::Null)).is_empty() {
            let egress = items(spec.get("egress").unwrap_or(&Value::Null));
            let types = if egress.is_empty() {
                json!(["Ingress"])
            } else {
                json!(["Ingress", "Egress"])
            };
            spec.insert("policyTypes".to_owned(), types);
        }
    }

    fn validate(&self, _: &Context<'_>, policy: &Value, old: Option<&Value>, errors: &mut Errors) {
        network_rules::policy(policy, old, errors);
    }
}

// === impl ServiceCidrs ===

impl Strategy for ServiceCidrs {
    fn columns(&self) -> Vec<Column> {
        vec![
            text("CIDRs", |value, _| {
                joined(items(&value["spec"]["cidrs"]).iter().map(string)).into()
            }),
            aged(),
        ]
    }

    fn reset_fields(&self, subresource: &str) -> Option<Paths> {
        (subresource == "status").then_some(ALL_BUT_STATUS)
    }

    fn validate(&self, _: &Context<'_>, object: &Value, old: Option<&Value>, errors: &mut Errors) {
        address_rules::networks(object, old, errors);
    }
}

// === impl IpAddresses ===

impl Strategy for IpAddresses {
    fn columns(&self) -> Vec<Column> {
        let parent = text("ParentRef", |value, _| {
            let parent = &value["spec"]["parentRef"];
            if parent.is_null() {
                return "<none>".into();
            }
            let mut shown = string(&parent["resource"]).to_lowercase();
            for (separator, field) in [(".", "group"), ("/", "namespace"), ("/", "name")] {
                if !string(&parent[field]).is_empty() {
                    shown.push_str(separator);
                    shown.push_str(string(&parent[field]));
                }
            }
            shown.into()
        });
        vec![parent, text("", age)]
    }

    fn name_problems(&self, name: &str) -> Vec<String> {
        let canonical = name.parse::<std::net::IpAddr>().map(|ip| ip.to_string());
        if canonical.as_deref() == Ok(name) {
            return Vec::new();
        }
        // (kubernetes: `ValidateIPAddressName`.)
        vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()]
    }

    fn validate(&self, _: &Context<'_>, address: &Value, old: Option<&Value>, errors: &mut Errors) {
        address_rules::address(address, old, errors);
    }
}
