//! Special rules of built-in kinds: defaults, immutable parts, deletion.

use jiff::Timestamp;
use parking_lot::MutexGuard;
use serde_json::{Value, json};

use super::pods::{self, put};
use super::{checks, events, immutable, ingress_rules, namespaces, pod_spec, service_rules};
use super::{services, workload_rules, workloads, zeros};
use crate::core::Core;
use crate::crd;
use crate::definitions;
use crate::field::{Errors, FieldError, Path};
use crate::meta;
use crate::request::Request;
use crate::resource::ResourceInfo;
use crate::schema::{Additional, Schema};
use crate::status::{GroupResource, Status};
use crate::store::Object;

/// Namespaces that cannot be deleted.
const IMMORTAL: &[&str] = &["default", "kube-system", "kube-public"];
const RBAC: &str = "rbac.authorization.k8s.io";

/// Group and plural of the kind, for `match`.
fn kind(info: &ResourceInfo) -> (&str, &str) {
    (info.group.as_str(), info.plural.as_str())
}

/// Sets the defaults of an object before it is checked and stored.
pub(crate) fn default(request: &Request, object: &mut Value) {
    if !request.info.custom
        && let Some(schema) = request.info.structural()
    {
        let versions = object["spec"].get("versions").cloned();
        drop_empty(schema.root(), object);
        // Go writes this list of a definition also when it is empty.
        if let (Some(versions), "customresourcedefinitions") = (versions, kind(&request.info).1)
            && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        {
            spec.entry("versions").or_insert(versions);
        }
    }
    match kind(&request.info) {
        ("", "namespaces") => namespaces::default(object),
        ("apiextensions.k8s.io", "customresourcedefinitions") => crd::default(object),
        ("", "secrets") => secret(object),
        ("", "services") => services::default(object),
        ("", "pods") => pods::default_pod(object),
        ("" | "events.k8s.io", "events") => events::default(object, !request.info.group.is_empty()),
        ("apps" | "batch", plural) => workloads::default(plural, object),
        (RBAC, "roles" | "clusterroles") => {
            meta::object_mut(object)
                .entry("rules")
                .or_insert(Value::Null);
        }
        (RBAC, _) => binding(object),
        _ => {}
    }
}

/// Excludes other writes that allocate until the guard is dropped; `None` for a kind that allocates nothing.
pub(crate) fn allocation<'a>(core: &'a Core, request: &Request) -> Option<MutexGuard<'a, ()>> {
    let allocates = kind(&request.info) == ("", "services") && request.subresource.is_empty();
    allocates.then(|| core.service_allocation.lock())
}

/// Allocates the values that are unique to one object. The caller holds [`allocation`].
///
/// # Errors
/// 422 for a value that another object has; 500 when no value is left.
pub(crate) fn allocate(
    core: &Core,
    request: &Request,
    old: Option<&Value>,
    object: &mut Value,
) -> Result<(), Status> {
    match kind(&request.info) {
        ("", "services") if request.subresource.is_empty() => {
            services::allocate(core, request, old, object)
        }
        _ => Ok(()),
    }
}

/// Removes empty maps and lists, and zeros without a meaning, as Go's `omitempty` does.
fn drop_empty(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => {
            let of = schema.go_type.as_deref();
            map.retain(|name, value| {
                let Some(schema) = schema.field(name) else {
                    return true;
                };
                drop_empty(schema, value);
                if of.is_some_and(|of| zeros::is_left_out(of, name, value)) {
                    return false;
                }
                match value {
                    Value::Array(items) => !items.is_empty(),
                    Value::Object(map) => {
                        !map.is_empty() || !matches!(schema.additional, Additional::Of(_))
                    }
                    _ => true,
                }
            });
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for item in items {
                    drop_empty(schema, item);
                }
            }
        }
        _ => {}
    }
}

/// Sets the status of a new object of a kind with the subresource: custom resources lose the status
/// that the client sent.
fn initial_status(request: &Request, object: &mut Value) {
    let class = pods::qos_class(object);
    let status = match kind(&request.info) {
        ("", "namespaces") => json!({"phase": "Active"}),
        ("", "pods") => json!({"phase": "Pending", "qosClass": class}),
        ("", "services") | ("networking.k8s.io", "ingresses") => json!({"loadBalancer": {}}),
        ("", "nodes") => return,
        ("apps" | "batch", plural) => workloads::initial_status(plural),
        ("apiextensions.k8s.io", _) => crd::initial_status(object),
        _ => {
            meta::object_mut(object).remove("status");
            return;
        }
    };
    meta::object_mut(object).insert("status".to_owned(), status);
}

/// Restores the fields that an update may not change from the `old` object, before defaults are set.
pub(crate) fn before_update(request: &Request, old: &Value, new: &mut Value) {
    match kind(&request.info) {
        ("", "services") => services::keep(old, new),
        ("", "namespaces") if request.subresource != "finalize" => {
            // Only the finalize subresource changes these.
            let finalizers = old["spec"]["finalizers"].clone();
            meta::map_at(meta::object_mut(new), "spec").insert("finalizers".to_owned(), finalizers);
        }
        _ => {}
    }
}

/// Whether the rules of the kind check its spec only.
fn has_checked_spec(info: &ResourceInfo) -> bool {
    matches!(
        kind(info),
        ("", "pods" | "services") | ("apps" | "batch", _) | ("networking.k8s.io", "ingresses")
    )
}

/// A stored object in the form in which it would be stored now: an earlier release kept fields that are dropped now.
fn canonical(request: &Request, stored: &Value) -> Value {
    let mut object = stored.clone();
    if let Some(schema) = request.info.structural() {
        schema.prune(&mut object);
    }
    default(request, &mut object);
    object
}

/// Checks an object by the rules of its kind.
pub(crate) fn validate(request: &Request, object: &Value, old: Option<&Value>) -> Errors {
    let mut errors = Errors::new();
    let (group, _) = kind(&request.info);
    if request.subresource == "status" && group != "apiextensions.k8s.io" {
        // The spec did not change, and was checked when it was written.
        if kind(&request.info) == ("", "services") {
            service_rules::status(object, &mut errors);
        }
        return errors;
    }
    let former = old.filter(|_| has_checked_spec(&request.info));
    let former = former.map(|old| canonical(request, old));
    let is_unchanged = |old: &Value| {
        let is_same = |new: &Value| immutable::is_same(&new["spec"], &old["spec"]);
        is_same(object) || is_same(&canonical(request, object))
    };
    if former.as_ref().is_some_and(is_unchanged) {
        // It was checked when it was written, perhaps by an earlier release with fewer rules.
        return errors;
    }
    let old = former.as_ref().or(old);
    match kind(&request.info) {
        ("apiextensions.k8s.io", "customresourcedefinitions") => {
            errors.extend(crd::validate(object, old));
        }
        ("", "configmaps") => {
            checks::config_keys(object, &["data", "binaryData"], &mut errors);
            if let Some(old) = old {
                checks::immutable_data(object, old, &["data", "binaryData"], &mut errors);
            }
        }
        ("", "secrets") => {
            checks::config_keys(object, &["data"], &mut errors);
            checks::secret(object, &mut errors);
            if let Some(old) = old {
                if old["type"] != object["type"] {
                    errors.push(FieldError::invalid(
                        &Path::new("type"),
                        object["type"].clone(),
                        "field is immutable",
                    ));
                }
                checks::immutable_data(object, old, &["data"], &mut errors);
            }
        }
        ("", "services") => {
            if let Some(old) = old {
                service_rules::kept_address(object, old, &mut errors);
            }
            service_rules::validate(object, &mut errors);
        }
        ("", "pods") => {
            let path = Path::new("spec");
            pod_spec::validate(&object["spec"], &Value::Null, &path, &mut errors);
            if let Some(old) = old {
                immutable::pod(object, old, &mut errors);
            }
        }
        ("" | "events.k8s.io", "events") if old.is_none() => {
            let new_form = !request.info.group.is_empty();
            let stored = if new_form {
                events::to_core(object.clone())
            } else {
                object.clone()
            };
            checks::event(&stored, new_form, &mut errors);
        }
        ("apps" | "batch", plural) => {
            workload_rules::validate(plural, object, old, &mut errors);
        }
        ("networking.k8s.io", "ingresses") => ingress_rules::validate(object, &mut errors),
        ("coordination.k8s.io", "leases") => checks::lease(object, &mut errors),
        (RBAC, "roles" | "clusterroles") => checks::role(object, &mut errors),
        (RBAC, _) => {
            checks::new_binding(object, &mut errors);
            if let Some(old) = old {
                checks::binding(object, old, &mut errors);
            }
        }
        _ => {}
    }
    errors
}

/// Applies the effects of a stored write; `new` is `None` for a removal.
pub(crate) fn after_write(
    core: &Core,
    info: &ResourceInfo,
    old: Option<&Object>,
    new: Option<&Object>,
) {
    definitions::after_write(core, info, old, new);
}

/// Refuses deletions that are never allowed.
///
/// # Errors
/// 403.
pub(crate) fn may_delete(request: &Request) -> Result<(), Status> {
    if kind(&request.info) == ("", "namespaces") && IMMORTAL.contains(&request.name.as_str()) {
        return Err(Status::forbidden(
            GroupResource {
                group: "",
                resource: "namespaces",
            },
            &request.name,
            "this namespace may not be deleted",
        ));
    }
    Ok(())
}

/// Whether the rules of the kind let a terminating object be removed.
pub(crate) fn may_go(info: &ResourceInfo, object: &Value) -> bool {
    match kind(info) {
        ("", "namespaces") => object["spec"]["finalizers"]
            .as_array()
            .is_none_or(Vec::is_empty),
        _ => true,
    }
}

/// The grace period in seconds: more than 0 only for a Pod that runs on a node.
pub(crate) fn grace_period(info: &ResourceInfo, object: &Value, asked: Option<i64>) -> i64 {
    if !ends_gracefully(info) {
        return 0;
    }
    let scheduled = !object["spec"]["nodeName"]
        .as_str()
        .unwrap_or_default()
        .is_empty();
    let over = matches!(
        object["status"]["phase"].as_str(),
        Some("Failed" | "Succeeded")
    );
    if !scheduled || over {
        return 0;
    }
    asked
        .or_else(|| object["spec"]["terminationGracePeriodSeconds"].as_i64())
        .unwrap_or(30)
        .max(0)
}

/// Whether objects of the kind have a grace period before they are removed.
pub(crate) fn ends_gracefully(info: &ResourceInfo) -> bool {
    kind(info) == ("", "pods")
}

/// A finalizer that the server sets on a request for deletion.
pub(crate) fn finalizer_on_deletion(info: &ResourceInfo) -> Option<&'static str> {
    (info.storage == definitions::STORAGE).then_some(definitions::CLEANUP)
}

/// Marks an object as deleted if its kind has a way of its own; returns whether it has.
pub(crate) fn mark_deleted(info: &ResourceInfo, object: &mut Value, now: Timestamp) -> bool {
    let is_definition = info.storage == definitions::STORAGE;
    let is_namespace = kind(info) == ("", "namespaces");
    if !is_definition && !is_namespace {
        return false;
    }
    meta::metadata_mut(object).insert("deletionTimestamp".to_owned(), meta::time(now).into());
    if is_definition {
        crd::mark_terminating(object, now);
    } else {
        meta::map_at(meta::object_mut(object), "status")
            .insert("phase".to_owned(), "Terminating".into());
    }
    true
}

/// Sets the fields of a new object that the client cannot choose.
pub(crate) fn before_create(request: &Request, object: &mut Value) {
    if request.info.status {
        initial_status(request, object);
    }
    if kind(&request.info) == ("", "namespaces") {
        namespaces::add_finalizer(object);
    }
}

fn secret(object: &mut Value) {
    use base64::Engine as _;
    let map = meta::object_mut(object);
    put(map, "type", "Opaque");
    if let Some(Value::Object(texts)) = map.remove("stringData")
        && !texts.is_empty()
    {
        let data = meta::map_at(map, "data");
        for (key, text) in texts {
            let text = text.as_str().unwrap_or_default();
            let encoded = base64::engine::general_purpose::STANDARD.encode(text);
            data.insert(key, encoded.into());
        }
    }
}

fn binding(object: &mut Value) {
    let map = meta::object_mut(object);
    if let Some(reference) = map.get_mut("roleRef").and_then(Value::as_object_mut) {
        put(reference, "apiGroup", RBAC);
    }
    for subject in map
        .get_mut("subjects")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let person = matches!(subject["kind"].as_str(), Some("User" | "Group"));
        if let (true, Some(subject)) = (person, subject.as_object_mut()) {
            put(subject, "apiGroup", RBAC);
        }
    }
}
