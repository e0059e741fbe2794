//! The series of one controller, and of one lease: made all at once, and removed with it.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::families::{ControllerLabel, Families, RESULTS, ResultLabels};

/// The metrics of one controller.
#[derive(Clone, Debug)]
pub(crate) struct ControllerMetrics {
    pub(crate) success: Counter,
    pub(crate) error: Counter,
    pub(crate) requeue: Counter,
    pub(crate) requeue_after: Counter,
    pub(crate) errors: Counter,
    pub(crate) terminal_errors: Counter,
    pub(crate) panics: Counter,
    all_panics: Counter,
    pub(crate) timeouts: Counter,
    pub(crate) given_up: Counter,
    pub(crate) watch_panics: Counter,
    pub(crate) time: Histogram,
    pub(crate) workers: Gauge,
    pub(crate) active: Gauge,
    pub(crate) own_write_waits: Counter,
    pub(crate) own_write_timeouts: Counter,
}

/// The series of one controller or lease, removed with it: names may be made up at run time.
pub(crate) struct Series {
    families: Arc<Families>,
    of: Option<Whose>,
}

/// The owner of the series.
enum Whose {
    Controller(String),
    Lease(String),
}

// === impl ControllerMetrics ===

impl ControllerMetrics {
    pub(super) fn new(families: &Families, name: &str) -> Self {
        let label = ControllerLabel::new(name);
        let [success, error, requeue, requeue_after] = RESULTS.map(|result| {
            let labels = ResultLabels::new(name, result);
            families.reconciles.get_or_create_owned(&labels)
        });
        Self {
            success,
            error,
            requeue,
            requeue_after,
            errors: families.errors.get_or_create_owned(&label),
            terminal_errors: families.terminal_errors.get_or_create_owned(&label),
            panics: families.panics.get_or_create_owned(&label),
            all_panics: families.all_panics.clone(),
            timeouts: families.timeouts.get_or_create_owned(&label),
            given_up: families.given_up.get_or_create_owned(&label),
            watch_panics: families.watch_panics.get_or_create_owned(&label),
            time: families.time.get_or_create_owned(&label),
            workers: families.workers.get_or_create_owned(&label),
            active: families.active.get_or_create_owned(&label),
            own_write_waits: families.own_write_waits.get_or_create_owned(&label),
            own_write_timeouts: families.own_write_timeouts.get_or_create_owned(&label),
        }
    }

    /// Counts a reconcile that panicked.
    pub(crate) fn panicked(&self) {
        self.panics.inc();
        self.all_panics.inc();
    }
}

// === impl Series ===

impl Series {
    pub(super) fn of_controller(families: &Arc<Families>, name: &str) -> Self {
        Self {
            families: Arc::clone(families),
            of: Some(Whose::Controller(name.to_owned())),
        }
    }

    pub(super) fn of_lease(families: &Arc<Families>, name: &str) -> Self {
        Self {
            families: Arc::clone(families),
            of: Some(Whose::Lease(name.to_owned())),
        }
    }

    /// Keeps the series for one more scrape.
    pub(crate) fn keep(&mut self) {
        self.of = None;
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        match &self.of {
            Some(Whose::Controller(name)) => self.families.forget_controller(name),
            Some(Whose::Lease(name)) => self.families.elections.forget(name),
            None => {}
        }
    }
}
