//! The reaction to a watch that failed: [`react`].

use std::time::Duration;

use reeve_client::transport::Error;

/// The next step after a watch failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// Watch again from the last version.
    Rewatch,
    /// Read everything again.
    Relist,
}

/// The number of failures of watches in a row after which one of unknown cause leads to a list.
const FAILED_WATCHES: u32 = 3;

/// A watch that ended within this time and brought nothing is as good as refused (client-go: `VeryShortWatchError`).
pub(super) const SHORT: Duration = Duration::from_secs(1);

/// The reaction to `error`, with which a watch failed for the `times`-th time in a row (from 1). `in_stream`: the watch
/// was open.
///
/// Watching again is cheap for both sides. A list of a large kind is not, and many at once bring servers down
/// (kubernetes#86430). So the answer is a watch, unless the error shows that the version is of no use.
pub(super) fn react(error: &Error, in_stream: bool, times: u32) -> Reaction {
    let lost = error.is_expired()
        || error.is_unreadable_store()
        || matches!(error.code(), Some(400 | 404 | 405 | 406 | 415 | 422));
    // These may be caused by one object or one version, and then come again at the same place.
    let stuck = error.is_too_large_version()
        || matches!(
            error,
            Error::Decode(_) | Error::TooLarge { .. } | Error::Request { .. }
        )
        || (in_stream && error.code().is_some_and(|code| code != 429));
    if lost || (stuck && times >= FAILED_WATCHES) {
        Reaction::Relist
    } else {
        Reaction::Rewatch
    }
}

#[cfg(test)]
mod tests {
    use kube_core::Status;

    use super::*;

    fn status(code: u16, reason: &str) -> Error {
        Error::from_status(Box::new(Status {
            code,
            reason: reason.to_owned(),
            ..Status::default()
        }))
    }

    #[test]
    fn expired_versions_relist_at_once_in_both_forms() {
        for in_stream in [true, false] {
            assert_eq!(
                react(&status(410, "Expired"), in_stream, 1),
                Reaction::Relist
            );
            assert_eq!(react(&status(0, "Gone"), in_stream, 1), Reaction::Relist);
        }
    }

    #[test]
    fn a_busy_or_broken_server_never_causes_a_relist() {
        for code in [401, 403, 429, 500, 502, 503, 504] {
            assert_eq!(
                react(&status(code, ""), false, 100),
                Reaction::Rewatch,
                "{code}"
            );
        }
        assert_eq!(react(&status(429, ""), true, 100), Reaction::Rewatch);
        assert_eq!(
            react(&Error::Silent { after: SHORT }, true, 100),
            Reaction::Rewatch
        );
    }

    #[test]
    fn an_object_that_the_server_cannot_read_from_its_store_causes_a_relist() {
        assert_eq!(
            react(&status(500, "StoreReadError"), true, 1),
            Reaction::Relist
        );
    }

    #[test]
    fn an_error_that_keeps_coming_from_the_stream_relists() {
        let error = status(500, "InternalError");
        assert_eq!(react(&error, true, 2), Reaction::Rewatch);
        assert_eq!(react(&error, true, 3), Reaction::Relist);
    }
}
