//! What a reflector knows from one request to the next, and what it asks for because of it.

use std::num::NonZeroU32;
use std::time::Duration;

use reeve_clock::Random;
use tokio::time::Instant;

use super::options::{FirstList, ReflectorOptions};
use super::pace::Pace;
use crate::backoff::Backoff;
use reeve_client::ResourceVersion;
use reeve_client::version;

/// How many objects a page holds, where nobody said otherwise (client-go: `defaultPageSize`).
const PAGE: u32 = 500;

/// For how long everything is asked for in pages after it could not be had at once.
const PAGES_ONLY: Duration = Duration::from_secs(3600);

/// After this many old events in a row the server is asked where it stands, and then at most once in so long.
const OLD_EVENTS: u32 = 10;
const PROBE_INTERVAL: Duration = Duration::from_secs(300);

/// After this many silent deadlines in a row, and then each time their number is a multiple of the second, the
/// server is asked where it stands.
const PROBED_SILENCE: u32 = 2;
const PROBED_SILENCES: u32 = 10;

/// What a reflector knows from one request to the next.
pub(super) struct Progress {
    /// The newest version seen.
    pub(super) version: Option<ResourceVersion>,
    /// The server no longer knows that version: only the newest state will do (client-go:
    /// `isLastSyncResourceVersionUnavailable`).
    pub(super) unavailable: bool,
    /// A list at "any" version came in pages: the server has no cache for this kind, so go on in pages.
    pub(super) pages_without_cache: bool,
    /// Everything at once was too large or took too long: it is not asked for until then.
    pages_only_until: Option<Instant>,
    /// Streaming lists are not asked for until then.
    pub(super) streaming_after: Option<Instant>,
    /// A streaming list was refused, and whether the server offers none shows when the pages can be read.
    pub(super) refused: bool,
    /// How many streaming lists in a row ended before they were complete, but for those that met such silence.
    pub(super) incomplete: u32,
    /// How many streaming lists in a row met silence, of a server that offers them, since a list was read.
    pub(super) silent_lists: u32,
    /// How many consistent lists in a row were older than what is known.
    pub(super) behind: u32,
    /// How many bookmarks in a row were older than what is known.
    pub(super) low_bookmarks: u32,
    /// How many events in a row were not newer than what is known.
    pub(super) old_events: u32,
    /// When the server was last asked where it stands because of those.
    probed: Option<Instant>,
    /// How often in a row a watch was silent.
    pub(super) silences: u32,
    /// How many watches in a row failed.
    pub(super) failures: u32,
    /// Since a watch worked last, a wait was lengthened by [`ReflectorOptions::reconnect_spread`].
    pub(super) scattered: bool,
    pub(super) backoff: Backoff,
    pub(super) pace: Pace,
}

// === impl Progress ===

impl Progress {
    /// Nothing is known but that `not_before` was seen, if it is not empty.
    pub(super) fn new(
        options: &ReflectorOptions,
        not_before: &ResourceVersion,
        random: &Random,
    ) -> Self {
        Self {
            version: Some(not_before.clone()).filter(|version| !version.is_empty()),
            unavailable: false,
            pages_without_cache: false,
            pages_only_until: None,
            streaming_after: None,
            refused: false,
            incomplete: 0,
            silent_lists: 0,
            behind: 0,
            low_bookmarks: 0,
            old_events: 0,
            probed: None,
            silences: 0,
            failures: 0,
            scattered: false,
            backoff: Backoff::new(options.backoff, random.clone()),
            pace: Pace::new(options.request_burst, options.request_interval),
        }
    }

    /// True if `version` is known not to be news. That two opaque versions are equal says nothing: they are of
    /// two objects.
    pub(super) fn is_old(&self, version: &str) -> bool {
        self.version
            .as_ref()
            .is_some_and(|known| match version::compare(version, known.as_str()) {
                Some(std::cmp::Ordering::Less) => true,
                Some(std::cmp::Ordering::Equal) => version::is_number(version),
                _ => false,
            })
    }

    /// Moves on to `version`; true if it is news.
    pub(super) fn advance(&mut self, version: &str) -> bool {
        if version.is_empty() {
            return false;
        }
        if self.is_old(version) {
            self.old_events = self.old_events.saturating_add(1);
            return false;
        }
        self.low_bookmarks = 0;
        self.old_events = 0;
        self.version = Some(ResourceVersion::from(version));
        true
    }

    /// The version that a list in pages is asked for at; `None` for the newest.
    pub(super) fn list_version(&self, options: &ReflectorOptions) -> Option<String> {
        match options.first_list {
            FirstList::Any if !self.unavailable => {
                let known = self.version.as_ref();
                Some(known.map_or_else(|| "0".to_owned(), ToString::to_string))
            }
            _ => None,
        }
    }

    /// How many objects a page of a list at `version` holds; 0 for all at once (client-go: `Reflector.list`).
    pub(super) fn page_limit(&self, options: &ReflectorOptions, version: Option<&str>) -> u32 {
        // A list at a known version comes from the server's cache, which a limit would bypass.
        let from_cache = version.is_some_and(|version| version != "0");
        if from_cache
            && options.page_size.is_none()
            && !self.pages_without_cache
            && self.may_ask_for_all()
        {
            0
        } else {
            Self::page_size(options)
        }
    }

    /// How many objects a page holds.
    pub(super) fn page_size(options: &ReflectorOptions) -> u32 {
        options.page_size.map_or(PAGE, NonZeroU32::get)
    }

    /// Whether everything may be asked for at once.
    pub(super) fn may_ask_for_all(&self) -> bool {
        self.pages_only_until
            .is_none_or(|until| Instant::now() >= until)
    }

    /// Notes that everything at once was too large or took too long.
    pub(super) fn ask_in_pages(&mut self) {
        self.pages_only_until = Some(Instant::now() + PAGES_ONLY);
    }

    /// Whether a watch was silent so often that the server is to be asked where it stands.
    pub(super) fn is_too_silent(&self) -> bool {
        self.silences == PROBED_SILENCE
            || (self.silences > 0 && self.silences.is_multiple_of(PROBED_SILENCES))
    }

    /// Whether so many old events came that the server is to be asked now where it stands: one whose history began
    /// anew says nothing else, if it sends no bookmarks.
    pub(super) fn is_too_old(&mut self) -> bool {
        if self.old_events < OLD_EVENTS {
            return false;
        }
        let now = Instant::now();
        let due = self.probed.is_none_or(|at| now - at >= PROBE_INTERVAL);
        if due {
            self.probed = Some(now);
        }
        due
    }
}
