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
    let program = Program::new(NAME, env!("CARGO_PKG_VERSION"));
    let add = |manager: &Manager| Ok(document_controller::add(manager)?);
    Arguments::parse().options.run(program, add).await
}
