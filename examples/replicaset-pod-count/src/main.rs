//! The program: see `replicaset-pod-count --help`.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use k8s_openapi::api::core::v1::Pod;
use kube_client::Config;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_core::PartialObjectMeta;
use reeve_controller::Manager;
use reeve_controller::client::connect;
use tracing_subscriber::EnvFilter;

/// Labels every ReplicaSet with the number of Pods it owns.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The kubeconfig to use. Unset: that of KUBECONFIG, ~/.kube/config, or the service account of the Pod.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// What to cache of the Pods.
    #[arg(long, value_enum, default_value = "metadata")]
    pods: Pods,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Pods {
    /// All of them.
    Typed,
    /// Their metadata, which is all that is read.
    Metadata,
}

#[tokio::main]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error, "ended");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let options = connect::Options::new()
        .user_agent(concat!("replicaset-pod-count/", env!("CARGO_PKG_VERSION")));
    let client = match arguments.kubeconfig {
        None => connect::infer(&options).await?,
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path)?;
            let defaults = KubeConfigOptions::default();
            connect::connect(
                Config::from_custom_kubeconfig(kubeconfig, &defaults).await?,
                &options,
            )?
        }
    };
    let manager = Manager::builder(client).build().await?;
    match arguments.pods {
        Pods::Typed => replicaset_pod_count::add::<Pod>(&manager)?,
        Pods::Metadata => replicaset_pod_count::add::<PartialObjectMeta<Pod>>(&manager)?,
    }
    Ok(manager.run_until_signal().await?)
}
