//! G1, "if the first one exists, all exist": a crash after the first leaves the others out.

use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use reeve_controller::testing::explore::{Explorer, World};
use reeve_controller::{Context, ObjectKey, Outcome, Request, reconcile};
use serde_json::json;

use super::corpus::{Bug, bug, explored};
use super::kinds::{App, Child, Parent, make, one, owned, two};

/// Creates the child unless the cache has it. Whether it was there.
async fn ensure<C: Child>(ctx: &Context, child: C) -> Result<bool, reconcile::Error> {
    if ctx.lister::<C>()?.get(&ObjectKey::of(&child))?.is_some() {
        return Ok(true);
    }
    ctx.client().create(&child).await?;
    Ok(false)
}

/// A child `-ca`, and one of another kind for each of the `others`.
async fn reconcile<P: Parent, C: Child, D: Child>(
    ctx: Context,
    request: Request,
    others: &[&str],
    right: bool,
) -> Result<Outcome, reconcile::Error> {
    let Some(parent) = ctx.lister::<P>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    let there = ensure::<C>(&ctx, owned(&*parent, "-ca")).await?;
    if there && !right {
        return Ok(Outcome::done());
    }
    for other in others {
        ensure::<D>(&ctx, owned(&*parent, other)).await?;
    }
    Ok(Outcome::done())
}

async fn scenario<P: Parent>(world: &World<()>) {
    make::<P>(world, json!({"size": "1"})).await;
}

fn guard<P: Parent, C: Child, D: Child>(
    name: &'static str,
    like: &'static str,
    others: &'static [&'static str],
) -> Bug {
    let explorer = move |right| {
        Explorer::new(move |_| {
            two::<P, C, D, _, _>(move |ctx, request| {
                reconcile::<P, C, D>(ctx, request, others, right)
            })
        })
        .install::<App>()
    };
    bug(name, like, &["crash-after"], explorer, scenario::<P>)
}

/// As [`guard`], with children of one kind.
fn alike<P: Parent, C: Child>(
    name: &'static str,
    like: &'static str,
    others: &'static [&'static str],
) -> Bug {
    let explorer = move |right| {
        Explorer::new(move |_| {
            one::<P, C, _, _>(move |ctx, request| reconcile::<P, C, C>(ctx, request, others, right))
        })
        .install::<App>()
    };
    bug(name, like, &["crash-after"], explorer, scenario::<P>)
}

fn bugs() -> Vec<Bug> {
    vec![
        alike::<ConfigMap, Secret>("a Secret stands for its key", "I1", &["-key"]),
        alike::<App, Secret>("a Secret stands for three", "I4", &["-key", "-internal"]),
        guard::<App, ConfigMap, Secret>("a certificate stands for its Secret", "I5", &["-key"]),
        guard::<ConfigMap, Secret, ServiceAccount>("a Secret stands for an account", "I9", &[""]),
        guard::<App, Service, PodDisruptionBudget>("a Service stands for a budget", "I10", &[""]),
    ]
}

#[test]
fn a_guard_by_the_first_object_is_found() {
    explored("G1", &bugs());
}
