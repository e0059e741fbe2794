//! The scenarios of the original's tests, and faults: each case with both forms of the controller.

#![allow(clippy::disallowed_names, reason = "Foo is the kind of the original")]

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::params::{DeleteParams, ListParams};
use kube_core::{CustomResourceExt, Resource, ResourceExt};
use reeve_controller::client::{Client, Object, Patch, optional};
use reeve_controller::testing::{Cluster, Rule, Running, Server, Setup};
use reeve_controller::{ObjectKey, owner};
use sample_controller::{Foo, Form, add};
use serde_json::{Value, json};
use tokio::time::sleep;

/// Makes two tests of each case.
macro_rules! with_both_forms {
    ($($case:ident),+ $(,)?) => {
        mod by_hand {
            $(#[test] fn $case() { super::run(super::Form::ByHand, super::$case); })+
        }
        mod builder {
            $(#[test] fn $case() { super::run(super::Form::Builder, super::$case); })+
        }
    };
}

const HOUR: Duration = Duration::from_secs(3600);

struct World {
    cluster: Cluster,
    client: Client,
    form: Form,
}

/// Runs a case on the built-in server, which has the definition of the kind.
fn run(form: Form, case: impl AsyncFnOnce(World)) {
    Setup::new().server(Server::BuiltIn).run(async |cluster| {
        let client = cluster.client();
        client.create(&Foo::crd()).await.unwrap();
        let served = async || client.list::<Foo>(None, &ListParams::default()).await;
        cluster.eventually("the kind is served", served).await;
        let world = World {
            cluster,
            client,
            form,
        };
        case(world).await;
    });
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

// === impl World ===

impl World {
    async fn start(&self) -> Running {
        let manager = self.cluster.manager().build().await.unwrap();
        add(&manager, self.form).unwrap();
        self.cluster.start(&manager)
    }

    /// A Foo for a Deployment of its own name.
    async fn foo(&self, name: &str, replicas: i32) -> Foo {
        let spec = json!({"deploymentName": name, "replicas": replicas});
        let meta = json!({"name": name, "namespace": "default"});
        let object = json!({"apiVersion": Foo::api_version(&()), "kind": "Foo", "metadata": meta, "spec": spec});
        self.cluster.create(object).await
    }

    /// A Deployment that a user made.
    async fn foreign(&self, name: &str) -> Deployment {
        let labels = json!({"app": "other"});
        let containers = json!([{"name": "other", "image": "other"}]);
        self.cluster
            .create(json!({
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}}},
            }))
            .await
    }

    async fn deployment(&self, name: &str) -> Option<Deployment> {
        optional(self.client.get(&key(name)).await).unwrap()
    }

    async fn replicas(&self, name: &str) -> Option<i32> {
        self.deployment(name).await?.spec?.replicas
    }

    async fn available(&self, name: &str) -> Option<i32> {
        let foo: Foo = self.client.get(&key(name)).await.unwrap();
        foo.status.map(|status| status.available_replicas)
    }

    async fn patch<K: Object>(&self, name: &str, patch: Value) {
        let patch = Patch::merge(patch);
        let key = key(name);
        let patched = self.client.patch::<K>(&key, patch).await;
        patched.unwrap();
    }

    /// Sets the status of a Deployment, as the Deployment controller of a cluster does.
    async fn set_available(&self, name: &str, replicas: i32) {
        let status = json!({"status": {"replicas": replicas, "readyReplicas": replicas,
            "updatedReplicas": replicas, "availableReplicas": replicas}});
        let patch = Patch::merge(status);
        let key = key(name);
        let patched = self.client.patch_status::<Deployment>(&key, patch);
        patched.await.unwrap();
    }

    async fn delete<K: Object>(&self, name: &str) {
        let params = DeleteParams::background();
        self.client.delete::<K>(&key(name), &params).await.unwrap();
    }

    async fn until_replicas(&self, name: &str, replicas: Option<i32>) {
        let what = format!("{name} has {replicas:?} replicas");
        let look = async || self.replicas(name).await;
        self.cluster.eventually_eq(&what, replicas, look).await;
    }

    async fn until_available(&self, name: &str, replicas: i32) {
        let what = format!("{name} reports {replicas}");
        let look = async || self.available(name).await;
        self.cluster
            .eventually_eq(&what, Some(replicas), look)
            .await;
    }

    /// The Event about `name` with this reason.
    async fn event(&self, name: &str, reason: &str) -> Option<Event> {
        let params = ListParams::default();
        let list = self.client.list::<Event>(Some("default"), &params);
        list.await.unwrap().items.into_iter().find(|event| {
            let about = event
                .regarding
                .as_ref()
                .and_then(|about| about.name.as_deref());
            event.reason.as_deref() == Some(reason) && about == Some(name)
        })
    }

    async fn until_event(&self, name: &str, reason: &str) -> Event {
        let look = async || self.event(name, reason).await;
        self.cluster.eventually(reason, look).await
    }

    fn count(&self, verb: &str) -> usize {
        self.cluster.requests().count(verb, "deployments")
    }
}

/// The original's `TestCreatesDeployment`.
async fn a_foo_gets_a_deployment_and_its_status_follows(world: World) {
    let running = world.start().await;
    let foo = world.foo("web", 3).await;
    world.until_replicas("web", Some(3)).await;
    let deployment = world.deployment("web").await.unwrap();
    assert!(owner::is_controlled_by(&deployment, &foo));
    let labels = deployment.spec.unwrap().template.metadata.unwrap().labels;
    let labels = labels.unwrap();
    assert_eq!((&*labels["app"], &*labels["controller"]), ("nginx", "web"));
    world.until_available("web", 0).await;
    let synced = world.until_event("web", "Synced").await;
    assert_eq!(synced.note.as_deref(), Some("Foo synced successfully"));
    world.set_available("web", 2).await;
    world.until_available("web", 2).await;
    running.end().await;
}

/// The original's `TestDoNothing`.
async fn a_deployment_that_is_right_is_not_written(world: World) {
    let running = world.start().await;
    world.foo("web", 1).await;
    world.until_available("web", 0).await;
    running.end().await;
    let writes = (
        world.count("create"),
        world.count("patch"),
        world.count("update"),
    );
    let running = world.start().await;
    sleep(HOUR).await;
    let now = (
        world.count("create"),
        world.count("patch"),
        world.count("update"),
    );
    assert_eq!(now, writes);
    running.end().await;
}

/// The original's `TestUpdateDeployment`, and a Deployment that another client scaled. Fields of others stay.
async fn other_replicas_are_corrected_whichever_side_changed(world: World) {
    let running = world.start().await;
    world.foo("web", 1).await;
    world.until_replicas("web", Some(1)).await;
    world
        .patch::<Deployment>(
            "web",
            json!({"metadata": {"annotations": {"team": "shop"}}}),
        )
        .await;
    world
        .patch::<Foo>("web", json!({"spec": {"replicas": 2}}))
        .await;
    world.until_replicas("web", Some(2)).await;
    world
        .patch::<Deployment>("web", json!({"spec": {"replicas": 7}}))
        .await;
    world.until_replicas("web", Some(2)).await;
    let deployment = world.deployment("web").await.unwrap();
    assert_eq!(deployment.annotations()["team"], "shop");
    running.end().await;
}

/// The original's `TestNotControlledByUs`; then hours pass, and the name becomes free.
async fn a_deployment_of_another_owner_is_left_alone_until_it_is_gone(world: World) {
    world.foreign("web").await;
    let running = world.start().await;
    world.foo("web", 3).await;
    let warning = world.until_event("web", "ErrResourceExists").await;
    assert_eq!(warning.type_.as_deref(), Some("Warning"));
    let note = "Resource \"web\" already exists and is not managed by Foo";
    assert_eq!(warning.note.as_deref(), Some(note));
    sleep(10 * HOUR).await;
    assert_eq!((world.count("patch"), world.count("update")), (0, 0));
    assert!(world.event("web", "Synced").await.is_none());
    // No event of the Foo follows: the next try does, after 1000 s at most.
    world.delete::<Deployment>("web").await;
    sleep(HOUR / 3).await;
    assert_eq!(world.replicas("web").await, Some(3));
    running.end().await;
}

async fn a_foo_without_a_name_for_its_deployment_is_not_tried_again(world: World) {
    let running = world.start().await;
    world
        .cluster
        .create::<Foo>(json!({"apiVersion": Foo::api_version(&()), "kind": "Foo",
            "metadata": {"name": "web", "namespace": "default"}, "spec": {"replicas": 1}}))
        .await;
    sleep(HOUR).await;
    assert_eq!(world.count("create"), 0);
    world
        .patch::<Foo>("web", json!({"spec": {"deploymentName": "web"}}))
        .await;
    world.until_replicas("web", Some(1)).await;
    running.end().await;
}

async fn a_deleted_deployment_is_created_again_and_that_of_a_deleted_foo_is_collected(
    world: World,
) {
    let running = world.start().await;
    world.foo("web", 1).await;
    world.until_available("web", 0).await;
    sleep(HOUR).await;
    let old = world.deployment("web").await.unwrap().uid();
    world.delete::<Deployment>("web").await;
    world
        .cluster
        .eventually("another Deployment", async || {
            let new = world.deployment("web").await?.uid();
            (new != old).then_some(())
        })
        .await;
    world.delete::<Foo>("web").await;
    world.until_replicas("web", None).await;
    sleep(HOUR).await;
    assert_eq!(world.replicas("web").await, None);
    running.end().await;
}

async fn a_create_whose_answer_is_lost_makes_one_deployment(world: World) {
    let creates = Rule::new().verb("create").resource("deployments");
    let lost = world.cluster.faults().add(creates.times(1).lose_answer());
    let running = world.start().await;
    world.foo("web", 3).await;
    world.until_available("web", 0).await;
    world.until_event("web", "Synced").await;
    sleep(HOUR).await;
    assert_eq!(lost.hits(), 1);
    assert_eq!(world.replicas("web").await, Some(3));
    assert!(world.event("web", "ErrResourceExists").await.is_none());
    running.end().await;
}

async fn what_changed_while_the_program_was_killed_is_made_up_for(world: World) {
    let running = world.start().await;
    world.foo("web", 1).await;
    world.until_available("web", 0).await;
    running.crash().await;
    world
        .patch::<Foo>("web", json!({"spec": {"replicas": 5}}))
        .await;
    world.foo("new", 2).await;
    let running = world.start().await;
    world.until_replicas("web", Some(5)).await;
    world.until_replicas("new", Some(2)).await;
    running.end().await;
}

with_both_forms!(
    a_foo_gets_a_deployment_and_its_status_follows,
    a_deployment_that_is_right_is_not_written,
    other_replicas_are_corrected_whichever_side_changed,
    a_deployment_of_another_owner_is_left_alone_until_it_is_gone,
    a_foo_without_a_name_for_its_deployment_is_not_tried_again,
    a_deleted_deployment_is_created_again_and_that_of_a_deleted_foo_is_collected,
    a_create_whose_answer_is_lost_makes_one_deployment,
    what_changed_while_the_program_was_killed_is_made_up_for,
);

#[test]
fn the_manifest_is_the_definition_of_the_kind() {
    let manifest: CustomResourceDefinition =
        serde_saphyr::from_str(include_str!("../crd.yaml")).unwrap();
    assert!(
        manifest == Foo::crd(),
        "crd.yaml is not the derived definition:\n{}",
        json!(Foo::crd())
    );
}
