//! Conversion between the versions of a resource: every object passes here on its way from the store and to it.
//!
//! An object is stored in the storage version of the time of its last write, and knows which one that is. Reads, lists,
//! watches, admission and the answers of writes get it in the version of their request by [`shown`]; the pipeline stores
//! what [`to_stored`] returns. Objects go through in batches and the functions may wait, because one call of a webhook
//! converts many objects. `convert` is the only place that differs between the ways of [`Conversion`].
//!
//! The server reads some fields of stored objects without conversion: metadata that no conversion may change (names,
//! owners, finalizers, times), and built-in kinds in the one form in which they are stored. Selectors of labels and fields
//! are matched with the version of the request where a webhook converts.

use std::convert::Infallible;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::OnceCell;

use super::present::whole;
use crate::meta;
use crate::resource::{Conversion, ResourceInfo};
use crate::status::Status;
use crate::store::Object;
use crate::webhooks::Network;

/// Objects in the version of `info`. Those that have this form already are returned as they are.
///
/// # Errors
/// 500 when a webhook does not convert an object.
pub(crate) async fn shown(
    network: Network<'_>,
    info: &ResourceInfo,
    mut objects: Vec<Arc<Object>>,
) -> Result<Vec<Arc<Object>>, Status> {
    let others = |object: &&mut Arc<Object>| differs(info, object);
    let mut others: Vec<&mut Arc<Object>> = objects.iter_mut().filter(others).collect();
    if others.is_empty() {
        return Ok(objects);
    }
    let version = info.api_version();
    let values = others.iter().map(|object| {
        let mut value = whole(info, object);
        meta::object_mut(&mut value).insert("apiVersion".to_owned(), object.api_version().into());
        value
    });
    let values = convert(network, info, values.collect(), &version).await?;
    for (object, mut value) in others.iter_mut().zip(values) {
        complete(info, object, &mut value);
        **object = Arc::new(Object::converted(object, &version, value));
    }
    Ok(objects)
}

/// [`shown`] for objects of events, which many watches read: each object is converted once to a version.
///
/// # Errors
/// As of [`shown`].
pub(crate) async fn shown_once(
    network: Network<'_>,
    info: &Arc<ResourceInfo>,
    mut objects: Vec<Arc<Object>>,
) -> Result<Vec<Arc<Object>>, Status> {
    if let [object] = &mut objects[..] {
        if differs(info, object) {
            let cell = cell(info, object);
            let convert = || shown_one(network, info, object.clone());
            let shown = cell.get_or_try_init(convert).await?.clone();
            *object = shown;
        }
        return Ok(objects);
    }
    // A watch that is behind gets many at once, in one call.
    let (mut left, mut cells) = (Vec::new(), Vec::new());
    for object in objects.iter_mut().filter(|object| differs(info, object)) {
        let cell = cell(info, object);
        match cell.get() {
            Some(shown) => *object = shown.clone(),
            None => {
                left.push(object.clone());
                cells.push((object, cell));
            }
        }
    }
    for (shown, (object, cell)) in shown(network, info, left).await?.into_iter().zip(cells) {
        let _ = cell.set(shown.clone());
        *object = shown;
    }
    Ok(objects)
}

/// An object in the version of one served resource.
type Converted = Arc<OnceCell<Arc<Object>>>;

/// The place of `object` in the version of `info`.
fn cell(info: &Arc<ResourceInfo>, object: &Object) -> Converted {
    struct Version(Arc<ResourceInfo>);

    impl PartialEq for Version {
        fn eq(&self, other: &Self) -> bool {
            Arc::ptr_eq(&self.0, &other.0)
        }
    }

    let make = || Ok::<_, Infallible>(Converted::default());
    let Ok(cell) = object.form(Version(info.clone()), make, |_| object.weight());
    cell
}

/// [`shown`] for one object.
///
/// # Errors
/// As of [`shown`].
pub(crate) async fn shown_one(
    network: Network<'_>,
    info: &ResourceInfo,
    object: Arc<Object>,
) -> Result<Arc<Object>, Status> {
    if !differs(info, &object) {
        return Ok(object);
    }
    let shown = shown(network, info, vec![object]).await?;
    shown.into_iter().next().ok_or_else(|| failed(info))
}

/// Whether an object must be converted, or completed, before it is shown.
fn differs(info: &ResourceInfo, object: &Object) -> bool {
    let is_earlier = object.version() <= info.converted_up_to;
    match info.conversion {
        Conversion::BuiltIn => !info.storage_version,
        Conversion::Kept => false,
        // Another version with the same fields has the same content.
        Conversion::None => is_earlier,
        Conversion::Webhook => is_earlier || object.api_version() != info.api_version(),
    }
}

/// The content of an object as its own version shows it: one that is older than the schema is pruned and completed.
pub(crate) fn content(info: Option<&ResourceInfo>, stored: &Object) -> Value {
    let mut value = Value::clone(&stored.value());
    if let Some(info) = info.filter(|info| stored.version() <= info.converted_up_to) {
        complete(info, stored, &mut value);
    }
    value
}

/// Brings the content of a custom resource to the schema of its version. Defaults are those of the version in which it is
/// `stored`; one whose version is not known has those of the storage version.
fn complete(info: &ResourceInfo, stored: &Object, value: &mut Value) {
    let Some(schema) = info.structural().filter(|_| info.custom) else {
        return;
    };
    let from = match stored.api_version() {
        "" => &info.stored_in,
        known => known,
    };
    match info.schemas.get(from) {
        Some(stored) if info.conversion == Conversion::None && from != info.api_version() => {
            stored.prune(value);
            stored.default(value);
            schema.prune(value);
        }
        _ => {
            schema.prune(value);
            schema.default(value);
        }
    }
}

/// Converts the content of an object to the version in which it is stored, and sets its `apiVersion` to that.
///
/// `from` is the `apiVersion` of the content: that of the request or, for a change that does not depend on the version,
/// that of `live`, the object that is replaced.
///
/// # Errors
/// As of [`shown`].
pub(crate) async fn to_stored(
    network: Network<'_>,
    info: &ResourceInfo,
    live: Option<&Object>,
    from: &str,
    mut object: Value,
) -> Result<Value, Status> {
    let mut to = info.stored_in.as_str();
    if info.conversion == Conversion::Kept {
        to = live.map_or(to, Object::api_version);
    } else if from != to {
        let map = meta::object_mut(&mut object);
        map.insert("apiVersion".to_owned(), from.into());
        let converted = convert(network, info, vec![object], to).await?;
        object = one(info, converted)?;
        let is_request = from == info.api_version();
        let has_fields_of_stored = info.conversion == Conversion::None && is_request;
        let own = || info.structural().filter(|_| !has_fields_of_stored);
        if let Some(schema) = info.stored.clone().or_else(own).filter(|_| info.custom) {
            schema.prune(&mut object);
            schema.default(&mut object);
        }
    }
    let map = meta::object_mut(&mut object);
    map.insert("apiVersion".to_owned(), to.into());
    Ok(object)
}

/// Converts an object of the version `from` to the version `to` of the same resource.
///
/// # Errors
/// As of [`shown`].
pub(crate) async fn between(
    network: Network<'_>,
    from: &ResourceInfo,
    to: &ResourceInfo,
    mut object: Value,
) -> Result<Value, Status> {
    let through = if to.conversion == Conversion::BuiltIn {
        // The stored form is between the others.
        object = one(
            from,
            convert(network, from, vec![object], &from.stored_in).await?,
        )?;
        (to.api_version() != to.stored_in).then_some(to)
    } else {
        Some(to)
    };
    if let Some(to) = through {
        object = one(
            to,
            convert(network, to, vec![object], &to.api_version()).await?,
        )?;
    }
    if let Some(schema) = to.structural().filter(|_| to.custom) {
        schema.prune(&mut object);
        schema.default(&mut object);
    }
    Ok(object)
}

/// Converts an object to the version `to`, to compare the owners of its fields. It does not get the defaults of that
/// version, because what a manager removes must be absent in each version.
///
/// # Errors
/// As of [`shown`].
pub(crate) async fn for_owners(
    network: Network<'_>,
    to: &ResourceInfo,
    object: Value,
) -> Result<Value, Status> {
    let converted = convert(network, to, vec![object], &to.api_version()).await?;
    let mut object = one(to, converted)?;
    if let Some(schema) = to.structural() {
        schema.prune(&mut object);
    }
    Ok(object)
}

/// Converts objects, each with its `apiVersion`, to the version `to` of their resource.
async fn convert(
    network: Network<'_>,
    info: &ResourceInfo,
    mut objects: Vec<Value>,
    to: &str,
) -> Result<Vec<Value>, Status> {
    match info.conversion {
        Conversion::BuiltIn => {
            for object in &mut objects {
                if to == info.stored_in {
                    info.strategy.convert_to_stored(info, object);
                } else {
                    info.strategy.convert_from_stored(info, object);
                }
            }
        }
        Conversion::Webhook => {
            if let Some(webhook) = &info.webhook {
                for object in &mut objects {
                    let map = meta::object_mut(object);
                    map.insert("kind".to_owned(), info.kind.as_str().into());
                }
                let converted = webhook.convert(network, &mut objects, to).await;
                converted.map_err(Status::internal_text)?;
            }
        }
        Conversion::Kept | Conversion::None => {}
    }
    for object in &mut objects {
        meta::object_mut(object).insert("apiVersion".to_owned(), to.into());
    }
    Ok(objects)
}

fn one(info: &ResourceInfo, objects: Vec<Value>) -> Result<Value, Status> {
    objects.into_iter().next().ok_or_else(|| failed(info))
}

fn failed(info: &ResourceInfo) -> Status {
    Status::internal_text(format!(
        "conversion for {}, Kind={} returned no object",
        info.api_version(),
        info.kind
    ))
}
