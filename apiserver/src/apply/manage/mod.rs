//! Owners of fields: the manager that set each field, in which version, and what follows for a write.
//!
//! Everything is a function of the live object, the new or applied one, the manager and the time.
//! [`Operation::update`] records a write that is made already, [`Operation::apply`] merges one.
//! (apimachinery: `util/managedfields`; structured-merge-diff: package `merge`.)

mod cap;
mod conflict;
mod encoded;
mod entry;
mod error;
mod kept;
mod kind;
mod last_applied;
mod managers;
mod operation;
mod scale;
mod updater;

pub(crate) use entry::managers_problem;
pub(crate) use error::ApplyError;
pub(crate) use kind::{Kind, Version};
pub(crate) use operation::{Merge, Operation, take_managers};
pub(crate) use scale::ScaleFields;
