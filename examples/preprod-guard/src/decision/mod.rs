//! The decision about a request, and the rules that it is made from.

mod account;
mod cluster;
mod decide;
mod lookup;
mod rule;
mod selector;

pub use decide::{Decision, decide};
pub use rule::{Finding, Rule};
