//! The order of a run's steps: no call past an unchecked fence, and one report for each transition.

use std::collections::BTreeSet;

use super::*;

#[derive(Default)]
pub(super) struct Audit {
    /// The fence was checked, and no call was made since.
    checked: bool,
    /// The phase that the present run wrote and has to report.
    owes: Option<Phase>,
    /// The reports of the present run.
    reports: usize,
    /// Whether the status that the present run replaced showed a ban.
    showed: Option<bool>,
    /// No write is lost, so no claim differs from the status of its block.
    faultless: bool,
    /// The bans that were reported, by block and count.
    banned: BTreeSet<(String, i64)>,
    /// The blocks with a transition or a new intent since the last report of a lift.
    liftable: BTreeSet<String>,
}

impl Audit {
    pub(super) fn new(faultless: bool) -> Self {
        Self {
            faultless,
            ..Self::default()
        }
    }

    pub(super) fn begins(&mut self) {
        (self.checked, self.owes, self.reports) = (false, None, 0);
        self.showed = None;
    }

    /// The fence is open.
    pub(super) fn checked(&mut self) {
        self.checked = true;
    }

    /// A call begins.
    pub(super) fn calls(&mut self, key: &str, call: &Call) {
        let checked = std::mem::take(&mut self.checked);
        assert!(checked, "{key}: {call:?} without a check of the fence");
    }

    /// An intent to ban is written.
    pub(super) fn intends(&mut self, key: &str) {
        self.liftable.insert(key.to_owned());
    }

    /// The server has another status of the block.
    pub(super) fn changes(&mut self, key: &str, before: &IPBlockStatus, after: &IPBlockStatus) {
        if before.phase != after.phase {
            self.liftable.insert(key.to_owned());
        }
    }

    /// The status after the calls was written, and the run goes on.
    pub(super) fn wrote(&mut self, before: &IPBlockStatus, after: &IPBlockStatus) {
        // A block that is unblocked before it was banned expires without a report.
        let quiet = after.is(&Phase::Expired) && !before.is(&Phase::Active);
        let settled = after.is(&Phase::Active) || after.is_over();
        self.showed = Some(before.shows_ban());
        if before.phase != after.phase && settled && !quiet {
            self.owes.clone_from(&after.phase);
        }
    }

    /// `stays`: the status of another block shows a ban of the address.
    pub(super) fn reported(&mut self, key: &str, block: &IPBlock, report: &Report, stays: bool) {
        self.reports += 1;
        assert_eq!(self.reports, 1, "{key}: a second report: {report:?}");
        match report.effect {
            Effect::Banned => {
                let count = block.status.as_ref().map_or(0, IPBlockStatus::bans);
                let new = self.banned.insert((key.to_owned(), count));
                assert!(new, "{key}: ban {count} is reported again: {report:?}");
            }
            Effect::Lifted(..) => {
                let news = self.liftable.remove(key);
                assert!(news, "{key}: a lift is reported again: {report:?}");
                let status = block.status.as_ref();
                let showed = || status.is_some_and(IPBlockStatus::shows_ban);
                let showed = self.showed.unwrap_or_else(showed);
                let mut notices = report.announcements.iter().map(|it| it.notice);
                let resolved = notices.any(|notice| notice == Some(Notice::Resolve));
                assert!(
                    resolved || stays || !showed,
                    "{key}: no resolve: {report:?}"
                );
                let early = resolved && stays && self.faultless;
                assert!(!early, "{key}: it stays banned: {report:?}");
            }
            _ => {}
        }
    }

    /// The run ended without an error.
    pub(super) fn ends(&self, key: &str) {
        assert!(
            self.owes.is_none() || self.reports == 1,
            "{key}: the phase {:?} is not reported",
            self.owes
        );
    }

    /// There is another block of this name.
    pub(super) fn forget(&mut self, key: &str) {
        self.banned.retain(|(other, _)| other != key);
        self.liftable.remove(key);
    }
}
