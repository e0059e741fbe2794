//! The ends of commands.

/// How a command that printed its answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    /// The answer is not as asked: something is refused, or stays banned.
    Failure,
}
