//! The parts of the server that calls of webhooks use.

use reeve_clock::Clock;

use super::backends::Backends;
use crate::store::Store;

/// The parts of the server that calls of webhooks use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network<'a> {
    /// Services and their endpoints.
    pub(crate) store: &'a Store,
    /// Webhooks in this process.
    pub(crate) backends: &'a Backends,
    pub(crate) clock: &'a Clock,
}
