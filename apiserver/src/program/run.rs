//! One run of the server: start, first objects, serve, wait for the request to stop.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::arguments::{Arguments, AuthorizationMode, Output, Task};
use super::stop::Stop;
use super::{files, manifests, seed};
use crate::envtest::install;
use crate::{ApiServer, Builder, Serving, token_file};

/// The error of the program.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(
        "--listen {0}: other machines could reach this server, and it may let everyone do everything; \
         listen on 127.0.0.1, or add --allow-remote"
    )]
    Remote(SocketAddr),
    #[error("--tls-san {0}: without TLS there is no certificate; add --tls")]
    NameWithoutTls(String),
    #[error(transparent)]
    Tokens(#[from] token_file::Error),
    #[error(transparent)]
    Manifests(#[from] manifests::Error),
    #[error(transparent)]
    Seed(#[from] seed::Error),
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
    #[error("cannot find this program: {0}")]
    Program(std::io::Error),
    #[error(transparent)]
    Envtest(#[from] install::Error),
}

/// Runs the server until it is asked to stop.
pub(super) async fn run(arguments: Arguments) -> Result<(), Error> {
    if let Some(Task::Envtest { directory }) = &arguments.task {
        return write_assets(directory);
    }
    if !arguments.listen.ip().is_loopback() && !arguments.allow_remote {
        return Err(Error::Remote(arguments.listen));
    }
    let with_tls = arguments.serves_tls();
    if let Some(name) = arguments.tls_san.first().filter(|_| !with_tls) {
        return Err(Error::NameWithoutTls(name.clone()));
    }
    let process = &arguments.process;
    let stop = Stop::observe(process.exit_with_parent, process.exit_with_stdin);
    let stop = stop.map_err(Error::Signal)?;
    // Files are read before the server starts: a wrong one leaves no trace in the data directory.
    let definitions = manifests::definitions(&arguments.content.crd_dir)?;
    let objects = manifests::objects(&arguments.content.manifests)?;
    if let Some(path) = &process.port_file {
        // That of an earlier run would be taken for this one's.
        written("--port-file", path, files::remove(path))?;
    }
    let server = builder(&arguments)?.start().await?;
    let stop = stop.asked();
    tokio::pin!(stop);
    let ready = async {
        seed::create(&server, definitions).await?;
        seed::create(&server, objects).await?;
        server.set_reset_point();
        server.requests().clear();
        let serving = if with_tls {
            server.serve_tls(arguments.listen).await?
        } else {
            server.serve(arguments.listen).await?
        };
        announce(&arguments, &serving)?;
        Ok::<_, Error>(serving)
    };
    let serving = tokio::select! {
        ready = ready => Some(ready?),
        asked = &mut stop => {
            asked.map_err(Error::Signal)?;
            None
        }
    };
    if let Some(serving) = serving {
        stop.await.map_err(Error::Signal)?;
        if let Some(path) = &process.port_file {
            written("--port-file", path, files::remove(path))?;
        }
        serving.stop().await;
    }
    server.shutdown().await?;
    Ok(())
}

fn written(flag: &'static str, path: &Path, result: std::io::Result<()>) -> Result<(), Error> {
    result.map_err(|source| Error::Write {
        flag,
        path: path.to_owned(),
        source,
    })
}

/// Writes the programs of envtest, and prints the line for a shell.
fn write_assets(directory: &Path) -> Result<(), Error> {
    let program = std::env::current_exe().map_err(Error::Program)?;
    let kubectl = install::kubectl();
    let directory = install::install(&program, directory, kubectl.as_deref())?;
    if kubectl.is_none() {
        eprintln!("there is no kubectl in PATH: tests that run it through envtest need one");
    }
    let directory = directory.to_string_lossy().replace('\'', r"'\''");
    #[allow(clippy::print_stdout, reason = "the line that shells evaluate")]
    {
        println!("export KUBEBUILDER_ASSETS='{directory}'");
    }
    Ok(())
}

fn builder(arguments: &Arguments) -> Result<Builder, Error> {
    let behaviour = &arguments.behaviour;
    let ttl = behaviour.event_ttl;
    let mut builder = ApiServer::builder()
        .record_requests(arguments.control)
        .control(arguments.control)
        .minor_version(behaviour.minor)
        .garbage_collection(behaviour.gc)
        .streaming_lists(behaviour.streaming_lists)
        .event_ttl((!ttl.is_zero()).then_some(ttl))
        .history(behaviour.history());
    if let Some(directory) = &arguments.data_dir {
        builder = builder
            .data_dir(directory)
            .sync_writes(!arguments.unsafe_no_fsync);
    }
    if arguments.authorization_mode == AuthorizationMode::Rbac {
        builder = builder.rbac();
    }
    if let Some(path) = &arguments.token_file {
        for (token, user) in token_file::read("token-file", path)? {
            builder = builder.token(token, user);
        }
    }
    for name in &arguments.tls_san {
        builder = builder.tls_san(name);
    }
    Ok(builder)
}

/// Writes the files that name the server, then the line that scripts wait for.
fn announce(arguments: &Arguments, serving: &Serving) -> Result<(), Error> {
    let kubeconfig = serving.kubeconfig();
    if let Some(path) = &arguments.kubeconfig {
        let result = files::write_private(path, &kubeconfig);
        written("--kubeconfig", path, result)?;
    }
    let port = serving.local_addr().port();
    if let Some(path) = &arguments.process.port_file {
        let result = files::write_at_once(path, &format!("{port}\n"));
        written("--port-file", path, result)?;
    }
    let line = match arguments.process.output {
        Output::Text => format!("ready {}", serving.url()),
        Output::Json => {
            let mut ready = json!({
                "url": serving.url(),
                "host": serving.local_addr().ip().to_string(),
                "port": port,
                "pid": std::process::id(),
                "version": env!("CARGO_PKG_VERSION"),
                "kubeconfig": kubeconfig,
                "control": arguments.control,
            });
            if let Some(authority) = serving.certificate_authority() {
                ready["certificateAuthority"] = authority.into();
            }
            if let Some(token) = serving.token() {
                ready["token"] = token.into();
            }
            ready.to_string()
        }
    };
    let mut output = std::io::stdout().lock();
    if let Err(error) = writeln!(output, "{line}").and_then(|()| output.flush()) {
        // The server is of use without it: the files name it too.
        tracing::warn!(%error, "standard output is closed: the line with the address is lost");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn writes_are_synced_unless_a_flag_says_otherwise() {
        for (flags, synced) in [(&[][..], true), (&["--unsafe-no-fsync"], false)] {
            let line = ["reeve-apiserver", "--data-dir=/tmp/x"].iter().chain(flags);
            let arguments = Arguments::try_parse_from(line).unwrap();
            assert_eq!(builder(&arguments).unwrap().syncs_writes(), synced);
        }
        assert!(ApiServer::builder().syncs_writes());
    }
}
