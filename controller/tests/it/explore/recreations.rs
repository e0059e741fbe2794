//! G3, delete to create again: the deletion takes the reason with it, and a crash after it leaves the rest of the work out.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use reeve_controller::testing::explore::{Explorer, World};
use reeve_controller::{Context, ObjectKey, Outcome, Request, reconcile};
use serde_json::json;

use super::corpus::{Bug, bug, explored};
use super::kinds::{
    App, Child, Parent, change, delete_this, make, owned, setting, two, value, with, write_value,
};

/// A set, which is replaced when the size changes, and a volume of that size.
async fn resize<P: Parent, C: Child, D: Child>(
    ctx: Context,
    request: Request,
    right: bool,
) -> Result<Outcome, reconcile::Error> {
    let Some(parent) = ctx.lister::<P>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    let size = setting(&*parent, "size").unwrap_or_default();
    let set: C = with(owned(&*parent, ""), "size", &size);
    let volume: D = with(owned(&*parent, "-data"), "size", &size);
    let present = ctx.lister::<C>()?.get(&ObjectKey::of(&set))?;
    let other = |size_of: Option<String>| size_of.as_ref() != Some(&size);
    let replaced = present
        .as_ref()
        .is_some_and(|set| other(value(&**set, "size")));
    if replaced && let Some(set) = &present {
        delete_this(&ctx, &**set).await?;
    }
    match ctx.lister::<D>()?.get(&ObjectKey::of(&volume))? {
        None => drop(ctx.client().create(&volume).await?),
        Some(volume) if (right || replaced) && other(value(&*volume, "size")) => {
            write_value(&ctx, &*volume, "size", &size).await?;
        }
        Some(_) => {}
    }
    if replaced || present.is_none() {
        ctx.client().create(&set).await?;
    }
    Ok(Outcome::done())
}

async fn grows<P: Parent>(world: &World<()>) {
    make::<P>(world, json!({"size": "1"})).await;
    change::<P>(world, json!({"size": "2"})).await;
}

fn recreation<P: Parent, C: Child, D: Child>(name: &'static str, like: &'static str) -> Bug {
    let explorer = |right| {
        Explorer::new(move |_| {
            two::<P, C, D, _, _>(move |ctx, it| resize::<P, C, D>(ctx, it, right))
        })
        .install::<App>()
    };
    bug(name, like, &["crash-after"], explorer, grows::<P>)
}

pub(super) fn bugs() -> Vec<Bug> {
    vec![
        recreation::<App, StatefulSet, PersistentVolumeClaim>("a volume does not grow", "I8"),
        recreation::<ConfigMap, StatefulSet, Secret>("a Secret stays old", "I11"),
        recreation::<ConfigMap, Service, Pod>("a Pod behind a new Service stays old", ""),
    ]
}

#[test]
fn a_reason_that_is_deleted_is_found() {
    explored("G3", &bugs());
}
