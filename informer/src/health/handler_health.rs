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
    /// How many events wait for it.
    pub backlog: usize,
    /// How many events were delivered to it.
    pub delivered: u64,
    /// How many events were dropped because it did not keep up.
    pub dropped: u64,
    /// How often it panicked.
    pub panics: u64,
}
