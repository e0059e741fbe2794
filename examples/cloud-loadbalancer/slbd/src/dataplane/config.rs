//! The configuration of HAProxy for a state.
//!
//! Each running listener is a [`Proxy`]: a frontend and a backend that refer to nothing else, so any of them can be left out. Values of
//! the API are quoted, since an unquoted `'` or `#` makes HAProxy refuse the whole file. Certificates are files of their own.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use crate::cloud::{Backend, Balancer, Listener, Protocol, State};
use crate::signature::sha256_hex;

/// The time after which an old process cuts its connections.
const HARD_STOP: &str = "30s";
/// The networks of a line. HAProxy reads 64 words a line.
const NETWORKS_PER_LINE: usize = 50;

/// The folder of certificates, in the folder of the configuration.
pub(super) const CERTIFICATES: &str = "certificates";

/// The sections of a listener that HAProxy serves. The `Debug` form has the names of files only.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// The id of the load balancer.
    pub balancer: String,
    /// The address and the port.
    pub address: SocketAddr,
    /// The lines.
    pub text: String,
    /// The files that the lines name, in the folder of certificates: PEM, and lists of certificates by domain.
    pub files: BTreeMap<String, String>,
}

// === impl Proxy ===

impl fmt::Debug for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Proxy")
            .field("balancer", &self.balancer)
            .field("address", &self.address)
            .field("text", &self.text)
            .field("files", &self.files.keys())
            .finish()
    }
}

/// The sections of all running listeners, without UDP. `folder` is that of [`render`].
#[must_use]
pub fn proxies(state: &State, folder: &Path) -> Vec<Proxy> {
    let folder = folder.join(CERTIFICATES);
    let running = state.listeners().filter(|(balancer, listener)| {
        balancer.active && listener.running && listener.protocol != Protocol::Udp
    });
    let proxies = running.map(|(balancer, listener)| {
        let mut proxy = Proxy {
            balancer: balancer.id.clone(),
            address: SocketAddr::from((balancer.address, listener.port)),
            text: String::new(),
            files: BTreeMap::new(),
        };
        let tls = match listener.protocol {
            Protocol::Https => tls(&mut proxy.files, &folder, state, listener),
            _ => String::new(),
        };
        sections(&mut proxy.text, state, balancer, listener, &tls);
        proxy
    });
    proxies.collect()
}

/// The configuration with these sections: strict limits are off, since HAProxy does not start at all if it may open fewer files than
/// `maxconn` would take. `folder` has the stats socket, and the certificates in a folder of their own.
#[must_use]
pub fn render<'a>(folder: &Path, proxies: impl IntoIterator<Item = &'a Proxy>) -> String {
    let socket = folder.join("haproxy.sock");
    let mut text = format!(
        "global\n    stats socket {} mode 600 level admin expose-fd listeners\n    \
         hard-stop-after {HARD_STOP}\n    maxconn 2000\n    no strict-limits\n    crt-base {}\n\
         defaults\n    timeout connect 2s\n    timeout client 900s\n    timeout server 900s\n    \
         timeout http-request 60s\n    retries 3\n    option redispatch 1\n",
        quoted(&socket.to_string_lossy()),
        quoted(&folder.join(CERTIFICATES).to_string_lossy())
    );
    for proxy in proxies {
        text.push_str(&proxy.text);
    }
    text
}

/// What the line of the address says about TLS. `files` gets the certificates, and the list of their domains.
fn tls(
    files: &mut BTreeMap<String, String>,
    folder: &Path,
    state: &State,
    listener: &Listener,
) -> String {
    let setting = |name: &str| listener.settings.get(name).map(String::as_str);
    for id in listener.certificates() {
        if let Some(one) = state.certificates.get(id) {
            files.insert(
                format!("{id}.pem"),
                format!("{}{}", one.chain, one.key.pem()),
            );
        }
    }
    // The first one serves all domains without a line. `!*` keeps the names that it has from taking such a domain.
    let first = listener.certificates().next().unwrap_or_default();
    let mut list = format!("{first}.pem !*\n");
    for domain in listener.domains.values() {
        let _ = writeln!(list, "{}.pem {}", domain.certificate, domain.domain);
    }
    // The name changes with the content, and so does the configuration.
    let name = format!("{}.list", &sha256_hex(list.as_bytes())[..16]);
    let versions = match setting("TLSCipherPolicy") {
        Some("tls_cipher_policy_1_1") => "ssl-min-ver TLSv1.1 ssl-max-ver TLSv1.2",
        Some("tls_cipher_policy_1_2") => "ssl-min-ver TLSv1.2 ssl-max-ver TLSv1.2",
        Some("tls_cipher_policy_1_2_strict") => {
            "ssl-min-ver TLSv1.2 ssl-max-ver TLSv1.2 ciphers ECDHE"
        }
        Some("tls_cipher_policy_1_2_strict_with_1_3") => {
            "ssl-min-ver TLSv1.2 ssl-max-ver TLSv1.3 ciphers ECDHE"
        }
        _ => "ssl-min-ver TLSv1.0 ssl-max-ver TLSv1.2",
    };
    let protocols = match setting("EnableHttp2") {
        Some("off") => "http/1.1",
        _ => "h2,http/1.1",
    };
    // HAProxy looks for certificates in `crt-base`, and for lists in its working directory.
    let path = quoted(&folder.join(&name).to_string_lossy());
    let tls = format!(" ssl crt-list {path} alpn {protocols} {versions}");
    files.insert(name, list);
    tls
}

fn sections(text: &mut String, state: &State, balancer: &Balancer, listener: &Listener, tls: &str) {
    let setting = |name: &str| listener.settings.get(name).map(String::as_str);
    let number = |name: &str| setting(name).and_then(|text| text.parse::<u32>().ok());
    let http = listener.protocol.is_layer_7();
    let name = format!("{}-{}", balancer.id, listener.port);
    let mode = if http { "http" } else { "tcp" };
    let _ = writeln!(text, "frontend {name}");
    let (address, port) = (balancer.address, listener.port);
    let _ = writeln!(text, "    bind {address}:{port}{tls}");
    let _ = writeln!(text, "    mode {mode}");
    if let Some((white, networks)) = state.access_of(listener) {
        // An empty list of allowed networks allows none, and an empty list of refused ones refuses none.
        let networks = match networks.is_empty() {
            true => vec!["255.255.255.255/32"],
            false => networks,
        };
        let unless = if white { "!" } else { "" };
        // Lines of one name are one list.
        for networks in networks.chunks(NETWORKS_PER_LINE) {
            let _ = writeln!(text, "    acl listed src {}", networks.join(" "));
        }
        let _ = writeln!(text, "    tcp-request connection reject if {unless}listed");
    }
    if http {
        if setting("XForwardedFor") == Some("on") {
            let _ = writeln!(text, "    option forwardfor");
        }
        if setting("XForwardedFor_proto") == Some("on") {
            let scheme = listener.protocol.name();
            let _ = writeln!(
                text,
                "    http-request set-header X-Forwarded-Proto {scheme}"
            );
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
                (Some("server"), Some(cookie)) => format!("{} rewrite", quoted(cookie)),
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
    let http = listener.protocol.is_layer_7();
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
        let path = quoted(setting("HealthCheckURI").unwrap_or("/"));
        let _ = writeln!(text, "    option httpchk {method} {path}");
        // `$_ip` stands for the address of each backend, which HAProxy has no word for.
        if let Some(host) = setting("HealthCheckDomain").filter(|host| *host != "$_ip") {
            let _ = writeln!(text, "    http-check send hdr Host {}", quoted(host));
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

/// `text` as one word of the configuration. A control character, which the API refuses, would end the line: it becomes `?`.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    let mut quoted = String::from("'");
    for c in text.chars() {
        match c {
            // A quoted part ends, and another one begins.
            '\'' => quoted.push_str("'\\''"),
            c if c.is_control() => quoted.push('?'),
            c => quoted.push(c),
        }
    }
    quoted.push('\'');
    quoted
}

/// A name that stays the same over reloads, so that cookies and statistics do.
fn server_name(backend: &Backend) -> String {
    let place = format!("{}/{}/{}", backend.server, backend.address, backend.port);
    format!("s{}", &sha256_hex(place.as_bytes())[..12])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;

    use super::*;
    use crate::cloud::{Cloud, Rules};
    use crate::parameters::Parameters;

    /// The sections of one HTTP listener with these settings.
    fn listener(settings: &[(&str, &str)]) -> String {
        let rules = Rules {
            provision: jiff::SignedDuration::ZERO,
            ..Rules::default()
        };
        let mut cloud = Cloud::new(rules, State::default());
        let mut call = |call: Parameters| cloud.call(Timestamp::UNIX_EPOCH, &call).unwrap();
        call(Parameters::action("CreateLoadBalancer"));
        call(Parameters::action("CreateAccessControlList").with("AclName", "a"));
        let entries: Vec<BTreeMap<&str, String>> = (0..120)
            .map(|n| BTreeMap::from([("entry", format!("10.0.{n}.0/24"))]))
            .collect();
        let add = Parameters::action("AddAccessControlListEntry")
            .with("AclId", "acl-000002")
            .with("AclEntrys", serde_json::to_string(&entries).unwrap());
        call(add);
        let on = |action: &str| {
            Parameters::action(action)
                .with("LoadBalancerId", "lb-000001")
                .with("ListenerPort", 80)
        };
        let mut create = on("CreateLoadBalancerHTTPListener").with("BackendServerPort", 8080);
        for (name, value) in settings {
            create.set(name, value);
        }
        call(create);
        call(on("StartLoadBalancerListener"));
        let proxies = proxies(cloud.state(), Path::new("/run"));
        assert_eq!(proxies.len(), 1);
        proxies[0].text.clone()
    }

    #[test]
    fn a_value_is_one_word_whatever_characters_it_has() {
        assert_eq!(quoted("/live-1_2.html"), "/live-1_2.html");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("/a#b c"), "'/a#b c'");
        assert_eq!(quoted("/it's"), r"'/it'\''s'");
        assert_eq!(quoted("a\nb"), "'a?b'");
        let text = listener(&[("HealthCheckURI", "/it's?a=#1")]);
        let line = r"    option httpchk HEAD '/it'\''s?a=#1'";
        assert!(text.lines().any(|one| one == line), "{text}");
    }

    #[test]
    fn a_cookie_of_the_application_keeps_its_name() {
        let text = listener(&[
            ("StickySession", "on"),
            ("StickySessionType", "server"),
            ("Cookie", "my_session"),
        ]);
        assert!(text.contains("    cookie my_session rewrite\n"), "{text}");
    }

    #[test]
    fn networks_come_in_lines_that_haproxy_can_read() {
        let text = listener(&[
            ("AclStatus", "on"),
            ("AclType", "white"),
            ("AclId", "acl-000002"),
        ]);
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix("    acl listed src "));
        let counts: Vec<usize> = lines.map(|line| line.split(' ').count()).collect();
        assert_eq!(counts, [50, 50, 20]);
    }
}
