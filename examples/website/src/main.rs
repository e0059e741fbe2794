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
    arguments.options.log.start();
    match run(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(Command::Crd) = arguments.command {
        let definition = website::api::Website::crd();
        println!("{}", serde_json::to_string_pretty(&definition)?);
        return Ok(());
    }
    let program = Program::new("website", env!("CARGO_PKG_VERSION"));
    let builder = Manager::from_options(&arguments.options, program).await?;
    let manager = builder.build().await?;
    manager.add_controller(website::controller::websites()?)?;
    Ok(manager.run_until_signal().await?)
}
