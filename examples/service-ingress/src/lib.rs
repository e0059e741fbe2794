//! Services with the annotation `ingress/http` get an Ingress of their name; without it, or without the Service, it
//! goes. Written twice: [`Form::Raw`] by hand from informers, listers and a work queue, and [`Form::Managed`] on the
//! controller builder. What is wanted ([`desired`]), what is to be done ([`plan`]) and how it is done are the same code.

mod act;
pub mod desired;
mod managed;
pub mod plan;
mod raw;

use reeve_controller::{Manager, cache, controller, manager};

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

/// What the program is told, beside what every program is.
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
    /// The defaults of the seed's program: 8 workers, 8 retries.
    #[must_use]
    pub fn new(form: Form) -> Self {
        Self {
            form,
            workers: 8,
            max_retry: 8,
            defaults: Defaults::default(),
        }
    }
}

/// Completes the program: the manager, with the controller in it, ready to run.
///
/// # Errors
/// When an address cannot be bound, or settings do not fit together.
pub async fn build(builder: manager::Builder, settings: Settings) -> Result<Manager, Error> {
    let manager = builder.build().await?;
    match settings.form {
        Form::Raw => raw::add(&manager, &settings)?,
        Form::Managed => managed::add(&manager, &settings)?,
    }
    Ok(manager)
}
