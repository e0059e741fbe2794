//! A controller that writes by server-side apply: `cargo run -p reeve-controller --example server_side_apply`, in the
//! cluster of the current kubeconfig, until Ctrl-C.
//!
//! For each ConfigMap with the label `greet` it keeps a second one with a greeting. It applies only its own fields, as a
//! field owner. The server creates a missing object, leaves fields of other owners unchanged, and removes fields that this
//! owner applied before and does not apply any more. The controller does not compare anything: an apply without a change
//! makes no new version, so there is no event that requests another reconcile.

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::{Expression, Resource, ResourceExt};
use reeve_controller::client::{ApplyOptions, connect};
use reeve_controller::{Context, Controller, Manager, Outcome, Reconciler, Request};
use reeve_controller::{controller, finalizer, predicate, reconcile};

/// The field owner; `kubectl get --show-managed-fields` shows it.
pub(crate) const OWNER: &str = "greeter";

struct Greeter;

impl Reconciler for Greeter {
    type Error = reconcile::Error;

    async fn reconcile(&self, ctx: Context, request: Request) -> Result<Outcome, Self::Error> {
        let map = ctx.lister::<ConfigMap>()?.get(&request)?;
        let Some(map) = map.filter(|map| !finalizer::is_deleting(map)) else {
            return Ok(Outcome::done());
        };
        let mut wanted = ConfigMap::default();
        wanted.metadata.namespace = map.namespace();
        wanted.metadata.name = Some(format!("{}-greeting", map.name_any()));
        wanted.metadata.owner_references =
            Some(map.controller_owner_ref(&()).into_iter().collect());
        let said = map.data.clone().unwrap_or_default();
        let name = said.get("name").map_or("world", String::as_str);
        let data = wanted.data.get_or_insert_default();
        data.insert("greeting".to_owned(), format!("Hello {name}"));
        // Without a title in the source, `wanted` has none, and the server removes the former one.
        data.extend(
            said.get("title")
                .map(|title| ("title".to_owned(), title.clone())),
        );
        // A controller takes its fields from any other owner with force. A person should apply without force: the
        // conflict names the owner.
        let options = ApplyOptions::new(OWNER).force();
        ctx.client().apply(&wanted, options).await?;
        Ok(Outcome::done())
    }
}

/// The controller.
pub(crate) fn greeter() -> Result<Controller, controller::BuildError> {
    Controller::builder("greeter")
        .for_kind::<ConfigMap>()
        .with_predicate(predicate::labels(Expression::Exists("greet".into())))
        .owns::<ConfigMap>()
        .complete(Greeter)
}

#[tokio::main]
#[allow(dead_code, reason = "the tests have their own server")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let client = connect::infer(&connect::Options::new()).await?;
    let manager = Manager::builder(client).build().await?;
    manager.add_controller(greeter()?)?;
    manager.run_until_signal().await?;
    Ok(())
}
