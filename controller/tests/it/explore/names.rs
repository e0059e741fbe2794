//! G4, deletion by name: a process that reads the past sees the old parent go, and deletes what belongs to the new one of its
//! name.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service};
use reeve_controller::client::Patch;
use reeve_controller::testing::explore::{Explorer, World};
use reeve_controller::{Context, ObjectKey, Outcome, Request, finalizer, reconcile};
use serde_json::json;

use super::corpus::{Bug, bug, explored};
use super::kinds::{
    App, Child, Parent, child, delete_by_name, delete_this, live, make, number, one, remove,
};

const FINALIZER: &str = "example.com/children";

/// Children that the parent does not own, deleted with it.
async fn kept<P: Parent, C: Child>(
    ctx: Context,
    request: Request,
    right: bool,
) -> Result<Outcome, reconcile::Error> {
    let Some(parent) = ctx.lister::<P>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    if finalizer::is_deleting(&parent) {
        for n in 0..number(&*parent, "size") {
            let suffix = format!("-{n}");
            if !right {
                delete_by_name::<C>(&ctx, &child(&*parent, &suffix)).await?;
            } else if let Some(child) = live::<P, C>(&ctx, &*parent, &suffix).await? {
                delete_this(&ctx, &child).await?;
            }
        }
        if let Some(patch) = finalizer::remove_patch(&parent, FINALIZER) {
            ctx.client()
                .patch::<P>(&request, Patch::merge(patch))
                .await?;
        }
        return Ok(Outcome::done());
    }
    if let Some(patch) = finalizer::add_patch(&parent, FINALIZER) {
        ctx.client()
            .patch::<P>(&request, Patch::merge(patch))
            .await?;
    }
    for n in 0..number(&*parent, "size") {
        let wanted: C = child(&*parent, &format!("-{n}"));
        if ctx.lister::<C>()?.get(&ObjectKey::of(&wanted))?.is_none() {
            ctx.client().create(&wanted).await?;
        }
    }
    Ok(Outcome::done())
}

async fn again<P: Parent, const SIZE: u32>(world: &World<()>) {
    let size = json!({"size": SIZE.to_string()});
    make::<P>(world, size.clone()).await;
    remove::<P>(world).await;
    make::<P>(world, size).await;
}

fn deletion<P: Parent, C: Child, const SIZE: u32>(name: &'static str, like: &'static str) -> Bug {
    let explorer = |right| {
        Explorer::new(move |_| one::<P, C, _, _>(move |ctx, it| kept::<P, C>(ctx, it, right)))
            .install::<App>()
    };
    bug(name, like, &["stale"], explorer, again::<P, SIZE>)
}

fn bugs() -> Vec<Bug> {
    vec![
        deletion::<App, PersistentVolumeClaim, 1>("the volume of a new cluster", "S1"),
        deletion::<ConfigMap, PersistentVolumeClaim, 1>("the volume of a new ConfigMap", "S2"),
        deletion::<App, PersistentVolumeClaim, 2>("two volumes of a new cluster", "S3–S6"),
        deletion::<App, StatefulSet, 1>("the StatefulSet of a new cluster", "S7"),
        deletion::<ConfigMap, Secret, 1>("the certificates of a new cluster", "S19"),
        deletion::<App, Service, 2>("two Services of a new cluster", ""),
    ]
}

#[test]
fn a_deletion_by_the_name_of_the_parent_is_found() {
    explored("G4", &bugs());
}
