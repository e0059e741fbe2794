//! Memory after a burst, and the cost of queries: properties that are invisible from outside.

use super::*;

const CROWD: u32 = 100_000;
const SECOND: u64 = 1_000_000_000;

fn state(change: impl FnOnce(&mut Rules<u32>)) -> State<u32> {
    let mut rules = Rules {
        limiter: Arc::new(crate::limiter::ItemExponentialFailure::default()),
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
        let hash = key.wrapping_mul(2_654_435_761);
        self.state.add(hash, key, request, &now, &mut self.effects);
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
        let (slots, table) = state.slots.capacity();
        let (timers, heap) = state.timers.capacity();
        let sizes = [
            slots,
            table,
            timers,
            heap,
            state.ready.capacity(),
            state.resting.capacity(),
            state.waits.capacity(),
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
