//! The state of the control API.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::template::Template;

/// The state of the control API of one server.
#[derive(Debug)]
pub(crate) struct Control {
    pub(super) snapshots: Mutex<Snapshots>,
    /// The sum of the times by which the clock was advanced.
    pub(super) advanced: Mutex<Duration>,
    /// The last outage.
    pub(super) outage: Mutex<Option<JoinHandle<()>>>,
}

/// Snapshots of a server.
#[derive(Debug)]
pub(super) struct Snapshots {
    /// The state that a reset leads to.
    pub(super) start: Template,
    pub(super) named: BTreeMap<String, Template>,
}

// === impl Control ===

impl Control {
    /// Without snapshots; a reset leads to `start`.
    pub(crate) fn new(start: Template) -> Self {
        Self {
            snapshots: Mutex::new(Snapshots {
                start,
                named: BTreeMap::new(),
            }),
            advanced: Mutex::default(),
            outage: Mutex::default(),
        }
    }

    /// Makes `template` the state that a reset leads to.
    #[cfg(feature = "program")]
    pub(crate) fn set_start(&self, template: Template) {
        self.snapshots.lock().start = template;
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Some(outage) = self.outage.get_mut().take() {
            outage.abort();
        }
    }
}
