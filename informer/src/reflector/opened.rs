//! A watch that the server agreed to: [`Opened`].

use tokio::time::Instant;

use super::frames::Frames;

/// A watch that the server agreed to.
pub(super) struct Opened<S: ?Sized> {
    pub(super) frames: Frames<S>,
    /// The time at which the server was asked to end it.
    pub(super) until: Instant,
    /// It was opened without a version, so it begins with all objects.
    pub(super) from_nothing: bool,
}
