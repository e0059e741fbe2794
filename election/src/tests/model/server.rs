//! The server of the simulated world: one lease, its versions and its watches.

use k8s_openapi::api::coordination::v1::Lease;

use crate::machine::{Action, Event, Failure, FailureKind};

/// A watch of a candidate: its index, its run and its number.
pub(super) type Watcher = (usize, u64, u64);

/// One lease.
#[derive(Debug, Default)]
pub(super) struct Server {
    lease: Option<Box<Lease>>,
    version: u64,
    pub(super) watchers: Vec<Watcher>,
    /// The events that watches do not show yet.
    blind: Option<Vec<Event>>,
}

// === impl Server ===

impl Server {
    /// Executes a request. Returns its answer, and the event that the watches show.
    pub(super) fn execute(&mut self, request: Action) -> (Event, Option<Event>) {
        let stored = match request {
            Action::Read => return (Event::Read(Ok(self.lease.clone())), None),
            Action::Create(_) if self.lease.is_some() => Err(FailureKind::Conflict),
            Action::Create(lease) => Ok(self.store(lease)),
            Action::Update(lease) => match &self.lease {
                None => Err(FailureKind::NotFound),
                Some(old) if old.metadata.resource_version != lease.metadata.resource_version => {
                    Err(FailureKind::Conflict)
                }
                Some(_) => Ok(self.store(lease)),
            },
            other => unreachable!("not a request: {other:?}"),
        };
        let shown = stored.clone().ok().map(Event::Shown);
        (Event::Written(stored.map_err(failure)), shown)
    }

    fn store(&mut self, mut lease: Box<Lease>) -> Box<Lease> {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        lease
    }

    /// The first event of a watch that is opened now.
    pub(super) fn watch(&mut self, watcher: Watcher) -> Option<Event> {
        self.watchers.push(watcher);
        self.lease.clone().map(Event::Shown)
    }

    /// The events to show when `event` happens.
    pub(super) fn show(&mut self, event: Event) -> Option<Event> {
        match &mut self.blind {
            Some(held) => {
                held.push(event);
                None
            }
            None => Some(event),
        }
    }

    /// Shows nothing to the watches from now on, or everything that they missed.
    pub(super) fn blind(&mut self, blind: bool) -> Vec<Event> {
        if blind {
            self.blind.get_or_insert_default();
            return Vec::new();
        }
        self.blind.take().unwrap_or_default()
    }

    /// The holder of the lease, empty after a release.
    pub(super) fn holder(&self) -> Option<&str> {
        let spec = self.lease.as_ref()?.spec.as_ref()?;
        spec.holder_identity.as_deref()
    }
}

/// The failure of a request.
pub(super) fn failure(kind: FailureKind) -> Failure {
    let cause = format!("{kind:?}");
    Failure { kind, cause }
}
