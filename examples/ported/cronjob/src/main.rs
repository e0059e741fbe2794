//! The program: see `cronjob-controller --help`.

use std::process::ExitCode;

use clap::Parser;
use cronjob_controller::NAME;
use reeve_controller::Manager;
use reeve_controller::options::{Options, Program};

/// Starts the Jobs of CronJobs.
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
    cronjob_controller::add(&manager)?;
    Ok(manager.run_until_signal().await?)
}
