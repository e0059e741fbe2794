//! A kind of the program's own: its definition needs no crate but reeve-controller, kube-derive, k8s-openapi, schemars
//! and serde.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::CustomResource;
use reeve_controller::client::{Patch, optional};
use reeve_controller::conditions::Observation;
use reeve_controller::kube_core::CustomResourceExt;
use reeve_controller::kube_core::params::DeleteParams;
use reeve_controller::prelude::*;
use reeve_controller::serde_json::json;
use reeve_controller::testing::Cluster;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Greeting",
    namespaced,
    status = "GreetingStatus",
    crates(
        kube_core = "::reeve_controller::kube_core",
        serde_json = "::reeve_controller::serde_json"
    )
)]
struct GreetingSpec {
    name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct GreetingStatus {
    #[serde(default)]
    conditions: Vec<Condition>,
}

/// Keeps a ConfigMap with the greeting, and the condition `Ready`.
async fn greet(ctx: Context, greeting: Arc<Greeting>) -> Result<Outcome, reconcile::Error> {
    finalizer::apply_or_cleanup(
        &ctx,
        "example.com/greeting",
        greeting,
        async |event| match event {
            finalizer::Event::Apply(greeting) => apply(&ctx, &greeting).await,
            finalizer::Event::Cleanup(greeting) => {
                let note = "the greeting has ended";
                ctx.events()
                    .event(&greeting, EventType::Normal, "Ended", "Greet", note);
                Ok(Outcome::done())
            }
        },
    )
    .await
}

async fn apply(ctx: &Context, greeting: &Greeting) -> Result<Outcome, reconcile::Error> {
    let mut map = ConfigMap::default();
    map.metadata.namespace = greeting.namespace();
    map.metadata.name = Some(greeting.name_any());
    let text = format!("Hello {}", greeting.spec.name);
    let client = ctx.client();
    client
        .create_or_update(map, |map| {
            let data = map.data.get_or_insert_default();
            data.insert("greeting".to_owned(), text.clone());
            owner::set_controller(greeting, map).map(drop)
        })
        .await?;
    let before = greeting.status.clone().unwrap_or_default().conditions;
    let ready = Observation::is_true("Ready", "Greeted").generation(greeting.metadata.generation);
    let after = conditions::merge(&before, [ready], ctx.clock().now());
    if after != before {
        let patch = Patch::merge(json!({"status": {"conditions": after}}));
        let key = ObjectKey::of(greeting);
        client.patch_status::<Greeting>(&key, patch).await?;
    }
    Ok(Outcome::done())
}

#[tokio::test(start_paused = true)]
async fn a_kind_of_the_program_has_a_status_children_and_a_finalizer() {
    let cluster = Cluster::in_process().await;
    let client = cluster.client();
    client.create(&Greeting::crd()).await.unwrap();
    let greeter = Controller::builder("greeter")
        .for_kind::<Greeting>()
        .owns::<ConfigMap>()
        .complete(reconcile::object(greet))
        .unwrap();
    let running = cluster.run([greeter]).await;
    let mut greeting = Greeting::new("world", GreetingSpec { name: "you".into() });
    greeting.metadata.namespace = Some("default".into());
    client.create(&greeting).await.unwrap();
    let key = ObjectKey::of(&greeting);
    cluster
        .eventually("it is ready", async || {
            let read: Greeting = client.get(&key).await.map_err(|error| error.to_string())?;
            let found = read.status.clone().unwrap_or_default().conditions;
            let ready = conditions::find(&found, "Ready");
            let generation = ready.and_then(|ready| ready.observed_generation);
            if generation.is_some() && generation == read.metadata.generation {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    let map: ConfigMap = client.get(&key).await.unwrap();
    assert_eq!(map.data.unwrap()["greeting"], "Hello you");
    let params = DeleteParams::default();
    client.delete::<Greeting>(&key, &params).await.unwrap();
    let gone = async || {
        let read = client.get::<ConfigMap>(&key).await;
        optional(read).unwrap().is_none()
    };
    cluster.eventually("the child is gone", gone).await;
    running.end().await;
}
