//! The errors of the program, written for the user at the terminal.

use std::fmt;
use std::path::PathBuf;

use ipblock_operator::target::Target;
use reeve_client::Error as ClientError;

/// Why a command ends with exit status 1.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("error: {0}")]
    Connect(#[from] reeve_client::connect::Error),
    #[error(
        "error: the server has no IPBlock kind: install the operator (kubectl apply -k manifests/), or its definition alone: ipblock-operator crd | kubectl apply -f -"
    )]
    NoKind,
    #[error("{}{}", Server(.error), missing(.right))]
    Server {
        error: ClientError,
        /// The right that a refused request needs: `list on ipblocks.ops.yiiong.top in all namespaces`.
        right: Option<String>,
    },
    #[error("error: {0}")]
    Refused(String),
    #[error(
        "error: {block} has the name for {target}, and is about {other}; delete or rename it, then ban again"
    )]
    NameTaken {
        block: String,
        target: Target,
        other: String,
    },
    #[error(
        "error: {0} is being deleted, and its ban is not lifted yet; ban again when it is gone (kubectl wait --for=delete)"
    )]
    Deleting(String),
    #[error("error: other clients keep changing {0}")]
    Changing(String),
    #[error("error: cannot read {file}: {source}")]
    File {
        file: PathBuf,
        source: std::io::Error,
    },
    #[error("error: {file} is larger than {limit} MiB; split it")]
    TooLarge { file: PathBuf, limit: u64 },
    #[error("error: {file}: {problem}")]
    Format { file: PathBuf, problem: String },
    #[error("error: cannot print: {0}")]
    Print(#[from] std::io::Error),
    #[error("error: cannot be written as text: {0}")]
    Encode(String),
}

/// An error of the client as kubectl prints it.
struct Server<'a>(&'a ClientError);

// === impl Server ===

impl fmt::Display for Server<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.status() {
            Some(status) if !status.reason.is_empty() => {
                write!(
                    f,
                    "Error from server ({}): {}",
                    status.reason, status.message
                )
            }
            Some(status) => write!(f, "Error from server: {}", status.message),
            None => write!(f, "error: {}", reeve_client::error_chain(self.0)),
        }
    }
}

fn missing(right: &Option<String>) -> String {
    match right {
        Some(right) => format!("\nThe right that is missing: {right}"),
        None => String::new(),
    }
}

// === impl Error ===

impl Error {
    /// The error of the client, if it is one.
    pub(crate) fn client(&self) -> Option<&ClientError> {
        match self {
            Self::Server { error, .. } => Some(error),
            _ => None,
        }
    }

    /// Whether a write of another object would fail for the same reason: the kind is not there, or the API server cannot
    /// be reached or takes no requests. Another error of the server may be about one object, as that of a webhook.
    pub(crate) fn ends_all(&self) -> bool {
        match self {
            Self::NoKind => true,
            Self::Server { error, .. } => match error.status() {
                Some(status) => matches!(status.code, 429 | 503),
                None => error.is_outage(),
            },
            _ => false,
        }
    }

    /// Whether the server refused the request for want of a right.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Server { error, .. } if is_forbidden(error))
    }
}

/// Whether the server answered 403.
pub(crate) fn is_forbidden(error: &ClientError) -> bool {
    error.status().is_some_and(|status| status.code == 403)
}
