//! Errors of a credential plugin, without what it got and printed: tokens and client secrets are in both. Errors of
//! requests get into logs, spans, readiness and debug pages.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;

use super::run::{LONGEST_OUTPUT, LONGEST_RUN};

/// The reason why a plugin gave no credentials.
#[derive(Debug, thiserror::Error)]
pub(in crate::connect) enum PluginError {
    #[error("the credential plugin of the kubeconfig has no command")]
    NoCommand,
    #[error("the credential plugin {command} of the kubeconfig could not be started: {fault}{}", .hint.as_deref().map(|hint| format!("; {hint}")).unwrap_or_default())]
    Start {
        command: String,
        fault: io::Error,
        /// `installHint` of the kubeconfig.
        hint: Option<String>,
    },
    #[error(
        "the credential plugin of the kubeconfig needs a terminal (interactiveMode: Always), and standard input is none"
    )]
    Terminal,
    #[error(
        "the credential plugin of the kubeconfig asks for the cluster (provideClusterInfo), which the configuration does not have"
    )]
    Cluster,
    #[error("the credential plugin of the kubeconfig did not end within {} s", LONGEST_RUN.as_secs())]
    Hangs,
    #[error("the output of the credential plugin of the kubeconfig could not be read: {0}")]
    Read(io::Error),
    #[error(
        "the credential plugin of the kubeconfig failed ({0}): run it by hand to see its output"
    )]
    Exit(ExitStatus),
    #[error(
        "the credential plugin of the kubeconfig printed more than {} KiB",
        LONGEST_OUTPUT / 1024
    )]
    Long,
    #[error(
        "the credential plugin of the kubeconfig printed something else than an ExecCredential: run it by hand to see its output"
    )]
    Output,
    #[error(
        "the credential plugin of the kubeconfig answered in the version {returned}, and {configured} is configured"
    )]
    Version {
        configured: String,
        returned: String,
    },
    #[error("the credential plugin of the kubeconfig returned {0}")]
    Credential(&'static str),
    #[error("the task of the credential plugin of the kubeconfig ended without a result")]
    Lost,
}

/// An error that several requests share.
#[derive(Clone, Debug, thiserror::Error)]
#[error(transparent)]
pub(in crate::connect) struct Failed(#[from] pub(super) Arc<PluginError>);
