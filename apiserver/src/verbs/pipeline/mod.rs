//! The one way of a write, of every verb, subresource and writer in the server.
//!
//! [`write`](write()) is the list of its steps. [`Write`] is what differs between verbs, in steps that decide and do not
//! wait: [`Save`] creates and changes objects, [`Removal`](super::delete::Removal) deletes them.

mod creation;
mod draft;
pub(super) mod options;
mod run;
mod save;
#[cfg(test)]
mod tests;
mod update;

pub(crate) use draft::{Commit, Draft, Part};
pub(crate) use run::{Done, Write, admit, write};
pub(crate) use save::{Changed, Save, Target};
