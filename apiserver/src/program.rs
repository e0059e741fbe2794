//! The program `reeve-apiserver`: its command line, and the server that it describes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::ApiServer;

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
struct Arguments {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "HOST:PORT")]
    listen: SocketAddr,

    /// Serve HTTPS with a certificate of a fresh authority; the kubeconfig carries the authority.
    #[arg(long)]
    tls: bool,

    /// Keep objects in this directory. Without it they are gone when the program ends.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Write a kubeconfig to this file (mode 0600), with the rights of an administrator.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// `AlwaysAllow`: everyone may everything. `RBAC`: requests are checked against the stored roles and
    /// bindings; requests without credentials are system:anonymous. It implies --tls, because clients such as
    /// kubectl send credentials over HTTPS only.
    #[arg(long, value_enum, default_value = "AlwaysAllow", value_name = "MODE")]
    authorization_mode: AuthorizationMode,

    /// Allow listening on an address that other machines can reach.
    #[arg(long)]
    allow_remote: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum AuthorizationMode {
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
    #[value(name = "RBAC")]
    Rbac,
}

/// The error of the program.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(
        "--listen {0}: other machines could reach this server, and it may let everyone do everything; \
         listen on 127.0.0.1, or add --allow-remote"
    )]
    Remote(SocketAddr),
    #[error(transparent)]
    Start(#[from] crate::StartError),
    #[error(transparent)]
    Serve(#[from] crate::ServeError),
    #[error("--kubeconfig {path}: {source}")]
    Kubeconfig {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(transparent)]
    Persist(#[from] crate::PersistError),
    #[error("cannot listen for signals: {0}")]
    Signal(std::io::Error),
}

// === impl Arguments ===

impl Arguments {
    fn serves_tls(&self) -> bool {
        self.tls || self.authorization_mode == AuthorizationMode::Rbac
    }
}

/// The command line, for completions and the manual page.
#[must_use]
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the program.
#[tokio::main]
#[must_use]
pub async fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Error> {
    if !arguments.listen.ip().is_loopback() && !arguments.allow_remote {
        return Err(Error::Remote(arguments.listen));
    }
    let with_tls = arguments.serves_tls();
    let mut builder = ApiServer::builder().record_requests(false);
    if let Some(directory) = arguments.data_dir {
        builder = builder.data_dir(directory);
    }
    if arguments.authorization_mode == AuthorizationMode::Rbac {
        builder = builder.rbac();
    }
    let server = builder.start().await?;
    let serving = if with_tls {
        server.serve_tls(arguments.listen).await?
    } else {
        server.serve(arguments.listen).await?
    };
    if let Some(path) = arguments.kubeconfig {
        write_private(&path, &serving.kubeconfig())
            .map_err(|source| Error::Kubeconfig { path, source })?;
    }
    #[allow(clippy::print_stdout, reason = "the one line that scripts wait for")]
    {
        println!("ready {}", serving.url());
    }
    stop_asked().await.map_err(Error::Signal)?;
    serving.stop().await;
    server.shutdown().await?;
    Ok(())
}

/// Writes a file that only its owner may read.
fn write_private(path: &std::path::Path, content: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut options = std::fs::OpenOptions::new();
    options.create(true).write(true).truncate(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options.open(path)?.write_all(content.as_bytes())
}

#[cfg(unix)]
async fn stop_asked() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        biased;
        _ = terminate.recv() => Ok(()),
        interrupted = tokio::signal::ctrl_c() => interrupted,
    }
}

#[cfg(not(unix))]
async fn stop_asked() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
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
