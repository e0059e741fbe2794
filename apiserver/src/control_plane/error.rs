//! Why a control plane could not be started or used.

use std::path::PathBuf;
use std::time::Duration;

/// The environment variable with the directory of the binaries.
pub const ASSETS_VARIABLE: &str = "KUBEBUILDER_ASSETS";

/// The time within which a control plane must become ready; it takes about five seconds on an idle machine.
pub(super) const READY_WITHIN: Duration = Duration::from_secs(90);

/// The reason why a control plane could not be started or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `KUBEBUILDER_ASSETS` is not set.
    #[error(
        "{ASSETS_VARIABLE} is not set: build the binaries with tools/kube-apiserver/build.sh and set it as that script says"
    )]
    NoAssets,
    /// The directory lacks a program.
    #[error("{ASSETS_VARIABLE} names {directory}, which has no program `{program}`")]
    NoProgram {
        /// The directory.
        directory: PathBuf,
        /// The missing program.
        program: &'static str,
    },
    /// A file or directory of the control plane could not be written, or no port was free.
    #[error("cannot prepare {what}: {source}")]
    Prepare {
        /// What was being prepared.
        what: String,
        /// The cause.
        source: std::io::Error,
    },
    /// Keys or certificates could not be made.
    #[error("cannot make the certificates of the control plane: {0}")]
    Certificates(#[from] rcgen::Error),
    /// A program ended before it was ready.
    #[error("{program} ended before it was ready ({status}); the end of {log}:\n{tail}")]
    Ended {
        /// The program.
        program: &'static str,
        /// Its exit status.
        status: String,
        /// Its log file, which is kept.
        log: PathBuf,
        /// The last lines of its log.
        tail: String,
    },
    /// A program was not ready in time.
    #[error("{program} was not ready within {READY_WITHIN:?} ({last}); the end of {log}:\n{tail}")]
    NotReady {
        /// The program.
        program: &'static str,
        /// The last answer.
        last: String,
        /// Its log file, which is kept.
        log: PathBuf,
        /// The last lines of its log.
        tail: String,
    },
    /// The objects could not be removed.
    #[error("cannot reset the control plane: {0}")]
    Reset(String),
    /// The client could not be made.
    #[error("cannot make a client for the control plane: {0}")]
    Client(String),
}
