//! Options of a client: its user agent and its metrics.

use crate::measure::RequestMetrics;

/// The user agent of a client, and the metrics of its requests.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(super) user_agent: Option<String>,
    pub(super) metrics: Option<RequestMetrics>,
}

// === impl Options ===

impl Options {
    /// The default: `reeve/<version>`, no metrics.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the `User-Agent` of every request: `name/version` by convention.
    #[must_use]
    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = Some(user_agent.into());
        self
    }

    /// Counts requests in `metrics`, for a program without a manager. A manager of reeve-controller counts the requests
    /// of its parts in its own metrics in any case, each once.
    #[must_use]
    pub fn metrics(mut self, metrics: &impl AsRef<RequestMetrics>) -> Self {
        self.metrics = Some(metrics.as_ref().clone());
        self
    }
}
