//! PUT, and the loop of PUT, PATCH and the subresources: read, change, check, write.

use std::sync::Arc;

use serde_json::Value;

use super::create::{check_right, commit_status};
use super::present::Presenter;
use super::{Written, conversion, metadata, prepare};
use crate::core::Core;
use crate::escalation;
use crate::field::{FieldError, Path};
use crate::http::media::Shape;
use crate::kinds::rules;
use crate::meta;
use crate::ownership::{self, Writer};
use crate::request::Request;
use crate::resource::{Generation, ResourceInfo, StatusUpdate};
use crate::status::Status;
use crate::store::{CommitError, Expected, Object};
use crate::table::IncludeObject;

/// How often a write is tried again after a race if the client named no version.
const TRIES: usize = 50;

/// Returns the new object for the current one with its type.
pub(crate) type Change<'a> = &'a dyn Fn(&Value) -> Result<Changed, Status>;

/// A new object, before the rules of an update.
pub(crate) enum Changed {
    /// What differs belongs to the manager of the request.
    Object(Value),
    /// Its managedFields name the owners of its fields.
    Owned(Value),
}

/// Replaces an object by `body`; creates it where the resource allows that.
///
/// # Errors
/// 400, 404, 409 and 422 of the rules for updates.
pub(crate) fn replace(core: &Core, request: &Request, mut body: Value) -> Result<Written, Status> {
    metadata::settle_namespace(request, &mut body)?;
    check_name(request, &body)?;
    let key = request.key();
    let absent = core
        .store
        .get(&request.info.storage, key.as_str())
        .is_none();
    if absent && request.info.create_on_update && request.subresource.is_empty() {
        check_right(core, request)?;
        meta::metadata_mut(&mut body).remove("resourceVersion");
        return super::create::create(core, request, body);
    }
    change(core, request, &|_| Ok(Changed::Object(body.clone())))
}

/// Checks that the body of a PUT has the name in the path.
///
/// # Errors
/// 400 when it does not.
pub(crate) fn check_name(request: &Request, body: &Value) -> Result<(), Status> {
    let name = meta::text(body, "name");
    if name.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            request.name
        )));
    }
    if name != request.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            request.name
        )));
    }
    Ok(())
}

/// Changes the named object by `change`, and tries again after a race.
///
/// # Errors
/// 404 when it is absent; 409 when it is at another version than the client's; 422 when it is invalid.
pub(crate) fn change(
    core: &Core,
    request: &Request,
    change: Change<'_>,
) -> Result<Written, Status> {
    let key = request.key();
    let presenter = Presenter::new(
        &request.info,
        Shape::Whole,
        IncludeObject::None,
        request.now,
    );
    for _ in 0..TRIES {
        let current = core
            .store
            .get(&request.info.storage, key.as_str())
            .ok_or_else(|| request.not_found())?;
        conversion::check(&request.info, &current)?;
        let old = presenter.whole(&current);
        let _allocation = rules::allocation(core, request);
        let wanted = settle(core, request, &current, &old, change(&old)?)?;
        match write(core, request, &current, wanted) {
            Ok(object) => return Ok(Written::object(200, object)),
            Err(CommitError::Raced) => {}
            Err(error) => return Err(commit_status(error)),
        }
    }
    Err(Status::modified(request.resource(), &request.name))
}

/// The object to store, in its stored form, after all rules.
fn settle(
    core: &Core,
    request: &Request,
    current: &Object,
    old: &Value,
    new: Changed,
) -> Result<Value, Status> {
    let info = &request.info;
    let (mut new, managers) = match new {
        Changed::Owned(new) => {
            let managers = new["metadata"].get("managedFields").cloned();
            (new, managers)
        }
        Changed::Object(new) => {
            let decoded = ownership::as_decoded(request, &new);
            let managers = Writer::new(core, request).update(Some(old), &decoded);
            (new, managers)
        }
    };
    check_preconditions(request, current, &new)?;
    meta::metadata_mut(&mut new).insert(
        "resourceVersion".to_owned(),
        current.version().to_string().into(),
    );
    match request.subresource.as_str() {
        "status" | "approval" => new = with_new_status(info, old, &new),
        "binding" => {}
        _ if info.status => set_status(&mut new, old.get("status").cloned()),
        _ => {}
    }
    metadata::refuse_deletion_by_update(request, old, &new)?;
    metadata::carry_over(old, &mut new);
    metadata::set_managers(&mut new, managers);
    request.warnings.extend(metadata::warnings(info, &new));
    rules::before_update(request, old, &mut new);
    prepare::default(request, &mut new);
    rules::allocate(core, request, Some(old), &mut new)?;
    let is_spec = !matches!(
        request.subresource.as_str(),
        "status" | "approval" | "binding"
    );
    if is_spec && raises_generation(info, old, &new) {
        let generation = meta::generation(old) + 1;
        meta::metadata_mut(&mut new).insert("generation".to_owned(), generation.into());
    }
    prepare::validate(request, &new, Some(old))?;
    escalation::check(core, request, &new, Some(old))?;
    info.strategy.convert_to_stored(info, &mut new);
    conversion::to_stored(info, &mut new)?;
    let map = meta::object_mut(&mut new);
    map.remove("apiVersion");
    map.remove("kind");
    ownership::keep_times(current.value(), &mut new);
    Ok(new)
}

fn write(
    core: &Core,
    request: &Request,
    current: &Arc<Object>,
    new: Value,
) -> Result<Arc<Object>, CommitError> {
    let info = &request.info;
    let gone = current.is_terminating()
        && meta::strings(&new, "finalizers").is_empty()
        && new["metadata"]["deletionGracePeriodSeconds"]
            .as_i64()
            .unwrap_or(0)
            == 0
        && info.strategy.may_go(&new);
    if !gone && new == *current.value() {
        // Nothing changes: no version, no event.
        return Ok(current.clone());
    }
    if request.dry_run {
        return Ok(Arc::new(Object::draft(new)));
    }
    let key = current.key();
    let expected = Expected::Version(current.version());
    if gone {
        core.store
            .commit(&info.storage, key.as_str(), expected, None)?;
        rules::after_write(core, info, Some(current), None);
        // The last state was never stored without its finalizer; the answer shows it without, at its old version.
        return Ok(Arc::new(Object::new(new, current.version())));
    }
    let stored = core
        .store
        .commit(&info.storage, key.as_str(), expected, Some(new))?;
    rules::after_write(core, info, Some(current), Some(&stored));
    Ok(stored)
}

/// uid and resourceVersion of the body, where given, must be those of the stored object.
fn check_preconditions(request: &Request, current: &Object, new: &Value) -> Result<(), Status> {
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
    let version = meta::text(new, "resourceVersion");
    if version.is_empty() || version == "0" {
        if request.info.unconditional_update {
            return Ok(());
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
    Ok(())
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
        Some(status) if !status.is_null() => {
            map.insert("status".to_owned(), status);
        }
        _ => {
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
