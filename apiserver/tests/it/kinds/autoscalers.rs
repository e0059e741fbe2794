//! One autoscaler that several managers write in its two versions, `autoscaling/v1` and `autoscaling/v2`, on both servers.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use serde_json::{Value, json};

use super::{built_in, real};
use crate::conformance::client::Client;

const COLLECTION: &str = "namespaces/default/horizontalpodautoscalers";
const NAME: &str = "two-versions";

/// A write in one of the versions.
struct Write {
    version: &'static str,
    manager: &'static str,
    /// Of the body: an apply, or a merge patch.
    media: &'static str,
    spec: Value,
}

fn apply(version: &'static str, manager: &'static str, spec: Value) -> Write {
    let media = "application/apply-patch+yaml";
    Write {
        version,
        manager,
        media,
        spec,
    }
}

fn merge(version: &'static str, manager: &'static str, spec: Value) -> Write {
    let media = "application/merge-patch+json";
    Write {
        version,
        manager,
        media,
        spec,
    }
}

fn usage(resource: &str, percent: u32) -> Value {
    json!({"type": "Resource", "resource": {
        "name": resource, "target": {"type": "Utilization", "averageUtilization": percent},
    }})
}

/// An applier in the old version, another in the new one, and updaters in both.
fn writes() -> Vec<Write> {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let all = |percent: u32| json!({"maxReplicas": 3, "scaleTargetRef": target, "targetCPUUtilizationPercentage": percent});
    vec![
        apply("v1", "old", all(60)),
        // The same value in the other form, and another field.
        apply(
            "v2",
            "new",
            json!({"maxReplicas": 3, "metrics": [usage("cpu", 60)], "minReplicas": 2}),
        ),
        merge(
            "v2",
            "updater",
            json!({"metrics": [usage("cpu", 70), usage("memory", 50)]}),
        ),
        // Of the updater, in its own version.
        apply("v1", "old", all(60)),
        merge("v1", "other", json!({"targetCPUUtilizationPercentage": 80})),
        merge("v1", "other", json!({"maxReplicas": 5})),
        apply("v2", "new", json!({"minReplicas": 2})),
        apply(
            "v1",
            "old",
            json!({"scaleTargetRef": target, "maxReplicas": 5}),
        ),
    ]
}

/// The managers after each write, without times; for a refused one its message.
async fn managers(client: &Client) -> Vec<Value> {
    let mut all = Vec::new();
    for Write {
        version,
        manager,
        media,
        spec,
    } in writes()
    {
        let api_version = format!("autoscaling/{version}");
        let body = json!({
            "apiVersion": api_version, "kind": "HorizontalPodAutoscaler", "metadata": {"name": NAME}, "spec": spec,
        });
        let path = format!("/apis/{api_version}/{COLLECTION}/{NAME}?fieldManager={manager}");
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        let body = Bytes::from(body.to_string());
        let reply = client.send(&Method::PATCH, &path, &headers, body).await;
        let answer: Value = serde_json::from_slice(&reply.body).expect("an answer in JSON");
        if answer["kind"] == "Status" {
            all.push(json!([answer["code"], answer["message"]]));
            continue;
        }
        let mut entries = answer["metadata"]["managedFields"].clone();
        if let Some(entries) = entries.as_array_mut() {
            for entry in &mut *entries {
                entry.as_object_mut().expect("an entry").remove("time");
            }
            // They come in the order of their times, which may be of different seconds.
            entries.sort_by_key(|entry| entry["manager"].to_string());
        }
        all.push(json!({"spec": answer["spec"], "managers": entries}));
    }
    all
}

/// The manager and operation, the version, and the fields of `spec` of each entry.
fn shown(state: &Value) -> Vec<String> {
    let entries = state["managers"].as_array().into_iter().flatten();
    let lines = entries.map(|entry| {
        let spec = entry["fieldsV1"]["f:spec"].as_object();
        let fields: Vec<&str> = spec
            .into_iter()
            .flat_map(|fields| fields.keys().map(String::as_str))
            .collect();
        let text = |name: &str| entry[name].as_str().unwrap_or_default();
        format!(
            "{} {} {}: {}",
            text("manager"),
            text("operation"),
            text("apiVersion"),
            fields.join(" ")
        )
    });
    lines.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_manager_of_an_autoscaler_owns_fields_in_its_version() {
    let ((_server, serving), client) = built_in().await;
    let all = managers(&client).await;
    serving.stop().await;
    let (new, old) = ("new Apply autoscaling/v2", "old Apply autoscaling/v1");
    let (updater, other) = (
        "updater Update autoscaling/v2",
        "other Update autoscaling/v1",
    );
    let usage = "f:targetCPUUtilizationPercentage";
    assert_eq!(
        shown(&all[1]),
        [
            format!("{new}: f:maxReplicas f:metrics f:minReplicas"),
            format!("{old}: f:maxReplicas f:scaleTargetRef {usage}"),
        ]
    );
    // The metrics are in the old version the usage of the processor, which its applier loses with them.
    assert_eq!(
        shown(&all[2]),
        [
            format!("{new}: f:maxReplicas f:minReplicas"),
            format!("{old}: f:maxReplicas f:scaleTargetRef"),
            format!("{updater}: f:metrics"),
        ]
    );
    let conflict = r#"conflict with "updater" using autoscaling/v2: .spec.metrics"#;
    let message = format!("Apply failed with 1 conflict: {conflict}");
    assert_eq!(all[3], json!([409, message]));
    assert_eq!(
        shown(&all[4]),
        [
            format!("{new}: f:maxReplicas f:minReplicas"),
            format!("{old}: f:maxReplicas f:scaleTargetRef"),
            format!("{other}: {usage}"),
        ]
    );
    assert_eq!(
        shown(&all[7]),
        [
            format!("{new}: f:minReplicas"),
            format!("{old}: f:maxReplicas f:scaleTargetRef"),
            format!("{other}: f:maxReplicas {usage}"),
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managers_of_an_autoscaler_in_two_versions_are_those_of_a_real_server() {
    let Some((_control_plane, real)) = real().await else {
        return;
    };
    let ((_server, serving), client) = built_in().await;
    let (theirs, ours) = (managers(&real).await, managers(&client).await);
    serving.stop().await;
    for (at, (theirs, ours)) in theirs.iter().zip(&ours).enumerate() {
        assert_eq!(ours, theirs, "after write {at}");
    }
}
