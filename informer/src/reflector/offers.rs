//! The ways in which a server offers its present state: [`Offers`].
//!
//! A streaming list is tried first, then pages. What a server refused, or could not deliver, is not requested again for
//! an hour.

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::Instant;

use super::error::Error;
use super::history::History;
use super::options::ReflectorOptions;
use super::refusals::Refusals;
use reeve_client::transport::{self, Endpoint};

/// The number of objects in a page, unless the options set another (client-go: `defaultPageSize`).
const PAGE: u32 = 500;

/// The time for which lists are read in pages after the server could not deliver everything at once.
const PAGES_ONLY: Duration = Duration::from_secs(3600);

/// The version at which a server with a cache answers from it. It then sends everything at once, whatever the limit is.
const CACHED: &str = "0";

/// The ways in which the server of one watch offers its present state.
#[derive(Debug)]
pub(super) struct Offers {
    endpoint: Endpoint,
    /// Shared with other watches of the same server.
    refusals: Refusals,
    options: ReflectorOptions,
    /// No streaming list is requested before this time.
    streaming_after: Option<Instant>,
    /// A streaming list was refused. If pages can be read, the server offers no streaming lists at all.
    refused: bool,
    /// The number of streaming lists in a row that ended before they were complete, without those that met silence.
    incomplete: u32,
    /// The number of streaming lists that met silence since a list was read, of a server that offers them.
    silent: u32,
    /// The number of streaming lists in a row that failed before they began and were not refused, since pages were read.
    unbegun: u32,
    /// The next list is read in pages.
    pages_next: bool,
    /// A list at version 0 came in pages: the server has no cache for this kind.
    uncached: bool,
    /// Lists are read in pages before this time: everything at once was too large or took too long.
    pages_until: Option<Instant>,
}

/// A list in pages, or of everything at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Paging {
    /// The version that the list must have reached; `None` for the newest state.
    pub(super) version: Option<String>,
    /// The number of objects in a page; 0 for all at once.
    pub(super) limit: u32,
    /// If the server cannot answer for the version, its newest state is requested at once.
    pub(super) or_newest: bool,
}

/// The page at which a list failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// The first page, or everything at once.
    First,
    Later,
}

/// The extent of a refusal of streaming lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// Everything that the server offers of the group and version.
    Server,
    /// The same, if the request succeeds in pages; otherwise it concerns the request.
    ServerIfPages,
    /// This kind, or this form of it.
    Request,
    /// This watch. A server that offered streaming lists before is busy, or cannot be reached.
    Silence,
}

// === impl Offers ===

impl Offers {
    pub(super) fn new(endpoint: Endpoint, refusals: Refusals, options: ReflectorOptions) -> Self {
        Self {
            endpoint,
            refusals,
            options,
            streaming_after: None,
            refused: false,
            incomplete: 0,
            silent: 0,
            unbegun: 0,
            pages_next: false,
            uncached: false,
            pages_until: None,
        }
    }

    /// True if a streaming list is requested now. A server that seems to lag behind is asked for pages of its newest
    /// state until that is settled.
    pub(super) fn streams(&mut self, history: &History, now: Instant) -> bool {
        let pages = std::mem::take(&mut self.pages_next);
        !pages
            && self.options.streaming
            && !history.is_doubtful()
            && self.streaming_after.is_none_or(|after| now >= after)
            && !self
                .refusals
                .is_recent(&self.endpoint, self.options.streaming_retry)
    }

    /// Records that a streaming list was complete.
    pub(super) fn streamed(&mut self) {
        self.incomplete = 0;
        self.silent = 0;
        self.unbegun = 0;
        self.refusals.offered(&self.endpoint);
    }

    /// Records that a streaming list failed; true if pages are read now, and false if only after a back-off. `begun`:
    /// the server had agreed to it.
    pub(super) fn stream_failed(&mut self, error: &Error, begun: bool, now: Instant) -> bool {
        let refusal = refusal(error);
        self.refused = refusal == Some(Refusal::ServerIfPages);
        if refusal == Some(Refusal::Silence) && self.refusals.has_offered(&self.endpoint) {
            // The server is busy, and pages would be more work for it. If it stays silent, they are read once. A silence
            // does not make a later failure the second in a row.
            self.silent = self.silent.saturating_add(1);
            return self.silent > 1;
        }
        if refusal == Some(Refusal::Server) {
            self.refusals.refused(&self.endpoint);
        }
        // A list that was never begun did not break off. Once may be chance; a list that breaks off each time may come
        // through in pages.
        self.incomplete += u32::from(begun);
        let refused = refusal.is_some() || (begun && self.incomplete > 1);
        if refused {
            self.streaming_after = Some(now + self.options.streaming_retry);
        }
        refused
            || error.is_about_version()
            || matches!(error, Error::Incomplete)
            || (!begun && self.reads_pages_once(error))
    }

    /// A streaming list failed with `error` before it began: a proxy may end it early, and a role may allow lists and no watches
    /// (client-go lists after any failure). After the second in a row pages are read once, after a back-off; true if at once.
    fn reads_pages_once(&mut self, error: &Error) -> bool {
        let code = match error {
            Error::Transport(error) => error.code(),
            _ => None,
        };
        // These would meet pages too.
        if let Some(401 | 404 | 429) = code {
            return false;
        }
        self.unbegun += 1;
        if self.unbegun > 1 {
            self.unbegun = 0;
            self.pages_next = true;
        }
        code == Some(403)
    }

    /// The form in which the present state is requested first.
    pub(super) fn first_paging(&self, history: &History, now: Instant) -> Paging {
        self.paging(history.list_version(self.options.first_list), now)
    }

    /// The first form of a list at `version`, as client-go's `Reflector.list` chooses it.
    pub(super) fn paging(&self, version: Option<String>, now: Instant) -> Paging {
        let or_newest = version.is_some();
        let at_once = self.may_request_all(now);
        let version = version.filter(|version| version != CACHED || at_once);
        // The server answers a list at a known version from its cache, which a limit would bypass.
        let from_cache = version.as_ref().is_some_and(|version| version != CACHED);
        let all = from_cache && self.options.page_size.is_none() && !self.uncached && at_once;
        let limit = if all { 0 } else { self.page_size() };
        Paging {
            version,
            limit,
            or_newest,
        }
    }

    /// The form in which a list that failed is requested next, if it is not the same. If a token expires between pages,
    /// that is everything at once (client-go: `FullListIfExpired`); if everything at once is too much, pages.
    pub(super) fn other_paging(
        &mut self,
        failed: &Paging,
        page: Page,
        error: &Error,
        now: Instant,
    ) -> Option<Paging> {
        let Error::Transport(error) = error else {
            return None;
        };
        let mut other = failed.clone();
        match page {
            Page::First if failed.is_at_once() && error.is_unwieldy() => {
                self.pages_until = Some(now + PAGES_ONLY);
                other.version = other.version.filter(|version| version != CACHED);
                other.limit = self.page_size();
            }
            Page::Later if failed.limit > 0 && error.is_expired() && self.may_request_all(now) => {
                other.limit = 0;
            }
            _ => return None,
        }
        Some(other)
    }

    /// Records that a list was read.
    pub(super) fn listed(&mut self, paging: &Paging, paginated: bool) {
        self.uncached |= paginated && paging.version.as_deref() == Some(CACHED);
        if std::mem::take(&mut self.refused) {
            self.refusals.refused(&self.endpoint);
        }
    }

    /// Records that a list in pages was accepted.
    pub(super) fn accepted(&mut self) {
        self.silent = 0;
    }

    /// True if everything may be requested at once.
    fn may_request_all(&self, now: Instant) -> bool {
        self.pages_until.is_none_or(|until| now >= until)
    }

    fn page_size(&self) -> u32 {
        self.options.page_size.map_or(PAGE, NonZeroU32::get)
    }
}

// === impl Paging ===

impl Paging {
    /// The server answers with everything at once.
    fn is_at_once(&self) -> bool {
        self.limit == 0 || self.version.as_deref() == Some(CACHED)
    }
}

/// The refusal of streaming lists that a failed one reveals, if any.
fn refusal(error: &Error) -> Option<Refusal> {
    let error = match error {
        Error::Transport(error) => error,
        Error::Endless { .. } => return Some(Refusal::Request),
        _ => return None,
    };
    match (error.code(), error) {
        // A server without streaming lists refuses the parameters.
        (Some(422 | 501), _) => Some(Refusal::Server),
        // Or it ignores them and stays silent. A proxy may hold the answer back until it is complete, which it never is.
        // But a busy server is silent too, and so is a connection that is cut off.
        (_, transport::Error::Silent { .. } | transport::Error::Deadline { .. }) => {
            Some(Refusal::Silence)
        }
        // A selector that is not supported has the same answer.
        (Some(400), _) => Some(Refusal::ServerIfPages),
        // A kind that cannot be watched, or a server that does not send metadata alone.
        (Some(405 | 406 | 415), _) => Some(Refusal::Request),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube_core::Status;

    use super::*;

    const AFTER: Duration = Duration::from_secs(1);

    fn status(code: u16, reason: &str) -> Error {
        let status = Status {
            code,
            reason: reason.to_owned(),
            ..Status::default()
        };
        transport::Error::from_status(Box::new(status)).into()
    }

    fn silent() -> Error {
        transport::Error::Silent { after: AFTER }.into()
    }

    fn deadline() -> Error {
        transport::Error::Deadline { after: AFTER }.into()
    }

    fn offers(options: ReflectorOptions) -> Offers {
        let endpoint = Endpoint::of::<ConfigMap>();
        Offers::new(endpoint, Refusals::default(), options)
    }

    #[test]
    fn only_a_refusal_or_silence_means_that_streaming_is_not_offered() {
        for error in [status(422, "Invalid"), status(501, "")] {
            assert_eq!(refusal(&error), Some(Refusal::Server), "{error}");
        }
        for error in [silent(), deadline()] {
            assert_eq!(refusal(&error), Some(Refusal::Silence), "{error}");
        }
        assert_eq!(refusal(&status(400, "")), Some(Refusal::ServerIfPages));
        for code in [405, 406, 415] {
            assert_eq!(refusal(&status(code, "")), Some(Refusal::Request), "{code}");
        }
        for code in [401, 403, 404, 410, 429, 500, 503] {
            assert_eq!(refusal(&status(code, "")), None, "{code}");
        }
        assert_eq!(refusal(&Error::Incomplete), None);
        let endless = Error::Endless { after: AFTER };
        assert_eq!(refusal(&endless), Some(Refusal::Request));
    }

    /// A failed streaming list: whether pages follow at once, whether this watch streams afterwards, and whether other
    /// watches of the server do, before and after the pages were read.
    #[tokio::test(start_paused = true)]
    async fn a_refused_streaming_list_is_followed_by_pages_and_a_failure_by_a_back_off() {
        let cases = [
            (
                "no streaming lists",
                status(422, ""),
                (true, false, false, false),
            ),
            (
                "not this one, or none",
                status(400, ""),
                (true, false, true, false),
            ),
            ("not this kind", status(405, ""), (true, false, true, true)),
            ("silence", silent(), (true, false, true, true)),
            ("no answer", deadline(), (true, false, true, true)),
            (
                "without end",
                Error::Endless { after: AFTER },
                (true, false, true, true),
            ),
            ("breaks off", Error::Incomplete, (true, true, true, true)),
            ("expired", status(410, "Expired"), (true, true, true, true)),
            ("busy", status(429, ""), (false, true, true, true)),
            ("forbidden", status(403, ""), (true, true, true, true)),
            ("fails", status(504, ""), (false, true, true, true)),
            ("unknown", status(401, ""), (false, true, true, true)),
            ("missing", status(404, ""), (false, true, true, true)),
        ];
        let history = History::default();
        for (name, error, expected) in cases {
            let mut offers = offers(ReflectorOptions::default());
            let mut other = Offers::new(
                offers.endpoint.clone(),
                offers.refusals.clone(),
                offers.options,
            );
            let now = Instant::now();
            let pages = offers.stream_failed(&error, false, now);
            let (this, before) = (offers.streams(&history, now), other.streams(&history, now));
            let paging = offers.paging(None, now);
            offers.listed(&paging, false);
            let after = other.streams(&history, now);
            assert_eq!((pages, this, before, after), expected, "{name}");
            let hour = now + ReflectorOptions::default().streaming_retry;
            assert!(offers.streams(&history, hour) || !after, "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_second_streaming_list_in_a_row_that_breaks_off_is_the_last_for_an_hour() {
        let now = Instant::now();
        let history = History::default();
        for error in [|| status(500, ""), || Error::Incomplete] {
            let mut offers = offers(ReflectorOptions::default());
            for _ in 0..3 {
                offers.stream_failed(&error(), true, now);
                assert!(offers.streams(&history, now));
                offers.streamed();
                // Neither counts.
                offers.stream_failed(&silent(), true, now);
                offers.accepted();
                offers.stream_failed(&status(500, ""), false, now);
            }
            offers.stream_failed(&error(), true, now);
            assert!(offers.stream_failed(&error(), true, now));
            assert!(!offers.streams(&history, now));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_two_streaming_lists_in_a_row_that_did_not_begin_pages_are_read_once() {
        let now = Instant::now();
        let mut offers = offers(ReflectorOptions::default());
        for _ in 0..2 {
            assert!(!offers.stream_failed(&status(504, ""), false, now));
            assert!(!offers.stream_failed(&status(429, ""), false, now), "busy");
            assert!(offers.streams(&History::default(), now));
            assert!(!offers.stream_failed(&status(503, ""), false, now));
            assert!(
                !offers.streams(&History::default(), now),
                "after a back-off"
            );
            assert!(offers.streams(&History::default(), now), "once");
        }
        offers.stream_failed(&status(504, ""), false, now);
        offers.streamed();
        assert!(!offers.stream_failed(&status(504, ""), false, now));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_of_a_server_that_offered_streaming_lists_backs_off_once() {
        let now = Instant::now();
        let history = History::default();
        let mut offers = offers(ReflectorOptions::default());
        offers.streamed();
        for _ in 0..3 {
            assert!(!offers.stream_failed(&silent(), true, now));
            assert!(offers.stream_failed(&deadline(), false, now));
            assert!(offers.stream_failed(&silent(), true, now));
            assert!(offers.streams(&history, now), "it stays offered");
            offers.accepted();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_is_paged_unless_the_cache_has_its_version() {
        let now = Instant::now();
        let mut offers = offers(ReflectorOptions::default());
        let paging = |offers: &Offers, version: Option<&str>| {
            let paging = offers.paging(version.map(str::to_owned), now);
            assert_eq!(paging.or_newest, version.is_some());
            (paging.version, paging.limit)
        };
        let at = |version: &str| Some(version.to_owned());
        assert_eq!(paging(&offers, None), (None, 500));
        assert_eq!(paging(&offers, Some("0")), (at("0"), 500));
        assert_eq!(paging(&offers, Some("7")), (at("7"), 0));
        // A list at 0 in pages: the server has no cache.
        let cached = offers.paging(at("0"), now);
        offers.listed(&cached, false);
        assert_eq!(paging(&offers, Some("7")), (at("7"), 0));
        offers.listed(&cached, true);
        assert_eq!(paging(&offers, Some("7")), (at("7"), 500));
        offers.options.page_size = NonZeroU32::new(9);
        assert_eq!(paging(&offers, Some("7")), (at("7"), 9));
    }

    #[tokio::test(start_paused = true)]
    async fn everything_at_once_and_pages_take_turns_when_they_fail() {
        let now = Instant::now();
        let mut offers = offers(ReflectorOptions::default());
        let unwieldy = || transport::Error::TooLarge { limit: 800 }.into();
        let (first, later) = (Page::First, Page::Later);

        let pages = offers.paging(None, now);
        assert_eq!(offers.other_paging(&pages, first, &unwieldy(), now), None);
        assert_eq!(
            offers.other_paging(&pages, first, &status(410, ""), now),
            None
        );
        let all = offers.other_paging(&pages, later, &status(410, ""), now);
        let all = all.expect("the token expired");
        assert_eq!(all.limit, 0);

        let cached = offers.paging(Some("0".to_owned()), now);
        let newest = offers.other_paging(&cached, first, &unwieldy(), now);
        let newest = newest.expect("too large");
        assert_eq!((newest.version, newest.limit), (None, 500));
        let pages = offers.other_paging(&all, first, &deadline(), now);
        assert_eq!(pages.expect("too slow").limit, 500);

        // For an hour.
        let version = || Some("7".to_owned());
        let paging = offers.paging(version(), now);
        assert_eq!(paging.limit, 500);
        let expired = status(410, "");
        assert_eq!(offers.other_paging(&paging, later, &expired, now), None);
        assert_eq!(offers.paging(version(), now + PAGES_ONLY).limit, 0);
    }
}
