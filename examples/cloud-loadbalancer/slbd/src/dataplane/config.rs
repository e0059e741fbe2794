//! The configuration of HAProxy for a state.

use std::fmt::Write;
use std::path::Path;

use crate::cloud::{Backend, Balancer, Listener, Protocol, State};
use crate::signature::sha256_hex;

/// The time after which an old process cuts its connections.
const HARD_STOP: &str = "30s";

/// The configuration. `folder` has the stats socket.
#[must_use]
pub fn render(state: &State, folder: &Path) -> String {
    let socket = folder.join("haproxy.sock");
    let mut text = format!(
        "global\n    stats socket {} mode 600 level admin expose-fd listeners\n    \
         hard-stop-after {HARD_STOP}\n    maxconn 2000\n\
         defaults\n    timeout connect 2s\n    timeout client 900s\n    timeout server 900s\n    \
         timeout http-request 60s\n    retries 3\n    option redispatch 1\n",
        socket.display()
    );
    for (balancer, listener) in state.listeners() {
        if balancer.active && listener.running && listener.protocol != Protocol::Udp {
            proxy(&mut text, state, balancer, listener);
        }
    }
    text
}

fn proxy(text: &mut String, state: &State, balancer: &Balancer, listener: &Listener) {
    let setting = |name: &str| listener.settings.get(name).map(String::as_str);
    let number = |name: &str| setting(name).and_then(|text| text.parse::<u32>().ok());
    let http = listener.protocol == Protocol::Http;
    let name = format!("{}-{}", balancer.id, listener.port);
    let mode = if http { "http" } else { "tcp" };
    let _ = writeln!(text, "frontend {name}");
    let _ = writeln!(text, "    bind {}:{}", balancer.address, listener.port);
    let _ = writeln!(text, "    mode {mode}");
    if let Some((white, networks)) = state.access_of(listener) {
        // An empty list of allowed networks allows none, and an empty list of refused ones refuses none.
        let networks = if networks.is_empty() {
            "255.255.255.255/32".to_owned()
        } else {
            networks.join(" ")
        };
        let unless = if white { "!" } else { "" };
        let _ = writeln!(text, "    acl listed src {networks}");
        let _ = writeln!(text, "    tcp-request connection reject if {unless}listed");
    }
    if http {
        if setting("XForwardedFor") == Some("on") {
            let _ = writeln!(text, "    option forwardfor");
        }
        if let Some(seconds) = number("IdleTimeout") {
            let _ = writeln!(text, "    timeout http-keep-alive {seconds}s");
        }
    }
    let _ = writeln!(text, "    default_backend {name}");
    let _ = writeln!(text, "backend {name}\n    mode {mode}");
    let balance = match setting("Scheduler") {
        Some("wlc") => "leastconn",
        Some("sch") => "source",
        _ => "roundrobin",
    };
    let _ = writeln!(text, "    balance {balance}");
    let mut cookies = false;
    if http {
        if let Some(seconds) = number("RequestTimeout") {
            let _ = writeln!(text, "    timeout server {seconds}s");
        }
        if setting("StickySession") == Some("on") {
            cookies = true;
            let how = match (setting("StickySessionType"), setting("Cookie")) {
                (Some("server"), Some(cookie)) => format!("{} rewrite", cookie_name(cookie)),
                _ => "SERVERID insert indirect nocache".to_owned(),
            };
            let _ = writeln!(text, "    cookie {how}");
        }
    } else {
        match number("PersistenceTimeout") {
            None | Some(0) => {}
            Some(seconds) => {
                let _ = writeln!(text, "    stick-table type ip size 100k expire {seconds}s");
                let _ = writeln!(text, "    stick on src");
            }
        }
        if let Some(seconds) = number("EstablishedTimeout") {
            let _ = writeln!(text, "    timeout server {seconds}s");
        }
    }
    let check = check(text, listener);
    let group = listener.group.as_ref().and_then(|id| state.groups.get(id));
    let backends = group.map_or(&balancer.backends, |group| &group.backends);
    for backend in backends {
        let port = match backend.port {
            0 => listener.backend_port.unwrap_or_default(),
            port => port,
        };
        let name = server_name(backend);
        let address = backend.address;
        let weight = backend.weight;
        let _ = write!(
            text,
            "    server {name} {address}:{port} weight {weight}{check}"
        );
        if cookies {
            let _ = write!(text, " cookie {name}");
        }
        if setting("ProxyProtocolV2Enabled") == Some("true") {
            text.push_str(" send-proxy-v2");
        }
        text.push('\n');
    }
}

/// Writes how backends are checked, and returns what their lines say about it.
fn check(text: &mut String, listener: &Listener) -> String {
    let setting = |name: &str| listener.settings.get(name).map(String::as_str);
    let or = |name: &str, default| setting(name).unwrap_or(default).to_owned();
    let http = listener.protocol == Protocol::Http;
    let switch = if http {
        "HealthCheck"
    } else {
        "HealthCheckSwitch"
    };
    if setting(switch) == Some("off") {
        return String::new();
    }
    let timeout = if http {
        "HealthCheckTimeout"
    } else {
        "HealthCheckConnectTimeout"
    };
    let _ = writeln!(text, "    timeout check {}s", or(timeout, "5"));
    if http || setting("HealthCheckType") == Some("http") {
        let method = or("HealthCheckMethod", "head").to_uppercase();
        let path = setting("HealthCheckURI").unwrap_or("/");
        let _ = writeln!(text, "    option httpchk {method} {path}");
        if let Some(host) = setting("HealthCheckDomain").filter(|host| plain(host)) {
            let _ = writeln!(text, "    http-check send hdr Host {host}");
        }
        let codes = setting("HealthCheckHttpCode").unwrap_or("http_2xx,http_3xx");
        let classes: String = codes
            .split(',')
            .filter_map(|code| code.chars().nth(5))
            .collect();
        let _ = writeln!(text, "    http-check expect rstatus ^[{classes}]");
    }
    let port = setting("HealthCheckConnectPort").map(|port| format!(" port {port}"));
    format!(
        " check inter {}s fall {} rise {}{}",
        or("HealthCheckInterval", "2"),
        or("UnhealthyThreshold", "3"),
        or("HealthyThreshold", "3"),
        port.unwrap_or_default()
    )
}

/// Whether a text can stand in the configuration without quotes.
fn plain(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || ".-:".contains(c))
}

/// A cookie's name as it is if it is plain, and its hash otherwise.
fn cookie_name(name: &str) -> String {
    if plain(name) {
        name.to_owned()
    } else {
        sha256_hex(name.as_bytes())[..12].to_owned()
    }
}

/// A name that stays the same over reloads, so that cookies and statistics do.
fn server_name(backend: &Backend) -> String {
    let place = format!("{}/{}/{}", backend.server, backend.address, backend.port);
    format!("s{}", &sha256_hex(place.as_bytes())[..12])
}
