//! What came of the ConfigMap so far: what is news, and what is tried again.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::super::gateway::Answers;
use super::engaged::Engaged;
use crate::config::Changes;
use crate::mounted::Stamp;
use crate::policy::Allowed;
use crate::target::Target;

/// What came of the ConfigMap so far.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The record was read.
    pub(super) recalled: bool,
    /// The content of the last configuration that was right, of this run or of an earlier one.
    pub(super) good: Option<BTreeMap<String, String>>,
    /// The version that was read last.
    version: Option<String>,
    /// The version that was refused last; `Some(None)`: the ConfigMap is gone.
    refused: Option<Option<String>>,
    /// The problems of the last run.
    problems: Vec<String>,
    /// That no range of Pods is known was reported.
    pub(super) podless: bool,
    /// The blocks that the configuration affects could not be requested.
    pub(super) unqueued: bool,
    /// Since when bans at the gateway wait for the record.
    pub(super) held_since: Option<Instant>,
    /// A channel could not be connected: its files have to be read again.
    pub(super) unconnected: bool,
    /// What the notifier's files were when it was connected.
    stamps: Vec<Stamp>,
    /// The addresses that the gateway's name had lately.
    pub(super) answers: Answers,
    /// The entries of the allowlist whose end was reported.
    ending: Vec<(Target, Allowed)>,
    /// The sources that were reported because no engine enforces their entries.
    unenforced: Vec<String>,
    /// The brakes that were engaged at the last run.
    brakes: Vec<Engaged>,
}

// === impl Memory ===

impl Memory {
    /// Whether this version of the ConfigMap was not read before.
    pub(super) fn is_new(&mut self, version: Option<&str>) -> bool {
        let new = self.version.is_none() || self.version.as_deref() != version;
        self.version = version.map(str::to_owned);
        new
    }

    /// `changes`, with the notifier if its files changed since it was connected.
    pub(super) fn with_files(&mut self, mut changes: Changes, stamps: Vec<Stamp>) -> Changes {
        changes.notify |= self.stamps != stamps;
        self.stamps = stamps;
        changes
    }

    /// The ConfigMap is right. Whether the edit before it was not, which is news though nothing changes with it.
    pub(super) fn accept(&mut self) -> bool {
        self.refused.take().is_some()
    }

    /// The ConfigMap is wrong. Whether that is news.
    pub(super) fn refuse(&mut self, version: Option<&str>) -> bool {
        let version = Some(version.map(str::to_owned));
        let news = self.refused != version;
        self.refused = version;
        news
    }

    /// Those of `ending` that were not reported yet.
    pub(super) fn ending_news(&mut self, ending: &[(Target, Allowed)]) -> Vec<(Target, Allowed)> {
        let known = std::mem::replace(&mut self.ending, ending.to_vec());
        let news = ending.iter().filter(|entry| !known.contains(entry));
        news.cloned().collect()
    }

    /// No engine enforces the entries of `sources`. Returns those of them that were not reported yet.
    pub(super) fn unenforced_news(&mut self, sources: Vec<String>) -> Vec<String> {
        let known = std::mem::replace(&mut self.unenforced, sources);
        let news = self.unenforced.iter();
        let news = news.filter(|source| !known.contains(source));
        news.cloned().collect()
    }

    /// The brakes are these now. Returns those that engaged or hold something else since the last run, and those that are
    /// engaged no more.
    pub(super) fn brakes_changed(&mut self, engaged: Vec<Engaged>) -> (Vec<Engaged>, Vec<Engaged>) {
        let before = std::mem::replace(&mut self.brakes, engaged);
        let news = self.brakes.iter().filter(|brake| !before.contains(brake));
        let gone = before.iter();
        let gone = gone.filter(|brake| self.brakes.iter().all(|now| !now.is(brake)));
        (news.cloned().collect(), gone.cloned().collect())
    }

    /// Whether `problems` differ from those of the last run: a problem that lasts is reported once.
    pub(super) fn are_news(&mut self, problems: &[String]) -> bool {
        let news = self.problems != problems;
        self.problems = problems.to_vec();
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_is_put_in_force_again_is_no_new_reading() {
        let mut memory = Memory::default();
        assert!(memory.is_new(Some("1")));
        assert!(!memory.is_new(Some("1")), "a listener is tried again");
        assert!(memory.is_new(Some("2")));
    }

    #[test]
    fn the_way_back_from_a_wrong_edit_is_reported_once() {
        let mut memory = Memory::default();
        assert!(!memory.accept());
        assert!(memory.refuse(Some("1")));
        assert!(!memory.refuse(Some("1")), "it is reported once a version");
        assert!(memory.refuse(Some("2")) && memory.refuse(None));
        assert!(memory.accept());
        assert!(!memory.accept());
    }

    #[test]
    fn a_problem_is_reported_once_until_it_changes() {
        let mut memory = Memory::default();
        let busy = ["address in use".to_owned()];
        assert!(!memory.are_news(&[]));
        assert!(memory.are_news(&busy));
        assert!(!memory.are_news(&busy));
        assert!(memory.are_news(&[]));
        assert!(memory.are_news(&busy), "it came back");
    }

    #[test]
    fn a_notifier_is_made_again_when_its_files_changed() {
        let mut memory = Memory::default();
        let nothing = Changes::default();
        assert!(memory.with_files(nothing, vec![None]).notify);
        assert_eq!(memory.with_files(nothing, vec![None]), nothing);
        assert!(memory.with_files(nothing, vec![Some((None, 7))]).notify);
        assert_eq!(memory.with_files(nothing, vec![Some((None, 7))]), nothing);
    }
}
