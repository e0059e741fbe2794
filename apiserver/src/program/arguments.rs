//! The command line of the server.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

/// A Kubernetes API server for development and tests: no etcd, no containers, one process.
///
/// It keeps objects, serves watches, validates custom resources against their definitions, and collects
/// what deleted owners leave behind. Nothing runs behind it: a Deployment makes no Pods. NOT for production.
///
/// Try it:
///
///   reeve-apiserver --listen 127.0.0.1:8001 --kubeconfig /tmp/kubeconfig &
///   export KUBECONFIG=/tmp/kubeconfig
///   kubectl get namespaces
#[derive(Debug, Parser)]
#[command(name = "reeve-apiserver", version, verbatim_doc_comment)]
pub(super) struct Arguments {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "HOST:PORT")]
    pub(super) listen: SocketAddr,

    /// Serve HTTPS with a certificate of a fresh authority; the kubeconfig carries the authority.
    #[arg(long)]
    pub(super) tls: bool,

    /// Keep objects in this directory. Without it they are gone when the program ends.
    #[arg(long, value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,

    /// Write a kubeconfig to this file (mode 0600), with the rights of an administrator.
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,

    /// `AlwaysAllow`: everyone may everything. `RBAC`: requests are checked against the stored roles and
    /// bindings; requests without credentials are system:anonymous. It implies --tls, because clients such as
    /// kubectl send credentials over HTTPS only.
    #[arg(long, value_enum, default_value = "AlwaysAllow", value_name = "MODE")]
    pub(super) authorization_mode: AuthorizationMode,

    /// Allow listening on an address that other machines can reach.
    #[arg(long)]
    pub(super) allow_remote: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum AuthorizationMode {
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
    #[value(name = "RBAC")]
    Rbac,
}

// === impl Arguments ===

impl Arguments {
    pub(super) fn serves_tls(&self) -> bool {
        self.tls || self.authorization_mode == AuthorizationMode::Rbac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_checked_over_https_only() {
        for (line, expected) in [
            ("", false),
            ("--tls", true),
            ("--authorization-mode RBAC", true),
            ("--authorization-mode AlwaysAllow", false),
        ] {
            let words = ["reeve-apiserver"]
                .into_iter()
                .chain(line.split_whitespace());
            assert_eq!(
                Arguments::parse_from(words).serves_tls(),
                expected,
                "{line}"
            );
        }
    }
}
