//! The program: see `traced --help`.

use std::process::ExitCode;

use clap::Parser;
use reeve_controller::Manager;
use reeve_controller::options::{Options, Program};
use traced::Exporter;
use tracing_subscriber::prelude::*;

/// Counts the words of ConfigMaps, and exports the spans of its reconciles to OTEL_EXPORTER_OTLP_ENDPOINT.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments.options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error, "ended");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let exporter = Exporter::start("traced", None).inspect_err(|_| {
        // Without a log the error would be shown nowhere.
        options.log.start();
    })?;
    tracing_subscriber::registry()
        .with(exporter.layer())
        .with(options.log.layer("info"))
        .init();
    let runtime = tokio::runtime::Runtime::new()?;
    let ended = runtime.block_on(manage(options));
    // The last spans, also after an error.
    if let Err(error) = exporter.stop() {
        tracing::warn!(error, "the last spans may be lost");
    }
    ended
}

async fn manage(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let program = Program::new("traced", env!("CARGO_PKG_VERSION"));
    let manager = Manager::from_options(options, program)
        .await?
        .build()
        .await?;
    traced::add(&manager)?;
    Ok(manager.run_until_signal().await?)
}
