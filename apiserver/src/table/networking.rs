//! The columns of Services, Ingresses and related kinds.

use serde_json::Value;

use super::cells::{
    NONE, aged, first_three, items, joined, labels, or_none, plain, string, text, wide,
};
use super::{Now, count};
use crate::resource::Column;

pub(crate) fn services() -> Vec<Column> {
    vec![
        text("Type", |value, _| plain(&value["spec"]["type"])),
        text("Cluster-IP", |value, _| {
            let spec = &value["spec"];
            match string(&spec["clusterIPs"][0]) {
                "" => or_none(&spec["clusterIP"]),
                address => address.into(),
            }
        }),
        text("External-IP", external_address),
        text("Port(s)", |value, _| {
            let ports: Vec<String> = items(&value["spec"]["ports"])
                .iter()
                .map(|port| {
                    let protocol = port["protocol"].as_str().unwrap_or("TCP");
                    match count(&port["nodePort"]) {
                        0 => format!("{}/{protocol}", count(&port["port"])),
                        node => format!("{}:{node}/{protocol}", count(&port["port"])),
                    }
                })
                .collect();
            if ports.is_empty() {
                NONE.into()
            } else {
                ports.join(",").into()
            }
        }),
        aged(),
        wide("Selector", |value, _| labels(&value["spec"]["selector"])),
    ]
}

fn external_address(value: &Value, _: &Now) -> Value {
    let spec = &value["spec"];
    if spec["type"] == "ExternalName" {
        return plain(&spec["externalName"]);
    }
    let fixed = items(&spec["externalIPs"]).iter().map(string);
    if spec["type"] == "LoadBalancer" {
        let given = load_balancer(value);
        let all = joined(given.iter().map(String::as_str).chain(fixed));
        return if all.is_empty() {
            "<pending>".into()
        } else {
            all.into()
        };
    }
    let all = joined(fixed);
    if all.is_empty() {
        NONE.into()
    } else {
        all.into()
    }
}

/// Addresses or host names of `status.loadBalancer`, sorted and once.
fn load_balancer(value: &Value) -> Vec<String> {
    let mut given: Vec<String> = items(&value["status"]["loadBalancer"]["ingress"])
        .iter()
        .map(|ingress| match string(&ingress["ip"]) {
            "" => string(&ingress["hostname"]).to_owned(),
            address => address.to_owned(),
        })
        .filter(|address| !address.is_empty())
        .collect();
    given.sort();
    given.dedup();
    given
}

pub(crate) fn ingresses() -> Vec<Column> {
    vec![
        text("Class", |value, _| {
            match string(&value["spec"]["ingressClassName"]) {
                "" => or_none(&value["metadata"]["annotations"]["kubernetes.io/ingress.class"]),
                class => class.into(),
            }
        }),
        text("Hosts", |value, _| {
            let rules = items(&value["spec"]["rules"]);
            let hosts: Vec<&str> = rules
                .iter()
                .map(|rule| string(&rule["host"]))
                .filter(|host| !host.is_empty())
                .collect();
            match hosts.len() {
                0 => "*".into(),
                1..=3 => hosts.join(",").into(),
                more => format!("{} + {} more...", hosts[..3].join(","), more - 3).into(),
            }
        }),
        text("Address", |value, _| load_balancer(value).join(",").into()),
        text("Ports", |value, _| {
            if items(&value["spec"]["tls"]).is_empty() {
                "80".into()
            } else {
                "80, 443".into()
            }
        }),
        aged(),
    ]
}

pub(crate) fn parameters(value: &Value, _: &Now) -> Value {
    let parameters = &value["spec"]["parameters"];
    if parameters.is_null() {
        return NONE.into();
    }
    let kind = string(&parameters["kind"]);
    let name = string(&parameters["name"]);
    match string(&parameters["apiGroup"]) {
        "" => format!("{kind}/{name}").into(),
        group => format!("{kind}.{group}/{name}").into(),
    }
}

pub(crate) fn endpoints(value: &Value, _: &Now) -> Value {
    let mut all = Vec::new();
    for subset in items(&value["subsets"]) {
        let ports = items(&subset["ports"]);
        for address in items(&subset["addresses"]) {
            let ip = string(&address["ip"]);
            if ports.is_empty() {
                all.push(ip.to_owned());
            }
            for port in ports {
                let port = count(&port["port"]);
                all.push(if ip.contains(':') {
                    format!("[{ip}]:{port}")
                } else {
                    format!("{ip}:{port}")
                });
            }
        }
    }
    first_three(&all)
}
