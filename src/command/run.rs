//! `ipblock-operator run`.

use std::path::PathBuf;

use reeve_clock::Clock;
use reeve_controller::client::connect;
use reeve_controller::client::location::Location;
use reeve_controller::leader_election;
use reeve_controller::metrics::Metrics;
use reeve_controller::options::{BindAddress, LogOptions, MetricsOptions};
use tokio_util::task::AbortOnDropHandle;

use super::client;
use super::line::{Files, OwnNamespace};
use crate::audit;
use crate::mounted::{self, Directory};
use crate::operator::{self, Operator, Settings};
use crate::page;
use crate::policy::Protected;
use crate::target::Target;

// Metrics are plain HTTP and served unless the flags differ: present scrapes of the operator expect that.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("bind_address", |flag| flag.default_value(":8080")))]
#[command(mut_arg("secure", |flag| flag.default_value("false")))]
pub(super) struct Arguments {
    #[command(flatten, next_help_heading = "Cluster")]
    location: Location,

    #[command(flatten, next_help_heading = "Cluster")]
    own: OwnNamespace,

    /// Work on the blocks of this namespace only; unset, of every namespace.
    #[arg(long, value_name = "NAMESPACE", help_heading = "Cluster")]
    watch_namespace: Option<String>,

    #[command(flatten, next_help_heading = "Metrics and health")]
    metrics: MetricsOptions,

    /// Where /healthz and /readyz are served: ADDRESS:PORT, :PORT for every address, 0 for nowhere.
    #[arg(
        long,
        default_value = ":8081",
        value_name = "ADDRESS",
        help_heading = "Metrics and health"
    )]
    health_probe_bind_address: BindAddress,

    /// Let one of several replicas lead, by a Lease named ipblock-operator. Only the leader bans and lifts;
    /// every replica takes alerts. The identity is POD_NAME, so that a restarted Pod leads again at once.
    #[arg(
        long,
        action = clap::ArgAction::Set,
        value_parser = clap::builder::BoolishValueParser::new(),
        default_value = "false",
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        value_name = "BOOL",
        help_heading = "Cluster"
    )]
    leader_elect: bool,

    /// How many blocks are worked on at once. Most of them wait for the API server; calls of a gateway have a limit of their own.
    #[arg(
        long,
        default_value_t = 128,
        value_name = "NUMBER",
        value_parser = clap::value_parser!(u16).range(1..),
        help_heading = "Cluster"
    )]
    workers: u16,

    /// Allow gateways and notification hooks on a loopback address: for local trials, or an agent on the
    /// same host network. Link-local and metadata addresses are always refused.
    #[arg(
        long,
        alias = "allow-loopback-gateway",
        help_heading = "What the ConfigMap may do"
    )]
    allow_loopback: bool,

    /// Serve triggers that have no credentials configured. Every client that reaches them can ban addresses.
    #[arg(long, help_heading = "What the ConfigMap may do")]
    insecure_triggers: bool,

    #[command(flatten, next_help_heading = "What the ConfigMap may do")]
    files: Files,

    /// Read the card templates of the ConfigMap below this directory too, beside --secrets-dir.
    #[arg(
        long,
        value_name = "DIR",
        default_value = mounted::TEMPLATES,
        help_heading = "What the ConfigMap may do"
    )]
    templates_dir: PathBuf,

    /// Read the first configuration as leniently as the original operator: a whitelist line that is not an address is
    /// left out, an unknown engine becomes xdp. For a takeover; each is a Warning Event, and an error at the next edit.
    #[arg(long, help_heading = "What the ConfigMap may do")]
    takeover: bool,

    /// Where the read-only page of the operator is served: ADDRESS:PORT, :PORT for every address, 0 for nowhere. On a
    /// loopback address it is open to this machine; elsewhere it is for users with the right to get its paths.
    #[arg(
        long,
        default_value = "0",
        value_name = "ADDRESS",
        help_heading = "Page"
    )]
    page_address: BindAddress,

    /// Serve the page only to clients with a token of this file, one a line. A browser asks for it as a password.
    #[arg(
        long,
        value_name = "FILE",
        requires = "page_address",
        help_heading = "Page"
    )]
    page_token_file: Option<PathBuf>,

    /// Serve the page by HTTPS, with tls.crt and tls.key of this directory.
    #[arg(
        long,
        value_name = "DIR",
        requires = "page_address",
        help_heading = "Page"
    )]
    page_cert_path: Option<PathBuf>,

    /// Append a JSON line for each ban, lift and refusal to this file; - for the standard output. A file that was moved
    /// away is created again, and SIGHUP opens it again; its size is not bounded.
    #[arg(long, value_name = "FILE", help_heading = "Log")]
    audit_log: Option<audit::Destination>,

    #[command(flatten, next_help_heading = "Log")]
    pub(super) log: LogOptions,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Client(#[from] connect::Error),
    #[error(transparent)]
    Operator(#[from] operator::Error),
    #[error("cannot open the audit log {destination}: {source}")]
    Audit {
        destination: audit::Destination,
        source: std::io::Error,
    },
}

pub(super) async fn run(arguments: Arguments) -> Result<(), Error> {
    let clock = Clock::system();
    let metrics = Metrics::new();
    let client = client::client(&arguments.location, &metrics).await?;
    let mut settings = Settings::new(clock.clone());
    settings.namespace = arguments.own.namespace;
    settings.watch_namespace = arguments.watch_namespace;
    settings.identity = arguments
        .leader_elect
        .then(|| leader_election::identity(&clock));
    settings.metrics_server = arguments.metrics.server();
    settings.log_levels = arguments.log.levels();
    settings.health_address = arguments.health_probe_bind_address.address();
    settings.workers = usize::from(arguments.workers);
    settings.allow_loopback = arguments.allow_loopback;
    settings.insecure_triggers = arguments.insecure_triggers;
    settings.bearer_over_http = arguments.files.allow_bearer_over_http;
    settings.secrets = Directory::new(arguments.files.secrets_dir);
    settings.templates = Directory::new(arguments.templates_dir);
    settings.takeover = arguments.takeover;
    settings.infrastructure = operator::infrastructure(|name| std::env::var(name).ok());
    let server = client::server(&arguments.location).await;
    settings
        .infrastructure
        .extend(server.into_iter().map(|address| Protected {
            target: Target::host(address),
            what: "the API server".into(),
        }));
    settings.metrics = metrics;
    let (token_file, certificates) = (arguments.page_token_file, arguments.page_cert_path);
    settings.page = arguments
        .page_address
        .address()
        .map(|address| page::Settings {
            address,
            token_file,
            certificates,
        });
    let _reopening = match arguments.audit_log {
        Some(destination) => {
            let replica = leader_election::identity(&clock);
            settings.audit =
                audit::Log::open(&destination, replica).map_err(|source| Error::Audit {
                    destination,
                    source,
                })?;
            Some(reopen_at_signal(settings.audit.clone()))
        }
        None => None,
    };
    if arguments.insecure_triggers {
        tracing::warn!(
            "--insecure-triggers is set: every client that reaches a trigger without credentials can ban addresses"
        );
    }
    let operator = Operator::build(client, settings).await?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        health = operator
            .manager()
            .health_address()
            .map(tracing::field::display),
        metrics = operator
            .manager()
            .metrics_address()
            .map(tracing::field::display),
        page = operator.page_address().map(tracing::field::display),
        "starting"
    );
    operator.run_until_signal().await?;
    tracing::info!("stopped");
    Ok(())
}

/// Has the audit log opened again at SIGHUP, which ends the process without this.
fn reopen_at_signal(log: audit::Log) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            match signal(SignalKind::hangup()) {
                Ok(mut hangup) => {
                    while hangup.recv().await.is_some() {
                        log.reopen();
                    }
                }
                Err(error) => tracing::warn!(%error, "SIGHUP does not reopen the audit log"),
            }
        }
        #[cfg(not(unix))]
        drop(log);
    }))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn server(flags: &[&str]) -> String {
        let command = Command::try_parse_from(["run"].iter().chain(flags)).unwrap();
        format!("{:?}", command.arguments.metrics.server())
    }

    #[test]
    fn metrics_are_plain_and_open_unless_flags_say_otherwise() {
        let plain = server(&[]);
        for text in [":8080", "secure: None", "protected: false"] {
            assert!(plain.contains(text), "{plain}");
        }
        assert_eq!(server(&["--metrics-bind-address=0"]), "None");
        let secure = server(&["--metrics-bind-address=:8443", "--metrics-secure"]);
        for text in [":8443", "SelfSigned", "protected: true"] {
            assert!(secure.contains(text), "{secure}");
        }
        let files = server(&["--metrics-secure", "--metrics-cert-path=/certs"]);
        assert!(files.contains("/certs/tls.crt"), "{files}");
    }

    #[test]
    fn the_namespace_is_default_as_the_originals_unless_a_flag_names_another() {
        let read = |flags: &[&str]| {
            let command = Command::try_parse_from(["run"].iter().chain(flags)).unwrap();
            command.arguments.own.namespace
        };
        // The environment of a Pod names its own.
        if std::env::var_os("POD_NAMESPACE").is_none() {
            assert_eq!(read(&[]), "default");
        }
        assert_eq!(read(&["--namespace=bans"]), "bans");
        let clock = reeve_clock::Clock::system();
        assert_eq!(Settings::new(clock).namespace, "default");
    }

    #[test]
    fn one_flag_allows_loopback_and_its_former_name_still_does() {
        let read = |flags: &[&str]| {
            let command = Command::try_parse_from(["run"].iter().chain(flags)).unwrap();
            command.arguments.allow_loopback
        };
        assert!(!read(&[]));
        assert!(read(&["--allow-loopback"]) && read(&["--allow-loopback-gateway"]));
    }

    #[test]
    fn leading_is_asked_for_alone_or_with_a_value_as_in_go() {
        let read = |flags: &[&str]| {
            let command = Command::try_parse_from(["run"].iter().chain(flags)).ok()?;
            Some(command.arguments.leader_elect)
        };
        for (flags, expected) in [
            (&[][..], Some(false)),
            (&["--leader-elect"], Some(true)),
            (&["--leader-elect=true"], Some(true)),
            (&["--leader-elect=false"], Some(false)),
            (&["--leader-elect=maybe"], None),
            (&["--leader-elect", "false"], None),
        ] {
            assert_eq!(read(flags), expected, "{flags:?}");
        }
    }
}
