//! The state of the server: for every kind its objects, their changes, and the watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::format::{Formats, Kind};
use crate::template::Object;

/// The version of an empty store. All versions have ten digits.
const FIRST_VERSION: u64 = 1_000_000_000;

/// All kinds.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) formats: Formats,
    stages: [Stage; 3],
}

/// One kind.
#[derive(Debug)]
pub(crate) struct Stage {
    state: Mutex<State>,
    watches: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct State {
    /// The objects by number. A list that is being sent keeps its own copy.
    pub(crate) objects: Arc<Vec<Object>>,
    /// Every change since the reset or the expiry, oldest first.
    pub(crate) changes: Vec<Object>,
    pub(crate) version: u64,
    /// Versions before this one are too old to watch from.
    pub(crate) oldest: u64,
    /// Grows when all watches have to end.
    pub(crate) epoch: u64,
    /// Watches of earlier epochs end with 410.
    pub(crate) expired: bool,
    waiting: Vec<Waker>,
}

/// Counts a watch while it exists.
#[derive(Debug)]
pub(crate) struct Watching {
    world: Arc<World>,
    kind: Kind,
}

// === impl World ===

impl World {
    pub(crate) fn new() -> Self {
        Self {
            formats: Formats::new(),
            stages: Kind::ALL.map(|_| Stage {
                state: Mutex::new(State::new(0, FIRST_VERSION)),
                watches: AtomicUsize::new(0),
            }),
        }
    }

    pub(crate) fn stage(&self, kind: Kind) -> &Stage {
        &self.stages[kind as usize]
    }
}

// === impl Stage ===

impl Stage {
    pub(crate) fn read<R>(&self, read: impl FnOnce(&State) -> R) -> R {
        read(&self.state.lock())
    }

    /// Changes the state, and wakes all waiting watches.
    pub(crate) fn update<R>(&self, update: impl FnOnce(&mut State) -> R) -> R {
        let (result, waiting) = {
            let mut state = self.state.lock();
            let result = update(&mut state);
            (result, std::mem::take(&mut state.waiting))
        };
        for waker in waiting {
            waker.wake();
        }
        result
    }

    /// Reads. If the result is `None`, the next change wakes `waker`.
    pub(crate) fn read_or_wait<R>(
        &self,
        waker: &Waker,
        read: impl FnOnce(&State) -> Option<R>,
    ) -> Option<R> {
        let mut state = self.state.lock();
        let result = read(&state);
        if result.is_none() {
            state.waiting.push(waker.clone());
        }
        result
    }

    pub(crate) fn watches(&self) -> usize {
        self.watches.load(Ordering::Relaxed)
    }
}

// === impl State ===

impl State {
    fn new(count: usize, version: u64) -> Self {
        let stamp = now();
        let objects = (0..count as u32).map(|number| Object {
            number,
            version: version + 1 + u64::from(number),
            stamp,
        });
        Self {
            objects: Arc::new(objects.collect()),
            changes: Vec::new(),
            version: version + count as u64,
            oldest: version + count as u64,
            epoch: 0,
            expired: false,
            waiting: Vec::new(),
        }
    }

    /// Replaces all objects by `count` new ones. Watches end.
    pub(crate) fn reset(&mut self, count: usize) {
        let (epoch, waiting) = (self.epoch + 1, std::mem::take(&mut self.waiting));
        *self = Self::new(count, self.version);
        self.epoch = epoch;
        self.waiting = waiting;
    }

    /// Changes object `number`, if it exists, and returns its new state.
    pub(crate) fn touch(&mut self, number: usize) -> Option<Object> {
        if number >= self.objects.len() {
            return None;
        }
        self.change(number, 1);
        self.changes.last().copied()
    }

    /// Changes `count` objects from number `first` on, in rotation.
    pub(crate) fn change(&mut self, first: usize, count: usize) {
        let stamp = now();
        let objects = Arc::make_mut(&mut self.objects);
        for step in 0..count {
            self.version += 1;
            let index = (first + step) % objects.len();
            let object = &mut objects[index];
            object.version = self.version;
            object.stamp = stamp;
            self.changes.push(*object);
        }
    }

    /// Ends every watch with 410, and refuses watches from earlier versions.
    pub(crate) fn expire(&mut self, touch: bool) {
        if touch {
            self.change(0, 1);
        }
        self.changes.clear();
        self.oldest = self.version;
        self.epoch += 1;
        self.expired = true;
    }

    /// The index of the first change after `version`; `None` if it is too old.
    pub(crate) fn after(&self, version: u64) -> Option<usize> {
        let since = version.checked_sub(self.oldest)?;
        Some((since as usize).min(self.changes.len()))
    }
}

// === impl Watching ===

impl Watching {
    pub(crate) fn new(world: &Arc<World>, kind: Kind) -> Self {
        world.stage(kind).watches.fetch_add(1, Ordering::Relaxed);
        Self {
            world: Arc::clone(world),
            kind,
        }
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    pub(crate) fn stage(&self) -> &Stage {
        self.world.stage(self.kind)
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.stage().watches.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Microseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("a clock after 1970").as_micros() as u64
}

/// The number of the object at `place` of a list of `count`, ordered by namespace and name.
pub(crate) fn at_place(place: usize, count: usize) -> usize {
    const NAMESPACES: usize = 100;
    let (each, more) = (count / NAMESPACES, count % NAMESPACES);
    // If the division has a remainder, the first namespaces have one object more.
    let longer = more * (each + 1);
    let (namespace, within) = if place < longer {
        (place / (each + 1), place % (each + 1))
    } else {
        (more + (place - longer) / each, (place - longer) % each)
    };
    within * NAMESPACES + namespace
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_ordered_and_holds_every_object() {
        for count in [1, 99, 100, 101, 250, 1000] {
            let numbers: Vec<usize> = (0..count).map(|place| at_place(place, count)).collect();
            let keys: Vec<(usize, usize)> = numbers
                .iter()
                .map(|number| (number % 100, *number))
                .collect();
            assert!(keys.is_sorted(), "{count}: {keys:?}");
            let mut all = numbers.clone();
            all.sort_unstable();
            assert_eq!(all, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn changes_are_found_from_a_version_on() {
        let mut state = State::new(3, FIRST_VERSION);
        let listed = state.version;
        state.change(2, 2);
        assert_eq!(state.after(listed), Some(0));
        assert_eq!(state.after(listed + 1), Some(1));
        assert_eq!(state.changes[1].number, 0);
        state.expire(true);
        assert_eq!(state.after(listed + 2), None);
        assert_eq!(state.after(state.version), Some(0));
    }
}
