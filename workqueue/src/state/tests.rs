//! Properties that are invisible from outside: places of items, memory after a burst, panics of a limiter.

use std::sync::Arc;
use std::time::Duration;

use reeve_clock::{Clock, Random};
use tokio::time::Instant;

use super::*;
use crate::cause::Cause;
use crate::item_state::{ItemState, Place};
use crate::limiter::{
    Delay, Failure, ItemExponentialFailure, MaxOf, RateLimiter, TokenBucket, WithMaxWait,
};
use crate::now::Now;
use crate::slots::Flags;

const CROWD: u32 = 100_000;
const SECOND: u64 = 1_000_000_000;

fn state(change: impl FnOnce(&mut Rules<u32>)) -> State<u32> {
    let mut rules = Rules {
        limiter: Arc::new(ItemExponentialFailure::default()),
        clock: Clock::system(),
        origin: Instant::now(),
        record_limit: usize::MAX,
        record_expiry: SECOND,
        ageing: None,
        fair_by: None,
        min_interval: 0,
        stamped: true,
    };
    change(&mut rules);
    State::new(rules)
}

fn hash(key: u32) -> u32 {
    key.wrapping_mul(2_654_435_761)
}

/// A queue with its own time.
struct Driven {
    state: State<u32>,
    now: u64,
    effects: Effects<u32>,
}

impl Driven {
    fn new(change: impl FnOnce(&mut Rules<u32>)) -> Self {
        Self {
            state: state(change),
            now: 0,
            effects: Effects::default(),
        }
    }

    fn now(&self) -> Now {
        Now::at(self.state.rules.origin, self.now)
    }

    fn add(&mut self, key: u32, request: &AddRequest) {
        let now = self.now();
        self.state
            .add(hash(key), key, request, &now, &mut self.effects);
    }

    fn pass(&mut self, time: u64) {
        self.now += time;
        while self.state.advance(self.now, &mut self.effects) {}
    }

    fn process_all(&mut self, outcome: &Outcome) -> u32 {
        let now = self.now();
        let mut processed = 0;
        while let Some(taken) = self.state.take(&now, &mut self.effects) {
            let place = (taken.slot, taken.flight);
            self.state
                .settle(place, outcome.clone(), &now, &mut self.effects);
            processed += 1;
        }
        processed
    }

    fn assert_small(&self) {
        const SMALL: usize = 8192;
        let state = &self.state;
        let [slots, table, bounds] = state.slots.capacity();
        let (timers, heap) = state.timers.capacity();
        let sizes = [
            slots,
            table,
            bounds,
            timers,
            heap,
            state.ready.capacity(),
            state.resting.capacity(),
            state.explained.capacity(),
        ];
        assert!(sizes.iter().all(|&size| size <= SMALL), "{sizes:?}");
    }
}

fn after(delay: u64) -> AddRequest {
    AddRequest {
        after: Some(Duration::from_nanos(delay)),
        ..AddRequest::default()
    }
}

#[test]
fn memory_is_given_back_after_a_burst_though_a_few_keys_stay() {
    let mut queue = Driven::new(|rules| {
        rules.min_interval = SECOND;
        rules.fair_by = Some(Arc::new(|key| crate::Tenant::of(key % 10_000)));
    });
    for key in 0..5 {
        queue.add(CROWD + key, &after(1_000_000 * SECOND));
    }
    for key in 0..CROWD {
        queue.add(key, &after(SECOND + u64::from(key)));
        queue.add(key, &AddRequest::default());
    }
    let cause = Some(Cause::new("on purpose"));
    let failed = Outcome::Retry { priority: 0, cause };
    assert_eq!(queue.process_all(&failed), CROWD);
    queue.pass(2 * SECOND);
    assert_eq!(queue.process_all(&Outcome::Forget), CROWD);
    // Their records expire.
    queue.pass(2 * SECOND);
    for key in 0..CROWD / 16 {
        queue.add(key, &AddRequest::default());
        queue.process_all(&Outcome::Forget);
        queue.pass(SECOND);
    }
    queue.assert_small();
    assert_eq!(queue.state.waiting, 5);
}

#[test]
fn failure_records_go_when_their_time_has_come() {
    let mut queue = Driven::new(|_| {});
    for key in 0..CROWD {
        let request = AddRequest {
            rate_limited: true,
            ..AddRequest::default()
        };
        queue.add(key, &request);
    }
    queue.pass(SECOND);
    assert_eq!(queue.process_all(&Outcome::Done), CROWD);
    assert_eq!(queue.state.records.len(), CROWD as usize);
    queue.pass(SECOND);
    let one = CROWD;
    for _ in 0..CROWD / 64 + 1 {
        queue.add(one, &AddRequest::default());
        queue.process_all(&Outcome::Done);
    }
    assert_eq!(queue.state.records.len(), 0);
    queue.assert_small();
}

#[test]
fn a_limiter_that_panics_leaves_no_item_in_flight() {
    struct Panics;
    impl RateLimiter<u32> for Panics {
        fn when(&self, _: &Failure<'_, u32>) -> Delay {
            Duration::ZERO.into()
        }
        fn forget(&self, _: &u32) {
            panic!("on purpose");
        }
    }
    let mut queue = Driven::new(|rules| rules.limiter = Arc::new(Panics));
    let now = queue.now();
    let request = AddRequest {
        rate_limited: true,
        ..AddRequest::default()
    };
    queue.add(1, &request);
    let taken = queue.state.take(&now, &mut queue.effects).unwrap();
    let place = (taken.slot, taken.flight);
    let (state, effects) = (&mut queue.state, &mut queue.effects);
    let forget = std::panic::AssertUnwindSafe(|| {
        state.settle(place, Outcome::Forget, &now, effects);
    });
    assert!(std::panic::catch_unwind(forget).is_err());
    assert_eq!(queue.state.flights.len(), 1, "the guard still has it");
    let (state, effects) = (&mut queue.state, &mut queue.effects);
    state.settle(place, Outcome::Done, &now, effects);
    assert_eq!(queue.state.flights.len(), 0);
    assert_eq!(queue.state.slots.find(2_654_435_761, &1), None);
}

/// Whether every item is in the place of its state, and nowhere else, and has the timer of its state.
fn assert_in_place(state: &State<u32>) {
    let slots = state.slots.as_slab();
    let mut places: Vec<(u32, Place)> = Vec::new();
    places.extend(
        state
            .records
            .iter(slots)
            .map(|index| (index, Place::Records)),
    );
    places.extend(state.ready.iter(slots).map(|index| (index, Place::Ready)));
    places.extend(
        state
            .token_queue
            .iter(slots)
            .map(|index| (index, Place::TokenQueue)),
    );
    let mut timers = state.timers.all();
    let (mut waiting, mut dirty, mut failing, mut in_flight) = (0, 0, 0, 0);
    let used = (0..slots.capacity() as u32).filter(|&index| slots.get(index).is_some());
    for index in used {
        let slot = &slots[index];
        let item = slot.state();
        places.retain(|&place| place != (index, item.place()));
        if let Some(at) = item.timer_at() {
            let timer = timers.iter().position(|&timer| timer == (index, at));
            timers.swap_remove(timer.unwrap_or_else(|| panic!("{item:?} has no timer")));
        }
        match item.place() {
            Place::Leaving => {
                assert!(slot.is(Flags::LEAVING) || state.resting.until(index).is_some());
            }
            Place::Waiting => waiting += 1,
            Place::WorkerAgain => dirty += 1,
            _ => {}
        }
        assert!(!matches!(item, ItemState::Idle) || slot.failures == 0);
        assert!(!matches!(item, ItemState::Recorded { .. }) || slot.failures > 0);
        failing += usize::from(slot.failures > 0);
        in_flight += usize::from(item.is_in_flight());
        let flights = state.flights.iter().filter(|flight| flight.slot == index);
        assert_eq!(flights.count(), usize::from(item.is_in_flight()));
    }
    assert_eq!(places, [], "places of items in other states");
    assert_eq!(timers, [], "timers of items in other states");
    let listed = state.records.len() + state.ready.len() + state.token_queue.len();
    let expected = slots.iter().filter(|slot| {
        let place = slot.state().place();
        matches!(place, Place::Records | Place::Ready | Place::TokenQueue)
    });
    assert_eq!(listed, expected.count());
    let bounded = slots.iter().filter(|slot| slot.is_bounded());
    assert_eq!(state.slots.bounded_timers(), bounded.count());
    assert_eq!(
        (waiting, dirty, failing, in_flight),
        (
            state.waiting,
            state.dirty,
            state.failing,
            state.flights.len()
        )
    );
}

#[test]
fn an_item_is_in_the_place_of_its_state_and_has_its_timer() {
    const KEYS: u64 = 12;
    for seed in 0..400 {
        let random = Random::seeded(seed);
        let few = |most: u64| random.below(most);
        let nanoseconds = Duration::from_nanos;
        let back_off = ItemExponentialFailure::new(nanoseconds(3), nanoseconds(200));
        let bucket = TokenBucket::new(1e8, 2);
        let mut queue = Driven::new(|rules| {
            let both = MaxOf::new().and(back_off).and(bucket);
            rules.limiter = match seed % 2 {
                0 => Arc::new(both),
                _ => Arc::new(WithMaxWait::new(both, nanoseconds(60))),
            };
            rules.min_interval = if seed % 3 == 0 { 20 } else { 0 };
            rules.record_limit = 3;
            rules.record_expiry = 500;
        });
        let mut taken = Vec::new();
        for step in 0..200 {
            let now = queue.now();
            let key = few(KEYS) as u32;
            match few(10) {
                0..4 => queue.add(
                    key,
                    &AddRequest {
                        after: (few(2) == 0).then(|| nanoseconds(few(80))),
                        rate_limited: few(3) == 0,
                        priority: few(3) as i32,
                        ..AddRequest::default()
                    },
                ),
                4..6 => taken.extend(queue.state.take(&now, &mut queue.effects)),
                6..8 if !taken.is_empty() => {
                    let item = taken.swap_remove(few(taken.len() as u64) as usize);
                    let priority = item.priority;
                    let delay = nanoseconds(few(50));
                    let outcome = match few(5) {
                        0 => Outcome::Done,
                        1 => Outcome::Forget,
                        2 => Outcome::After { delay, priority },
                        3 => Outcome::Back {
                            delay,
                            priority,
                            reasons: item.reasons,
                        },
                        _ => Outcome::Retry {
                            priority,
                            cause: None,
                        },
                    };
                    let place = (item.slot, item.flight);
                    queue.state.settle(place, outcome, &now, &mut queue.effects);
                }
                8 if few(2) == 0 => {
                    let hash = hash(key);
                    queue.state.cancel(hash, &key, &now, &mut queue.effects);
                }
                8 => {
                    let hash = hash(key);
                    queue.state.forget(hash, &key, &now, &mut queue.effects);
                }
                _ => queue.pass(few(40)),
            }
            if step == 180 {
                queue
                    .state
                    .shut_down(Shutdown::Draining, &now, &mut queue.effects);
            }
            assert_in_place(&queue.state);
        }
    }
}
