//! The target of a connection, or the reason why there is none.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use serde_json::Value;

use crate::core::Core;
use crate::field::quote;
use crate::request::Request;
use crate::status::Status;
use crate::table::cells::{items, string};

/// The port of a kubelet whose node names none. (kube-apiserver: `--kubelet-port`.)
const KUBELET_PORT: i64 = 10_250;
/// Which address of a node counts. (kube-apiserver: `--kubelet-preferred-address-types`.)
const ADDRESS_TYPES: &[&str] = &[
    "Hostname",
    "InternalDNS",
    "InternalIP",
    "ExternalDNS",
    "ExternalIP",
];

/// The kubelet of the Pod's node, for a stream; `container` is the requested one. (kubernetes: `streamLocation`,
/// `PortForwardLocation`.)
///
/// # Errors
/// 404 for an absent Pod or node; 400 for a container that the Pod does not have, and for a Pod without a node; 500 for a
/// node without an address.
pub(super) fn of_stream(
    core: &Core,
    request: &Request,
    container: Option<&str>,
) -> Result<String, Status> {
    let name = &request.name;
    let pod = stored(core, request, "pods", &request.key().to_string(), name)?;
    if let Some(container) = container {
        check_container(&pod, name, container)?;
    }
    let node = string(&pod["spec"]["nodeName"]);
    if node.is_empty() {
        return Err(Status::bad_request(format!(
            "pod {name} does not have a host assigned"
        )));
    }
    let (host, port) = kubelet(core, request, node)?;
    Ok(joined(&host, &port))
}

/// The Pod, for a request of HTTP. (kubernetes: `pod.ResourceLocation`.)
///
/// # Errors
/// 404 for an absent Pod; 400 for a name that cannot be read, and for a Pod without an address.
pub(super) fn of_pod(core: &Core, request: &Request) -> Result<String, Status> {
    let named = Named::read("pod", &request.name)?;
    let pod = stored(core, request, "pods", &key(request, named.name), named.name)?;
    let address = string(&pod["status"]["podIPs"][0]["ip"]);
    let containers = items(&pod["spec"]["containers"]);
    let mut declared = containers
        .iter()
        .filter_map(|container| container["ports"][0]["containerPort"].as_i64());
    let declared = match named.port {
        "" => declared.next().map(|port| port.to_string()),
        port => Some(port.to_owned()),
    };
    if !is_global_unicast(address) {
        return Err(Status::bad_request("address not allowed"));
    }
    let port = declared.unwrap_or_else(|| named.default_port().to_owned());
    Ok(joined(address, &port))
}

/// A Pod behind the Service, for a request of HTTP. (kubernetes: `service/storage.ResourceLocation`.)
///
/// # Errors
/// 404 for an absent Service; 400 for a name that cannot be read; 503 for a port that the Service does not have, and
/// without a Pod that is ready.
pub(super) fn of_service(core: &Core, request: &Request) -> Result<String, Status> {
    let named = Named::read("service", &request.name)?;
    let key = key(request, named.name);
    let mut port = named.port;
    let service;
    if let Ok(number) = port.parse::<i64>() {
        service = stored(core, request, "services", &key, named.name)?;
        let mut ports = items(&service["spec"]["ports"]).iter();
        let found = ports.find(|one| one["port"] == number).ok_or_else(|| {
            unavailable(format!(
                "no service port {number} found for service {}",
                quote(named.name)
            ))
        })?;
        port = string(&found["name"]);
    }
    let endpoints = stored(core, request, "endpoints", &key, named.name)?;
    let subsets = items(&endpoints["subsets"]);
    let none = |name: &str| {
        unavailable(format!(
            "no endpoints available for service {}",
            quote(name)
        ))
    };
    if subsets.is_empty() {
        return Err(none(named.name));
    }
    for subset in subsets {
        let mut ports = items(&subset["ports"]).iter();
        let Some(number) = ports.find(|one| string(&one["name"]) == port) else {
            continue;
        };
        let mut addresses = items(&subset["addresses"]).iter();
        if let Some(address) = addresses.find(|address| is_of_pod(core, request, address)) {
            return Ok(joined(string(&address["ip"]), &number["port"].to_string()));
        }
    }
    Err(none(&request.name))
}

/// The node, for a request of HTTP. (kubernetes: `node.ResourceLocation`.)
///
/// # Errors
/// 404 for an absent node; 400 for a name that cannot be read, and for an address that is not a global one; 500 for a
/// node without an address.
pub(super) fn of_node(core: &Core, request: &Request) -> Result<String, Status> {
    let named = Named::read("node", &request.name)?;
    let (host, port) = kubelet(core, request, named.name)?;
    if host.parse::<IpAddr>().is_err() {
        return Err(Status::bad_request(format!("lookup {host}: no such host")));
    }
    if !is_global_unicast(&host) {
        return Err(Status::bad_request("address not allowed"));
    }
    let port = if named.port.is_empty() {
        &port
    } else {
        named.port
    };
    Ok(joined(&host, port))
}

/// `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`. (apimachinery: `SplitSchemeNamePort`.)
#[derive(Debug, PartialEq, Eq)]
struct Named<'a> {
    scheme: &'a str,
    name: &'a str,
    port: &'a str,
}

// === impl Named ===

impl<'a> Named<'a> {
    fn read(what: &str, text: &'a str) -> Result<Self, Status> {
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match parts[..] {
            [name] => ("", name, ""),
            [name, port] => ("", name, port),
            [scheme, name, port] => (scheme, name, port),
            _ => ("", "", ""),
        };
        if name.is_empty() || !matches!(scheme, "" | "http" | "https") {
            let text = quote(text);
            return Err(Status::bad_request(format!(
                "invalid {what} request {text}"
            )));
        }
        Ok(Self { scheme, name, port })
    }

    fn default_port(&self) -> &'static str {
        if self.scheme == "https" { "443" } else { "80" }
    }
}

fn key(request: &Request, name: &str) -> String {
    let namespace = &request.namespace;
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}

/// Whichever object is absent, a real server names it as one of the resource of the request.
fn stored(
    core: &Core,
    request: &Request,
    storage: &str,
    key: &str,
    name: &str,
) -> Result<Value, Status> {
    let found = core.store.get(storage, key);
    let found = found.ok_or_else(|| Status::not_found(request.resource(), name))?;
    Ok(found.to_value())
}

/// (kubernetes: `validateContainer`.)
fn check_container(pod: &Value, name: &str, container: &str) -> Result<(), Status> {
    let spec = &pod["spec"];
    let all = ["initContainers", "containers", "ephemeralContainers"];
    let names = all.iter().flat_map(|field| items(&spec[*field]));
    let names: Vec<&str> = names.map(|one| string(&one["name"])).collect();
    let missing = format!("a container name must be specified for pod {name}");
    let why = match (container, items(&spec["containers"]).len()) {
        ("", 0) => missing,
        ("", 1) => return Ok(()),
        ("", _) => format!("{missing}, choose one of: [{}]", names.join(" ")),
        (container, _) if names.contains(&container) => return Ok(()),
        (container, _) => format!("container {container} is not valid for pod {name}"),
    };
    Err(Status::bad_request(why))
}

/// Host and port of the kubelet of a node. (kubernetes: `NodeConnectionInfoGetter.GetConnectionInfo`.)
fn kubelet(core: &Core, request: &Request, name: &str) -> Result<(String, String), Status> {
    let node = stored(core, request, "nodes", name, name)?;
    let addresses = items(&node["status"]["addresses"]);
    let preferred = ADDRESS_TYPES
        .iter()
        .find_map(|kind| addresses.iter().find(|address| address["type"] == **kind));
    let Some(address) = preferred else {
        let shown: Vec<String> = addresses
            .iter()
            .map(|one| format!("{{{} {}}}", string(&one["type"]), string(&one["address"])))
            .collect();
        return Err(Status::internal_text(format!(
            "no preferred addresses found; known addresses: [{}]",
            shown.join(" ")
        )));
    };
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_i64();
    let port = port.filter(|port| *port > 0).unwrap_or(KUBELET_PORT);
    Ok((string(&address["address"]).to_owned(), port.to_string()))
}

/// Whether an address of an Endpoints object is that of its Pod. (kubernetes: `isValidAddress`.)
fn is_of_pod(core: &Core, request: &Request, address: &Value) -> bool {
    let target = &address["targetRef"];
    if string(&target["namespace"]) != request.namespace {
        return false;
    }
    let name = string(&target["name"]);
    let pod = stored(core, request, "pods", &key(request, name), name);
    pod.is_ok_and(|pod| {
        let addresses = items(&pod["status"]["podIPs"]).iter();
        addresses.into_iter().any(|one| one["ip"] == address["ip"])
    })
}

/// (Go: `IP.IsGlobalUnicast`.)
fn is_global_unicast(address: &str) -> bool {
    let link_local = |address: Ipv6Addr| address.segments()[0] & 0xffc0 == 0xfe80;
    match address.parse() {
        Ok(IpAddr::V4(address)) => {
            !(address.is_unspecified()
                || address.is_loopback()
                || address.is_multicast()
                || address.is_link_local()
                || address.is_broadcast())
        }
        Ok(IpAddr::V6(address)) => {
            !(address.is_unspecified()
                || address.is_loopback()
                || address.is_multicast()
                || link_local(address))
        }
        Err(_) => false,
    }
}

/// `host:port`, with brackets around an IPv6 address.
fn joined(host: &str, port: &str) -> String {
    match (host.parse::<Ipv6Addr>(), port.parse()) {
        (Ok(address), Ok(port)) => SocketAddr::new(address.into(), port).to_string(),
        _ => format!("{host}:{port}"),
    }
}

pub(super) fn unavailable(why: String) -> Status {
    Status::new(503, "ServiceUnavailable", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_a_name_and_may_have_a_port_and_a_scheme() {
        let read = |text| {
            let named = Named::read("pod", text);
            named.map(|named| (named.scheme, named.name, named.port))
        };
        assert_eq!(read("a").unwrap(), ("", "a", ""));
        assert_eq!(read("a:80").unwrap(), ("", "a", "80"));
        assert_eq!(read("https:a:web").unwrap(), ("https", "a", "web"));
        for text in [":80", "ftp:a:80", "a:b:c:d", "http::80"] {
            let refused = read(text).unwrap_err();
            let why = format!("invalid pod request \"{text}\"");
            assert_eq!(
                (refused.code, refused.message.as_str()),
                (400, why.as_str())
            );
        }
    }

    #[test]
    fn only_global_addresses_are_targets() {
        for address in [
            "10.0.0.1",
            "192.168.1.1",
            "8.8.8.8",
            "fd00::1",
            "2001:db8::1",
        ] {
            assert!(is_global_unicast(address), "{address}");
        }
        let others = [
            "",
            "x",
            "0.0.0.0",
            "127.0.0.1",
            "169.254.1.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
        ];
        for address in others {
            assert!(!is_global_unicast(address), "{address}");
        }
    }

    #[test]
    fn an_ipv6_address_has_brackets_before_its_port() {
        assert_eq!(joined("fd00::1", "80"), "[fd00::1]:80");
        assert_eq!(joined("10.0.0.1", "80"), "10.0.0.1:80");
    }
}
