//! G7, a difference has a direction: a process that reads an old parent beside a new child takes growth for a wish to shrink.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use reeve_controller::client::optional;
use reeve_controller::testing::explore::{Explorer, World};
use reeve_controller::{Context, ObjectKey, Outcome, Request, reconcile};
use serde_json::json;

use super::corpus::{Bug, bug, explored};
use super::kinds::{
    App, Child, Parent, change, delete_this, make, number, one, owned, value, with, write_value,
};

/// A child of the size of the setting. It grows in place; a smaller one is a new one.
async fn sized<P: Parent, C: Child>(
    ctx: Context,
    request: Request,
    right: bool,
) -> Result<Outcome, reconcile::Error> {
    let Some(mut parent) = ctx.lister::<P>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    let key = ObjectKey::of(&owned::<P, C>(&*parent, ""));
    // The cache of children is behind after a write, so the server is asked.
    let present = optional(ctx.client().get::<C>(&key).await)?;
    let has = |child: &C| value(child, "size").map_or(0, |size| size.parse::<u32>().unwrap());
    if right
        && present
            .as_ref()
            .is_some_and(|child| has(child) > number(&*parent, "size"))
    {
        // A deletion needs a parent that is as new as the child.
        match optional(ctx.client().get::<P>(&request).await)? {
            Some(now) => parent = std::sync::Arc::new(now),
            None => return Ok(Outcome::done()),
        }
    }
    let size = number(&*parent, "size");
    match present {
        Some(child) if has(&child) < size => write_value(&ctx, &child, "size", size).await?,
        Some(child) if has(&child) > size => delete_this(&ctx, &child).await?,
        Some(_) => {}
        None => {
            let wanted: C = with(owned(&*parent, ""), "size", size);
            ctx.client().create(&wanted).await?;
        }
    }
    Ok(Outcome::done())
}

async fn grows<P: Parent, const SIZE: u32>(world: &World<()>) {
    make::<P>(world, json!({"size": "10"})).await;
    change::<P>(world, json!({"size": SIZE.to_string()})).await;
}

fn direction<P: Parent, C: Child, const SIZE: u32>(name: &'static str, like: &'static str) -> Bug {
    let explorer = |right| {
        Explorer::new(move |_| one::<P, C, _, _>(move |ctx, it| sized::<P, C>(ctx, it, right)))
            .install::<App>()
    };
    bug(name, like, &["stale"], explorer, grows::<P, SIZE>)
}

fn bugs() -> Vec<Bug> {
    vec![
        direction::<App, StatefulSet, 15>("storage grows, the StatefulSet goes", "S18"),
        direction::<ConfigMap, PersistentVolumeClaim, 11>("a volume grows, and goes", ""),
        direction::<App, Secret, 20>("a key grows, and goes", ""),
    ]
}

#[test]
fn growth_that_is_taken_for_shrinking_is_found() {
    explored("G7", &bugs());
}
