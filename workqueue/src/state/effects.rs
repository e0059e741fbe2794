//! What an operation leaves to do once the lock is released.

use crate::slots::Slots;

/// What an operation left to do once the lock is released.
#[derive(Debug)]
pub(crate) struct Effects<T> {
    /// How many items became ready (or dirty).
    pub(crate) adds: u64,
    /// How many adds had a delay.
    pub(crate) retries: u64,
    /// A key to drop.
    dropped: Option<T>,
    /// More to drop; seldom.
    crowd: Option<Box<Crowd<T>>>,
}

#[derive(Debug)]
struct Crowd<T> {
    keys: Vec<T>,
    slots: Option<Slots<T>>,
}

// === impl Effects ===

impl<T> Default for Effects<T> {
    fn default() -> Self {
        Self {
            adds: 0,
            retries: 0,
            dropped: None,
            crowd: None,
        }
    }
}

impl<T> Effects<T> {
    pub(super) fn drop_later(&mut self, key: Option<T>) {
        if self.dropped.is_none() {
            self.dropped = key;
        } else if let Some(key) = key {
            self.crowd().keys.push(key);
        }
    }

    pub(super) fn give_back_later(&mut self, slots: Slots<T>) {
        self.crowd().slots = Some(slots);
    }

    fn crowd(&mut self) -> &mut Crowd<T> {
        self.crowd.get_or_insert_with(|| {
            Box::new(Crowd {
                keys: Vec::new(),
                slots: None,
            })
        })
    }
}
