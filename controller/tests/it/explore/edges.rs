//! G8, triggered by an edge: the work is done when an intermediate state is seen, and that state can be over before it is
//! seen.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use reeve_controller::testing::explore::{Explorer, World};
use reeve_controller::{Context, ObjectKey, Outcome, Request, reconcile};
use serde_json::json;

use super::corpus::{Bug, bug, explored};
use super::kinds::{
    App, Child, Parent, change, child, children, delete_this, make, note, number, one, remove,
    setting, two, value, with, write_note, write_value,
};

/// A child while there is a parent. The wrong form deletes it when it sees the parent leave.
async fn leaving<P: Parent, C: Child>(
    ctx: Context,
    request: Request,
    right: bool,
) -> Result<Outcome, reconcile::Error> {
    let parent = ctx.lister::<P>()?.get(&request)?;
    let leaves = parent
        .as_ref()
        .is_some_and(|parent| setting(&**parent, "state").as_deref() == Some("leaving"));
    if leaves || (right && parent.is_none()) {
        for child in children::<C>(&ctx, &request)? {
            delete_this(&ctx, &*child).await?;
        }
    } else if let Some(parent) = parent {
        let wanted: C = child(&*parent, "");
        if ctx.lister::<C>()?.get(&ObjectKey::of(&wanted))?.is_none() {
            ctx.client().create(&wanted).await?;
        }
    }
    Ok(Outcome::done())
}

/// Deletes the volumes of numbers above the setting, which others made. The wrong form does so when it sees the number go
/// down.
async fn shrinking<P: Parent, C: Child>(
    ctx: Context,
    request: Request,
    right: bool,
) -> Result<Outcome, reconcile::Error> {
    let Some(parent) = ctx.lister::<P>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    let size = number(&*parent, "size");
    let before = note(&*parent, "size").map_or(size, |size| size.parse().unwrap());
    if right || size < before {
        for child in children::<C>(&ctx, &request)? {
            let number: u32 = value(&*child, "number").unwrap().parse().unwrap();
            if number >= size {
                delete_this(&ctx, &*child).await?;
            }
        }
    }
    if note(&*parent, "size").as_ref() != Some(&size.to_string()) {
        write_note(&ctx, &*parent, "size", &size.to_string()).await?;
    }
    Ok(Outcome::done())
}

/// A child with the number of the machine, which changes while the setting is `off`. The wrong form forgets it when it sees
/// that, and makes it when there is none.
async fn replaced<P: Parent, C: Child>(
    ctx: Context,
    request: Request,
    right: bool,
) -> Result<Outcome, reconcile::Error> {
    let Some(parent) = ctx.lister::<P>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    let machine = setting(&*parent, "machine").unwrap_or_default();
    let on = setting(&*parent, "node").as_deref() == Some("on");
    let wanted: C = with(child(&*parent, ""), "machine", &machine);
    match ctx.lister::<C>()?.get(&ObjectKey::of(&wanted))? {
        Some(member) if !on => delete_this(&ctx, &*member).await?,
        Some(member) if right && value(&*member, "machine") != Some(machine.clone()) => {
            write_value(&ctx, &*member, "machine", &machine).await?;
        }
        None if on => drop(ctx.client().create(&wanted).await?),
        _ => {}
    }
    Ok(Outcome::done())
}

/// A child, and one for the beginning. The wrong form makes that only for a parent that it sees at its beginning.
async fn begins<P: Parent, C: Child, D: Child>(
    ctx: Context,
    request: Request,
    right: bool,
) -> Result<Outcome, reconcile::Error> {
    let Some(parent) = ctx.lister::<P>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    let first = setting(&*parent, "state").as_deref() == Some("new");
    let init: D = child(&*parent, "-init");
    if (right || first) && ctx.lister::<D>()?.get(&ObjectKey::of(&init))?.is_none() {
        ctx.client().create(&init).await?;
    }
    let wanted: C = child(&*parent, "");
    if ctx.lister::<C>()?.get(&ObjectKey::of(&wanted))?.is_none() {
        ctx.client().create(&wanted).await?;
    }
    Ok(Outcome::done())
}

async fn leaves<P: Parent>(world: &World<()>) {
    make::<P>(world, json!({"state": "here"})).await;
    change::<P>(world, json!({"state": "leaving"})).await;
    remove::<P>(world).await;
}

/// Another program makes a volume for each number, as a StatefulSet does.
async fn up_and_down<P: Parent, C: Child, const FEW: u32, const MANY: u32>(world: &World<()>) {
    make::<P>(world, json!({"size": FEW.to_string()})).await;
    change::<P>(world, json!({"size": MANY.to_string()})).await;
    for n in 0..MANY {
        let mut volume = C::body();
        volume["metadata"] = json!({
            "name": format!("a-{n}"), "namespace": "default", "labels": {"of": "a"},
            "annotations": {"number": n.to_string()},
        });
        world.create::<C>(volume).await;
    }
    world.settle().await;
    change::<P>(world, json!({"size": FEW.to_string()})).await;
}

async fn off_and_on<P: Parent>(world: &World<()>) {
    make::<P>(world, json!({"node": "on", "machine": "1"})).await;
    change::<P>(world, json!({"node": "off", "machine": "1"})).await;
    change::<P>(world, json!({"node": "on", "machine": "2"})).await;
}

async fn begun<P: Parent>(world: &World<()>) {
    make::<P>(world, json!({"state": "new"})).await;
    change::<P>(world, json!({"state": "older"})).await;
}

const FINDS: &[&str] = &["hold-on"];

fn bugs() -> Vec<Bug> {
    fn leaving_bug<P: Parent, C: Child>(name: &'static str, like: &'static str) -> Bug {
        let explorer = |right| {
            Explorer::new(move |_| {
                one::<P, C, _, _>(move |ctx, it| leaving::<P, C>(ctx, it, right))
            })
            .install::<App>()
        };
        bug(name, like, FINDS, explorer, leaves::<P>)
    }
    fn shrinking_bug<P: Parent, C: Child, const FEW: u32, const MANY: u32>(
        name: &'static str,
        like: &'static str,
    ) -> Bug {
        let explorer = |right| {
            Explorer::new(move |_| {
                one::<P, C, _, _>(move |ctx, it| shrinking::<P, C>(ctx, it, right))
            })
            .install::<App>()
        };
        bug(name, like, FINDS, explorer, up_and_down::<P, C, FEW, MANY>)
    }
    fn replaced_bug<P: Parent, C: Child>(name: &'static str, like: &'static str) -> Bug {
        let explorer = |right| {
            Explorer::new(move |_| {
                one::<P, C, _, _>(move |ctx, it| replaced::<P, C>(ctx, it, right))
            })
            .install::<App>()
        };
        bug(name, like, FINDS, explorer, off_and_on::<P>)
    }
    fn begins_bug<P: Parent, C: Child, D: Child>(name: &'static str, like: &'static str) -> Bug {
        let explorer = |right| {
            Explorer::new(move |_| {
                two::<P, C, D, _, _>(move |ctx, it| begins::<P, C, D>(ctx, it, right))
            })
            .install::<App>()
        };
        bug(name, like, FINDS, explorer, begun::<P>)
    }
    vec![
        leaving_bug::<ConfigMap, PersistentVolumeClaim>("a volume stays: the end was quick", "U1"),
        replaced_bug::<App, Secret>("a node is back before it was gone", "U2"),
        replaced_bug::<ConfigMap, Pod>("an arbiter is back before it was gone", "U3"),
        shrinking_bug::<App, PersistentVolumeClaim, 1, 3>("volumes stay, 1-3-1", "U4"),
        shrinking_bug::<ConfigMap, Secret, 3, 5>("Secrets stay, 3-5-3", "U5"),
        shrinking_bug::<App, Service, 3, 4>("a Service stays, 3-4-3", "U6"),
        begins_bug::<App, Secret, ConfigMap>("the beginning was not seen", "U7"),
    ]
}

#[test]
fn work_that_needs_a_state_in_between_is_found() {
    explored("G8", &bugs());
}
