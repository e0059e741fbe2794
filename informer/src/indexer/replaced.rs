//! What a list leaves behind when it has taken place: its events ([`Events`]), and former states ([`Freed`]).

use std::sync::Arc;

use futures::FutureExt;
use tokio::runtime::Handle;

use super::index::Index;
use super::state::State;
use super::transaction::Change;
use crate::event::Event;
use crate::object::Stored;
use crate::tasks;
use crate::turns::{PIECE, Turns};

/// The events of a list: first the deletions, then the rest in the order of the list.
pub(crate) struct Events<S: Stored + ?Sized> {
    pub(super) deleted: Vec<Event<S>>,
    pub(super) rest: Vec<Event<S>>,
}

/// A replacement that took place.
pub(crate) struct Replaced<S: Stored + ?Sized> {
    pub(super) events: Events<S>,
    pub(super) freed: Freed<S>,
}

/// States that nothing reads any more, which may share parts. [`Freed::free`] drops them in turns.
pub(crate) struct Freed<S: Stored + ?Sized>(pub(super) Vec<Arc<State<S>>>);

// === impl Events ===

impl<S: Stored + ?Sized> Events<S> {
    pub(crate) fn new() -> Self {
        Self {
            deleted: Vec::new(),
            rest: Vec::new(),
        }
    }

    /// Adds the events of a change of one object.
    pub(crate) fn push(&mut self, change: Change<S>) {
        match change {
            Change::One(event @ Event::Deleted { .. }) => self.deleted.push(event),
            Change::One(event) => self.rest.push(event),
            Change::Recreated(former, new) => {
                self.deleted.push(former);
                self.rest.push(new);
            }
            Change::Known | Change::Stale => {}
        }
    }

    fn len(&self) -> usize {
        self.deleted.len() + self.rest.len()
    }

    /// The events, in order.
    pub(crate) fn in_order(self) -> impl Iterator<Item = Event<S>> + use<S> {
        self.deleted.into_iter().chain(self.rest)
    }
}

// === impl Replaced ===

impl<S: Stored + ?Sized> Replaced<S> {
    /// The number of events.
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// The events, in order, and the state that was replaced.
    pub(crate) fn into_parts(self) -> (impl Iterator<Item = Event<S>> + use<S>, Freed<S>) {
        (self.events.in_order(), self.freed)
    }
}

// === impl Freed ===

impl<S: Stored + ?Sized> Freed<S> {
    pub(super) fn new(state: Arc<State<S>>) -> Self {
        Self(vec![state])
    }

    /// Drops what no snapshot refers to: if it is large, in turns of a task of its own, so that the present task goes
    /// on. Without a runtime it is dropped at once.
    pub(crate) fn free(self) {
        // Most snapshots are of a state that the store still has: there is nothing to free.
        let states: Vec<_> = self.0.into_iter().filter_map(Arc::into_inner).collect();
        if states.iter().all(|state| state.len() <= PIECE) {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            tasks::spawn(&runtime, in_turns(states).boxed());
        }
    }
}

async fn in_turns<S: Stored + ?Sized>(states: Vec<State<S>>) {
    let mut turns = Turns::new();
    for state in states {
        state.objects.free(&mut turns).await;
        for index in state.indexes {
            Index::free(index, &mut turns).await;
        }
    }
}
