//! The arguments of all commands.

use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use reeve_clock::Clock;
use reeve_controller::options::LogOptions;
use tokio::runtime::{Builder, Runtime};

use super::{gateway, run, trigger, uninstall};
use crate::sets::Plugin;
use crate::{manifest, mounted};

/// The variable that tokio reads by itself, too. It panics at a wrong value.
const THREADS: &str = "TOKIO_WORKER_THREADS";
const ALLOWED_THREADS: RangeInclusive<usize> = 1..=1024;

/// Bans the IP addresses of IPBlock and BlockList objects, and lifts the bans when due.
///
#[cfg_attr(
    feature = "dev",
    doc = "Without a cluster: `ipblock-operator dev` runs an API server, a simulated gateway and the operator in \
           one process."
)]
/// In a cluster: apply the manifests, which start `ipblock-operator run`.
#[derive(Debug, Parser)]
#[command(name = "ipblock-operator", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the operator, in a Pod or with a kubeconfig.
    ///
    /// Everything about gateways, allowlists and alerts is in the ConfigMap `ipblock-operator-config` of the
    /// operator's namespace, and is read again when it changes.
    Run(Box<run::Arguments>),
    /// Run everything on this machine: API server, simulated gateway, operator. No cluster needed.
    #[cfg(feature = "dev")]
    Dev(crate::dev::Arguments),
    /// Run the simulated gateway alone: both gateway APIs, and what it enforces.
    Gateway(gateway::Arguments),
    /// Try triggers without a cluster.
    Trigger(trigger::Arguments),
    /// Print the CustomResourceDefinitions as YAML.
    Crd {
        /// Leave out the CEL rules, which Kubernetes before 1.31 refuses: the operator alone checks blocks then.
        #[arg(long)]
        without_rules: bool,
    },
    /// Print the access rules of the operator as YAML.
    Rbac {
        #[command(flatten)]
        own: OwnNamespace,
        /// Print the further rules that an engine of this type needs instead: cilium or calico.
        #[arg(long, value_name = "TYPE", value_parser = plugin)]
        engine: Option<Plugin>,
    },
    /// Release all blocks, so that the operator can be removed: lift their bans or keep them, and remove
    /// the finalizers.
    ///
    /// Scale the operator to zero first, or it adds the finalizers again: --scale-down does it.
    Uninstall(uninstall::Arguments),
}

/// Where the operator's own objects are.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct OwnNamespace {
    /// The operator's namespace: of its ConfigMap, its lease, and the blocks that alerts make.
    #[arg(
        long,
        env = "POD_NAMESPACE",
        default_value = "default",
        value_name = "NAMESPACE"
    )]
    pub(super) namespace: String,
}

/// The files that the ConfigMap names, and where their content may be sent.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Files {
    /// Read the files of the ConfigMap's keys (tokens, secrets, certificates) below this directory only.
    #[arg(long, value_name = "DIR", default_value = mounted::SECRETS)]
    pub(super) secrets_dir: PathBuf,

    /// Send the gateway's bearer token over plain HTTP too. On loopback it is sent without this flag.
    #[arg(long)]
    pub(super) allow_bearer_over_http: bool,
}

/// The command line, for completions and the manual page.
#[must_use]
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the command line.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match execute(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            #[allow(
                clippy::print_stderr,
                reason = "the log may not be set up, and the terminal shows the reason"
            )]
            {
                eprintln!("ipblock-operator: {message}");
            }
            ExitCode::FAILURE
        }
    }
}

fn plugin(name: &str) -> Result<Plugin, String> {
    let found = Plugin::ALL.iter().find(|plugin| plugin.name() == name);
    found.copied().ok_or_else(|| "use cilium or calico".into())
}

fn execute(command: Command) -> Result<(), String> {
    match command {
        Command::Crd { without_rules } => {
            let crd = if without_rules {
                manifest::crd_without_rules()
            } else {
                manifest::crd()
            };
            print(&crd.map_err(with_causes)?)
        }
        Command::Rbac { own, engine } => {
            let rules = match engine {
                Some(plugin) => manifest::engine_rbac(plugin, &own.namespace),
                None => manifest::rbac(&own.namespace),
            };
            print(&rules.map_err(with_causes)?)
        }
        Command::Trigger(arguments) => {
            let (report, outcome) = trigger::run(&arguments);
            print(&report)?;
            outcome.map_err(with_causes)
        }
        Command::Run(arguments) => {
            arguments.log.start();
            one_thread()?
                .block_on(run::run(*arguments))
                .map_err(with_causes)
        }
        #[cfg(feature = "dev")]
        Command::Dev(arguments) => {
            LogOptions::default().start_with(arguments.log_level());
            runtime(&mut Builder::new_multi_thread())?
                .block_on(crate::dev::run(arguments))
                .map_err(with_causes)
        }
        Command::Gateway(arguments) => {
            LogOptions::default().start();
            one_thread()?
                .block_on(gateway::run(arguments, Clock::system()))
                .map_err(with_causes)
        }
        Command::Uninstall(arguments) => {
            arguments.log.start();
            one_thread()?
                .block_on(uninstall::run(arguments))
                .map_err(with_causes)
        }
    }
}

/// A runtime whose tasks run on one thread. A lifecycle is a dozen short steps, and a step that another thread continues
/// costs a wake of that thread: see docs/decisions/operator.md.
fn one_thread() -> Result<Runtime, String> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads(std::env::var_os(THREADS).as_deref())?);
    runtime(&mut builder)
}

/// The number of threads for the tasks of the operator: the value of [`THREADS`], else one.
fn threads(value: Option<&OsStr>) -> Result<usize, String> {
    let Some(value) = value else { return Ok(1) };
    let number = value.to_str().and_then(|value| value.parse().ok());
    let number = number.filter(|number| ALLOWED_THREADS.contains(number));
    number.ok_or_else(|| {
        let (least, most) = ALLOWED_THREADS.into_inner();
        format!("{THREADS}: {value:?} is not a number of threads, from {least} to {most}")
    })
}

fn runtime(builder: &mut Builder) -> Result<Runtime, String> {
    builder
        .enable_all()
        .build()
        .map_err(|error| format!("no runtime: {error}"))
}

fn print(text: &str) -> Result<(), String> {
    use std::io::Write as _;
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| format!("cannot print: {error}"))
}

/// An error with its causes, each text once.
fn with_causes(error: impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_run_on_one_thread_unless_the_environment_sets_another_number() {
        assert_eq!(threads(None), Ok(1));
        assert_eq!(threads(Some("4".as_ref())), Ok(4));
        for wrong in ["", "0", "-1", "two", "100000"] {
            let error = threads(Some(wrong.as_ref())).unwrap_err();
            let expected = format!(
                "TOKIO_WORKER_THREADS: {wrong:?} is not a number of threads, from 1 to 1024"
            );
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_flag_has_a_help_text() {
        for command in Arguments::command().get_subcommands() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{} --{}",
                    command.get_name(),
                    argument.get_id()
                );
            }
        }
    }
}
