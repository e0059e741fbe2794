//! A whole program from its options.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use super::{Options, Program};
use crate::manager::{self, Manager};

/// The command line of a program without flags of its own.
#[derive(Debug, clap::Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

// === impl Options ===

impl Options {
    /// Runs `program` until SIGTERM or SIGINT: starts the log, builds the manager of these options, calls `add` with it,
    /// and runs it. An error is logged, and the exit code is then 1. A program that changes the builder of its manager
    /// calls [`Manager::from_options`] and [`Manager::run_until_signal`] itself. [`Program::run`] is the same for a program without
    /// flags of its own.
    ///
    /// After a lost lease, and when work outlives the grace period, it does not return: it exits with status 1. Such work
    /// may block a thread, for which the end of `main` would wait, while another replica leads.
    ///
    /// ```no_run
    /// use std::process::ExitCode;
    /// use std::sync::Arc;
    ///
    /// use clap::Parser;
    /// use k8s_openapi::api::core::v1::Pod;
    /// use reeve_controller::options::{Options, Program};
    /// use reeve_controller::prelude::*;
    ///
    /// #[derive(Parser)]
    /// struct Arguments {
    ///     #[command(flatten)]
    ///     options: Options,
    /// }
    ///
    /// async fn look(_: Context, pod: Arc<Pod>) -> reconcile::Result {
    ///     println!("{}", pod.name_any());
    ///     Ok(Outcome::done())
    /// }
    ///
    /// #[tokio::main]
    /// async fn main() -> ExitCode {
    ///     let program = Program::new("pods", env!("CARGO_PKG_VERSION"));
    ///     let add = |manager: &Manager| {
    ///         let pods = Controller::builder("pods").for_kind::<Pod>();
    ///         Ok(manager.add_controller(pods.complete(reconcile::object(look))?)?)
    ///     };
    ///     Arguments::parse().options.run(program, add).await
    /// }
    /// ```
    pub async fn run<T>(
        &self,
        program: Program,
        add: impl FnOnce(&Manager) -> Result<T, BoxError>,
    ) -> ExitCode {
        self.start(program, async |manager: &Manager| add(manager))
            .await
    }

    async fn start<T>(
        &self,
        program: Program,
        add: impl AsyncFnOnce(&Manager) -> Result<T, BoxError>,
    ) -> ExitCode {
        self.log.start();
        match self.until_signal(program, add).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                tracing::error!(error, program = program.name, "the program failed");
                let run = error.downcast_ref::<manager::Error>();
                if run.is_some_and(manager::Error::may_leave_work) {
                    // Dropped at the end of `main`, the runtime would wait for blocked threads.
                    std::process::exit(1);
                }
                ExitCode::FAILURE
            }
        }
    }

    async fn until_signal<T>(
        &self,
        program: Program,
        add: impl AsyncFnOnce(&Manager) -> Result<T, BoxError>,
    ) -> Result<(), BoxError> {
        let manager = Manager::from_options(self, program).await?.build().await?;
        add(&manager).await?;
        Ok(manager.run_until_signal().await?)
    }
}

// === impl Program ===

impl Program {
    /// The `main` of a program whose flags are [`Options`]: reads the command line, and then does as [`Options::run`]. `--help`,
    /// `--version` and wrong flags end the process, as those of `clap` do. `add` may wait, as for the discovery of a kind.
    ///
    /// ```no_run
    /// use std::process::ExitCode;
    /// use std::sync::Arc;
    ///
    /// use k8s_openapi::api::core::v1::Pod;
    /// use reeve_controller::options::Program;
    /// use reeve_controller::prelude::*;
    ///
    /// async fn look(_: Context, pod: Arc<Pod>) -> reconcile::Result {
    ///     println!("{}", pod.name_any());
    ///     Ok(Outcome::done())
    /// }
    ///
    /// #[tokio::main]
    /// async fn main() -> ExitCode {
    ///     let program = Program::new("pods", env!("CARGO_PKG_VERSION"));
    ///     let add = async |manager: &Manager| {
    ///         let pods = Controller::builder("pods").for_kind::<Pod>();
    ///         Ok(manager.add_controller(pods.complete(reconcile::object(look))?)?)
    ///     };
    ///     program.run(add).await
    /// }
    /// ```
    pub async fn run<T>(self, add: impl AsyncFnOnce(&Manager) -> Result<T, BoxError>) -> ExitCode {
        let options = self.options(std::env::args_os());
        let options = options.unwrap_or_else(|error| error.exit());
        options.start(self, add).await
    }

    fn options(
        self,
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Result<Options, clap::Error> {
        let command = Arguments::command().name(self.name).version(self.version);
        // Otherwise it is the comment of the options.
        let command = command.about(None::<&str>).long_about(None::<&str>);
        let matches = command.try_get_matches_from(arguments)?;
        Ok(Arguments::from_arg_matches(&matches)?.options)
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn a_program_has_the_flags_of_the_options_and_its_own_name_and_version() {
        let program = Program::new("teams", "1.2.3");
        let options = |arguments: &[&str]| program.options(arguments.iter().map(OsString::from));
        let options_of = options(&["any", "--leader-elect", "--metrics-bind-address=:8080"]);
        assert!(options_of.unwrap().leader_elect);
        let help = options(&["any", "--help"]).unwrap_err().to_string();
        assert!(help.starts_with("Usage: any [OPTIONS]\n"), "{help}");
        let version = options(&["any", "--version"]).unwrap_err();
        assert_eq!(version.kind(), ErrorKind::DisplayVersion);
        assert_eq!(version.to_string(), "teams 1.2.3\n");
        let wrong = options(&["any", "--colour"]).unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::UnknownArgument);
        assert!(wrong.to_string().contains("--colour"), "{wrong}");
    }
}
