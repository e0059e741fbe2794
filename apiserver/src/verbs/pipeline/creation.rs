//! The steps of a write that are those of a new object.

use serde_json::Value;

use super::draft::Draft;
use crate::core::Core;
use crate::definitions;
use crate::meta;
use crate::request::Request;
use crate::status::Status;
use crate::store::Key;
use crate::verbs::metadata;

/// Sets what the server sets in a new object, its name included if it is generated.
///
/// # Errors
/// 403 for a definition that terminates.
pub(super) fn fill(core: &Core, request: &Request, draft: &mut Draft) -> Result<(), Status> {
    let new = draft.new.get_or_insert_default();
    check_definition(core, request, meta::text(new, "name"))?;
    metadata::fill_new(core, request, new);
    let base = meta::text(new, "generateName");
    draft.generated = meta::text(new, "name").is_empty() && !base.is_empty();
    if draft.generated {
        let name = meta::generate_name(&core.clock, base);
        meta::metadata_mut(new).insert("name".to_owned(), name.into());
    }
    let namespace = request.namespace_of_object();
    draft.key = Some(Key::new(Some(&namespace), meta::text(new, "name")));
    Ok(())
}

/// Refuses an object with a version, as storage does. A dry run stores nothing.
///
/// # Errors
/// 500.
pub(super) fn check_version(request: &Request, new: &Value) -> Result<(), Status> {
    if request.dry_run || meta::text(new, "resourceVersion").is_empty() {
        return Ok(());
    }
    Err(Status::internal_text(
        "resourceVersion should not be set on objects to be created",
    ))
}

/// A definition that is being deleted accepts no new objects.
fn check_definition(core: &Core, request: &Request, name: &str) -> Result<(), Status> {
    let terminating = request.info.custom
        && core
            .store
            .get(definitions::STORAGE, &request.info.storage)
            .is_none_or(|definition| definition.is_terminating());
    if terminating {
        return Err(Status::forbidden(
            request.resource(),
            name,
            "create not allowed while custom resource definition is terminating",
        ));
    }
    Ok(())
}

/// The answer to the creation of an object that exists.
pub(super) fn exists(core: &Core, request: &Request, key: &Key) -> Status {
    let mut status = Status::already_exists(request.resource(), key.name());
    let there = core.store.get(&request.info.storage, key.as_str());
    if there.is_some_and(|there| there.is_terminating()) {
        status.message = format!("object is being deleted: {}", status.message);
    }
    status
}
