//! A child that a flag switches off and on: an old view deletes the new one by its name.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::api::{DeleteParams, Preconditions};
use reeve_controller::testing::explore::{Explorer, Process, World};
use reeve_controller::{Context, Controller, ObjectKey, Outcome, Request, owner, reconcile};
use serde_json::json;

use super::explored;

fn controller(right: bool) -> Controller {
    let reconciler = reconcile::function(move |ctx: Context, request: Request| async move {
        let Some(parent) = ctx.lister::<ConfigMap>()?.get(&request)? else {
            return Ok::<_, reconcile::Error>(Outcome::done());
        };
        let on = parent
            .data
            .as_ref()
            .is_some_and(|data| data["child"] == "on");
        let object =
            json!({"metadata": {"name": *request.name, "namespace": request.namespace.as_deref()}});
        let mut wanted: Secret = serde_json::from_value(object).unwrap();
        owner::set_controller(&*parent, &mut wanted)?;
        let key = ObjectKey::of(&wanted);
        let present = ctx.lister::<Secret>()?.get(&key)?;
        match (on, present) {
            (true, None) => drop(ctx.client().create(&wanted).await?),
            (false, Some(child)) => {
                let mut params = DeleteParams::default();
                if right {
                    params.preconditions = Some(Preconditions {
                        uid: child.metadata.uid.clone(),
                        resource_version: None,
                    });
                }
                ctx.client().delete::<Secret>(&key, &params).await?;
            }
            _ => {}
        }
        Ok(Outcome::done())
    });
    Controller::builder("toggles")
        .for_kind::<ConfigMap>()
        .owns::<Secret>()
        .complete(reconciler)
        .unwrap()
}

async fn scenario(world: &World<()>) {
    let on = json!({"metadata": {"name": "a", "namespace": "default"}, "data": {"child": "on"}});
    world.create::<ConfigMap>(on).await;
    world.settle().await;
    for child in ["off", "on"] {
        world
            .patch::<ConfigMap>("default", "a", json!({"data": {"child": child}}))
            .await;
        world.settle().await;
    }
}

#[test]
fn a_deletion_by_name_is_found() {
    let report = explored(
        Explorer::new(|_: &Process<()>| vec![controller(false)]),
        scenario,
    );
    assert_eq!(report.failures.len(), 1);
}

#[test]
fn a_deletion_with_the_uid_passes() {
    let report = explored(
        Explorer::new(|_: &Process<()>| vec![controller(true)]),
        scenario,
    );
    assert!(report.failures.is_empty());
}
