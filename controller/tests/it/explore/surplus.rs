//! G5, deletion of surplus: a list of the past says that a child is one too many, and it is in use again.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use reeve_controller::testing::explore::{Explorer, World};
use reeve_controller::{Context, ObjectKey, Outcome, Request, reconcile};
use serde_json::json;

use super::corpus::{Bug, bug, explored};
use super::kinds::{App, Child, Parent, change, children, delete, make, number, one, owned};

/// As many children as the setting says, numbered from 0.
async fn scale<P: Parent, C: Child>(
    ctx: Context,
    request: Request,
    right: bool,
) -> Result<Outcome, reconcile::Error> {
    let Some(parent) = ctx.lister::<P>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    let wanted: Vec<C> = (0..number(&*parent, "size"))
        .map(|n| owned(&*parent, &format!("-{n}")))
        .collect();
    let keys: Vec<ObjectKey> = wanted.iter().map(ObjectKey::of).collect();
    for child in children::<C>(&ctx, &request)? {
        if !keys.contains(&ObjectKey::of(&child)) {
            delete(&ctx, &*child, right).await?;
        }
    }
    for (wanted, key) in wanted.iter().zip(&keys) {
        if ctx.lister::<C>()?.get(key)?.is_none() {
            ctx.client().create(wanted).await?;
        }
    }
    Ok(Outcome::done())
}

async fn down_and_up<P: Parent, const MOST: u32>(world: &World<()>) {
    let most = json!({"size": MOST.to_string()});
    make::<P>(world, most.clone()).await;
    change::<P>(world, json!({"size": "1"})).await;
    change::<P>(world, most).await;
}

fn surplus<P: Parent, C: Child, const MOST: u32>(name: &'static str, like: &'static str) -> Bug {
    let explorer = |right| {
        Explorer::new(move |_| one::<P, C, _, _>(move |ctx, it| scale::<P, C>(ctx, it, right)))
            .install::<App>()
    };
    bug(name, like, &["stale"], explorer, down_and_up::<P, MOST>)
}

fn bugs() -> Vec<Bug> {
    vec![
        surplus::<App, PersistentVolumeClaim, 2>("a volume that is in use again", "S8, S9"),
        surplus::<ConfigMap, Pod, 2>("a Pod that runs again", ""),
        surplus::<ConfigMap, Secret, 3>("two Secrets that are in use again", ""),
    ]
}

#[test]
fn a_deletion_of_what_only_the_past_calls_surplus_is_found() {
    explored("G5", &bugs());
}
