//! Other tasks run while much is read.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use kube_client::client::Body;
use reeve_informer::{ReflectorOptions, SharedInformer};
use tokio_util::sync::CancellationToken;

use crate::harness::clock;
use crate::script::*;

const OBJECTS: usize = 10_000;

/// A server in the same process, whose whole answer is ready at once.
fn at_once() -> Client {
    let objects: Vec<_> = (0..OBJECTS)
        .map(|number| object(&format!("o{number:05}"), &(number + 1).to_string()))
        .collect();
    let line = |bit: Bit| match bit {
        Bit::Line(line) => format!("{line}\n"),
        _ => unreachable!(),
    };
    let added = objects.iter().map(|object| line(event("ADDED", object)));
    let mut stream: String = added.chain([line(initial_end("10000"))]).collect();
    let modified: String = (0..OBJECTS)
        .map(|number| line(modified("o00000", &(10_001 + number).to_string())))
        .collect();
    // A streaming list continues as the watch.
    stream.push_str(&modified);
    let Answer::Whole { body: list, .. } = list("10000", &objects) else {
        unreachable!()
    };
    let (stream, modified, list) = (
        Bytes::from(stream),
        Bytes::from(modified),
        Bytes::from(list),
    );
    let service = tower::service_fn(move |request: Request<Body>| {
        let body = match Asked::new(&request).verb() {
            "stream" => stream.clone(),
            "list" => list.clone(),
            _ => modified.clone(),
        };
        async move { Ok::<_, Infallible>(Response::new(Full::new(body))) }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn other_tasks_have_their_turn_while_a_list_and_a_watch_that_are_there_at_once_are_read() {
    for streaming in [true, false] {
        let options = ReflectorOptions::new().streaming(streaming);
        let informer = SharedInformer::<ConfigMap>::builder(at_once())
            .clock(clock())
            .reflector(options)
            .build();
        let turns = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&turns);
        let other = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let stop = CancellationToken::new();
        let running = tokio::spawn({
            let (informer, stop) = (informer.clone(), stop.clone());
            async move { informer.run(stop).await }
        });
        informer.wait_synced().await.unwrap();
        let during_list = turns.swap(0, Ordering::Relaxed);
        // About 3 MB, in pieces of 64 KiB.
        assert!(
            during_list > 40,
            "{during_list} turns, streaming: {streaming}"
        );
        let newest = (10_000 + OBJECTS).to_string();
        for turn in 0.. {
            if informer.last_sync_resource_version().as_str() == newest {
                break;
            }
            assert!(turn < 100_000, "no time passes, so it has to be there");
            tokio::task::yield_now().await;
        }
        let during_watch = turns.load(Ordering::Relaxed);
        assert!(
            during_watch > 20,
            "{during_watch} turns, streaming: {streaming}"
        );
        other.abort();
        stop.cancel();
        running.await.unwrap().unwrap();
    }
}
