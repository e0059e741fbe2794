//! Children: objects that a controller keeps for the object that it reconciles.
//!
//! [`create_or_patch`] brings one child to the state that its owner asks for. It joins what controllers on
//! controller-runtime write by hand for each child: `CreateOrPatch` with `SetControllerReference` in its function, and a
//! check that the found object is not another's.
//!
//! ```
//! use std::sync::Arc;
//!
//! use k8s_openapi::api::core::v1::{ConfigMap, Secret};
//! use reeve_controller::child;
//! use reeve_controller::prelude::*;
//! use serde_json::json;
//!
//! /// A Secret for each ConfigMap, with the same name.
//! async fn reconcile(ctx: Context, map: Arc<ConfigMap>) -> Result<Outcome, reconcile::Error> {
//!     let secret: Secret = serde_json::from_value(json!({"stringData": {"size": "1"}}))?;
//!     let set = |secret: &mut Secret, wanted: Secret| secret.string_data = wanted.string_data;
//!     let (_secret, _change) = child::create_or_patch(ctx.client(), &map, secret, set).await?;
//!     Ok(Outcome::done())
//! }
//! ```

use kube_core::Resource;

use crate::client::{AsObject, Change, Client, Error, Mutated, Object, is_namespaced};
use crate::owner::{self, Owner};

/// Creates `child`, controlled by `owner`, or patches the existing object to the state that `set` leaves.
///
/// `child` is the wanted state. Its name and its namespace are by default those of `owner`; uid, version and time of
/// creation are ignored. `set` copies the fields that
/// this controller decides from the wanted state, the second argument, to the existing object, the first; it is not called
/// for a new one. Labels and annotations of `child` are set, and others are kept. Nothing is sent if nothing differs.
///
/// Reads and writes are those of [`Client::create_or_patch`](crate::client::Client::create_or_patch): the read is from the
/// cache if that holds the whole kind, the patch has only the difference, and a difference that no write removes is sent
/// once.
///
/// An existing object that `owner` does not control is neither changed nor adopted
/// (controller-runtime: `SetControllerReference` adopts an object without a controller). To adopt one, call
/// [`owner::set_controller`] in a function for `create_or_patch`.
///
/// # Errors
/// [`Error::Mutate`] with [`owner::Error::NotControlled`], with another [`owner::Error`] if `owner` cannot own the child,
/// or with the error of `set`; or when a call fails.
pub async fn create_or_patch<Form, K: Object, M: Mutated>(
    client: &Client,
    owner: &impl AsObject<Form>,
    child: K,
    mut set: impl FnMut(&mut K, K) -> M + Send,
) -> Result<(K, Change), Error> {
    let wanted = named_after(owner.as_object(), child);
    let reference = Owner::of(owner);
    let mutate = |found: &mut K| {
        let reference = reference.as_ref().map_err(owner::Error::clone)?;
        let exists = found.meta().uid.is_some();
        if exists && owner::controller_of(found).is_none() {
            return Err(reference.does_not_control(found).into());
        }
        reference.control(found)?;
        if exists {
            merge(found, &wanted);
            set(found, wanted.clone()).into_result()?;
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    };
    client.create_or_patch(wanted.clone(), mutate).await
}

/// `child` with the name and the namespace of `owner`, where it has none, and without what only an existing object has. A
/// kind without namespaces gets none, so that [`Owner::control`] refuses an owner with one.
fn named_after<K: Object>(owner: &impl Resource, mut child: K) -> K {
    let (owner, meta) = (owner.meta(), child.meta_mut());
    meta.name = meta.name.take().or_else(|| owner.name.clone());
    if is_namespaced::<K>() {
        meta.namespace = meta.namespace.take().or_else(|| owner.namespace.clone());
    }
    (meta.uid, meta.resource_version, meta.creation_timestamp) = (None, None, None);
    child
}

/// Sets the labels and annotations of `wanted` in `found`.
fn merge<K: Object>(found: &mut K, wanted: &K) {
    let (found, wanted) = (found.meta_mut(), wanted.meta());
    for (found, wanted) in [
        (&mut found.labels, &wanted.labels),
        (&mut found.annotations, &wanted.annotations),
    ] {
        if let Some(wanted) = wanted {
            found.get_or_insert_default().extend(wanted.clone());
        }
    }
}
