//! The times of a rotation.

use std::time::Duration;

/// The times of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lifetimes {
    /// The life of an authority. Default: ten years. At most thirty.
    pub authority: Duration,
    /// The life of a leaf. Default: one year. At most thirty.
    pub leaf: Duration,
    /// The time between the moment at which every configuration has an authority and the first leaf that it signs: API servers
    /// must have seen the configuration. Default: 30 s.
    pub propagation: Duration,
    /// The time that a replaced authority stays trusted after the last leaf was issued: every replica must have read the
    /// Secret. It must be longer than the clocks of two replicas may differ. Default: 24 hours.
    pub overlap: Duration,
    /// The time that a replica without contents waits for another one to restore a lost Secret, if a configuration trusts
    /// an authority already. Default: 30 s.
    pub patience: Duration,
}

// === impl Lifetimes ===

impl Default for Lifetimes {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 3600);
        Self {
            authority: day * 3650,
            leaf: day * 365,
            propagation: Duration::from_secs(30),
            overlap: day,
            patience: Duration::from_secs(30),
        }
    }
}

impl Lifetimes {
    /// Sets the life of an authority.
    #[must_use]
    pub fn authority(mut self, life: Duration) -> Self {
        self.authority = life;
        self
    }

    /// Sets the life of a leaf. A leaf does not outlive the authority that signs it.
    #[must_use]
    pub fn leaf(mut self, life: Duration) -> Self {
        self.leaf = life;
        self
    }

    /// Sets the time for API servers to see a configuration.
    #[must_use]
    pub fn propagation(mut self, time: Duration) -> Self {
        self.propagation = time;
        self
    }

    /// Sets the time that a replaced authority stays trusted.
    #[must_use]
    pub fn overlap(mut self, time: Duration) -> Self {
        self.overlap = time;
        self
    }

    /// Sets the time to wait for another replica to restore a lost Secret.
    #[must_use]
    pub fn patience(mut self, time: Duration) -> Self {
        self.patience = time;
        self
    }
}
