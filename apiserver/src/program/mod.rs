//! The program `reeve-apiserver`: its command line, and the server that it describes.

mod arguments;
mod files;
mod manifests;
mod run;
mod seed;
mod stop;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::envtest::Role;
use crate::process::log;
use arguments::Arguments;

/// The command line, for completions and the manual page.
#[must_use]
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the program: as a program of envtest, if it has the name of one.
#[must_use]
pub fn main() -> ExitCode {
    let mut words = std::env::args_os();
    if let Some(role) = words.next().and_then(|program| Role::of(&program)) {
        let arguments = words.map(|word| word.to_string_lossy().into_owned());
        return role.run(&arguments.collect::<Vec<_>>());
    }
    log("warn");
    finish(Arguments::parse())
}

#[tokio::main]
async fn finish(arguments: Arguments) -> ExitCode {
    match run::run(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
