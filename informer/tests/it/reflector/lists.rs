//! Lists in pages and at once: their version and size, and the reaction to failures.

use super::*;

#[tokio::test(start_paused = true)]
async fn pages_are_joined_and_bear_the_version_of_the_first() {
    let script = Script::new([
        page("10", "t1", &[object("a", "1")]),
        page("11", "t2", &[object("b", "2")]),
        list("12", &[object("c", "3")]),
        watch([]),
    ]);
    let running = run(builder(&script).reflector(pages_only()).build());
    running.informer.wait_synced().await.unwrap();
    millis(1).await;
    assert_eq!(
        script.log(),
        [
            "list limit=500",
            "list limit=500 continue=t1",
            "list limit=500 continue=t2",
            "watch @10"
        ]
    );
    assert_eq!(running.store(), "a@1 b@2 c@3");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_expires_in_the_middle_leads_to_one_full_list() {
    let script = Script::new([
        page("10", "t1", &[object("a", "1")]),
        status(410, "Expired"),
        list("20", &[object("a", "11"), object("b", "12")]),
        watch([]),
    ]);
    let running = run(builder(&script).reflector(pages_only()).build());
    running.informer.wait_synced().await.unwrap();
    millis(1).await;
    assert_eq!(
        script.log(),
        [
            "list limit=500",
            "list limit=500 continue=t1",
            "list",
            "watch @20"
        ]
    );
    assert_eq!(running.store(), "a@11 b@12");
}

/// Five objects, in more bytes than [`narrow`] allows.
fn large(version: &str) -> Answer {
    let objects: Vec<_> = ["a", "b", "c", "d", "e"]
        .map(|name| object(name, "11"))
        .into();
    list(version, &objects)
}

/// Limits that allow about two objects in an answer.
fn narrow(options: ReflectorOptions) -> ReflectorOptions {
    options.limits(Limits::new().body(800))
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_too_large_or_too_slow_at_once_is_read_in_pages_for_an_hour() {
    for (unwieldy, takes) in [(large("20"), 0), (Answer::Hang, 60)] {
        let expired = || ending([wait(5), error(410, "Expired")]);
        let hour = (0..60).flat_map(|_| [wait(60), bookmark("30")]);
        let script = Script::new([
            list("10", &[object("a", "1")]),
            expired(),
            unwieldy,
            page("20", "t", &[object("a", "11")]),
            list("20", &[object("b", "12")]),
            expired(),
            list("30", &[object("a", "11")]),
            ending(hour.chain([error(410, "Expired")])),
            list("40", &[object("a", "31")]),
            watch([]),
        ]);
        let running = run(builder(&script).reflector(narrow(any())).build());
        seconds(2 * HOUR).await;
        assert_eq!(
            script.log()[..10],
            [
                "list @0 limit=500",
                "watch @10",
                "list @10",
                "list @10 limit=500 NotOlderThan",
                "list limit=500 continue=t",
                "watch @20",
                "list @20 limit=500 NotOlderThan",
                "watch @30",
                "list @30",
                "watch @40"
            ]
        );
        let asked = script.asked();
        assert_eq!((asked[3].at - asked[2].at).as_secs(), takes);
        assert_eq!(running.store(), "a@31");
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cached_list_that_is_too_large_is_read_in_pages_of_the_newest() {
    // A server with a cache ignores the limit at "0".
    let script = Script::new([
        large("10"),
        page("10", "t", &[object("a", "1")]),
        list("10", &[object("b", "2")]),
        ending([error(410, "Expired")]),
        list("20", &[object("a", "11")]),
        watch([]),
    ]);
    let running = run(builder(&script).reflector(narrow(any())).build());
    seconds(20).await;
    assert_eq!(
        script.log(),
        [
            "list @0 limit=500",
            "list limit=500",
            "list limit=500 continue=t",
            "watch @10",
            "list @10 limit=500 NotOlderThan",
            "watch @20"
        ]
    );
    assert_eq!(running.store(), "a@11");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pages_that_expire_are_read_again_where_everything_at_once_is_too_large() {
    let script = Script::new([
        page("10", "t1", &[object("a", "1")]),
        status(410, "Expired"),
        large("20"),
        page("20", "t2", &[object("a", "11")]),
        status(410, "Expired"),
        page("30", "t3", &[object("a", "11")]),
        list("30", &[object("b", "12")]),
        watch([]),
    ]);
    let running = run(builder(&script).reflector(narrow(pages_only())).build());
    running.informer.wait_synced().await.unwrap();
    millis(1).await;
    assert_eq!(
        script.log(),
        [
            "list limit=500",
            "list limit=500 continue=t1",
            "list",
            "list limit=500",
            "list limit=500 continue=t2",
            "list limit=500",
            "list limit=500 continue=t3",
            "watch @30"
        ]
    );
    let asked = script.asked();
    assert!(
        asked[5].at - asked[4].at >= Duration::from_millis(800),
        "after a back-off"
    );
    assert_eq!(running.store(), "a@11 b@12");
}

#[tokio::test(start_paused = true)]
async fn a_page_size_that_is_given_holds_for_every_list() {
    let script = Script::new([
        list("10", &[object("a", "1")]),
        ending([error(410, "Expired")]),
        page("20", "t", &[object("a", "11")]),
        list("20", &[]),
        watch([]),
    ]);
    let options = any().page_size(NonZeroU32::new(7));
    let running = run(builder(&script).reflector(options).build());
    seconds(10).await;
    assert_eq!(
        script.log(),
        [
            "list @0 limit=7",
            "watch @10",
            "list @10 limit=7 NotOlderThan",
            "list limit=7 continue=t",
            "watch @20"
        ]
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_list_again_in_pages_has_the_changes_since() {
    // As servers do: with a limit and without a match, a version is exactly that version.
    let script = Script::default().otherwise(|asked| {
        let exactly =
            asked.get("resourceVersionMatch").is_empty() && !asked.get("limit").is_empty();
        match (asked.verb(), asked.get("resourceVersion")) {
            ("list", "0") => list("10", &[object("a", "1")]),
            ("list", "10") if exactly => list("10", &[object("a", "1")]),
            ("list", _) => list("20", &[object("a", "11")]),
            ("watch", "10") => ending([Bit::Line("no JSON".to_owned())]),
            _ => watch([]),
        }
    });
    let options = any().page_size(NonZeroU32::new(7));
    let running = run(builder(&script).reflector(options).build());
    seconds(60).await;
    assert_eq!(
        script.log(),
        [
            "list @0 limit=7",
            "watch @10",
            "watch @10",
            "watch @10",
            "list @10 limit=7 NotOlderThan",
            "watch @20"
        ]
    );
    assert_eq!(running.store(), "a@11");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn with_any_version_a_streaming_list_is_first_of_the_newest_and_then_not_older() {
    let script = Script::new([
        ending([
            added("a", "1"),
            initial_end("10"),
            wait(5),
            error(410, "Expired"),
        ]),
        watch([added("a", "1"), initial_end("20")]),
    ]);
    let options = any().streaming(true);
    let running = run(builder(&script).reflector(options).build());
    seconds(10).await;
    assert_eq!(script.log(), ["stream", "stream @10"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn with_any_version_the_first_list_is_at_zero_and_the_next_at_the_last_version() {
    let script = Script::new([
        list("10", &[object("a", "1")]),
        ending([error(410, "Expired")]),
        list("20", &[object("a", "11")]),
        watch([]),
    ]);
    let running = run(builder(&script).reflector(any()).build());
    seconds(10).await;
    assert_eq!(
        script.log(),
        ["list @0 limit=500", "watch @10", "list @10", "watch @20"]
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_or_too_large_list_version_is_replaced_by_the_newest_at_once() {
    let cause = r#"{"kind":"Status","code":504,"reason":"Timeout","message":"m","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}]}}"#;
    let message = status_object(504, "Timeout", "Too large resource version: 10, current: 5");
    for refusal in [
        status(410, "Expired"),
        status(410, "Gone"),
        json(504, cause),
        json(504, message),
    ] {
        let script = Script::new([
            list("10", &[object("a", "1")]),
            ending([error(410, "Expired")]),
            refusal,
            list("20", &[object("a", "11")]),
            watch([]),
        ]);
        let running = run(builder(&script).reflector(any()).build());
        seconds(10).await;
        assert_eq!(
            script.log(),
            [
                "list @0 limit=500",
                "watch @10",
                "list @10",
                "list limit=500",
                "watch @20"
            ]
        );
        assert_eq!(script.asked()[3].at, script.asked()[2].at);
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn pages_stay_when_a_list_at_zero_came_in_pages() {
    let script = Script::new([
        page("10", "t", &[object("a", "1")]),
        list("10", &[object("b", "2")]),
        ending([error(410, "Expired")]),
        list("20", &[]),
        watch([]),
    ]);
    let running = run(builder(&script).reflector(any()).build());
    seconds(10).await;
    assert_eq!(
        script.log()[3],
        "list @10 limit=500 NotOlderThan",
        "{:?}",
        script.log()
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_for_an_hour_is_requested_at_most_120_times() {
    for answer in [
        status(500, "InternalError"),
        Answer::Refuse,
        json(200, "{\"metadata\":"),
        json(502, "<html>"),
    ] {
        let script = Script::default().otherwise(move |_| answer.clone());
        let count = requests_in_an_hour(&script).await;
        assert!((60..=120).contains(&count), "{count}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_returns_the_same_page_again_fails_the_list() {
    let script = Script::default().at_most(10_000).otherwise(|asked| {
        match (asked.verb(), asked.get("continue")) {
            ("stream", _) => no_streaming(),
            // Two tokens that lead to each other, or one that leads to itself.
            (_, "b") => page("10", "a", &[object("b", "6")]),
            _ => page("10", "b", &[object("a", "5")]),
        }
    });
    let running = start(&script);
    seconds(HOUR).await;
    let asked = script.asked();
    let first = asked.iter().filter(|it| it.get("continue").is_empty());
    assert!((60..=120).contains(&first.count()));
    assert!(asked.len() <= 4 * 120, "{}", asked.len());
    let failure = running.informer.health().failure.unwrap();
    assert!(
        failure.message.contains("the same page twice"),
        "{failure:?}"
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_returns_empty_pages_without_end_fails_the_list() {
    let script = Script::default().at_most(20_000).otherwise(|asked| {
        let number: u64 = asked.get("continue").parse().unwrap_or(0);
        match asked.verb() {
            "stream" => no_streaming(),
            _ => page("10", &(number + 1).to_string(), &[]),
        }
    });
    let running = start(&script);
    seconds(60).await;
    let asked = script.asked();
    let first = asked.iter().filter(|it| it.get("continue").is_empty());
    assert!((2..=15).contains(&first.count()));
    let failure = running.informer.health().failure.unwrap();
    assert!(failure.message.contains("empty pages"), "{failure:?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_leaves_the_version_of_a_list_out_is_followed() {
    let body = format!(
        r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{}},"items":[{}]}}"#,
        object("a", "5")
    );
    let script = Script::new([
        no_streaming(),
        json(200, body),
        watch([added("a", "5"), added("b", "6")]),
    ]);
    let running = start(&script);
    seconds(60).await;
    assert_eq!(running.store(), "a@5 b@6");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_store_survives_lists_and_watches_that_fail() {
    let began = Instant::now();
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "5"), object("b", "6")]),
        ending([modified("a", "11"), error(410, "Expired")]),
    ])
    .otherwise(move |asked| match asked.verb() {
        _ if began.elapsed().as_secs() < HOUR => status(500, "InternalError"),
        "list" => list("30", &[object("a", "11"), object("c", "21")]),
        _ => watch([]),
    });
    let running = start(&script);
    seconds(HOUR).await;
    assert_eq!(running.store(), "a@11 b@6");
    assert!(running.informer.has_synced());
    assert_eq!(running.informer.health().activity, Activity::BackingOff);
    running.received.take();
    seconds(60).await;
    assert_eq!(running.store(), "a@11 c@21");
    assert_eq!(running.received.take(), ["-b@6!", "+c@21"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn it_backs_off_by_its_options() {
    let mut answers: Vec<_> = (0..5).map(|_| status(500, "")).collect();
    answers.extend([list("10", &[]), watch([])]);
    let script = Script::new(answers);
    let options = pages_only().backoff(
        BackoffOptions::new()
            .initial(Duration::from_millis(10))
            .cap(Duration::from_millis(100))
            .jitter(0.0),
    );
    let running = run(builder(&script).reflector(options).build());
    running.informer.wait_synced().await.unwrap();
    let asked = script.asked();
    let waits: Vec<_> = asked[..6]
        .windows(2)
        .map(|pair| (pair[1].at - pair[0].at).as_millis())
        .collect();
    // tokio's timer wakes within a millisecond.
    for (wait, said) in waits.iter().zip([10, 20, 40, 80, 100]) {
        assert!((said..=said + 1).contains(wait), "{waits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_without_an_answer_ends_after_a_minute() {
    let script = Script::new([Answer::Hang, list("10", &[object("a", "1")]), watch([])]);
    let running = run(builder(&script).reflector(pages_only()).build());
    running.informer.wait_synced().await.unwrap();
    let waited = (script.asked()[1].at - script.asked()[0].at).as_secs();
    assert!((60..62).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn a_failing_list_is_reported_in_health_until_it_works() {
    let script =
        Script::new([status(403, "Forbidden"), status(403, "Forbidden")]).otherwise(|asked| {
            match asked.verb() {
                "list" => list("10", &[]),
                _ => watch([]),
            }
        });
    let running = run(builder(&script).reflector(pages_only()).build());
    millis(10).await;
    let health = running.informer.health();
    assert_eq!(health.activity, Activity::BackingOff);
    let failure = health.failure.clone().unwrap();
    assert_eq!((failure.class, failure.times), ("forbidden", 1));
    assert!(
        health.trouble().unwrap().contains("403 Forbidden"),
        "{:?}",
        health.trouble()
    );
    seconds(20).await;
    let health = running.informer.health();
    assert!(
        health.is_ready() && health.failure.is_none() && health.trouble().is_none(),
        "{health:?}"
    );
}
