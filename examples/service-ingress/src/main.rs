//! The program: see `service-ingress --help`.

use std::process::ExitCode;

use clap::Parser;
use reeve_controller::Manager;
use reeve_controller::options::{Options, Program};
use service_ingress::desired::Defaults;
use service_ingress::{Form, NAME, Settings};
use tokio_util::sync::CancellationToken;

/// Gives every Service with the annotation `ingress/http` an Ingress of its name.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    options: Options,

    /// The construction of the controller: by hand, or with the controller builder. Both do the same.
    #[arg(long, value_enum, default_value = "managed")]
    form: Form,

    /// The number of Services that are reconciled at once.
    #[arg(long, default_value_t = 8, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,

    /// The number of retries when the API server refuses a write.
    #[arg(long, default_value_t = 8, value_name = "NUMBER")]
    max_retry: u32,

    /// The host of an Ingress whose Service does not name one.
    #[arg(long, default_value = "example.com", value_name = "NAME")]
    host: String,

    /// The IngressClass of an Ingress whose Service does not name one.
    #[arg(long, default_value = "nginx", value_name = "NAME")]
    ingress_class: String,
}

type BoxError = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> ExitCode {
    // The flag package of Go, which the original uses, accepts one dash as well as two.
    let arguments = std::env::args().map(|argument| match argument.strip_prefix("-kubeconfig") {
        Some(rest) => format!("--kubeconfig{rest}"),
        None => argument,
    });
    let arguments = Arguments::parse_from(arguments);
    arguments.options.log.start();
    match run(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error, "ended");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), BoxError> {
    let program = Program::new(NAME, env!("CARGO_PKG_VERSION"));
    let builder = Manager::from_options(&arguments.options, program).await?;
    let settings = Settings {
        workers: usize::from(arguments.workers),
        max_retry: arguments.max_retry,
        defaults: Defaults {
            host: arguments.host,
            class: arguments.ingress_class,
            ..Defaults::default()
        },
        ..Settings::new(arguments.form)
    };
    let manager = service_ingress::build(builder, settings).await?;
    run_until_signal(&manager).await
}

/// Runs until SIGINT, SIGTERM or SIGQUIT, as the original program; a second signal exits at once.
async fn run_until_signal(manager: &Manager) -> Result<(), BoxError> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut quit = signal(SignalKind::quit())?;
    let mut next = async || {
        tokio::select! {
            biased;
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = quit.recv() => {}
        }
    };
    let stop = CancellationToken::new();
    let run = manager.run(stop.clone());
    let asked = async {
        next().await;
        tracing::info!("program shutdown...");
        stop.cancel();
        next().await;
        std::process::exit(1);
    };
    tokio::select! {
        biased;
        ended = run => Ok(ended?),
        () = asked => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_flags_of_the_deployment_exist() {
        Arguments::command().debug_assert();
        let deployment = include_str!("../manifests/deploy.yaml");
        let flags = deployment.lines().filter_map(|line| {
            let flag = line.trim().strip_prefix("- ")?;
            flag.starts_with("--").then_some(flag)
        });
        let arguments = Arguments::try_parse_from([NAME].into_iter().chain(flags)).unwrap();
        let options = arguments.options;
        assert!(options.leader_elect && !options.metrics.secure);
        let metrics = options.metrics.bind_address.address().unwrap();
        assert_eq!(metrics.port(), 8080);
        assert_eq!((arguments.workers, arguments.max_retry), (8, 8));
    }
}
