//! The settings of the operator, and their defaults.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reeve_clock::Clock;
use reeve_controller::options::LogLevels;
use reeve_controller::{MetricsServer, metrics};

use crate::audit;
use crate::mounted::{self, Directory};
use crate::names::{Resolver, SystemResolver};
use crate::page;
use crate::policy::Protected;
use crate::reconcile::{Announcer, Connector};
use crate::target::Target;
use crate::time::ServerTime;

/// How the operator runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace of the ConfigMap, the lease and the blocks that triggers make.
    pub namespace: String,
    /// Watches blocks in this namespace only; unset, everywhere.
    pub watch_namespace: Option<String>,
    /// The holder of the lease; unset, there is no election.
    pub identity: Option<String>,
    /// How metrics are served, if they are.
    pub metrics_server: Option<MetricsServer>,
    /// The levels of the log, which the metrics server changes.
    pub log_levels: Option<LogLevels>,
    /// Where health is served.
    pub health_address: Option<SocketAddr>,
    /// Blocks worked on at once.
    pub workers: usize,
    /// The gateway may be on loopback.
    pub allow_loopback: bool,
    /// Triggers without credentials serve.
    pub insecure_triggers: bool,
    /// Bearer tokens may go to the gateway over plain HTTP.
    pub bearer_over_http: bool,
    /// The first configuration is read as leniently as the original operator reads it.
    pub takeover: bool,
    /// The directory of the files with secrets that the ConfigMap may name.
    pub secrets: Directory,
    /// Where card templates may be, beside `secrets`.
    pub templates: Directory,
    /// Addresses of the cluster that are never banned.
    pub infrastructure: Vec<Protected>,
    /// Wall time and randomness.
    pub clock: Clock,
    /// Counts the client's requests already, and everything else from here on.
    pub metrics: metrics::Metrics,
    /// How gateways are reached; unset, over HTTP.
    pub connector: Option<Arc<dyn Connector>>,
    /// How the names of gateways and load balancers are resolved.
    pub resolver: Arc<dyn Resolver>,
    /// The API server's clock; unset, the date of its answers.
    pub server_time: Option<Arc<dyn ServerTime>>,
    /// Where notices of bans and lifts go; unset, to the configured channels.
    pub announcer: Option<Arc<dyn Announcer>>,
    /// The audit log.
    pub audit: audit::Log,
    /// How the page is served, if it is.
    pub page: Option<page::Settings>,
}

// === impl Settings ===

impl Settings {
    /// The defaults: the namespace `default` as the original's, no election, nothing served, 128 workers.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            namespace: "default".into(),
            watch_namespace: None,
            identity: None,
            metrics_server: None,
            log_levels: None,
            health_address: None,
            workers: 128,
            allow_loopback: false,
            insecure_triggers: false,
            bearer_over_http: false,
            takeover: false,
            secrets: Directory::default(),
            templates: Directory::new(mounted::TEMPLATES),
            infrastructure: Vec::new(),
            clock,
            metrics: metrics::Metrics::new(),
            connector: None,
            resolver: Arc::new(SystemResolver),
            server_time: None,
            announcer: None,
            audit: audit::Log::off(),
            page: None,
        }
    }
}

/// The addresses in the environment of a Pod that must never be banned.
#[must_use]
pub fn infrastructure(variable: impl Fn(&str) -> Option<String>) -> Vec<Protected> {
    [
        ("KUBERNETES_SERVICE_HOST", "the API server"),
        ("POD_IP", "the operator's own Pod"),
        ("HOST_IP", "the operator's own node"),
    ]
    .into_iter()
    .filter_map(|(name, what)| {
        let address: IpAddr = variable(name)?.trim().parse().ok()?;
        Some(Protected {
            target: Target::host(address),
            what: what.into(),
        })
    })
    .collect()
}
