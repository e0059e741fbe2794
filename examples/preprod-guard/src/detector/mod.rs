//! The detector of bypasses: the deletion of a production object begins, or the object loses its label, and no replica has a
//! record of the request.
//!
//! Each replica watches production objects, and each request is called at one replica only. That replica writes an Event,
//! which all replicas watch. So the detector of each replica sees all records, and the names of the Events of a missing
//! record are equal: one is stored.
//!
//! A deletion is judged when the object gets its `deletionTimestamp`, or disappears without one. What happens to it later,
//! such as the last call of a kubelet, is not another deletion.
//!
//! It does not see what happens while no replica runs, and a record of a deletion that the API server refused later stands
//! for a deletion of the same object within an hour.

mod journal;
mod ledger;
mod pace;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

pub use journal::{Journal, RECORD_LABEL, of_record};
pub use ledger::{Change, Ledger, Observed, Record};
use pace::Pace;

use crate::metrics::Metrics;

/// The most records that wait to be written, and the most reports. More are dropped: other replicas then report a missing
/// record, and the log has the report.
const MOST_QUEUED: usize = 8192;

/// The most Events that are written at the same time.
const MOST_WRITES: usize = 16;

/// The pause between two checks of changes that wait for a record.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The longest time that records are written after the stop of everything else.
const LONGEST_DRAIN: Duration = Duration::from_secs(10);

/// The detector of one replica.
#[derive(Debug)]
pub struct Detector {
    ledger: Mutex<Ledger>,
    records: mpsc::Sender<Record>,
    metrics: Metrics,
}

/// The records that are still to be written, for [`Detector::run`].
#[derive(Debug)]
pub struct Waiting(mpsc::Receiver<Record>);

/// The writes of a running detector.
struct Writes {
    journal: Journal,
    running: JoinSet<()>,
    reports: VecDeque<Observed>,
    pace: Pace,
}

// === impl Detector ===

impl Detector {
    /// A detector that waits `patience` for the record of a change.
    #[must_use]
    pub fn new(patience: Duration, metrics: Metrics) -> (Arc<Self>, Waiting) {
        let (records, waiting) = mpsc::channel(MOST_QUEUED);
        let detector = Self {
            ledger: Mutex::new(Ledger::new(patience)),
            records,
            metrics,
        };
        (Arc::new(detector), Waiting(waiting))
    }

    /// Records a change that this replica was called for. Later calls for the same object change nothing.
    pub fn recorded(&self, record: Record) {
        let (change, uid) = (record.change, &record.uid);
        let is_new = self.ledger.lock().recorded(change, uid, Instant::now());
        if is_new && let Err(error) = self.records.try_send(record) {
            self.metrics.count_dropped_record();
            tracing::warn!(%error, "dropped a record: other replicas will report it as missing");
        }
    }

    /// Records a change that another replica was called for.
    pub fn heard(&self, change: Change, uid: &str) {
        self.ledger.lock().recorded(change, uid, Instant::now());
    }

    /// An informer reports a change.
    pub fn observed(&self, observed: Observed) {
        self.ledger.lock().observed(observed, Instant::now());
    }

    /// Writes records, and reports changes without one, until `stop`. What was recorded before is written then, for at most
    /// 10 s: the webhooks must have ended before `stop`.
    pub async fn run(&self, waiting: Waiting, journal: Journal, stop: CancellationToken) {
        let Waiting(mut waiting) = waiting;
        let mut writes = Writes {
            journal,
            running: JoinSet::new(),
            reports: VecDeque::new(),
            pace: Pace::new(Instant::now()),
        };
        let mut checks = interval(CHECK_EVERY);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            writes.begin_reports();
            tokio::select! {
                () = stop.cancelled() => break,
                Some(record) = waiting.recv(), if writes.has_place() => writes.begin(record),
                Some(_) = writes.running.join_next(), if !writes.running.is_empty() => {}
                now = checks.tick() => self.check(now, &mut writes.reports),
            }
        }
        let drained = timeout(LONGEST_DRAIN, async {
            while let Ok(record) = waiting.try_recv() {
                while writes.running.len() >= MOST_WRITES {
                    writes.running.join_next().await;
                }
                writes.begin(record);
            }
            while writes.running.join_next().await.is_some() {}
        });
        if drained.await.is_err() {
            tracing::warn!(
                left = waiting.len(),
                "stopped before all records were written"
            );
        }
    }

    /// Reports the changes whose record did not come.
    fn check(&self, now: Instant, reports: &mut VecDeque<Observed>) {
        let overdue = self.ledger.lock().overdue(now);
        for observed in overdue {
            self.metrics.count_gone(observed.change);
            let (object, uid) = (&observed.key, &observed.uid);
            match observed.change {
                Change::Deletion => tracing::error!(
                    %object, uid, "the deletion of a production object has no record"
                ),
                Change::Unmarked => tracing::error!(
                    %object, uid, "a production object lost its label, and there is no record"
                ),
            }
            if reports.len() < MOST_QUEUED {
                reports.push_back(observed);
            }
        }
    }
}

// === impl Writes ===

impl Writes {
    fn has_place(&self) -> bool {
        self.running.len() < MOST_WRITES && self.pace.has(Instant::now())
    }

    fn begin(&mut self, record: Record) {
        self.pace.take(Instant::now());
        let journal = self.journal.clone();
        self.running
            .spawn(async move { journal.record(record).await });
    }

    fn begin_reports(&mut self) {
        while self.has_place()
            && let Some(observed) = self.reports.pop_front()
        {
            self.pace.take(Instant::now());
            let journal = self.journal.clone();
            self.running
                .spawn(async move { journal.report(observed).await });
        }
    }
}
