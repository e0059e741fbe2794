//! The program: `website --help`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use reeve_controller::Manager;
use reeve_controller::kube_core::CustomResourceExt;
use reeve_controller::options::{Options, Program};

/// Serves the Websites of a cluster.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    options: Options,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Prints the definition of the kind, for `kubectl apply -f -`.
    Crd,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Command::Crd) = arguments.command {
        println!("{:#}", serde_json::json!(website::api::Website::crd()));
        return ExitCode::SUCCESS;
    }
    let program = Program::new("website", env!("CARGO_PKG_VERSION"));
    let add = |manager: &Manager| Ok(manager.add_controller(website::controller::websites()?)?);
    arguments.options.run(program, add).await
}
