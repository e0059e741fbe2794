//! Handlers that do not keep up.

use super::*;

#[test]
fn a_blocking_handler_holds_the_informer_and_a_coalescing_one_does_not() {
    for (policy, held) in [
        (Policy::Block { bound: 5 }, true),
        (Policy::Coalesce { bound: 5 }, false),
    ] {
        let (script, say) = three();
        on_threads(&script, async |informer| {
            let (leave, left) = std::sync::mpsc::channel::<()>();
            let left = Mutex::new(left);
            let received = Received::default();
            let tell = received.handler();
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
                if received
                    .last()
                    .is_some_and(|event| event.ends_with("-5010"))
                {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let events = received.take();
            assert_eq!(events.len() == 5_003, held, "{policy:?}: {}", events.len());
            assert!(events.last().unwrap().ends_with("-5010"));
        });
    }
}

#[test]
fn a_handler_that_drops_events_receives_the_difference_once_it_has_caught_up() {
    let (script, say) = three();
    on_threads(&script, async |informer| {
        let (entered, mut was_entered) = mpsc::unbounded_channel();
        let (leave, left) = std::sync::mpsc::channel::<()>();
        let left = Mutex::new(left);
        let received = Received::default();
        let tell = received.handler();
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
        assert!(!handle.has_synced(), "not everything was delivered");
        drop(leave);
        handle.wait_synced().await.unwrap();
        for _ in 0..1000 {
            if handle.backlog() == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        handle.remove().await;
        // The events lead to the present state, object by object.
        let mut state = std::collections::BTreeMap::new();
        let events = received.take();
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
    });
}

#[tokio::test(start_paused = true)]
async fn a_filtered_handler_that_is_behind_gets_a_deletion_for_objects_that_it_saw_and_for_no_others()
 {
    let (script, say) = three();
    let running = start(&script);
    let gate = Arc::new(tokio::sync::Semaphore::new(2));
    let received = Received::default();
    let (entrance, note) = (Arc::clone(&gate), Arc::new(received.handler()));
    let slow = move |event: Event<ConfigMap>| {
        let (entrance, note) = (Arc::clone(&entrance), Arc::clone(&note));
        async move {
            entrance.acquire().await.unwrap().forget();
            note(event);
        }
    };
    let odd = |map: &ConfigMap| map.resource_version().ends_with(['1', '3', '5']);
    let options = HandlerOptions::new().policy(Policy::Coalesce { bound: 1 });
    let handle = running
        .informer
        .add_async_handler(Filtered::new(odd, slow), options)
        .unwrap();
    handle.wait_synced().await.unwrap();
    assert_eq!(received.take(), ["+a@1*", "+c@3*"]);
    for bit in [
        // The handler waits in this one; the others are queued.
        modified("c", "11"),
        modified("a", "12"),
        // It was delivered and has left the filter since.
        deleted("a", "14"),
        modified("b", "15"),
        // It was never delivered, though it entered the filter.
        deleted("b", "21"),
    ] {
        say(bit);
        millis(1).await;
    }
    gate.add_permits(100);
    millis(1).await;
    assert_eq!(received.take(), ["~c@3-11", "-a@1"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_added_during_a_wait_for_another_receives_the_present_objects() {
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
    let received = Received::default();
    let late = running
        .informer
        .add_handler(received.handler(), HandlerOptions::new())
        .unwrap();
    late.wait_synced().await.unwrap();
    assert_eq!(received.take().len(), 3);
    hanging.remove().await;
    seconds(1).await;
    assert_eq!(received.last().unwrap(), "~a@13-14");
    running.stop().await;
}

/// Calls its informer when it is dropped.
struct Asking(Maps);

impl Drop for Asking {
    fn drop(&mut self) {
        assert_eq!(self.0.health().activity, Activity::Stopped);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_call_its_informer_while_it_is_dropped() {
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
    assert!(handle.wait_synced().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn handlers_that_come_and_go_during_a_storm_disturb_no_others() {
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
            let received = Received::default();
            let handle = running
                .informer
                .add_handler(received.handler(), HandlerOptions::new())
                .unwrap();
            handles.push((received, handle));
            tokio::task::yield_now().await;
        }
        if number % 60 == 0 {
            let (_, handle) = handles.remove(0);
            handle.remove().await;
        }
    }
    millis(10).await;
    for (received, handle) in &handles {
        assert!(handle.has_synced());
        let events = received.take();
        assert!(
            events[0].starts_with("+a@") && events[0].ends_with('*'),
            "{:?}",
            &events[..1]
        );
        // Each event continues from the state of the one before.
        let mut version = events[0][3..].trim_end_matches('*').to_owned();
        for event in events.iter().filter(|event| event.starts_with('~')) {
            let (from, to) = event[3..].split_once('-').unwrap();
            assert_eq!(from, version);
            version = to.to_owned();
        }
        assert_eq!(version, "2010");
    }
}
