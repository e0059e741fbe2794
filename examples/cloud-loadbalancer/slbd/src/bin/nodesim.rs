//! Simulated nodes and Pods, each a process: see `nodesim --help`.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use slbd::nodesim::{self, Forwarder};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Nodes with node ports, and Pods that answer with their names.
#[derive(Debug, Parser)]
#[command(version)]
enum Arguments {
    #[command(flatten)]
    Command(Command),
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Forward connections at node ports to Pods, in turn.
    Node {
        /// A node port, as address and port.
        #[arg(long, required = true)]
        listen: Vec<SocketAddr>,
        /// A Pod, as address and port.
        #[arg(long)]
        pod: Vec<SocketAddr>,
        /// The health check port: 200 while there are Pods.
        #[arg(long)]
        health: Option<SocketAddr>,
        /// The seconds that open connections have to end after SIGTERM.
        #[arg(long, default_value_t = 30)]
        drain: u64,
    },
    /// Answer HTTP requests with a name.
    Pod {
        /// Address and port.
        #[arg(long)]
        listen: SocketAddr,
        /// The name.
        #[arg(long)]
        name: String,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments::Command(command) = Arguments::parse();
    match run(command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nodesim: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> io::Result<()> {
    match command {
        Command::Node {
            listen,
            pod,
            health,
            drain,
        } => {
            let (_pods, pods) = watch::channel(pod);
            let _health = health
                .map(|at| nodesim::health(at, pods.clone()))
                .transpose()?;
            let mut ports = Vec::new();
            for address in listen {
                ports.push(Forwarder::start(address, pods.clone()).await?);
            }
            terminated().await?;
            let drain = Duration::from_secs(drain);
            futures::future::join_all(ports.into_iter().map(|port| port.stop(drain))).await;
        }
        Command::Pod { listen, name } => {
            let pod = nodesim::pod(listen, &name)?;
            terminated().await?;
            pod.stop().await;
        }
    }
    Ok(())
}

async fn terminated() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        interrupted = tokio::signal::ctrl_c() => interrupted,
    }
}
