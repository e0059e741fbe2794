//! A controller that writes by server-side apply: `cargo run -p reeve-controller --example server_side_apply`, in the
//! cluster of the current kubeconfig, until Ctrl-C.
//!
//! For each ConfigMap with the label `greet` it wants a second one with a greeting. It applies what it wants and nothing
//! else, in its own name: the server makes the object if there is none, leaves the fields of others alone, and takes away
//! what this owner said before and does not say any more. So nothing is compared here: an apply that changes nothing makes
//! no new version, and no event brings the controller back. The API server of this project has no server-side apply and
//! answers 415, so this one example needs a real server.

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::{Expression, Resource, ResourceExt};
use reeve_controller::client::{ApplyOptions, connect};
use reeve_controller::{Context, Controller, Manager, Outcome, Reconciler, Request};
use reeve_controller::{controller, finalizer, predicate, reconcile};

/// In whose name fields are written; `kubectl get --show-managed-fields` shows it.
pub(crate) const OWNER: &str = "greeter";

struct Greeter;

impl Reconciler for Greeter {
    type Error = reconcile::Error;

    async fn reconcile(&self, ctx: Context, request: Request) -> Result<Outcome, Self::Error> {
        let map = ctx.lister::<ConfigMap>()?.get(&request)?;
        let Some(map) = map.filter(|map| !finalizer::is_deleting(&**map)) else {
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
        // Without a title there is none in `wanted`, and the server removes the one of before.
        data.extend(
            said.get("title")
                .map(|title| ("title".to_owned(), title.clone())),
        );
        // What a controller wants it takes, whoever had it; a person who applies without force is told who has it.
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
#[allow(dead_code, reason = "the tests bring a server of their own")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let client = connect::infer(&connect::Options::new()).await?;
    let manager = Manager::builder(client).build().await?;
    manager.add_controller(greeter()?)?;
    manager.run_until_signal().await?;
    Ok(())
}
