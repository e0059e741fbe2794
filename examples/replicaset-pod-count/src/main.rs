//! The program: see `replicaset-pod-count --help`.

use std::process::ExitCode;

use clap::Parser;
use k8s_openapi::api::core::v1::Pod;
use kube_core::PartialObjectMeta;
use reeve_controller::Manager;
use reeve_controller::options::{Options, Program};

/// Labels every ReplicaSet with the number of Pods it owns.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    options: Options,

    /// The cached form of the Pods.
    #[arg(long, value_enum, default_value = "metadata")]
    pods: Pods,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Pods {
    /// Whole Pods.
    Typed,
    /// Only their metadata, which is all that the controller reads.
    Metadata,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { options, pods } = Arguments::parse();
    let program = Program::new("replicaset-pod-count", env!("CARGO_PKG_VERSION"));
    let add = |manager: &Manager| match pods {
        Pods::Typed => Ok(replicaset_pod_count::add::<Pod>(manager)?),
        Pods::Metadata => Ok(replicaset_pod_count::add::<PartialObjectMeta<Pod>>(
            manager,
        )?),
    };
    options.run(program, add).await
}
