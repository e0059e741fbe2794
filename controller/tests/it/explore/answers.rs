//! G10, a lost answer: what was done is done again under another name, or counted twice.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use reeve_controller::testing::explore::{Explorer, Outside, Process, World};
use reeve_controller::{Context, Outcome, Request, reconcile};
use serde_json::json;

use super::corpus::{Bug, bug, explored};
use super::kinds::{App, Child, Parent, make, note, one, owned, write_note};

/// What a service outside was asked for: how often for each order.
pub(super) type Orders = BTreeMap<String, u32>;

/// One child, whose name is in a note. The wrong form leaves its name to the server.
pub(super) async fn generated<P: Parent, C: Child>(
    ctx: Context,
    request: Request,
    right: bool,
) -> reconcile::Result {
    let Some(parent) = ctx.lister::<P>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    if note(&*parent, "child").is_some() {
        return Ok(Outcome::done());
    }
    let mut wanted: C = owned(&*parent, "-child");
    if !right {
        wanted.meta_mut().generate_name = wanted.meta_mut().name.take().map(|name| name + "-");
    }
    let name = match ctx.client().create(&wanted).await {
        Ok(child) => child.meta().name.clone(),
        Err(error) if right && error.is_already_exists() => wanted.meta().name.clone(),
        Err(error) => return Err(error.into()),
    };
    write_note(&ctx, &*parent, "child", &name.unwrap_or_default()).await?;
    Ok(Outcome::done())
}

/// One order outside, noted when it is placed. The wrong form places it without an id by which the service knows it again.
pub(super) async fn ordered<P: Parent>(
    ctx: Context,
    request: Request,
    outside: Outside<Orders>,
    right: bool,
) -> reconcile::Result {
    let Some(parent) = ctx.lister::<P>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    if note(&*parent, "ordered").is_some() {
        return Ok(Outcome::done());
    }
    let id = request.name.to_string();
    let place = outside.call("order", |orders| {
        let count = orders.entry(id).or_default();
        // A service that knows the id does nothing the second time.
        *count = if right { 1 } else { *count + 1 };
    });
    place.await.map_err(reconcile::Error::outage)?;
    write_note(&ctx, &*parent, "ordered", "yes").await?;
    Ok(Outcome::done())
}

async fn made<S, P: Parent>(world: &World<S>) {
    make::<P>(world, json!({"size": "1"})).await;
}

const FINDS: &[&str] = &["crash-after", "lose"];

fn bugs() -> Vec<Bug> {
    fn generated_bug<P: Parent, C: Child>(name: &'static str) -> Bug {
        let explorer = |right| {
            Explorer::new(move |_| {
                one::<P, C, _, _>(move |ctx, it| generated::<P, C>(ctx, it, right))
            })
            .install::<App>()
        };
        bug(name, "", FINDS, explorer, made::<(), P>)
    }
    fn ordered_bug<P: Parent>(name: &'static str) -> Bug {
        let explorer = |right| {
            Explorer::new(move |process: &Process<Orders>| {
                let outside = process.outside();
                one::<P, Secret, _, _>(move |ctx, it| ordered::<P>(ctx, it, outside.clone(), right))
            })
            .install::<App>()
        };
        bug(name, "", FINDS, explorer, made::<Orders, P>)
    }
    vec![
        generated_bug::<App, Secret>("a Secret of a generated name"),
        generated_bug::<ConfigMap, Pod>("a Pod of a generated name"),
        ordered_bug::<App>("a load balancer is bought twice"),
        ordered_bug::<ConfigMap>("a message is sent twice"),
    ]
}

#[test]
fn an_answer_that_is_lost_is_found() {
    explored("G10", &bugs());
}
