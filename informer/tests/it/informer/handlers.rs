//! Handlers: their events, their periods, and how they are added and removed.

use super::*;

#[tokio::test(start_paused = true)]
async fn handlers_receive_the_present_objects_and_then_the_changes() {
    let (script, say) = three();
    let running = start(&script);
    running.handle.wait_synced().await.unwrap();
    assert_eq!(running.received.take(), ["+a@1*", "+b@2*", "+c@3*"]);
    say(added("d", "11"));
    say(modified("a", "12"));
    say(deleted("b", "13"));
    millis(1).await;
    assert_eq!(running.received.take(), ["+d@11", "~a@1-12", "-b@13"]);
    assert_eq!(running.store(), "a@12 c@3 d@11");
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_first_receives_the_present_objects() {
    let (script, say) = three();
    let running = start(&script);
    running.informer.wait_synced().await.unwrap();
    say(modified("a", "12"));
    millis(1).await;
    let received = Received::default();
    let handle = running
        .informer
        .add_handler(received.handler(), HandlerOptions::new())
        .unwrap();
    assert!(!handle.has_synced(), "not before everything was delivered");
    handle.wait_synced().await.unwrap();
    assert_eq!(received.take(), ["+a@12*", "+b@2*", "+c@3*"]);
    say(deleted("c", "13"));
    millis(1).await;
    assert_eq!(received.take(), ["-c@13"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_created_again_is_deleted_and_then_added() {
    let (script, say) = three();
    let running = start(&script);
    running.handle.wait_synced().await.unwrap();
    running.received.take();
    // The deletion was missed; the watch has only the new object.
    say(event("ADDED", &object_of("a", "12", "other")));
    millis(1).await;
    assert_eq!(running.received.take(), ["-a@1!", "+a@12"]);
    // A late event of the former object is dropped.
    say(event("DELETED", &object_of("a", "13", "uid-a")));
    millis(1).await;
    assert_eq!(running.received.take(), Vec::<String>::new());
    assert_eq!(running.store(), "a@12 b@2 c@3");
}

#[tokio::test(start_paused = true)]
async fn a_relist_delivers_deletions_first_then_the_rest_in_order_and_keeps_unchanged_objects() {
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
    running.handle.wait_synced().await.unwrap();
    running.received.take();
    let key = ObjectKey::namespaced("n", "a");
    let before = running.informer.lister().get(&key).unwrap();
    seconds(10).await;
    assert_eq!(
        running.received.take(),
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
    handle.wait_synced().await.unwrap();
    say(added("d", "11"));
    millis(1).await;
    assert_eq!((calls.load(Ordering::SeqCst), handle.panics()), (4, 4));
    assert_eq!(
        running.received.take().len(),
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
async fn a_removed_handler_receives_nothing_more_and_others_stay() {
    let (script, say) = three();
    let running = start(&script);
    let received = Received::default();
    let handle = running
        .informer
        .add_handler(received.handler(), HandlerOptions::new())
        .unwrap();
    let twice = running
        .informer
        .add_handler(received.handler(), HandlerOptions::new())
        .unwrap();
    twice.wait_synced().await.unwrap();
    handle.wait_synced().await.unwrap();
    assert_eq!(received.take().len(), 6, "each registration is its own");
    handle.remove().await;
    handle.remove().await;
    say(added("d", "11"));
    millis(1).await;
    assert_eq!(received.take(), ["+d@11"]);
    assert_eq!(running.informer.health().handlers.len(), 2);
}

#[test]
fn removing_a_handler_waits_for_its_callback_in_flight() {
    let (script, _say) = three();
    on_threads(&script, async |informer| {
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
        assert_eq!(handle.delivered(), 1, "queued events are dropped");
    });
}

#[test]
fn a_handler_that_panics_while_it_is_removed_is_removed() {
    let (script, _say) = three();
    on_threads(&script, async |informer| {
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
    });
}

#[test]
fn handlers_and_indexes_that_come_while_it_starts_lose_nothing() {
    // Real threads, so that they race; no time passes.
    crate::harness::within_a_minute(4, async {
        for _ in 0..50 {
            let (script, _say) = three();
            let informer = SharedInformer::<ConfigMap>::builder(script.client()).build();
            let stop = CancellationToken::new();
            let adding: Vec<_> = (0..4)
                .map(|number| {
                    let informer = informer.clone();
                    tokio::spawn(async move {
                        let received = Received::default();
                        let handle = informer
                            .add_handler(received.handler(), HandlerOptions::new())
                            .unwrap();
                        let name = format!("index {number}");
                        informer
                            .add_indexer(&*name, |map| Ok(vec![map.name().into()]))
                            .unwrap();
                        handle.wait_synced().await.unwrap();
                        let mut received = received.take();
                        received.sort();
                        assert_eq!(received, ["+a@1*", "+b@2*", "+c@3*"]);
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
        let received: Vec<_> = [0, 2, 3]
            .into_iter()
            .map(|period| {
                let received = Received::default();
                let mut options = HandlerOptions::new();
                if period > 0 {
                    options = options.resync(Duration::from_secs(period));
                }
                let handle = informer.add_handler(received.handler(), options).unwrap();
                (received, handle)
            })
            .collect();
        let running = run(informer);
        seconds(12).await;
        millis(1).await;
        let resyncs: Vec<_> = received
            .iter()
            .map(|(received, _)| {
                let received = received.take();
                received.iter().filter(|event| *event == "~a@1-1s").count()
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
    assert_eq!(running.received.take().len(), 11);
}

#[tokio::test(start_paused = true)]
async fn filtered_handlers_see_objects_come_and_go() {
    let (script, say) = three();
    let running = start(&script);
    let received = Received::default();
    let odd = |map: &ConfigMap| {
        !map.resource_version()
            .parse::<u64>()
            .unwrap()
            .is_multiple_of(2)
    };
    let handler = Filtered::new(odd, received.handler());
    let handle = running
        .informer
        .add_handler(handler, HandlerOptions::new())
        .unwrap();
    let waiting = Received::default();
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
    handle.wait_synced().await.unwrap();
    later.wait_synced().await.unwrap();
    stream.handle().wait_synced().await.unwrap();
    for received in [&received, &waiting] {
        assert_eq!(received.take(), ["+a@1*", "+c@3*"]);
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
    for received in [&received, &waiting] {
        assert_eq!(received.take(), ["~a@1-11", "-a@11", "+b@13", "-c@15"]);
    }
    let mut streamed = Vec::new();
    for _ in 0..6 {
        streamed.push(short(&stream.next().await.unwrap()));
    }
    let expected = ["+a@1*", "+c@3*", "~a@1-11", "-a@11", "+b@13", "-c@15"];
    assert_eq!(streamed, expected);
}
