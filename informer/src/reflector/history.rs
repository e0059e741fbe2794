//! The versions that a watch has brought, and the signs that the server's history began again: [`History`].
//!
//! A server that was restored from a backup repeats versions. One answer of it looks like that of a replica that lags
//! behind. So the answers are counted: consistent lists, bookmarks and events that are older, and silences.

use std::cmp::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::error::Error;
use super::options::FirstList;
use reeve_client::{ResourceVersion, version};

/// The number of low bookmarks in a row after which a watch fails.
const LOW_BOOKMARKS: u32 = 3;

/// The number of old events in a row after which the server is asked for its version.
const OLD_EVENTS: u32 = 10;

/// The shortest time between two such requests.
const PROBE_INTERVAL: Duration = Duration::from_secs(300);

/// The number of silences in a row after which the server is asked for its version, and again at each multiple of the
/// second number.
const PROBED_SILENCE: u32 = 2;
const PROBED_SILENCES: u32 = 10;

/// The history of one watch: the newest version seen, and how much speaks against it.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The newest version seen. Empty if the last list had none. Its memory is used again for the next one: a watch
    /// brings a version with each event, and few are needed.
    version: Option<String>,
    /// The server no longer has that version, so the next list has to be of its newest state (client-go:
    /// `isLastSyncResourceVersionUnavailable`).
    expired: bool,
    /// A list was read.
    listed: bool,
    /// The number of consistent lists in a row that were older than the version.
    old_lists: u32,
    /// The number of bookmarks in a row that were older.
    low_bookmarks: u32,
    /// The number of events in a row that were not newer.
    old_events: u32,
    /// The number of silences in a row.
    silences: u32,
    /// The time of the last request for the server's version that old events caused.
    probed: Option<Instant>,
}

/// A new history of the server, with which a list begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewEpoch {
    /// The newest version of the former history.
    pub(super) known: ResourceVersion,
    /// The number of lists in a row that were older.
    pub(super) lists: u32,
}

// === impl History ===

impl History {
    /// A history in which only `not_before` was seen, if it is not empty.
    pub(super) fn new(not_before: &ResourceVersion) -> Self {
        Self {
            version: Some(not_before.to_string()).filter(|version| !version.is_empty()),
            ..Self::default()
        }
    }

    /// True once a list was read, or from the start if a version is known.
    pub(super) fn has_begun(&self) -> bool {
        self.version.is_some()
    }

    /// The version after which the next watch begins; empty for none.
    pub(super) fn version(&self) -> ResourceVersion {
        self.version.as_deref().unwrap_or_default().into()
    }

    /// True while lists are older than the version: then one version may stand for two states.
    pub(super) fn is_doubtful(&self) -> bool {
        self.old_lists > 0
    }

    /// True once a list was read, whatever was known before.
    pub(super) fn has_listed(&self) -> bool {
        self.listed
    }

    /// The version at which pages are requested; `None` for the newest state.
    pub(super) fn list_version(&self, first_list: FirstList) -> Option<String> {
        match first_list {
            FirstList::Any if !self.expired => {
                let known = self.version.clone();
                Some(known.unwrap_or_else(|| "0".to_owned()))
            }
            _ => None,
        }
    }

    /// The version that a streaming list must have reached; `None` for the newest state.
    pub(super) fn streaming_version(&self) -> Option<ResourceVersion> {
        let known = self.version.as_deref().filter(|_| !self.expired);
        known.map(ResourceVersion::from)
    }

    /// Records that the server does not have the version.
    pub(super) fn expire(&mut self) {
        self.expired = true;
    }

    /// Gives up the version: the next list counts whatever its version is.
    pub(super) fn forget_version(&mut self) {
        self.version = Some(String::new());
    }

    /// Decides on a complete list. `consistent`: the server was asked for its newest state. A list that is older than
    /// the version is refused, until `epoch_lists` consistent lists in a row were.
    pub(super) fn accept_list(
        &mut self,
        version: &ResourceVersion,
        consistent: bool,
        epoch_lists: u32,
    ) -> Result<Option<NewEpoch>, Error> {
        let known = self.version.take().map(ResourceVersion::from);
        let epoch = match known.filter(|known| version.is_older_than(known)) {
            None => None,
            Some(known) => {
                self.old_lists += u32::from(consistent);
                if self.old_lists < epoch_lists {
                    // The next list has to be consistent, so that it counts.
                    self.expired = true;
                    self.version = Some(known.to_string());
                    let got = version.clone();
                    return Err(Error::Behind { known, got });
                }
                let lists = self.old_lists;
                Some(NewEpoch { known, lists })
            }
        };
        *self = Self {
            version: Some(version.to_string()),
            listed: true,
            silences: self.silences,
            probed: self.probed,
            ..Self::default()
        };
        Ok(epoch)
    }

    /// True if `version` is known not to be newer. Equal opaque versions may be of two objects, and so are not old.
    pub(super) fn is_old(&self, version: &str) -> bool {
        self.version
            .as_ref()
            .is_some_and(|known| match version::compare(version, known) {
                Some(Ordering::Less) => true,
                Some(Ordering::Equal) => version::is_number(version),
                _ => false,
            })
    }

    /// Moves on to the `version` of an event; true if it is newer.
    pub(super) fn advance(&mut self, version: &str) -> bool {
        if version.is_empty() {
            return false;
        }
        if self.is_old(version) {
            self.count_old_event();
            return false;
        }
        self.low_bookmarks = 0;
        self.old_events = 0;
        self.set(version);
        true
    }

    fn set(&mut self, version: &str) {
        let known = self.version.get_or_insert_default();
        known.clear();
        known.push_str(version);
    }

    /// Counts an event that was dropped because it is old.
    pub(super) fn count_old_event(&mut self) {
        self.old_events = self.old_events.saturating_add(1);
    }

    /// Moves on to the version of a bookmark; false if it is older, and an error if too many in a row were.
    pub(super) fn bookmark(&mut self, version: &ResourceVersion) -> Result<bool, Error> {
        if let Some(known) = &self.version
            && version::compare(version.as_str(), known) == Some(Ordering::Less)
        {
            self.low_bookmarks += 1;
            if self.low_bookmarks >= LOW_BOOKMARKS {
                let known = known.as_str().into();
                return Err(Error::LowBookmarks { known });
            }
            return Ok(false);
        }
        self.low_bookmarks = 0;
        self.old_events = 0;
        self.set(version.as_str());
        Ok(true)
    }

    /// Records that the watch brought a line.
    pub(super) fn heard(&mut self) {
        self.silences = 0;
    }

    /// Records that the watch was silent; true if the server has to be asked for its version. A restored server sends
    /// nothing, not even bookmarks, to a watch whose version it has not reached.
    pub(super) fn was_silent(&mut self) -> bool {
        self.silences += 1;
        self.silences == PROBED_SILENCE || self.silences.is_multiple_of(PROBED_SILENCES)
    }

    /// True if the server has to be asked for its version because of old events: a restored server may send only
    /// those, and never a bookmark.
    pub(super) fn needs_probe(&mut self) -> bool {
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

    /// Compares the server's newest version with the known one.
    pub(super) fn check_newest(&self, got: ResourceVersion) -> Result<(), Error> {
        match &self.version {
            Some(known) if version::compare(got.as_str(), known) == Some(Ordering::Less) => {
                let known = known.as_str().into();
                Err(Error::Behind { known, got })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(version: &str) -> History {
        History::new(&version.into())
    }

    fn list(history: &mut History, version: &str, consistent: bool) -> Result<u32, ()> {
        let accepted = history.accept_list(&version.into(), consistent, 3);
        accepted
            .map(|epoch| epoch.map_or(0, |epoch| epoch.lists))
            .map_err(drop)
    }

    #[test]
    fn the_third_consistent_list_in_a_row_that_is_older_begins_an_epoch() {
        let mut history = history("100");
        assert_eq!(list(&mut history, "40", true), Err(()));
        assert_eq!(list(&mut history, "40", false), Err(()), "it may lag");
        assert_eq!(list(&mut history, "41", true), Err(()));
        assert!(history.is_doubtful());
        assert_eq!(history.version().as_str(), "100");
        assert_eq!(list(&mut history, "42", true), Ok(3));
        assert!(!history.is_doubtful());
        assert_eq!(history.version().as_str(), "42");
    }

    #[test]
    fn a_list_that_has_caught_up_ends_the_doubt() {
        let mut history = history("100");
        for _ in 0..5 {
            assert_eq!(list(&mut history, "40", true), Err(()));
            assert_eq!(list(&mut history, "40", true), Err(()));
            assert_eq!(list(&mut history, "100", true), Ok(0));
        }
    }

    #[test]
    fn after_an_old_list_the_newest_state_is_requested() {
        let mut history = history("100");
        assert_eq!(history.list_version(FirstList::Any), Some("100".into()));
        assert_eq!(history.list_version(FirstList::Consistent), None);
        assert_eq!(history.streaming_version(), Some("100".into()));
        list(&mut history, "40", false).unwrap_err();
        assert_eq!(history.list_version(FirstList::Any), None);
        assert_eq!(history.streaming_version(), None);
        list(&mut history, "101", true).unwrap();
        assert_eq!(history.list_version(FirstList::Any), Some("101".into()));
        let fresh = History::default();
        assert_eq!(fresh.list_version(FirstList::Any), Some("0".into()));
    }

    #[test]
    fn events_that_are_not_newer_count_and_opaque_versions_have_no_order() {
        let mut history = history("10");
        for (version, newer) in [("9", false), ("10", false), ("11", true), ("", false)] {
            assert_eq!(history.advance(version), newer, "{version:?}");
        }
        assert!(history.advance("x") && history.advance("x") && history.advance("a"));
    }

    #[test]
    fn the_third_low_bookmark_in_a_row_is_an_error() {
        let mut history = history("10");
        let mut bookmark = |version: &str| history.bookmark(&version.into());
        assert!(!bookmark("8").unwrap() && !bookmark("9").unwrap());
        assert!(bookmark("10").unwrap(), "it ends the row");
        assert!(!bookmark("9").unwrap() && !bookmark("9").unwrap());
        assert!(matches!(bookmark("9"), Err(Error::LowBookmarks { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn ten_old_events_in_a_row_cause_a_probe_and_another_after_five_minutes() {
        let mut history = history("10");
        for _ in 0..9 {
            history.advance("9");
            assert!(!history.needs_probe());
        }
        history.advance("9");
        assert!(history.needs_probe());
        history.advance("9");
        assert!(!history.needs_probe());
        tokio::time::advance(PROBE_INTERVAL).await;
        assert!(history.needs_probe());
        history.advance("11");
        tokio::time::advance(PROBE_INTERVAL).await;
        assert!(!history.needs_probe());
    }

    #[test]
    fn the_second_silence_and_each_tenth_cause_a_probe() {
        let mut history = history("10");
        let probes: Vec<_> = (1..=20).filter(|_| history.was_silent()).collect();
        assert_eq!(probes, [2, 10, 20]);
        history.heard();
        assert!(!history.was_silent() && history.was_silent());
    }
}
