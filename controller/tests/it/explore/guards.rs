//! "If the first one exists, all exist": the second one is never made after a crash between them.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use reeve_controller::testing::explore::{Explorer, Process, World};
use reeve_controller::{Context, Controller, ObjectKey, Outcome, Request, owner, reconcile};
use serde_json::json;

use super::explored;

fn secret(parent: &ConfigMap, suffix: &str) -> Secret {
    let metadata = &parent.metadata;
    let name = format!("{}-{suffix}", metadata.name.as_deref().unwrap());
    let object = json!({"metadata": {"name": name, "namespace": metadata.namespace}});
    let mut secret = serde_json::from_value(object).unwrap();
    owner::set_controller(parent, &mut secret).unwrap();
    secret
}

fn controller(right: bool) -> Controller {
    let reconciler = reconcile::function(move |ctx: Context, request: Request| async move {
        let Some(parent) = ctx.lister::<ConfigMap>()?.get(&request)? else {
            return Ok::<_, reconcile::Error>(Outcome::done());
        };
        let secrets = ctx.lister::<Secret>()?;
        for (n, suffix) in ["ca", "key"].into_iter().enumerate() {
            let wanted = secret(&parent, suffix);
            let key = ObjectKey::of(&wanted);
            if secrets.get(&key)?.is_none() {
                ctx.client().create(&wanted).await?;
            } else if n == 0 && !right {
                return Ok(Outcome::done());
            }
        }
        Ok(Outcome::done())
    });
    Controller::builder("pairs")
        .for_kind::<ConfigMap>()
        .owns::<Secret>()
        .complete(reconciler)
        .unwrap()
}

async fn scenario(world: &World<()>) {
    world
        .create::<ConfigMap>(json!({"metadata": {"name": "a", "namespace": "default"}}))
        .await;
    world.settle().await;
}

#[test]
fn a_guard_by_the_first_object_is_found() {
    let report = explored(
        Explorer::new(|_: &Process<()>| vec![controller(false)]),
        scenario,
    );
    assert_eq!(report.failures.len(), 1);
}

#[test]
fn the_right_form_of_a_guard_passes() {
    let report = explored(
        Explorer::new(|_: &Process<()>| vec![controller(true)]),
        scenario,
    );
    assert!(report.failures.is_empty());
}
