//! The program: see `document-controller --help`.

use std::process::ExitCode;

use clap::Parser;
use document_controller::NAME;
use reeve_controller::Manager;
use reeve_controller::options::{Options, Program};

/// Reports whether Documents are hidden.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    arguments.options.log.start();
    match run(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error, "ended");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let program = Program::new(NAME, env!("CARGO_PKG_VERSION"));
    let builder = Manager::from_options(&arguments.options, program).await?;
    let manager = builder.build().await?;
    document_controller::add(&manager)?;
    Ok(manager.run_until_signal().await?)
}
