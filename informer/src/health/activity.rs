//! The activity of an informer: [`Activity`].

/// The activity of an informer, or of one of its watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// Not started yet.
    #[default]
    Idle,
    /// Reads all objects.
    Listing,
    /// Follows changes.
    Watching,
    /// Waits after a failure; the store becomes out of date.
    BackingOff,
    /// The server does not have the kind, as when its CRD was removed. The store keeps its content, and the informer
    /// checks now and then whether the kind is back.
    Missing,
    /// Stopped.
    Stopped,
}

impl std::fmt::Display for Activity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::Listing => "listing",
            Self::Watching => "watching",
            Self::BackingOff => "backing off",
            Self::Missing => "missing",
            Self::Stopped => "stopped",
        })
    }
}

impl Activity {
    /// The rank by which the watch of most concern is chosen among those of one informer.
    pub(super) fn concern(self) -> u8 {
        match self {
            Self::Watching => 0,
            Self::Stopped => 1,
            Self::Listing => 2,
            Self::Idle => 3,
            Self::Missing => 4,
            Self::BackingOff => 5,
        }
    }
}
