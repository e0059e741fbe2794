//! The flags that programs on this crate have in common, named as kubebuilder names them.
//!
//! With the feature `clap` they are `clap::Args`, for flattening into a program's own:
//!
//! ```
//! # #[cfg(feature = "clap")] {
//! use clap::Parser;
//! use reeve_controller::Manager;
//! use reeve_controller::options::{Options, Program};
//!
//! /// Greets.
//! #[derive(Parser)]
//! struct Arguments {
//!     #[command(flatten)]
//!     options: Options,
//!     /// The greeting.
//!     #[arg(long, default_value = "hello")]
//!     greeting: String,
//! }
//!
//! async fn run() -> Result<(), Box<dyn std::error::Error>> {
//!     let arguments = Arguments::parse();
//!     arguments.options.log.start();
//!     let manager = Manager::from_options(&arguments.options, Program::new("greeter", "1.2.0")).await?;
//!     let manager = manager.build().await?;
//!     // … controllers
//!     manager.run_until_signal().await?;
//!     Ok(())
//! }
//! let arguments = Arguments::parse_from(["greeter", "--leader-elect", "--metrics-bind-address=:8443"]);
//! assert!(arguments.options.leader_elect && arguments.options.metrics.secure);
//! # }
//! ```
//!
//! | flag | environment | default |
//! |---|---|---|
//! | `--kubeconfig`, `--context` | `KUBECONFIG` | see [`location`](crate::client::location) |
//! | `--watch-namespace` | `WATCH_NAMESPACE` | every namespace; `a,b` for two |
//! | `--health-probe-bind-address` | | `:8081` |
//! | `--metrics-bind-address` | | `0`: not served; `:8443` for HTTPS, `:8080` with `--metrics-secure=false` |
//! | `--metrics-secure` | | `true`: HTTPS, and only for clients that the API server lets read: [`MetricsServer::protected`] |
//! | `--metrics-cert-path`, `--metrics-cert-name`, `--metrics-cert-key` | | self-signed, `tls.crt`, `tls.key` |
//! | `--metrics-client-ca-file` | | no certificate is requested; with it, one of these authorities must have signed the client's |
//! | `--enable-http2` | | `false`: for the metrics server |
//! | `--enable-webhooks`, with the feature `webhook` | `ENABLE_WEBHOOKS` | `true`, also for an empty variable; `false`: the webhook server does not run, for a program outside of the cluster |
//! | `--webhook-port` | | `9443` |
//! | `--webhook-cert-path`, `--webhook-cert-name`, `--webhook-cert-key` | | `/tmp/k8s-webhook-server/serving-certs`, `tls.crt`, `tls.key` |
//! | `--leader-elect` | | `false` |
//! | `--leader-election-namespace` | `POD_NAMESPACE` | the service account's namespace |
//! | `--log-level` (`--zap-log-level`), `--log-format` (`--zap-encoder`) | `RUST_LOG` for the level | `info`, `text` |
//! | `--zap-devel` | | unset; `true`: `debug` and `text`, `false`: `info` and `json`, where the flags above and `RUST_LOG` are unset |
//! | `--zap-stacktrace-level`, `--zap-time-encoding` | | accepted, so that a Deployment with them starts, without effect: the log has no stack traces, and its times are RFC 3339 |
//!
//! A flag wins over its environment variable. A Boolean flag may stand alone, for on, or with `=true` or `=false`; as
//! in Go, `=1`, `=t`, `=T`, `=True` and their opposites are valid, and `=yes` and `=on` too.

mod address;
#[cfg(feature = "clap")]
mod log;
#[cfg(feature = "clap")]
mod run;
#[cfg(all(feature = "clap", feature = "webhook"))]
mod switch;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use crate::client::connect;
use crate::client::location::Location;
use crate::leader_election;
use crate::manager::{self, Manager};
use crate::metrics::Metrics;
use crate::metrics_server::{Certificate, MetricsServer};

#[cfg(feature = "clap")]
pub use crate::log_levels::{LevelError, LogLevels};
pub use address::BindAddress;
#[cfg(feature = "clap")]
pub use log::{LogFormat, LogOptions};

/// The file in which the kubelet puts the namespace of a Pod.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The identity of a program: for `User-Agent`, and for the name of its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    name: &'static str,
    version: &'static str,
}

/// The options of a manager on the command line.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "clap", group(skip))]
#[non_exhaustive]
pub struct Options {
    /// The cluster.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub location: Location,

    /// Watch objects of this namespace only, or of several with commas between them; unset, of every namespace.
    #[cfg_attr(
        feature = "clap",
        arg(long, env = "WATCH_NAMESPACE", value_name = "NAMESPACE")
    )]
    pub watch_namespace: Option<String>,

    /// The address of /healthz and /readyz: ADDRESS:PORT, :PORT for every address, 0 for none.
    #[cfg_attr(
        feature = "clap",
        arg(long, default_value = ":8081", value_name = "ADDRESS")
    )]
    pub health_probe_bind_address: BindAddress,

    /// The metrics server.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub metrics: MetricsOptions,

    /// The webhook server.
    #[cfg(feature = "webhook")]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub webhook: WebhookOptions,

    /// Let one of several copies lead, by a Lease. The others stand by.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            action = clap::ArgAction::Set,
            value_parser = clap::builder::BoolishValueParser::new(),
            default_value = "false",
            default_missing_value = "true",
            num_args = 0..=1,
            require_equals = true,
            value_name = "BOOL"
        )
    )]
    pub leader_elect: bool,

    /// The namespace of the Lease; unset, the Pod's.
    #[cfg_attr(
        feature = "clap",
        arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")
    )]
    pub leader_election_namespace: Option<String>,

    /// The log.
    #[cfg(feature = "clap")]
    #[command(flatten)]
    pub log: LogOptions,
}

/// The options of the metrics server on the command line.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "clap", group(skip))]
#[non_exhaustive]
pub struct MetricsOptions {
    /// The address of /metrics: ADDRESS:PORT, :PORT for every address (:8443 for HTTPS, :8080 for HTTP), 0 for none.
    #[cfg_attr(
        feature = "clap",
        arg(
            long = "metrics-bind-address",
            default_value = "0",
            value_name = "ADDRESS"
        )
    )]
    pub bind_address: BindAddress,

    /// Serve metrics over HTTPS, only to clients that the API server lets read them; =false for plain HTTP to all.
    #[cfg_attr(
        feature = "clap",
        arg(
            long = "metrics-secure",
            action = clap::ArgAction::Set,
            value_parser = clap::builder::BoolishValueParser::new(),
            default_value = "true",
            default_missing_value = "true",
            num_args = 0..=1,
            require_equals = true,
            value_name = "BOOL"
        )
    )]
    pub secure: bool,

    /// The directory of the metrics server's certificate; unset, it signs its own.
    #[cfg_attr(feature = "clap", arg(long = "metrics-cert-path", value_name = "DIR"))]
    pub cert_path: Option<PathBuf>,

    /// The file of the certificate in that directory.
    #[cfg_attr(
        feature = "clap",
        arg(
            long = "metrics-cert-name",
            default_value = "tls.crt",
            value_name = "FILE"
        )
    )]
    pub cert_name: String,

    /// The file of its key in that directory.
    #[cfg_attr(
        feature = "clap",
        arg(
            long = "metrics-cert-key",
            default_value = "tls.key",
            value_name = "FILE"
        )
    )]
    pub cert_key: String,

    /// Accept only clients with a certificate that one of the authorities in this file signed.
    #[cfg_attr(
        feature = "clap",
        arg(long = "metrics-client-ca-file", value_name = "FILE")
    )]
    pub client_ca_file: Option<PathBuf>,

    /// Offer HTTP/2 over HTTPS.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            action = clap::ArgAction::Set,
            value_parser = clap::builder::BoolishValueParser::new(),
            default_value = "false",
            default_missing_value = "true",
            num_args = 0..=1,
            require_equals = true,
            value_name = "BOOL"
        )
    )]
    pub enable_http2: bool,
}

/// The options of the webhook server on the command line.
#[cfg(feature = "webhook")]
#[derive(Clone, Debug)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "clap", group(skip))]
#[non_exhaustive]
pub struct WebhookOptions {
    /// Whether the webhook server runs (kubebuilder: `ENABLE_WEBHOOKS`).
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "enable_webhooks",
            long = "enable-webhooks",
            env = "ENABLE_WEBHOOKS",
            action = clap::ArgAction::Set,
            value_parser = switch::OnIfEmpty::default(),
            default_value = "true",
            default_missing_value = "true",
            num_args = 0..=1,
            require_equals = true,
            value_name = "BOOL"
        )
    )]
    pub enable: bool,

    /// The port of the webhook server, on every address.
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "webhook_port",
            long = "webhook-port",
            default_value_t = 9443,
            value_name = "PORT"
        )
    )]
    pub port: u16,

    /// The directory of the webhook server's certificate; unset, that of controller-runtime, or the one that the program makes.
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "webhook_cert_path",
            long = "webhook-cert-path",
            value_name = "DIR"
        )
    )]
    pub cert_path: Option<PathBuf>,

    /// The file of the certificate in that directory.
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "webhook_cert_name",
            long = "webhook-cert-name",
            default_value = "tls.crt",
            value_name = "FILE"
        )
    )]
    pub cert_name: String,

    /// The file of its key in that directory.
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "webhook_cert_key",
            long = "webhook-cert-key",
            default_value = "tls.key",
            value_name = "FILE"
        )
    )]
    pub cert_key: String,
}

/// The reason why options do not make a manager.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cluster could not be found.
    #[error(transparent)]
    Connect(#[from] connect::Error),
    /// The namespace of the lease is unknown.
    #[error(
        "--leader-elect needs a namespace for its Lease: the process does not run in a Pod; set --leader-election-namespace"
    )]
    NoNamespace,
}

// === impl Program ===

impl Program {
    /// The program's name, which is also that of its lease, and its version.
    #[must_use]
    pub const fn new(name: &'static str, version: &'static str) -> Self {
        Self { name, version }
    }

    /// The value of `User-Agent`: `greeter/1.2.0 (linux/x86_64) reeve/0.1.0`.
    #[must_use]
    pub fn user_agent(&self) -> String {
        format!(
            "{}/{} ({}/{}) reeve/{}",
            self.name,
            self.version,
            std::env::consts::OS,
            std::env::consts::ARCH,
            env!("CARGO_PKG_VERSION")
        )
    }
}

// === impl MetricsOptions ===

impl Default for MetricsOptions {
    /// Not served by default.
    fn default() -> Self {
        Self {
            bind_address: BindAddress::default(),
            secure: true,
            cert_path: None,
            cert_name: "tls.crt".into(),
            cert_key: "tls.key".into(),
            client_ca_file: None,
            enable_http2: false,
        }
    }
}

impl MetricsOptions {
    /// The metrics server of these options, if it is enabled.
    #[must_use]
    pub fn server(&self) -> Option<MetricsServer> {
        let mut server = MetricsServer::at(self.bind_address.address()?);
        if let Some(file) = &self.client_ca_file {
            server = server.client_authorities(file);
        }
        if !self.secure {
            return Some(server);
        }
        let certificate = match &self.cert_path {
            None => Certificate::SelfSigned,
            Some(directory) => Certificate::Files {
                chain: directory.join(&self.cert_name),
                key: directory.join(&self.cert_key),
            },
        };
        let server = server.secure(certificate).http2(self.enable_http2);
        Some(server.protected())
    }
}

// === impl WebhookOptions ===

/// The directory of certificates of controller-runtime's webhook server.
#[cfg(feature = "webhook")]
const SERVING_CERTS: &str = "/tmp/k8s-webhook-server/serving-certs";

#[cfg(feature = "webhook")]
impl Default for WebhookOptions {
    fn default() -> Self {
        Self {
            enable: true,
            port: 9443,
            cert_path: None,
            cert_name: "tls.crt".into(),
            cert_key: "tls.key".into(),
        }
    }
}

#[cfg(feature = "webhook")]
impl WebhookOptions {
    /// The webhook server of these options, without webhooks. Its certificate is in files, unless the program makes its own
    /// ([`manager::Builder::webhook_certificates`]). [`WebhookOptions::enable`] does not change it: the manager does not run it.
    pub fn server(&self) -> reeve_webhook::Server {
        let directory = self
            .cert_path
            .clone()
            .unwrap_or_else(|| SERVING_CERTS.into());
        let certificate = reeve_webhook::Certificate::Files {
            chain: directory.join(&self.cert_name),
            key: directory.join(&self.cert_key),
        };
        reeve_webhook::Server::at(address::everywhere(self.port)).certificate(certificate)
    }
}

// === impl Manager ===

impl Manager {
    /// Begins a manager with `options`: with a client that names `program`, its servers, and its election by a lease of
    /// the program's name. With a log that these options started, the metrics server has `/debug/log`. The builder decides
    /// the rest.
    ///
    /// # Errors
    /// When the cluster cannot be found, or the lease has no namespace.
    pub async fn from_options(
        options: &Options,
        program: Program,
    ) -> Result<manager::Builder, Error> {
        let metrics = Metrics::new();
        let connecting = connect::Options::new()
            .user_agent(program.user_agent())
            .metrics(&metrics);
        let client = connect::locate(&options.location, &connecting).await?;
        let builder = Manager::builder(client).metrics(metrics);
        #[cfg(feature = "clap")]
        let builder = match options.log.levels() {
            Some(levels) => builder.log_levels(levels),
            None => builder,
        };
        options.apply(program, builder, namespace_of_pod)
    }
}

// === impl Options ===

impl Options {
    fn apply(
        &self,
        program: Program,
        mut builder: manager::Builder,
        namespace_of_pod: impl FnOnce() -> Option<String>,
    ) -> Result<manager::Builder, Error> {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        // As operator-sdk reads the variable.
        let namespaces = self.watch_namespace.as_deref().unwrap_or_default();
        for namespace in namespaces.split(',').map(str::trim) {
            if !namespace.is_empty() {
                builder = builder.namespace(namespace);
            }
        }
        if let Some(address) = self.health_probe_bind_address.address() {
            builder = builder.health_address(address);
        }
        if let Some(server) = self.metrics.server() {
            builder = builder.metrics_server(server);
        }
        #[cfg(feature = "webhook")]
        {
            builder = builder.webhooks_enabled(self.webhook.enable);
        }
        if self.leader_elect {
            let namespace = given(&self.leader_election_namespace)
                .or_else(namespace_of_pod)
                .ok_or(Error::NoNamespace)?;
            let election = leader_election::Options::new(namespace, program.name);
            builder = builder.leader_election(election);
        }
        Ok(builder)
    }
}

fn namespace_of_pod() -> Option<String> {
    let text = std::fs::read_to_string(NAMESPACE_FILE).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
