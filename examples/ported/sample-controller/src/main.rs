//! The program: see `sample-controller --help`.

use std::process::ExitCode;

use clap::Parser;
use reeve_controller::Manager;
use reeve_controller::options::{Options, Program};
use sample_controller::{Form, NAME};

/// Gives every Foo a Deployment.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    options: Options,

    /// The construction of the controller. Both do the same.
    #[arg(long, value_enum, default_value = "by-hand")]
    form: Form,
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
    sample_controller::add(&manager, arguments.form)?;
    Ok(manager.run_until_signal().await?)
}
