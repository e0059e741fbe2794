//! Why a trigger cannot be served.

use super::kind::Kind;
use super::mapping::MappingError;
use super::tls::TlsFault;
use crate::mounted::Outside;

/// Why an entry of the list cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    /// No name.
    #[error("a trigger has no name")]
    NoName,
    /// The name cannot be that of a source.
    #[error(
        "trigger {name:?}: the name is longer than 63 characters, or has others than letters, digits, - _ and ."
    )]
    Name {
        /// The name.
        name: String,
    },
    /// Two triggers of one name, one of which needs a name of its own.
    #[error(
        "two triggers have the name {name}, and one of them has resolved: lift or shadow: true, which needs a name of its own; set another name, and type: {kind}"
    )]
    SameName {
        /// The name.
        name: String,
        /// The type of the first.
        kind: &'static str,
    },
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
    #[error(
        "triggers {first} and {second} listen at the same address and path; remove one of them, or set another path"
    )]
    Same {
        /// The one that comes first.
        first: String,
        /// The other.
        second: String,
    },
    /// `resolved` has another value.
    #[error("trigger {name}: resolved: {value:?} is neither lift nor ignore")]
    Resolved {
        /// The trigger.
        name: String,
        /// The value of the entry.
        value: String,
    },
    /// The mapping cannot be used.
    #[error("trigger {name}: {source}")]
    Mapping {
        /// The trigger.
        name: String,
        /// The fault.
        source: MappingError,
    },
    /// A field that the type of the trigger does not have.
    #[error("trigger {name}: {field} is not for the type {kind}; {remedy}")]
    NotForType {
        /// The trigger.
        name: String,
        /// The field.
        field: &'static str,
        /// The type.
        kind: &'static str,
        /// What to write.
        remedy: &'static str,
    },
    /// A certificate without its key, authorities of clients without a certificate, names without authorities.
    #[error("trigger {name}: {field} needs {other}")]
    Needs {
        /// The trigger.
        name: String,
        /// The field that is set.
        field: &'static str,
        /// The field that is missing.
        other: &'static str,
    },
    /// Two triggers at one address with different certificates.
    #[error(
        "triggers {first} and {second} listen at the same address, so tlsCertFile, tlsKeyFile and clientCAFile must be the same"
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
