//! POST.

use std::sync::Arc;

use serde_json::Value;

use super::{Written, conversion, metadata, prepare};
use crate::access;
use crate::core::Core;
use crate::definitions;
use crate::escalation;
use crate::kinds::rules;
use crate::meta;
use crate::ownership::{self, Writer};
use crate::rbac::Attributes;
use crate::request::Request;
use crate::status::Status;
use crate::store::{CommitError, Expected, Key, Object};

/// Maximum number of tries of a generated name.
const GENERATED_NAME_TRIES: usize = 8;

/// Stores a new object.
///
/// # Errors
/// 400, 403, 404 (of the namespace), 409 and 422 of the rules for creation.
pub(crate) fn create(core: &Core, request: &Request, mut object: Value) -> Result<Written, Status> {
    metadata::settle_namespace(request, &mut object)?;
    let decoded = ownership::as_decoded_new(request, &object);
    let managers = Writer::new(core, request).update(None, &decoded);
    create_owned(core, request, object, managers)
}

/// Stores a new object with these managedFields.
///
/// # Errors
/// As [`create`].
pub(crate) fn create_owned(
    core: &Core,
    request: &Request,
    mut object: Value,
    managers: Option<Value>,
) -> Result<Written, Status> {
    check_namespace(core, request, meta::text(&object, "name"))?;
    check_definition(core, request, meta::text(&object, "name"))?;
    if !meta::text(&object, "resourceVersion").is_empty() {
        return Err(Status::internal_text(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    let base = meta::text(&object, "generateName").to_owned();
    let generated = meta::text(&object, "name").is_empty() && !base.is_empty();
    metadata::fill_new(core, request, &mut object);
    metadata::set_managers(&mut object, managers);
    request
        .warnings
        .extend(metadata::warnings(&request.info, &object));
    rules::before_create(request, &mut object);
    let mut tries = if generated { GENERATED_NAME_TRIES } else { 1 };
    loop {
        if generated {
            let name = meta::generate_name(&core.clock, &base);
            meta::metadata_mut(&mut object).insert("name".to_owned(), name.into());
        }
        let result = store(core, request, object.clone());
        tries -= 1;
        match result {
            Err(status) if status.reason == "AlreadyExists" && tries > 0 => {}
            Err(status) => return Err(status),
            Ok(stored) => return Ok(Written::object(201, stored)),
        }
    }
}

fn store(core: &Core, request: &Request, mut object: Value) -> Result<Arc<Object>, Status> {
    let info = &request.info;
    prepare::default(request, &mut object);
    let _allocation = rules::allocation(core, request);
    rules::allocate(core, request, None, &mut object)?;
    prepare::validate(request, &object, None)?;
    escalation::check(core, request, &object, None)?;
    let name = meta::text(&object, "name").to_owned();
    let key = Key::new(Some(&request.namespace_of_object()), &name);
    if let Some(there) = core.store.get(&info.storage, key.as_str()) {
        let mut status = Status::already_exists(request.resource(), &name);
        if there.is_terminating() {
            status.message = format!("object is being deleted: {}", status.message);
        }
        return Err(status);
    }
    info.strategy.convert_to_stored(info, &mut object);
    conversion::to_stored(info, &mut object)?;
    if request.dry_run {
        return Ok(Arc::new(Object::draft(object)));
    }
    let committed = core
        .store
        .commit(&info.storage, key.as_str(), Expected::Absent, Some(object));
    match committed {
        Ok(stored) => {
            rules::after_write(core, info, None, Some(&stored));
            Ok(stored)
        }
        Err(CommitError::Raced) => Err(Status::already_exists(request.resource(), &name)),
        // The namespace was removed while this request was read and checked.
        Err(error @ CommitError::Namespace) => {
            check_namespace(core, request, &name)?;
            Err(commit_status(error))
        }
        Err(error) => Err(commit_status(error)),
    }
}

/// The answer to a write that the store refused.
pub(crate) fn commit_status(error: CommitError) -> Status {
    match error {
        CommitError::NoTable(_) => Status::no_such_resource(),
        error => Status::internal(error),
    }
}

/// A write that creates an object by another verb than `create` needs the right to create. (apiserver: `withAuthorization`.)
///
/// # Errors
/// 403.
pub(crate) fn check_right(core: &Core, request: &Request) -> Result<(), Status> {
    let Some(policy) = access::policy(core) else {
        return Ok(());
    };
    let info = &request.info;
    let attributes = Attributes {
        version: info.version.clone(),
        ..Attributes::resource("create", &info.group, &info.plural)
            .subresource(&request.subresource)
            .in_namespace(&request.namespace)
            .named(&request.name)
    };
    let decision = policy.authorize(&request.user, &attributes);
    if decision.allowed {
        return Ok(());
    }
    Err(Status::forbidden(
        request.resource(),
        &request.name,
        decision.reason,
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

/// The namespace must exist and must not be terminating. (apiserver: admission plugin NamespaceLifecycle.)
fn check_namespace(core: &Core, request: &Request, name: &str) -> Result<(), Status> {
    if !request.info.namespaced {
        return Ok(());
    }
    let namespace = request.namespace.as_str();
    let Some(found) = core.store.get("namespaces", namespace) else {
        return Err(Status::not_found(
            crate::status::GroupResource {
                group: "",
                resource: "namespaces",
            },
            namespace,
        ));
    };
    if found.is_terminating() {
        return Err(Status::forbidden(
            request.resource(),
            name,
            format_args!("unable to create new content in namespace {namespace} because it is being terminated"),
        )
        .with_cause(
            "NamespaceTerminating",
            "metadata.namespace",
            format!("namespace {namespace} is being terminated"),
        ));
    }
    Ok(())
}
