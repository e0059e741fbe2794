//! The program `reeve-apiserver`: its command line, and the server that it describes.

mod arguments;
mod files;
mod manifests;
mod run;
mod seed;
mod stop;
mod tokens;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use arguments::Arguments;

/// The command line, for completions and the manual page.
#[must_use]
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the program.
#[tokio::main]
#[must_use]
pub async fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    match run::run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
