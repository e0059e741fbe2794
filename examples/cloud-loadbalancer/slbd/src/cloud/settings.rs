//! The settings of listeners: one table of names, protocols, values and defaults.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Refusal;
use crate::parameters::Parameters;

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// HTTP/1.1.
    Http,
    /// HTTP/1.1 and HTTP/2 over TLS, which ends at the load balancer.
    Https,
}

/// The values of a setting.
#[derive(Clone, Copy, Debug)]
enum Values {
    Number(i64, i64),
    OneOf(&'static [&'static str]),
    /// At most so many characters.
    Text(usize),
    /// A path.
    Path,
    /// The name of a host, or `$_ip` for the address of each backend.
    Host,
    /// The name of a cookie.
    Cookie,
    /// Classes of status codes, separated by commas.
    Codes,
}

struct Setting {
    name: &'static str,
    protocols: &'static [Protocol],
    values: Values,
    /// The value of a new listener that names none; absent if empty.
    default: &'static str,
}

use Protocol::{Http, Https, Tcp, Udp};

const ALL: &[Protocol] = &[Tcp, Udp, Http, Https];
const LAYER_4: &[Protocol] = &[Tcp, Udp];
const LAYER_7: &[Protocol] = &[Http, Https];
const TCP_HTTP: &[Protocol] = &[Tcp, Http, Https];
const SWITCH: Values = Values::OneOf(&["on", "off"]);

const fn setting(
    name: &'static str,
    protocols: &'static [Protocol],
    values: Values,
    default: &'static str,
) -> Setting {
    Setting {
        name,
        protocols,
        values,
        default,
    }
}

const SETTINGS: &[Setting] = &[
    setting("Description", ALL, Values::Text(256), ""),
    setting("Bandwidth", ALL, Values::Number(-1, 5120), "-1"),
    setting(
        "Scheduler",
        ALL,
        Values::OneOf(&["wrr", "rr", "wlc", "sch", "tch"]),
        "wrr",
    ),
    setting("AclStatus", ALL, SWITCH, "off"),
    setting("AclType", ALL, Values::OneOf(&["white", "black"]), ""),
    setting("AclId", ALL, Values::Text(64), ""),
    setting("HealthyThreshold", ALL, Values::Number(2, 10), "3"),
    setting("UnhealthyThreshold", ALL, Values::Number(2, 10), "3"),
    setting("HealthCheckInterval", ALL, Values::Number(1, 50), "2"),
    setting(CHECK_PORT, ALL, Values::Number(1, 65_535), ""),
    setting("HealthCheckSwitch", LAYER_4, SWITCH, "on"),
    setting(
        "HealthCheckConnectTimeout",
        LAYER_4,
        Values::Number(1, 300),
        "5",
    ),
    setting(
        "HealthCheckType",
        &[Tcp],
        Values::OneOf(&["tcp", "http"]),
        "tcp",
    ),
    setting("HealthCheckDomain", TCP_HTTP, Values::Host, ""),
    setting("HealthCheckURI", TCP_HTTP, Values::Path, ""),
    setting("HealthCheckHttpCode", TCP_HTTP, Values::Codes, ""),
    setting(
        "HealthCheckMethod",
        TCP_HTTP,
        Values::OneOf(&["head", "get"]),
        "",
    ),
    setting("HealthCheck", LAYER_7, SWITCH, "on"),
    setting("HealthCheckTimeout", LAYER_7, Values::Number(1, 300), "5"),
    setting("PersistenceTimeout", LAYER_4, Values::Number(0, 3600), "0"),
    setting("EstablishedTimeout", &[Tcp], Values::Number(10, 900), "900"),
    setting("ConnectionDrain", LAYER_4, SWITCH, "off"),
    setting(
        "ConnectionDrainTimeout",
        LAYER_4,
        Values::Number(10, 900),
        "",
    ),
    setting(
        "ProxyProtocolV2Enabled",
        LAYER_4,
        Values::OneOf(&["true", "false"]),
        "false",
    ),
    setting("StickySession", LAYER_7, SWITCH, "off"),
    setting(
        "StickySessionType",
        LAYER_7,
        Values::OneOf(&["insert", "server"]),
        "",
    ),
    setting("CookieTimeout", LAYER_7, Values::Number(1, 86_400), ""),
    setting("Cookie", LAYER_7, Values::Cookie, ""),
    setting("XForwardedFor", LAYER_7, SWITCH, "on"),
    setting("XForwardedFor_proto", LAYER_7, SWITCH, "off"),
    setting("Gzip", LAYER_7, SWITCH, "on"),
    setting("IdleTimeout", LAYER_7, Values::Number(1, 60), "15"),
    setting(CERTIFICATE, &[Https], Values::Text(64), ""),
    setting("EnableHttp2", &[Https], SWITCH, "on"),
    setting(
        "TLSCipherPolicy",
        &[Https],
        Values::OneOf(&[
            "tls_cipher_policy_1_0",
            "tls_cipher_policy_1_1",
            "tls_cipher_policy_1_2",
            "tls_cipher_policy_1_2_strict",
            "tls_cipher_policy_1_2_strict_with_1_3",
        ]),
        "tls_cipher_policy_1_0",
    ),
    setting("RequestTimeout", LAYER_7, Values::Number(1, 180), "60"),
];

/// The parameter of the certificate of an HTTPS listener.
pub(super) const CERTIFICATE: &str = "ServerCertificateId";
/// The parameter of a health check's port.
const CHECK_PORT: &str = "HealthCheckConnectPort";
/// The value of [`CHECK_PORT`] that means the port of the backend, as does its absence.
const OWN_PORT: &str = "-520";

/// Classes of status codes that a health check can accept.
const CODES: &[&str] = &["http_2xx", "http_3xx", "http_4xx", "http_5xx"];

fn of(protocol: Protocol) -> impl Iterator<Item = &'static Setting> {
    SETTINGS
        .iter()
        .filter(move |setting| setting.protocols.contains(&protocol))
}

/// The settings of a new listener.
pub(super) fn defaults(protocol: Protocol) -> BTreeMap<String, String> {
    of(protocol)
        .filter(|setting| !setting.default.is_empty())
        .map(|setting| (setting.name.to_owned(), setting.default.to_owned()))
        .collect()
}

/// Takes the settings that the call names.
pub(super) fn apply(
    settings: &mut BTreeMap<String, String>,
    protocol: Protocol,
    call: &Parameters,
) -> Result<(), Refusal> {
    for setting in of(protocol) {
        if let Some(value) = call.text(setting.name) {
            if setting.name == CHECK_PORT && value == OWN_PORT {
                settings.remove(CHECK_PORT);
                continue;
            }
            if !setting.values.contain(value) {
                return Err(Refusal::invalid(setting.name));
            }
            settings.insert(setting.name.to_owned(), value.to_owned());
        }
    }
    if call.text("AclStatus") == Some("off") {
        // The listener lets go of its list, which can be deleted then.
        settings.remove("AclId");
        settings.remove("AclType");
    }
    let get = |name: &str| settings.get(name).map(String::as_str);
    let needs = [
        ("AclStatus", "on", "AclId"),
        ("AclStatus", "on", "AclType"),
        ("StickySession", "on", "StickySessionType"),
        ("StickySessionType", "server", "Cookie"),
        ("ConnectionDrain", "on", "ConnectionDrainTimeout"),
    ];
    for (name, value, needed) in needs {
        if get(name) == Some(value) && get(needed).is_none() {
            return Err(Refusal::missing(needed));
        }
    }
    Ok(())
}

/// The settings as an answer shows them: numbers as numbers.
pub(super) fn shown(settings: &BTreeMap<String, String>) -> Map<String, Value> {
    let number = |name: &str| {
        SETTINGS
            .iter()
            .any(|setting| setting.name == name && matches!(setting.values, Values::Number(..)))
    };
    settings
        .iter()
        .map(|(name, value)| {
            let shown = value.parse::<i64>().ok().filter(|_| number(name));
            let shown = shown.map_or_else(|| Value::from(value.as_str()), Value::from);
            (name.clone(), shown)
        })
        .collect()
}

// === impl Values ===

impl Values {
    fn contain(self, value: &str) -> bool {
        // Settings are written into the configuration of the data plane, which has a meaning for these even in quotes.
        let plain = |c: char| !c.is_control() && c != '"' && c != '\\';
        match self {
            Self::Number(least, most) => {
                let number = value.parse::<i64>();
                number.is_ok_and(|number| (least..=most).contains(&number))
            }
            Self::OneOf(values) => values.contains(&value),
            Self::Text(longest) => value.chars().count() <= longest && value.chars().all(plain),
            Self::Path => {
                let path = |c: char| c.is_ascii_graphic() && plain(c);
                value.starts_with('/') && value.len() <= 80 && value.chars().all(path)
            }
            Self::Host => {
                let host = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
                value == "$_ip" || (value.len() <= 80 && value.chars().all(host))
            }
            Self::Cookie => {
                let name = |c: char| c.is_ascii_graphic() && plain(c) && !",;=".contains(c);
                value.len() <= 200 && !value.starts_with('$') && value.chars().all(name)
            }
            Self::Codes => value.split(',').all(|code| CODES.contains(&code)),
        }
    }
}

// === impl Protocol ===

impl Protocol {
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "tcp" | "TCP" => Some(Tcp),
            "udp" | "UDP" => Some(Udp),
            "http" | "HTTP" => Some(Http),
            "https" | "HTTPS" => Some(Https),
            _ => None,
        }
    }

    /// The protocol in the name of an action, such as `CreateLoadBalancerTCPListener`.
    pub(super) fn of_action(action: &str) -> Protocol {
        if action.contains("UDP") {
            Udp
        } else if action.contains("HTTPS") {
            Https
        } else if action.contains("HTTP") {
            Http
        } else {
            Tcp
        }
    }

    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Tcp => "tcp",
            Udp => "udp",
            Http => "http",
            Https => "https",
        }
    }

    /// Whether its requests are understood, and not only bytes.
    #[must_use]
    pub fn is_layer_7(self) -> bool {
        LAYER_7.contains(&self)
    }

    /// Whether both use the same ports.
    #[must_use]
    pub fn shares_ports_with(self, other: Self) -> bool {
        (self == Udp) == (other == Udp)
    }
}
