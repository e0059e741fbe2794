//! Walks over values and their types: the fields of a value, its validity, differences and merges.
//!
//! (structured-merge-diff: package `typed`.)

mod compare;
mod item;
mod merge;
mod problem;
mod reconcile;
mod remove;
mod shape;
mod to_set;
mod validate;

pub(crate) use compare::{Comparison, compare};
pub(crate) use merge::merge;
pub(crate) use problem::{Problems, text};
pub(crate) use reconcile::reconcile;
pub(crate) use remove::remove;
pub(crate) use to_set::to_set;
pub(crate) use validate::{Duplicates, validate};
