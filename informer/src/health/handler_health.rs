//! The state of one handler: [`HandlerHealth`].

use std::sync::Arc;

/// The state of one handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerHealth {
    /// The handler's name.
    pub name: Arc<str>,
    /// True once all of the first list was delivered to it.
    pub synced: bool,
    /// The number of events that wait for it.
    pub backlog: usize,
    /// The number of events that were delivered to it.
    pub delivered: u64,
    /// The number of events that were dropped because it did not keep up.
    pub dropped: u64,
    /// The number of its panics.
    pub panics: u64,
}
