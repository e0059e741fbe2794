//! Events whose handler panicked: they are delivered again a few times, each time after a longer pause.
//!
//! controller-runtime recovers from such a panic and loses the event; client-go ends the process, which lists
//! everything after its restart. A late event does no harm: it only adds requests, and a request too many costs one
//! reconcile.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use reeve_informer::ObjectKey;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The pauses before each further try. After the last try the event is lost.
pub(super) const PAUSES: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(16),
    Duration::from_secs(64),
    Duration::from_secs(256),
];

/// The limit of events of one controller that wait for another try.
const MAX_WAITING: usize = 1024;

/// Hands an event to its handler; false if that panicked.
pub(super) type Handle = Box<dyn Fn() -> bool + Send>;

/// The events of one controller whose handlers panicked.
pub(super) struct Panics {
    controller: Arc<str>,
    /// Counts panics of handlers and of predicates.
    counter: Counter,
    state: Mutex<State>,
    /// Notified when an event is added.
    added: Notify,
}

#[derive(Default)]
struct State {
    /// How many events were lost so far.
    lost: u64,
    waiting: BTreeMap<(Instant, u64), Panicked>,
    /// Events added so far: the number of the next.
    count: u64,
}

/// An event whose handler panicked.
struct Panicked {
    object: Option<ObjectKey>,
    /// Further deliveries so far.
    tries: usize,
    handle: Handle,
}

// === impl Panics ===

impl Panics {
    pub(super) fn new(controller: &str, counter: Counter) -> Self {
        Self {
            controller: controller.into(),
            counter,
            state: Mutex::default(),
            added: Notify::new(),
        }
    }

    /// Counts and logs the panic of a predicate, whose event is handled.
    pub(super) fn of_predicate(&self, object: Option<&ObjectKey>) {
        self.counter.inc();
        tracing::error!(
            controller = %self.controller,
            object = object.map(tracing::field::display),
            "a predicate panicked; the event is handled as if it were allowed"
        );
    }

    /// Counts and logs the panic of a handler; `handle` delivers its event again later.
    pub(super) fn of_handler(&self, object: Option<ObjectKey>, handle: Handle) {
        let tries = 0;
        self.again_later(Panicked {
            object,
            tries,
            handle,
        });
    }

    fn again_later(&self, panicked: Panicked) {
        self.counter.inc();
        let object = panicked.object.as_ref().map(tracing::field::display);
        let mut state = self.state.lock();
        let pause = PAUSES.get(panicked.tries);
        let pause = pause.filter(|_| state.waiting.len() < MAX_WAITING);
        let Some(pause) = pause else {
            state.lost += 1;
            // Not a line for each of very many.
            if state.lost.is_power_of_two() {
                tracing::error!(
                    controller = %self.controller, object, tries = panicked.tries, lost = state.lost,
                    "the handler of a watch panicked; its event is lost until the object changes again"
                );
            }
            return;
        };
        tracing::error!(
            controller = %self.controller, object, again_in = ?pause,
            "the handler of a watch panicked; its event is handled again later"
        );
        state.count += 1;
        let place = (Instant::now() + *pause, state.count);
        state.waiting.insert(place, panicked);
        drop(state);
        self.added.notify_one();
    }

    /// Drops all events: the handlers are gone, and receive every object when they are registered again.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut self.state.lock().waiting);
        // Outside of the lock: the dropped values are the user's.
        drop(all);
    }

    /// Delivers events when their pauses have passed, until it is dropped.
    pub(super) async fn run(&self) -> Infallible {
        loop {
            let next = self.next();
            let due = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = due => self.hand_over(),
                () = self.added.notified() => {}
            }
        }
    }

    fn next(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.waiting.first_key_value().map(|((at, _), _)| *at)
    }

    /// Delivers the first event.
    fn hand_over(&self) {
        let first = self.state.lock().waiting.pop_first();
        // Outside of the lock: the handler is the user's.
        if let Some((_, mut panicked)) = first
            && !(panicked.handle)()
        {
            panicked.tries += 1;
            self.again_later(panicked);
        }
    }
}

/// The text of a panic.
pub(super) fn text_of(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}
