//! The program: see `replicaset-pod-count --help`.

use std::process::ExitCode;

use clap::Parser;
use reeve_controller::Manager;
use reeve_controller::options::{Options, Program};
use replicaset_pod_count::Pods;

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

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { options, pods } = Arguments::parse();
    let program = Program::new("replicaset-pod-count", env!("CARGO_PKG_VERSION"));
    let add = |manager: &Manager| Ok(replicaset_pod_count::add_with(manager, pods)?);
    options.run(program, add).await
}
