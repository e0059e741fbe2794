//! Services with the annotation `ingress/http` get an Ingress of their name; without it, or without the Service, it
//! goes. Written twice: [`Form::Raw`] by hand from informers, listers and a work queue, and [`Form::Managed`] on the
//! controller builder. What is wanted ([`desired`]), what is to be done ([`plan`]) and how it is done are the same code.

mod act;
pub mod desired;
mod managed;
pub mod plan;
mod raw;

use std::net::SocketAddr;

use reeve_clock::Clock;
use reeve_controller::metrics::Metrics;
use reeve_controller::{Manager, cache, controller, leader_election, manager};

use desired::Defaults;

/// The name of the controller in logs, metrics and Events, and of its Lease.
pub const NAME: &str = "service-ingress";

/// How the controller is put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// By hand: informer factory, listers, work queue, workers.
    Raw,
    /// On the controller builder.
    Managed,
}

/// What the program is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How the controller is put together.
    pub form: Form,
    /// How many keys are worked on at once.
    pub workers: usize,
    /// How often a key is tried again that the API server refuses.
    pub max_retry: u32,
    /// What an Ingress gets that the annotation does not say.
    pub defaults: Defaults,
    /// Wall time and randomness.
    pub clock: Clock,
    /// Where is counted.
    pub metrics: Metrics,
    /// The lease, if one of several replicas is to lead.
    pub leader_election: Option<leader_election::Options>,
    /// Where `/healthz` and `/readyz` are served.
    pub health_address: Option<SocketAddr>,
    /// Where `/metrics` is served.
    pub metrics_address: Option<SocketAddr>,
}

/// Why the program cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The controller cannot be.
    #[error(transparent)]
    Controller(#[from] controller::BuildError),
    /// A kind cannot be cached.
    #[error(transparent)]
    Cache(#[from] cache::CacheError),
    /// The manager cannot be, or takes it not.
    #[error(transparent)]
    Manager(#[from] manager::Error),
}

// === impl Settings ===

impl Settings {
    /// The defaults of the seed's program: 8 workers, 8 retries; no election, nothing served.
    #[must_use]
    pub fn new(form: Form, clock: Clock) -> Self {
        Self {
            form,
            workers: 8,
            max_retry: 8,
            defaults: Defaults::default(),
            clock,
            metrics: Metrics::new(),
            leader_election: None,
            health_address: None,
            metrics_address: None,
        }
    }
}

/// Puts the program together: a manager with the controller in it, ready to run.
///
/// # Errors
/// When an address cannot be bound, or settings do not fit together.
pub async fn build(client: kube_client::Client, settings: Settings) -> Result<Manager, Error> {
    let mut builder = Manager::builder(client)
        .clock(settings.clock.clone())
        .metrics(settings.metrics.clone());
    if let Some(lease) = &settings.leader_election {
        builder = builder.leader_election(lease.clone());
    }
    if let Some(address) = settings.health_address {
        builder = builder.health_address(address);
    }
    if let Some(address) = settings.metrics_address {
        builder = builder.metrics_address(address);
    }
    let manager = builder.build().await?;
    match settings.form {
        Form::Raw => raw::add(&manager, &settings)?,
        Form::Managed => managed::add(&manager, &settings)?,
    }
    Ok(manager)
}
