//! LIST and GET: versions, pages, selectors.

use http_body::Body as _;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

use crate::rules::raw::*;

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_has_a_version_and_items() {
    let server = server().await;
    let list = get(&server, MAPS).await.expect_ok();
    assert_eq!(list["items"], serde_json::json!([]));
    assert_eq!(version(&list), server.resource_version());
    assert_eq!(list["kind"], "ConfigMapList");
}

#[tokio::test(start_paused = true)]
async fn a_list_is_as_new_as_writes_of_other_kinds() {
    let server = server().await;
    let secret = post(&server, "/api/v1/namespaces/default/secrets", &map("s"))
        .await
        .expect_ok();
    let list = get(&server, MAPS).await.expect_ok();
    assert!(version(&list) >= version(&secret));
}

#[tokio::test(start_paused = true)]
async fn pages_show_the_state_of_the_first_one() {
    let server = server().await;
    for name in ["a", "b", "c", "d", "e"] {
        post(&server, MAPS, &map(name)).await.expect_ok();
    }
    let first = get(&server, &format!("{MAPS}?limit=2")).await.expect_ok();
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    delete(&server, &format!("{MAPS}/c"), &Value::Null)
        .await
        .expect_ok();
    post(&server, MAPS, &map("bb")).await.expect_ok();
    let mut seen = names(&first);
    let mut token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    while !token.is_empty() {
        let page = get(&server, &format!("{MAPS}?limit=2&continue={token}"))
            .await
            .expect_ok();
        assert_eq!(
            version(&page),
            version(&first),
            "all pages have the version of the first"
        );
        seen.extend(names(&page));
        token = page["metadata"]["continue"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
    }
    assert_eq!(
        seen,
        ["a", "b", "c", "d", "e"],
        "c was there then, and bb was not"
    );
}

#[tokio::test(start_paused = true)]
async fn an_expired_page_offers_a_token_to_go_on_inconsistently() {
    let server = server().await;
    for name in ["a", "b", "c"] {
        post(&server, MAPS, &map(name)).await.expect_ok();
    }
    let first = get(&server, &format!("{MAPS}?limit=1")).await.expect_ok();
    post(&server, MAPS, &map("bb")).await.expect_ok();
    server.compact(None);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let expired = get(&server, &format!("{MAPS}?limit=1&continue={token}")).await;
    assert_eq!(expired.code, 410);
    let status = expired.json();
    assert_eq!(status["reason"], "Expired");
    assert!(
        expired
            .message()
            .starts_with("The provided continue parameter is too old")
    );
    let token = status["metadata"]["continue"].as_str().unwrap();
    let rest = get(&server, &format!("{MAPS}?continue={token}"))
        .await
        .expect_ok();
    assert_eq!(names(&rest), ["b", "bb", "c"]);
}

#[tokio::test(start_paused = true)]
async fn an_exact_version_reads_the_past_until_it_is_compacted() {
    let server = server().await;
    let first = post(&server, MAPS, &map("a")).await.expect_ok();
    post(&server, MAPS, &map("b")).await.expect_ok();
    let path = format!(
        "{MAPS}?resourceVersion={}&resourceVersionMatch=Exact",
        version(&first)
    );
    let past = get(&server, &path).await.expect_ok();
    assert_eq!(names(&past), ["a"]);
    assert_eq!(version(&past), version(&first));
    server.compact(None);
    assert_eq!(get(&server, &path).await.code, 410);
}

#[tokio::test(start_paused = true)]
async fn pages_of_a_version_are_that_very_one_unless_a_newer_will_do() {
    let server = server().await;
    for name in ["a", "b"] {
        post(&server, MAPS, &map(name)).await.expect_ok();
    }
    let first = get(&server, MAPS).await.expect_ok();
    post(&server, MAPS, &map("c")).await.expect_ok();
    let exactly = format!("{MAPS}?limit=2&resourceVersion={}", version(&first));
    let list = get(&server, &exactly).await.expect_ok();
    assert_eq!(names(&list), ["a", "b"]);
    assert_eq!(version(&list), version(&first));

    let not_older = format!("{exactly}&resourceVersionMatch=NotOlderThan");
    let page = get(&server, &not_older).await.expect_ok();
    assert_eq!(names(&page), ["a", "b"]);
    assert_ne!(version(&page), version(&first));
    let token = page["metadata"]["continue"].as_str().unwrap();
    let next = format!("{MAPS}?limit=2&continue={token}");
    assert_eq!(names(&get(&server, &next).await.expect_ok()), ["c"]);

    let both = format!("{not_older}&continue={token}");
    let answer = get(&server, &both).await;
    assert_eq!(answer.code, 422, "{}", answer.message());
    server.compact(None);
    assert_eq!(get(&server, &exactly).await.code, 410);
    assert_eq!(
        names(&get(&server, &not_older).await.expect_ok()),
        ["a", "b"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_limit_does_not_count_for_version_zero() {
    let server = server().await;
    for name in ["a", "b", "c"] {
        post(&server, MAPS, &map(name)).await.expect_ok();
    }
    let list = get(&server, &format!("{MAPS}?resourceVersion=0&limit=1"))
        .await
        .expect_ok();
    assert_eq!(names(&list).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_version_from_the_future_is_waited_for_three_seconds() {
    let server = server().await;
    let started = tokio::time::Instant::now();
    let answer = get(&server, &format!("{MAPS}?resourceVersion=99999999")).await;
    assert_eq!(answer.code, 504);
    assert_eq!(
        answer.json()["details"]["causes"][0]["reason"],
        "ResourceVersionTooLarge"
    );
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(started.elapsed(), std::time::Duration::from_secs(3));

    let soon = server.resource_version() + 1;
    let path = format!("{MAPS}?resourceVersion={soon}");
    let (list, _) = tokio::join!(get(&server, &path), post_map_later(&server));
    assert_eq!(names(&list.expect_ok()), ["late"]);
}

async fn post_map_later(server: &reeve_apiserver::ApiServer) {
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    post(server, MAPS, &map("late")).await.expect_ok();
}

#[tokio::test(start_paused = true)]
async fn options_that_contradict_each_other_are_invalid() {
    let server = server().await;
    for (query, text) in [
        (
            "resourceVersionMatch=Exact",
            "forbidden unless resourceVersion is provided",
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            "forbidden for resourceVersion \"0\"",
        ),
        (
            "resourceVersionMatch=Other&resourceVersion=5",
            "Unsupported value: \"Other\"",
        ),
        (
            "sendInitialEvents=true",
            "sendInitialEvents is forbidden for list",
        ),
    ] {
        let answer = get(&server, &format!("{MAPS}?{query}")).await;
        assert_eq!(answer.code, 422, "{query}");
        assert!(answer.message().contains(text), "{}", answer.message());
    }
    let answer = get(&server, &format!("{MAPS}?resourceVersion=x")).await;
    assert_eq!(answer.code, 400);
}

#[tokio::test(start_paused = true)]
async fn selectors_choose_by_label_and_field() {
    let server = server().await;
    for (name, value) in [("a", "1"), ("b", "2")] {
        post(&server, MAPS, &labelled(name, value))
            .await
            .expect_ok();
    }
    post(&server, MAPS, &map("c")).await.expect_ok();
    for (query, expected) in [
        ("labelSelector=app%3D1", vec!["a"]),
        ("labelSelector=app!%3D1", vec!["b", "c"]),
        ("labelSelector=app+in+(1,2)", vec!["a", "b"]),
        ("labelSelector=!app", vec!["c"]),
        ("fieldSelector=metadata.name%3Db", vec!["b"]),
        (
            "fieldSelector=metadata.name!%3Db,metadata.namespace%3Ddefault",
            vec!["a", "c"],
        ),
    ] {
        let list = get(&server, &format!("{MAPS}?{query}")).await.expect_ok();
        assert_eq!(names(&list), expected, "{query}");
    }
    let page = get(&server, &format!("{MAPS}?labelSelector=app&limit=1"))
        .await
        .expect_ok();
    assert!(
        page["metadata"].get("remainingItemCount").is_none(),
        "there is no count with a selector"
    );
    for query in [
        "labelSelector=a+b",
        "fieldSelector=spec.x%3D1",
        "fieldSelector=x",
    ] {
        assert_eq!(
            get(&server, &format!("{MAPS}?{query}")).await.code,
            400,
            "{query}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn items_of_built_in_lists_have_no_type_and_those_of_custom_ones_do() {
    let server = server().await;
    post(&server, MAPS, &map("a")).await.expect_ok();
    let list = get(&server, MAPS).await.expect_ok();
    assert!(list["items"][0].get("kind").is_none());
    post(&server, CRDS, &foos()).await.expect_ok();
    post(&server, FOOS, &foo("a")).await.expect_ok();
    let list = get(&server, FOOS).await.expect_ok();
    assert_eq!(list["items"][0]["kind"], "Foo");
    assert_eq!(list["items"][0]["apiVersion"], "example.com/v1");
}

/// Reads a list: its bytes, and whether its length was known.
async fn read(server: &reeve_apiserver::ApiServer, path: &str, accept: &str) -> (Vec<u8>, bool) {
    let request = http::Request::builder()
        .uri(path)
        .header("accept", accept)
        .body(String::new())
        .unwrap();
    let response = server.service().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = response.into_body();
    let is_known = body.size_hint().exact().is_some();
    let content = body.collect().await.unwrap().to_bytes();
    (content.to_vec(), is_known)
}

#[tokio::test(start_paused = true)]
async fn a_long_list_comes_in_pieces_and_is_the_same_in_every_form() {
    let server = server().await;
    let names: Vec<String> = (0..100).map(|at| format!("m{at:03}")).collect();
    for name in &names {
        let mut map = map(name);
        map["data"]["text"] = "x".repeat(2000).into();
        post(&server, MAPS, &map).await.expect_ok();
    }
    let list = get(&server, MAPS).await.expect_ok();
    assert_eq!(self::names(&list), names);
    let forms = [
        ("application/json", false),
        ("application/vnd.kubernetes.protobuf", false),
        ("application/json;as=Table;v=v1;g=meta.k8s.io", true),
        (
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            true,
        ),
    ];
    for (accept, is_short) in forms {
        let (content, is_known) = read(&server, MAPS, accept).await;
        assert_eq!(is_known, content.len() < 64 * 1024, "{accept}");
        assert!(is_short || !is_known, "{accept}");
        let (first, is_known) = read(&server, &format!("{MAPS}?limit=2"), accept).await;
        assert!(is_known && first.len() < content.len());
        if accept.ends_with("protobuf") {
            let found: Value = reeve_wire::from_slice(&content).unwrap();
            let items = found["items"].as_array().unwrap().iter();
            let wanted = list["items"].as_array().unwrap().iter();
            for (found, wanted) in items.zip(wanted) {
                for field in ["metadata", "data"] {
                    assert_eq!(found[field], wanted[field]);
                }
            }
            assert_eq!(self::names(&found), names);
            continue;
        }
        let found: Value = serde_json::from_slice(&content).unwrap();
        match found["rows"].as_array() {
            Some(rows) => {
                let cells = rows.iter().map(|row| row["cells"][0].as_str().unwrap());
                assert_eq!(cells.collect::<Vec<_>>(), names);
            }
            None => assert_eq!(self::names(&found), names),
        }
        if accept == "application/json" {
            assert_eq!(found, list);
        }
    }
    let (indented, is_known) = read(&server, &format!("{MAPS}?pretty=1"), "application/json").await;
    assert!(is_known);
    assert_eq!(serde_json::from_slice::<Value>(&indented).unwrap(), list);
    let (yaml, is_known) = read(&server, MAPS, "application/yaml").await;
    assert!(is_known);
    let yaml = String::from_utf8(yaml).unwrap();
    assert_eq!(yaml.matches("    name: m").count(), names.len());
}
