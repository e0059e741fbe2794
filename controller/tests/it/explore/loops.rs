//! G13, a status that causes itself: each write is a change, and each change a write.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use reeve_controller::testing::explore::{Explorer, World};
use reeve_controller::{Context, Controller, ObjectKey, Outcome, Request, handler, reconcile};
use serde_json::json;
use std::time::Duration;

use super::corpus::{Bug, bug, explored};
use super::kinds::{App, Parent, make, note, one, owned, setting, value, write_note, write_value};

/// How the note is made that a reconcile writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Note {
    Count,
    Id,
    Poll,
}

/// A note of the last work. The right form writes it when the settings changed.
async fn notes<P: Parent>(
    ctx: Context,
    request: Request,
    which: Note,
    right: bool,
) -> reconcile::Result {
    let Some(parent) = ctx.lister::<P>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    let size = setting(&*parent, "size").unwrap_or_default();
    if right {
        if note(&*parent, "size").as_ref() != Some(&size) {
            write_note(&ctx, &*parent, "size", &size).await?;
        }
        return Ok(Outcome::done());
    }
    let text = match which {
        Note::Count => {
            let count = note(&*parent, "count").map_or(0, |text| text.parse::<u32>().unwrap());
            (count + 1).to_string()
        }
        Note::Id => ctx.reconcile_id().to_string(),
        Note::Poll => size,
    };
    write_note(&ctx, &*parent, "count", &text).await?;
    Ok(match which {
        Note::Poll => Outcome::requeue_after(Duration::from_secs(10)),
        _ => Outcome::done(),
    })
}

/// Keeps a value of a Secret, which the other controller keeps as well. In the right form each has one of its own.
fn keeper(name: &'static str, right: bool) -> Controller {
    let reconciler = move |ctx: Context, request: Request| async move {
        let Some(parent) = ctx.lister::<ConfigMap>()?.get(&request)? else {
            return Ok::<_, reconcile::Error>(Outcome::done());
        };
        let key = ObjectKey::of(&owned::<_, Secret>(&*parent, ""));
        let Some(child) = ctx.lister::<Secret>()?.get(&key)? else {
            return Ok(Outcome::done());
        };
        let field = if right { name } else { "keeper" };
        if value(&*child, field).as_deref() != Some(name) {
            write_value(&ctx, &*child, field, name).await?;
        }
        Ok(Outcome::done())
    };
    Controller::builder(name)
        .for_kind::<ConfigMap>()
        .watches::<Secret>(handler::for_object())
        .complete(reconcile::function(reconciler))
        .unwrap()
}

async fn made<P: Parent>(world: &World<()>) {
    make::<P>(world, json!({"size": "1"})).await;
}

async fn shared(world: &World<()>) {
    let secret = json!({"metadata": {"name": "a", "namespace": "default"}});
    world.create::<Secret>(secret).await;
    make::<ConfigMap>(world, json!({"size": "1"})).await;
}

/// Without any fault.
const FINDS: &[&str] = &["no"];

fn bugs() -> Vec<Bug> {
    fn noting<P: Parent>(name: &'static str, which: Note) -> Bug {
        let explorer = move |right| {
            Explorer::new(move |_| {
                one::<P, Secret, _, _>(move |ctx, it| notes::<P>(ctx, it, which, right))
            })
            .install::<App>()
        };
        bug(name, "", FINDS, explorer, made::<P>)
    }
    let keepers =
        |right| Explorer::new(move |_| vec![keeper("blue", right), keeper("green", right)]);
    vec![
        noting::<App>("a status counts its writes", Note::Count),
        noting::<ConfigMap>("an annotation has the id of the reconcile", Note::Id),
        noting::<App>("a status is written every 10 s", Note::Poll),
        bug(
            "two controllers set one annotation",
            "",
            FINDS,
            keepers,
            shared,
        ),
    ]
}

#[test]
fn a_write_that_causes_itself_is_found() {
    explored("G13", &bugs());
}
