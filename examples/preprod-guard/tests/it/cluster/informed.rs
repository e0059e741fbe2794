//! Rules that look up other objects, which informers report, and webhooks behind a Service.

use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use super::requests::{Answer, Attempt, Caller};
use super::world::{CONFIG, PATIENCE, World};

const PRE: Caller = ("hbox-pre", "system:authenticated");
const NAMESPACE: &str = "/api/v1/namespaces/hbox";
const SETS: &str = "/apis/apps/v1/namespaces/hbox";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_that_look_up_objects_on_the_built_in_server() {
    if let Some(world) = World::built_in("informed-built-in").await {
        informed(world).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_that_look_up_objects_on_a_real_server() {
    if let Some(world) = World::real("informed-real").await {
        informed(world).await;
    }
}

async fn answer(world: &World, method: &'static str, path: &str, body: Value) -> Answer {
    world
        .send(&Attempt::new(method, path, body), Some(PRE))
        .await
}

/// A definition of websites, and the right of the guard to read them.
async fn define_websites(world: &World) {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "metadata": {"name": "websites.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "websites", "kind": "Website"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    world.must("POST", path, definition).await;
    let role = [
        "create",
        "clusterrole",
        "websites",
        "--verb=get,list,watch",
        "--resource=websites.example.com",
    ];
    let end = Instant::now() + PATIENCE;
    while !world
        .try_kubectl("admin.yaml", &role)
        .await
        .status
        .success()
    {
        assert!(Instant::now() < end, "the definition is not served");
        sleep(Duration::from_millis(200)).await;
    }
    world
        .kubectl(&[
            "create",
            "clusterrolebinding",
            "websites",
            "--clusterrole=websites",
            "--serviceaccount=preprod-guard:preprod-guard",
        ])
        .await;
    let kinds = "kinds: [{group: example.com, version: v1, kind: Website, plural: websites}]\n";
    std::fs::write(world.file("guard.yaml"), format!("{CONFIG}{kinds}")).unwrap();
}

async fn informed(world: World) {
    define_websites(&world).await;
    let run = json!({
        "metadata": {
            "name": "run", "labels": {"environment": "production"},
            "ownerReferences": [{"apiVersion": "ci.example.com/v1", "kind": "Pipeline", "name": "a", "uid": "unknown"}],
        },
    });
    // The garbage collector leaves objects whose owner has a kind that is not served.
    world
        .must("POST", &format!("{NAMESPACE}/configmaps"), run)
        .await;
    let guard = world.start("guard", &["--certificates-every=1"]);
    guard.until("caches synced").await;
    guard.until("owners of a kind that is not guarded").await;
    assert!(guard.log().contains("Pipeline"), "{}", guard.log());
    world
        .must(
            "DELETE",
            &format!("{NAMESPACE}/configmaps/run"),
            Value::Null,
        )
        .await;
    world.install_service(&guard).await;
    guard.until("another certificate is in use").await;
    world.until_called().await;

    let container = json!([{"name": "web", "image": "registry.example.com/web"}]);
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": container}});
    let set = |name: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        })
    };
    let owned = |mut object: Value, kind: &str, owner: &Value| {
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": kind,
            "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        }]);
        object
    };
    let front = world
        .must("POST", &format!("{SETS}/deployments"), set("front"))
        .await;
    let replicas = owned(set("front-1"), "Deployment", &front);
    let replicas = world
        .must("POST", &format!("{SETS}/replicasets"), replicas)
        .await;
    for name in ["settings", "other"] {
        let map = json!({"metadata": {"name": name}});
        world
            .must("POST", &format!("{NAMESPACE}/configmaps"), map)
            .await;
    }
    for name in ["web", "free"] {
        let account = json!({"metadata": {"name": name}});
        world
            .must("POST", &format!("{NAMESPACE}/serviceaccounts"), account)
            .await;
    }
    let pod = json!({
        "metadata": {"name": "web-0", "labels": {"environment": "production", "app": "web"}},
        "spec": {
            "nodeName": "node-1", "serviceAccountName": "web", "automountServiceAccountToken": false,
            "containers": container, "volumes": [{"name": "a", "configMap": {"name": "settings"}}],
        },
    });
    let pod = owned(pod, "ReplicaSet", &replicas);
    world.must("POST", &format!("{NAMESPACE}/pods"), pod).await;
    let site = json!({
        "apiVersion": "example.com/v1", "kind": "Website",
        "metadata": {"name": "site", "labels": {"environment": "production"}},
    });
    let sites = "/apis/example.com/v1/namespaces/hbox/websites";
    world.must("POST", sites, site).await;
    for name in ["node-1", "node-2"] {
        world
            .must("POST", "/api/v1/nodes", json!({"metadata": {"name": name}}))
            .await;
    }

    let annotate = json!({"metadata": {"annotations": {"a": "b"}}});
    let by_account = |name: &str| {
        let spec = json!({"serviceAccountName": name, "automountServiceAccountToken": false, "containers": container});
        json!({"metadata": {"name": "try-0"}, "spec": spec})
    };
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    let service = json!({"metadata": {"name": "steal"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    let definitions =
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/websites.example.com";
    let path = |kind: &str, name: &str| format!("{NAMESPACE}/{kind}/{name}");
    let refused = [
        (
            "DELETE",
            format!("{SETS}/deployments/front"),
            Value::Null,
            "it owns 1 production object (pods/web-0)",
        ),
        (
            "DELETE",
            format!("{SETS}/replicasets/front-1"),
            Value::Null,
            "it owns 1 production object (pods/web-0)",
        ),
        (
            "PATCH",
            format!("{SETS}/deployments/front/scale"),
            json!({"spec": {"replicas": 1}}),
            "it owns 1",
        ),
        (
            "DELETE",
            NAMESPACE.to_owned(),
            Value::Null,
            "it contains 2 production objects (pods/web-0, websites/site)",
        ),
        (
            "DELETE",
            definitions.to_owned(),
            Value::Null,
            "it contains 1 production object (websites/site)",
        ),
        (
            "PATCH",
            "/api/v1/nodes/node-1".to_owned(),
            json!({"spec": {"unschedulable": true}}),
            "(pods/web-0)",
        ),
        (
            "DELETE",
            "/api/v1/nodes/node-1".to_owned(),
            Value::Null,
            "node node-1: it contains",
        ),
        (
            "PATCH",
            path("configmaps", "settings"),
            annotate.clone(),
            "it is used by 1 production object",
        ),
        (
            "DELETE",
            path("serviceaccounts", "web"),
            Value::Null,
            "it is used by 1 production object",
        ),
        (
            "POST",
            format!("{NAMESPACE}/pods"),
            by_account("web"),
            "with service account web",
        ),
        (
            "POST",
            format!("{NAMESPACE}/resourcequotas"),
            quota,
            "it holds for 2 production objects",
        ),
        (
            "POST",
            format!("{NAMESPACE}/services"),
            service,
            "it is used by 1 production object (pods/web-0)",
        ),
        (
            "DELETE",
            format!("{sites}/site"),
            Value::Null,
            "DELETE production website",
        ),
    ];
    // The informers report the objects within some milliseconds.
    let end = Instant::now() + PATIENCE;
    let last = format!("{NAMESPACE}?dryRun=All");
    while !answer(&world, "DELETE", &last, Value::Null)
        .await
        .message
        .contains("2 production")
    {
        assert!(Instant::now() < end);
        sleep(Duration::from_millis(50)).await;
    }
    for (method, path, body, text) in refused {
        let answer = answer(&world, method, &path, body).await;
        assert!(answer.message.contains(text), "{method} {path}: {answer:?}");
    }
    // What production does not use is free.
    for (method, path, body) in [
        ("DELETE", "/api/v1/nodes/node-2".to_owned(), Value::Null),
        ("PATCH", path("configmaps", "other"), annotate),
        ("POST", format!("{NAMESPACE}/pods"), by_account("free")),
        ("DELETE", path("pods", "try-0"), Value::Null),
    ] {
        let answer = answer(&world, method, &path, body).await;
        assert_eq!(answer.code, 200, "{method} {path}: {answer:?}");
    }
    guard.kill().await;
    world.end().await;
}
