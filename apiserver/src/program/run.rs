//! One run of the server: start, serve, wait for the request to stop.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::arguments::{Arguments, AuthorizationMode};
use super::files::write_private;
use super::stop;
use crate::ApiServer;

/// The error of the program.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(
        "--listen {0}: other machines could reach this server, and it may let everyone do everything; \
         listen on 127.0.0.1, or add --allow-remote"
    )]
    Remote(SocketAddr),
    #[error(transparent)]
    Start(#[from] crate::StartError),
    #[error(transparent)]
    Serve(#[from] crate::ServeError),
    #[error("{flag} {path}: {source}")]
    Write {
        flag: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(transparent)]
    Persist(#[from] crate::PersistError),
    #[error("cannot listen for signals: {0}")]
    Signal(std::io::Error),
}

/// Runs the server until a signal asks it to stop.
pub(super) async fn run(arguments: Arguments) -> Result<(), Error> {
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
        let written = write_private(&path, &serving.kubeconfig());
        written.map_err(|source| Error::Write {
            flag: "--kubeconfig",
            path,
            source,
        })?;
    }
    #[allow(clippy::print_stdout, reason = "the one line that scripts wait for")]
    {
        println!("ready {}", serving.url());
    }
    stop::asked().await.map_err(Error::Signal)?;
    serving.stop().await;
    server.shutdown().await?;
    Ok(())
}
