//! The `scale` subresource: an `autoscaling/v1 Scale` that shows and sets the number of replicas.

use bytes::Bytes;
use serde_json::{Value, json};

use super::patch::{format, is_apply, patched};
use super::pipeline::{Changed, Part, Save, Target, write};
use super::replicas::{at, set};
use super::{Content, Written, apply, read, update};
use crate::core::Core;
use crate::field::{FieldError, Path, quote};
use crate::meta;
use crate::ownership::ScaleWriter;
use crate::request::Request;
use crate::resource::Scale;
use crate::status::Status;
use crate::store::Object;

/// The number that a patch sees of an object without one. (apiextensions-apiserver: `invalidSpecReplicas`.)
const UNSET: i64 = -2_147_483_648;

/// GET of a scale.
///
/// # Errors
/// As of the object.
pub(crate) async fn get(core: &Core, request: &Request, scale: &Scale) -> Result<Value, Status> {
    let object = read::get(core, request).await?;
    Ok(show(scale, &object))
}

/// The Scale of an object.
pub(crate) fn show(scale: &Scale, object: &Object) -> Value {
    let value = &*object.value();
    let replicas = |path: &str| at(value, path).and_then(Value::as_i64).unwrap_or(0);
    let mut metadata = json!({
        "name": object.name(),
        "uid": object.uid(),
        "resourceVersion": object.version().to_string(),
        "creationTimestamp": value["metadata"]["creationTimestamp"],
    });
    if !object.namespace().is_empty() {
        metadata["namespace"] = json!(object.namespace());
    }
    let mut shown = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {},
        "status": {"replicas": replicas(&scale.status_replicas)},
    });
    // Zero is left out, as in the encoding of the Go type.
    let wanted = replicas(&scale.spec_replicas);
    if wanted != 0 {
        shown["spec"]["replicas"] = json!(wanted);
    }
    if let Some(selector) = scale
        .label_selector
        .as_deref()
        .and_then(|path| at(value, path))
    {
        let text = match selector {
            Value::String(text) => text.clone(),
            other => selector_text(other),
        };
        if !text.is_empty() {
            shown["status"]["selector"] = json!(text);
        }
    }
    shown
}

/// `matchLabels` and `matchExpressions` as one text.
fn selector_text(selector: &Value) -> String {
    let mut parts: Vec<String> = selector["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    for expression in selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let key = expression["key"].as_str().unwrap_or_default();
        let values: Vec<&str> = expression["values"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        parts.push(match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    parts.join(",")
}

/// PUT of a scale.
///
/// # Errors
/// As of an update of the object.
pub(crate) async fn replace(
    core: &Core,
    request: &Request,
    scale: &Scale,
    body: &Value,
) -> Result<Written, Status> {
    update::check_name(request, body)?;
    let writer = ScaleWriter::new(core, request);
    change(core, request, scale, &writer, &|live, _| {
        let mut wanted = body.clone();
        meta::set_managers(&mut wanted, writer.update(live, body));
        Ok(wanted)
    })
    .await
}

/// PATCH of a scale.
///
/// # Errors
/// As of a patch of the object.
pub(crate) async fn patch(
    core: &Core,
    request: &Request,
    scale: &Scale,
    content_type: Option<&str>,
    body: &Bytes,
) -> Result<Written, Status> {
    let writer = ScaleWriter::new(core, request);
    if is_apply(request, content_type)? {
        let applied = apply::read(body)?;
        let force = request.query.flag("force");
        let merge = |live: &Value, _| writer.apply(live, &applied, force);
        return change(core, request, scale, &writer, &merge).await;
    }
    let format = format(request, content_type)?;
    change(core, request, scale, &writer, &|live, is_set| {
        let mut shown = live.clone();
        if !is_set && request.info.custom {
            shown["spec"]["replicas"] = UNSET.into();
        }
        let mut wanted = patched(request, format, &shown, body)?;
        if wanted["spec"]["replicas"] == UNSET {
            return Err(Status::bad_request(format!(
                "the spec replicas field {} cannot be empty",
                quote(&scale.spec_replicas)
            )));
        }
        // A Scale has no field of zero replicas, which so has no owner.
        if wanted["spec"]["replicas"] == 0 {
            meta::map_at(meta::object_mut(&mut wanted), "spec").remove("replicas");
        }
        let managers = writer.update(live, &wanted);
        meta::set_managers(&mut wanted, managers);
        Ok(wanted)
    })
    .await
}

/// Returns the new scale, with its managers, for the current one, and for whether the object has a number of replicas.
type Change<'a> = &'a (dyn Fn(&Value, bool) -> Result<Value, Status> + Sync);

async fn change(
    core: &Core,
    request: &Request,
    scale: &Scale,
    writer: &ScaleWriter<'_>,
    change: Change<'_>,
) -> Result<Written, Status> {
    let part = |old: Option<&Value>| {
        let old = old.unwrap_or(&Value::Null);
        let mut live = show(scale, &Object::draft(old.clone()));
        meta::set_managers(&mut live, writer.of_scale(old)?);
        let is_set = at(old, &scale.spec_replicas).is_some();
        let mut new = change(&live, is_set)?;
        for field in ["apiVersion", "kind"] {
            meta::object_mut(&mut new).insert(field.to_owned(), live[field].clone());
        }
        Ok(Changed::Part(Part { old: live, new }))
    };
    let whole = |old: &Value, wanted: Value| merged(request, scale, writer, old, &wanted);
    let save = Save::new(writer.writer(), Target::Present, &part).of_part(&whole);
    let written = write(core, request, &save).await?;
    let Content::Object(object) = &written.content else {
        return Ok(written);
    };
    let document = show(scale, object);
    Ok(Written {
        content: Content::Document(document),
        ..written
    })
}

/// The object with the wanted number of replicas.
fn merged(
    request: &Request,
    scale: &Scale,
    writer: &ScaleWriter<'_>,
    old: &Value,
    wanted: &Value,
) -> Result<Value, Status> {
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 && !request.info.custom {
        return Err(Status::invalid(
            "autoscaling",
            "Scale",
            &request.name,
            &[FieldError::invalid(
                &Path::new("spec").child("replicas"),
                replicas,
                "must be greater than or equal to 0",
            )],
        ));
    }
    let mut new = old.clone();
    for field in ["resourceVersion", "uid"] {
        let text = meta::text(wanted, field);
        if !text.is_empty() {
            meta::metadata_mut(&mut new).insert(field.to_owned(), text.into());
        }
    }
    set(&mut new, &scale.spec_replicas, json!(replicas));
    let managers = writer.of_parent(old, wanted["metadata"].get("managedFields"))?;
    meta::set_managers(&mut new, managers);
    Ok(new)
}
