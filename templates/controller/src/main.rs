//! The program: see `{{project-name}} --help`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use reeve_controller::Manager;
use reeve_controller::options::{Options, Program};
use {{crate_name}}::{NAME, api, controller};

/// The controller of {{plural}}.{{group}}.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Prints the CustomResourceDefinition.
    Crd,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Command::Crd) = arguments.command {
        print!("{}", api::crd().expect("a definition is valid YAML"));
        return ExitCode::SUCCESS;
    }
    let program = Program::new(NAME, env!("CARGO_PKG_VERSION"));
    let add = |manager: &Manager| Ok(manager.add_controller(controller::controller()?)?);
    arguments.options.run(program, add).await
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_flags_of_the_deployment_exist() {
        Arguments::command().debug_assert();
        let deployment = include_str!("../manifests/deployment.yaml");
        let flags = deployment.lines().filter_map(|line| {
            let flag = line.trim().strip_prefix("- ")?;
            flag.starts_with("--").then_some(flag)
        });
        let arguments = Arguments::try_parse_from([NAME].into_iter().chain(flags)).unwrap();
        assert!(arguments.options.leader_elect);
    }
}
