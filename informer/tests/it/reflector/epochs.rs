//! Servers that lag behind, and servers whose history began again.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_lagging_server_after_a_410_is_refused_until_it_has_caught_up() {
    let script = Script::new([
        no_streaming(),
        list("200", &[object("a", "100")]),
        ending([deleted("a", "201"), error(410, "Expired")]),
        list("150", &[object("a", "100")]),
        list("199", &[object("a", "100")]),
        list("210", &[object("b", "205")]),
        watch([]),
    ]);
    let running = start(&script);
    seconds(60).await;
    assert_eq!(running.received.take(), ["+a@100*", "-a@201", "+b@205"]);
    assert_eq!(running.informer.health().stale, 2);
    assert_eq!(running.informer.health().epochs, 0);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restored_server_is_accepted_after_three_older_lists() {
    let script = Script::new([
        no_streaming(),
        list("200", &[object("a", "100"), object("b", "180")]),
        ending([error(410, "Expired")]),
        list("50", &[object("a", "40")]),
        list("51", &[object("a", "40")]),
        list("52", &[object("a", "40")]),
        watch([modified("a", "53")]),
    ]);
    let running = start(&script);
    seconds(60).await;
    assert_eq!(running.store(), "a@53");
    assert_eq!(
        running.received.take(),
        ["+a@100*", "+b@180*", "-b@180!", "~a@100-40r", "~a@40-53"]
    );
    assert_eq!(running.informer.health().epochs, 1);
    assert_eq!(running.informer.last_sync_resource_version().as_str(), "53");
    assert_eq!(script.log().last().unwrap(), "watch @52");
}

#[tokio::test(start_paused = true)]
async fn the_versions_of_a_namespace_are_of_the_new_history_after_a_restore() {
    for delta_fifo in [false, true] {
        let script = Script::new([
            no_streaming(),
            list("200", &[object("a", "100")]),
            ending([error(410, "Expired")]),
            list("50", &[object("a", "40")]),
            list("51", &[object("a", "40")]),
            list("52", &[object("a", "40")]),
            watch([modified("a", "53")]),
        ]);
        let mut builder = builder(&script).namespaces(NamespaceSet::new(["n"]));
        if delta_fifo {
            builder = builder.delta_fifo();
        }
        let running = run(builder.build());
        seconds(60).await;
        assert_eq!(running.store(), "a@53");
        let store = running.informer.lister().snapshot();
        assert_eq!(store.resource_version_of(Some("n")).as_str(), "53");
        assert_eq!(store.resource_version().as_str(), "53", "{delta_fifo}");
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_kept_through_a_restore_is_followed_while_a_delta_fifo_is_still_full() {
    let script = Script::new([
        no_streaming(),
        list("200", &[object("a", "100"), object("b", "180")]),
        ending([error(410, "Expired")]),
        list("50", &[object("b", "41"), broken("a", "40")]),
        list("51", &[object("b", "41"), broken("a", "40")]),
        list("52", &[object("b", "41"), broken("a", "40")]),
        watch([modified("a", "53")]),
    ]);
    let informer = builder(&script).delta_fifo().build();
    // The store waits for it, so events are queued behind the list.
    let options = HandlerOptions::new().policy(Policy::Block { bound: 1 });
    let slow = |_| tokio::time::sleep(Duration::from_secs(5));
    let _handle = informer.add_async_handler(slow, options).unwrap();
    let running = run(informer);
    seconds(120).await;
    assert_eq!(running.store(), "a@53 b@41");
    assert_eq!(running.informer.last_sync_resource_version().as_str(), "53");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_from_a_lagging_server_is_refused_too() {
    let script = Script::new([
        watch([added("a", "100"), initial_end("200"), error(410, "Expired")]),
        watch([added("a", "100"), initial_end("150")]),
        watch([added("a", "100"), initial_end("150")]),
        list("150", &[object("a", "100")]),
        list("220", &[object("a", "100")]),
        watch([]),
    ]);
    let running = start(&script);
    seconds(60).await;
    assert_eq!(
        script.log()[..4],
        ["stream", "stream @200", "stream", "list limit=500"]
    );
    assert_eq!(
        running.informer.last_sync_resource_version().as_str(),
        "220"
    );
    assert_eq!(running.received.take(), ["+a@100*"]);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_below_the_known_version_lead_to_a_list() {
    let script = Script::new([
        no_streaming(),
        list("200", &[]),
        watch([
            bookmark("20"),
            wait(60),
            bookmark("21"),
            wait(60),
            bookmark("22"),
        ]),
        list("30", &[object("a", "29")]),
        list("30", &[object("a", "29")]),
        list("30", &[object("a", "29")]),
        watch([]),
    ]);
    let running = start(&script);
    seconds(300).await;
    assert_eq!(running.store(), "a@29");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_epoch_is_found_by_its_old_events_where_no_bookmarks_are_sent() {
    let events =
        |from: u32| (from..400).flat_map(|version| [wait(30), modified("a", &version.to_string())]);
    let script =
        Script::new([no_streaming(), list("200", &[object("a", "100")])]).otherwise(move |asked| {
            match (asked.verb(), asked.get("resourceVersion")) {
                ("list", _) => list("60", &[object("a", "55")]),
                (_, "200") => watch(events(20)),
                _ => watch(events(61)),
            }
        });
    let running = start(&script);
    seconds(9 * 30 + 1).await;
    assert_eq!((script.count("list"), running.store()), (1, "a@100".into()));
    assert_eq!(running.informer.health().stale, 9);
    seconds(150).await;
    assert_eq!(running.informer.health().epochs, 1);
    assert!(*running.store() > *"a@61", "{}", running.store());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn old_events_of_a_server_that_is_not_behind_cost_a_question_in_five_minutes() {
    let repeated = (0..600).flat_map(|_| [wait(1), modified("a", "100")]);
    let script = Script::new([
        no_streaming(),
        list("200", &[object("a", "100")]),
        watch(repeated.chain([modified("a", "201")])),
    ])
    .otherwise(|asked| match asked.get("limit") {
        "1" => list("300", &[]),
        _ => Answer::Hang,
    });
    let running = start(&script);
    seconds(601).await;
    assert_eq!(
        script.log()[2..],
        ["watch @200", "list limit=1", "list limit=1"]
    );
    assert_eq!(running.store(), "a@201", "the watch went on");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_version_the_server_does_not_know_yet_is_tried_three_times_and_then_listed() {
    let message = status_object(
        504,
        "Timeout",
        "Too large resource version: 200, current: 30",
    );
    let script = Script::new([
        no_streaming(),
        list("200", &[]),
        json(504, message.clone()),
        json(504, message.clone()),
        json(504, message),
        list("201", &[]),
        watch([]),
    ]);
    let running = start(&script);
    seconds(60).await;
    assert_eq!((script.count("list"), script.count("watch")), (2, 4));
    running.stop().await;
}
