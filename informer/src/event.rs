//! The events that handlers receive: [`Event`].

use std::fmt;
use std::sync::Arc;

use crate::object::Stored;
use reeve_client::ObjectKey;

/// A change of one object, as a handler sees it.
///
/// For every key a handler sees a legal history: `Added`, any number of `Updated`, `Deleted`, and so on. An
/// object that was deleted and created again under the same key is `Deleted` and then `Added`, also when the
/// informer learnt of both at once.
///
/// No fourth kind will be added: a handler can match all three.
pub enum Event<S: ?Sized> {
    /// The object is new to this handler.
    Added {
        /// The object.
        object: Arc<S>,
        /// True if it was there when the informer (or this handler) started, not created since.
        initial: bool,
    },
    /// The object changed, or is delivered again.
    Updated {
        /// The last state that this handler received.
        old: Arc<S>,
        /// The present state; the same as `old` in a resync.
        new: Arc<S>,
        /// The reason of the event.
        reason: UpdateReason,
    },
    /// The object is gone.
    Deleted {
        /// Its key.
        key: ObjectKey,
        /// The last state known, if any.
        last: Option<Arc<S>>,
        /// The last state that this handler received, if it is known. It differs from `last` if the server's final
        /// state was never delivered, or if a waiting update was merged with the deletion. A filter evaluates this
        /// state: it decides whether the handler has the object at all. Where it is not known, a filter lets the
        /// deletion pass, whatever `last` is.
        seen: Option<Arc<S>>,
        /// True if no watch reported the deletion, and a list revealed it: `last` may be out of date (client-go:
        /// `DeletedFinalStateUnknown`).
        tombstone: bool,
    },
}

/// The reason of an [`Event::Updated`]. The order is by weight: when updates are merged, the heaviest stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UpdateReason {
    /// Nothing changed: the handler receives every object once a period.
    Resync,
    /// The change was found by listing again, so changes in between may have gone unseen.
    Relist,
    /// The API server reported the change.
    Changed,
}

// === impl Event ===

impl<S: Stored + ?Sized> Event<S> {
    /// The key of the object.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Added { object, .. } => object.key(),
            Self::Updated { new, .. } => new.key(),
            Self::Deleted { key, .. } => key.clone(),
        }
    }
}

impl<S: ?Sized> Event<S> {
    /// The same event with each object replaced by its `view`, if it has one.
    ///
    /// An update from a state without a view becomes `Added`, even if an earlier state was delivered. An update to a
    /// state without a view is not delivered. A deletion is, with `seen` unknown if the last state has no view, since
    /// the handler received a state before that. `view` is called once for an object that is old and new at once.
    #[must_use]
    pub fn filter_map<T: ?Sized>(
        self,
        mut view: impl FnMut(Arc<S>) -> Option<Arc<T>>,
    ) -> Option<Event<T>> {
        Some(match self {
            Self::Added { object, initial } => Event::Added {
                object: view(object)?,
                initial,
            },
            Self::Updated { old, new, reason } => {
                let same = Arc::ptr_eq(&old, &new);
                let new = view(new)?;
                let old = if same {
                    Some(Arc::clone(&new))
                } else {
                    view(old)
                };
                match old {
                    Some(old) => Event::Updated { old, new, reason },
                    None => Event::Added {
                        object: new,
                        initial: false,
                    },
                }
            }
            Self::Deleted {
                key,
                last,
                seen,
                tombstone,
            } => {
                let same = match (&last, &seen) {
                    (Some(last), Some(seen)) => Arc::ptr_eq(last, seen),
                    _ => false,
                };
                let last = last.and_then(&mut view);
                let seen = if same {
                    last.clone()
                } else {
                    seen.and_then(view)
                };
                Event::Deleted {
                    key,
                    last,
                    seen,
                    tombstone,
                }
            }
        })
    }

    /// The newest state in the event: of a deletion the last one known.
    #[must_use]
    pub fn object(&self) -> Option<&Arc<S>> {
        match self {
            Self::Added { object, .. } => Some(object),
            Self::Updated { new, .. } => Some(new),
            Self::Deleted { last, .. } => last.as_ref(),
        }
    }

    pub(crate) fn is_resync(&self) -> bool {
        matches!(
            self,
            Self::Updated {
                reason: UpdateReason::Resync,
                ..
            }
        )
    }

    /// True for an object that was there at the start.
    #[must_use]
    pub fn is_initial(&self) -> bool {
        matches!(self, Self::Added { initial: true, .. })
    }
}

impl<S: ?Sized> Clone for Event<S> {
    fn clone(&self) -> Self {
        match self {
            Self::Added { object, initial } => Self::Added {
                object: Arc::clone(object),
                initial: *initial,
            },
            Self::Updated { old, new, reason } => Self::Updated {
                old: Arc::clone(old),
                new: Arc::clone(new),
                reason: *reason,
            },
            Self::Deleted {
                key,
                last,
                seen,
                tombstone,
            } => Self::Deleted {
                key: key.clone(),
                last: last.clone(),
                seen: seen.clone(),
                tombstone: *tombstone,
            },
        }
    }
}

impl<S: Stored + ?Sized> fmt::Debug for Event<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added { object, initial } => f
                .debug_struct("Added")
                .field("key", &object.key())
                .field("version", &object.resource_version())
                .field("initial", initial)
                .finish(),
            Self::Updated { old, new, reason } => f
                .debug_struct("Updated")
                .field("key", &new.key())
                .field("from", &old.resource_version())
                .field("to", &new.resource_version())
                .field("reason", reason)
                .finish(),
            Self::Deleted {
                key,
                last,
                seen,
                tombstone,
            } => f
                .debug_struct("Deleted")
                .field("key", key)
                .field("last", &last.as_ref().map(|last| last.resource_version()))
                .field("seen", &seen.as_ref().map(|seen| seen.resource_version()))
                .field("tombstone", tombstone)
                .finish(),
        }
    }
}

/// The result of merging two waiting events of one key.
#[derive(Debug)]
pub(crate) enum Merged<S: Stored + ?Sized> {
    /// One event stands for both.
    One(Event<S>),
    /// The handler never saw the object, and now it is gone.
    Nothing,
    /// Both are needed, in this order.
    Both(Event<S>, Event<S>),
}

/// Merges `next` into `waiting`, which the handler has not seen yet.
pub(crate) fn merge<S: Stored + ?Sized>(waiting: Event<S>, next: Event<S>) -> Merged<S> {
    use Event::{Added, Deleted, Updated};
    match (waiting, next) {
        (Added { initial, .. }, Updated { new: object, .. } | Added { object, .. }) => {
            Merged::One(Added { object, initial })
        }
        (Added { .. }, Deleted { .. }) => Merged::Nothing,
        (
            Updated {
                old, reason: first, ..
            },
            Updated {
                new,
                reason: second,
                ..
            },
        ) => Merged::One(Updated {
            old,
            new,
            reason: first.max(second),
        }),
        // The handler still has the old state of the update: a filter must decide by that one.
        (
            Updated { old, .. },
            Deleted {
                key,
                last,
                tombstone,
                ..
            },
        ) => Merged::One(Deleted {
            key,
            last,
            seen: Some(old),
            tombstone,
        }),
        (
            Deleted {
                seen: Some(seen), ..
            },
            Added { object, .. },
        ) if seen.uid() == object.uid() => Merged::One(Updated {
            old: seen,
            new: object,
            reason: UpdateReason::Changed,
        }),
        (waiting, next) => Merged::Both(waiting, next),
    }
}
