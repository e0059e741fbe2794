//! The program: see `service-ingress --help`.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use kube_client::Config;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use reeve_clock::Clock;
use reeve_controller::client::connect;
use reeve_controller::metrics::Metrics;
use reeve_controller::{Manager, leader_election};
use service_ingress::desired::Defaults;
use service_ingress::{Form, NAME, Settings};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// Gives every Service with the annotation `ingress/http` an Ingress of its name.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The kubeconfig to use. Unset: that of KUBECONFIG, ~/.kube/config, or the service account of the Pod.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// How the controller is put together: by hand, or on the controller builder. Both do the same.
    #[arg(long, value_enum, default_value = "managed")]
    form: Form,

    /// How many Services are worked on at once.
    #[arg(long, default_value_t = 8, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,

    /// How often a write is tried again that the API server refuses, before it is given up.
    #[arg(long, default_value_t = 8, value_name = "NUMBER")]
    max_retry: u32,

    /// The host of an Ingress whose Service names none.
    #[arg(long, default_value = "example.com", value_name = "NAME")]
    host: String,

    /// The IngressClass of an Ingress whose Service names none.
    #[arg(long, default_value = "nginx", value_name = "NAME")]
    ingress_class: String,

    /// Let one of several copies work, by the Lease `service-ingress`. A copy is known by POD_NAME.
    #[arg(long)]
    leader_elect: bool,

    /// The namespace of the Lease.
    #[arg(
        long,
        env = "POD_NAMESPACE",
        default_value = "default",
        value_name = "NAMESPACE"
    )]
    leader_election_namespace: String,

    /// Where /healthz and /readyz are served. Unset: nowhere.
    #[arg(long, value_name = "ADDRESS:PORT")]
    health_probe_bind_address: Option<SocketAddr>,

    /// Where /metrics is served. Unset: nowhere.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_bind_address: Option<SocketAddr>,
}

type BoxError = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    // The flag package of Go takes one dash as well as two.
    let arguments = std::env::args().map(|argument| match argument.strip_prefix("-kubeconfig") {
        Some(rest) => format!("--kubeconfig{rest}"),
        None => argument,
    });
    match run(Arguments::parse_from(arguments)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error, "ended");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), BoxError> {
    let clock = Clock::system();
    let metrics = Metrics::new();
    let client = client(arguments.kubeconfig, &metrics).await?;
    let lease = arguments.leader_elect.then(|| {
        let namespace = arguments.leader_election_namespace;
        leader_election::Options::new(namespace, NAME, leader_election::identity(&clock))
    });
    let manager = service_ingress::build(
        client,
        Settings {
            workers: usize::from(arguments.workers),
            max_retry: arguments.max_retry,
            defaults: Defaults {
                host: arguments.host,
                class: arguments.ingress_class,
                ..Defaults::default()
            },
            metrics,
            leader_election: lease,
            health_address: arguments.health_probe_bind_address,
            metrics_address: arguments.metrics_bind_address,
            ..Settings::new(arguments.form, clock)
        },
    );
    run_until_signal(&manager.await?).await
}

async fn client(
    kubeconfig: Option<PathBuf>,
    metrics: &Metrics,
) -> Result<kube_client::Client, BoxError> {
    let options = connect::Options::new()
        .user_agent(concat!("service-ingress/", env!("CARGO_PKG_VERSION")))
        .metrics(metrics);
    let Some(path) = kubeconfig else {
        return Ok(connect::infer(&options).await?);
    };
    let unusable = |error| format!("the kubeconfig {} cannot be used: {error}", path.display());
    let kubeconfig = Kubeconfig::read_from(&path).map_err(unusable)?;
    let defaults = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &defaults).await;
    Ok(connect::connect(config.map_err(unusable)?, &options)?)
}

/// Runs until SIGINT, SIGTERM or SIGQUIT, as the program that this one follows; a second one exits at once.
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
