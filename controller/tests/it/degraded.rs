//! A kind that RBAC forbids stops only the controllers that need it: on the built-in API server, and on a real
//! kube-apiserver if `KUBEBUILDER_ASSETS` names one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use http::{HeaderValue, Request as HttpRequest};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube_client::client::Body;
use kube_core::params::Patch;
use reeve_controller::controller::{self, OneKind};
use reeve_controller::manager::State;
use reeve_controller::testing::{Cluster, Server, Setup};
use reeve_controller::{
    Context, Controller, Manager, ObjectKey, Outcome, Request, handler, reconcile,
};
use serde_json::json;

/// The user of the manager.
const ROBOT: &str = "robot";

#[test]
fn a_forbidden_kind_stops_only_the_controllers_that_need_it() {
    Setup::new()
        .server(Server::BuiltIn)
        .api_server(reeve_apiserver::Builder::rbac)
        .run(|cluster| forbidden(cluster, 10_000));
}

#[test]
fn a_forbidden_kind_stops_only_the_controllers_that_need_it_on_a_real_server() {
    Setup::new()
        .server(Server::Assets)
        .run(|cluster| forbidden(cluster, 10_000));
}

/// A client that acts as the robot.
fn robot(cluster: &Cluster) -> kube_client::Client {
    let kube = cluster.kube();
    let service = tower::service_fn(move |mut request: HttpRequest<Body>| {
        let kube = kube.clone();
        let robot = HeaderValue::from_static(ROBOT);
        request.headers_mut().insert("Impersonate-User", robot);
        async move { kube.send(request).await }
    });
    kube_client::Client::new(service, "default")
}

/// Lets the robot read these resources of the core group.
fn role(resources: &[&str]) -> serde_json::Value {
    json!({"metadata": {"name": ROBOT}, "rules": [
        {"apiGroups": [""], "resources": resources, "verbs": ["get", "list", "watch"]}]})
}

/// A controller for ConfigMaps with 8 workers that counts the reconciled objects, each once. `watch` adds more kinds to
/// it.
fn counting(
    name: &str,
    watch: impl FnOnce(controller::Builder<Request>) -> controller::Builder<Request, ConfigMap, OneKind>,
) -> (Controller, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let reconciler = reconcile::function(move |ctx: Context, request: Request| {
        let counted = Arc::clone(&counted);
        async move {
            if ctx.lister::<ConfigMap>()?.get(&request)?.is_some() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    });
    let controller = watch(Controller::builder(name)).workers(8);
    (controller.complete(reconciler).unwrap(), count)
}

async fn forbidden(cluster: Cluster, objects: usize) {
    let client = cluster.client();
    let allowed = ["configmaps", "services", "serviceaccounts", "pods"];
    cluster.create::<ClusterRole>(role(&allowed)).await;
    let binding = json!({"metadata": {"name": ROBOT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROBOT},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": ROBOT}]});
    cluster.create::<ClusterRoleBinding>(binding).await;
    let made = stream::iter(0..objects).map(async |number| {
        let name = format!("map-{number:05}");
        let map = json!({"metadata": {"name": name, "namespace": "default"}});
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        client.create(&map).await.unwrap();
    });
    made.buffer_unordered(32).collect::<Vec<_>>().await;

    let manager = Manager::builder(robot(&cluster))
        .clock(cluster.clock().clone())
        .namespace("default")
        .build()
        .await
        .unwrap();
    let (needy, of_needy) = counting("needy", |controller| {
        controller
            .watches::<Secret>(handler::for_object())
            .watches::<Service>(handler::for_object())
            .watches::<ServiceAccount>(handler::for_object())
            .watches::<Pod>(handler::for_object())
            .for_kind::<ConfigMap>()
    });
    let (modest, of_modest) = counting("modest", controller::Builder::for_kind::<ConfigMap>);
    let needy = manager.add_controller(needy).unwrap();
    let modest = manager.add_controller(modest).unwrap();
    let running = cluster.start(&manager);
    let all = |count: &AtomicUsize| count.load(Ordering::Relaxed) >= objects;

    cluster
        .eventually("the other controller continues", async || all(&of_modest))
        .await;
    assert_eq!(modest.state(), State::Running);
    cluster
        .eventually("health names the cause", async || {
            let health = needy.health();
            let kinds = health.unavailable.iter();
            let kinds: Vec<(&str, &str)> =
                kinds.map(|kind| (&*kind.informer, kind.cause)).collect();
            health.state == State::Syncing && kinds == [("secrets", "forbidden")]
        })
        .await;
    let failures = manager.health().ready().failures();
    let why = &failures
        .iter()
        .find(|(name, _)| name == "controllers")
        .unwrap()
        .1;
    assert!(
        why.starts_with("needy lacks secrets in default: failing")
            && why.contains("resource \"secrets\""),
        "{why}"
    );
    let metric = "reeve_controller_informer_unavailable{controller=\"needy\",informer=\"secrets\",cause=\"forbidden\"} 1";
    assert!(manager.metrics().encode().contains(metric));
    assert_eq!(of_needy.load(Ordering::Relaxed), 0, "no worker started");

    // When the role is granted, the controller starts by itself.
    let granted = [&allowed[..], &["secrets"]].concat();
    let key = ObjectKey::cluster(ROBOT);
    let patch = Patch::Merge(json!({"rules": role(&granted)["rules"]}));
    client.patch::<ClusterRole>(&key, &patch).await.unwrap();
    cluster
        .eventually("it works, too", async || all(&of_needy))
        .await;
    assert_eq!(needy.state(), State::Running);
    cluster
        .eventually("readiness is well", async || {
            manager.health().ready().failures().is_empty()
        })
        .await;
    assert!(!manager.metrics().encode().contains(metric));
    running.end().await;
}

#[test]
fn a_kind_whose_definition_comes_later_is_attached() {
    use reeve_controller::cache::{Kind, View};
    let widget = || {
        let gvk = kube_core::GroupVersionKind::gvk("example.com", "v1", "Widget");
        Kind::namespaced(kube_core::ApiResource::from_gvk_with_plural(
            &gvk, "widgets",
        ))
    };
    Setup::new()
        .server(Server::BuiltIn)
        .run(async |cluster: Cluster| {
            let seen: Arc<parking_lot::Mutex<Vec<String>>> = Arc::default();
            let noted = Arc::clone(&seen);
            let reconciler = reconcile::function(move |_: Context, request: Request| {
                noted.lock().push(request.to_string());
                async { Ok::<_, reconcile::Error>(Outcome::done()) }
            });
            let controller = Controller::builder("widgets")
                .for_view(View::dynamic(&widget()))
                .optional()
                .owns::<ConfigMap>()
                .complete(reconciler)
                .unwrap();
            let running = cluster.run([controller]).await;
            tokio::time::sleep(Duration::from_secs(60)).await;
            let manager = running.manager();
            assert_eq!(manager.runnables()[1].state, State::Running);
            assert!(manager.health().ready().failures().is_empty());
            let definition = json!({"apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
                "spec": {"group": "example.com", "scope": "Namespaced",
                    "names": {"kind": "Widget", "plural": "widgets"},
                    "versions": [{"name": "v1", "served": true, "storage": true,
                        "schema": {"openAPIV3Schema": {"type": "object",
                            "x-kubernetes-preserve-unknown-fields": true}}}]}});
            cluster
                .create::<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>(
                    definition,
                )
                .await;
            let kind = widget();
            let object: kube_core::DynamicObject = serde_json::from_value(json!({
                "apiVersion": "example.com/v1", "kind": "Widget",
                "metadata": {"name": "w", "namespace": "default"}}))
            .unwrap();
            let widgets = cluster.client().dynamic(&kind);
            cluster
                .eventually("the kind is served", async || {
                    widgets.create(&object).await.ok()
                })
                .await;
            cluster
                .eventually("it is reconciled", async || {
                    *seen.lock() == ["default/w"]
                })
                .await;
            running.end().await;
        });
}
