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
    let program = Program::new(NAME, env!("CARGO_PKG_VERSION"));
    let add = |manager: &Manager| Ok(cronjob_controller::add(manager)?);
    Arguments::parse().options.run(program, add).await
}
