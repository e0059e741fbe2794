//! What can be wrong about an entry of the ConfigMap's list `engines`.

use super::definition::{LONGEST_NAME, MOST};
use crate::mounted::Outside;
use crate::trigger::TlsFault;

const KINDS: &str = "list, crowdsec, cilium or calico";

/// Why an entry of the list cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    /// No name, or one that objects cannot have.
    #[error(
        "engine {0:?}: a name of at most {LONGEST_NAME} lower-case letters, digits and inner hyphens is expected"
    )]
    Name(String),
    /// A name that element engines have.
    #[error("engine {0}: the name is that of a type of engines; choose another")]
    Reserved(String),
    /// Two entries of one name.
    #[error("two engines are named {0}")]
    SameName(String),
    /// More than [`MOST`] entries.
    #[error("{0} engines are configured, and at most {MOST} are allowed")]
    TooMany(usize),
    /// Unknown type.
    #[error("engine {name}: unknown type {kind:?}; use {KINDS}")]
    Kind {
        /// The engine.
        name: String,
        /// The value of the entry.
        kind: String,
    },
    /// A setting that is missing.
    #[error("engine {name}: set {key}: {example}")]
    Missing {
        /// The engine.
        name: String,
        /// The setting.
        key: &'static str,
        /// An example.
        example: &'static str,
    },
    /// A setting of another type of engines.
    #[error("engine {name}: {key} is not a setting of the type {kind}")]
    Foreign {
        /// The engine.
        name: String,
        /// Its type.
        kind: String,
        /// The setting.
        key: &'static str,
    },
    /// A setting that cannot be followed.
    #[error("engine {name}: {key} {value:?}: {why}")]
    Value {
        /// The engine.
        name: String,
        /// The setting.
        key: &'static str,
        /// The value of the entry.
        value: String,
        /// What is expected.
        why: &'static str,
    },
    /// No credentials, and `insecure` is not set.
    #[error(
        "engine {0} has no credentials: set bearerTokenFile, or clientCAFile, or insecure: true to serve every client"
    )]
    NoCredentials(String),
    /// Credentials and `insecure`.
    #[error("engine {0}: choose one of bearerTokenFile and insecure")]
    TwoCredentials(String),
    /// A file that may not be read.
    #[error("engine {name}: {source}")]
    File {
        /// The engine.
        name: String,
        /// The fault of its path.
        source: Outside,
    },
    /// The port is served by another part of the operator.
    #[error("engine {name}: port {port} is the operator's own ({what}); choose another")]
    OwnPort {
        /// The engine.
        name: String,
        /// The port.
        port: u16,
        /// What is served there.
        what: String,
    },
    /// Two engines at one place.
    #[error("engines {first} and {second} are served at the same address and path")]
    SamePlace {
        /// The one that comes first.
        first: String,
        /// The other.
        second: String,
    },
    /// A setting without another one.
    #[error("engine {name}: {field} needs {other}")]
    Needs {
        /// The engine.
        name: String,
        /// The setting.
        field: &'static str,
        /// What is missing.
        other: &'static str,
    },
    /// Two engines at one address with different certificates.
    #[error(
        "engines {first} and {second} are served at the same address, so tlsCertFile, tlsKeyFile and clientCAFile must be the same"
    )]
    OtherTls {
        /// The one that comes first.
        first: String,
        /// The other.
        second: String,
    },
}

// === impl DefinitionError ===

impl DefinitionError {
    /// The fault of the certificates of `name`.
    pub(super) fn tls(name: &str, fault: TlsFault) -> Self {
        let name = name.to_owned();
        match fault {
            TlsFault::Needs { field, other } => Self::Needs { name, field, other },
            TlsFault::File(source) => Self::File { name, source },
        }
    }
}
