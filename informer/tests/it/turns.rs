//! No task works on many objects without letting others run, however many there are.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_derive::Resource;
use parking_lot::Mutex;
use reeve_informer::{
    Event, HandlerHandle, HandlerOptions, ObjectKey, Policy, ReflectorOptions, SharedInformer,
    Stored,
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use crate::harness::clock;
use crate::script::*;

const OBJECTS: usize = 10_000;

/// The most objects of each kind between two turns of another task. A task works on 256 (and decodes by bytes), and it
/// may run twice in between.
const MOST: usize = 512;

thread_local! {
    pub static DECODED: Cell<usize> = const { Cell::new(0) };
    pub static FREED: Cell<usize> = const { Cell::new(0) };
    static INDEXED: Cell<usize> = const { Cell::new(0) };
    static DELIVERED: [Cell<usize>; 4] = const { [const { Cell::new(0) }; 4] };
}

fn count(counter: &Cell<usize>) {
    counter.set(counter.get() + 1);
}

/// Counts its life.
pub struct Life;

impl Default for Life {
    fn default() -> Self {
        DECODED.with(count);
        Self
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        FREED.with(count);
    }
}

#[derive(Resource, Serialize, Deserialize)]
#[resource(inherit = ConfigMap, crates(kube_core = "::kube_core"))]
pub struct Counted {
    metadata: ObjectMeta,
    #[serde(skip)]
    _life: Life,
}

/// The work of all tasks since the last turn of this, and the most of any such time.
#[derive(Default)]
struct Turns {
    before: BTreeMap<&'static str, usize>,
    most: BTreeMap<&'static str, usize>,
}

impl Turns {
    fn totals() -> Vec<(&'static str, usize)> {
        let handlers = ["first", "second", "inline", "late"];
        let delivered = handlers.into_iter().zip(DELIVERED.with(|delivered| {
            let counts = delivered.iter().map(Cell::get);
            counts.collect::<Vec<_>>()
        }));
        let objects = [
            ("decoded", DECODED.get()),
            ("freed", FREED.get()),
            ("indexed", INDEXED.get()),
        ];
        objects.into_iter().chain(delivered).collect()
    }

    fn look(&mut self) {
        for (name, total) in Self::totals() {
            let before = self.before.insert(name, total).unwrap_or(0);
            let most = self.most.entry(name).or_default();
            *most = (*most).max(total - before);
        }
    }

    /// Has turns until `done`.
    async fn until(&mut self, what: &str, mut done: impl FnMut() -> bool) {
        for turn in 0.. {
            self.look();
            if done() {
                return;
            }
            assert!(turn < 100_000, "{what}");
            // Time passes: a list after an error waits.
            tokio::time::advance(Duration::from_millis(1)).await;
        }
    }
}

/// A watch, and its end with 410.
pub fn watch_until_expired() -> (Answer, impl Fn()) {
    let (sender, receiver) = unbounded_channel();
    let live = Answer::Live(Arc::new(Mutex::new(receiver)));
    let expire = move || {
        sender.send(error(410, "Expired")).unwrap();
    };
    (live, expire)
}

fn indexed(object: &Counted) -> Result<Vec<Arc<str>>, String> {
    INDEXED.with(count);
    Ok(vec![Arc::from(object.name())])
}

fn handler(place: usize) -> impl Fn(Event<Counted>) + Send + Sync + 'static {
    move |_| DELIVERED.with(|delivered| count(&delivered[place]))
}

#[tokio::test(start_paused = true)]
async fn no_turn_of_a_task_grows_with_the_number_of_objects() {
    let objects = |version: usize| -> Vec<_> {
        let number = (0..OBJECTS).map(|number| (number, version + number));
        number
            .map(|(number, version)| object(&format!("o{number:05}"), &version.to_string()))
            .collect()
    };
    let [(first, expire_first), (second, expire_second)] = [(); 2].map(|()| watch_until_expired());
    let [(third, expire_third), (fourth, expire_fourth)] = [(); 2].map(|()| watch_until_expired());
    let script = Script::new([
        list("20000", &objects(1)),
        first,
        list("40000", &objects(20_001)),
        second,
        list("50000", &[]),
        third,
        list("70000", &objects(50_001)),
        fourth,
        list("80000", &[]),
    ]);
    let informer = SharedInformer::<Counted>::builder(script.client())
        .clock(clock())
        .reflector(ReflectorOptions::new().streaming(false))
        .build();
    informer.add_indexer("early", indexed).unwrap();
    let add = |place, options| informer.add_handler(handler(place), options).unwrap();
    let every = HandlerOptions::new().policy(Policy::Block { bound: 100_000 });
    let mut handlers = vec![
        add(0, every.clone()),
        add(1, every.clone()),
        add(2, every.clone().inline()),
    ];
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    let mut turns = Turns::default();
    let delivered = |handlers: &[HandlerHandle<Counted>], each: usize| {
        handlers.iter().all(|one| one.delivered() == each as u64)
    };

    turns
        .until("the first list", || delivered(&handlers, OBJECTS))
        .await;
    handlers.push(add(3, every));
    turns
        .until("the late handler", || delivered(&handlers, OBJECTS))
        .await;
    let adding = tokio::spawn({
        let informer = informer.clone();
        async move { informer.add_indexer_in_turns("late", indexed).await }
    });
    turns.until("the late index", || adding.is_finished()).await;
    adding.await.unwrap().unwrap();
    assert_eq!(INDEXED.get(), 2 * OBJECTS);
    expire_first();
    turns
        .until("a list of other states", || {
            delivered(&handlers, 2 * OBJECTS)
        })
        .await;
    expire_second();
    turns
        .until("a list of nothing", || {
            delivered(&handlers, 3 * OBJECTS) && FREED.get() == 2 * OBJECTS
        })
        .await;
    // Without handlers, whose events are the last references otherwise.
    for handler in handlers {
        handler.unregister();
    }
    let version = |version: &'static str| {
        let informer = informer.clone();
        move || informer.last_sync_resource_version().as_str() == version
    };
    expire_third();
    turns.until("a list of new objects", version("70000")).await;
    expire_fourth();
    turns
        .until("the last list", || FREED.get() == 3 * OBJECTS)
        .await;

    assert_eq!(DECODED.get(), 3 * OBJECTS);
    assert_eq!(INDEXED.get(), 6 * OBJECTS, "a deletion has known values");
    for (name, most) in &turns.most {
        assert!((1..=MOST).contains(most), "{name}: {:?}", turns.most);
    }
    stop.cancel();
    running.await.unwrap().unwrap();
}

/// The objects as a handler knows them. Each event has to follow from the ones before.
#[derive(Clone, Default)]
pub struct Known(Arc<Mutex<BTreeMap<ObjectKey, String>>>);

impl Known {
    pub fn handler(&self) -> impl Fn(Event<ConfigMap>) + Send + Sync + 'static {
        let known = Arc::clone(&self.0);
        move |event| {
            let mut known = known.lock();
            let key = event.key();
            let version = |object: &ConfigMap| object.resource_version().to_owned();
            match event {
                Event::Added { object, .. } => {
                    let before = known.insert(key, version(&object));
                    assert_eq!(before, None, "{object:?} was added before");
                }
                Event::Updated { old, new, .. } => {
                    let before = known.insert(key, version(&new));
                    assert_eq!(before, Some(version(&old)), "{new:?}");
                }
                Event::Deleted { seen, .. } => {
                    let before = known.remove(&key);
                    assert_eq!(before, seen.as_deref().map(version), "{key}");
                }
            }
        }
    }

    /// A handler whose options are those of its number: six in a row have each policy, inline and in a task.
    pub fn added(
        informer: &SharedInformer<ConfigMap>,
        number: usize,
    ) -> (HandlerHandle<ConfigMap>, Self) {
        let policies = [
            Policy::Coalesce { bound: 4 },
            Policy::Block { bound: 4 },
            Policy::DropToResync { bound: 4 },
        ];
        let options = HandlerOptions::new().policy(policies[number % 3]);
        let options = if number.is_multiple_of(2) {
            options.inline()
        } else {
            options
        };
        let known = Self::default();
        let handle = informer.add_handler(known.handler(), options).unwrap();
        (handle, known)
    }

    pub fn is(&self, informer: &SharedInformer<ConfigMap>) -> bool {
        let objects = informer.lister().list();
        let stored = objects
            .iter()
            .map(|object| (object.key(), object.resource_version().to_owned()));
        *self.0.lock() == stored.collect()
    }
}

/// Three pieces of objects.
const FEW: usize = 700;

pub fn state(version: usize, recreated: bool, numbers: std::ops::Range<usize>) -> Vec<String> {
    let uid = |number: usize| {
        if recreated && number.is_multiple_of(5) {
            "another"
        } else {
            "uid"
        }
    };
    numbers
        .map(|number| {
            let (name, version) = (format!("o{number:04}"), (version + number).to_string());
            object_of(&name, &version, uid(number))
        })
        .collect()
}

/// The turn in which everything is over, if a handler is added in the turn `late` after the watch ended.
async fn relist_with_a_handler_that_is_added_in_turn(late: usize) -> usize {
    let (first, expire) = watch_until_expired();
    let (sender, receiver): (UnboundedSender<Bit>, _) = unbounded_channel();
    for number in 50..FEW {
        let version = (20_000 + number).to_string();
        sender
            .send(modified(&format!("o{number:04}"), &version))
            .unwrap();
    }
    let script = Script::new([
        list("5000", &state(1, false, 0..FEW)),
        first,
        // Some are gone, some are new, and some of those that stay were created again.
        list("9000", &state(6000, true, 50..FEW + 50)),
        Answer::Live(Arc::new(Mutex::new(receiver))),
    ]);
    let informer = SharedInformer::<ConfigMap>::builder(script.client())
        .clock(clock())
        .reflector(ReflectorOptions::new().streaming(false))
        .build();
    let mut handlers: Vec<_> = (0..6)
        .map(|number| Known::added(&informer, number))
        .collect();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    for (handle, _) in &handlers {
        handle.wait_synced().await.unwrap();
    }
    expire();
    while script.count("list") < 2 {
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let newest = (20_000 + FEW - 1).to_string();
    for turn in 0.. {
        if turn == late {
            handlers.push(Known::added(&informer, turn));
        }
        let reached = informer.last_sync_resource_version().as_str() == newest;
        if reached && handlers.iter().all(|(_, known)| known.is(&informer)) {
            for (handle, _) in &handlers {
                assert_eq!((handle.panics(), handle.backlog()), (0, 0));
            }
            stop.cancel();
            running.await.unwrap().unwrap();
            return turn;
        }
        for (handle, _) in &handlers {
            assert_eq!(handle.panics(), 0, "{} in turn {turn}", handle.name());
        }
        assert!(turn < 10_000, "it does not end");
        // Long steps: the waits of the reflector take few turns.
        if turn % 16 == 15 {
            tokio::time::advance(Duration::from_millis(100)).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
    unreachable!()
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_added_in_any_turn_of_a_list_misses_no_event_and_gets_none_twice() {
    let mut late = 0;
    loop {
        let over = relist_with_a_handler_that_is_added_in_turn(late).await;
        if over < late {
            break;
        }
        late += 1;
    }
    assert!(late > 20, "{late} turns are few");
}
