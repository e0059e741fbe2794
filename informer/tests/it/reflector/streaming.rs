//! Lists as streams, and the fall-back to pages.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_streaming_list_fills_the_store_and_goes_on_as_the_watch() {
    let script = Script::new([watch([
        added("a", "5"),
        added("b", "3"),
        bookmark("5"),
        initial_end("10"),
        modified("a", "11"),
        bookmark("12"),
    ])]);
    let running = start(&script);
    running.informer.wait_synced().await.unwrap();
    millis(10).await;
    assert_eq!(running.store(), "a@11 b@3");
    assert_eq!(running.informer.last_sync_resource_version().as_str(), "12");
    assert_eq!(running.received.take(), ["+a@5*", "+b@3*", "~a@5-11"]);
    assert_eq!(script.log(), ["stream"]);
    let asked = &script.asked()[0];
    assert_eq!(asked.get("resourceVersionMatch"), "NotOlderThan");
    assert_eq!(asked.get("allowWatchBookmarks"), "true");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_synced_before_the_annotated_bookmark() {
    let script = Script::new([watch([added("a", "5"), bookmark("6")])]);
    let running = start(&script);
    seconds(9).await;
    assert!(!running.informer.has_synced());
    assert_eq!(running.store(), "");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn updates_and_deletions_before_the_end_belong_to_the_state() {
    let script = Script::new([watch([
        added("a", "1"),
        added("b", "2"),
        modified("a", "3"),
        deleted("b", "4"),
        initial_end("4"),
    ])]);
    let running = start(&script);
    running.handle.wait_synced().await.unwrap();
    assert_eq!(running.store(), "a@3");
    assert_eq!(running.received.take(), ["+a@3*"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_read_in_pages_for_an_hour() {
    for refusal in [no_streaming(), status(400, "BadRequest")] {
        let script = Script::new([
            refusal,
            list("10", &[object("a", "5")]),
            status(410, "Expired"),
        ])
        .otherwise(|asked| match asked.verb() {
            "list" => list("20", &[object("a", "15")]),
            "watch" => ending([wait(60), error(410, "Expired")]),
            _ => no_streaming(),
        });
        let running = start(&script);
        seconds(10).await;
        assert_eq!(
            script.log(),
            [
                "stream",
                "list limit=500",
                "watch @10",
                "list limit=500",
                "watch @20"
            ]
        );
        seconds(HOUR + 600).await;
        assert_eq!(script.count("stream"), 2, "{:?}", script.log());
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_end_bookmark_is_waited_for_ten_seconds_and_then_pages_are_read() {
    let script = Script::new([
        watch([added("a", "5")]),
        list("10", &[object("a", "5")]),
        watch([]),
    ]);
    let running = start(&script);
    running.informer.wait_synced().await.unwrap();
    let asked = script.asked();
    assert_eq!(script.log()[..2], ["stream", "list limit=500"]);
    assert_eq!((asked[1].at - asked[0].at).as_secs(), 10);
    millis(1).await;
    assert_eq!(script.open(), 1, "the stream without an end was dropped");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_offered_streaming_lists_is_tried_again_after_a_silence_and_read_in_pages_after_two()
 {
    let whole = || {
        ending([
            added("a", "5"),
            initial_end("10"),
            wait(60),
            error(410, "Expired"),
        ])
    };
    let silent = || watch([added("a", "5")]);
    for (case, answers, expected) in [
        (
            "silent",
            vec![silent(), whole()],
            ["stream @10", "stream @10"],
        ),
        (
            "no answer",
            vec![Answer::Hang, whole()],
            ["stream @10", "stream @10"],
        ),
    ] {
        let script = Script::new([whole()].into_iter().chain(answers));
        let running = start(&script);
        seconds(61 + 60 + 15).await;
        assert_eq!(script.log()[1..], expected, "{case}");
        assert!(running.informer.health().is_ready(), "{case}");
        running.stop().await;
    }
    let twice = [whole(), silent(), silent(), list("20", &[object("a", "5")])];
    let script = Script::new(twice).otherwise(|asked| match asked.verb() {
        "stream" => watch([added("a", "5"), initial_end("30")]),
        _ => ending([wait(60), error(410, "Expired")]),
    });
    let running = start(&script);
    seconds(200).await;
    let log = script.log();
    let expected = [
        "stream",
        "stream @10",
        "stream @10",
        "list limit=500",
        "watch @20",
        "stream @20",
    ];
    assert_eq!(
        log, expected,
        "pages are read this time, and not for an hour"
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_pages_because_of_silence_a_busy_server_gets_the_requested_delay_and_no_pages() {
    let silent = || watch([added("a", "5")]);
    let script = Script::new([
        ending([
            added("a", "5"),
            initial_end("10"),
            wait(60),
            error(410, "Expired"),
        ]),
        silent(),
        silent(),
        list("20", &[object("a", "5")]),
        ending([wait(60), error(410, "Expired")]),
        Answer::Whole {
            code: 429,
            headers: vec![("Retry-After", "30".to_owned())],
            body: String::new(),
        },
        // In another period of silence, the first one does not lead to pages.
        silent(),
        watch([added("a", "5"), initial_end("30")]),
    ]);
    let running = start(&script);
    seconds(300).await;
    let expected = [
        "stream",
        "stream @10",
        "stream @10",
        "list limit=500",
        "watch @20",
        "stream @20",
        "stream @20",
        "stream @20",
    ];
    assert_eq!(script.log(), expected);
    let asked = script.asked();
    let waited = asked[6].at - asked[5].at;
    assert!(waited >= Duration::from_secs(30), "{waited:?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_that_never_ends_the_initial_events_is_given_up_too() {
    let chatter = (0..200).flat_map(|number| [modified("a", &format!("{}", 10 + number)), wait(2)]);
    let script = Script::new([
        ending(chatter),
        list("900", &[object("a", "800")]),
        watch([]),
    ]);
    let running = start(&script);
    running.informer.wait_synced().await.unwrap();
    let asked = script.asked();
    assert_eq!((asked[1].at - asked[0].at).as_secs(), 300);
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_breaks_off_is_read_in_pages_this_time() {
    for end in [None, Some(Bit::Reset)] {
        let bits = [added("a", "5")].into_iter().chain(end);
        let script = Script::new([ending(bits)]).otherwise(|asked| match asked.verb() {
            "list" => list("10", &[object("b", "6")]),
            "stream" => watch([added("b", "6"), initial_end("10")]),
            _ => watch([]),
        });
        let running = start(&script);
        running.informer.wait_synced().await.unwrap();
        assert_eq!(
            running.store(),
            "b@6",
            "what came of the broken stream is thrown away"
        );
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_ends_after_it_was_complete_is_followed_by_a_watch() {
    let script = Script::new([
        ending([added("a", "5"), initial_end("10"), wait(60)]),
        watch([added("b", "11")]),
    ]);
    let running = start(&script);
    seconds(70).await;
    assert_eq!(script.log(), ["stream", "watch @10"]);
    assert_eq!(running.store(), "a@5 b@11");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_gets_another_streaming_list_after_a_while() {
    let script = Script::new([
        status(429, "TooManyRequests"),
        status(429, "TooManyRequests"),
        watch([added("a", "5"), initial_end("10")]),
    ]);
    let running = start(&script);
    running.informer.wait_synced().await.unwrap();
    assert_eq!(script.log(), ["stream", "stream", "stream"]);
    assert!(script.asked()[2].at - script.asked()[0].at >= Duration::from_millis(2400));
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_ends_streaming_lists_or_a_role_without_watches_does_not_keep_an_informer_empty()
 {
    for code in [403, 502, 504] {
        let script = Script::default().otherwise(move |asked| match asked.verb() {
            "stream" => status(code, ""),
            "list" => list("10", &[object("a", "5")]),
            _ if code == 403 => status(code, ""),
            _ => watch([]),
        });
        let running = start(&script);
        seconds(10).await;
        assert!(running.informer.has_synced(), "{code}");
        assert_eq!(running.store(), "a@5", "{code}");
        // The failure of the watches stays in sight.
        assert_eq!(running.informer.health().is_ready(), code != 403);
        running.stop().await;
    }
}
