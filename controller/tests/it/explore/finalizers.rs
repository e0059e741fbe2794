//! G9, a finalizer in the wrong order: removed before the last work, or added beside the first.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use reeve_controller::client::Patch;
use reeve_controller::testing::explore::{Explorer, Outside, Process, World};
use reeve_controller::{Context, ObjectKey, Outcome, Request, finalizer, reconcile};
use serde_json::json;

use super::corpus::{Bug, bug, explored};
use super::kinds::{App, Child, Parent, child, delete_this, live, make, one, remove};

const FINALIZER: &str = "example.com/children";

/// The accounts of a service outside.
type Accounts = BTreeSet<String>;

async fn release<P: Parent>(
    ctx: &Context,
    parent: &std::sync::Arc<P>,
) -> Result<(), reconcile::Error> {
    if let Some(patch) = finalizer::remove_patch(parent, FINALIZER) {
        let key = ObjectKey::of(parent);
        ctx.client().patch::<P>(&key, Patch::merge(patch)).await?;
    }
    Ok(())
}

/// Adds the finalizer. Whether it was there.
async fn protect<P: Parent>(
    ctx: &Context,
    parent: &std::sync::Arc<P>,
) -> Result<bool, reconcile::Error> {
    let Some(patch) = finalizer::add_patch(parent, FINALIZER) else {
        return Ok(true);
    };
    let key = ObjectKey::of(parent);
    ctx.client().patch::<P>(&key, Patch::merge(patch)).await?;
    Ok(false)
}

/// A child that the parent does not own. The wrong form removes the finalizer before the child.
async fn cleaned<P: Parent, C: Child>(
    ctx: Context,
    request: Request,
    right: bool,
) -> reconcile::Result {
    let Some(parent) = ctx.lister::<P>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    if finalizer::is_deleting(&parent) {
        if !right {
            release(&ctx, &parent).await?;
        }
        if let Some(child) = live::<P, C>(&ctx, &*parent, "").await? {
            delete_this(&ctx, &child).await?;
        }
        if right {
            release(&ctx, &parent).await?;
        }
        return Ok(Outcome::done());
    }
    protect(&ctx, &parent).await?;
    let wanted: C = child(&*parent, "");
    if ctx.lister::<C>()?.get(&ObjectKey::of(&wanted))?.is_none() {
        ctx.client().create(&wanted).await?;
    }
    Ok(Outcome::done())
}

/// An account outside. The wrong form removes the finalizer before the account.
async fn closed<P: Parent>(
    ctx: Context,
    request: Request,
    outside: Outside<Accounts>,
    right: bool,
) -> reconcile::Result {
    let Some(parent) = ctx.lister::<P>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    let name = request.name.to_string();
    if finalizer::is_deleting(&parent) {
        if !right {
            release(&ctx, &parent).await?;
        }
        let close = outside.call("close", |accounts| accounts.remove(&name));
        close.await.map_err(reconcile::Error::outage)?;
        if right {
            release(&ctx, &parent).await?;
        }
        return Ok(Outcome::done());
    }
    protect(&ctx, &parent).await?;
    if !outside.read(|accounts| accounts.contains(&name)).await {
        let open = outside.call("open", |accounts| accounts.insert(name));
        open.await.map_err(reconcile::Error::outage)?;
    }
    Ok(Outcome::done())
}

/// A child that is made with the finalizer. The wrong form takes the finalizer for the child.
async fn begun<P: Parent, C: Child>(
    ctx: Context,
    request: Request,
    right: bool,
) -> reconcile::Result {
    let Some(parent) = ctx.lister::<P>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    if finalizer::is_deleting(&parent) {
        if let Some(child) = live::<P, C>(&ctx, &*parent, "").await? {
            delete_this(&ctx, &child).await?;
        }
        release(&ctx, &parent).await?;
        return Ok(Outcome::done());
    }
    let protected = protect(&ctx, &parent).await?;
    let wanted: C = child(&*parent, "");
    let absent = ctx.lister::<C>()?.get(&ObjectKey::of(&wanted))?.is_none();
    if absent && (right || !protected) {
        ctx.client().create(&wanted).await?;
    }
    Ok(Outcome::done())
}

async fn made<S, P: Parent>(world: &World<S>) {
    make::<P>(world, json!({"size": "1"})).await;
}

async fn removed<S, P: Parent>(world: &World<S>) {
    make::<P>(world, json!({"size": "1"})).await;
    remove::<P>(world).await;
}

const FINDS: &[&str] = &["crash-after"];

fn bugs() -> Vec<Bug> {
    fn cleaned_bug<P: Parent, C: Child>(name: &'static str, like: &'static str) -> Bug {
        let explorer = |right| {
            Explorer::new(move |_| {
                one::<P, C, _, _>(move |ctx, it| cleaned::<P, C>(ctx, it, right))
            })
            .install::<App>()
        };
        bug(name, like, FINDS, explorer, removed::<(), P>)
    }
    fn begun_bug<P: Parent, C: Child>(name: &'static str, like: &'static str) -> Bug {
        let explorer = |right| {
            Explorer::new(move |_| one::<P, C, _, _>(move |ctx, it| begun::<P, C>(ctx, it, right)))
                .install::<App>()
        };
        bug(name, like, FINDS, explorer, made::<(), P>)
    }
    fn closed_bug<P: Parent>(name: &'static str, like: &'static str) -> Bug {
        let explorer = |right| {
            Explorer::new(move |process: &Process<Accounts>| {
                let outside = process.outside();
                one::<P, Secret, _, _>(move |ctx, it| closed::<P>(ctx, it, outside.clone(), right))
            })
            .install::<App>()
        };
        bug(name, like, FINDS, explorer, removed::<Accounts, P>)
    }
    vec![
        cleaned_bug::<App, StatefulSet>("a StatefulSet outlives its cluster", "mongodb -590"),
        cleaned_bug::<ConfigMap, StatefulSet>("a set outlives its ConfigMap", "zookeeper #410"),
        begun_bug::<App, Secret>("the finalizer stands for the Secret", "nifikop #86"),
        closed_bug::<App>("an account outlives its owner", ""),
        closed_bug::<ConfigMap>("a ban outlives its block", ""),
    ]
}

#[test]
fn a_finalizer_that_goes_too_early_is_found() {
    explored("G9", &bugs());
}
