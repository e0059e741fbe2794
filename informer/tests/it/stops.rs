//! A stop at any moment leaks nothing.

use std::time::Duration;

use reeve_informer::{HandlerOptions, ReflectorOptions, SharedInformer};
use tokio_util::sync::CancellationToken;

use crate::harness::clock;
use crate::script::*;
use crate::turns::{Counted, DECODED, FREED, state, watch_until_expired};

const OBJECTS: usize = 2000;

/// Stops an informer in the turn `stopped` of a list, the first one or another. Returns whether that was before all of
/// the list was delivered.
async fn stop_in_turn(stopped: usize, first: bool, aborted: bool) -> bool {
    let (watch, expire) = watch_until_expired();
    let mut answers = vec![list("9000", &state(1, false, 0..OBJECTS)), watch];
    if !first {
        answers.push(list("20000", &state(10_000, true, 50..OBJECTS + 50)));
    }
    let script = Script::new(answers);
    let informer = SharedInformer::<Counted>::builder(script.client())
        .clock(clock())
        .reflector(ReflectorOptions::new().streaming(false))
        .build();
    let handler = informer.add_handler(drop, HandlerOptions::new()).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    if !first {
        handler.wait_synced().await.unwrap();
        expire();
    }
    let before = handler.delivered();
    while script.count("list") < if first { 1 } else { 2 } {
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    for _ in 0..stopped {
        tokio::task::yield_now().await;
    }
    let early = handler.delivered() - before < OBJECTS as u64;
    if aborted {
        running.abort();
    } else {
        stop.cancel();
    }
    drop(running.await);
    drop((handler, informer));
    early
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_stops_in_any_turn_of_a_list_leaves_no_object() {
    for first in [true, false] {
        let mut stopped = 0;
        while stop_in_turn(stopped, first, stopped % 2 == 1).await {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let (decoded, freed) = (DECODED.get(), FREED.get());
            assert_eq!(decoded, freed, "stopped in turn {stopped}");
            assert_eq!(
                tokio::runtime::Handle::current()
                    .metrics()
                    .num_alive_tasks(),
                0
            );
            stopped += 1;
        }
        assert!(stopped > 10, "{stopped} turns are few");
        assert!(DECODED.get() > OBJECTS);
    }
}
