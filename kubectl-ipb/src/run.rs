//! Runs the program.

use std::process::ExitCode;

use clap::Parser;

use crate::cluster::Cluster;
use crate::command::{Arguments, Command};
use crate::error::Error;
use crate::exit::Exit;
use crate::print::{clean, note};
use crate::{ban, check, complete, export, import, list, top, unban, why};

/// Runs the program with the command line of the process. Exit status 0: done; 1: it failed, or the answer is not as
/// asked; 2: the command line is wrong.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(arguments)),
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(Exit::Success) => ExitCode::SUCCESS,
        Ok(Exit::Failure) => ExitCode::FAILURE,
        Err(error) => {
            for line in error.to_string().lines() {
                note(&clean(line));
            }
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<Exit, Error> {
    let Arguments { command, access } = arguments;
    if let Command::Complete(words) = &command {
        return complete::run(&access, &words.words).await;
    }
    let cluster = Cluster::connect(&access).await?;
    match command {
        Command::List(arguments) => list::run(&cluster, arguments).await,
        Command::Ban(arguments) => ban::run(&cluster, arguments).await,
        Command::Unban(arguments) => unban::run(&cluster, arguments).await,
        Command::Why(arguments) => why::run(&cluster, arguments).await,
        Command::Check(arguments) => check::run(&cluster, arguments).await,
        Command::Top(arguments) => top::run(&cluster, arguments).await,
        Command::Import(arguments) => import::run(&cluster, arguments).await,
        Command::Export(arguments) => export::run(&cluster, arguments).await,
        Command::Complete(_) => Ok(Exit::Success),
    }
}
