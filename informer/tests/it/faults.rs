//! Faults of servers, and of proxies before them, in lists and watches (L1–L6, W1–W14; the table is in
//! CONFORMANCE.md): the number of requests meanwhile, and how many informers return at once.

use std::time::Duration;

use reeve_clock::Clock;
use reeve_informer::{FirstList, NamespaceSet, ReflectorOptions, SharedInformer};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::harness::{builder, clock, millis, run, seconds, start};
use crate::script::*;

const HOUR: u64 = 3600;

/// A list whose body arrives bit by bit.
fn slow_list(version: &str, objects: &[String], bits: impl Fn(String) -> Vec<Bit>) -> Answer {
    let Answer::Whole { body, .. } = list(version, objects) else {
        unreachable!("a list is a whole body");
    };
    ending(bits(body))
}

/// Answers that stay the same: to lists, streaming lists, and watches.
fn always(listed: Answer, streamed: Answer, watched: Answer) -> Script {
    Script::default().otherwise(move |asked| {
        match asked.verb() {
            "list" => &listed,
            "stream" => &streamed,
            _ => &watched,
        }
        .clone()
    })
}

/// Lists whose second page has expired each time; everything at once is `full`.
fn expiring(full: Answer) -> Script {
    Script::default().otherwise(move |asked| {
        match (asked.verb(), asked.get("continue"), asked.get("limit")) {
            ("list", "", "") => full.clone(),
            ("list", "", _) => page("10", "t", &[object("a", "5")]),
            ("list", ..) => status(410, "Expired"),
            ("stream", ..) => no_streaming(),
            _ => watch([]),
        }
    })
}

// === Lists ===

#[tokio::test(start_paused = true)]
async fn a_list_that_is_cut_off_is_requested_again_and_nothing_of_it_is_kept() {
    let objects = [object("a", "5"), object("b", "6")];
    let half = |body: String| body[..body.len() - 20].to_owned();
    for cut in [
        slow_list("10", &objects, |body| vec![Bit::Part(half(body))]),
        slow_list("10", &objects, |body| {
            vec![Bit::Part(half(body)), Bit::Reset]
        }),
    ] {
        let script = Script::new([no_streaming(), cut, no_streaming()]).otherwise(|asked| {
            match asked.verb() {
                "list" => list("20", &[object("b", "6")]),
                _ => watch([]),
            }
        });
        let running = start(&script);
        millis(500).await;
        assert_eq!(
            (running.store(), running.informer.has_synced()),
            (String::new(), false)
        );
        seconds(5).await;
        assert_eq!(running.store(), "b@6");
        assert_eq!(running.received.take(), ["+b@6*"]);
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_trickles_is_read_for_a_minute_and_then_requested_again() {
    let trickle = |pause: u64| {
        move |body: String| {
            let (one, two) = body.split_at(body.len() / 2);
            vec![
                wait(pause),
                Bit::Part(one.to_owned()),
                wait(pause),
                Bit::Part(two.to_owned()),
            ]
        }
    };
    for (pause, lists) in [(29, 1), (31, 2)] {
        let script = Script::new([
            slow_list("10", &[object("a", "5")], trickle(pause)),
            list("10", &[object("a", "5")]),
        ]);
        let options = ReflectorOptions::new().streaming(false);
        let running = run(builder(&script).reflector(options).build());
        seconds(70).await;
        assert_eq!(running.store(), "a@5");
        assert_eq!(script.count("list"), lists, "two pauses of {pause} s");
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_breaks_off_each_time_is_given_up_for_pages() {
    for end in [
        vec![],
        vec![Bit::Reset],
        vec![error(500, "InternalError")],
        vec![Bit::Line("<html>".into())],
    ] {
        let mut bits = vec![added("a", "5")];
        bits.extend(end);
        let script = always(list("10", &[object("a", "5")]), ending(bits), watch([]));
        let running = start(&script);
        running.informer.wait_synced().await.unwrap();
        assert!(script.count("stream") <= 2, "{:?}", script.log());
        seconds(HOUR / 2).await;
        assert!(script.count("stream") <= 2, "{:?}", script.log());
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_without_any_answer_is_given_up_for_pages_after_a_minute() {
    let script = always(list("10", &[object("a", "5")]), Answer::Hang, watch([]));
    let running = start(&script);
    seconds(61).await;
    assert_eq!(running.store(), "a@5");
    assert_eq!(script.log()[..3], ["stream", "list limit=500", "watch @10"]);
    running.stop().await;
}

// === Watches ===

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_in_time_is_followed_by_the_next_at_once() {
    let script = Script::default().otherwise(|asked| match asked.verb() {
        "list" => list("10", &[]),
        "stream" => no_streaming(),
        _ => {
            let time: u64 = asked.get("timeoutSeconds").parse().unwrap();
            let minutes = (0..time / 60).flat_map(|_| [wait(60), bookmark("11")]);
            ending(minutes.chain([wait(time % 60)]))
        }
    });
    let running = start(&script);
    seconds(HOUR).await;
    let watches: Vec<_> = script
        .asked()
        .into_iter()
        .filter(|asked| asked.verb() == "watch")
        .collect();
    assert!(watches.len() >= 6, "{}", watches.len());
    for pair in watches.windows(2) {
        let asked: u64 = pair[0].get("timeoutSeconds").parse().unwrap();
        assert_eq!((pair[1].at - pair[0].at).as_secs(), asked);
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_every_minute_is_opened_again_within_seconds_and_is_not_a_failure()
{
    for end in [vec![], vec![Bit::Reset]] {
        let script = Script::default().otherwise(move |asked| match asked.verb() {
            "list" => list("10", &[]),
            "stream" => no_streaming(),
            _ => ending([wait(60)].into_iter().chain(end.clone())),
        });
        let running = start(&script);
        seconds(2 * HOUR).await;
        let watches: Vec<_> = script
            .asked()
            .into_iter()
            .filter(|asked| asked.verb() == "watch")
            .map(|asked| asked.at)
            .collect();
        assert!(watches.len() > 100, "{}", watches.len());
        for pair in watches.windows(2) {
            let unwatched = pair[1] - pair[0] - Duration::from_secs(60);
            assert!(unwatched < Duration::from_secs(7), "{unwatched:?}");
        }
        assert_eq!(script.count("list"), 1);
        assert_eq!(running.informer.health().failure, None);
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_bookmarks_only_stays_and_moves_the_version_on() {
    let bits = (0..60).flat_map(|minute| [wait(60), bookmark(&format!("{}", 11 + minute))]);
    let script = Script::new([no_streaming(), list("10", &[object("a", "5")]), watch(bits)]);
    let running = start(&script);
    seconds(HOUR + 1).await;
    assert_eq!(script.log().len(), 3, "{:?}", script.log());
    assert_eq!(running.informer.last_sync_resource_version().as_str(), "70");
    assert_eq!(running.received.take(), ["+a@5*"]);
}

#[tokio::test(start_paused = true)]
async fn late_events_over_several_watches_are_each_delivered_once() {
    let script = Script::new([
        no_streaming(),
        list("10", &[]),
        ending([wait(40), added("a", "11"), wait(40), modified("a", "13")]),
        ending([
            modified("a", "13"),
            wait(60),
            deleted("a", "15"),
            Bit::Part("{\"type\":".into()),
        ]),
        watch([wait(30), added("a", "17")]),
    ]);
    let running = start(&script);
    seconds(300).await;
    assert_eq!(
        running.received.take(),
        ["+a@11", "~a@11-13", "-a@15", "+a@17"]
    );
    assert_eq!(
        script.log()[2..],
        ["watch @10", "watch @13", "watch @15", "watch @17"]
    );
}

#[tokio::test(start_paused = true)]
async fn changes_without_an_open_watch_are_delivered_as_far_as_they_still_matter() {
    let script = Script::new([
        no_streaming(),
        list(
            "10",
            &[object_of("recreated", "5", "one"), object("deleted", "6")],
        ),
        ending([error(410, "Expired")]),
        // In between: one deleted and created again, one deleted, one created and deleted.
        list("30", &[object_of("recreated", "25", "two")]),
    ]);
    let running = start(&script);
    seconds(30).await;
    assert_eq!(
        running.received.take(),
        [
            "+recreated@5*",
            "+deleted@6*",
            "-deleted@6!",
            "-recreated@5!",
            "+recreated@25"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_that_leaves_the_selection_is_deleted_and_may_come_back() {
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "5")]),
        // The server reports it with the state that no longer matches, and its version.
        watch([deleted("a", "17"), added("a", "19")]),
    ]);
    let running = run(builder(&script).labels("app=web").build());
    seconds(1).await;
    assert_eq!(running.received.take(), ["+a@5*", "-a@17", "+a@19"]);
    assert!(
        script
            .asked()
            .iter()
            .all(|asked| asked.get("labelSelector") == "app=web")
    );
}

// === The number of requests ===

#[tokio::test(start_paused = true)]
async fn no_fault_that_stays_costs_more_than_120_requests_an_hour() {
    let good = || list("10", &[object("a", "5")]);
    let complete =
        |then: Vec<Bit>| ending([added("a", "5"), initial_end("10")].into_iter().chain(then));
    let too_large = || {
        json(
            504,
            status_object(504, "Timeout", "Too large resource version: 10, current: 5"),
        )
    };
    let gone = || error(410, "Expired");
    let cases = [
        (
            "no connection",
            always(Answer::Refuse, Answer::Refuse, Answer::Refuse),
        ),
        (
            "lists fail",
            always(status(500, ""), no_streaming(), watch([])),
        ),
        (
            "streaming lists fail",
            always(good(), status(500, ""), watch([])),
        ),
        (
            "forbidden",
            always(status(403, ""), status(403, ""), status(403, "")),
        ),
        (
            "no such kind",
            always(status(404, ""), status(404, ""), status(404, "")),
        ),
        (
            "lists are cut",
            always(json(200, "{\"items\":["), no_streaming(), watch([])),
        ),
        (
            "lists never come",
            always(Answer::Hang, Answer::Hang, watch([])),
        ),
        (
            "watches answer 410",
            always(good(), no_streaming(), status(410, "Gone")),
        ),
        (
            "watches say 410",
            always(good(), no_streaming(), ending([gone()])),
        ),
        (
            "watches say 410 after 5 s",
            always(good(), no_streaming(), ending([wait(5), gone()])),
        ),
        (
            "streamed, then 410",
            always(good(), complete(vec![gone()]), status(410, "Gone")),
        ),
        (
            "streamed, then closed",
            always(good(), complete(vec![]), ending([])),
        ),
        (
            "streams break off",
            always(status(500, ""), ending([added("a", "5")]), watch([])),
        ),
        (
            "streams never end",
            always(status(500, ""), watch([added("a", "5")]), watch([])),
        ),
        (
            "watches never answer",
            always(good(), no_streaming(), Answer::Hang),
        ),
        (
            "watches are refused",
            always(good(), no_streaming(), Answer::Refuse),
        ),
        (
            "watches answer 400",
            always(good(), no_streaming(), status(400, "BadRequest")),
        ),
        (
            "watches answer 404",
            always(good(), no_streaming(), status(404, "NotFound")),
        ),
        (
            "watches answer 429",
            always(good(), no_streaming(), status(429, "TooManyRequests")),
        ),
        (
            "watches answer 503",
            always(good(), no_streaming(), status(503, "ServiceUnavailable")),
        ),
        (
            "watches answer too large",
            always(good(), no_streaming(), too_large()),
        ),
        (
            "watches end at once",
            always(good(), no_streaming(), ending([])),
        ),
        (
            "watches reset at once",
            always(good(), no_streaming(), ending([Bit::Reset])),
        ),
        (
            "watches end after a bookmark",
            always(good(), no_streaming(), ending([bookmark("11")])),
        ),
        (
            "watches end after 5 s",
            always(good(), no_streaming(), ending([wait(5)])),
        ),
        (
            "watches reset after 5 s",
            always(good(), no_streaming(), ending([wait(5), Bit::Reset])),
        ),
        (
            "watches say 500",
            always(
                good(),
                no_streaming(),
                ending([error(500, "InternalError")]),
            ),
        ),
        (
            "watches say 429",
            always(good(), no_streaming(), ending([error(429, "")])),
        ),
        (
            "watches say nonsense",
            always(good(), no_streaming(), ending([Bit::Line("<html>".into())])),
        ),
        (
            "bookmarks run back",
            always(
                good(),
                no_streaming(),
                ending([bookmark("3"), bookmark("3"), bookmark("3")]),
            ),
        ),
        ("silence", always(good(), no_streaming(), watch([]))),
        (
            "events are old",
            always(
                good(),
                no_streaming(),
                watch((0..2 * HOUR).flat_map(|_| [wait(1), modified("a", "3")])),
            ),
        ),
        (
            "pages expire, and everything at once fails",
            expiring(status(500, "")),
        ),
        (
            "pages expire, and everything at once never comes",
            expiring(Answer::Hang),
        ),
    ];
    for (case, script) in cases {
        for first_list in [FirstList::Consistent, FirstList::Any] {
            let options = ReflectorOptions::new().first_list(first_list);
            let running = run(builder(&script).reflector(options).build());
            // Later pages do not count.
            let asked = || {
                let asked = script.asked();
                let first = asked
                    .iter()
                    .filter(|asked| asked.get("continue").is_empty());
                first.count()
            };
            for hour in 1..=2 {
                let before = asked();
                seconds(HOUR).await;
                let asked = asked() - before;
                assert!(
                    (1..=120).contains(&asked),
                    "{case}, {first_list:?}: {asked} requests in hour {hour}"
                );
            }
            running.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_refused_in_every_encoding_are_sent_once_a_try() {
    let refused = || status(406, "NotAcceptable");
    let listed = || list("10", &[object("a", "5")]);
    let servers: [&dyn Fn() -> Script; 2] = [&|| always(refused(), refused(), refused()), &|| {
        always(listed(), no_streaming(), refused())
    }];
    for server in servers {
        let mut asked = [0, 0];
        for (protobuf, asked) in [false, true].into_iter().zip(&mut asked) {
            let script = server();
            let options = ReflectorOptions::new().protobuf(protobuf);
            let running = run(builder(&script).reflector(options).build());
            seconds(HOUR).await;
            *asked = script.asked().len();
            running.stop().await;
        }
        let [json, protobuf] = asked;
        assert!(json > 20, "{json} requests");
        assert_eq!(protobuf, json + 1, "the first one is repeated as JSON");
    }
}

/// The most requests in any second.
fn busiest_second(times: &[Instant]) -> usize {
    let mut busiest = 0;
    let mut first = 0;
    for (last, time) in times.iter().enumerate() {
        while *time - times[first] >= Duration::from_secs(1) {
            first += 1;
        }
        busiest = busiest.max(last + 1 - first);
    }
    busiest
}

#[tokio::test(start_paused = true)]
async fn when_a_thousand_informers_lose_their_server_at_most_a_fifth_comes_back_in_any_second() {
    thousand_lose_their_server(Fleet::Pages).await;
}

#[tokio::test(start_paused = true)]
async fn when_a_thousand_informers_with_streaming_lists_lose_their_server_at_most_a_fifth_comes_back_in_any_second()
 {
    thousand_lose_their_server(Fleet::Streaming).await;
}

#[tokio::test(start_paused = true)]
async fn when_a_set_of_a_thousand_namespaces_loses_its_server_at_most_a_fifth_comes_back_in_any_second()
 {
    thousand_lose_their_server(Fleet::Namespaces).await;
}

/// A thousand watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fleet {
    /// Each of an informer that lists in pages.
    Pages,
    /// Each of an informer, with streaming lists.
    Streaming,
    /// All of one informer, with streaming lists.
    Namespaces,
}

async fn thousand_lose_their_server(fleet: Fleet) {
    const INFORMERS: usize = 1000;
    for (case, cut, down, with) in [
        ("closed", vec![], 0, "watch"),
        ("reset", vec![Bit::Reset], 0, "watch"),
        ("410", vec![error(410, "Expired")], 0, "list"),
        (
            "reset, and refused for a while",
            vec![Bit::Reset],
            20,
            "watch",
        ),
        ("500", vec![error(500, "InternalError")], 0, "watch"),
        ("silence", vec![Bit::Hang], 0, "watch"),
    ] {
        let streaming = fleet != Fleet::Pages;
        let with = if streaming && with == "list" {
            "stream"
        } else {
            with
        };
        let start = Instant::now();
        let script = Script::default().otherwise(move |asked| {
            let at = start.elapsed().as_secs();
            let initial = [added("a", "5"), initial_end("12")];
            match asked.verb() {
                _ if at >= 100 && at < 100 + down => Answer::Refuse,
                "stream" if at < 100 => {
                    let bits = [wait(50), bookmark("12"), wait(50 - at)];
                    ending(initial.into_iter().chain(bits).chain(cut.clone()))
                }
                "stream" => watch(initial),
                "watch" if at < 100 => {
                    let bits = [wait(50), bookmark("12"), wait(50 - at)];
                    ending(bits.into_iter().chain(cut.clone()))
                }
                "watch" => watch([]),
                _ => list("12", &[object("a", "5")]),
            }
        });
        let clock: Clock = clock();
        let stop = CancellationToken::new();
        let options = ReflectorOptions::new().streaming(streaming);
        let one = fleet == Fleet::Namespaces;
        let informers: Vec<_> = (0..if one { 1 } else { INFORMERS })
            .map(|_| {
                let builder = SharedInformer::<k8s_openapi::api::core::v1::ConfigMap>::builder(
                    script.client(),
                )
                .clock(clock.clone())
                .reflector(options);
                let informer = if one {
                    let names = (0..INFORMERS).map(|number| format!("n{number}"));
                    builder.namespaces(NamespaceSet::new(names)).build()
                } else {
                    builder.build()
                };
                let (running, stop) = (informer.clone(), stop.clone());
                tokio::spawn(async move { running.run(stop).await });
                informer
            })
            .collect();
        seconds(40).await;
        let before = script.asked().len();
        assert!(
            informers.iter().all(SharedInformer::has_synced),
            "{fleet:?}, {case}"
        );
        seconds(170).await;
        let times: Vec<_> = script.asked()[before..]
            .iter()
            .filter(|asked| asked.verb() == with)
            // A reflector without an answer has not returned.
            .filter(|asked| down == 0 || (asked.at - start).as_secs() >= 100 + down)
            .map(|asked| asked.at)
            .collect();
        assert!(times.len() >= INFORMERS, "{fleet:?}, {case}: all come back");
        let busiest = busiest_second(&times);
        assert!(
            busiest <= INFORMERS / 5,
            "{fleet:?}, {case}: {busiest} requests in one second"
        );
        assert!(
            informers
                .iter()
                .all(|informer| informer.health().is_ready()),
            "{fleet:?}, {case}"
        );
        stop.cancel();
        seconds(1).await;
    }
}
