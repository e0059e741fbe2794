//! Asynchronous handlers, and events as a stream.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use reeve_informer::{Event, HandlerOptions, Policy};
use tokio::time::{Instant, sleep, timeout};

use crate::harness::{millis, seconds, short, start};
use crate::informer::three;
use crate::script::*;

const SOON: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_slow_async_handler_receives_events_in_order_and_delays_no_other() {
    let (script, say) = three();
    let running = start(&script);
    let received = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&received);
    let slow = move |event: Event<ConfigMap>| {
        let note = Arc::clone(&note);
        async move {
            sleep(Duration::from_secs(1)).await;
            note.lock().push(short(&event));
        }
    };
    let options = HandlerOptions::new().name("slow");
    let handle = running.informer.add_async_handler(slow, options).unwrap();
    let started = Instant::now();
    running.handle.wait_synced().await.unwrap();
    assert!(started.elapsed() < SOON, "the other handler does not wait");
    say(added("d", "11"));
    say(modified("a", "12"));
    handle.wait_synced().await.unwrap();
    assert_eq!(
        started.elapsed().as_secs(),
        3,
        "once it was shown all three"
    );
    seconds(3).await;
    let received = std::mem::take(&mut *received.lock());
    assert_eq!(received, ["+a@1*", "+b@2*", "+c@3*", "+d@11", "~a@1-12"]);
    assert_eq!((handle.delivered(), handle.backlog()), (5, 0));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_waited_for_lets_the_informer_go_on_as_soon_as_there_is_room() {
    let (script, say) = three();
    let running = start(&script);
    let slow = |_: Event<ConfigMap>| sleep(Duration::from_secs(60));
    let options = HandlerOptions::new().policy(Policy::Block { bound: 3 });
    let handle = running.informer.add_async_handler(slow, options).unwrap();
    running.informer.wait_synced().await.unwrap();
    for version in 11..15 {
        say(modified("a", &version.to_string()));
        millis(1).await;
    }
    assert_eq!(handle.backlog(), 3);
    assert_eq!(running.store(), "a@11 b@2 c@3", "it waits for the handler");
    seconds(60).await;
    assert_eq!(handle.delivered(), 1);
    // The rest arrived meanwhile as one batch, by which the queue may exceed its bound.
    assert_eq!(handle.backlog(), 5);
    assert_eq!(running.store(), "a@14 b@2 c@3");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_while_it_waits_is_isolated() {
    let (script, say) = three();
    let running = start(&script);
    let bad = |event: Event<ConfigMap>| async move {
        sleep(SOON).await;
        assert_ne!(event.key().name.as_ref(), "b", "on purpose");
    };
    let options = HandlerOptions::new();
    let handle = running.informer.add_async_handler(bad, options).unwrap();
    handle.wait_synced().await.unwrap();
    assert_eq!((handle.panics(), handle.delivered()), (1, 3));
    say(modified("b", "11"));
    millis(10).await;
    assert_eq!((handle.panics(), handle.delivered()), (2, 4));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_never_returns_is_dropped_when_it_is_removed_or_the_informer_stops() {
    let (script, _say) = three();
    let running = start(&script);
    let stuck = |_: Event<ConfigMap>| pending();
    let add = || {
        let options = HandlerOptions::new();
        running.informer.add_async_handler(stuck, options).unwrap()
    };
    let (removed, left) = (add(), add());
    seconds(1).await;
    timeout(SOON, removed.remove())
        .await
        .expect("it ends at once");
    assert!(!left.has_synced());
    running.stop().await;
    assert!(left.wait_synced().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_stream_has_the_present_objects_then_the_changes_and_ends_with_the_informer() {
    let (script, say) = three();
    let running = start(&script);
    let mut stream = running.informer.stream(HandlerOptions::new()).unwrap();
    let first: Vec<_> = stream.by_ref().take(3).collect().await;
    let first: Vec<_> = first.iter().map(short).collect();
    assert_eq!(first, ["+a@1*", "+b@2*", "+c@3*"]);
    stream.handle().wait_synced().await.unwrap();
    say(deleted("b", "11"));
    assert_eq!(short(&stream.next().await.unwrap()), "-b@11");
    running.stop().await;
    assert!(stream.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_not_polled_delays_nothing_and_merges_waiting_events() {
    let (script, say) = three();
    let running = start(&script);
    let options = HandlerOptions::new().policy(Policy::Coalesce { bound: 8 });
    let mut stream = running.informer.stream(options).unwrap();
    for version in 11..1011 {
        say(modified("a", &version.to_string()));
    }
    seconds(1).await;
    assert_eq!(running.store(), "a@1010 b@2 c@3");
    let backlog = stream.handle().backlog();
    assert!(backlog <= 10, "{backlog} wait");
    let mut last = String::new();
    while let Ok(Some(event)) = timeout(SOON, stream.next()).await {
        last = short(&event);
    }
    assert!(last.ends_with("-1010"), "{last}");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_stream_is_a_removed_handler() {
    let (script, say) = three();
    let running = start(&script);
    let stream = running.informer.stream(HandlerOptions::new()).unwrap();
    seconds(1).await;
    assert_eq!(running.informer.health().handlers.len(), 2);
    drop(stream);
    say(added("d", "11"));
    millis(10).await;
    let again = running.informer.stream(HandlerOptions::new()).unwrap();
    assert_eq!(running.informer.health().handlers.len(), 2);
    drop(again);
}

// === Drains ===

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_drained_receives_its_waiting_events_and_nothing_else() {
    let (script, say) = three();
    let running = start(&script);
    let received = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&received);
    let slow = move |event: Event<ConfigMap>| {
        let note = Arc::clone(&note);
        async move {
            sleep(Duration::from_secs(1)).await;
            note.lock().push(short(&event));
        }
    };
    let options = HandlerOptions::new().policy(Policy::Block { bound: 1 });
    let handle = Arc::new(running.informer.add_async_handler(slow, options).unwrap());
    running.informer.wait_synced().await.unwrap();
    let started = Instant::now();
    let draining = tokio::spawn({
        let handle = Arc::clone(&handle);
        async move { handle.drain().await }
    });
    tokio::task::yield_now().await;
    say(added("d", "11"));
    millis(1).await;
    assert_eq!(
        running.received.last().unwrap(),
        "+d@11",
        "no other handler waits for it"
    );
    draining.await.unwrap();
    assert_eq!(started.elapsed().as_secs(), 3);
    assert_eq!(*received.lock(), ["+a@1*", "+b@2*", "+c@3*"]);
    handle.drain().await;
    say(added("e", "12"));
    millis(1).await;
    assert_eq!(running.informer.health().handlers.len(), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_when_the_informer_stops_or_has_not_begun() {
    let (script, _say) = three();
    let running = start(&script);
    let never = |_: Event<ConfigMap>| pending::<()>();
    let handle = running
        .informer
        .add_async_handler(never, HandlerOptions::new())
        .unwrap();
    running.informer.wait_synced().await.unwrap();
    millis(1).await;
    let draining = tokio::spawn(async move { handle.drain().await });
    seconds(60).await;
    assert!(!draining.is_finished(), "its events are still delivered");
    running.stop().await;
    timeout(SOON, draining).await.unwrap().unwrap();

    let informer = crate::harness::builder(&script).build();
    let handle = informer
        .add_handler(|_: Event<ConfigMap>| {}, HandlerOptions::new())
        .unwrap();
    timeout(SOON, handle.drain()).await.unwrap();
}
