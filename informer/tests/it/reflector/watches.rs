//! Watches: their first version, their duration, and the reaction to their end.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_goes_on_from_the_last_version_without_a_list() {
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "5")]),
        ending([wait(30), added("b", "12"), wait(30)]),
        ending([wait(30), bookmark("20"), wait(30)]),
        watch([]),
    ]);
    let running = start(&script);
    seconds(130).await;
    assert_eq!(
        script.log(),
        [
            "stream",
            "list limit=500",
            "watch @10",
            "watch @12",
            "watch @20"
        ]
    );
    assert_eq!(running.store(), "a@5 b@12");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_event_decides_from_where_to_go_on() {
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "5")]),
        ending([
            added("b", "11"),
            modified("a", "12"),
            bookmark("14"),
            deleted("b", "15"),
            wait(2),
        ]),
        watch([]),
    ]);
    let running = start(&script);
    seconds(10).await;
    assert_eq!(script.log()[3], "watch @15");
    assert_eq!(running.store(), "a@12");
    assert_eq!(
        running.received.take(),
        ["+a@5*", "+b@11", "~a@5-12", "-b@15"]
    );
}

#[tokio::test(start_paused = true)]
async fn server_side_time_outs_are_between_five_and_ten_minutes_and_vary() {
    let script = Script::default().otherwise(|asked| match asked.verb() {
        "list" => list("10", &[]),
        "stream" => no_streaming(),
        _ => ending([wait(60)]),
    });
    let running = start(&script);
    seconds(3 * HOUR).await;
    let mut times: Vec<u64> = script
        .asked()
        .iter()
        .skip(2)
        .map(|asked| asked.get("timeoutSeconds").parse().unwrap())
        .collect();
    assert!(
        times.len() > 100 && times.iter().all(|time| (300..=600).contains(time)),
        "{times:?}"
    );
    times.dedup();
    assert!(times.len() > 50);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_time_out_of_watches_is_at_least_five_minutes_and_at_least_the_option() {
    for (said, shortest) in [(1, 300), (299, 300), (1800, 1800)] {
        let script = Script::default().otherwise(|asked| match asked.verb() {
            "list" => list("10", &[]),
            _ => ending([wait(60)]),
        });
        let options = pages_only().watch_timeout(Duration::from_secs(said));
        let running = run(builder(&script).reflector(options).build());
        seconds(HOUR).await;
        let asked = script.asked();
        let times: Vec<u64> = asked[1..]
            .iter()
            .map(|asked| asked.get("timeoutSeconds").parse().unwrap())
            .collect();
        assert!(times.len() > 30);
        let allowed = shortest..=2 * shortest;
        assert!(
            times.iter().all(|time| allowed.contains(time)),
            "{said}: {times:?}"
        );
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_410_as_http_status_leads_to_one_list() {
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "5")]),
        status(410, "Gone"),
        list("20", &[object("b", "15")]),
        watch([]),
    ]);
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
    assert_eq!(running.received.take(), ["+a@5*", "-a@5!", "+b@15"]);
}

#[tokio::test(start_paused = true)]
async fn a_410_in_the_stream_leads_to_one_list() {
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "5")]),
        ending([error(410, "Expired")]),
        list("20", &[object("b", "15")]),
        watch([]),
    ]);
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
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_never_causes_a_list() {
    let busy = || status(429, "TooManyRequests");
    let script = Script::new([
        no_streaming(),
        list("10", &[]),
        busy(),
        Answer::Refuse,
        status(503, "ServiceUnavailable"),
        ending([error(429, "TooManyRequests")]),
        watch([added("a", "11")]),
    ]);
    let running = start(&script);
    seconds(60).await;
    assert_eq!((script.count("list"), script.count("watch")), (1, 5));
    assert_eq!(running.store(), "a@11");
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured_when_it_is_longer() {
    let busy = Answer::Whole {
        code: 429,
        headers: vec![("Retry-After", "7".to_owned())],
        body: "Too many requests, please try again later.".to_owned(),
    };
    let script = Script::new([no_streaming(), list("10", &[]), busy, watch([])]);
    let running = start(&script);
    seconds(20).await;
    let asked = script.asked();
    let waited = (asked[3].at - asked[2].at).as_secs();
    assert!((7..14).contains(&waited), "{waited}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once_are_slowed_down_and_cause_no_list() {
    for bits in [vec![], vec![bookmark("50")]] {
        let script = Script::default().otherwise(move |asked| match asked.verb() {
            "list" => list("10", &[]),
            "stream" => no_streaming(),
            _ => ending(bits.clone()),
        });
        let count = requests_in_an_hour(&script).await;
        assert!(count <= 120, "{count}");
        assert_eq!(script.count("list"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once_after_an_event_are_slowed_down_too() {
    let script = Script::default().otherwise(move |asked| match asked.verb() {
        "list" => list("10", &[]),
        "stream" => no_streaming(),
        _ => {
            let next = asked.get("resourceVersion").parse::<u64>().unwrap() + 1;
            ending([added("a", &next.to_string())])
        }
    });
    let count = requests_in_an_hour(&script).await;
    assert!(count <= 120, "{count}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_in_the_middle_of_a_line_costs_nothing() {
    let script = Script::new([
        no_streaming(),
        list("10", &[]),
        ending([
            wait(2),
            added("a", "11"),
            Bit::Part(r#"{"type":"ADDED","obj"#.into()),
            Bit::Reset,
        ]),
        watch([added("b", "12")]),
    ]);
    let running = start(&script);
    seconds(10).await;
    assert_eq!(script.log()[2..], ["watch @10", "watch @11"]);
    assert_eq!(running.store(), "a@11 b@12");
}

#[tokio::test(start_paused = true)]
async fn an_error_in_the_stream_that_keeps_coming_leads_to_a_list() {
    let broken = || ending([wait(5), error(500, "InternalError")]);
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "5")]),
        broken(),
        broken(),
        broken(),
        list("20", &[object("a", "15")]),
        watch([]),
    ]);
    let running = start(&script);
    seconds(60).await;
    assert_eq!(
        script.log()[2..],
        [
            "watch @10",
            "watch @10",
            "watch @10",
            "list limit=500",
            "watch @20"
        ]
    );
    assert_eq!(running.store(), "a@15");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_the_server_cannot_read_from_its_store_leads_to_a_list() {
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "5"), object("corrupt", "6")]),
        // It was corrupt, and deleted by force.
        ending([error(500, "StoreReadError")]),
        list("20", &[object("a", "5")]),
        watch([]),
    ]);
    let running = start(&script);
    seconds(20).await;
    assert_eq!(
        script.log()[2..],
        ["watch @10", "list limit=500", "watch @20"]
    );
    assert_eq!(running.store(), "a@5");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_version_begins_with_all_objects_in_any_order() {
    for version in ["", "0"] {
        let script = Script::new([
            no_streaming(),
            list(version, &[]),
            ending([
                added("a", "50"),
                added("b", "30"),
                added("d", "20"),
                modified("b", "51"),
                // From here on the order counts.
                added("c", "40"),
                wait(2),
            ]),
            watch([]),
        ]);
        let running = start(&script);
        seconds(60).await;
        assert_eq!(running.store(), "a@50 b@51 d@20", "{version:?}");
        assert_eq!(running.informer.health().stale, 1);
        let log = script.log();
        let expected = ["stream", "list limit=500", "watch", "watch @51"];
        assert_eq!(log, expected);
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_between_two_watches_without_a_version_is_found_by_a_list() {
    for version in ["", "0"] {
        for ends in [true, false] {
            let begin = [added("a", "50"), added("b", "30")];
            let first = if ends {
                ending(begin.into_iter().chain([wait(60)]))
            } else {
                watch(begin)
            };
            let script = Script::new([
                no_streaming(),
                list(version, &[object("a", "50"), object("b", "30")]),
                first,
                list(version, &[object("a", "50")]),
                watch([added("a", "50"), bookmark("60")]),
            ]);
            let running = start(&script);
            seconds(150).await;
            let list = "list limit=500";
            assert_eq!(script.log(), ["stream", list, "watch", list, "watch"]);
            assert_eq!(running.store(), "a@50", "{version:?}, it ends: {ends}");
            assert_eq!(running.informer.health().failure, None);
            running.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn objects_that_a_watch_without_a_version_begins_with_may_come_after_a_pause() {
    let script = Script::new([
        no_streaming(),
        list("", &[]),
        watch([added("a", "50"), wait(20), added("b", "30"), bookmark("60")]),
    ]);
    let running = start(&script);
    seconds(60).await;
    assert_eq!(running.store(), "a@50 b@30");
    assert_eq!(running.informer.last_sync_resource_version().as_str(), "60");
    assert_eq!(running.informer.health().stale, 0);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_replaced_before_it_is_dropped() {
    let script = Script::new([
        no_streaming(),
        list("10", &[]),
        watch([wait(30), added("a", "11")]),
        watch([added("b", "12")]),
    ]);
    let running = start(&script);
    seconds(119).await;
    assert_eq!(script.log().len(), 3);
    seconds(9).await;
    assert_eq!(script.log()[3], "watch @11");
    assert_eq!(script.open(), 1);
    assert_eq!(running.store(), "a@11 b@12");
    assert_eq!(running.informer.health().failure, None);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_that_speaks_while_its_successor_is_opened_is_kept() {
    let script = Script::new([
        no_streaming(),
        list("10", &[]),
        watch([wait(100), added("a", "11")]),
        Answer::Hang,
    ]);
    let running = start(&script);
    seconds(101).await;
    assert_eq!(running.store(), "a@11");
    assert_eq!((script.log().len(), script.open()), (4, 1));
}

#[tokio::test(start_paused = true)]
async fn watches_that_stay_silent_cost_at_most_an_attempt_in_90_seconds() {
    let script = Script::default().otherwise(|asked| match asked.verb() {
        "list" => list("10", &[]),
        "stream" => no_streaming(),
        _ => watch([]),
    });
    assert!(requests_in_an_hour(&script).await <= 50);
    let (one, all): (Vec<_>, Vec<_>) = script
        .asked()
        .into_iter()
        .filter(|asked| asked.verb() == "list")
        .partition(|asked| asked.get("limit") == "1");
    assert_eq!(
        (one.len(), all.len()),
        (4, 1),
        "now and then it asks where the server stands"
    );
}

#[tokio::test(start_paused = true)]
async fn a_short_time_of_silence_costs_at_most_120_requests_an_hour_and_delays_no_later_one() {
    const DAY: u64 = 24 * HOUR;
    let began = Instant::now();
    let script = Script::default().otherwise(move |asked| match asked.verb() {
        "list" => list("10", &[]),
        "stream" => no_streaming(),
        _ => match began.elapsed().as_secs() {
            ..DAY => watch([]),
            DAY..86_460 => Answer::Refuse,
            _ => watch([added("b", "11")]),
        },
    });
    let options = ReflectorOptions::new().watch_idle(Duration::from_secs(20));
    let running = run(builder(&script).reflector(options).build());
    seconds(DAY - HOUR).await;
    let before = script.asked().len();
    seconds(HOUR).await;
    let count = script.asked().len() - before;
    assert!((60..=120).contains(&count), "{count}");
    seconds(300).await;
    assert_eq!(running.store(), "b@11");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_without_a_version_is_ignored() {
    for versionless in ["null", "\"\""] {
        let line = format!(
            r#"{{"type":"BOOKMARK","object":{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"resourceVersion":{versionless}}}}}}}"#
        );
        let script = Script::new([
            no_streaming(),
            list("10", &[object("a", "5")]),
            ending([added("b", "11"), Bit::Line(line)]),
            watch([]),
        ]);
        let running = start(&script);
        seconds(60).await;
        assert_eq!(running.store(), "a@5 b@11");
        assert_eq!(script.asked().last().unwrap().get("resourceVersion"), "11");
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_final_state_of_a_deleted_object_is_the_one_the_server_sent() {
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "5")]),
        watch([deleted("a", "17")]),
    ]);
    let running = start(&script);
    millis(10).await;
    assert_eq!(running.received.take(), ["+a@5*", "-a@17"]);
    assert_eq!(running.informer.last_sync_resource_version().as_str(), "17");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_bears_the_objects_own_version_counts() {
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "5")]),
        watch([bookmark("20"), deleted("a", "5")]),
    ]);
    let running = start(&script);
    millis(10).await;
    assert_eq!(running.store(), "");
    assert_eq!(running.informer.last_sync_resource_version().as_str(), "20");
}

#[tokio::test(start_paused = true)]
async fn events_that_were_seen_before_are_dropped_and_make_no_phantom() {
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "5")]),
        watch([
            modified("a", "11"),
            modified("a", "11"),
            deleted("a", "12"),
            modified("a", "11"),
            added("a", "5"),
            deleted("a", "12"),
        ]),
    ]);
    let running = start(&script);
    millis(10).await;
    assert_eq!(running.store(), "");
    assert_eq!(running.received.take(), ["+a@5*", "~a@5-11", "-a@12"]);
    assert_eq!(running.informer.health().stale, 3);
}

#[tokio::test(start_paused = true)]
async fn versions_past_64_bits_and_opaque_ones_are_followed() {
    let script = Script::new([
        no_streaming(),
        list("18446744073709551616", &[]),
        ending([added("a", "18446744073709551617"), wait(5)]),
        watch([]),
    ]);
    let running = start(&script);
    seconds(13).await;
    assert_eq!(script.log()[3], "watch @18446744073709551617");
    running.stop().await;

    let script = Script::new([
        no_streaming(),
        list("x1", &[]),
        ending([added("a", "aa"), modified("a", "ab"), wait(5)]),
        watch([]),
    ]);
    let running = start(&script);
    seconds(13).await;
    assert_eq!(script.log()[3], "watch @ab");
    assert_eq!(running.store(), "a@ab");
}

#[tokio::test(start_paused = true)]
async fn objects_that_share_an_opaque_version_are_not_taken_for_old() {
    let script = Script::new([
        no_streaming(),
        list("same", &[object("a", "same")]),
        watch([added("b", "same"), added("c", "same"), deleted("a", "same")]),
    ]);
    let running = start(&script);
    millis(10).await;
    assert_eq!(running.store(), "b@same c@same");
}
