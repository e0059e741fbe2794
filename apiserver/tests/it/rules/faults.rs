//! What goes wrong on request.

use std::time::Duration;

use reeve_apiserver::faults::Rule;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::rules::raw::*;

#[tokio::test(start_paused = true)]
async fn a_rule_lets_some_pass_and_hits_some() {
    let server = server().await;
    let rule = Rule::new()
        .verb("create")
        .resource("configmaps")
        .after(1)
        .times(2)
        .status(503, "not ready")
        .retry_after(1);
    let handle = server.faults().add(rule);
    let mut codes = Vec::new();
    for n in 0..5 {
        codes.push(post(&server, MAPS, &map(&format!("m{n}"))).await.code);
    }
    assert_eq!(codes, [201, 503, 503, 201, 201]);
    assert_eq!(handle.hits(), 2);
    get(&server, MAPS).await.expect_ok();
}

#[tokio::test(start_paused = true)]
async fn a_handle_says_how_often_its_rule_hit_also_when_that_was_removed() {
    let server = server().await;
    let rule = || Rule::new().verb("list").status(500, "boom");
    let removed = server.faults().add(rule());
    assert_eq!(get(&server, MAPS).await.code, 500);
    removed.remove();
    assert_eq!(removed.hits(), 1);
    get(&server, MAPS).await.expect_ok();
    assert_eq!(removed.hits(), 1, "it is out of force");
    let cleared = server.faults().add(rule().times(1));
    assert_eq!(cleared.hits(), 0, "each rule counts for itself");
    assert_eq!(get(&server, MAPS).await.code, 500);
    get(&server, MAPS).await.expect_ok();
    server.faults().clear();
    assert_eq!(cleared.hits(), 1);
}

#[tokio::test(start_paused = true)]
async fn throttling_is_answered_in_plain_text_with_a_wait() {
    let server = server().await;
    server.faults().add(
        Rule::new()
            .text(429, "Too many requests, please try again later.\n")
            .retry_after(1),
    );
    let answer = get(&server, MAPS).await;
    assert_eq!(answer.code, 429);
    assert_eq!(answer.headers["retry-after"], "1");
    assert!(
        answer.headers["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/plain")
    );
    assert_eq!(answer.text, "Too many requests, please try again later.\n");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_was_stored_and_a_reset_was_not() {
    let server = server().await;
    let create = |name: &'static str| {
        try_send(
            &server,
            http::Method::POST,
            MAPS,
            "application/json",
            map(name).to_string(),
        )
    };
    let lost = server
        .faults()
        .add(Rule::new().verb("create").lose_answer());
    assert!(create("a").await.is_err());
    lost.remove();
    let reset = server.faults().add(Rule::new().verb("create").reset());
    assert!(create("b").await.is_err());
    reset.remove();
    assert_eq!(get(&server, &format!("{MAPS}/a")).await.code, 200);
    assert_eq!(get(&server, &format!("{MAPS}/b")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn delays_come_before_or_after_the_write() {
    let server = server().await;
    server.faults().add(
        Rule::new()
            .verb("create")
            .times(1)
            .delay_answer(Duration::from_secs(10)),
    );
    let body = map("a");
    let started = Instant::now();
    let (made, seen) = tokio::join!(post(&server, MAPS, &body), async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        get(&server, &format!("{MAPS}/a")).await.code
    });
    made.expect_ok();
    assert_eq!(seen, 200, "stored while its answer waits");
    assert_eq!(started.elapsed(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_request_ends_with_the_server() {
    let server = server().await;
    server.faults().add(Rule::new().verb("list").stall());
    let stalled = tokio::time::timeout(Duration::from_secs(3600), get(&server, MAPS));
    assert!(stalled.await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_stale_replica_shows_the_past() {
    let server = server().await;
    let a = post(&server, MAPS, &map("a")).await.expect_ok();
    merge(&server, &format!("{MAPS}/a"), &json!({"data": {"k": "v"}}))
        .await
        .expect_ok();
    let rule = server.faults().add(Rule::new().stale(version(&a)));
    assert_eq!(
        version(&get(&server, &format!("{MAPS}/a")).await.expect_ok()),
        version(&a)
    );
    let list = get(&server, MAPS).await.expect_ok();
    assert_eq!(version(&list), version(&a));
    assert!(list["items"][0].get("data").is_none());
    rule.remove();
    assert_eq!(
        get(&server, &format!("{MAPS}/a")).await.expect_ok()["data"]["k"],
        "v"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_closes_empty_breaks_or_is_cut_short() {
    let server = server().await;
    post(&server, MAPS, &map("a")).await.expect_ok();
    let path = format!("{MAPS}?watch=1");
    let rule = server.faults().add(Rule::new().verb("watch").close_empty());
    assert_eq!(watch(&server, &path).await.next().await, None);
    rule.remove();

    let rule = server
        .faults()
        .add(Rule::new().verb("watch").reset_after(1));
    let mut broken = watch(&server, &path).await;
    assert_eq!(broken.brief().await.unwrap().1, "a");
    post(&server, MAPS, &map("b")).await.expect_ok();
    assert!(broken.try_next().await.is_err());
    rule.remove();

    let rule = server
        .faults()
        .add(Rule::new().verb("watch").truncate_after(0));
    let mut cut = watch(&server, &path).await;
    let whole = cut.next().await;
    assert!(whole.is_some() || !cut.rest().is_empty(), "something came");
    assert_eq!(cut.next().await, None);
    assert!(!cut.rest().is_empty(), "half a frame");
    rule.remove();

    server
        .faults()
        .add(Rule::new().verb("watch").stall_after(1));
    let mut silent = watch(&server, &path).await;
    silent.next().await.unwrap();
    silent.next().await.unwrap();
    post(&server, MAPS, &map("c")).await.expect_ok();
    let next = tokio::time::timeout(Duration::from_secs(7200), silent.next());
    assert!(next.await.is_err(), "nothing comes and it does not end");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_can_be_stopped_while_a_watch_is_open() {
    let server = server().await;
    let from = server.resource_version();
    let path = format!(
        "{MAPS}?watch=1&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=600"
    );
    let mut open = watch(&server, &path).await;
    assert_eq!(open.brief().await.unwrap().0, "BOOKMARK");
    server.faults().stop_bookmarks(true);
    assert_eq!(open.next().await, None, "no more until its end");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_went_down_comes_back_with_its_objects_and_no_history() {
    let server = server().await;
    let a = post(&server, MAPS, &map("a")).await.expect_ok();
    post(&server, MAPS, &map("b")).await.expect_ok();
    let path = format!("{MAPS}?watch=1&resourceVersion={}", version(&a));
    let mut open = watch(&server, &path).await;
    open.next().await.unwrap();
    server.go_down();
    assert_eq!(open.next().await, None);
    let refused = try_send(&server, http::Method::GET, MAPS, "", String::new()).await;
    assert_eq!(
        refused.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );
    server.come_up();
    assert_eq!(
        get(&server, MAPS).await.expect_ok()["items"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        watch(&server, &path).await.next().await.unwrap()["object"]["code"],
        410
    );
}

#[tokio::test(start_paused = true)]
async fn requests_are_recorded_with_what_they_were_answered() {
    let server = server().await;
    post(&server, MAPS, &map("a")).await.expect_ok();
    get(&server, &format!("{MAPS}/nope")).await;
    let all = server.requests().all();
    let brief: Vec<_> = all
        .iter()
        .map(|request| {
            (
                request.verb.as_str(),
                request.resource.as_str(),
                request.name.as_str(),
                request.code,
            )
        })
        .collect();
    assert_eq!(
        brief,
        [
            ("create", "configmaps", "", 201),
            ("get", "configmaps", "nope", 404)
        ]
    );
    let body: Value = serde_json::from_slice(&all[0].body).unwrap();
    assert_eq!(body, map("a"));
    assert_eq!(server.requests().count("create", "configmaps"), 1);
}
