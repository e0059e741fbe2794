//! Watching.

use serde_json::json;

use super::{cases, config_map, labelled, widget};
use crate::conformance::case::{MERGE, METADATA, TABLE};

cases! { "watches";
    ["W-1"] "a watch from a version sends later events" => |t| {
        let first = t.make("{cm}", config_map("a", "1")).await;
        t.post("{cm}", config_map("b", "1")).await;
        let mut watch = t.watch(&format!("{{cm}}?watch=true&resourceVersion={}", first.version())).await;
        t.patch(MERGE, "{cm}/a", json!({"data": {"key": "2"}})).await;
        t.delete("{cm}/b").await;
        t.events(&mut watch, 3).await;
    }
    ["W-1"] "a watch without a version begins with the existing objects" => |t| {
        t.make("{cm}", config_map("b", "1")).await;
        t.make("{cm}", config_map("a", "1")).await;
        let mut watch = t.watch("{cm}?watch=1").await;
        t.events(&mut watch, 2).await;
        t.post("{cm}", config_map("c", "1")).await;
        t.events(&mut watch, 1).await;
    }
    ["W-1"] "a watch from version 0 begins with the existing objects" => |t| {
        let last = t.make("{w}", widget("a", json!({}))).await.version();
        t.until(&format!("{{w}}?resourceVersion={last}"), |answer| answer.code == 200).await;
        let mut watch = t.watch("{w}?watch=true&resourceVersion=0").await;
        t.events(&mut watch, 1).await;
        t.patch(MERGE, "{w}/a", json!({"spec": {"color": "red"}})).await;
        t.events(&mut watch, 1).await;
    }
    ["W-1 RV-4"] "a watch from a malformed version is refused" => |t| {
        t.get("{cm}?watch=true&resourceVersion=abc").await;
        t.get("{w}?watch=true&resourceVersion=abc").await;
    }
    ["W-2"] "a watch from before a kind was served gets one error event and ends" => |t| {
        t.make(super::kinds::DEFINITIONS, super::kinds::own("dogs", "Dog", super::kinds::open_schema())).await;
        let dogs = "/apis/{own}/v1/namespaces/{ns}/dogs";
        t.until(dogs, |answer| answer.code == 200).await;
        let mut watch = t.watch(&format!("{dogs}?watch=true&resourceVersion=1&timeoutSeconds=5")).await;
        t.events_to_end(&mut watch).await;
    }
    ["W-3"] "an idle kind's watch resumes from an old version" => |t| {
        let first = t.make("{w}", widget("a", json!({}))).await;
        for value in 0..5 {
            t.setup("PATCH", "{w}/a", json!({"spec": {"replicas": value + 2}})).await;
        }
        let mut watch = t.watch(&format!("{{w}}?watch=true&resourceVersion={}", first.version())).await;
        t.events(&mut watch, 5).await;
    }
    ["W-4"] "bookmarks are sent shortly before the end of a watch that allows them" => |t| {
        let first = t.make("{cm}", config_map("a", "1")).await;
        let mut watch = t.watch(&format!("{{cm}}?watch=true&allowWatchBookmarks=true&timeoutSeconds=4&resourceVersion={}", first.version())).await;
        let events = t.unwritten_to_end(&mut watch).await;
        t.note("some", json!(!events.is_empty()));
        t.note("all are bookmarks", json!(events.iter().all(|event| event["type"] == "BOOKMARK")));
        t.note("the last", events.last().cloned().unwrap_or_default());
    }
    ["W-4 W-6"] "a watch that does not allow bookmarks gets none, and ends in time" => |t| {
        let first = t.make("{cm}", config_map("a", "1")).await;
        let mut watch = t.watch(&format!("{{cm}}?watch=true&timeoutSeconds=2&resourceVersion={}", first.version())).await;
        t.events_to_end(&mut watch).await;
    }
    ["W-5"] "a streaming list sends all objects, then the end bookmark, then later events" => |t| {
        t.make("{w}", widget("a", json!({}))).await;
        t.make("{w}", widget("b", json!({}))).await;
        let mut watch = t.watch("{w}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true").await;
        t.events(&mut watch, 3).await;
        t.post("{w}", widget("c", json!({}))).await;
        t.events(&mut watch, 1).await;
    }
    ["W-5"] "an empty streaming list is only the end bookmark" => |t| {
        let mut watch = t.watch("{cm}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=0").await;
        t.events(&mut watch, 1).await;
        let mut watch = t.watch("{w}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true").await;
        t.events(&mut watch, 1).await;
    }
    ["W-5"] "the end bookmark's version is not below any initial object's" => |t| {
        for name in ["a", "b", "c"] {
            t.make("{cm}", config_map(name, "1")).await;
        }
        let mut watch = t.watch("{cm}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true").await;
        let events = t.events(&mut watch, 4).await;
        let version = |at: usize| events[at]["object"]["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok());
        t.note("not below", json!((0..3).all(|at| version(at) <= version(3))));
    }
    ["W-5"] "a streaming list without resourceVersionMatch is invalid" => |t| {
        t.get("{cm}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true").await;
    }
    ["W-5"] "a streaming list at exactly a version is invalid" => |t| {
        t.get("{cm}?watch=true&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=5").await;
    }
    ["W-5"] "sendInitialEvents on a plain list is invalid" => |t| {
        t.get("{cm}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan").await;
        t.get("{cm}?sendInitialEvents=false").await;
    }
    ["W-5"] "resourceVersionMatch on a watch needs sendInitialEvents" => |t| {
        t.get("{cm}?watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=5").await;
        t.get("{cm}?watch=true&resourceVersionMatch=NotOlderThan").await;
    }
    ["W-5"] "sendInitialEvents=false sends only later events" => |t| {
        let first = t.make("{cm}", config_map("a", "1")).await;
        let mut watch = t.watch(&format!("{{cm}}?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion={}", first.version())).await;
        t.post("{cm}", config_map("b", "1")).await;
        t.events(&mut watch, 1).await;
    }
    ["W-5"] "a streaming list without bookmarks sends the objects and continues" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        let mut watch = t.watch("{cm}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan").await;
        t.events(&mut watch, 1).await;
        t.post("{cm}", config_map("b", "1")).await;
        t.events(&mut watch, 1).await;
    }
    ["W-5"] "a streaming list from a version from the future is refused" => |t| {
        t.get("{cm}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=99999999999&timeoutSeconds=8").await;
    }
    ["W-7"] "an object that enters a selection is added, one that leaves is deleted with its former state" => |t| {
        let first = t.make("{cm}", labelled("a", json!({"app": "no"}))).await;
        let mut watch = t.watch(&format!("{{cm}}?watch=true&labelSelector=app%3Dyes&resourceVersion={}", first.version())).await;
        t.patch(MERGE, "{cm}/a", json!({"data": {"still": "outside"}})).await;
        t.patch(MERGE, "{cm}/a", json!({"metadata": {"labels": {"app": "yes"}}})).await;
        t.patch(MERGE, "{cm}/a", json!({"data": {"still": "inside"}})).await;
        t.patch(MERGE, "{cm}/a", json!({"metadata": {"labels": {"app": "no"}}})).await;
        t.patch(MERGE, "{cm}/a", json!({"metadata": {"labels": {"app": "yes"}}})).await;
        t.events(&mut watch, 4).await;
    }
    ["W-7"] "an object that leaves a selection and is deleted sends one event" => |t| {
        let first = t.make("{w}", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "labels": {"app": "yes"}}})).await;
        let mut watch = t.watch(&format!("{{w}}?watch=true&labelSelector=app&resourceVersion={}", first.version())).await;
        t.patch(MERGE, "{w}/a", json!({"metadata": {"labels": {"app": null}}})).await;
        t.delete("{w}/a").await;
        t.make("{w}", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "marker", "labels": {"app": "yes"}}})).await;
        t.events(&mut watch, 2).await;
    }
    ["W-7 SEL-2"] "a selectable field moves objects in and out of a watch" => |t| {
        let first = t.make("{w}", widget("a", json!({"color": "red"}))).await;
        let mut watch = t.watch(&format!("{{w}}?watch=true&fieldSelector=spec.color%3Dred&resourceVersion={}", first.version())).await;
        t.patch(MERGE, "{w}/a", json!({"spec": {"color": "blue"}})).await;
        t.patch(MERGE, "{w}/a", json!({"spec": {"color": "red"}})).await;
        t.events(&mut watch, 2).await;
    }
    ["W-8"] "a deleted event has the last state with the deletion's version" => |t| {
        let first = t.make("{cm}", config_map("a", "1")).await;
        let mut watch = t.watch(&format!("{{cm}}?watch=true&resourceVersion={}", first.version())).await;
        t.delete("{cm}/a").await;
        t.events(&mut watch, 1).await;
    }
    ["W-8 D-2"] "the deleted event after the removal of the last finalizer still lists it" => |t| {
        let first = t.make("{cm}", json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})).await;
        let mut watch = t.watch(&format!("{{cm}}?watch=true&resourceVersion={}", first.version())).await;
        t.delete("{cm}/a").await;
        t.patch(MERGE, "{cm}/a", json!({"metadata": {"finalizers": null}})).await;
        t.events(&mut watch, 2).await;
    }
    ["W-9"] "events of two objects are in the order of the writes" => |t| {
        let first = t.make("{w}", widget("a", json!({}))).await;
        let mut watch = t.watch(&format!("{{w}}?watch=true&resourceVersion={}", first.version())).await;
        t.make("{w}", widget("b", json!({}))).await;
        t.setup("PATCH", "{w}/a", json!({"spec": {"replicas": 2}})).await;
        t.setup("PATCH", "{w}/b", json!({"spec": {"replicas": 3}})).await;
        t.setup("DELETE", "{w}/a", json!(null)).await;
        t.events(&mut watch, 4).await;
    }
    ["W-12"] "watches of one name, of the namespace and of the cluster see the same versions" => |t| {
        let first = t.make("{cm}", labelled("a", json!({"mine": "{me}"}))).await.version();
        t.setup("PATCH", "{cm}/a", json!({"data": {"key": "2"}})).await;
        for path in ["{cm}?fieldSelector=metadata.name%3Da&watch=true&", "{cm}?watch=true&", "/api/v1/configmaps?labelSelector=mine%3D{me}&watch=true&"] {
            let mut watch = t.watch(&format!("{path}resourceVersion={first}")).await;
            t.events(&mut watch, 1).await;
        }
    }
    ["W-11"] "a watch in the old path form works" => |t| {
        let first = t.make("{cm}", config_map("a", "1")).await;
        let mut watch = t.watch(&format!("/api/v1/watch/namespaces/{{ns}}/configmaps?resourceVersion={}", first.version())).await;
        t.make("{cm}", config_map("b", "1")).await;
        t.events(&mut watch, 1).await;
    }
    ["W-11 T-1"] "a watch of tables sends tables, with columns only in the first" => |t| {
        let first = t.make("{w}", widget("a", json!({"color": "red"}))).await;
        let mut watch = t.watch_as(TABLE, &format!("{{w}}?watch=true&resourceVersion={}", first.version())).await;
        t.setup("PATCH", "{w}/a", json!({"spec": {"replicas": 2}})).await;
        t.setup("PATCH", "{w}/a", json!({"spec": {"replicas": 3}})).await;
        t.events(&mut watch, 2).await;
    }
    ["W-11"] "a watch of metadata sends only metadata" => |t| {
        let first = t.make("{w}", widget("a", json!({"color": "red"}))).await;
        let mut watch = t.watch_as(METADATA, &format!("{{w}}?watch=true&resourceVersion={}", first.version())).await;
        t.setup("PATCH", "{w}/a", json!({"spec": {"replicas": 2}})).await;
        t.events(&mut watch, 1).await;
    }
    ["W-6"] "a watch with a timeout that is not a number is refused" => |t| {
        t.get("{cm}?watch=true&timeoutSeconds=x").await;
    }
    ["W-1"] "a watch from a version from the future waits and does not fail" => |t| {
        let mut watch = t.watch("{w}?watch=true&resourceVersion=99999999999&timeoutSeconds=2").await;
        t.events_to_end(&mut watch).await;
    }
    ["W-12"] "a GET of one object with watch=true watches that object" => |t| {
        let first = t.make("{cm}", config_map("a", "1")).await;
        t.make("{cm}", config_map("b", "1")).await;
        let mut watch = t.watch(&format!("{{cm}}/a?watch=true&resourceVersion={}&timeoutSeconds=3", first.version())).await;
        t.setup("PATCH", "{cm}/a", json!({"data": {"key": "2"}})).await;
        t.events(&mut watch, 1).await;
    }
}
