//! The store: indexes, waits for versions, transforms.

use super::*;

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
                // It was readable once, too.
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
        assert_eq!(health.quarantined[0].error, "the transform panicked");
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_relist_neither_transforms_nor_stores_unchanged_objects_again() {
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
        assert_eq!(running.received.take(), ["+a@1*", "+b@2*", "~b@2-12r"]);
        assert_eq!(runs.load(Ordering::SeqCst), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_use_its_informer() {
    let (script, say) = three();
    let running = start(&script);
    let informer = running.informer.clone();
    let late = Received::default();
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
                        assert!(!handle.has_synced());
                    }
                }
            },
            HandlerOptions::new(),
        )
        .unwrap();
    handle.wait_synced().await.unwrap();
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
    let resynced = Received::default();
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
        running.received.take(),
        [
            "+a@1*", "+b@2*", "+c@3*", "~a@1-11", "-b@12", "+d@13", "-c@3!", "+c@25", "-d@13!"
        ]
    );
    assert_eq!(running.informer.last_sync_resource_version().as_str(), "31");
    assert!(handle.has_synced());
    assert!(resynced.take().iter().any(|event| event == "~a@11-11s"));
}
