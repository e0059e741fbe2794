//! A whole program from its options.

use std::process::ExitCode;

use super::{Options, Program};
use crate::manager::Manager;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Options {
    /// Runs `program` until SIGTERM or SIGINT: starts the log, builds the manager of these options, calls `add` with it,
    /// and runs it. An error is logged, and the exit code is then 1. A program that changes the builder of its manager
    /// calls [`Manager::from_options`] and [`Manager::run_until_signal`] itself.
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
        self.log.start();
        match self.until_signal(program, add).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                tracing::error!(error, program = program.name, "the program failed");
                ExitCode::FAILURE
            }
        }
    }

    async fn until_signal<T>(
        &self,
        program: Program,
        add: impl FnOnce(&Manager) -> Result<T, BoxError>,
    ) -> Result<(), BoxError> {
        let manager = Manager::from_options(self, program).await?.build().await?;
        add(&manager)?;
        Ok(manager.run_until_signal().await?)
    }
}
