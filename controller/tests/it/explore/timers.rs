//! G12, a timer in memory: the process that would remember it is gone.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use parking_lot::Mutex;
use reeve_controller::client::optional;
use reeve_controller::testing::explore::{Explorer, Outside, Process, World};
use reeve_controller::{Context, ObjectKey, Outcome, Request, reconcile};
use serde_json::json;

use super::corpus::{Bug, bug, explored};
use super::kinds::{App, Child, Parent, delete_this, make, note, one, owned, write_note};

/// How long a child or a ban lives.
const LIFE: SignedDuration = SignedDuration::from_secs(40);

/// When each parent's child ends: what the wrong forms remember.
type Memory = Arc<Mutex<HashMap<Request, Timestamp>>>;

/// When the child of the parent ends: the right form notes it before the child is made, the wrong one remembers it.
async fn end_of<P: Parent>(
    ctx: &Context,
    parent: &P,
    request: &Request,
    memory: &Memory,
    (new, right): (bool, bool),
) -> Result<Option<Timestamp>, reconcile::Error> {
    let end = ctx.clock().now() + LIFE;
    if right {
        if let Some(end) = note(parent, "end") {
            return Ok(Some(end.parse().unwrap()));
        }
        // The cache may not have the note yet.
        let now = optional(ctx.client().get::<P>(request).await)?;
        if let Some(end) = now.and_then(|now| note(&now, "end")) {
            return Ok(Some(end.parse().unwrap()));
        }
        write_note(ctx, parent, "end", &end.to_string()).await?;
        return Ok(Some(end));
    }
    if new {
        memory.lock().insert(request.clone(), end);
    }
    Ok(memory.lock().get(request).copied())
}

fn rest_of(ctx: &Context, end: Timestamp) -> Option<Duration> {
    let rest = ctx.clock().until(end);
    (!rest.is_zero()).then_some(rest)
}

/// A child that lives for a time.
async fn expires<P: Parent, C: Child>(
    ctx: Context,
    request: Request,
    memory: Memory,
    right: bool,
) -> reconcile::Result {
    let Some(parent) = ctx.lister::<P>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    let wanted: C = owned(&*parent, "");
    let present = ctx.lister::<C>()?.get(&ObjectKey::of(&wanted))?;
    let over = note(&*parent, "over").is_some();
    let new = present.is_none() && !over;
    let end = end_of(&ctx, &*parent, &request, &memory, (new, right)).await?;
    let rest = end.map(|end| rest_of(&ctx, end));
    if let Some(None) = rest {
        if !over {
            write_note(&ctx, &*parent, "over", "yes").await?;
        }
        if let Some(child) = present {
            delete_this(&ctx, &*child).await?;
        }
        return Ok(Outcome::done());
    }
    if new {
        ctx.client().create(&wanted).await?;
    }
    Ok(rest
        .flatten()
        .map_or_else(Outcome::done, Outcome::requeue_after))
}

/// A ban outside that lives for a time.
async fn bans<P: Parent>(
    ctx: Context,
    request: Request,
    outside: Outside<BTreeSet<String>>,
    memory: Memory,
    right: bool,
) -> reconcile::Result {
    let Some(parent) = ctx.lister::<P>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    let name = request.name.to_string();
    let banned = outside.read(|bans| bans.contains(&name)).await;
    let over = note(&*parent, "over").is_some();
    let new = !banned && !over;
    let end = end_of(&ctx, &*parent, &request, &memory, (new, right)).await?;
    let rest = end.map(|end| rest_of(&ctx, end));
    if let Some(None) = rest {
        if !over {
            write_note(&ctx, &*parent, "over", "yes").await?;
        }
        if banned {
            let lift = outside.call("lift", |bans| bans.remove(&name));
            lift.await.map_err(reconcile::Error::outage)?;
        }
        return Ok(Outcome::done());
    }
    if new {
        let ban = outside.call("ban", |bans| bans.insert(name));
        ban.await.map_err(reconcile::Error::outage)?;
    }
    Ok(rest
        .flatten()
        .map_or_else(Outcome::done, Outcome::requeue_after))
}

async fn made<S, P: Parent>(world: &World<S>) {
    make::<P>(world, json!({"size": "1"})).await;
}

fn bugs() -> Vec<Bug> {
    const FINDS: &[&str] = &["crash-after"];
    fn expiring<P: Parent, C: Child>(name: &'static str) -> Bug {
        let explorer = |right| {
            Explorer::new(move |_| {
                let memory = Memory::default();
                one::<P, C, _, _>(move |ctx, it| {
                    expires::<P, C>(ctx, it, Arc::clone(&memory), right)
                })
            })
            .install::<App>()
        };
        bug(name, "", FINDS, explorer, made::<(), P>)
    }
    fn banning<P: Parent>(name: &'static str) -> Bug {
        let explorer = |right| {
            Explorer::new(move |process: &Process<BTreeSet<String>>| {
                let (memory, outside) = (Memory::default(), process.outside());
                one::<P, Secret, _, _>(move |ctx, it| {
                    bans::<P>(ctx, it, outside.clone(), Arc::clone(&memory), right)
                })
            })
            .install::<App>()
        };
        bug(name, "", FINDS, explorer, made::<BTreeSet<String>, P>)
    }
    vec![
        expiring::<App, Secret>("a Secret outlives its time"),
        expiring::<ConfigMap, Pod>("a Pod outlives its time"),
        banning::<App>("a ban outlives its time"),
    ]
}

#[test]
fn a_timer_that_a_restart_forgets_is_found() {
    explored("G12", &bugs());
}
