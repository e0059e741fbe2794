//! The part of the health that the reflector writes.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use reeve_clock::Clock;

use super::activity::Activity;
use super::cache_health::CacheHealth;
use super::quarantine::Quarantine;
use super::watch_health::{Failure, WatchHealth};
use crate::decode::Undecodable;
use reeve_client::KeyRef;
use reeve_client::ResourceVersion;
use reeve_client::transport::Scope;

/// The part of the health that the reflector writes.
#[derive(Debug)]
pub(crate) struct HealthCell {
    clock: Clock,
    state: Mutex<State>,
    /// There is a failure, or an object in quarantine. The pipeline checks both for each event, and they are nearly
    /// always false. Only the reflector changes them.
    failing: AtomicBool,
    holding: AtomicBool,
}

#[derive(Debug)]
struct State {
    /// Without its scope, its sync and its version, which the reflector does not know.
    watch: WatchHealth,
    /// The classes of failures in this row that were logged.
    logged: Vec<&'static str>,
    quarantine: Quarantine,
}

// === impl HealthCell ===

impl HealthCell {
    pub(crate) fn new(clock: Clock) -> Self {
        let watch = WatchHealth {
            scope: Scope::Cluster,
            synced: false,
            activity: Activity::Idle,
            since: clock.now(),
            failure: None,
            last_failure: None,
            last_heard: None,
            resource_version: ResourceVersion::default(),
            stale: 0,
            epochs: 0,
        };
        Self {
            clock,
            state: Mutex::new(State {
                watch,
                logged: Vec::new(),
                quarantine: Quarantine::default(),
            }),
            failing: AtomicBool::new(false),
            holding: AtomicBool::new(false),
        }
    }

    /// Adds the objects in quarantine to `health`.
    pub(crate) fn add_quarantined_to(&self, health: &mut CacheHealth) {
        health.add_quarantined(&self.state.lock().quarantine);
    }

    pub(crate) fn watch(
        &self,
        scope: Scope,
        synced: bool,
        resource_version: ResourceVersion,
    ) -> WatchHealth {
        WatchHealth {
            scope,
            synced,
            resource_version,
            ..self.state.lock().watch.clone()
        }
    }

    pub(crate) fn enter(&self, activity: Activity) {
        let watch = &mut self.state.lock().watch;
        if watch.activity != activity {
            watch.activity = activity;
            watch.since = self.clock.now();
        }
    }

    /// Records that something came from the server.
    pub(crate) fn heard(&self) {
        self.state.lock().watch.last_heard = Some(self.clock.now());
    }

    /// Records success. Returns the failure that is over.
    pub(crate) fn recovered(&self) -> Option<Failure> {
        if !self.failing.swap(false, Ordering::Relaxed) {
            return None;
        }
        let mut state = self.state.lock();
        state.logged.clear();
        let over = state.watch.failure.take()?;
        state.watch.last_failure = Some(over.clone());
        Some(over)
    }

    /// Records a failure. True if it is the first of its class in this row, and so worth a log line.
    pub(crate) fn failed(&self, class: &'static str, message: String) -> bool {
        self.failing.store(true, Ordering::Relaxed);
        let mut state = self.state.lock();
        match &mut state.watch.failure {
            Some(failure) => {
                failure.times = failure.times.saturating_add(1);
                failure.class = class;
                failure.message = message;
            }
            none => {
                *none = Some(Failure {
                    class,
                    message,
                    since: self.clock.now(),
                    times: 1,
                });
            }
        }
        let news = !state.logged.contains(&class);
        if news {
            state.logged.push(class);
        }
        news
    }

    pub(crate) fn stale(&self) {
        self.state.lock().watch.stale += 1;
    }

    pub(crate) fn new_epoch(&self) {
        self.state.lock().watch.epochs += 1;
    }

    /// True if this version of the object is in quarantine already.
    pub(crate) fn is_quarantined(&self, object: &Undecodable) -> bool {
        self.state.lock().quarantine.holds(object)
    }

    pub(crate) fn quarantine(&self, object: &Undecodable) {
        self.holding.store(true, Ordering::Relaxed);
        self.state.lock().quarantine.add(object);
    }

    /// Replaces the quarantine by the unreadable objects of a list.
    pub(crate) fn quarantine_only(&self, objects: &[Undecodable]) {
        self.holding.store(!objects.is_empty(), Ordering::Relaxed);
        let mut state = self.state.lock();
        state.quarantine = Quarantine::default();
        for object in objects {
            state.quarantine.add(object);
        }
    }

    /// Removes an object that can be read, or is gone, from quarantine. True if it was there.
    pub(crate) fn release(&self, key: KeyRef<'_>) -> bool {
        self.holding.load(Ordering::Relaxed) && self.state.lock().quarantine.release(key)
    }
}
