//! What a candidate has seen of the lease, and what it wrote.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;

use super::event::Now;
use crate::record::{Decision, Observed, Record, decide};

/// Maximum number of its own writes that a candidate remembers while it does not lead.
const OWN_RENEW_TIMES: usize = 64;

/// The lease as one candidate has seen it.
#[derive(Debug)]
pub(super) struct View {
    identity: String,
    /// Another process has the same identity: a lease in this name that this process did not write is another's.
    pub(super) duplicate_identity: bool,
    /// The lease as last read or written: the base of the next update.
    lease: Option<Lease>,
    observed: Option<Observed>,
    /// The `renewTime`, in microseconds, of the last acknowledged write and of the writes tried since. While this process
    /// leads, a lease in its name with another `renewTime` belongs to another process of the same identity: an earlier
    /// write of this process cannot arrive any more, because its resourceVersion is older.
    own_renew_times: VecDeque<i64>,
    /// When a lease in our name that this process did not write was last seen to change. An earlier process of this
    /// identity held it until then, and its last writes may still arrive.
    inherited: Option<Duration>,
}

// === impl View ===

impl View {
    pub(super) fn new(identity: String) -> Self {
        Self {
            identity,
            duplicate_identity: false,
            lease: None,
            observed: None,
            own_renew_times: VecDeque::new(),
            inherited: None,
        }
    }

    /// Records the answer of a read. Returns whether it shows a change.
    pub(super) fn read(&mut self, lease: Option<&Lease>, now: Duration) -> bool {
        self.lease = lease.cloned();
        lease.is_some_and(|lease| self.observe(Record::of(lease), now))
    }

    /// Records the lease of a watch event. Returns whether it shows a change.
    pub(super) fn shown(&mut self, lease: Lease, now: Duration) -> bool {
        let record = Record::of(&lease);
        self.lease = Some(lease);
        self.observe(record, now)
    }

    fn observe(&mut self, record: Record, now: Duration) -> bool {
        let inherited = record.holder == self.identity && !self.is_written_here(&record);
        let changed = Observed::update(&mut self.observed, record, now);
        if changed && inherited {
            self.inherited = Some(now);
        }
        changed
    }

    /// Time until the writes of an earlier process of this identity have arrived, at most `margin`.
    pub(super) fn inherited_lands_in(&self, margin: Duration, now: Duration) -> Duration {
        self.inherited.map_or(Duration::ZERO, |at| {
            at.saturating_add(margin).saturating_sub(now)
        })
    }

    /// Records a deletion of the lease. Its holder is respected for as long as before.
    pub(super) fn deleted(&mut self) {
        self.lease = None;
    }

    /// Records a write that is about to be sent.
    pub(super) fn writes(&mut self, record: &Record) {
        let renewed = record.renewed.map(Timestamp::as_microsecond);
        self.own_renew_times.extend(renewed);
    }

    /// Forgets the oldest own writes of a candidate that does not lead. There are few while it leads, because it leads
    /// for a limited time without an acknowledged one.
    pub(super) fn forget_old_writes(&mut self) {
        let excess = self.own_renew_times.len().saturating_sub(OWN_RENEW_TIMES);
        self.own_renew_times.drain(..excess);
    }

    /// Records the answer of a write that was sent at `sent_at`.
    pub(super) fn written(&mut self, lease: Lease, sent_at: Duration) {
        let earlier = self.own_renew_times.len().saturating_sub(1);
        self.own_renew_times.drain(..earlier);
        self.observed = Some(Observed {
            record: Record::of(&lease),
            at: sent_at,
        });
        self.lease = Some(lease);
    }

    /// The lease to write `record` into, with everything else that it holds.
    pub(super) fn draft(&self, record: &Record) -> Lease {
        let mut lease = self.lease.clone().unwrap_or_default();
        record.apply(&mut lease);
        lease
    }

    /// The decision for the lease as it was last read or written.
    pub(super) fn decide(&self, duration: Duration, now: Now) -> Decision {
        let observed = self.observed.as_ref();
        if let Some(observed) = observed
            && self.duplicate_identity
            && !self.held_for(now.boot).unwrap_or_default().is_zero()
        {
            let holder = observed.record.holder.clone();
            return Decision::Held { holder };
        }
        let exists = self.lease.is_some();
        decide(
            exists,
            observed,
            &self.identity,
            duration,
            now.date,
            now.boot,
        )
    }

    /// Whether the lease is ours to the knowledge of this process, so that it can be written without a read.
    pub(super) fn holds(&self, now: Duration) -> bool {
        let held = self.observed.as_ref().is_some_and(|observed| {
            let record = &observed.record;
            record.holder == self.identity
                && !self.is_anothers(record)
                && !observed.remaining(now).is_zero()
        });
        held && self.lease.is_some()
    }

    /// The other process that holds the lease, ended or not.
    pub(super) fn other_holder(&self) -> Option<&str> {
        let record = &self.observed.as_ref()?.record;
        self.is_anothers(record).then_some(&*record.holder)
    }

    /// Time for which the lease of another must still be respected; `None` when no other process holds it.
    pub(super) fn held_for(&self, now: Duration) -> Option<Duration> {
        self.other_holder()?;
        Some(self.observed.as_ref()?.remaining(now))
    }

    /// Whether `lease` is no newer than the one last read or written.
    pub(super) fn is_known(&self, lease: &Lease) -> bool {
        let version = |lease: &Lease| lease.metadata.resource_version.clone().unwrap_or_default();
        self.lease.as_ref().is_some_and(|known| {
            reeve_client::compare(&version(lease), &version(known)).is_some_and(Ordering::is_le)
        })
    }

    /// Whether this process holds `lease`, by a write of its own.
    pub(super) fn is_ours(&self, lease: &Lease) -> bool {
        let record = Record::of(lease);
        record.holder == self.identity && self.is_written_here(&record)
    }

    /// Whether `lease` is held in the name of this process, by a write of another.
    pub(super) fn is_duplicate(&self, lease: &Lease) -> bool {
        let record = Record::of(lease);
        record.holder == self.identity && !self.is_written_here(&record)
    }

    fn is_anothers(&self, record: &Record) -> bool {
        let duplicate = self.duplicate_identity && !self.is_written_here(record);
        !record.holder.is_empty() && (record.holder != self.identity || duplicate)
    }

    /// Whether this process tried to write `record`, which is in its name.
    fn is_written_here(&self, record: &Record) -> bool {
        let renewed = record.renewed.map(Timestamp::as_microsecond);
        renewed.is_some_and(|renewed| self.own_renew_times.contains(&renewed))
    }
}
