//! What the controller does: each {{kind}} has a ConfigMap of its name, which holds its message.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use reeve_controller::client::{Change, Patch, optional};
use reeve_controller::conditions::Observation;
use reeve_controller::controller::BuildError;
use reeve_controller::prelude::*;

use crate::NAME;
use crate::api::{READY, {{kind}}};
{% unless namespaced %}
/// The namespace of the ConfigMaps: a {{kind}} is in none.
pub const NAMESPACE: &str = "default";
{% endunless %}
/// The delay until the next try to get a ConfigMap that belongs to another object.
const TAKEN: Duration = Duration::from_secs(60);

/// The key of the message in a ConfigMap.
pub const MESSAGE: &str = "message";

/// The controller. Changes of a {{kind}} and of its ConfigMap request a reconcile.
///
/// # Errors
/// When its parts contradict each other, which a test rules out.
pub fn controller() -> Result<Controller, BuildError> {
    Controller::builder(NAME)
        .for_kind::<{{kind}}>()
        .owns::<ConfigMap>()
        .complete(reconcile::object(reconcile))
}

/// Brings the ConfigMap and the status to the state that `object` asks for. It may run at any time, for whatever
/// reason, and comes to the same result.
async fn reconcile(ctx: Context, object: Arc<{{kind}}>) -> Result<Outcome, reconcile::Error> {
    // The API server deletes the ConfigMap, because the object owns it.
    if finalizer::is_deleting(&*object) {
        return Ok(Outcome::done());
    }
    let name = object.name_any();
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.clone());
    map.metadata.namespace = {% if namespaced %}object.namespace(){% else %}Some(NAMESPACE.to_owned()){% endif %};
    // `create_or_patch` creates the ConfigMap, changes it, or does nothing if it is as it should be.
    let written = ctx.client().create_or_patch(map, |map| {
        let data = map.data.get_or_insert_default();
        data.insert(MESSAGE.to_owned(), object.spec.message.clone());
        owner::set_controller(&*object, map).map(drop)
    });
    let ready = match written.await {
        Ok((_, change)) => {
            if change != Change::Unchanged {
                let note = format!("the ConfigMap {name} was {change}");
                ctx.events().event(&*object, EventType::Normal, "Written", "Write", note);
            }
            Observation::is_true(READY, "Written")
        }
        // The ConfigMap belongs to another object, whose events bring no request for this one: look again later.
        Err(error) if is_taken(&error) => {
            let taken = Observation::is_false(READY, "NameTaken").message(error.to_string());
            report(&ctx, &object, taken).await?;
            return Ok(Outcome::requeue_after(TAKEN));
        }
        // Everything else is retried, with a growing delay.
        Err(error) => return Err(error.into()),
    };
    report(&ctx, &object, ready).await?;
    Ok(Outcome::done())
}

/// Whether the ConfigMap is controlled by another object.
fn is_taken(error: &reeve_controller::client::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if matches!(error.downcast_ref(), Some(owner::Error::AlreadyOwned { .. })) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Writes the condition into the status if it changed.
async fn report(ctx: &Context, object: &{{kind}}, ready: Observation) -> Result<(), reconcile::Error> {
    let mut reported = object.clone();
    let ready = ready.generation(object.metadata.generation);
    let status = reported.status.get_or_insert_default();
    if conditions::set(&mut status.conditions, ready, ctx.clock().now()) {
        let (key, patch) = (ObjectKey::of(object), Patch::merge_from(object, &reported)?);
        let write = ctx.client().patch_status::<{{kind}}>(&key, patch);
        // The object may be gone by now.
        optional(write.await)?;
    }
    Ok(())
}
