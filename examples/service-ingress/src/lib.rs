//! Services with the annotation `ingress/http` get an Ingress of the same name. It is deleted when the annotation or the
//! Service is. The controller is written twice: [`Form::Raw`] by hand from informers, listers and a work queue, and
//! [`Form::Managed`] with the controller builder. Both share the desired state ([`desired`]), the decision ([`plan`])
//! and the writes.

mod act;
pub mod desired;
mod managed;
pub mod plan;
mod raw;

use reeve_controller::{Manager, cache, controller, manager};

use desired::Defaults;

/// The name of the controller in logs, metrics and Events, and of its Lease.
pub const NAME: &str = "service-ingress";

/// The construction of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// By hand: informer factory, listers, work queue, workers.
    Raw,
    /// With the controller builder.
    Managed,
}

/// The program's own settings, in addition to the options of every program.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The construction of the controller.
    pub form: Form,
    /// The number of keys that are reconciled at once.
    pub workers: usize,
    /// The number of retries when the API server refuses the write of a key.
    pub max_retry: u32,
    /// The settings of an Ingress that the annotation does not set.
    pub defaults: Defaults,
}

/// The reason why the program cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The controller is not valid.
    #[error(transparent)]
    Controller(#[from] controller::BuildError),
    /// A kind cannot be cached.
    #[error(transparent)]
    Cache(#[from] cache::CacheError),
    /// The manager is not valid, or refuses the controller.
    #[error(transparent)]
    Manager(#[from] manager::Error),
}

// === impl Settings ===

impl Settings {
    /// The defaults of the original program: 8 workers, 8 retries.
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

/// Builds the manager with the controller, ready to run.
///
/// # Errors
/// If an address cannot be bound, or settings contradict each other.
pub async fn build(builder: manager::Builder, settings: Settings) -> Result<Manager, Error> {
    let manager = builder.build().await?;
    match settings.form {
        Form::Raw => raw::add(&manager, &settings)?,
        Form::Managed => managed::add(&manager, &settings)?,
    }
    Ok(manager)
}
