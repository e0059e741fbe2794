//! The shared informer: handlers, indexes, life cycle. Named cases of client-go's shared informer tests.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use reeve_informer::{
    Activity, BackoffOptions, Event, Filtered, Gauges, HandlerOptions, InformerIdentity,
    InformerMetrics, Measurement, MetricsProvider, MutationCache, ObjectKey, Policy,
    ReflectorOptions, ResourceVersion, RunError, Scope, SharedInformer, Stored, WaitError, indexer,
    transport::Limits,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::harness::{Maps, Told, builder, contents, millis, run, seconds, short, start};
use crate::script::*;

/// A server with three objects and a watch that says what is sent here.
pub fn three() -> (Script, impl Fn(Bit)) {
    let (sender, receiver) = mpsc::unbounded_channel::<Bit>();
    let receiver = Arc::new(Mutex::new(receiver));
    let script = Script::new([
        no_streaming(),
        list(
            "10",
            &[object("a", "1"), object("b", "2"), object("c", "3")],
        ),
        Answer::Live(receiver),
    ]);
    (script, move |bit| sender.send(bit).unwrap())
}

// === Handlers ===

#[tokio::test(start_paused = true)]
async fn handlers_are_told_what_was_there_and_then_what_changes() {
    let (script, say) = three();
    let running = start(&script);
    running.handle.has_synced().await.unwrap();
    assert_eq!(running.told.take(), ["+a@1*", "+b@2*", "+c@3*"]);
    say(added("d", "11"));
    say(modified("a", "12"));
    say(deleted("b", "13"));
    millis(1).await;
    assert_eq!(running.told.take(), ["+d@11", "~a@1-12", "-b@13"]);
    assert_eq!(running.store(), "a@12 c@3 d@11");
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_is_first_told_what_is_there() {
    let (script, say) = three();
    let running = start(&script);
    running.informer.wait_synced().await.unwrap();
    say(modified("a", "12"));
    millis(1).await;
    let told = Told::default();
    let handle = running
        .informer
        .add_handler(told.handler(), HandlerOptions::new())
        .unwrap();
    assert!(!handle.is_synced(), "not before it was shown everything");
    handle.has_synced().await.unwrap();
    assert_eq!(told.take(), ["+a@12*", "+b@2*", "+c@3*"]);
    say(deleted("c", "13"));
    millis(1).await;
    assert_eq!(told.take(), ["-c@13"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_created_again_is_deleted_and_then_added() {
    let (script, say) = three();
    let running = start(&script);
    running.handle.has_synced().await.unwrap();
    running.told.take();
    // The deletion was missed; the watch shows the new one only.
    say(event("ADDED", &object_of("a", "12", "other")));
    millis(1).await;
    assert_eq!(running.told.take(), ["-a@1!", "+a@12"]);
    // A late word about the former one means nothing.
    say(event("DELETED", &object_of("a", "13", "uid-a")));
    millis(1).await;
    assert_eq!(running.told.take(), Vec::<String>::new());
    assert_eq!(running.store(), "a@12 b@2 c@3");
}

#[tokio::test(start_paused = true)]
async fn a_relist_tells_what_is_gone_first_then_the_rest_in_order_and_keeps_what_is_unchanged() {
    let script = Script::new([
        no_streaming(),
        list(
            "10",
            &[
                object("a", "1"),
                object("b", "2"),
                object("c", "3"),
                object("d", "4"),
            ],
        ),
        ending([wait(5), error(410, "Expired")]),
        list(
            "20",
            &[
                object("e", "15"),
                object_of("b", "16", "other"),
                object("a", "1"),
                object("c", "17"),
            ],
        ),
        watch([]),
    ]);
    let running = start(&script);
    running.handle.has_synced().await.unwrap();
    running.told.take();
    let key = ObjectKey::namespaced("n", "a");
    let before = running.informer.lister().get(&key).unwrap();
    seconds(10).await;
    assert_eq!(
        running.told.take(),
        ["-b@2!", "-d@4!", "+e@15", "+b@16", "~c@3-17r"]
    );
    let after = running.informer.lister().get(&key).unwrap();
    assert!(
        Arc::ptr_eq(&before, &after),
        "an unchanged object keeps its entry"
    );
    assert_eq!(running.informer.last_sync_resource_version().as_str(), "20");
}

#[tokio::test(start_paused = true)]
async fn a_panicking_handler_is_isolated_and_still_syncs() {
    let (script, say) = three();
    let running = start(&script);
    let calls = Arc::new(AtomicUsize::new(0));
    let handle = running
        .informer
        .add_handler(
            {
                let calls = Arc::clone(&calls);
                move |_: Event<ConfigMap>| {
                    calls.fetch_add(1, Ordering::SeqCst);
                    panic!("on purpose");
                }
            },
            HandlerOptions::new().name("bad"),
        )
        .unwrap();
    handle.has_synced().await.unwrap();
    say(added("d", "11"));
    millis(1).await;
    assert_eq!((calls.load(Ordering::SeqCst), handle.panics()), (4, 4));
    assert_eq!(
        running.told.take().len(),
        4,
        "the other handler is not disturbed"
    );
    let health = running.informer.health();
    let bad = health
        .handlers
        .iter()
        .find(|handler| &*handler.name == "bad")
        .unwrap();
    assert_eq!((bad.panics, bad.synced, bad.delivered), (4, true, 4));
}

#[tokio::test(start_paused = true)]
async fn a_removed_handler_is_told_nothing_more_and_others_stay() {
    let (script, say) = three();
    let running = start(&script);
    let told = Told::default();
    let handle = running
        .informer
        .add_handler(told.handler(), HandlerOptions::new())
        .unwrap();
    let twice = running
        .informer
        .add_handler(told.handler(), HandlerOptions::new())
        .unwrap();
    twice.has_synced().await.unwrap();
    handle.has_synced().await.unwrap();
    assert_eq!(told.take().len(), 6, "each registration is its own");
    handle.remove().await;
    handle.remove().await;
    say(added("d", "11"));
    millis(1).await;
    assert_eq!(told.take(), ["+d@11"]);
    assert_eq!(running.informer.health().handlers.len(), 2);
}

#[test]
fn removing_a_handler_waits_for_its_callback_in_flight() {
    // Real threads, since the callback blocks one; no time passes.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (script, _say) = three();
        let informer = SharedInformer::<ConfigMap>::builder(script.client()).build();
        let stop = CancellationToken::new();
        let task = tokio::spawn({
            let (informer, stop) = (informer.clone(), stop.clone());
            async move { informer.run(stop).await }
        });
        let (entered, mut was_entered) = mpsc::unbounded_channel();
        let (leave, left) = std::sync::mpsc::channel::<()>();
        let left = Mutex::new(left);
        let over = Arc::new(AtomicBool::new(false));
        let handle = informer
            .add_handler(
                {
                    let over = Arc::clone(&over);
                    move |_: Event<ConfigMap>| {
                        entered.send(()).unwrap();
                        left.lock().recv().unwrap();
                        over.store(true, Ordering::SeqCst);
                    }
                },
                HandlerOptions::new(),
            )
            .unwrap();
        was_entered.recv().await.unwrap();
        let removal = handle.remove();
        tokio::pin!(removal);
        assert!(futures_are_pending(&mut removal), "the callback still runs");
        leave.send(()).unwrap();
        removal.await;
        assert!(over.load(Ordering::SeqCst));
        assert_eq!(handle.delivered(), 1, "what was queued is dropped");
        stop.cancel();
        task.await.unwrap().unwrap();
    });
}

#[test]
fn a_handler_that_panics_while_it_is_removed_is_removed() {
    // Real threads, since the callback blocks one; no time passes.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (script, _say) = three();
        let informer = SharedInformer::<ConfigMap>::builder(script.client()).build();
        let stop = CancellationToken::new();
        let task = tokio::spawn({
            let (informer, stop) = (informer.clone(), stop.clone());
            async move { informer.run(stop).await }
        });
        let (entered, mut was_entered) = mpsc::unbounded_channel();
        let (leave, left) = std::sync::mpsc::channel::<()>();
        let left = Mutex::new(left);
        let handler = move |_: Event<ConfigMap>| {
            entered.send(()).unwrap();
            left.lock().recv().unwrap();
            panic!("on purpose");
        };
        let handle = informer
            .add_handler(handler, HandlerOptions::new())
            .unwrap();
        was_entered.recv().await.unwrap();
        let removal = handle.remove();
        tokio::pin!(removal);
        assert!(futures_are_pending(&mut removal), "the callback still runs");
        leave.send(()).unwrap();
        removal.await;
        assert_eq!((handle.panics(), handle.delivered()), (1, 1));
        informer.wait_synced().await.unwrap();
        stop.cancel();
        task.await.unwrap().unwrap();
    });
}

#[test]
fn handlers_and_indexes_that_come_while_it_starts_lose_nothing() {
    // Real threads, so that they race; no time passes.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        for _ in 0..50 {
            let (script, _say) = three();
            let informer = SharedInformer::<ConfigMap>::builder(script.client()).build();
            let stop = CancellationToken::new();
            let adding: Vec<_> = (0..4)
                .map(|number| {
                    let informer = informer.clone();
                    tokio::spawn(async move {
                        let told = Told::default();
                        let handle = informer
                            .add_handler(told.handler(), HandlerOptions::new())
                            .unwrap();
                        let name = format!("index {number}");
                        informer
                            .add_indexer(&*name, |map| Ok(vec![map.name().into()]))
                            .unwrap();
                        handle.has_synced().await.unwrap();
                        let mut told = told.take();
                        told.sort();
                        assert_eq!(told, ["+a@1*", "+b@2*", "+c@3*"]);
                        let values = informer.indexer().index_values(&name).unwrap();
                        assert_eq!(values.len(), 3);
                    })
                })
                .collect();
            let task = tokio::spawn({
                let (informer, stop) = (informer.clone(), stop.clone());
                async move { informer.run(stop).await }
            });
            for adding in adding {
                adding.await.unwrap();
            }
            stop.cancel();
            task.await.unwrap().unwrap();
        }
    });
}

fn futures_are_pending<F: Future + Unpin>(future: &mut F) -> bool {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    std::pin::Pin::new(future).poll(&mut context).is_pending()
}

#[tokio::test(start_paused = true)]
async fn each_handler_has_its_own_resync_period() {
    for delta_fifo in [false, true] {
        let script =
            Script::new([no_streaming(), list("10", &[object("a", "1")])]).otherwise(|_| watch([]));
        let builder = builder(&script);
        let informer = if delta_fifo {
            builder.delta_fifo()
        } else {
            builder
        }
        .build();
        let told: Vec<_> = [0, 2, 3]
            .into_iter()
            .map(|period| {
                let told = Told::default();
                let mut options = HandlerOptions::new();
                if period > 0 {
                    options = options.resync(Duration::from_secs(period));
                }
                let handle = informer.add_handler(told.handler(), options).unwrap();
                (told, handle)
            })
            .collect();
        let running = run(informer);
        seconds(12).await;
        millis(1).await;
        let resyncs: Vec<_> = told
            .iter()
            .map(|(told, _)| {
                let told = told.take();
                told.iter().filter(|event| *event == "~a@1-1s").count()
            })
            .collect();
        assert_eq!(resyncs, [0, 6, 4], "delta FIFO: {delta_fifo}");
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_resync_period_below_a_second_is_a_second() {
    let script =
        Script::new([no_streaming(), list("10", &[object("a", "1")])]).otherwise(|_| watch([]));
    let informer = builder(&script).resync(Duration::from_millis(1)).build();
    let running = run(informer);
    millis(10_500).await;
    assert_eq!(running.told.take().len(), 11);
}

#[tokio::test(start_paused = true)]
async fn filtered_handlers_see_objects_come_and_go() {
    let (script, say) = three();
    let running = start(&script);
    let told = Told::default();
    let odd = |map: &ConfigMap| {
        !map.resource_version()
            .parse::<u64>()
            .unwrap()
            .is_multiple_of(2)
    };
    let handler = Filtered::new(odd, told.handler());
    let handle = running
        .informer
        .add_handler(handler, HandlerOptions::new())
        .unwrap();
    let waiting = Told::default();
    let note = waiting.handler();
    let later = move |event| {
        note(event);
        tokio::task::yield_now()
    };
    let later = running
        .informer
        .add_async_handler(Filtered::new(odd, later), HandlerOptions::new())
        .unwrap();
    let mut stream = running
        .informer
        .stream_where(odd, HandlerOptions::new())
        .unwrap();
    handle.has_synced().await.unwrap();
    later.has_synced().await.unwrap();
    stream.handle().has_synced().await.unwrap();
    for told in [&told, &waiting] {
        assert_eq!(told.take(), ["+a@1*", "+c@3*"]);
    }
    for bit in [
        modified("a", "11"),
        modified("a", "12"),
        modified("b", "13"),
        deleted("a", "14"),
        deleted("c", "15"),
    ] {
        say(bit);
    }
    millis(1).await;
    for told in [&told, &waiting] {
        assert_eq!(told.take(), ["~a@1-11", "-a@11", "+b@13", "-c@15"]);
    }
    let mut streamed = Vec::new();
    for _ in 0..6 {
        streamed.push(short(&stream.next().await.unwrap()));
    }
    let expected = ["+a@1*", "+c@3*", "~a@1-11", "-a@11", "+b@13", "-c@15"];
    assert_eq!(streamed, expected);
}

// === Handlers that do not keep up ===

#[test]
fn a_blocking_handler_holds_the_informer_and_a_coalescing_one_does_not() {
    for (policy, held) in [
        (Policy::Block { bound: 5 }, true),
        (Policy::Coalesce { bound: 5 }, false),
    ] {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(3)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (script, say) = three();
            let informer = SharedInformer::<ConfigMap>::builder(script.client()).build();
            let stop = CancellationToken::new();
            let task = tokio::spawn({
                let (informer, stop) = (informer.clone(), stop.clone());
                async move { informer.run(stop).await }
            });
            let (leave, left) = std::sync::mpsc::channel::<()>();
            let left = Mutex::new(left);
            let told = Told::default();
            let tell = told.handler();
            let handle = informer
                .add_handler(
                    move |event: Event<ConfigMap>| {
                        let _ = left.lock().recv();
                        tell(event);
                    },
                    HandlerOptions::new().policy(policy),
                )
                .unwrap();
            informer.wait_synced().await.unwrap();
            for number in 0..5_000 {
                say(modified("a", &format!("{}", 11 + number)));
            }
            let last = ResourceVersion::from("5010");
            let waited = tokio::time::timeout(
                Duration::from_millis(if held { 200 } else { 20_000 }),
                informer.wait_for_resource_version(&Scope::Cluster, &last),
            )
            .await;
            assert_eq!(waited.is_err(), held, "{policy:?}");
            assert!(handle.backlog() <= 1100, "{} events wait", handle.backlog());
            // Once it moves, it sees the last state in either case.
            drop(leave);
            informer
                .wait_for_resource_version(&Scope::Cluster, &last)
                .await
                .unwrap();
            for _ in 0..1000 {
                if told.last().is_some_and(|event| event.ends_with("-5010")) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let events = told.take();
            assert_eq!(events.len() == 5_003, held, "{policy:?}: {}", events.len());
            assert!(events.last().unwrap().ends_with("-5010"));
            stop.cancel();
            task.await.unwrap().unwrap();
        });
    }
}

#[test]
fn a_handler_that_drops_is_told_the_difference_when_it_has_caught_up() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (script, say) = three();
        let informer = SharedInformer::<ConfigMap>::builder(script.client()).build();
        let stop = CancellationToken::new();
        let task = tokio::spawn({
            let (informer, stop) = (informer.clone(), stop.clone());
            async move { informer.run(stop).await }
        });
        let (entered, mut was_entered) = mpsc::unbounded_channel();
        let (leave, left) = std::sync::mpsc::channel::<()>();
        let left = Mutex::new(left);
        let told = Told::default();
        let tell = told.handler();
        let handle = informer
            .add_handler(
                move |event: Event<ConfigMap>| {
                    let _ = entered.send(());
                    let _ = left.lock().recv();
                    tell(event);
                },
                HandlerOptions::new().policy(Policy::DropToResync { bound: 1 }),
            )
            .unwrap();
        was_entered.recv().await.unwrap();
        informer.wait_synced().await.unwrap();
        for bit in [
            modified("a", "11"),
            added("d", "12"),
            deleted("b", "13"),
            modified("a", "14"),
            added("e", "15"),
            deleted("e", "16"),
            deleted("c", "17"),
            event("ADDED", &object_of("c", "18", "other")),
        ] {
            say(bit);
        }
        informer
            .wait_for_resource_version(&Scope::Cluster, &ResourceVersion::from("18"))
            .await
            .unwrap();
        assert!(informer.health().handlers[0].dropped >= 5);
        assert!(!handle.is_synced(), "it was not shown everything");
        drop(leave);
        handle.has_synced().await.unwrap();
        for _ in 0..1000 {
            if handle.backlog() == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        handle.remove().await;
        // What it was told leads to what is there, object by object.
        let mut state = std::collections::BTreeMap::new();
        let events = told.take();
        for event in &events {
            let name = event[1..2].to_owned();
            match event.as_bytes()[0] {
                b'+' => assert!(state.insert(name, event.clone()).is_none(), "{events:?}"),
                b'~' => assert!(state.insert(name, event.clone()).is_some(), "{events:?}"),
                _ => assert!(state.remove(&name).is_some(), "{events:?}"),
            }
        }
        let names: Vec<_> = state.keys().cloned().collect();
        assert_eq!(names, ["a", "c", "d"], "{events:?}");
        assert!(
            state["a"].contains("14") && state["c"].contains("18"),
            "{events:?}"
        );
        stop.cancel();
        task.await.unwrap().unwrap();
    });
}

#[tokio::test(start_paused = true)]
async fn who_comes_while_a_handler_is_waited_for_is_told_what_is_there() {
    let (script, say) = three();
    let running = start(&script);
    running.informer.wait_synced().await.unwrap();
    let hangs = |_: Event<ConfigMap>| std::future::pending();
    let block = HandlerOptions::new().policy(Policy::Block { bound: 1 });
    let hanging = running.informer.add_async_handler(hangs, block).unwrap();
    for version in 11..15 {
        say(modified("a", &version.to_string()));
        seconds(1).await;
    }
    assert!(running.store().starts_with("a@1"), "{}", running.store());
    let told = Told::default();
    let late = running
        .informer
        .add_handler(told.handler(), HandlerOptions::new())
        .unwrap();
    late.has_synced().await.unwrap();
    assert_eq!(told.take().len(), 3);
    hanging.remove().await;
    seconds(1).await;
    assert_eq!(told.last().unwrap(), "~a@13-14");
    running.stop().await;
}

/// Asks its informer when it is let go.
struct Asking(Maps);

impl Drop for Asking {
    fn drop(&mut self) {
        assert_eq!(self.0.health().activity, Activity::Stopped);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_asks_its_informer_when_it_is_let_go_gets_an_answer() {
    let (script, _say) = three();
    let informer = builder(&script).build();
    let asking = Asking(informer.clone());
    let handle = informer
        .add_handler(
            move |_: Event<ConfigMap>| drop(asking.0.health()),
            HandlerOptions::new(),
        )
        .unwrap();
    // Ended before the handler began.
    let stop = CancellationToken::new();
    stop.cancel();
    informer.run(stop).await.unwrap();
    assert!(handle.has_synced().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn handlers_that_come_and_go_during_a_storm_disturb_nobody() {
    let bits: Vec<_> = (0..2000)
        .map(|number| modified("a", &format!("{}", 11 + number)))
        .collect();
    let (script, say) = three();
    let running = start(&script);
    running.informer.wait_synced().await.unwrap();
    let mut handles = Vec::new();
    for (number, bit) in bits.into_iter().enumerate() {
        say(bit);
        if number % 20 == 0 {
            let told = Told::default();
            let handle = running
                .informer
                .add_handler(told.handler(), HandlerOptions::new())
                .unwrap();
            handles.push((told, handle));
            tokio::task::yield_now().await;
        }
        if number % 60 == 0 {
            let (_, handle) = handles.remove(0);
            handle.remove().await;
        }
    }
    millis(10).await;
    for (told, handle) in &handles {
        assert!(handle.is_synced());
        let events = told.take();
        assert!(
            events[0].starts_with("+a@") && events[0].ends_with('*'),
            "{:?}",
            &events[..1]
        );
        // Each event goes on where the one before ended.
        let mut version = events[0][3..].trim_end_matches('*').to_owned();
        for event in events.iter().filter(|event| event.starts_with('~')) {
            let (from, to) = event[3..].split_once('-').unwrap();
            assert_eq!(from, version);
            version = to.to_owned();
        }
        assert_eq!(version, "2010");
    }
}

// === Life cycle ===

#[tokio::test(start_paused = true)]
async fn an_informer_runs_once_and_takes_no_handlers_after_its_end() {
    let (script, _say) = three();
    let running = start(&script);
    running.informer.wait_synced().await.unwrap();
    let again = running.informer.run(CancellationToken::new()).await;
    assert!(matches!(again, Err(RunError::StartedBefore { .. })));
    let informer = running.informer.clone();
    running.stop().await;
    assert!(informer.is_stopped());
    assert!(
        informer
            .add_handler(|_: Event<ConfigMap>| {}, HandlerOptions::new())
            .is_err()
    );
    assert_eq!(
        contents(&informer),
        "a@1 b@2 c@3",
        "the store can still be read"
    );
}

#[tokio::test(start_paused = true)]
async fn dropping_the_run_stops_everything_and_tells_who_waits() {
    let script = Script::new([watch([added("a", "5")])]);
    let informer = builder(&script).build();
    let held = Arc::new(());
    let handler = {
        let held = Arc::clone(&held);
        move |_: Event<ConfigMap>| drop(Arc::clone(&held))
    };
    let second = informer
        .add_handler(handler, HandlerOptions::new())
        .unwrap();
    let running = run(informer.clone());
    millis(1).await;
    let waiting = tokio::spawn(async move { informer.wait_synced().await });
    millis(1).await;
    assert_eq!((script.open(), Arc::strong_count(&held)), (1, 2));
    running.task.abort();
    assert!(matches!(
        waiting.await.unwrap(),
        Err(WaitError::Stopped { .. })
    ));
    assert!(running.handle.has_synced().await.is_err());
    running.handle.remove().await;
    assert!(running.informer.is_stopped());
    millis(1).await;
    assert_eq!(script.open(), 0);
    // The handler's task held its handler, and nothing does any more: neither the informer nor the handle.
    assert_eq!(Arc::strong_count(&held), 1);
    second.remove().await;
    drop(running.informer);
}

#[tokio::test(start_paused = true)]
async fn a_handler_can_be_removed_before_the_informer_runs() {
    let (script, _say) = three();
    let informer = builder(&script).build();
    let told = Told::default();
    let handle = informer
        .add_handler(told.handler(), HandlerOptions::new())
        .unwrap();
    handle.remove().await;
    let running = run(informer);
    running.handle.has_synced().await.unwrap();
    assert!(told.take().is_empty());
}

// === Indexes, waiting, transforms ===

#[tokio::test(start_paused = true)]
async fn indexes_are_added_before_the_start_and_to_a_full_store() {
    let (script, say) = three();
    let informer = builder(&script).build();
    let parity = |map: &ConfigMap| {
        let version: u64 = map
            .resource_version()
            .parse()
            .map_err(|_| "no number".to_owned())?;
        Ok(vec![Arc::from(if version.is_multiple_of(2) {
            "even"
        } else {
            "odd"
        })])
    };
    informer.add_indexer("before", parity).unwrap();
    let running = run(informer.clone());
    informer.wait_synced().await.unwrap();
    informer.add_indexer("after", parity).unwrap();
    assert!(matches!(
        informer.add_indexer("after", parity),
        Err(indexer::Error::Exists { .. })
    ));
    say(modified("a", "12"));
    say(deleted("c", "13"));
    millis(1).await;
    for name in ["before", "after"] {
        let even = informer.indexer().index_keys(name, "even").unwrap();
        assert_eq!(
            even.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["n/a", "n/b"]
        );
        assert!(informer.lister().by_index(name, "odd").unwrap().is_empty());
        assert_eq!(
            informer.indexer().index_values(name).unwrap().len(),
            1,
            "no empty sets stay"
        );
    }
    assert_eq!(informer.lister().namespace("n").len(), 2);
    assert!(informer.lister().namespace("m").is_empty());
    let error = informer
        .lister()
        .by_index("none", "x")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("\"none\"") && error.contains("before"),
        "{error}"
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_index_that_fails_or_panics_is_counted_and_costs_only_itself() {
    let (script, _say) = three();
    let informer = builder(&script).build();
    informer
        .add_indexer("fails", |map: &ConfigMap| match map.name() {
            "a" => Err("no value".to_owned()),
            "b" => panic!("on purpose"),
            _ => Ok(vec!["x".into()]),
        })
        .unwrap();
    let running = run(informer.clone());
    informer.wait_synced().await.unwrap();
    assert_eq!(running.store(), "a@1 b@2 c@3");
    assert_eq!(informer.lister().by_index("fails", "x").unwrap().len(), 1);
    let values = informer.indexer().index_values("fails").unwrap();
    assert_eq!(values, ["x".into()], "each value once");
    let (failures, last) = informer.indexer().index_failures("fails").unwrap();
    assert_eq!(failures, 2);
    assert!(last.unwrap().contains("n/b"));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_version_ends_when_readers_see_it() {
    let (script, say) = three();
    let running = start(&script);
    let informer = running.informer.clone();
    let waiting = tokio::spawn(async move {
        informer
            .wait_for_resource_version(&Scope::namespace("n"), &ResourceVersion::from("12"))
            .await
            .unwrap();
        contents(&informer)
    });
    seconds(1).await;
    say(modified("a", "11"));
    seconds(1).await;
    assert!(!waiting.is_finished());
    say(modified("a", "12"));
    assert_eq!(waiting.await.unwrap(), "a@12 b@2 c@3");
    say(bookmark("40"));
    running
        .informer
        .wait_for_resource_version(&Scope::Cluster, &ResourceVersion::from("40"))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiting_where_the_informer_does_not_watch_is_an_error() {
    let script = Script::default();
    let informer = builder(&script).scope(Scope::namespace("n")).build();
    for (scope, said) in [
        (Scope::Cluster, "the whole cluster"),
        (Scope::namespace("m"), "namespace m"),
    ] {
        let waited = informer
            .wait_for_resource_version(&scope, &ResourceVersion::from("1"))
            .await;
        let error = waited.unwrap_err();
        assert!(matches!(error, WaitError::OutOfScope { .. }));
        let said = format!("does not watch {said}");
        assert!(error.to_string().ends_with(&said), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_transform_runs_once_an_object_before_anyone_sees_it() {
    let runs = Arc::new(AtomicUsize::new(0));
    for script in [
        Script::new([
            no_streaming(),
            list("10", &[object("a", "1"), object("b", "2")]),
            watch([added("c", "11")]),
        ]),
        Script::new([watch([
            added("a", "1"),
            added("b", "2"),
            initial_end("10"),
            added("c", "11"),
        ])]),
    ] {
        runs.store(0, Ordering::SeqCst);
        let informer = builder(&script)
            .transform({
                let runs = Arc::clone(&runs);
                move |map: &mut ConfigMap| {
                    runs.fetch_add(1, Ordering::SeqCst);
                    map.data = None;
                }
            })
            .build();
        let running = run(informer);
        seconds(2).await;
        assert_eq!(running.store(), "a@1 b@2 c@11");
        assert!(
            running
                .informer
                .lister()
                .list()
                .iter()
                .all(|map| map.data.is_none())
        );
        assert_eq!(runs.load(Ordering::SeqCst), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_at_which_the_transform_panics_is_quarantined_and_the_others_go_on() {
    for script in [
        Script::new([
            no_streaming(),
            list("10", &[object("a", "1"), object("bad", "2")]),
            watch([
                added("c", "11"),
                modified("a", "12"),
                added("worse", "13"),
                modified("c", "14"),
                deleted("worse", "15"),
            ]),
        ]),
        Script::new([watch([
            added("a", "1"),
            added("bad", "2"),
            initial_end("10"),
            added("c", "11"),
            modified("a", "12"),
            added("worse", "13"),
            modified("c", "14"),
            deleted("worse", "15"),
        ])]),
    ] {
        let informer = builder(&script)
            .transform(|map: &mut ConfigMap| {
                let good = !["bad", "worse"].contains(&map.name());
                // Once it has been good, too.
                assert!(good && map.resource_version() != "12", "on purpose");
            })
            .build();
        let running = run(informer);
        seconds(2).await;
        assert_eq!(running.store(), "a@1 c@14");
        let health = running.informer.health();
        assert_eq!(health.activity, Activity::Watching);
        let quarantined = health.quarantined.iter();
        let quarantined: Vec<_> = quarantined.map(|object| object.key.to_string()).collect();
        assert_eq!(quarantined, ["n/bad", "n/a"]);
        assert_eq!(health.quarantined[0].error, "the transform panicked at it");
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_relist_neither_transforms_nor_keeps_again_what_did_not_change() {
    for delta_fifo in [false, true] {
        let runs = Arc::new(AtomicUsize::new(0));
        let script = Script::new([
            no_streaming(),
            list("10", &[object("a", "1"), object("b", "2")]),
            ending([wait(5), error(410, "Expired")]),
            list("20", &[object("a", "1"), object("b", "12")]),
            watch([]),
        ]);
        let counted = Arc::clone(&runs);
        let mut builder = builder(&script).transform(move |_: &mut ConfigMap| {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        if delta_fifo {
            builder = builder.delta_fifo();
        }
        let running = run(builder.build());
        seconds(10).await;
        assert_eq!(running.told.take(), ["+a@1*", "+b@2*", "~b@2-12r"]);
        assert_eq!(runs.load(Ordering::SeqCst), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_use_its_informer() {
    let (script, say) = three();
    let running = start(&script);
    let informer = running.informer.clone();
    let late = Told::default();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let handle = running
        .informer
        .add_handler(
            {
                let (informer, late, seen) = (informer.clone(), late.clone(), Arc::clone(&seen));
                move |event: Event<ConfigMap>| {
                    // The store is at least as new as the event.
                    let stored = informer.lister().get(&event.key());
                    seen.lock()
                        .push(stored.map(|map| map.resource_version().to_owned()));
                    let _ = informer.health();
                    if event.key().name.as_ref() == "d" {
                        informer
                            .add_handler(late.handler(), HandlerOptions::new())
                            .unwrap()
                            .unregister();
                        let handle = informer
                            .add_handler(late.handler(), HandlerOptions::new())
                            .unwrap();
                        assert!(!handle.is_synced());
                    }
                }
            },
            HandlerOptions::new(),
        )
        .unwrap();
    handle.has_synced().await.unwrap();
    say(added("d", "11"));
    say(deleted("a", "12"));
    millis(10).await;
    assert_eq!(handle.panics(), 0);
    let versions: Vec<_> = seen
        .lock()
        .iter()
        .map(|version| version.as_deref().unwrap_or("gone").to_owned())
        .collect();
    assert_eq!(versions, ["1", "2", "3", "11", "gone"]);
    assert!(late.take().contains(&"+d@11*".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_delta_fifo_leads_to_the_same() {
    let script = Script::new([
        no_streaming(),
        list(
            "10",
            &[object("a", "1"), object("b", "2"), object("c", "3")],
        ),
        ending([
            modified("a", "11"),
            deleted("b", "12"),
            added("d", "13"),
            wait(5),
            error(410, "Expired"),
        ]),
        list("30", &[object("a", "11"), object_of("c", "25", "other")]),
        watch([wait(1), bookmark("31")]),
    ]);
    let informer = builder(&script).delta_fifo().build();
    let resynced = Told::default();
    let handle = informer
        .add_handler(
            resynced.handler(),
            HandlerOptions::new().resync(Duration::from_secs(4)),
        )
        .unwrap();
    let running = run(informer);
    seconds(20).await;
    assert_eq!(running.store(), "a@11 c@25");
    assert_eq!(
        running.told.take(),
        [
            "+a@1*", "+b@2*", "+c@3*", "~a@1-11", "-b@12", "+d@13", "-c@3!", "+c@25", "-d@13!"
        ]
    );
    assert_eq!(running.informer.last_sync_resource_version().as_str(), "31");
    assert!(handle.is_synced());
    assert!(resynced.take().iter().any(|event| event == "~a@11-11s"));
}

// === Metrics ===

#[derive(Clone, Default)]
struct Counted(Arc<Mutex<Vec<Measurement>>>);

impl MetricsProvider for Counted {
    fn informer(
        &self,
        informer: &InformerIdentity,
        _: Weak<dyn Gauges>,
    ) -> Box<dyn InformerMetrics> {
        assert_eq!(
            (&*informer.name, &*informer.resource),
            ("configmaps", "configmaps")
        );
        Box::new(self.clone())
    }
}

impl InformerMetrics for Counted {
    fn record(&self, measurement: Measurement) {
        self.0.lock().push(measurement);
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_stays_undecodable_is_counted_once_a_version() {
    let script = Script::new([
        no_streaming(),
        list("10", &[broken("a", "2")]),
        ending([
            wait(2),
            event("MODIFIED", &broken("a", "11")),
            error(410, "Expired"),
        ]),
        list("20", &[broken("a", "11")]),
    ])
    .otherwise(|_| watch([]));
    let counted = Arc::new(Counted::default());
    let running = run(builder(&script).metrics(Arc::clone(&counted) as _).build());
    seconds(10).await;
    let sightings = counted
        .0
        .lock()
        .iter()
        .filter(|found| matches!(found, Measurement::Quarantined))
        .count();
    assert_eq!(sightings, 2);
    assert_eq!(running.informer.health().quarantined_count, 1);
}

/// Counts what it is told, and panics.
#[derive(Clone, Default)]
struct Fragile(Arc<AtomicUsize>);

impl MetricsProvider for Fragile {
    fn informer(&self, _: &InformerIdentity, _: Weak<dyn Gauges>) -> Box<dyn InformerMetrics> {
        Box::new(self.clone())
    }
}

impl InformerMetrics for Fragile {
    fn record(&self, _: Measurement) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("no place for measurements");
    }
}

#[tokio::test(start_paused = true)]
async fn what_keeps_measurements_may_panic_and_the_informer_goes_on() {
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "1")]),
        watch([wait(1), added("b", "11")]),
    ]);
    let fragile = Fragile::default();
    let informer = builder(&script).metrics(Arc::new(fragile.clone())).build();
    let told = Told::default();
    let inline = HandlerOptions::new().inline();
    let handle = informer.add_handler(told.handler(), inline).unwrap();
    let running = run(informer);
    seconds(5).await;
    assert_eq!(told.take(), ["+a@1*", "+b@11"]);
    assert_eq!(running.told.take(), ["+a@1*", "+b@11"]);
    assert!(handle.is_synced() && running.handle.is_synced());
    assert_eq!(fragile.0.load(Ordering::Relaxed), 1, "told once");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn lists_watches_and_batches_are_measured() {
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "1"), broken("b", "2")]),
        ending([added("c", "11")]),
        Answer::Refuse,
    ])
    .otherwise(|_| watch([]));
    let counted = Arc::new(Counted::default());
    let running = run(builder(&script).metrics(Arc::clone(&counted) as _).build());
    seconds(10).await;
    running.stop().await;
    let measured = counted.0.lock();
    let count =
        |wanted: fn(&Measurement) -> bool| measured.iter().filter(|found| wanted(found)).count();
    assert_eq!(
        count(|found| matches!(
            found,
            Measurement::Listed {
                items: 1,
                streamed: false,
                ..
            }
        )),
        1
    );
    assert_eq!(count(|found| matches!(found, Measurement::Quarantined)), 1);
    assert_eq!(
        count(|found| matches!(
            found,
            Measurement::Watched {
                events: 1,
                short: false,
                ..
            }
        )),
        1
    );
    assert_eq!(count(|found| matches!(found, Measurement::WatchFailed)), 1);
    assert!(count(|found| matches!(found, Measurement::Processed { .. })) >= 2);
}

#[tokio::test(start_paused = true)]
async fn times_that_never_pass_are_never_and_no_error() {
    let never = Duration::MAX;
    let options = ReflectorOptions {
        streaming_idle: never,
        streaming_deadline: never,
        streaming_retry: never,
        watch_timeout: never,
        watch_idle: never,
        backoff: BackoffOptions {
            cap: never,
            ..BackoffOptions::default()
        },
        reconnect_spread: never,
        request_interval: never,
        limits: Limits {
            deadline: never,
            ..Limits::default()
        },
        ..ReflectorOptions::default()
    };
    let (script, say) = three();
    let informer = builder(&script).reflector(options).resync(never).build();
    let mutations = MutationCache::new(informer.lister()).ttl(never);
    let running = run(informer);
    running.handle.has_synced().await.unwrap();
    say(modified("a", "11"));
    seconds(100_000).await;
    assert_eq!(running.told.last().unwrap(), "~a@1-11");
    let held = running.informer.lister().list().swap_remove(0);
    let mut ahead = ConfigMap::clone(&held);
    ahead.metadata.resource_version = Some("12".to_owned());
    mutations.mutated(Arc::new(ahead));
    running.stop().await;
}
