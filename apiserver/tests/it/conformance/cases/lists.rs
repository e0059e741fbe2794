//! resourceVersion, lists, pages.

use serde_json::json;

use super::{cases, config_map, widget};

cases! { "lists";
    ["RV-1 RV-2"] "each write raises the version, and a list's version is not below any write's" => |t| {
        t.post("{cm}", config_map("a", "1")).await;
        t.post("{w}", widget("a", json!({}))).await;
        t.post("{cm}", config_map("b", "1")).await;
        t.get("{cm}").await;
        t.get("{w}").await;
    }
    ["RV-2 LS-1"] "an empty list has a version and an empty array of items" => |t| {
        t.get("{cm}").await;
        t.get("{w}").await;
    }
    ["LS-1 PG-3"] "items are in the order of their names, built-ins without kind, custom resources with kind" => |t| {
        for name in ["b", "a-2", "a", "a.1", "c"] {
            t.make("{cm}", config_map(name, "1")).await;
            t.make("{w}", widget(name, json!({}))).await;
        }
        t.get("{cm}").await;
        t.get("{w}").await;
    }
    ["RV-3"] "a PUT without a change keeps the version and sends no event" => |t| {
        let made = t.post("{cm}", config_map("a", "1")).await;
        let mut watch = t.watch(&format!("{{cm}}?watch=true&resourceVersion={}", made.version())).await;
        t.put("{cm}/a", config_map("a", "1")).await;
        t.post("{cm}", config_map("marker", "1")).await;
        t.events(&mut watch, 1).await;
    }
    ["RV-3"] "an empty merge patch keeps the version of a custom resource" => |t| {
        t.post("{w}", widget("a", json!({"color": "red"}))).await;
        t.patch(crate::conformance::case::MERGE, "{w}/a", json!({})).await;
        t.patch(crate::conformance::case::MERGE, "{w}/a", json!({"spec": {"color": "red"}})).await;
    }
    ["RV-4"] "a get accepts version 0, its own version and an older one" => |t| {
        let made = t.post("{cm}", config_map("a", "1")).await;
        t.get(&format!("{{cm}}/a?resourceVersion={}", made.version())).await;
        // An answer at version 0 may lag behind; the read before prevents this.
        t.get("{cm}/a?resourceVersion=0").await;
        t.get("{cm}/a?resourceVersion=1").await;
    }
    ["RV-4"] "a list at version 0 ignores the limit" => |t| {
        for name in ["a", "b", "c"] {
            t.make("{w}", widget(name, json!({}))).await;
        }
        // The cache may lag behind; a read at the version of the last write prevents this.
        let last = t.make("{w}", widget("d", json!({}))).await.version();
        t.get(&format!("{{w}}?resourceVersion={last}&resourceVersionMatch=NotOlderThan")).await;
        t.get("{w}?resourceVersion=0&limit=2").await;
    }
    ["RV-4"] "a list not older than a version has that version's writes" => |t| {
        let made = t.make("{cm}", config_map("a", "1")).await;
        t.get(&format!("{{cm}}?resourceVersion={}&resourceVersionMatch=NotOlderThan", made.version())).await;
        t.get(&format!("{{cm}}?resourceVersion={}", made.version())).await;
    }
    ["RV-4"] "a list at exactly a version does not have later writes" => |t| {
        let first = t.make("{w}", widget("a", json!({"color": "red"}))).await.version();
        t.make("{w}", widget("b", json!({}))).await;
        t.setup("PATCH", "{w}/a", json!({"spec": {"color": "blue"}})).await;
        t.get(&format!("{{w}}?resourceVersion={first}&resourceVersionMatch=Exact")).await;
        t.setup("DELETE", "{w}/a", json!(null)).await;
        t.get(&format!("{{w}}?resourceVersion={first}&resourceVersionMatch=Exact")).await;
        t.get(&format!("{{w}}?resourceVersion={first}&limit=5")).await;
    }
    ["RV-4"] "exactly version 0 is invalid" => |t| {
        t.get("{cm}?resourceVersion=0&resourceVersionMatch=Exact").await;
    }
    ["RV-4"] "a match without a version is invalid" => |t| {
        t.get("{cm}?resourceVersionMatch=NotOlderThan").await;
        t.get("{cm}?resourceVersionMatch=Exact").await;
    }
    ["RV-4"] "an unknown match is invalid" => |t| {
        t.get("{cm}?resourceVersion=5&resourceVersionMatch=Nearly").await;
    }
    ["RV-4"] "a match with a continue token is invalid" => |t| {
        t.get("{cm}?continue=abc&resourceVersion=5&resourceVersionMatch=NotOlderThan").await;
    }
    ["RV-4"] "a version that is not a number is refused" => |t| {
        t.get("{cm}?resourceVersion=abc").await;
        t.get("{w}?resourceVersion=abc").await;
        t.get("{cm}/a?resourceVersion=abc").await;
        t.get("{cm}?resourceVersion=-5").await;
    }
    ["RV-4"] "a list not older than a version from the future times out" => |t| {
        t.get("{cm}?resourceVersion=99999999999&resourceVersionMatch=NotOlderThan").await;
    }
    ["RV-4"] "a get at a version from the future times out" => |t| {
        t.make("{w}", widget("a", json!({}))).await;
        t.get("{w}/a?resourceVersion=99999999999").await;
    }
    ["RV-4"] "a list at exactly a version from the future times out" => |t| {
        t.get("{cm}?resourceVersion=99999999999&resourceVersionMatch=Exact").await;
    }
    ["RV-4"] "a get of an absent object at version 0 is not found" => |t| {
        t.get("{cm}/nothing?resourceVersion=0").await;
        t.get("{cm}/nothing").await;
    }
    ["PG-1"] "pages of one snapshot: continue, the remaining count, and the first page's version" => |t| {
        for name in ["a", "b", "c", "d", "e"] {
            t.make("{cm}", config_map(name, "1")).await;
        }
        let first = t.get("{cm}?limit=2").await;
        t.make("{cm}", config_map("bb", "late")).await;
        t.setup("DELETE", "{cm}/d", json!(null)).await;
        let token = first.text("/metadata/continue");
        let second = t.get(&format!("{{cm}}?limit=2&continue={token}")).await;
        t.note("same version", json!(first.version() == second.version()));
        let token = second.text("/metadata/continue");
        let third = t.get(&format!("{{cm}}?limit=2&continue={token}")).await;
        t.note("same version", json!(first.version() == third.version()));
    }
    ["PG-1"] "a page with a selector has no remaining count" => |t| {
        for name in ["a", "b", "c"] {
            t.make("{cm}", super::labelled(name, json!({"app": "x"}))).await;
        }
        t.get("{cm}?limit=2&labelSelector=app%3Dx").await;
    }
    ["PG-1"] "a page with the last item has no continue token" => |t| {
        for name in ["a", "b"] {
            t.make("{cm}", config_map(name, "1")).await;
        }
        t.get("{cm}?limit=2").await;
        t.get("{cm}?limit=0").await;
    }
    ["PG-1"] "a page of a metadata-only list also continues" => |t| {
        for name in ["a", "b", "c"] {
            t.make("{w}", widget(name, json!({}))).await;
        }
        let first = t.get_as(crate::conformance::case::METADATA_LIST, "{w}?limit=2").await;
        let token = first.text("/metadata/continue");
        t.get_as(crate::conformance::case::METADATA_LIST, &format!("{{w}}?limit=2&continue={token}")).await;
    }
    ["PG-2"] "a malformed continue token is refused" => |t| {
        t.get("{cm}?limit=2&continue=nonsense").await;
        t.get("{cm}?limit=2&continue=e30").await;
    }
    ["PG-1"] "a negative limit is refused" => |t| {
        t.get("{cm}?limit=-1").await;
        t.get("{cm}?limit=x").await;
    }
    ["RV-4 PG-1"] "a continue token and a version exclude each other" => |t| {
        for name in ["a", "b", "c"] {
            t.make("{cm}", config_map(name, "1")).await;
        }
        let first = t.get("{cm}?limit=2").await;
        let token = first.text("/metadata/continue");
        t.get(&format!("{{cm}}?limit=2&continue={token}&resourceVersion=77")).await;
        t.get(&format!("{{cm}}?limit=2&continue={token}&resourceVersion=0")).await;
    }
    ["LS-1"] "a list of all namespaces has objects of each" => |t| {
        t.make("{cm}", super::labelled("a", json!({"mine": "{me}"}))).await;
        t.get("/api/v1/configmaps?labelSelector=mine%3D{me}").await;
        t.make("{w}", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "labels": {"mine": "{me}"}}})).await;
        t.get("/apis/{group}/v1/widgets?labelSelector=mine%3D{me}").await;
    }
    ["LS-1"] "a list in a namespace that does not exist is empty" => |t| {
        t.get("/api/v1/namespaces/no-such-namespace/configmaps").await;
        t.get("/apis/{group}/v1/namespaces/no-such-namespace/widgets").await;
    }
}
