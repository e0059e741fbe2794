//! G6, a child that a setting switches off and on, or replaces: a process that reads the past deletes the new one by its name.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use reeve_controller::testing::explore::{Explorer, World};
use reeve_controller::{Context, ObjectKey, Outcome, Request, reconcile};
use serde_json::json;

use super::corpus::{Bug, bug, explored};
use super::kinds::{App, Child, Parent, change, delete, make, one, owned, setting, value, with};

/// A child while the setting is `on`.
pub(super) async fn toggle<P: Parent, C: Child>(
    ctx: Context,
    request: Request,
    right: bool,
) -> Result<Outcome, reconcile::Error> {
    let Some(parent) = ctx.lister::<P>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    let on = setting(&*parent, "child").as_deref() == Some("on");
    let wanted: C = owned(&*parent, "");
    let present = ctx.lister::<C>()?.get(&ObjectKey::of(&wanted))?;
    match (on, present) {
        (true, None) => drop(ctx.client().create(&wanted).await?),
        (false, Some(child)) => delete(&ctx, &*child, right).await?,
        _ => {}
    }
    Ok(Outcome::done())
}

/// A child with the value of the setting, which is replaced when that changes.
async fn replace<P: Parent, C: Child>(
    ctx: Context,
    request: Request,
    right: bool,
) -> Result<Outcome, reconcile::Error> {
    let Some(parent) = ctx.lister::<P>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    let size = setting(&*parent, "size").unwrap_or_default();
    let wanted: C = with(owned(&*parent, ""), "size", &size);
    match ctx.lister::<C>()?.get(&ObjectKey::of(&wanted))? {
        None => drop(ctx.client().create(&wanted).await?),
        Some(child) if value(&*child, "size") != Some(size) => {
            delete(&ctx, &*child, right).await?;
        }
        Some(_) => {}
    }
    Ok(Outcome::done())
}

async fn off_and_on<P: Parent>(world: &World<()>) {
    make::<P>(world, json!({"child": "on"})).await;
    change::<P>(world, json!({"child": "off"})).await;
    change::<P>(world, json!({"child": "on"})).await;
}

async fn other_size<P: Parent>(world: &World<()>) {
    make::<P>(world, json!({"size": "4"})).await;
    change::<P>(world, json!({"size": "1"})).await;
}

fn toggles<P: Parent, C: Child>(name: &'static str, like: &'static str) -> Bug {
    let explorer = |right| {
        Explorer::new(move |_| one::<P, C, _, _>(move |ctx, it| toggle::<P, C>(ctx, it, right)))
            .install::<App>()
    };
    bug(name, like, &["stale"], explorer, off_and_on::<P>)
}

fn replaces<P: Parent, C: Child>(name: &'static str, like: &'static str) -> Bug {
    let explorer = |right| {
        Explorer::new(move |_| one::<P, C, _, _>(move |ctx, it| replace::<P, C>(ctx, it, right)))
            .install::<App>()
    };
    bug(name, like, &["stale"], explorer, other_size::<P>)
}

fn bugs() -> Vec<Bug> {
    vec![
        toggles::<App, StatefulSet>("shards off, deleted when on again", "S10"),
        toggles::<ConfigMap, StatefulSet>("arbiter off, deleted when on again", "S11"),
        toggles::<App, Service>("proxy off, deleted when on again", "S12, S13"),
        toggles::<App, Secret>("TLS off, its Secret deleted when on again", "S14"),
        toggles::<ConfigMap, Service>("page off, its Service deleted when on again", "S15"),
        replaces::<App, PodDisruptionBudget>("a budget is replaced, then deleted", "S16, S17"),
        replaces::<ConfigMap, ServiceAccount>("an account is replaced, then deleted", ""),
    ]
}

#[test]
fn a_deletion_of_what_is_on_again_is_found() {
    explored("G6", &bugs());
}
