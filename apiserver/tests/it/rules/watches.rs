//! WATCH: where it starts, what it sees, when it ends.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::rules::raw::*;

#[tokio::test(start_paused = true)]
async fn a_watch_without_version_begins_with_what_is_there() {
    let server = server().await;
    let a = post(&server, MAPS, &map("a")).await.expect_ok();
    let mut watch = watch(&server, &format!("{MAPS}?watch=1")).await;
    assert_eq!(
        watch.brief().await,
        Some(("ADDED".into(), "a".into(), version(&a)))
    );
    let b = post(&server, MAPS, &map("b")).await.expect_ok();
    assert_eq!(
        watch.brief().await,
        Some(("ADDED".into(), "b".into(), version(&b)))
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_version_sees_only_what_came_after() {
    let server = server().await;
    let a = post(&server, MAPS, &map("a")).await.expect_ok();
    let b = post(&server, MAPS, &map("b")).await.expect_ok();
    let path = format!("{MAPS}?watch=true&resourceVersion={}", version(&a));
    let mut watch = watch(&server, &path).await;
    assert_eq!(watch.brief().await.unwrap().2, version(&b));
    let gone = delete(&server, &format!("{MAPS}/b"), &Value::Null).await;
    assert_eq!(gone.code, 200);
    let (kind, name, at) = watch.brief().await.unwrap();
    assert_eq!((kind.as_str(), name.as_str()), ("DELETED", "b"));
    assert!(at > version(&b), "a removal has a version of its own");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_gone_is_reported_in_the_stream() {
    let server = server().await;
    let a = post(&server, MAPS, &map("a")).await.expect_ok();
    post(&server, MAPS, &map("b")).await.expect_ok();
    server.forget_history(None);
    let path = format!("{MAPS}?watch=true&resourceVersion={}", version(&a));
    let mut watch = watch(&server, &path).await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!(event["object"]["code"], 410);
    assert_eq!(event["object"]["reason"], "Expired");
    assert_eq!(watch.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_running_watch_goes_on_when_history_is_forgotten() {
    let server = server().await;
    let a = post(&server, MAPS, &map("a")).await.expect_ok();
    let path = format!("{MAPS}?watch=true&resourceVersion={}", version(&a));
    let mut watch = watch(&server, &path).await;
    // It is idle while the version goes on elsewhere.
    post(&server, "/api/v1/namespaces/default/secrets", &map("s"))
        .await
        .expect_ok();
    server.forget_history(None);
    let b = post(&server, MAPS, &map("b")).await.expect_ok();
    assert_eq!(
        watch.brief().await,
        Some(("ADDED".into(), "b".into(), version(&b)))
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_resumes_after_a_compaction() {
    let server = server().await;
    let a = post(&server, MAPS, &map("a")).await.expect_ok();
    let b = post(&server, MAPS, &map("b")).await.expect_ok();
    server.compact(None);
    let path = format!("{MAPS}?watch=true&resourceVersion={}", version(&a));
    let mut watch = watch(&server, &path).await;
    assert_eq!(watch.brief().await.unwrap().2, version(&b));
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_ends_its_first_part_with_a_bookmark() {
    let server = server().await;
    post(&server, "/api/v1/namespaces/default/secrets", &map("other"))
        .await
        .expect_ok();
    let path = format!(
        "{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    // Also when there is nothing to send.
    let mut empty = watch(&server, &path).await;
    let event = empty.next().await.unwrap();
    assert_eq!(event["type"], "BOOKMARK");
    assert_eq!(
        event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    assert_eq!(version(&event["object"]), server.resource_version());

    for n in 0..600 {
        post(&server, MAPS, &map(&format!("m{n:03}")))
            .await
            .expect_ok();
    }
    let mut many = watch(&server, &path).await;
    let mut newest = 0;
    for n in 0..600 {
        let (kind, name, at) = many.brief().await.unwrap();
        assert_eq!((kind, name), ("ADDED".to_owned(), format!("m{n:03}")));
        newest = newest.max(at);
    }
    let (kind, _, at) = many.brief().await.unwrap();
    assert_eq!(kind, "BOOKMARK");
    assert!(at >= newest);
}

#[tokio::test(start_paused = true)]
async fn streaming_lists_can_be_refused() {
    let server = server().await;
    server.faults().refuse_streaming_lists(true);
    let path = format!("{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    let answer = get(&server, &path).await;
    assert_eq!(answer.code, 422);
    assert!(
        answer.message().contains("WatchList feature gate"),
        "{}",
        answer.message()
    );
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_each_minute_and_before_the_end() {
    let server = server().await;
    let from = server.resource_version();
    let path = format!(
        "{MAPS}?watch=1&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=150"
    );
    let started = Instant::now();
    let mut watch = watch(&server, &path).await;
    let secret = post(&server, "/api/v1/namespaces/default/secrets", &map("s"))
        .await
        .expect_ok();
    for due in [60, 120, 148] {
        let (kind, _, at) = watch.brief().await.unwrap();
        assert_eq!(kind, "BOOKMARK");
        assert_eq!(started.elapsed(), Duration::from_secs(due));
        assert_eq!(at, version(&secret), "a bookmark is as new as the store");
    }
    assert_eq!(watch.next().await, None);
    assert_eq!(started.elapsed(), Duration::from_secs(150));
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_timeout_ends_within_half_an_hour_and_an_hour() {
    let server = server().await;
    let started = Instant::now();
    let from = server.resource_version();
    let mut watch = watch(&server, &format!("{MAPS}?watch=1&resourceVersion={from}")).await;
    assert_eq!(watch.next().await, None, "bookmarks were not requested");
    let lasted = started.elapsed();
    assert!(
        (Duration::from_secs(1800)..=Duration::from_secs(3600)).contains(&lasted),
        "{lasted:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn objects_enter_and_leave_a_selection() {
    let server = server().await;
    let from = server.resource_version();
    let path = format!("{MAPS}?watch=1&labelSelector=app%3D1&resourceVersion={from}");
    let mut watch = watch(&server, &path).await;
    post(&server, MAPS, &labelled("a", "2")).await.expect_ok();
    let entered = merge(&server, &format!("{MAPS}/a"), &labelled("a", "1"))
        .await
        .expect_ok();
    let changed = merge(&server, &format!("{MAPS}/a"), &json!({"data": {"k": "v"}}))
        .await
        .expect_ok();
    let left = merge(&server, &format!("{MAPS}/a"), &labelled("a", "3"))
        .await
        .expect_ok();
    delete(&server, &format!("{MAPS}/a"), &Value::Null)
        .await
        .expect_ok();
    assert_eq!(
        watch.brief().await.unwrap(),
        ("ADDED".into(), "a".into(), version(&entered))
    );
    assert_eq!(
        watch.brief().await.unwrap(),
        ("MODIFIED".into(), "a".into(), version(&changed))
    );
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(
        version(&event["object"]),
        version(&left),
        "at the version of leaving"
    );
    assert_eq!(
        event["object"]["metadata"]["labels"]["app"], "1",
        "as it was before"
    );
    post(&server, MAPS, &labelled("end", "1")).await.expect_ok();
    assert_eq!(
        watch.brief().await.unwrap().1,
        "end",
        "what was never selected is not seen"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_one_namespace_or_name_sees_only_that() {
    let server = server().await;
    let from = server.resource_version();
    let mut named = watch(
        &server,
        &format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Db&resourceVersion={from}"),
    )
    .await;
    let mut other = watch(
        &server,
        &format!("/api/v1/namespaces/kube-public/configmaps?watch=1&resourceVersion={from}"),
    )
    .await;
    let mut all = watch(
        &server,
        &format!("/api/v1/configmaps?watch=1&resourceVersion={from}"),
    )
    .await;
    post(&server, MAPS, &map("a")).await.expect_ok();
    let b = post(&server, MAPS, &map("b")).await.expect_ok();
    let c = post(
        &server,
        "/api/v1/namespaces/kube-public/configmaps",
        &map("c"),
    )
    .await
    .expect_ok();
    assert_eq!(named.brief().await.unwrap().2, version(&b));
    assert_eq!(other.brief().await.unwrap().2, version(&c));
    for name in ["a", "b", "c"] {
        assert_eq!(all.brief().await.unwrap().1, name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_too_slow_is_closed_and_learns_it_when_it_resumes() {
    let history = reeve_apiserver::History {
        min_events: 5,
        max_events: 10,
        age: Duration::from_secs(1),
        ..reeve_apiserver::History::default()
    };
    let server = reeve_apiserver::ApiServer::builder()
        .clock(clock())
        .history(history)
        .start()
        .await
        .unwrap();
    let from = server.resource_version();
    let mut slow = watch(&server, &format!("{MAPS}?watch=1&resourceVersion={from}")).await;
    post(&server, MAPS, &map("first")).await.expect_ok();
    let (_, _, cursor) = slow.brief().await.unwrap();
    for n in 0..50 {
        post(&server, MAPS, &map(&format!("m{n}")))
            .await
            .expect_ok();
    }
    assert_eq!(slow.next().await, None, "closed without a word");
    let mut again = watch(&server, &format!("{MAPS}?watch=1&resourceVersion={cursor}")).await;
    assert_eq!(again.next().await.unwrap()["object"]["code"], 410);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_keeps_the_version_and_sends_nothing() {
    let server = server().await;
    let a = post(&server, MAPS, &labelled("a", "1")).await.expect_ok();
    let mut watch = watch(
        &server,
        &format!("{MAPS}?watch=1&resourceVersion={}", version(&a)),
    )
    .await;
    let same = merge(&server, &format!("{MAPS}/a"), &labelled("a", "1"))
        .await
        .expect_ok();
    assert_eq!(version(&same), version(&a));
    let put_back = put(&server, &format!("{MAPS}/a"), &a).await.expect_ok();
    assert_eq!(version(&put_back), version(&a));
    post(&server, MAPS, &map("b")).await.expect_ok();
    assert_eq!(watch.brief().await.unwrap().1, "b");
}

#[tokio::test(start_paused = true)]
async fn a_watch_with_the_longest_time_of_all_is_open() {
    let server = server().await;
    post(&server, MAPS, &map("a")).await.expect_ok();
    let path = format!("{MAPS}?watch=1&timeoutSeconds={}", i64::MAX);
    let mut watch = watch(&server, &path).await;
    assert_eq!(watch.brief().await.unwrap().1, "a");
}

#[tokio::test(start_paused = true)]
async fn tables_of_a_watch_say_their_columns_once() {
    let server = server().await;
    post(&server, MAPS, &map("a")).await.expect_ok();
    post(&server, MAPS, &map("b")).await.expect_ok();
    let request = http::Request::builder()
        .uri(format!("{MAPS}?watch=1&timeoutSeconds=1"))
        .header(
            "accept",
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        )
        .body(String::new())
        .unwrap();
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;
    let response = server.service().oneshot(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let events: Vec<Value> = serde_json::Deserializer::from_slice(&body)
        .into_iter()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(events.len(), 2);
    assert_eq!(events[0]["object"]["kind"], "Table");
    assert_eq!(events[0]["object"]["columnDefinitions"][0]["name"], "Name");
    assert_eq!(events[1]["object"]["columnDefinitions"], Value::Null);
    assert_eq!(events[1]["object"]["rows"][0]["cells"][0], "b");
}

#[tokio::test(start_paused = true)]
async fn watches_of_a_definition_that_goes_end() {
    let server = server().await;
    post(&server, CRDS, &foos()).await.expect_ok();
    post(&server, FOOS, &foo("a")).await.expect_ok();
    let mut watch = watch(&server, &format!("{FOOS}?watch=1")).await;
    assert_eq!(watch.brief().await.unwrap().0, "ADDED");
    delete(&server, &format!("{CRDS}/foos.example.com"), &Value::Null)
        .await
        .expect_ok();
    settle().await;
    assert_eq!(watch.brief().await.unwrap().0, "DELETED");
    assert_eq!(watch.next().await, None);
    assert_eq!(get(&server, FOOS).await.code, 404);
}
