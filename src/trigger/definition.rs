//! A trigger as configured.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde::Deserialize;

use crate::config::Options;
use crate::mounted::Outside;

use super::credentials::Credentials;
use super::kind::Kind;

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
    /// The payload that is sent there: `grafana`. Default: the name.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// A mounted file with the HMAC secret; a second line is a second secret, for rotation.
    #[serde(default)]
    pub hmac_secret_file: Option<String>,
    /// The header with the signature. Default: the header of the type, `X-Grafana-Alerting-Signature`.
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
}

/// A trigger that can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The name, for logs, metrics and `spec.source`.
    pub name: String,
    /// Its payload.
    pub kind: Kind,
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
    /// Whether ranges are banned.
    pub allow_ranges: bool,
}

/// Why an entry of the list cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    /// No name.
    #[error("a trigger has no name")]
    NoName,
    /// Unknown type.
    #[error("trigger {name}: unknown type {kind:?}; use type: {}", Kind::names())]
    Kind {
        /// The trigger.
        name: String,
        /// The value of the entry.
        kind: String,
    },
    /// No address to listen at.
    #[error("trigger {name}: {addr:?} is not an address to listen at; use for example :8090")]
    Address {
        /// The trigger.
        name: String,
        /// The value of the entry.
        addr: String,
    },
    /// No path.
    #[error("trigger {name}: {path:?} is not a path; use for example /trigger/grafana")]
    Path {
        /// The trigger.
        name: String,
        /// The value of the entry.
        path: String,
    },
    /// No credentials, and `insecure` is not set.
    #[error(
        "trigger {name} has no credentials: set hmacSecretFile or bearerTokenFile, or insecure: true (or run with --insecure-triggers) to accept alerts from every client"
    )]
    NoCredentials {
        /// The trigger.
        name: String,
    },
    /// More than one kind of credentials.
    #[error("trigger {name}: choose one of hmacSecretFile, bearerTokenFile and insecure")]
    TwoCredentials {
        /// The trigger.
        name: String,
    },
    /// An invalid header name.
    #[error("trigger {name}: {header:?} is not a header name")]
    Header {
        /// The trigger.
        name: String,
        /// The value of the entry.
        header: String,
    },
    /// A file that may not be read.
    #[error("trigger {name}: {source}")]
    File {
        /// The trigger.
        name: String,
        /// The fault of its path.
        source: Outside,
    },
    /// The port is one of the operator's own.
    #[error("trigger {name}: port {port} is the operator's own ({what}); choose another")]
    OwnPort {
        /// The trigger.
        name: String,
        /// The port.
        port: u16,
        /// What is served there.
        what: &'static str,
    },
    /// The blocks of the trigger would never be reconciled.
    #[error(
        "trigger {name}: its blocks would be made in namespace {namespace}, and only {watched} is watched (--watch-namespace); set namespace: {watched}"
    )]
    Unwatched {
        /// The trigger.
        name: String,
        /// Where the blocks would be.
        namespace: String,
        /// What is watched.
        watched: String,
    },
    /// Two triggers at one place.
    #[error("triggers {first} and {second} listen at the same address and path")]
    Same {
        /// The one that comes first.
        first: String,
        /// The other.
        second: String,
    },
}

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
        let kind = self.kind.as_deref().unwrap_or(&name);
        let Some(kind) = Kind::of(kind) else {
            let kind = kind.to_owned();
            return Err(DefinitionError::Kind { name, kind });
        };
        let Some(address) = address(&self.addr) else {
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
        let credentials = self.credentials(&name, kind, options)?;
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
            kind,
            address,
            path,
            credentials,
            namespace: self.namespace.clone(),
            debounce: Duration::from_secs(self.debounce_seconds.unwrap_or(60)),
            debounce_entries: self.debounce_entries.unwrap_or(1000).clamp(1, 1_000_000),
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
            defined.push(next);
        }
        Ok(defined)
    }

    fn credentials(
        &self,
        name: &str,
        kind: Kind,
        options: &Options,
    ) -> Result<Credentials, DefinitionError> {
        let name = name.to_owned();
        let file = |path: &str| {
            let file = options.secrets.file(path);
            file.map_err(|source| DefinitionError::File {
                name: name.clone(),
                source,
            })
        };
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
            (None, None, true) => Ok(Credentials::Insecure),
            (None, None, false) if options.insecure_triggers => Ok(Credentials::Insecure),
            (None, None, false) => Err(DefinitionError::NoCredentials { name }),
            _ => Err(DefinitionError::TwoCredentials { name }),
        }
    }
}

// === impl Definition ===

impl Definition {
    /// The risk of a definition that is allowed.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        match &self.credentials {
            Credentials::Hmac {
                timestamp_header: None,
                ..
            } => Some(format!(
                "trigger {}: a captured request can be replayed at any time; set hmacTimestampHeader, and the same header in the sender",
                self.name
            )),
            _ => None,
        }
    }
}

/// `:8090` listens everywhere, on both families where the system has both.
fn address(text: &str) -> Option<SocketAddr> {
    let text = text.trim();
    if let Some(port) = text.strip_prefix(':') {
        let port = port.parse().ok()?;
        return Some(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port));
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounted::{Directory, MountedFile};

    fn raw(yaml: &str) -> RawTrigger {
        serde_saphyr::from_str(yaml).unwrap()
    }

    fn options(insecure_triggers: bool) -> Options {
        Options {
            insecure_triggers,
            secrets: Directory::new("/s"),
            ..Options::default()
        }
    }

    fn file(path: &str) -> MountedFile {
        Directory::new("/s").file(path).unwrap()
    }

    #[test]
    fn the_originals_entry_is_read_and_needs_the_word_insecure() {
        let original = raw("{name: grafana, addr: ':8090', path: /trigger/grafana}");
        let error = original.define(&options(false)).unwrap_err();
        assert!(error.to_string().contains("--insecure-triggers"), "{error}");
        let defined = original.define(&options(true)).unwrap();
        assert_eq!(defined.kind, Kind::Grafana);
        assert_eq!(defined.address, "[::]:8090".parse().unwrap());
        assert_eq!(defined.path, "/trigger/grafana");
        assert_eq!(defined.credentials, Credentials::Insecure);
        assert_eq!(defined.debounce, Duration::from_secs(60));
        assert_eq!(defined.debounce_entries, 1000);
    }

    #[test]
    fn credentials_are_one_of_three() {
        let base = "name: x, type: grafana, addr: '127.0.0.1:1', path: /p";
        for (extra, credentials) in [
            ("insecure: true", Ok(Credentials::Insecure)),
            (
                "bearerTokenFile: /s/token",
                Ok(Credentials::Bearer {
                    token_file: file("/s/token"),
                }),
            ),
            (
                "hmacSecretFile: /s/key, hmacTimestampHeader: X-Time",
                Ok(Credentials::Hmac {
                    secret_file: file("/s/key"),
                    header: http::HeaderName::from_static("x-grafana-alerting-signature"),
                    timestamp_header: Some(http::HeaderName::from_static("x-time")),
                }),
            ),
            (
                "hmacSecretFile: /s/key, insecure: true",
                Err(DefinitionError::TwoCredentials { name: "x".into() }),
            ),
            (
                "hmacSecretFile: /s/key, hmacHeader: 'a b'",
                Err(DefinitionError::Header {
                    name: "x".into(),
                    header: "a b".into(),
                }),
            ),
        ] {
            // The command line's word changes nothing where credentials are given.
            for flag in [false, true] {
                let defined = raw(&format!("{{{base}, {extra}}}")).define(&options(flag));
                assert_eq!(defined.map(|it| it.credentials), credentials, "{extra}");
            }
        }
    }

    #[test]
    fn what_cannot_be_served_is_named() {
        for (yaml, word) in [
            ("{name: '', addr: ':1', path: /p}", "no name"),
            ("{name: other, addr: ':1', path: /p}", "unknown type"),
            ("{name: grafana, addr: '8090', path: /p}", "not an address"),
            (
                "{name: grafana, addr: ':99999', path: /p}",
                "not an address",
            ),
            ("{name: grafana, addr: ':1', path: p}", "not a path"),
        ] {
            let error = raw(yaml).define(&options(true)).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        let misspelt = "{name: grafana, addr: ':1', path: /p, insecur: true}";
        let error = serde_saphyr::from_str::<RawTrigger>(misspelt).unwrap_err();
        assert!(error.to_string().contains("insecur"), "{error}");
        let twice = raw("{name: grafana, addr: ':1', path: /p}");
        let error = RawTrigger::define_all(&[twice.clone(), twice], &options(true)).unwrap_err();
        assert!(matches!(error, DefinitionError::Same { .. }));
    }
}
