//! Discovery, versions, health, OpenAPI.

use serde_json::{Value, json};

use super::cases;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn of_group(list: &Value, group: &str) -> Value {
    let items = list["items"].as_array().or(list["groups"].as_array());
    let found = items
        .into_iter()
        .flatten()
        .find(|item| item["metadata"]["name"] == group || item["name"] == group);
    found.cloned().unwrap_or_default()
}

/// The entry of a built-in resource in discovery.
fn shown(resource: &Value) -> Value {
    json!([
        resource["name"],
        resource["kind"],
        resource["namespaced"],
        resource["singularName"],
        resource["shortNames"],
        resource["categories"],
        resource["verbs"]
    ])
}

/// The resources of a built-in group that both servers should have.
async fn resources(t: &mut crate::conformance::case::Case, path: &str, wanted: &[&str]) {
    let list = t.setup("GET", path, Value::Null).await.body;
    t.note(path, json!([list["kind"], list["groupVersion"]]));
    for name in wanted {
        let found = list["resources"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|resource| resource["name"] == *name);
        t.note(name, found.map_or(Value::Null, shown));
    }
}

/// Whether a group is built in: those of definitions have names of their own.
fn is_built_in(group: &str) -> bool {
    !group.contains('.') || group.ends_with(".k8s.io")
}

cases! { "discovery";
    ["DISC-1"] "aggregated discovery of every built-in resource" => |t| {
        for path in ["/api", "/apis"] {
            let answer = t.send_unwritten("GET", path, &[("accept", AGGREGATED)]).await;
            for group in answer.body["items"].as_array().into_iter().flatten() {
                if !is_built_in(group["metadata"]["name"].as_str().unwrap_or_default()) {
                    continue;
                }
                t.note("group", group["metadata"].clone());
                for version in group["versions"].as_array().into_iter().flatten() {
                    t.note("version", json!([version["version"], version["freshness"]]));
                    for resource in version["resources"].as_array().into_iter().flatten() {
                        t.note("resource", resource.clone());
                    }
                }
            }
        }
    }
    ["DISC-1"] "the old discovery of every built-in resource" => |t| {
        let list = t.setup("GET", "/apis", Value::Null).await.body;
        let mut paths = vec!["/api/v1".to_owned()];
        for group in list["groups"].as_array().into_iter().flatten() {
            if !is_built_in(group["name"].as_str().unwrap_or_default()) {
                continue;
            }
            t.note("group", group.clone());
            for version in group["versions"].as_array().into_iter().flatten() {
                paths.push(format!("/apis/{}", version["groupVersion"].as_str().unwrap_or_default()));
            }
        }
        for path in paths {
            let mut list = t.setup("GET", &path, Value::Null).await.body;
            t.note(&path, json!([list["kind"], list["apiVersion"], list["groupVersion"]]));
            for resource in list["resources"].as_array_mut().into_iter().flatten() {
                // A hash of the storage form, which only storage migration uses.
                if let Some(resource) = resource.as_object_mut() {
                    resource.remove("storageVersionHash");
                }
                t.note("resource", resource.clone());
            }
        }
    }
    ["DISC-1"] "the core group's versions" => |t| {
        let list = t.setup("GET", "/api", Value::Null).await.body;
        t.note("/api", json!([list["kind"], list["versions"]]));
    }
    ["DISC-1"] "the version document has its fields" => |t| {
        let version = t.setup("GET", "/version", Value::Null).await.body;
        t.note("major", version["major"].clone());
        t.note("minor", version["minor"].clone());
        let keys: Vec<&str> = ["gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"].into_iter().filter(|key| version[key].is_string()).collect();
        t.note("texts", json!(keys));
    }
    ["DISC-1"] "health is ok" => |t| {
        t.get("/healthz").await;
        t.get("/livez").await;
        t.get("/readyz").await;
    }
    ["DISC-1"] "a custom group in the list of groups" => |t| {
        let list = t.setup("GET", "/apis", Value::Null).await.body;
        let group = t.fill("{group}");
        t.note("kind", json!([list["kind"], list["apiVersion"]]));
        t.note("group", of_group(&list, &group));
        t.get("/apis/{group}").await;
    }
    ["DISC-1"] "the list of groups with a slash at the end" => |t| {
        let list = t.setup("GET", "/apis/", Value::Null).await.body;
        t.note("kind", json!([list["kind"], list["apiVersion"]]));
    }
    ["DISC-1"] "the resources of a custom group" => |t| {
        let mut list = t.setup("GET", "/apis/{group}/v1", Value::Null).await.body;
        // The order is the order of the definitions.
        if let Some(resources) = list["resources"].as_array_mut() {
            resources.sort_by_key(|resource| resource["name"].to_string());
            for resource in resources.iter_mut().filter_map(Value::as_object_mut) {
                // A hash of the storage form, which only storage migration uses.
                resource.remove("storageVersionHash");
            }
        }
        t.note("list", list);
    }
    ["DISC-1"] "aggregated discovery of a custom group" => |t| {
        let answer = t.send_unwritten("GET", "/apis", &[("accept", AGGREGATED)]).await;
        let group = t.fill("{group}");
        t.note("kind", json!([answer.body["kind"], answer.body["apiVersion"]]));
        t.note("group", of_group(&answer.body, &group));
    }
    ["DISC-1"] "aggregated discovery repeats its media type" => |t| {
        let head = t.head_of("/apis", &[("accept", AGGREGATED)], &["content-type", "vary"]).await;
        t.note("head", head);
        let head = t.head_of("/api", &[("accept", AGGREGATED)], &["content-type", "vary"]).await;
        t.note("head", head);
        let head = t.head_of("/apis", &[("accept", "application/json")], &["content-type", "vary"]).await;
        t.note("head", head);
    }
    ["DISC-1"] "aggregated discovery of ConfigMaps" => |t| {
        let answer = t.send_unwritten("GET", "/api", &[("accept", AGGREGATED)]).await;
        let core = &answer.body["items"][0];
        t.note("metadata", core["metadata"].clone());
        let resources = core["versions"][0]["resources"].as_array().cloned().unwrap_or_default();
        for name in ["configmaps", "namespaces", "services", "serviceaccounts", "pods", "events"] {
            t.note(name, resources.iter().find(|one| one["resource"] == name).map_or(Value::Null, |one| {
                json!([one["responseKind"], one["scope"], one["singularResource"], one["verbs"], one["shortNames"], one["categories"]])
            }));
        }
    }
    ["DISC-1"] "the resources of the core group" => |t| {
        resources(t, "/api/v1", &["configmaps", "secrets", "services", "serviceaccounts", "serviceaccounts/token", "pods", "pods/status", "namespaces", "namespaces/finalize", "namespaces/status", "events"]).await;
    }
    ["DISC-1"] "the resources of other built-in groups" => |t| {
        resources(t, "/apis/apps/v1", &["deployments", "deployments/scale", "deployments/status", "replicasets", "replicasets/scale"]).await;
        resources(t, "/apis/coordination.k8s.io/v1", &["leases"]).await;
        resources(t, "/apis/events.k8s.io/v1", &["events"]).await;
        resources(t, "/apis/networking.k8s.io/v1", &["ingresses", "ingresses/status"]).await;
        resources(t, "/apis/rbac.authorization.k8s.io/v1", &["roles", "clusterroles", "rolebindings", "clusterrolebindings"]).await;
        resources(t, "/apis/apiextensions.k8s.io/v1", &["customresourcedefinitions", "customresourcedefinitions/status"]).await;
        resources(t, "/apis/authorization.k8s.io/v1", &["selfsubjectaccessreviews", "subjectaccessreviews", "localsubjectaccessreviews", "selfsubjectrulesreviews"]).await;
        resources(t, "/apis/authentication.k8s.io/v1", &["tokenreviews", "selfsubjectreviews"]).await;
    }
    ["DISC-2"] "the OpenAPI index names the custom group, and its document the kind" => |t| {
        let group = t.fill("apis/{group}/v1");
        let index = t.until("/openapi/v3", |answer| answer.body["paths"][&group].is_object()).await.body;
        let url = index["paths"][&group]["serverRelativeURL"].as_str().unwrap_or_default().to_owned();
        t.note("url before ?", json!(url.split('?').next()));
        let document = t.until(&url, |answer| answer.code == 200).await.body;
        let widget = document["components"]["schemas"].as_object().into_iter().flatten().find(|(_, schema)| {
            schema["x-kubernetes-group-version-kind"].as_array().is_some_and(|all| all.iter().any(|one| one["kind"] == "Widget"))
        });
        t.note("color", widget.map_or(Value::Null, |(_, schema)| schema["properties"]["spec"]["properties"]["color"].clone()));
        let path = t.fill("/apis/{group}/v1/namespaces/{namespace}/widgets/{name}");
        let patch = &document["paths"][path]["patch"];
        t.note("patch", json!([patch["x-kubernetes-group-version-kind"]["kind"], patch["x-kubernetes-action"]]));
    }
    ["DISC-1"] "unknown paths are not found, in plain text" => |t| {
        t.get("/nothing").await;
        t.get("/api/v2").await;
        t.get("/apis/nothing.example.com/v1/things").await;
        t.get("/api/v1/things").await;
        t.get("/api/v1/namespaces/{ns}/things").await;
    }
}
