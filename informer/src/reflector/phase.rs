//! The phases of a reflector, and the one place where one follows another: [`next`].
//!
//! | outcome | next phase |
//! |---|---|
//! | `Prepared` | `Streaming` where streaming lists are offered, else `Listing` |
//! | `Streamed` | `Watching`, on the same connection; `BackingOff` if the state is older than the known version |
//! | `StreamFailed` | `Listing` if it was refused or forbidden, met silence, broke off, failed twice in a row, or its version is of no use; else `BackingOff` |
//! | `Listed` | `Opening`; `BackingOff` if the state is older than the known version |
//! | `ListFailed` | `Listing` in another form or of the newest state, if that may help; else `BackingOff` |
//! | `Opened` | `Watching` |
//! | `OpenFailed` | `BackingOff` |
//! | `Ended` in time | `Opening` |
//! | `Ended` early | `Spreading`; `BackingOff` if watches end at once again and again |
//! | `Ended` by silence | `Watching`, on the connection that replaces it |
//! | `Ended` by a failure | `BackingOff` |
//! | `Waited` after a list | `Preparing` |
//! | `Waited` after a watch | `Opening`; `Preparing` if its version is of no use ([`react`]) |
//!
//! A watch that began without a version, and ended before all objects had come, is followed by `Preparing` in place of
//! `Opening`.
//!
//! The reflector performs a [`Phase`] and passes its [`Outcome`] to [`next`], which does nothing but decide. An outcome
//! carries what its phase held, so each one is possible only after its phase.

use std::time::Duration;

use tokio::time::Instant;

use super::error::Error;
use super::history::History;
use super::offers::{Offers, Page, Paging};
use super::react::{Reaction, SHORT, react};
use reeve_client::transport;

/// The number of watches in a row that may end within a second, each after some events, before a back-off.
const BRIEF_WATCHES: u32 = 3;

/// The time by which a watch may end before the requested time and still count as ended in time.
const EARLY: Duration = Duration::from_secs(5);

/// The present work of a reflector. `W` is an open watch.
#[derive(Debug)]
pub(super) enum Phase<W> {
    /// Waits until the store takes a list and the pace allows a request.
    Preparing,
    /// Reads the present state as a stream of initial events, which continues as a watch.
    Streaming,
    /// Reads the present state in pages, or all at once.
    Listing(Paging),
    /// Opens a watch after the last version.
    Opening(Streak),
    /// Follows an open watch.
    Watching { watch: W, streak: Streak },
    /// Waits for a random time, so that many reflectors do not return to a server at once.
    Spreading(Resume),
    /// Reports a failure and waits.
    BackingOff { error: Error, then: Resume },
}

/// The row of watches since the last list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Streak {
    /// The number of watches that failed since one brought something.
    pub(super) failed: u32,
    /// The number of watches in a row that ended within a second.
    pub(super) brief: u32,
}

/// The phase after a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resume {
    /// Reads the present state.
    List,
    /// Watches after the last version.
    Watch(Streak),
}

/// The result of a phase.
#[derive(Debug)]
pub(super) enum Outcome<W> {
    /// A list may be requested.
    Prepared,
    /// The initial events are complete. An error if they are older than the known version.
    Streamed {
        watch: W,
        accepted: Result<(), Error>,
    },
    /// The streaming list failed. `begun`: the server had agreed to it.
    StreamFailed { error: Error, begun: bool },
    /// All pages were read. An error if they are older than the known version.
    Listed {
        paging: Paging,
        paginated: bool,
        accepted: Result<(), Error>,
    },
    /// A page could not be read.
    ListFailed {
        paging: Paging,
        page: Page,
        error: Error,
    },
    /// The server agreed to a watch.
    Opened { watch: W, streak: Streak },
    /// It did not.
    OpenFailed {
        error: transport::Error,
        streak: Streak,
    },
    /// A watch ended.
    Ended { ended: Ended<W>, streak: Streak },
    /// A wait is over.
    Waited(Resume),
}

/// A watch that is over.
#[derive(Debug)]
pub(super) struct Ended<W> {
    pub(super) end: End<W>,
    /// The time at which the server was asked to end it.
    pub(super) until: Instant,
    pub(super) lasted: Duration,
    /// The number of changes that were newer than the known version.
    pub(super) events: u64,
    /// Something usable came.
    pub(super) useful: bool,
    /// It began with all objects in any order, and that part was not over: the rest of them may not have come.
    pub(super) synthetic: bool,
}

/// The end of a watch.
#[derive(Debug)]
pub(super) enum End<W> {
    /// The server closed it.
    Closed,
    /// It was silent, and this one continues it.
    Replaced(W),
    Failed(Error),
}

/// The phase after `outcome`.
pub(super) fn next<W>(
    outcome: Outcome<W>,
    history: &mut History,
    offers: &mut Offers,
    now: Instant,
) -> Phase<W> {
    match outcome {
        Outcome::Prepared if offers.streams(history, now) => Phase::Streaming,
        Outcome::Prepared => Phase::Listing(offers.first_paging(history, now)),

        Outcome::Streamed { watch, accepted } => {
            offers.streamed();
            match accepted {
                Ok(()) => Phase::Watching {
                    watch,
                    streak: Streak::default(),
                },
                Err(error) => Phase::list_after(error),
            }
        }
        Outcome::StreamFailed { error, begun } => {
            if error.is_about_version() {
                history.expire();
            }
            if offers.stream_failed(&error, begun, now) {
                Phase::Listing(offers.first_paging(history, now))
            } else {
                Phase::list_after(error)
            }
        }

        Outcome::Listed {
            paging,
            paginated,
            accepted,
        } => {
            offers.listed(&paging, paginated);
            match accepted {
                Ok(()) => {
                    offers.accepted();
                    Phase::Opening(Streak::default())
                }
                Err(error) => Phase::list_after(error),
            }
        }
        Outcome::ListFailed {
            paging,
            page,
            error,
        } => {
            if let Some(paging) = offers.other_paging(&paging, page, &error, now) {
                Phase::Listing(paging)
            } else if paging.or_newest && error.is_about_version() {
                history.expire();
                Phase::Listing(offers.paging(None, now))
            } else {
                Phase::list_after(error)
            }
        }

        Outcome::Opened { watch, streak } => Phase::Watching { watch, streak },
        Outcome::OpenFailed { error, streak } => {
            Phase::after_failure(error.into(), false, streak, Resume::Watch)
        }
        Outcome::Ended { ended, streak } => {
            let streak = streak.after(&ended);
            let worked = ended.worked(streak);
            // A second watch without a version would not reveal which objects are gone since.
            let resume: fn(Streak) -> Resume = if ended.synthetic {
                history.forget_version();
                |_| Resume::List
            } else {
                Resume::Watch
            };
            match ended.end {
                End::Replaced(watch) => Phase::Watching { watch, streak },
                // A connection that carried a watch for a while broke: that is not a failure of the server, and does not
                // affect the next watch.
                End::Closed | End::Failed(Error::Transport(transport::Error::Connection(_)))
                    if worked =>
                {
                    if now + EARLY < ended.until {
                        Phase::Spreading(resume(streak))
                    } else {
                        resume(streak).into()
                    }
                }
                End::Closed => Phase::BackingOff {
                    error: Error::Brief,
                    then: resume(streak),
                },
                End::Failed(error) => Phase::after_failure(error, true, streak, resume),
            }
        }

        Outcome::Waited(resume) => resume.into(),
    }
}

// === impl Phase ===

impl<W> Phase<W> {
    /// True if it reads the present state.
    pub(super) fn is_list(&self) -> bool {
        matches!(self, Self::Streaming | Self::Listing(_))
    }

    /// Reports `error`, waits, and reads the present state.
    fn list_after(error: Error) -> Self {
        let then = Resume::List;
        Self::BackingOff { error, then }
    }

    /// Reports the `error` of a watch and waits. `in_stream`: the watch was open.
    fn after_failure(
        error: Error,
        in_stream: bool,
        mut streak: Streak,
        resume: fn(Streak) -> Resume,
    ) -> Self {
        streak.failed += 1;
        let reaction = match &error {
            Error::Transport(error) => react(error, in_stream, streak.failed),
            _ => Reaction::Relist,
        };
        let then = match reaction {
            Reaction::Rewatch => resume(streak),
            Reaction::Relist => Resume::List,
        };
        Self::BackingOff { error, then }
    }
}

impl<W> From<Resume> for Phase<W> {
    fn from(resume: Resume) -> Self {
        match resume {
            Resume::List => Self::Preparing,
            Resume::Watch(streak) => Self::Opening(streak),
        }
    }
}

// === impl Streak ===

impl Streak {
    /// The streak with one more watch that ended.
    fn after<W>(self, ended: &Ended<W>) -> Self {
        Self {
            failed: if ended.useful { 0 } else { self.failed },
            brief: if ended.lasted < SHORT {
                self.brief.saturating_add(1)
            } else {
                0
            },
        }
    }
}

// === impl Ended ===

impl<W> Ended<W> {
    /// It ended at once and brought nothing, as if it was refused.
    pub(super) fn is_short(&self) -> bool {
        self.lasted < SHORT && self.events == 0
    }

    /// The next watch needs no back-off. `streak` includes this watch.
    fn worked(&self, streak: Streak) -> bool {
        !self.is_short() && streak.brief < BRIEF_WATCHES && !(self.synthetic && self.lasted < SHORT)
    }
}

#[cfg(test)]
mod tests;
