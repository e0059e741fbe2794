//! What the reflector asks, and what comes of the answers. Named cases of client-go's reflector tests, and
//! the servers that other clients were seen to fail on.

use std::num::NonZeroU32;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::DynamicObject;
use reeve_informer::{
    Activity, BackoffOptions, Compact, Endpoint, FirstList, HandlerOptions, ObjectKey, Policy,
    ReflectorOptions, SharedInformer, Stored,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::harness::{builder, clock, millis, run, seconds, start};
use crate::script::*;

const HOUR: u64 = 3600;

/// Requests that `verb` made in the hour after start, against a server that always answers the same.
async fn requests_in_an_hour(script: &Script) -> usize {
    let running = start(script);
    seconds(HOUR).await;
    let count = script.asked().len();
    running.stop().await;
    count
}

fn any() -> ReflectorOptions {
    ReflectorOptions {
        first_list: FirstList::Any,
        streaming: false,
        ..ReflectorOptions::default()
    }
}

fn pages_only() -> ReflectorOptions {
    ReflectorOptions {
        streaming: false,
        ..ReflectorOptions::default()
    }
}

// === Streaming lists ===

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
    assert_eq!(running.told.take(), ["+a@5*", "+b@3*", "~a@5-11"]);
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
    running.handle.has_synced().await.unwrap();
    assert_eq!(running.store(), "a@3");
    assert_eq!(running.told.take(), ["+a@3*"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_read_in_pages_and_not_asked_again_for_an_hour() {
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
async fn a_busy_server_is_asked_again_for_a_streaming_list_after_a_while() {
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

// === Lists ===

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

/// With room for answers of two objects or so.
fn narrow(options: ReflectorOptions) -> ReflectorOptions {
    let mut narrow = options;
    narrow.limits.body = 800;
    narrow
}

#[tokio::test(start_paused = true)]
async fn what_is_too_large_or_too_slow_at_once_is_read_in_pages_for_an_hour() {
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
                "list @10 limit=500",
                "list limit=500 continue=t",
                "watch @20",
                "list @20 limit=500",
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
    let options = ReflectorOptions {
        page_size: NonZeroU32::new(7),
        ..any()
    };
    let running = run(builder(&script).reflector(options).build());
    seconds(10).await;
    assert_eq!(
        script.log(),
        [
            "list @0 limit=7",
            "watch @10",
            "list @10 limit=7",
            "list limit=7 continue=t",
            "watch @20"
        ]
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn with_any_version_a_streaming_list_is_asked_for_at_the_newest_first_and_then_not_older() {
    let script = Script::new([
        ending([
            added("a", "1"),
            initial_end("10"),
            wait(5),
            error(410, "Expired"),
        ]),
        watch([added("a", "1"), initial_end("20")]),
    ]);
    let options = ReflectorOptions {
        streaming: true,
        ..any()
    };
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
    assert_eq!(script.log()[3], "list @10 limit=500", "{:?}", script.log());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_for_an_hour_is_asked_for_at_most_120_times() {
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
    running.told.take();
    seconds(60).await;
    assert_eq!(running.store(), "a@11 c@21");
    assert_eq!(running.told.take(), ["-b@6!", "+c@21"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn it_backs_off_as_the_options_say() {
    let mut answers: Vec<_> = (0..5).map(|_| status(500, "")).collect();
    answers.extend([list("10", &[]), watch([])]);
    let script = Script::new(answers);
    let options = ReflectorOptions {
        backoff: BackoffOptions {
            initial: Duration::from_millis(10),
            cap: Duration::from_millis(100),
            jitter: 0.0,
            ..BackoffOptions::default()
        },
        ..pages_only()
    };
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
async fn a_failing_list_is_told_in_health_and_forgotten_when_it_works() {
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

// === Watches ===

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
    assert_eq!(running.told.take(), ["+a@5*", "+b@11", "~a@5-12", "-b@15"]);
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
async fn a_time_out_of_watches_is_at_least_five_minutes_and_as_long_as_is_said() {
    for (said, shortest) in [(1, 300), (299, 300), (1800, 1800)] {
        let script = Script::default().otherwise(|asked| match asked.verb() {
            "list" => list("10", &[]),
            _ => ending([wait(60)]),
        });
        let options = ReflectorOptions {
            watch_timeout: Duration::from_secs(said),
            ..pages_only()
        };
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
    assert_eq!(running.told.take(), ["+a@5*", "-a@5!", "+b@15"]);
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
async fn what_the_server_cannot_read_of_its_store_is_listed_at_once() {
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
async fn the_final_state_of_a_deleted_object_is_the_one_the_server_sent() {
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "5")]),
        watch([deleted("a", "17")]),
    ]);
    let running = start(&script);
    millis(10).await;
    assert_eq!(running.told.take(), ["+a@5*", "-a@17"]);
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
    assert_eq!(running.told.take(), ["+a@5*", "~a@5-11", "-a@12"]);
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

// === Time does not run back ===

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
    assert_eq!(running.told.take(), ["+a@100*", "-a@201", "+b@205"]);
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
        running.told.take(),
        ["+a@100*", "+b@180*", "-b@180!", "~a@100-40r", "~a@40-53"]
    );
    assert_eq!(running.informer.health().epochs, 1);
    assert_eq!(running.informer.last_sync_resource_version().as_str(), "53");
    assert_eq!(script.log().last().unwrap(), "watch @52");
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
    // The store waits for it, so what the watch says is queued behind the list.
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
    assert_eq!(running.told.take(), ["+a@100*"]);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_below_what_is_known_lead_to_a_list() {
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

// === Objects that cannot be read ===

#[tokio::test(start_paused = true)]
async fn an_undecodable_object_in_a_list_is_quarantined_and_the_rest_syncs() {
    let script = Script::new([
        no_streaming(),
        list(
            "10",
            &[object("a", "5"), broken("bad", "6"), object("c", "7")],
        ),
        watch([wait(10), modified("bad", "11")]),
    ]);
    let running = start(&script);
    running.handle.has_synced().await.unwrap();
    assert_eq!(running.store(), "a@5 c@7");
    let health = running.informer.health();
    assert_eq!(health.quarantined_count, 1);
    assert_eq!(health.quarantined[0].key, ObjectKey::namespaced("n", "bad"));
    assert_eq!(health.quarantined[0].resource_version.as_deref(), Some("6"));
    assert_eq!(
        health.quarantined[0].outline,
        "{apiVersion: string, data: string, kind: string, metadata: {name: string, namespace: string, resourceVersion: string, uid: string}}"
    );
    assert!(
        !health.quarantined[0].error.contains("secret"),
        "{:?}",
        health.quarantined
    );
    assert!(
        health
            .trouble()
            .unwrap()
            .contains("1 object cannot be read")
    );
    seconds(11).await;
    assert_eq!(running.store(), "a@5 bad@11 c@7");
    assert_eq!(running.informer.health().quarantined_count, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_known_of_an_object_stays_when_its_new_state_cannot_be_read() {
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "5"), object("b", "6")]),
        ending([
            event("MODIFIED", &broken("a", "11")),
            modified("b", "12"),
            wait(5),
            error(410, "Expired"),
        ]),
        list("20", &[broken("a", "11"), object("b", "12")]),
        watch([wait(12), event("DELETED", &broken("a", "21"))]),
    ]);
    let running = start(&script);
    seconds(15).await;
    assert_eq!(
        running.store(),
        "a@5 b@12",
        "neither the watch nor the list removes it"
    );
    assert_eq!(running.informer.health().quarantined_count, 1);
    seconds(12).await;
    assert_eq!(running.store(), "b@12");
    assert_eq!(running.informer.health().quarantined_count, 0);
    assert_eq!(running.told.take(), ["+a@5*", "+b@6*", "~b@6-12", "-a@5!"]);
    assert_eq!(
        script.log()[2..],
        ["watch @10", "list limit=500", "watch @20"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_object_in_a_streaming_list_is_quarantined() {
    let script = Script::new([watch([
        added("a", "5"),
        event("ADDED", &broken("b", "6")),
        event("ADDED", &broken("c", "6")),
        modified("c", "7"),
        initial_end("10"),
    ])]);
    let running = start(&script);
    running.informer.wait_synced().await.unwrap();
    assert_eq!(running.store(), "a@5 c@7");
    assert_eq!(running.informer.health().quarantined_count, 1);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_held_in_the_version_listed_is_not_read_again() {
    let expired = || ending([wait(5), error(410, "Expired")]);
    // Of the same version it would not be sent otherwise; that it is not looked at is seen because it could not be read.
    let pages = Script::new([
        no_streaming(),
        list("10", &[object("a", "5"), object("b", "6")]),
        expired(),
        list("20", &[broken("a", "5"), broken("b", "16")]),
        watch([]),
    ]);
    let streams = Script::new([
        ending([
            added("a", "5"),
            added("b", "6"),
            initial_end("10"),
            wait(5),
            error(410, "Expired"),
        ]),
        watch([
            event("ADDED", &broken("a", "5")),
            event("ADDED", &broken("b", "16")),
            initial_end("20"),
        ]),
    ]);
    for script in [pages, streams] {
        let running = start(&script);
        running.informer.wait_synced().await.unwrap();
        seconds(10).await;
        let version = running.informer.last_sync_resource_version();
        assert_eq!(version.to_string(), "20", "all was listed again");
        assert_eq!(running.store(), "a@5 b@6");
        let quarantined = running.informer.health().quarantined;
        let keys: Vec<_> = quarantined
            .iter()
            .map(|object| object.key.clone())
            .collect();
        assert_eq!(keys, [ObjectKey::namespaced("n", "b")]);
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_no_event_is_fetched_again_and_after_three_times_all_is_listed() {
    let garbage = || ending([Bit::Line("{\"type\":\"ADDED\",\"obj".into())]);
    let script = Script::new([
        no_streaming(),
        list("10", &[]),
        garbage(),
        garbage(),
        garbage(),
        list("20", &[object("a", "15")]),
        watch([]),
    ]);
    let running = start(&script);
    seconds(30).await;
    assert_eq!((script.count("watch"), script.count("list")), (4, 2));
    assert_eq!(running.store(), "a@15");
}

#[tokio::test(start_paused = true)]
async fn a_table_in_a_watch_is_set_aside_and_the_watch_goes_on() {
    let table = r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"11"},"columnDefinitions":[],"rows":[{"cells":["a"]}]}"#;
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "5")]),
        watch([event("MODIFIED", table), modified("a", "12")]),
    ]);
    let running = start(&script);
    millis(10).await;
    assert_eq!(running.store(), "a@12");
    assert_eq!(running.informer.health().quarantined_count, 1);
    assert_eq!(script.log()[2..], ["watch @10"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_says_it_is_of_another_type_is_set_aside_in_the_forms_that_would_read_it() {
    async fn set_aside<S: Stored>() {
        let secret = object("s", "6").replace("ConfigMap", "Secret");
        let other = object("c", "12").replace(r#""apiVersion":"v1""#, r#""apiVersion":"v2""#);
        let script = Script::new([
            no_streaming(),
            list("10", &[object("a", "5"), secret]),
            watch([event("ADDED", &other), added("b", "13")]),
        ]);
        let endpoint = Endpoint::of::<ConfigMap>();
        let informer = SharedInformer::<S>::builder_for(script.client(), endpoint)
            .clock(clock())
            .build();
        let running = tokio::spawn({
            let informer = informer.clone();
            async move { informer.run(CancellationToken::new()).await }
        });
        millis(10).await;
        let objects = informer.lister().list();
        let names: Vec<_> = objects.iter().map(|object| object.name()).collect();
        assert_eq!(names, ["a", "b"]);
        let quarantined = informer.health().quarantined;
        let errors: Vec<_> = quarantined.iter().map(|object| &object.error).collect();
        assert!(
            errors[0].contains("expected ConfigMap") && errors[1].contains("expected v1"),
            "{errors:?}"
        );
        running.abort();
    }
    set_aside::<DynamicObject>().await;
    set_aside::<Compact<ConfigMap>>().await;
}

// === Stopping ===

#[tokio::test(start_paused = true)]
async fn every_wait_ends_when_the_informer_is_stopped() {
    let cases: [(&str, Vec<Answer>); 7] = [
        ("a list without answer", vec![no_streaming(), Answer::Hang]),
        (
            "a page ahead without answer",
            vec![no_streaming(), page("1", "t", &[]), watch([])],
        ),
        (
            "a watch without answer",
            vec![no_streaming(), list("1", &[]), Answer::Hang],
        ),
        (
            "an open watch",
            vec![no_streaming(), list("1", &[]), watch([])],
        ),
        ("an open streaming list", vec![watch([added("a", "1")])]),
        (
            "a back-off after a failed list",
            vec![status(500, ""), status(500, "")],
        ),
        ("a back-off after a 429", vec![status(429, "")]),
    ];
    for (case, answers) in cases {
        let script = Script::new(answers);
        let running = start(&script);
        millis(500).await;
        println!("{case}: {:?}", script.log());
        let informer = running.informer.clone();
        running.stop().await;
        assert_eq!(informer.health().activity, Activity::Stopped, "{case}");
        millis(1).await;
        assert_eq!(script.open(), 0, "{case}");
        let asked = script.asked().len();
        seconds(HOUR).await;
        assert_eq!(script.asked().len(), asked, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_is_stopped_before_its_start_asks_nothing() {
    let script = Script::default();
    let informer = builder(&script).build();
    let stop = CancellationToken::new();
    stop.cancel();
    informer.run(stop).await.unwrap();
    assert!(script.asked().is_empty());
}

// === A kind that comes and goes ===

#[tokio::test(start_paused = true)]
async fn a_removed_kind_is_waited_for_quietly_and_followed_when_it_returns() {
    let gone = || status(404, "NotFound");
    let mut answers = vec![
        no_streaming(),
        list("10", &[object("a", "5")]),
        ending([deleted("a", "11"), wait(2)]),
        gone(),
    ];
    answers.extend((0..10).map(|_| gone()));
    answers.extend([list("30", &[object_of("a", "25", "other-uid")]), watch([])]);
    let script = Script::new(answers).otherwise(|_| watch([]));
    let running = start(&script);
    seconds(900).await;
    assert_eq!(running.told.take(), ["+a@5*", "-a@11", "+a@25"]);
    assert!(running.informer.health().is_ready());
}

// === Other forms ===

#[tokio::test(start_paused = true)]
async fn untyped_objects_and_metadata_only_are_informed_of_too() {
    use kube_core::ApiResource;
    use kube_core::metadata::PartialObjectMeta;

    // Items of a built-in kind's list bear no type of their own.
    let item = r#"{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"5"},"data":{"k":"v"}}"#;
    let script = Script::new([no_streaming(), list("10", &[item.to_owned()])]);
    let resource = ApiResource::erase::<ConfigMap>(&());
    let endpoint = Endpoint::for_type::<DynamicObject>(&resource);
    let informer = SharedInformer::<DynamicObject>::builder_for(script.client(), endpoint)
        .clock(clock())
        .build();
    let running = tokio::spawn({
        let informer = informer.clone();
        async move { informer.run(CancellationToken::new()).await }
    });
    informer.wait_synced().await.unwrap();
    let object = informer
        .lister()
        .get(&ObjectKey::namespaced("n", "a"))
        .unwrap();
    assert_eq!(object.types.as_ref().unwrap().kind, "ConfigMap");
    assert_eq!(object.data["data"]["k"], "v");
    assert_eq!(object.dynamic().unwrap().types, object.types);
    running.abort();

    let script = Script::new([no_streaming(), list("10", &[item.to_owned()])]);
    let informer = SharedInformer::<PartialObjectMeta<ConfigMap>>::builder(script.client())
        .clock(clock())
        .build();
    assert!(informer.endpoint().is_metadata_only());
    let running = tokio::spawn({
        let informer = informer.clone();
        async move { informer.run(CancellationToken::new()).await }
    });
    informer.wait_synced().await.unwrap();
    assert_eq!(informer.lister().len(), 1);
    running.abort();
}
