//! A trigger as configured.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde::Deserialize;

use crate::config::Options;
use crate::mounted::MountedFile;

use super::credentials::Credentials;
use super::definition_error::DefinitionError;
use super::kind::Kind;
use super::labels::Labels;
use super::mapping::RawMapping;
use super::payload::{Form, Payload};
use super::tls::{Tls, TlsFields};

/// One entry of the ConfigMap's `trigger` list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawTrigger {
    /// A name for logs and metrics; also the type, unless that is given.
    pub name: String,
    /// Where to listen: `:8090`, `127.0.0.1:8090`.
    pub addr: String,
    /// The path, as `/trigger/grafana`.
    pub path: String,
    /// The payload that is sent there: `grafana`, `alertmanager` or `generic`. Default: the name.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// A mounted file with the HMAC secret; a second line is a second secret, for rotation.
    #[serde(default)]
    pub hmac_secret_file: Option<String>,
    /// The header with the signature. Default: the header of the type: `X-Grafana-Alerting-Signature` for `grafana`,
    /// otherwise `X-Signature`.
    #[serde(default)]
    pub hmac_header: Option<String>,
    /// The header with the time, when the sender signs it too. Then requests without it, or older than
    /// five minutes, are refused.
    #[serde(default)]
    pub hmac_timestamp_header: Option<String>,
    /// A mounted file with the bearer token; a second line is a second token, for rotation.
    #[serde(default)]
    pub bearer_token_file: Option<String>,
    /// Accepts requests without credentials: every client that reaches the port can ban addresses.
    #[serde(default)]
    pub insecure: bool,
    /// The namespace of the objects. Default: the operator's.
    #[serde(default)]
    pub namespace: Option<String>,
    /// An address that was written is left alone for so many seconds. Default 60.
    #[serde(default)]
    pub debounce_seconds: Option<u64>,
    /// So many addresses are remembered for that. Default 1000.
    #[serde(default)]
    pub debounce_entries: Option<usize>,
    /// Bans ranges too, when an alert names one.
    #[serde(default)]
    pub allow_ranges: bool,
    /// Shows what its alerts would ban, and bans nothing.
    #[serde(default)]
    pub shadow: bool,
    /// What a resolved alert does: `ignore` (default) or `lift`.
    #[serde(default)]
    pub resolved: Option<String>,
    /// The labels that hold the address, most wanted first. Default `ip`.
    #[serde(default)]
    pub ip_labels: Option<Vec<String>>,
    /// The labels that hold the duration. Default `duration`.
    #[serde(default)]
    pub duration_labels: Option<Vec<String>>,
    /// The annotations that hold the reason. Default `description`, `summary`, then the label `alertname`.
    #[serde(default)]
    pub reason_labels: Option<Vec<String>>,
    /// The labels that name the requester. Default: none.
    #[serde(default)]
    pub by_labels: Option<Vec<String>>,
    /// Where the parts of a ban are in the body of a `generic` trigger.
    #[serde(default)]
    pub mapping: Option<RawMapping>,
    /// A mounted file with the certificate of the listener and its chain, in PEM: it serves HTTPS.
    #[serde(default)]
    pub tls_cert_file: Option<String>,
    /// A mounted file with the key of that certificate.
    #[serde(default)]
    pub tls_key_file: Option<String>,
    /// A mounted file with the authorities that sign the certificates of senders: others are refused in the handshake.
    #[serde(default, rename = "clientCAFile")]
    pub client_ca_file: Option<String>,
    /// The senders that are accepted: common names or DNS names of their certificates. Default: each that `clientCAFile`
    /// vouches for.
    #[serde(default)]
    pub client_names: Vec<String>,
}

/// What a resolved alert does to the ban that its trigger made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtResolved {
    /// Nothing: the ban ends when its time is over. A banned address stops sending, so an alert often resolves because of
    /// the ban.
    #[default]
    Ignore,
    /// Lifts the ban, unless another alert for the address fires.
    Lift,
}

/// A trigger that can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The name, for logs, metrics and `spec.source`.
    pub name: String,
    /// Its payload, and where the parts of a ban are in it.
    pub payload: Payload,
    /// What a resolved alert does.
    pub resolved: AtResolved,
    /// The certificates of its listener; `None`: plain HTTP.
    pub tls: Option<Tls>,
    /// The names of the certificates of its senders; empty: any.
    pub client_names: Vec<String>,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its path.
    pub path: String,
    /// The credentials of its senders.
    pub credentials: Credentials,
    /// The namespace of the objects; `None` is the operator's.
    pub namespace: Option<String>,
    /// How long a written address is left alone.
    pub debounce: Duration,
    /// How many addresses are remembered for that.
    pub debounce_entries: usize,
    /// Its blocks are only shown.
    pub shadow: bool,
}

/// Longest name, in bytes.
const LONGEST_NAME: usize = 63;

// === impl RawTrigger ===

impl RawTrigger {
    /// Checks the entry against the options of all triggers.
    ///
    /// # Errors
    /// See [`DefinitionError`].
    pub fn define(&self, options: &Options) -> Result<Definition, DefinitionError> {
        let name = self.name.trim().to_owned();
        if name.is_empty() {
            return Err(DefinitionError::NoName);
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.len() > LONGEST_NAME || !name.chars().all(plain) {
            return Err(DefinitionError::Name { name });
        }
        let payload = self.payload()?;
        let kind = payload.kind();
        let Some(address) = listening_at(&self.addr) else {
            let addr = self.addr.clone();
            return Err(DefinitionError::Address { name, addr });
        };
        let own = options.own_ports.iter();
        if let Some((port, what)) = own.copied().find(|(port, _)| *port == address.port()) {
            return Err(DefinitionError::OwnPort { name, port, what });
        }
        let path = self.path.trim().to_owned();
        if !path.starts_with('/') || path.contains(['?', '#', ' ']) {
            return Err(DefinitionError::Path { name, path });
        }
        let tls = self.tls(&name, options)?;
        let certified = tls.as_ref().is_some_and(|tls| tls.clients.is_some());
        let credentials = self.credentials(&name, kind, certified, options)?;
        let resolved = match self.resolved.as_deref() {
            None | Some("ignore") => AtResolved::Ignore,
            Some("lift") => AtResolved::Lift,
            Some(other) => {
                let value = other.to_owned();
                return Err(DefinitionError::Resolved { name, value });
            }
        };
        let unnamed = match &payload.form {
            Form::Generic(mapping) => mapping.raw.id.is_empty(),
            _ => false,
        };
        // Without it all alerts of an address would be one, and the first that is resolved would lift its ban.
        if resolved == AtResolved::Lift && unnamed {
            let (field, other) = ("resolved: lift", "mapping.id");
            return Err(DefinitionError::Needs { name, field, other });
        }
        let namespace = self.namespace.as_deref().unwrap_or(&options.namespace);
        if let Some(watched) = options
            .watch_namespace
            .as_deref()
            .filter(|it| *it != namespace)
        {
            return Err(DefinitionError::Unwatched {
                name,
                namespace: namespace.to_owned(),
                watched: watched.to_owned(),
            });
        }
        Ok(Definition {
            name,
            payload,
            resolved,
            tls,
            client_names: self.client_names.clone(),
            address,
            path,
            credentials,
            namespace: self.namespace.clone(),
            debounce: Duration::from_secs(self.debounce_seconds.unwrap_or(60)),
            debounce_entries: self.debounce_entries.unwrap_or(1000).clamp(1, 1_000_000),
            shadow: self.shadow,
        })
    }

    /// The payload alone: what is needed to read a body, without the listener.
    ///
    /// # Errors
    /// See [`DefinitionError`].
    pub fn payload(&self) -> Result<Payload, DefinitionError> {
        let name = self.name.trim().to_owned();
        let kind = self.kind.as_deref().unwrap_or(&name);
        let Some(kind) = Kind::of(kind) else {
            let kind = kind.to_owned();
            return Err(DefinitionError::Kind { name, kind });
        };
        let default = Labels::default();
        let or = |given: &Option<Vec<String>>, default| given.clone().unwrap_or(default);
        let labels = Labels {
            ip: or(&self.ip_labels, default.ip),
            duration: or(&self.duration_labels, default.duration),
            reason: or(&self.reason_labels, default.reason),
            by: or(&self.by_labels, default.by),
        };
        let wrong = |field, remedy| DefinitionError::NotForType {
            name: name.clone(),
            field,
            kind: kind.name(),
            remedy,
        };
        let form = match (kind, &self.mapping) {
            (Kind::Generic, mapping) => {
                let fields = [
                    ("ipLabels", &self.ip_labels),
                    ("durationLabels", &self.duration_labels),
                    ("reasonLabels", &self.reason_labels),
                    ("byLabels", &self.by_labels),
                ];
                if let Some((field, _)) = fields.into_iter().find(|(_, given)| given.is_some()) {
                    return Err(wrong(field, "use the pointers of mapping"));
                }
                let mapping = mapping.as_ref();
                let mapping =
                    mapping.map_or_else(|| RawMapping::default().define(), RawMapping::define);
                Form::Generic(Box::new(mapping.map_err(|source| {
                    DefinitionError::Mapping {
                        name: name.clone(),
                        source,
                    }
                })?))
            }
            (_, Some(_)) => return Err(wrong("mapping", "use type: generic")),
            (Kind::Grafana, None) => Form::Grafana(labels),
            (Kind::Alertmanager, None) => Form::Alertmanager(labels),
        };
        Ok(Payload {
            form,
            allow_ranges: self.allow_ranges,
        })
    }

    /// Checks a whole list.
    ///
    /// # Errors
    /// The first error.
    pub fn define_all(
        list: &[Self],
        options: &Options,
    ) -> Result<Vec<Definition>, DefinitionError> {
        let mut defined: Vec<Definition> = Vec::with_capacity(list.len());
        for raw in list {
            let next = raw.define(options)?;
            let same =
                |other: &&Definition| other.address == next.address && other.path == next.path;
            if let Some(first) = defined.iter().find(same) {
                return Err(DefinitionError::Same {
                    first: first.name.clone(),
                    second: next.name,
                });
            }
            let other =
                |other: &&Definition| other.address == next.address && other.tls != next.tls;
            if let Some(first) = defined.iter().find(other) {
                return Err(DefinitionError::OtherTls {
                    first: first.name.clone(),
                    second: next.name,
                });
            }
            // The name identifies the alerts of a trigger, its bans and its numbers. One that lifts must not take back the
            // bans of another, and shadow mode is that of a name.
            let confused = |other: &&Definition| {
                let lifts = [*other, &next]
                    .iter()
                    .any(|it| it.resolved == AtResolved::Lift);
                other.name == next.name && (lifts || other.shadow != next.shadow)
            };
            if let Some(first) = defined.iter().find(confused) {
                return Err(DefinitionError::SameName {
                    name: first.name.clone(),
                    kind: first.payload.kind().name(),
                });
            }
            defined.push(next);
        }
        Ok(defined)
    }

    fn credentials(
        &self,
        name: &str,
        kind: Kind,
        certified: bool,
        options: &Options,
    ) -> Result<Credentials, DefinitionError> {
        let file = |path: &str| file(name, path, options);
        let name = name.to_owned();
        let header = |given: &str| {
            http::HeaderName::try_from(given).map_err(|_| DefinitionError::Header {
                name: name.clone(),
                header: given.to_owned(),
            })
        };
        match (
            &self.hmac_secret_file,
            &self.bearer_token_file,
            self.insecure,
        ) {
            (Some(secret_file), None, false) => Ok(Credentials::Hmac {
                secret_file: file(secret_file)?,
                header: header(self.hmac_header.as_deref().unwrap_or(kind.hmac_header()))?,
                timestamp_header: self
                    .hmac_timestamp_header
                    .as_deref()
                    .map(header)
                    .transpose()?,
            }),
            (None, Some(token_file), false) => Ok(Credentials::Bearer {
                token_file: file(token_file)?,
            }),
            (None, None, false) if certified => Ok(Credentials::Certificate),
            (None, None, true) if !certified => Ok(Credentials::Insecure),
            (None, None, false) if options.insecure_triggers => Ok(Credentials::Insecure),
            (None, None, false) => Err(DefinitionError::NoCredentials { name }),
            _ => Err(DefinitionError::TwoCredentials { name }),
        }
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

fn file(name: &str, path: &str, options: &Options) -> Result<MountedFile, DefinitionError> {
    let file = options.secrets.file(path);
    file.map_err(|source| DefinitionError::File {
        name: name.to_owned(),
        source,
    })
}

// === impl Definition ===

impl Definition {
    /// The names that several of `all` have: they are one source, as in the original.
    #[must_use]
    pub fn shared_names(all: &[Self]) -> Vec<String> {
        let mut shared = Vec::new();
        for (position, definition) in all.iter().enumerate() {
            let name = &definition.name;
            let is_second = all[..position].iter().filter(|it| it.name == *name).count() == 1;
            if is_second {
                shared.push(format!(
                    "several triggers have the name {name}: their alerts, caps and numbers count together; to separate them, set another name and type: {}",
                    definition.payload.kind().name()
                ));
            }
        }
        shared
    }

    /// The risk of a definition that is allowed.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        match &self.credentials {
            // A sender that shows a certificate is known by it, and its requests cannot be captured.
            Credentials::Hmac {
                timestamp_header: None,
                ..
            } if self.tls.as_ref().is_none_or(|tls| tls.clients.is_none()) => Some(format!(
                "trigger {}: a captured request can be replayed at any time; set hmacTimestampHeader, and the same header in the sender",
                self.name
            )),
            _ => None,
        }
    }
}

/// `:8090` listens everywhere, on both families where the system has both.
pub(crate) fn listening_at(text: &str) -> Option<SocketAddr> {
    let text = text.trim();
    if let Some(port) = text.strip_prefix(':') {
        let port = port.parse().ok()?;
        return Some(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port));
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests;
