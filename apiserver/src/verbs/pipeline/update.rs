//! The steps of a write that are those of a change.

use serde_json::Value;

use crate::field::{FieldError, Path};
use crate::meta;
use crate::request::Request;
use crate::resource::{Conversion, Generation, ResourceInfo, StatusUpdate};
use crate::status::Status;
use crate::store::Object;
use crate::verbs::metadata;

/// Restores what the request cannot change in `new`.
///
/// # Errors
/// 409 for a version that is not the stored one; 422 for a change that no request can make.
pub(super) fn restore(
    request: &Request,
    live: &Object,
    old: &Value,
    new: &mut Value,
) -> Result<(), Status> {
    let info = &request.info;
    check_preconditions(request, live, new)?;
    meta::metadata_mut(new).insert(
        "resourceVersion".to_owned(),
        live.version().to_string().into(),
    );
    match request.subresource.as_str() {
        "status" | "approval" => *new = with_new_status(info, old, new),
        "binding" => {}
        _ if info.status => set_status(new, old.get("status").cloned()),
        _ => {}
    }
    metadata::refuse_deletion_by_update(request, old, new)?;
    metadata::carry_over(old, new);
    Ok(())
}

/// Restores what the request cannot change in the stored form: the conversion of a built-in kind from another version may
/// change it.
pub(super) fn keep_other_part(request: &Request, live: &Object, new: &mut Value) {
    let info = &request.info;
    let is_converted =
        info.conversion == Conversion::BuiltIn && info.api_version() != info.stored_in;
    if !is_converted || !info.status || new["apiVersion"] != live.api_version() {
        return;
    }
    let part = if request.subresource == "status" {
        "spec"
    } else {
        "status"
    };
    meta::copy_field(&live.value(), new, part);
}

/// Raises `metadata.generation` if the change is one that counts.
pub(super) fn raise_generation(request: &Request, old: &Value, new: &mut Value) {
    let is_spec = !matches!(
        request.subresource.as_str(),
        "status" | "approval" | "binding"
    );
    if is_spec && raises_generation(&request.info, old, new) {
        let generation = meta::generation(old) + 1;
        meta::metadata_mut(new).insert("generation".to_owned(), generation.into());
    }
}

/// Whether the change removes the object: it terminates, and waits for nothing any more.
pub(super) fn ends(request: &Request, live: &Object, new: &Value) -> bool {
    let grace = new["metadata"]["deletionGracePeriodSeconds"].as_i64();
    live.is_terminating()
        && meta::strings(new, "finalizers").is_empty()
        && grace.unwrap_or(0) == 0
        && request.info.strategy.may_go(new)
}

/// The uid of a body, where given, must be that of the stored object.
///
/// # Errors
/// 409 for another one.
pub(super) fn check_uid(request: &Request, current: &Object, new: &Value) -> Result<(), Status> {
    let uid = meta::text(new, "uid");
    let stored = current.uid().unwrap_or_default();
    if !uid.is_empty() && uid != stored {
        return Err(Status::conflict(
            request.resource(),
            &request.name,
            format_args!(
                "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {stored}",
                storage_path(&request.info),
                current.key()
            ),
        ));
    }
    Ok(())
}

/// The resourceVersion, where given, must be that of the stored object. Admission may have changed the uid, which is no
/// precondition then.
fn check_preconditions(request: &Request, current: &Object, new: &Value) -> Result<(), Status> {
    let version = meta::text(new, "resourceVersion");
    if version.is_empty() || version == "0" {
        if request.info.unconditional_update {
            return check_immutable_uid(request, current, new);
        }
        // The real server names the resource here, where the kind is expected.
        let resource = request.resource();
        return Err(Status::invalid(
            resource.group,
            resource.resource,
            &request.name,
            &[FieldError::invalid(
                &Path::new("metadata").child("resourceVersion"),
                0,
                "must be specified for an update",
            )],
        ));
    }
    let Ok(version) = version.parse::<u64>() else {
        return Err(Status::internal_text(format!(
            "strconv.ParseUint: parsing {}: invalid syntax",
            crate::field::quote(version)
        )));
    };
    if version != current.version() {
        return Err(Status::modified(request.resource(), &request.name));
    }
    check_immutable_uid(request, current, new)
}

fn check_immutable_uid(request: &Request, current: &Object, new: &Value) -> Result<(), Status> {
    let uid = meta::text(new, "uid");
    if uid.is_empty() || current.uid() == Some(uid) {
        return Ok(());
    }
    let path = Path::new("metadata").child("uid");
    let mut errors = vec![FieldError::invalid(&path, uid, "field is immutable")];
    // A real server checks twice, and returns the error twice.
    errors.extend_from_within(..);
    Err(request.invalid(&request.name, &errors))
}

/// The path of a resource's objects in a real server's etcd; some texts show it.
fn storage_path(info: &ResourceInfo) -> String {
    if info.custom {
        format!("{}/{}", info.group, info.plural)
    } else {
        info.plural.clone()
    }
}

/// The old object with the new status, and with the new metadata that the kind accepts.
fn with_new_status(info: &ResourceInfo, old: &Value, new: &Value) -> Value {
    let mut object = old.clone();
    set_status(&mut object, new.get("status").cloned());
    if let StatusUpdate::Metadata { except } = info.status_update {
        meta::object_mut(&mut object).insert("metadata".to_owned(), new["metadata"].clone());
        for field in except {
            meta::copy(old, &mut object, field);
        }
    }
    object
}

fn set_status(object: &mut Value, status: Option<Value>) {
    let map = meta::object_mut(object);
    match status {
        Some(status) => {
            map.insert("status".to_owned(), status);
        }
        None => {
            map.remove("status");
        }
    }
}

fn raises_generation(info: &ResourceInfo, old: &Value, new: &Value) -> bool {
    match info.generation {
        Generation::None | Generation::First => false,
        Generation::Spec | Generation::Changes => old.get("spec") != new.get("spec"),
        Generation::SpecAndAnnotations => {
            old.get("spec") != new.get("spec")
                || old["metadata"].get("annotations") != new["metadata"].get("annotations")
        }
        Generation::OutsideMetadata => {
            let counts = |field: &str| field != "metadata" && !(field == "status" && info.status);
            let parts = |object: &Value| -> Vec<(String, Value)> {
                object
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter(|(field, _)| counts(field))
                    .map(|(field, value)| (field.clone(), value.clone()))
                    .collect()
            };
            parts(old) != parts(new)
        }
    }
}
