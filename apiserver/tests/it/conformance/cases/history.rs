//! History that is gone. These cases run one by one after all others, because a compaction affects the whole server.

use serde_json::json;

use super::{cases, config_map, widget};

cases! { "history";
    ["PG-2"] "a continue token whose version is gone gets 410 with a new token that continues" => |t| {
        for name in ["a", "b", "c"] {
            t.make("{w}", widget(name, json!({}))).await;
        }
        let first = t.get("{w}?limit=1").await;
        t.make("{w}", widget("bb", json!({}))).await;
        t.compact().await;
        let token = first.text("/metadata/continue");
        let gone = t.gone_within(&format!("{{w}}?limit=1&continue={token}")).await;
        t.note("gone", gone.body.clone());
        let fresh = gone.text("/metadata/continue");
        t.get(&format!("{{w}}?limit=1&continue={fresh}")).await;
    }
    ["RV-4"] "a list at exactly a version that is gone gets 410" => |t| {
        let first = t.make("{w}", widget("a", json!({}))).await.version();
        t.make("{w}", widget("b", json!({}))).await;
        t.compact().await;
        let gone = t.gone_within(&format!("{{w}}?resourceVersion={first}&resourceVersionMatch=Exact")).await;
        t.note("gone", gone.body);
        t.get(&format!("{{w}}?resourceVersion={first}&resourceVersionMatch=NotOlderThan")).await;
    }
    ["W-3"] "a watch resumes after a compaction from the server's own history" => |t| {
        let first = t.make("{cm}", config_map("a", "1")).await.version();
        t.setup("PATCH", "{cm}/a", json!({"data": {"key": "2"}})).await;
        t.compact().await;
        let mut watch = t.watch(&format!("{{cm}}?watch=true&resourceVersion={first}&timeoutSeconds=5")).await;
        t.events(&mut watch, 1).await;
    }
    ["W-3"] "a running watch continues after a compaction, also an idle one" => |t| {
        let first = t.make("{cm}", config_map("a", "1")).await.version();
        let mut watch = t.watch(&format!("{{cm}}?watch=true&resourceVersion={first}&timeoutSeconds=20")).await;
        let mut idle = t.watch(&format!("{{w}}?watch=true&resourceVersion={first}&timeoutSeconds=20")).await;
        t.setup("PATCH", "{cm}/a", json!({"data": {"key": "2"}})).await;
        t.compact().await;
        t.setup("PATCH", "{cm}/a", json!({"data": {"key": "3"}})).await;
        t.events(&mut watch, 2).await;
        t.make("{w}", widget("a", json!({}))).await;
        t.compact().await;
        t.events(&mut idle, 1).await;
        t.setup("PATCH", "{w}/a", json!({"metadata": {"labels": {"app": "a"}}})).await;
        t.events(&mut idle, 1).await;
    }
}
