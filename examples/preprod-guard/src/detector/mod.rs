//! The detector of bypasses: a production object disappears, and no replica has a record of its deletion.
//!
//! Each replica watches production objects, and each deletion is called at one replica only. That replica writes an Event,
//! which all replicas watch. So the detector of each replica sees all records, and the names of the Events of a missing
//! record are equal: one is stored.
//!
//! It does not see what happens while no replica runs, and a record of a deletion that the API server refused later stands
//! for a deletion of the same object within a day.

mod journal;
mod ledger;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval};
use tokio_util::sync::CancellationToken;

pub use journal::{Journal, RECORD_LABEL, uid_of_record};
pub use ledger::{Deletion, Gone, Ledger};

use crate::metrics::Metrics;
use crate::object::{Facts, Key};

/// The most records that wait to be written. More are dropped, and other replicas then report a missing record.
const MOST_WAITING: usize = 1024;

/// The pause between two looks at objects that disappeared.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The detector of one replica.
#[derive(Debug)]
pub struct Detector {
    ledger: Mutex<Ledger>,
    records: mpsc::Sender<Deletion>,
    metrics: Metrics,
}

/// The records that are still to be written, for [`Detector::run`].
#[derive(Debug)]
pub struct Waiting(mpsc::Receiver<Deletion>);

// === impl Detector ===

impl Detector {
    /// A detector that waits `patience` for the record of a deletion.
    #[must_use]
    pub fn new(patience: Duration, metrics: Metrics) -> (Arc<Self>, Waiting) {
        let (records, waiting) = mpsc::channel(MOST_WAITING);
        let detector = Self {
            ledger: Mutex::new(Ledger::new(patience)),
            records,
            metrics,
        };
        (Arc::new(detector), Waiting(waiting))
    }

    /// Records a deletion that this replica was called for. Later calls for the same object change nothing.
    pub fn recorded(&self, deletion: Deletion) {
        let is_new = self.ledger.lock().recorded(&deletion.uid, Instant::now());
        if is_new && let Err(error) = self.records.try_send(deletion) {
            tracing::warn!(%error, "dropped the record of a deletion: other replicas will report it as missing");
        }
    }

    /// Records a deletion that another replica was called for.
    pub fn heard(&self, uid: &str) {
        self.ledger.lock().recorded(uid, Instant::now());
    }

    /// A production object disappeared.
    pub fn gone(&self, key: Key, facts: &Facts) {
        let uid = facts.uid.clone();
        self.ledger.lock().gone(Gone { key, uid }, Instant::now());
    }

    /// Writes records, and reports what disappeared without one, until `stop`.
    pub async fn run(&self, waiting: Waiting, journal: Journal, stop: CancellationToken) {
        let Waiting(mut waiting) = waiting;
        let mut looks = interval(LOOK_EVERY);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(deletion) = waiting.recv() => journal.deletion(&deletion).await,
                now = looks.tick() => {
                    let overdue = self.ledger.lock().overdue(now);
                    for gone in overdue {
                        self.metrics.count_gone();
                        tracing::error!(
                            object = %gone.key, uid = gone.uid,
                            "a production object disappeared without a record of its deletion"
                        );
                        journal.gone(&gone).await;
                    }
                }
            }
        }
        // What was recorded before the stop is written, so that the other replicas have it.
        while let Ok(deletion) = waiting.try_recv() {
            journal.deletion(&deletion).await;
        }
    }
}
