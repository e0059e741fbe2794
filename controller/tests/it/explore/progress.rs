//! G2, progress in two places: a change and the note of it. After a crash between them the change looks done, and the note is
//! never written.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use reeve_controller::testing::explore::{Explorer, Outside, Process, World};
use reeve_controller::{Context, ObjectKey, Outcome, Request, reconcile};
use serde_json::json;

use super::corpus::{Bug, bug, explored};
use super::kinds::{
    App, Child, Parent, change, make, note, one, owned, setting, value, with, write_note,
    write_value,
};

/// A child with the size of the setting, and a note with the size that was reached.
async fn sized<P: Parent, C: Child>(
    ctx: Context,
    request: Request,
    right: bool,
) -> Result<Outcome, reconcile::Error> {
    let Some(parent) = ctx.lister::<P>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    let size = setting(&*parent, "size").unwrap_or_default();
    let wanted: C = with(owned(&*parent, ""), "size", &size);
    let mut changed = true;
    match ctx.lister::<C>()?.get(&ObjectKey::of(&wanted))? {
        None => drop(ctx.client().create(&wanted).await?),
        Some(child) if value(&*child, "size").as_ref() != Some(&size) => {
            write_value(&ctx, &*child, "size", &size).await?;
        }
        Some(_) => changed = false,
    }
    let noted = note(&*parent, "size").as_ref() == Some(&size);
    if if right { !noted } else { changed } {
        write_note(&ctx, &*parent, "size", &size).await?;
    }
    Ok(Outcome::done())
}

/// The service outside has the size of the setting, and a note says so.
async fn resized<P: Parent>(
    ctx: Context,
    request: Request,
    outside: Outside<String>,
    right: bool,
) -> Result<Outcome, reconcile::Error> {
    let Some(parent) = ctx.lister::<P>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    let size = setting(&*parent, "size").unwrap_or_default();
    let there = outside.read(Clone::clone).await;
    let changed = there != size;
    if changed {
        let size = size.clone();
        let resize = outside.call("resize", |state| *state = size);
        resize.await.map_err(reconcile::Error::outage)?;
    }
    let noted = note(&*parent, "size").as_ref() == Some(&size);
    if if right { !noted } else { changed } {
        write_note(&ctx, &*parent, "size", &size).await?;
    }
    Ok(Outcome::done())
}

async fn grows<S, P: Parent>(world: &World<S>) {
    make::<P>(world, json!({"size": "2"})).await;
    change::<P>(world, json!({"size": "1"})).await;
}

fn child<P: Parent, C: Child>(name: &'static str, like: &'static str) -> Bug {
    let explorer = |right| {
        Explorer::new(move |_| one::<P, C, _, _>(move |ctx, it| sized::<P, C>(ctx, it, right)))
            .install::<App>()
    };
    bug(name, like, &["crash-after"], explorer, grows::<(), P>)
}

fn outside<P: Parent>(name: &'static str, like: &'static str) -> Bug {
    let explorer = |right| {
        Explorer::new(move |process: &Process<String>| {
            let outside = process.outside();
            one::<P, Secret, _, _>(move |ctx, it| resized::<P>(ctx, it, outside.clone(), right))
        })
        .install::<App>()
    };
    let finds = &["crash-after", "lose"];
    bug(name, like, finds, explorer, grows::<String, P>)
}

fn bugs() -> Vec<Bug> {
    vec![
        child::<App, StatefulSet>("a StatefulSet shrinks, the status does not", "I3"),
        child::<ConfigMap, Pod>("a Pod is marked, its node is not noted", "I2"),
        child::<App, Secret>("a Secret is written, its version is not noted", "I6"),
        outside::<App>("a service grows, the status stays", "I7"),
        outside::<ConfigMap>("a ban is applied, the note of it is lost", ""),
    ]
}

#[test]
fn a_note_that_a_crash_loses_is_found() {
    explored("G2", &bugs());
}
