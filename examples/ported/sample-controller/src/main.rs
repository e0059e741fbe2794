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
    let Arguments { options, form } = Arguments::parse();
    let program = Program::new(NAME, env!("CARGO_PKG_VERSION"));
    let add = |manager: &Manager| Ok(sample_controller::add(manager, form)?);
    options.run(program, add).await
}
