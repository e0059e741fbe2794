//! A set engine as configured: one entry of the ConfigMap's list `engines`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Deserialize;

use super::access::Access;
use super::objects::{Keeper, Plugin, Settings};
use crate::config::Options;
use crate::trigger::{Tls, TlsFields, listening_at};

pub use super::definition_error::DefinitionError;

/// The most set engines at once.
pub const MOST: usize = 16;

/// The longest name: it begins the names of objects.
pub(super) const LONGEST_NAME: usize = 40;

/// The requests that a list answers at once, by default and at most.
pub(super) const READERS: usize = 1024;
const MOST_READERS: usize = 20_000;

/// One entry of the list, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawEngine {
    /// A name for statuses, logs, metrics and objects.
    pub name: String,
    /// `list`, `crowdsec`, `cilium` or `calico`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Where a list is served: `:8093`.
    #[serde(default)]
    pub addr: Option<String>,
    /// Its path. Default `/bans`; of `crowdsec` `/`.
    #[serde(default)]
    pub path: Option<String>,
    /// A mounted file with the bearer token of its readers, or their API key; one more a line.
    #[serde(default)]
    pub bearer_token_file: Option<String>,
    /// Serves every client that reaches the port.
    #[serde(default)]
    pub insecure: bool,
    /// A mounted certificate with its chain, in PEM: the engine is served by HTTPS.
    #[serde(default)]
    pub tls_cert_file: Option<String>,
    /// Its key.
    #[serde(default)]
    pub tls_key_file: Option<String>,
    /// The authorities that sign the certificates of readers, which each reader then needs.
    #[serde(default, rename = "clientCAFile")]
    pub client_ca_file: Option<String>,
    /// Names of which the certificate of a reader has one; all by default.
    #[serde(default)]
    pub client_names: Vec<String>,
    /// The most requests that are answered or wait at once. Default 1024.
    #[serde(default)]
    pub readers: Option<usize>,
    /// `crowdsec`: whether bouncers get ranges. Default true.
    #[serde(default)]
    pub ranges: Option<bool>,
    /// The most targets of `cilium` and `calico`. Default 10,000.
    #[serde(default)]
    pub most: Option<usize>,
    /// The most targets in one of their objects. Default 1000.
    #[serde(default)]
    pub per_object: Option<usize>,
    /// Whether they keep a policy too. Default true.
    #[serde(default)]
    pub policy: Option<bool>,
    /// `cilium`: the labels of the endpoints that the policy protects. Default: all endpoints.
    #[serde(default)]
    pub endpoints: BTreeMap<String, String>,
    /// `calico`: the selector of the host endpoints that the policy protects. Default `all()`.
    #[serde(default)]
    pub selector: Option<String>,
    /// `calico`: the order of the policy. Default -1000.
    #[serde(default)]
    pub order: Option<i32>,
}

/// A set engine that can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
}

/// The kinds of set engines, with their settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The list over HTTP.
    List(Serve),
    /// The local API of CrowdSec, as its bouncers read it.
    CrowdSec(Serve, Ranges),
    /// Objects of a network plugin.
    Objects(Settings),
}

/// Whether an engine takes ranges: its readers may not know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranges(pub bool);

/// Where an engine is served, and the credentials of its readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serve {
    /// The address.
    pub address: SocketAddr,
    /// The path, without a slash at its end.
    pub path: String,
    /// The credentials of the readers.
    pub access: Access,
    /// Its certificates; `None`: plain HTTP.
    pub tls: Option<Tls>,
    /// Names of which the certificate of a reader has one; empty: all.
    pub client_names: Vec<String>,
    /// The most requests at once.
    pub readers: usize,
}

// === impl RawEngine ===

impl RawEngine {
    /// Checks a whole list. `ports` are those of the triggers.
    ///
    /// # Errors
    /// The first error.
    pub fn define_all(
        list: &[Self],
        ports: &[u16],
        options: &Options,
    ) -> Result<Vec<Definition>, DefinitionError> {
        if list.len() > MOST {
            return Err(DefinitionError::TooMany(list.len()));
        }
        let mut defined: Vec<Definition> = Vec::with_capacity(list.len());
        for raw in list {
            let next = raw.define(ports, options)?;
            for other in &defined {
                if other.name == next.name {
                    return Err(DefinitionError::SameName(next.name));
                }
                let place = |definition: &Definition| {
                    let serve = definition.serve()?;
                    Some((serve.address, serve.path.clone()))
                };
                if let (Some(one), Some(two)) = (other.serve(), next.serve())
                    && one.address == two.address
                    && one.tls != two.tls
                {
                    return Err(DefinitionError::OtherTls {
                        first: other.name.clone(),
                        second: next.name,
                    });
                }
                if place(&next).is_some() && place(other) == place(&next) {
                    return Err(DefinitionError::SamePlace {
                        first: other.name.clone(),
                        second: next.name,
                    });
                }
            }
            defined.push(next);
        }
        Ok(defined)
    }

    fn define(&self, ports: &[u16], options: &Options) -> Result<Definition, DefinitionError> {
        let name = self.name.trim().to_owned();
        let inner = |text: &str| {
            let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            let bytes = text.as_bytes();
            bytes.iter().all(|byte| plain(*byte) || *byte == b'-')
                && [bytes.first(), bytes.last()]
                    .iter()
                    .all(|it| it.is_some_and(|byte| plain(*byte)))
        };
        if name.len() > LONGEST_NAME || !inner(&name) {
            return Err(DefinitionError::Name(name.chars().take(80).collect()));
        }
        let element = crate::engine::Kind::ALL.iter();
        if element.map(|kind| kind.name()).any(|it| it == name) {
            return Err(DefinitionError::Reserved(name));
        }
        let kind = match self.kind.trim() {
            "list" => Kind::List(self.serve(&name, "/bans", ports, options)?),
            "crowdsec" => {
                let serve = self.serve(&name, "/", ports, options)?;
                Kind::CrowdSec(serve, Ranges(self.ranges.unwrap_or(true)))
            }
            kind => match Plugin::ALL.iter().find(|plugin| plugin.name() == kind) {
                Some(plugin) => Kind::Objects(self.objects(&name, *plugin)?),
                None => {
                    let kind = kind.to_owned();
                    return Err(DefinitionError::Kind { name, kind });
                }
            },
        };
        self.check_foreign(&name, &kind)?;
        Ok(Definition { name, kind })
    }

    /// Refuses settings that the engine would ignore.
    fn check_foreign(&self, name: &str, kind: &Kind) -> Result<(), DefinitionError> {
        let plugin = match kind {
            Kind::Objects(settings) => Some(settings.plugin),
            Kind::List(_) | Kind::CrowdSec(..) => None,
        };
        let served = plugin.is_none();
        let settings = [
            ("addr", self.addr.is_some(), served),
            ("path", self.path.is_some(), served),
            ("bearerTokenFile", self.bearer_token_file.is_some(), served),
            ("insecure", self.insecure, served),
            ("tlsCertFile", self.tls_cert_file.is_some(), served),
            ("tlsKeyFile", self.tls_key_file.is_some(), served),
            ("clientCAFile", self.client_ca_file.is_some(), served),
            ("clientNames", !self.client_names.is_empty(), served),
            ("readers", self.readers.is_some(), served),
            (
                "ranges",
                self.ranges.is_some(),
                matches!(kind, Kind::CrowdSec(..)),
            ),
            ("most", self.most.is_some(), !served),
            ("perObject", self.per_object.is_some(), !served),
            ("policy", self.policy.is_some(), !served),
            (
                "endpoints",
                !self.endpoints.is_empty(),
                plugin == Some(Plugin::Cilium),
            ),
            (
                "selector",
                self.selector.is_some(),
                plugin == Some(Plugin::Calico),
            ),
            (
                "order",
                self.order.is_some(),
                plugin == Some(Plugin::Calico),
            ),
        ];
        match settings.into_iter().find(|(_, set, known)| *set && !known) {
            Some((key, ..)) => Err(DefinitionError::Foreign {
                name: name.to_owned(),
                kind: self.kind.trim().to_owned(),
                key,
            }),
            None => Ok(()),
        }
    }

    fn objects(&self, name: &str, plugin: Plugin) -> Result<Settings, DefinitionError> {
        let count = |key: &'static str, value: Option<usize>, default: usize, highest: usize| {
            let count = value.unwrap_or(default);
            if (1..=highest).contains(&count) {
                return Ok(count);
            }
            Err(DefinitionError::Value {
                name: name.to_owned(),
                key,
                value: count.to_string(),
                why: "it is zero, or more than the API server and the plugin can hold",
            })
        };
        Ok(Settings {
            plugin,
            shard: count("perObject", self.per_object, 1000, 10_000)?,
            most: count("most", self.most, 10_000, 200_000)?,
            policy: self.policy.unwrap_or(true),
            endpoints: self.endpoints.clone().into_iter().collect(),
            selector: self.selector.clone().unwrap_or_else(|| "all()".to_owned()),
            order: self.order.unwrap_or(-1000),
        })
    }

    fn serve(
        &self,
        name: &str,
        path: &str,
        ports: &[u16],
        options: &Options,
    ) -> Result<Serve, DefinitionError> {
        let name = || name.to_owned();
        let Some(addr) = &self.addr else {
            return Err(DefinitionError::Missing {
                name: name(),
                key: "addr",
                example: "\":8093\"",
            });
        };
        let Some(address) = listening_at(addr) else {
            return Err(DefinitionError::Value {
                name: name(),
                key: "addr",
                value: addr.clone(),
                why: "it is not an address to listen at; use for example :8093",
            });
        };
        let port = address.port();
        let own = options.own_ports.iter().map(|(port, what)| (*port, *what));
        let mut taken = own.chain(ports.iter().map(|port| (*port, "triggers")));
        if let Some((port, what)) = taken.find(|(taken, _)| *taken == port && port != 0) {
            return Err(DefinitionError::OwnPort {
                name: name(),
                port,
                what: what.to_owned(),
            });
        }
        let path = self.path.as_deref().unwrap_or(path).trim();
        if !path.starts_with('/') || path.contains(['?', '#', ' ', '%']) {
            return Err(DefinitionError::Value {
                name: name(),
                key: "path",
                value: path.to_owned(),
                why: "it is not a path; use for example /bans",
            });
        }
        let access = match (&self.bearer_token_file, self.insecure) {
            (Some(_), true) => return Err(DefinitionError::TwoCredentials(name())),
            (Some(path), false) => match options.secrets.file(path) {
                Ok(file) => Access::Secret(file),
                Err(source) => {
                    let name = name();
                    return Err(DefinitionError::File { name, source });
                }
            },
            // Certificates of readers are credentials.
            (None, insecure) if insecure || self.client_ca_file.is_some() => Access::Insecure,
            (None, _) => return Err(DefinitionError::NoCredentials(name())),
        };
        let readers = self.readers.unwrap_or(READERS);
        if !(1..=MOST_READERS).contains(&readers) {
            return Err(DefinitionError::Value {
                name: name(),
                key: "readers",
                value: readers.to_string(),
                why: "it is zero, or more than 20000",
            });
        }
        Ok(Serve {
            address,
            path: path.trim_end_matches('/').to_owned(),
            access,
            tls: self.tls(&name(), options)?,
            client_names: self.client_names.clone(),
            readers,
        })
    }

    fn tls(&self, name: &str, options: &Options) -> Result<Option<Tls>, DefinitionError> {
        let fields = TlsFields {
            certificate: self.tls_cert_file.as_deref(),
            key: self.tls_key_file.as_deref(),
            clients: self.client_ca_file.as_deref(),
            names: &self.client_names,
        };
        let tls = fields.define(&options.secrets);
        tls.map_err(|fault| DefinitionError::tls(name, fault))
    }
}

// === impl Definition ===

impl Definition {
    /// Where it is served; `None` for an engine that is not.
    #[must_use]
    pub fn serve(&self) -> Option<&Serve> {
        match &self.kind {
            Kind::List(serve) | Kind::CrowdSec(serve, _) => Some(serve),
            Kind::Objects(_) => None,
        }
    }

    /// The engine as it is remembered; `None`: it keeps nothing elsewhere.
    #[must_use]
    pub fn keeper(&self) -> Option<Keeper> {
        match &self.kind {
            Kind::List(_) | Kind::CrowdSec(..) => None,
            Kind::Objects(settings) => Some(Keeper {
                plugin: settings.plugin,
                name: self.name.clone(),
            }),
        }
    }

    /// A warning about settings that are allowed and risky.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let serve = self.serve()?;
        let certified = serve.tls.as_ref().is_some_and(|tls| tls.clients.is_some());
        let insecure = serve.access == Access::Insecure && !certified;
        insecure.then(|| {
            format!(
                "engine {} is served without credentials: every client that reaches the port reads all bans",
                self.name
            )
        })
    }
}

#[cfg(test)]
mod tests;
