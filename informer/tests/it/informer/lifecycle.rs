//! The start and the end of informers.

use super::*;

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
async fn a_spawned_informer_runs_until_it_is_stopped_or_dropped() {
    let spawned = || {
        let (script, _say) = three();
        let informer = builder(&script).build();
        let running = informer.spawn();
        (script, informer, running)
    };
    let (script, informer, running) = spawned();
    informer.wait_synced().await.unwrap();
    assert_eq!(contents(&informer), "a@1 b@2 c@3");
    let again = informer.spawn().stop().await;
    assert!(matches!(again, Err(RunError::StartedBefore { .. })));
    running.stop().await.unwrap();
    assert!(informer.is_stopped());
    millis(1).await;
    assert_eq!(script.open(), 0);

    let (script, informer, running) = spawned();
    informer.wait_synced().await.unwrap();
    drop(running);
    millis(1).await;
    assert!(informer.is_stopped() && script.open() == 0);

    // Before its first poll.
    let (_script, informer, running) = spawned();
    drop(running);
    let stopped = informer.wait_synced().await;
    assert!(matches!(stopped, Err(WaitError::Stopped { .. })));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_run_stops_everything_and_ends_all_waits() {
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
    assert!(running.handle.wait_synced().await.is_err());
    running.handle.remove().await;
    assert!(running.informer.is_stopped());
    millis(1).await;
    assert_eq!(script.open(), 0);
    // The handler's task held its handler. Now neither the informer nor the handle does.
    assert_eq!(Arc::strong_count(&held), 1);
    second.remove().await;
    drop(running.informer);
}

#[tokio::test(start_paused = true)]
async fn a_handler_can_be_removed_before_the_informer_runs() {
    let (script, _say) = three();
    let informer = builder(&script).build();
    let received = Received::default();
    let handle = informer
        .add_handler(received.handler(), HandlerOptions::new())
        .unwrap();
    handle.remove().await;
    let running = run(informer);
    running.handle.wait_synced().await.unwrap();
    assert!(received.take().is_empty());
}
