//! The control API: over HTTP, what a test in this process does with the server.

use std::time::Duration;

use http::Method;
use reeve_apiserver::{ApiServer, Builder};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::rules::raw::*;

fn builder() -> Builder {
    ApiServer::builder().clock(clock()).control(true)
}

async fn controlled() -> ApiServer {
    builder().start().await.unwrap()
}

/// A call of the control API; its answer must have this code.
async fn call(server: &ApiServer, method: Method, path: &str, body: Value, code: u16) -> Value {
    let path = format!("/reeve/v1/{path}");
    let (content_type, body) = match &body {
        Value::Null => ("", String::new()),
        body => ("application/json", body.to_string()),
    };
    let answer = try_send(server, method, &path, content_type, body).await;
    let answer = answer.unwrap();
    assert_eq!(answer.code, code, "{path}: {}", answer.text);
    answer.json()
}

#[tokio::test(start_paused = true)]
async fn without_the_control_api_its_paths_do_not_exist() {
    let server = server().await;
    for path in ["/reeve/v1", "/reeve/v1/faults"] {
        assert_eq!(get(&server, path).await.code, 404);
    }
    let reset = post(&server, "/reeve/v1/reset", &json!({})).await;
    assert_eq!(reset.code, 405, "as for any path without a resource");
}

#[tokio::test(start_paused = true)]
async fn a_fault_is_added_counted_and_removed() {
    let server = controlled().await;
    let lost =
        json!({"verb": "create", "resource": "configmaps", "times": 1, "fault": "loseAnswer"});
    let added = call(&server, Method::POST, "faults", lost.clone(), 201).await;
    assert_eq!(
        (&added["rule"], &added["hits"], &added["seen"]),
        (&lost, &json!(0), &json!(0))
    );
    let created = try_send(
        &server,
        Method::POST,
        MAPS,
        "application/json",
        map("a").to_string(),
    )
    .await;
    assert!(created.is_err(), "the answer was lost");
    get(&server, &format!("{MAPS}/a")).await.expect_ok();
    post(&server, MAPS, &map("b")).await.expect_ok();
    let path = format!("faults/{}", added["id"].as_str().unwrap());
    let found = call(&server, Method::GET, &path, Value::Null, 200).await;
    assert_eq!((&found["hits"], &found["seen"]), (&json!(1), &json!(2)));
    let all = call(&server, Method::GET, "faults", Value::Null, 200).await;
    assert_eq!(all["items"], json!([found]));
    let removed = call(&server, Method::DELETE, &path, Value::Null, 200).await;
    assert_eq!(removed, found);
    call(&server, Method::GET, &path, Value::Null, 404).await;
    call(&server, Method::DELETE, &path, Value::Null, 404).await;

    let refused =
        json!({"fault": {"status": {"code": 503, "message": "later", "retryAfterSeconds": 2}}});
    call(&server, Method::POST, "faults", refused, 201).await;
    let answer = get(&server, MAPS).await;
    assert_eq!((answer.code, answer.message()), (503, "later".to_owned()));
    assert_eq!(answer.headers["retry-after"], "2");
    call(&server, Method::DELETE, "faults", Value::Null, 200).await;
    get(&server, MAPS).await.expect_ok();
}

#[tokio::test(start_paused = true)]
async fn wrong_calls_are_refused_with_a_reason() {
    let server = controlled().await;
    let object = json!({});
    for (method, path, body, code, expected) in [
        (
            Method::POST,
            "faults",
            json!({"fault": "boom"}),
            400,
            "boom",
        ),
        (
            Method::POST,
            "faults",
            json!({"fault": "reset", "x": 1}),
            400,
            "unknown field `x`",
        ),
        (Method::POST, "faults", json!([]), 400, "the body"),
        (
            Method::GET,
            "faults?verb=get",
            Value::Null,
            400,
            "\"verb\" is unknown: this path has none",
        ),
        (
            Method::GET,
            "requests?verbs=get",
            Value::Null,
            400,
            "\"verbs\" is unknown: this path has verb",
        ),
        (Method::GET, "requests?limit=x", Value::Null, 400, "limit"),
        (
            Method::GET,
            "requests?waitSeconds=1",
            Value::Null,
            400,
            "atLeast is missing",
        ),
        (
            Method::POST,
            "reset",
            json!({"to": "x"}),
            400,
            "unknown field `to`",
        ),
        (
            Method::POST,
            "clock/advance",
            object.clone(),
            400,
            "missing field `seconds`",
        ),
        (
            Method::POST,
            "clock/advance",
            json!({"seconds": -1}),
            400,
            "seconds: -1",
        ),
        (
            Method::POST,
            "outage",
            json!({"seconds": 1e6}),
            400,
            "seconds: 1000000",
        ),
        (
            Method::POST,
            "history/compact",
            json!({"resourceVersion": "x"}),
            400,
            "\"x\" is not a version",
        ),
        (
            Method::PUT,
            "snapshots/a%20b",
            Value::Null,
            400,
            "name of a snapshot",
        ),
        (
            Method::POST,
            "snapshots/none/restore",
            Value::Null,
            404,
            "no snapshot \"none\"",
        ),
        (Method::GET, "nothing", Value::Null, 404, "/nothing"),
        (Method::PUT, "faults", object, 405, "GET, POST, DELETE"),
    ] {
        let answer = call(&server, method, path, body, code).await;
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains(expected), "{path}: {message}");
        assert_eq!(
            (&answer["kind"], &answer["code"]),
            (&json!("Status"), &json!(code))
        );
    }
    let faults = "/reeve/v1/faults";
    let rule = json!({"fault": "reset"}).to_string();
    let plain = try_send(&server, Method::POST, faults, "text/plain", rule).await;
    assert_eq!(plain.unwrap().code, 415);
    let cut = try_send(&server, Method::POST, faults, "application/json", "{").await;
    assert_eq!(cut.unwrap().code, 400);
    let large = " ".repeat(64 * 1024 + 1);
    let large = try_send(&server, Method::POST, faults, "application/json", large).await;
    assert_eq!(large.unwrap().code, 413);
    let put = try_send(&server, Method::PUT, faults, "", "")
        .await
        .unwrap();
    assert_eq!(put.headers["allow"], "GET, POST, DELETE");
    let all = call(&server, Method::GET, "faults", Value::Null, 200).await;
    assert_eq!(all["items"], json!([]), "nothing was added");
}

#[tokio::test(start_paused = true)]
async fn rules_and_snapshots_are_bounded_in_number() {
    let server = controlled().await;
    for n in 0..=1_000 {
        let code = if n < 1_000 { 201 } else { 422 };
        let rule = json!({"name": "none", "fault": "reset"});
        call(&server, Method::POST, "faults", rule, code).await;
    }
    for n in 0..=100 {
        let code = if n < 100 { 201 } else { 422 };
        call(
            &server,
            Method::PUT,
            &format!("snapshots/s{n}"),
            Value::Null,
            code,
        )
        .await;
    }
    call(&server, Method::PUT, "snapshots/s0", Value::Null, 200).await;
    call(&server, Method::DELETE, "snapshots/s0", Value::Null, 200).await;
    call(&server, Method::PUT, "snapshots/s100", Value::Null, 201).await;
}

#[tokio::test(start_paused = true)]
async fn requests_are_selected_counted_awaited_and_cleared() {
    let server = controlled().await;
    let name = |request: &Value| request["path"].as_str().unwrap_or_default().to_owned();
    for name in ["a", "b"] {
        post(&server, MAPS, &map(name)).await.expect_ok();
    }
    get(&server, &format!("{MAPS}/none")).await;
    let of = |query: &str| format!("requests?{query}");
    let all = call(&server, Method::GET, "requests", Value::Null, 200).await;
    assert_eq!(
        all["count"], 3,
        "calls of the control API are not in the log"
    );
    let created = call(
        &server,
        Method::GET,
        &of("verb=create&resource=configmaps&limit=1&bodies=true"),
        Value::Null,
        200,
    )
    .await;
    assert_eq!(
        (
            &created["count"],
            created["items"].as_array().unwrap().len()
        ),
        (&json!(2), 1)
    );
    let newest = &created["items"][0];
    assert_eq!(
        (
            name(newest).as_str(),
            &newest["code"],
            &newest["body"]["metadata"]["name"]
        ),
        (MAPS, &json!(201), &json!("b"))
    );
    assert!(all["items"][0].get("body").is_none());
    let missing = call(
        &server,
        Method::GET,
        &of("code=404&group=&name=none"),
        Value::Null,
        200,
    )
    .await;
    assert_eq!(missing["count"], 1);
    let other = call(
        &server,
        Method::GET,
        &of("userAgent=kubectl"),
        Value::Null,
        200,
    )
    .await;
    assert_eq!(other["count"], 0);

    let path = of("verb=create&atLeast=3&waitSeconds=60&limit=0");
    let begin = Instant::now();
    let (answer, ()) = tokio::join!(call(&server, Method::GET, &path, Value::Null, 200), async {
        sleep(Duration::from_secs(7)).await;
        post(&server, MAPS, &map("c")).await.expect_ok();
    });
    assert_eq!(
        (&answer["met"], &answer["count"], begin.elapsed().as_secs()),
        (&json!(true), &json!(3), 7)
    );
    let late = call(
        &server,
        Method::GET,
        &of("verb=create&atLeast=9&waitSeconds=5"),
        Value::Null,
        200,
    )
    .await;
    assert_eq!(
        (&late["met"], begin.elapsed().as_secs()),
        (&json!(false), 12)
    );
    call(&server, Method::DELETE, "requests", Value::Null, 200).await;
    let none = call(&server, Method::GET, "requests", Value::Null, 200).await;
    assert_eq!(none, json!({"count": 0, "dropped": 0, "items": []}));
}

#[tokio::test(start_paused = true)]
async fn snapshots_and_reset_bring_the_objects_back() {
    let server = controlled().await;
    post(&server, MAPS, &map("a")).await.expect_ok();
    let taken = call(&server, Method::PUT, "snapshots/one", Value::Null, 201).await;
    assert_eq!(
        taken["resourceVersion"],
        server.resource_version().to_string()
    );
    let all = call(&server, Method::GET, "snapshots", Value::Null, 200).await;
    assert_eq!(all["items"], json!([taken]));
    post(&server, MAPS, &map("b")).await.expect_ok();
    delete(&server, &format!("{MAPS}/a"), &Value::Null)
        .await
        .expect_ok();
    call(
        &server,
        Method::POST,
        "faults",
        json!({"verb": "get", "fault": "reset"}),
        201,
    )
    .await;

    let restored = call(
        &server,
        Method::POST,
        "snapshots/one/restore",
        Value::Null,
        200,
    )
    .await;
    assert_eq!(
        restored,
        json!({"written": 2, "resourceVersion": server.resource_version().to_string()})
    );
    let names = |list: Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap().iter();
        items
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(get(&server, MAPS).await.expect_ok()), ["a"]);

    call(&server, Method::POST, "reset", Value::Null, 200).await;
    let empty: [&str; 0] = [];
    assert_eq!(names(get(&server, MAPS).await.expect_ok()), empty);
    let faults = call(&server, Method::GET, "faults", Value::Null, 200).await;
    assert_eq!(faults["items"], json!([]));
    let requests = call(&server, Method::GET, "requests", Value::Null, 200).await;
    assert_eq!(requests["count"], 1, "the list above alone");
    // Snapshots outlive a reset.
    call(
        &server,
        Method::POST,
        "snapshots/one/restore",
        Value::Null,
        200,
    )
    .await;
    assert_eq!(names(get(&server, MAPS).await.expect_ok()), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn time_passes_for_dates_tokens_events_and_history() {
    let server = controlled().await;
    let account = json!({"metadata": {"name": "bot"}});
    post(
        &server,
        "/api/v1/namespaces/default/serviceaccounts",
        &account,
    )
    .await
    .expect_ok();
    let token = "/api/v1/namespaces/default/serviceaccounts/bot/token";
    let request = json!({"spec": {"expirationSeconds": 3600}});
    let token = post(&server, token, &request).await.expect_ok();
    let review = json!({"spec": {"token": token["status"]["token"]}});
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let is_valid = async || {
        post(&server, reviews, &review).await.expect_ok()["status"]["authenticated"] == true
    };
    assert!(is_valid().await);
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}});
    let events = "/api/v1/namespaces/default/events";
    post(&server, events, &event).await.expect_ok();
    let start = server.resource_version();
    for n in 0..200 {
        post(&server, MAPS, &map(&format!("m{n}")))
            .await
            .expect_ok();
    }
    let old = format!("{MAPS}?watch=true&resourceVersion={start}");
    let begin = Instant::now();
    watch(&server, &old).await.brief().await.unwrap();

    let advanced = call(
        &server,
        Method::POST,
        "clock/advance",
        json!({"seconds": 4000.5}),
        200,
    )
    .await;
    assert_eq!(
        advanced,
        json!({"now": "2026-01-01T01:06:40.5Z", "advancedSeconds": 4000.5})
    );
    settle().await;
    assert!(!is_valid().await);
    assert_eq!(get(&server, &format!("{events}/e")).await.code, 404);
    let late = post(&server, MAPS, &map("late")).await.expect_ok();
    assert_eq!(
        late["metadata"]["creationTimestamp"],
        "2026-01-01T01:06:40Z"
    );
    let gone = watch(&server, &old).await.next().await.unwrap();
    assert_eq!(
        (&gone["type"], &gone["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert!(begin.elapsed() < Duration::from_secs(1));
    let twice = call(
        &server,
        Method::POST,
        "clock/advance",
        json!({"seconds": 1}),
        200,
    )
    .await;
    assert_eq!(twice["advancedSeconds"], 4001.5);
}

#[tokio::test]
async fn a_server_has_a_clock_that_can_be_advanced_or_says_that_it_has_none() {
    let server = ApiServer::builder().control(true).start().await.unwrap();
    let before = jiff_seconds(&call(&server, Method::GET, "clock", Value::Null, 200).await);
    call(
        &server,
        Method::POST,
        "clock/advance",
        json!({"seconds": 7200}),
        200,
    )
    .await;
    let after = jiff_seconds(&call(&server, Method::GET, "clock", Value::Null, 200).await);
    assert!((7200..7260).contains(&(after - before)), "{before} {after}");

    let machine = reeve_clock::Clock::system();
    let server = ApiServer::builder()
        .control(true)
        .clock(machine)
        .start()
        .await
        .unwrap();
    let refused = call(
        &server,
        Method::POST,
        "clock/advance",
        json!({"seconds": 7200}),
        422,
    )
    .await;
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("that of the machine")
    );
}

/// The time of an answer in seconds.
fn jiff_seconds(clock: &Value) -> i64 {
    let now: jiff::Timestamp = clock["now"].as_str().unwrap().parse().unwrap();
    now.as_second()
}

#[tokio::test(start_paused = true)]
async fn history_is_compacted_and_forgotten() {
    let server = controlled().await;
    for name in ["a", "b", "c"] {
        post(&server, MAPS, &map(name)).await.expect_ok();
    }
    let page = get(&server, &format!("{MAPS}?limit=1")).await.expect_ok();
    let next = format!(
        "{MAPS}?limit=1&continue={}",
        page["metadata"]["continue"].as_str().unwrap()
    );
    let start = version(&page);
    post(&server, MAPS, &map("d")).await.expect_ok();
    get(&server, &next).await.expect_ok();
    call(&server, Method::POST, "history/compact", Value::Null, 200).await;
    assert_eq!(get(&server, &next).await.code, 410);
    let old = format!("{MAPS}?watch=true&resourceVersion={start}");
    assert_eq!(watch(&server, &old).await.brief().await.unwrap().1, "d");
    call(
        &server,
        Method::POST,
        "history/forget",
        json!({"resourceVersion": start.to_string()}),
        200,
    )
    .await;
    assert_eq!(watch(&server, &old).await.brief().await.unwrap().1, "d");
    call(&server, Method::POST, "history/forget", Value::Null, 200).await;
    assert_eq!(
        watch(&server, &old).await.next().await.unwrap()["object"]["code"],
        410
    );
}

#[tokio::test(start_paused = true)]
async fn watches_are_closed_and_their_features_switched_off() {
    let server = controlled().await;
    let path = format!("{MAPS}?watch=true");
    let mut open = watch(&server, &path).await;
    call(&server, Method::DELETE, "watches", Value::Null, 200).await;
    assert_eq!(open.next().await, None);
    let both = json!({"bookmarks": true, "streamingLists": true});
    assert_eq!(
        call(&server, Method::GET, "switches", Value::Null, 200).await,
        both
    );
    let off = call(
        &server,
        Method::PATCH,
        "switches",
        json!({"streamingLists": false}),
        200,
    )
    .await;
    assert_eq!(off, json!({"bookmarks": true, "streamingLists": false}));
    let streaming = format!(
        "{path}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    assert_eq!(get(&server, &streaming).await.code, 422);
    call(
        &server,
        Method::PATCH,
        "switches",
        json!({"bookmarks": false}),
        200,
    )
    .await;
    call(&server, Method::POST, "reset", Value::Null, 200).await;
    assert_eq!(
        call(&server, Method::GET, "switches", Value::Null, 200).await,
        both
    );
}

#[tokio::test(start_paused = true)]
async fn an_outage_begins_after_the_answer_and_ends_by_itself() {
    let server = controlled().await;
    let get = async || try_send(&server, Method::GET, MAPS, "", "").await;
    let answer = call(&server, Method::POST, "outage", json!({"seconds": 3}), 202).await;
    assert_eq!(answer["seconds"], 3.0);
    call(&server, Method::POST, "outage", json!({"seconds": 3}), 409).await;
    assert!(get().await.is_ok());
    sleep(Duration::from_secs(1)).await;
    assert!(get().await.is_err());
    sleep(Duration::from_secs(3)).await;
    assert!(get().await.is_ok());
    call(&server, Method::POST, "outage", json!({"seconds": 1}), 202).await;
}

#[tokio::test(start_paused = true)]
async fn only_administrators_and_roles_for_its_paths_may_use_it_and_no_web_page() {
    use reeve_apiserver::rbac::User;
    let server = builder()
        .rbac()
        .token("tester", User::new("tester", [] as [&str; 0]))
        .token("other", User::new("other", [] as [&str; 0]))
        .start()
        .await
        .unwrap();
    let code = async |token: Option<&str>, method: &str, path: &str, origin: bool| {
        let mut request = http::Request::builder().method(method).uri(path);
        if origin {
            request = request.header("origin", "https://example.com");
        }
        let request = request.body(Vec::new()).unwrap();
        let client = match token {
            Some(token) => server.client_with(Some(token)),
            None => server.client(),
        };
        match client.request::<Value>(request).await {
            Ok(_) => 200,
            Err(kube_client::Error::Api(status)) => status.code,
            Err(error) => panic!("{error}"),
        }
    };
    let path = "/reeve/v1/requests";
    assert_eq!(code(None, "GET", path, false).await, 200);
    assert_eq!(code(None, "GET", path, true).await, 403);
    assert_eq!(code(Some("wrong"), "GET", path, false).await, 401);
    for token in ["tester", "other"] {
        assert_eq!(code(Some(token), "GET", path, false).await, 403);
    }
    for (path, object) in [
        (
            "clusterroles",
            json!({"metadata": {"name": "t"}, "rules": [{"nonResourceURLs": ["/reeve/v1/*"], "verbs": ["get"]}]}),
        ),
        (
            "clusterrolebindings",
            json!({
                "metadata": {"name": "t"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "t"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tester"}],
            }),
        ),
    ] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{path}");
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(object.to_string().into_bytes()).unwrap();
        server.client().request::<Value>(request).await.unwrap();
    }
    assert_eq!(code(Some("tester"), "GET", path, false).await, 200);
    assert_eq!(code(Some("tester"), "DELETE", path, false).await, 403);
    assert_eq!(code(Some("other"), "GET", path, false).await, 403);
}

#[tokio::test(start_paused = true)]
async fn the_summary_counts_and_lists_the_paths() {
    let server = controlled().await;
    get(&server, MAPS).await.expect_ok();
    let summary = call(&server, Method::GET, "", Value::Null, 200).await;
    assert_eq!(
        (
            &summary["requests"],
            &summary["faults"],
            &summary["snapshots"]
        ),
        (&json!(1), &json!(0), &json!(0))
    );
    // Each listed path exists.
    for path in summary["paths"].as_array().unwrap() {
        let path = path.as_str().unwrap();
        let answer = try_send(&server, Method::HEAD, path, "", "").await.unwrap();
        assert_eq!(answer.code, 405, "{path}");
    }
}
