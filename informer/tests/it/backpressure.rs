//! A store that does not keep up slows the server down and takes no memory.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use reeve_informer::{Event, HandlerOptions, Policy};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::harness::{builder, seconds};
use crate::script::*;

#[tokio::test(start_paused = true)]
async fn a_full_queue_stops_reading_the_watch_and_loses_nothing() {
    const SENT: usize = 10_000;
    for delta_fifo in [false, true] {
        let (sender, receiver) = mpsc::unbounded_channel::<Bit>();
        let receiver = Arc::new(Mutex::new(receiver));
        let script = Script::new([
            no_streaming(),
            list("10", &[object("a", "1")]),
            Answer::Live(Arc::clone(&receiver)),
        ]);
        let builder = builder(&script);
        let informer = if delta_fifo {
            builder.delta_fifo()
        } else {
            builder
        }
        .build();
        let open = Arc::new(Semaphore::new(1));
        let received = Arc::new(Mutex::new(Vec::new()));
        let handler = {
            let (open, received) = (Arc::clone(&open), Arc::clone(&received));
            move |event: Event<ConfigMap>| {
                let (open, received) = (Arc::clone(&open), Arc::clone(&received));
                async move {
                    open.acquire().await.unwrap().forget();
                    received.lock().push(event.key().name);
                }
            }
        };
        let options = HandlerOptions::new().policy(Policy::Block { bound: 1 });
        let handle = informer.add_async_handler(handler, options).unwrap();
        let stop = CancellationToken::new();
        let running = tokio::spawn({
            let (informer, stop) = (informer.clone(), stop.clone());
            async move { informer.run(stop).await }
        });
        handle.wait_synced().await.unwrap();
        for number in 0..SENT {
            let version = (11 + number).to_string();
            sender.send(added(&format!("o{number}"), &version)).unwrap();
        }
        seconds(60).await;
        let unread = receiver.lock().len();
        // 2,000 in the queue, 1,000 as one batch at the handler, a few in the connection.
        assert!(
            (SENT - 3100..SENT - 2000).contains(&unread),
            "{unread} left with the server"
        );
        assert_eq!(script.count("watch"), 1, "that it waits is not silence");
        open.add_permits(SENT);
        seconds(1).await;
        let mut expected = vec!["a".to_owned()];
        expected.extend((0..SENT).map(|number| format!("o{number}")));
        assert!(
            received
                .lock()
                .iter()
                .map(|name| &**name)
                .eq(expected.iter().map(String::as_str)),
            "in order, and all of them"
        );
        assert_eq!(informer.lister().len(), SENT + 1);
        stop.cancel();
        running.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_holds_lists_back_and_at_most_one_waits() {
    for delta_fifo in [false, true] {
        let version = Arc::new(Mutex::new(10));
        let next = Arc::clone(&version);
        // Each watch ends with 410, and each list has another state.
        let script = Script::default().otherwise(move |asked| match asked.verb() {
            "stream" => no_streaming(),
            "list" => {
                let mut version = next.lock();
                *version += 1;
                let version = version.to_string();
                let objects: Vec<_> = (0..3000)
                    .map(|number| object(&format!("o{number}"), &version))
                    .collect();
                list(&version, &objects)
            }
            _ => ending([wait(10), error(410, "Expired")]),
        });
        let builder = builder(&script);
        let informer = if delta_fifo {
            builder.delta_fifo()
        } else {
            builder
        }
        .build();
        let open = Arc::new(Semaphore::new(0));
        let gate = Arc::clone(&open);
        let handler = move |_: Event<ConfigMap>| {
            let gate = Arc::clone(&gate);
            async move { gate.acquire().await.unwrap().forget() }
        };
        let options = HandlerOptions::new().policy(Policy::Block { bound: 1 });
        let _handle = informer.add_async_handler(handler, options).unwrap();
        let stop = CancellationToken::new();
        let running = tokio::spawn({
            let (informer, stop) = (informer.clone(), stop.clone());
            async move { informer.run(stop).await }
        });
        seconds(3600).await;
        // One is being handed out, and at most one waits.
        let lists = script.count("list");
        let expected = if delta_fifo { 1..=2 } else { 2..=2 };
        assert!(
            expected.contains(&lists),
            "{lists}, delta FIFO: {delta_fifo}"
        );
        open.add_permits(1_000_000);
        seconds(60).await;
        assert!(script.count("list") > 3, "it goes on");
        let newest = format!("{}", *version.lock());
        assert_eq!(informer.last_sync_resource_version().as_str(), newest);
        stop.cancel();
        running.await.unwrap().unwrap();
    }
}
