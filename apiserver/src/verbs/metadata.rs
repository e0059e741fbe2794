//! The rules of `metadata`: names, labels, annotations, finalizers, owners; and the fields that the server sets.

use std::collections::HashSet;

use serde_json::Value;

use crate::core::Core;
use crate::definitions;
use crate::field::{ErrorKind, Errors, FieldError, Path, json_text};
use crate::labels;
use crate::meta;
use crate::names;
use crate::request::Request;
use crate::resource::{Generation, ResourceInfo};
use crate::status::Status;

/// What only the server sets; a creation drops what the client sent.
const SYSTEM: &[&str] = &[
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "selfLink",
    "uid",
];

/// Checks `metadata` of an object about to be stored. (apimachinery: `ValidateObjectMetaAccessor`.)
pub(crate) fn validate(info: &ResourceInfo, object: &Value) -> Errors {
    let path = Path::new("metadata");
    let mut errors = Errors::new();
    let generate_name = meta::text(object, "generateName");
    if !generate_name.is_empty() {
        // A generated name must be valid.
        for problem in info
            .strategy
            .name_problems(&format!("{}a", generate_name.trim_end_matches('-')))
        {
            errors.push(FieldError::invalid(
                &path.child("generateName"),
                generate_name,
                problem,
            ));
        }
    }
    let name = meta::text(object, "name");
    if name.is_empty() {
        errors.push(FieldError::required(
            &path.child("name"),
            "name or generateName is required",
        ));
    } else {
        for problem in info.strategy.name_problems(name) {
            errors.push(FieldError::invalid(&path.child("name"), name, problem));
        }
    }
    validate_parts(object, &path, &mut errors);
    validate_finalizers(info, object, &path, &mut errors);
    errors
}

/// Built-in kinds refuse finalizers without a domain; for custom ones [`warnings`] has a warning.
fn validate_finalizers(info: &ResourceInfo, object: &Value, path: &Path, errors: &mut Errors) {
    let path = path.child("finalizers");
    let finalizers = meta::strings(object, "finalizers");
    for finalizer in &finalizers {
        for problem in names::qualified_name(finalizer) {
            errors.push(FieldError::invalid(&path, *finalizer, problem));
        }
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        errors.push(FieldError::invalid(
            &path,
            serde_json::json!(finalizers),
            "finalizer orphan and foregroundDeletion cannot be both set",
        ));
    }
    // The cleanup finalizer of a definition has no domain either.
    if info.custom || info.storage == definitions::STORAGE {
        return;
    }
    for (at, finalizer) in finalizers.iter().enumerate() {
        if !is_qualified(finalizer) {
            errors.push(FieldError::invalid(
                &path.index(at),
                *finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
}

fn is_qualified(finalizer: &str) -> bool {
    finalizer.contains('/') || matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion")
}

/// Leaves one of equal owner references, with a warning that they came `when`. (apiserver:
/// `dedupOwnerReferencesAndAddWarning`.)
pub(crate) fn drop_equal_owners(request: &Request, object: &mut Value, when: &str) {
    let owners = object.pointer_mut("/metadata/ownerReferences");
    let Some(owners) = owners.and_then(Value::as_array_mut) else {
        return;
    };
    let mut kept = HashSet::new();
    let mut dropped = Vec::new();
    owners.retain(|owner| {
        let first = kept.insert(owner.clone());
        if !first {
            dropped.push(owner["uid"].as_str().unwrap_or_default().to_owned());
        }
        first
    });
    if !dropped.is_empty() {
        request.warnings.add(format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            dropped.join(", ")
        ));
    }
}

/// Owner references with their fields in the order of the Go type.
fn shown_owners(owners: &Value) -> String {
    let owners = owners.as_array().into_iter().flatten().map(shown_owner);
    format!("[{}]", owners.collect::<Vec<_>>().join(","))
}

fn shown_owner(owner: &Value) -> String {
    const ALWAYS: &[&str] = &["apiVersion", "kind", "name", "uid"];
    {
        let always = ALWAYS.iter().map(|field| {
            (
                field,
                Value::from(owner[*field].as_str().unwrap_or_default()),
            )
        });
        let flags = ["controller", "blockOwnerDeletion"]
            .iter()
            .filter(|field| owner[**field].is_boolean())
            .map(|field| (field, owner[*field].clone()));
        let fields: Vec<String> = always
            .chain(flags)
            .map(|(field, value)| format!("\"{field}\":{}", json_text(&value)))
            .collect();
        format!("{{{}}}", fields.join(","))
    }
}

/// Warnings about allowed but unwise metadata.
pub(crate) fn warnings(info: &ResourceInfo, object: &Value) -> Vec<String> {
    if !info.custom {
        return Vec::new();
    }
    meta::strings(object, "finalizers")
        .iter()
        .filter(|finalizer| !is_qualified(finalizer))
        .map(|finalizer| {
            format!(
                "metadata.finalizers: \"{finalizer}\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
            )
        })
        .collect()
}

fn validate_parts(object: &Value, path: &Path, errors: &mut Errors) {
    let metadata = &object["metadata"];
    labels::check_labels(&metadata["labels"], &path.child("labels"), errors);
    labels::check_annotations(&metadata["annotations"], &path.child("annotations"), errors);
    let owners = metadata["ownerReferences"].as_array();
    let mut controllers = Vec::new();
    for owner in owners.into_iter().flatten() {
        let path = path.child("ownerReferences");
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                errors.push(FieldError::invalid(
                    &path.child(field),
                    "",
                    if field == "apiVersion" {
                        "version must not be empty"
                    } else {
                        "must not be empty"
                    },
                ));
            }
        }
        if owner["apiVersion"] == "v1" && owner["kind"] == "Event" {
            let shown = shown_owner(owner);
            errors.push(FieldError::new(
                ErrorKind::Invalid,
                &path,
                None,
                format!("{shown}: /v1, Kind=Event is disallowed from being an owner"),
            ));
        }
        if owner["controller"] == Value::Bool(true) {
            let text = |field: &str| owner[field].as_str().unwrap_or_default();
            controllers.push(format!("{}/{}", text("kind"), text("name")));
        }
    }
    if let [first, second, ..] = controllers.as_slice() {
        let shown = shown_owners(&metadata["ownerReferences"]);
        errors.push(FieldError::new(
            ErrorKind::Invalid,
            &path.child("ownerReferences"),
            None,
            format!(
                "{shown}: Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
            ),
        ));
    }
}

/// Drops the fields that only the server sets from an object about to be created.
pub(crate) fn drop_system_fields(object: &mut Value) {
    meta::metadata_mut(object).retain(|name, _| !SYSTEM.contains(&name.as_str()));
}

/// Sets the fields that the server sets at creation; values of the client are overwritten.
pub(crate) fn fill_new(core: &Core, request: &Request, object: &mut Value) {
    let info = &request.info;
    drop_system_fields(object);
    let metadata = meta::metadata_mut(object);
    metadata.insert("uid".to_owned(), meta::uid(&core.clock).into());
    metadata.insert("creationTimestamp".to_owned(), request.time().into());
    // A kind without generations keeps the client's value, as on a real server.
    if !matches!(info.generation, Generation::None | Generation::Changes) {
        metadata.insert("generation".to_owned(), 1.into());
    }
    tidy(object);
}

/// Carries over the fields that only the server may change. (apiserver: `rest.BeforeUpdate`.)
pub(crate) fn carry_over(old: &Value, new: &mut Value) {
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
    ] {
        let own = new["metadata"]
            .get(field)
            .is_some_and(|value| !value.is_null());
        if field != "generateName" || !own {
            meta::copy(old, new, field);
        }
    }
    let metadata = meta::metadata_mut(new);
    metadata.remove("managedFields");
    metadata.remove("selfLink");
    tidy(new);
}

/// Drops empty parts of `metadata`, as encoding a Go object does.
pub(crate) fn tidy(object: &mut Value) {
    let metadata = meta::metadata_mut(object);
    for field in ["labels", "annotations"] {
        if let Some(map) = metadata.get_mut(field).and_then(Value::as_object_mut) {
            for value in map.values_mut().filter(|value| value.is_null()) {
                *value = "".into();
            }
        }
    }
    metadata.retain(|_, value| match value {
        Value::Null => false,
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    });
}

/// Checks an update against the object it replaces. (apimachinery: `ValidateObjectMetaAccessorUpdate`.)
pub(crate) fn validate_update(old: &Value, new: &Value) -> Errors {
    let path = Path::new("metadata");
    let mut errors = Errors::new();
    let before = meta::strings(old, "finalizers");
    let added: Vec<&str> = meta::strings(new, "finalizers")
        .into_iter()
        .filter(|finalizer| !before.contains(finalizer))
        .collect();
    if old["metadata"]["deletionTimestamp"].is_string() && !added.is_empty() {
        let quoted: Vec<String> = added.iter().map(|text| crate::field::quote(text)).collect();
        errors.push(FieldError::forbidden(
            &path.child("finalizers"),
            format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                quoted.join(", ")
            ),
        ));
    }
    let name = meta::text(new, "name");
    if name != meta::text(old, "name") {
        errors.push(FieldError::invalid(
            &path.child("name"),
            name,
            "field is immutable",
        ));
    }
    errors
}

/// An update cannot request deletion.
pub(crate) fn refuse_deletion_by_update(
    request: &Request,
    old: &Value,
    new: &Value,
) -> Result<(), Status> {
    let due = &new["metadata"]["deletionTimestamp"];
    if due.is_null() || old["metadata"]["deletionTimestamp"].is_string() {
        return Ok(());
    }
    let path = Path::new("metadata").child("deletionTimestamp");
    let mut errors = vec![FieldError::invalid(
        &path,
        due.clone(),
        "field is immutable",
    )];
    errors.extend_from_within(..);
    Err(request.invalid(&request.name, &errors))
}

/// The namespace of an object must be that of the path. (apiserver: `EnsureObjectNamespaceMatchesRequestNamespace`.)
pub(crate) fn settle_namespace(request: &Request, object: &mut Value) -> Result<(), Status> {
    let expected = request.namespace_of_object();
    let found = meta::text(object, "namespace");
    if found == expected {
        return Ok(());
    }
    if found.is_empty() {
        meta::metadata_mut(object).insert("namespace".to_owned(), expected.into());
        return Ok(());
    }
    if expected.is_empty() {
        // A namespace on a cluster-scoped object is dropped.
        meta::metadata_mut(object).remove("namespace");
        return Ok(());
    }
    Err(Status::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    ))
}
