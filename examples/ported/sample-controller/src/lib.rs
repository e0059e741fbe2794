//! A [`Foo`] gets a Deployment: the port of `k8s.io/sample-controller`, the example of client-go.
//!
//! The controller is written twice. [`Form::ByHand`] has the original's parts: an informer factory, listers, a work queue
//! and workers. [`Form::Builder`] leaves them to the controller builder. Both call the same [`sync`].
//!
//! `informer/guide/from-client-go.md` walks through the port.

#![allow(clippy::disallowed_names, reason = "Foo is the kind of the original")]

mod builder;
mod controller;
mod foo;
mod sync;

use reeve_controller::{Manager, controller as framework, manager};

pub use foo::{Foo, FooSpec, FooStatus};
pub use sync::{SyncError, sync};

/// The name of the controller in logs, metrics and Events.
pub const NAME: &str = "sample-controller";

/// The construction of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// Informer factory, listers, work queue, workers: as the original.
    ByHand,
    /// With the controller builder.
    Builder,
}

/// The reason why the controller cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The controller is not valid.
    #[error(transparent)]
    Controller(#[from] framework::BuildError),
    /// The manager refuses it.
    #[error(transparent)]
    Manager(#[from] manager::Error),
}

/// Adds the controller to `manager`.
///
/// # Errors
/// If the manager already has this controller.
pub fn add(manager: &Manager, form: Form) -> Result<(), Error> {
    match form {
        Form::ByHand => controller::add(manager),
        Form::Builder => builder::add(manager),
    }
}
