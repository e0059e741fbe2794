//! What to do when a watch cannot go on: the decisions, without the doing.

use std::time::Duration;

use reeve_client::transport::Error;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// Back off, then watch again from the last version.
    Rewatch,
    /// Read everything again.
    Relist,
}

/// How often in a row the same trouble may come back from a watch until everything is read again.
const PATIENCE: u32 = 3;

/// A watch that ended within this, and brought nothing, is as good as refused (client-go:
/// `VeryShortWatchError`).
pub(super) const SHORT: Duration = Duration::from_secs(1);

/// What to do about `error`, the `times`-th in a row (from 1) that a watch failed with. `in_stream` says that
/// the watch was open.
///
/// Watching again is cheap for both sides; a list of a large kind is not, and many at once bring servers down
/// (kubernetes#86430). So everything that does not say the version is of no use is answered by watching again.
pub(super) fn react(error: &Error, in_stream: bool, times: u32) -> Reaction {
    let lost = error.is_expired()
        || error.is_unreadable_store()
        || matches!(error.code(), Some(400 | 404 | 405 | 406 | 415 | 422));
    // These may come from one object or one version, and then come again from the same place.
    let stuck = error.is_too_large_version()
        || matches!(
            error,
            Error::Decode(_) | Error::TooLarge { .. } | Error::Request { .. }
        )
        || (in_stream && error.code().is_some_and(|code| code != 429));
    if lost || (stuck && times >= PATIENCE) {
        Reaction::Relist
    } else {
        Reaction::Rewatch
    }
}

/// Whom it concerns that a streaming list was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The server, for whatever it serves of the group and version.
    Server,
    /// The server, if the same can be read in pages; otherwise the request.
    ServerIfPages,
    /// The request: this kind, or this form of it.
    Request,
    /// This watch, unless the server offered streaming lists before: then it is busy, or cannot be reached.
    Silence,
}

/// What a failed streaming list says of whether the server offers them, if anything.
pub(super) fn refusal(error: &Error) -> Option<Refusal> {
    match (error.code(), error) {
        // A server that knows no streaming lists refuses the parameters.
        (Some(422 | 501), _) => Some(Refusal::Server),
        // Or it ignores them and stays silent. A proxy may hold the answer back until it is complete, which it never
        // is. But a busy server is silent, too, and so is a connection that is cut off.
        (_, Error::Silent { .. } | Error::Deadline { .. }) => Some(Refusal::Silence),
        // That is the answer to a selector that is not supported, too.
        (Some(400), _) => Some(Refusal::ServerIfPages),
        // A kind that cannot be watched; a server that does not give metadata alone.
        (Some(405 | 406 | 415), _) => Some(Refusal::Request),
        _ => None,
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
    fn what_the_server_cannot_read_of_its_store_is_not_watched_for_again() {
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

    #[test]
    fn only_a_refusal_or_silence_says_that_streaming_is_not_offered() {
        for error in [status(422, "Invalid"), status(501, "")] {
            assert_eq!(refusal(&error), Some(Refusal::Server), "{error}");
        }
        let after = SHORT;
        for error in [Error::Silent { after }, Error::Deadline { after }] {
            assert_eq!(refusal(&error), Some(Refusal::Silence), "{error}");
        }
        assert_eq!(refusal(&status(400, "")), Some(Refusal::ServerIfPages));
        for code in [405, 406, 415] {
            let said = refusal(&status(code, ""));
            assert_eq!(said, Some(Refusal::Request), "{code}");
        }
        for code in [401, 403, 404, 410, 429, 500, 503] {
            assert_eq!(refusal(&status(code, "")), None, "{code}");
        }
    }
}
