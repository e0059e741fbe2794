//! The queue of one handler: [`EventQueue`].

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use indexmap::map::Entry;

use crate::event::{Event, Merged, UpdateReason, merge};
use crate::object::Stored;
use crate::processor::handler::Policy;
use reeve_client::ObjectKey;

/// The events that wait for one handler, bounded by its [`Policy`].
pub(in crate::processor) struct EventQueue<S: ?Sized> {
    policy: Policy,
    /// `None` in place of an event that was merged with another.
    pub(super) events: VecDeque<Option<Event<S>>>,
    /// The number of the first event in `events`.
    first: u64,
    /// The number of `events` that are not `None`.
    pub(super) live: usize,
    /// While events are merged: the number of the last event of each object.
    last: Option<HashMap<ObjectKey, u64, RandomState>>,
    /// While events are dropped: the state of each object that the handler will have seen last.
    missed: IndexMap<ObjectKey, Missed<S>, RandomState>,
}

/// Dropped events of one object.
struct Missed<S: ?Sized> {
    /// The last state that the handler saw.
    seen: Seen<S>,
    /// An event of a resync was among them.
    resync: bool,
}

/// The last state of an object that a handler saw.
enum Seen<S: ?Sized> {
    /// None; `initial` if the dropped addition was part of the first list.
    Nothing { initial: bool },
    /// This state, or one that is not known.
    State(Option<Arc<S>>),
}

/// The side effects of a push.
#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
pub(in crate::processor) struct Pushed {
    /// The number of initial additions that will never be delivered.
    pub(in crate::processor) initial_gone: usize,
    pub(in crate::processor) dropped: usize,
}

// === impl EventQueue ===

impl<S: Stored + ?Sized> EventQueue<S> {
    pub(in crate::processor) fn new(policy: Policy) -> Self {
        Self {
            policy,
            events: VecDeque::new(),
            first: 0,
            live: 0,
            last: None,
            missed: IndexMap::default(),
        }
    }

    /// The number of waiting events, including one for each object with dropped events.
    pub(in crate::processor) fn len(&self) -> usize {
        self.live + self.missed.len()
    }

    /// True if producers should wait.
    pub(in crate::processor) fn is_blocking(&self) -> bool {
        matches!(self.policy, Policy::Block { bound } if self.live >= bound.max(1))
    }

    pub(in crate::processor) fn push(&mut self, event: Event<S>) -> Pushed {
        match self.policy {
            Policy::Block { .. } => {
                self.append(event);
                Pushed::default()
            }
            Policy::Coalesce { bound } => self.coalesce(event, bound.max(1)),
            Policy::DropToResync { bound } => {
                if self.live < bound.max(1) && self.missed.is_empty() {
                    self.append(event);
                    return Pushed::default();
                }
                Pushed {
                    // A dropped resync event is not counted: it carries no change.
                    dropped: usize::from(!event.is_resync()),
                    initial_gone: self.miss(event),
                }
            }
        }
    }

    pub(in crate::processor) fn pop(&mut self) -> Option<Event<S>> {
        loop {
            let number = self.first;
            let slot = self.events.pop_front()?;
            self.first += 1;
            let Some(event) = slot else {
                continue;
            };
            self.live -= 1;
            if let Policy::Coalesce { bound } = self.policy
                && let Some(last) = &mut self.last
            {
                if self.live < bound / 2 {
                    self.last = None;
                } else {
                    let key = event.key();
                    if last.get(&key) == Some(&number) {
                        last.remove(&key);
                    }
                }
            }
            return Some(event);
        }
    }

    /// Empties the queue, and returns the events that waited, in order to free them.
    pub(in crate::processor) fn clear(&mut self) -> VecDeque<Option<Event<S>>> {
        std::mem::replace(self, Self::new(self.policy)).events
    }

    /// True if there are dropped events to compensate for, and the queue is empty.
    pub(in crate::processor) fn has_missed(&self) -> bool {
        self.live == 0 && !self.missed.is_empty()
    }

    /// Queues events that compensate for dropped ones: the difference between the state that the handler saw last and
    /// the state that `now` returns. As many as there is room for.
    pub(in crate::processor) fn catch_up(
        &mut self,
        now: impl Fn(&ObjectKey) -> Option<Arc<S>>,
    ) -> Pushed {
        let (Policy::DropToResync { bound } | Policy::Coalesce { bound } | Policy::Block { bound }) =
            self.policy;
        let mut pushed = Pushed::default();
        let missed: Vec<_> = self
            .missed
            .drain(..bound.max(1).min(self.missed.len()))
            .collect();
        for (key, Missed { seen, resync }) in missed {
            match (seen, now(&key)) {
                (Seen::Nothing { initial }, None) => pushed.initial_gone += usize::from(initial),
                (Seen::Nothing { initial }, Some(object)) => {
                    self.append(Event::Added { object, initial });
                }
                (Seen::State(seen), None) => self.append(Event::Deleted {
                    key,
                    last: seen.clone(),
                    seen,
                    tombstone: true,
                }),
                (Seen::State(Some(old)), Some(new)) if old.uid() == new.uid() => {
                    let reason = if old.resource_version() != new.resource_version() {
                        UpdateReason::Relist
                    } else if resync {
                        UpdateReason::Resync
                    } else {
                        continue;
                    };
                    self.append(Event::Updated { old, new, reason });
                }
                (Seen::State(seen), Some(object)) => {
                    self.append(Event::Deleted {
                        key,
                        last: seen.clone(),
                        seen,
                        tombstone: true,
                    });
                    self.append(Event::Added {
                        object,
                        initial: false,
                    });
                }
            }
        }
        pushed
    }

    fn append(&mut self, event: Event<S>) {
        self.events.push_back(Some(event));
        self.live += 1;
    }

    fn coalesce(&mut self, event: Event<S>, bound: usize) -> Pushed {
        if self.live < bound && self.last.is_none() {
            self.append(event);
            return Pushed::default();
        }
        let first = self.first;
        let events = &self.events;
        let last = self.last.get_or_insert_with(|| {
            let numbered = events.iter().zip(first..);
            numbered
                .filter_map(|(event, number)| Some((event.as_ref()?.key(), number)))
                .collect()
        });
        let key = event.key();
        let waiting = last.get(&key).and_then(|number| {
            let place = usize::try_from(number - first).ok()?;
            self.events.get_mut(place)
        });
        let Some((slot, waiting)) = waiting.and_then(|slot| slot.take().map(|event| (slot, event)))
        else {
            self.append_numbered(key, event);
            return Pushed::default();
        };
        let initial = |event: &Event<S>| usize::from(event.is_initial());
        let before = initial(&waiting) + initial(&event);
        let after = match merge(waiting, event) {
            Merged::One(event) => {
                let after = initial(&event);
                *slot = Some(event);
                after
            }
            Merged::Nothing => {
                last.remove(&key);
                self.live -= 1;
                self.trim();
                0
            }
            Merged::Both(waiting, event) => {
                let after = initial(&waiting) + initial(&event);
                *slot = Some(waiting);
                self.append_numbered(key, event);
                after
            }
        };
        Pushed {
            initial_gone: before - after,
            dropped: 0,
        }
    }

    fn append_numbered(&mut self, key: ObjectKey, event: Event<S>) {
        if let Some(last) = &mut self.last {
            last.insert(key, self.first + self.events.len() as u64);
        }
        self.append(event);
    }

    /// Drops empty slots when they are most of the queue, so that it stays bounded.
    fn trim(&mut self) {
        if self.events.len() > 2 * self.live + 64 {
            self.events.retain(Option::is_some);
            let numbered = self.events.iter().zip(self.first..);
            let keyed =
                numbered.filter_map(|(event, number)| Some((event.as_ref()?.key(), number)));
            // Later events of a key overwrite earlier ones.
            self.last = Some(keyed.collect());
        }
    }

    /// Records the state of the object that the handler will have seen last, unless it never saw the object and never
    /// needs to. Returns how many initial additions will never be delivered because of it.
    fn miss(&mut self, event: Event<S>) -> usize {
        let resync = event.is_resync();
        let gone = matches!(event, Event::Deleted { .. });
        match self.missed.entry(event.key()) {
            Entry::Occupied(mut known) => match known.get().seen {
                Seen::Nothing { initial } if gone => {
                    known.swap_remove();
                    usize::from(initial)
                }
                _ => {
                    known.get_mut().resync |= resync;
                    usize::from(event.is_initial())
                }
            },
            Entry::Vacant(place) => {
                let seen = match event {
                    Event::Added { initial, .. } => Seen::Nothing { initial },
                    Event::Updated { old, .. } => Seen::State(Some(old)),
                    Event::Deleted { seen, last, .. } => Seen::State(seen.or(last)),
                };
                place.insert(Missed { seen, resync });
                0
            }
        }
    }
}
