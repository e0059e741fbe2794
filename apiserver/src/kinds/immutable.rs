//! Immutable fields of Pods, StatefulSets and Jobs.
//!
//! (kubernetes: `ValidatePodUpdate`, `ValidateStatefulSetUpdate`, `ValidateJobSpecUpdate`.)

use serde_json::{Value, json};

use crate::field::{Errors, FieldError, Path, quote};

const IMMUTABLE: &str = "field is immutable";
/// The mutable fields of a Pod's spec, in the text of a real server.
const POD_UPDATES: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
const STATEFUL_SET_UPDATES: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
/// The mutable fields of a StatefulSet's spec.
const STATEFUL_SET_MUTABLE: &[&str] = &[
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];
/// The immutable fields of a Job's spec, besides the template and the completions.
const JOB_IMMUTABLE: &[&str] = &[
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
];

/// Whether two values are equivalent: an empty map or list equals a missing one.
pub(crate) fn is_same(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => new.keys().chain(old.keys()).all(|name| {
            let new = new.get(name).unwrap_or(&Value::Null);
            is_same(new, old.get(name).unwrap_or(&Value::Null))
        }),
        (Value::Array(new), Value::Array(old)) if new.len() == old.len() => {
            new.iter().zip(old).all(|(new, old)| is_same(new, old))
        }
        _ => new == old || (is_nothing(new) && is_nothing(old)),
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_nothing),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Refuses a changed field.
pub(crate) fn field(new: &Value, old: &Value, path: &Path, errors: &mut Errors) {
    if !is_same(new, old) {
        errors.push(FieldError::invalid(path, new.clone(), IMMUTABLE));
    }
}

/// Refuses changes of a Pod's spec except for the mutable fields.
pub(crate) fn pod(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let (new, old) = (&new["spec"], &old["spec"]);
    for list in ["containers", "initContainers"] {
        if count(new, list) != count(old, list) {
            errors.push(FieldError::forbidden(
                &path.child(list),
                "pod updates may not add or remove containers",
            ));
            return;
        }
        for (at, container) in items(new, list).enumerate() {
            let image = container["image"].as_str().unwrap_or_default();
            if image.trim() != image {
                errors.push(FieldError::invalid(
                    &path.child(list).index(at).child("image"),
                    image,
                    "must not have leading or trailing whitespace",
                ));
            }
        }
    }
    if !deadline(new, old, &path, errors) {
        return;
    }
    only_added_tolerations(new, old, &path, errors);
    only_removed_gates(new, old, &path, errors);
    // The mutable fields are made equal; any remaining difference is an error.
    let mut rest = new.clone();
    for list in ["containers", "initContainers"] {
        let images: Vec<Value> = items(old, list).map(|one| one["image"].clone()).collect();
        let containers = rest.get_mut(list).and_then(Value::as_array_mut);
        for (container, image) in containers.into_iter().flatten().zip(images) {
            container["image"] = image;
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        restore(&mut rest, old, field);
    }
    let grace = "terminationGracePeriodSeconds";
    if old[grace].as_i64().is_some_and(|seconds| seconds < 0) && rest[grace] == 1 {
        restore(&mut rest, old, grace);
    }
    if count(old, "schedulingGates") > 0 {
        // The scheduling of a gated Pod may change; a real server checks that this only narrows the choice.
        restore(&mut rest, old, "nodeSelector");
        restore(&mut rest, old, "affinity");
    }
    if !is_same(&rest, old) {
        let changed = changed_fields(&rest, old).join(", ");
        errors.push(FieldError::forbidden(
            &path,
            format!("{POD_UPDATES}\nchanged: {changed}"),
        ));
    }
}

/// Refuses changes of the ephemeral containers that a Pod has; others may be added.
pub(crate) fn ephemeral_containers(new: &Value, old: &Value, errors: &mut Errors) {
    let list = "ephemeralContainers";
    let path = Path::new("spec").child(list);
    for was in items(&old["spec"], list) {
        let is = items(&new["spec"], list).find(|one| one["name"] == was["name"]);
        let fate = match is {
            None => "removed",
            Some(is) if !is_same(is, was) => "changed",
            Some(_) => continue,
        };
        let name = quote(was["name"].as_str().unwrap_or_default());
        let text = format!("existing ephemeral containers {name} may not be {fate}\n");
        errors.push(FieldError::forbidden(&path, text));
    }
}

/// Refuses changes of a resize other than of processor and memory, and removed amounts.
pub(crate) fn resize(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    for list in ["containers", "initContainers"] {
        let pairs = items(&new["spec"], list).zip(items(&old["spec"], list));
        for (at, (new, old)) in pairs.enumerate() {
            let mut rest = new.clone();
            for kind in ["requests", "limits"] {
                let amounts = |of: &Value| of["resources"][kind].as_object().cloned();
                let is = amounts(new).unwrap_or_default();
                let was = amounts(old).unwrap_or_default();
                if was.keys().any(|name| !is.contains_key(name)) {
                    errors.push(FieldError::forbidden(
                        &path.child(list).index(at).child("resources").child(kind),
                        format!("resource {kind} cannot be removed"),
                    ));
                }
                let mut amounts = Value::from(is);
                for name in ["cpu", "memory"] {
                    restore(&mut amounts, &Value::from(was.clone()), name);
                }
                rest["resources"][kind] = amounts;
            }
            if is_same(&rest, old) {
                continue;
            }
            let (path, text) = if list == "containers" {
                (path.clone(), "only cpu and memory resources are mutable")
            } else {
                (
                    path.child(list).index(at),
                    "only cpu and memory resources for init or sidecar containers are mutable",
                )
            };
            errors.push(FieldError::forbidden(&path, text));
        }
    }
}

/// The names of the top-level fields of two objects that differ.
fn changed_fields<'a>(new: &'a Value, old: &'a Value) -> Vec<&'a str> {
    let fields = |value: &'a Value| {
        value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name)
    };
    let mut changed: Vec<&str> = fields(new)
        .chain(fields(old))
        .filter(|name| new.get(name.as_str()) != old.get(name.as_str()))
        .map(String::as_str)
        .collect();
    changed.sort_unstable();
    changed.dedup();
    changed
}

/// The deadline may be set and may shrink. Returns whether to continue.
fn deadline(new: &Value, old: &Value, path: &Path, errors: &mut Errors) -> bool {
    let path = path.child("activeDeadlineSeconds");
    let field = "activeDeadlineSeconds";
    match (new[field].as_i64(), old[field].as_i64()) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            errors.push(FieldError::invalid(
                &path,
                new,
                "must be between 0 and 2147483647, inclusive",
            ));
            false
        }
        (Some(new), Some(old)) if old < new => {
            errors.push(FieldError::invalid(
                &path,
                new,
                "must be less than or equal to previous value",
            ));
            false
        }
        (None, Some(_)) => {
            errors.push(FieldError::invalid(
                &path,
                Value::Null,
                "must not update from a positive integer to nil value",
            ));
            true
        }
        _ => true,
    }
}

fn only_added_tolerations(new: &Value, old: &Value, path: &Path, errors: &mut Errors) {
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        if let Some(map) = toleration.as_object_mut() {
            map.remove("tolerationSeconds");
        }
        toleration
    };
    let kept: Vec<Value> = items(new, "tolerations").map(without_seconds).collect();
    if items(old, "tolerations").any(|old| !kept.contains(&without_seconds(old))) {
        errors.push(FieldError::forbidden(
            &path.child("tolerations"),
            "existing toleration can not be modified except its tolerationSeconds",
        ));
    }
}

fn only_removed_gates(new: &Value, old: &Value, path: &Path, errors: &mut Errors) {
    for (at, gate) in items(new, "schedulingGates").enumerate() {
        if items(old, "schedulingGates").any(|old| old["name"] == gate["name"]) {
            continue;
        }
        errors.push(FieldError::forbidden(
            &path.child("schedulingGates").index(at).child("name"),
            format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                gate["name"].as_str().unwrap_or_default()
            ),
        ));
    }
}

/// Refuses changes of a StatefulSet's spec except for the mutable fields.
pub(crate) fn stateful_set(new: &Value, old: &Value, errors: &mut Errors) {
    let mut rest = new["spec"].clone();
    for field in STATEFUL_SET_MUTABLE {
        restore(&mut rest, &old["spec"], field);
    }
    if !is_same(&rest, &old["spec"]) {
        errors.push(FieldError::forbidden(
            &Path::new("spec"),
            STATEFUL_SET_UPDATES,
        ));
    }
}

/// Refuses changes of a Job's immutable fields.
pub(crate) fn job(new: &Value, old_job: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let (new, old) = (&new["spec"], &old_job["spec"]);
    completions(new, old, &path, errors);
    field(
        &new["selector"],
        &old["selector"],
        &path.child("selector"),
        errors,
    );
    let mut template = old["template"].clone();
    if old["suspend"] == true && old_job["status"]["startTime"].is_null() {
        // The scheduling and the resources of a Job that has not started may change.
        template = with_scheduling_of(template, &new["template"]);
    }
    field(&new["template"], &template, &path.child("template"), errors);
    for name in JOB_IMMUTABLE {
        field(&new[*name], &old[*name], &path.child(name), errors);
    }
}

fn completions(new: &Value, old: &Value, path: &Path, errors: &mut Errors) {
    let path = path.child("completions");
    let (is, was) = (&new["completions"], &old["completions"]);
    if new["completionMode"] != "Indexed" {
        field(is, was, &path, errors);
    } else if is != was && !is.is_null() && *is != new["parallelism"] {
        errors.push(FieldError::invalid(
            &path,
            is.clone(),
            "can only be modified in tandem with spec.parallelism",
        ));
    }
}

/// `template` with the scheduling and the resources of its Pods taken from `new`.
fn with_scheduling_of(mut template: Value, new: &Value) -> Value {
    let taken = [
        ("metadata", "labels"),
        ("metadata", "annotations"),
        ("spec", "affinity"),
        ("spec", "nodeSelector"),
        ("spec", "tolerations"),
        ("spec", "schedulingGates"),
    ];
    for (part, field) in taken {
        let Some(map) = template.get_mut(part).and_then(Value::as_object_mut) else {
            if part == "metadata" && new[part].is_object() {
                template[part] = new[part].clone();
            }
            continue;
        };
        match new[part].get(field) {
            Some(value) => map.insert(field.to_owned(), value.clone()),
            None => map.remove(field),
        };
    }
    for list in ["containers", "initContainers"] {
        let containers = template
            .pointer_mut(&format!("/spec/{list}"))
            .and_then(Value::as_array_mut);
        for (old, new) in containers
            .into_iter()
            .flatten()
            .zip(items(&new["spec"], list))
        {
            old["resources"] = new.get("resources").cloned().unwrap_or_else(|| json!({}));
        }
    }
    template
}

/// Sets a field to its value in `from`, also to a missing one.
pub(super) fn restore(object: &mut Value, from: &Value, field: &str) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    match from.get(field) {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

fn items<'a>(map: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    map[field].as_array().into_iter().flatten()
}

fn count(map: &Value, field: &str) -> usize {
    map[field].as_array().map_or(0, Vec::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_empty_is_the_same_as_what_is_not_there() {
        for (new, old, same) in [
            (json!({"a": {}}), json!({}), true),
            (json!({"a": {"b": {}, "c": []}}), json!({"a": null}), true),
            (json!([{"a": {}}]), json!([{}]), true),
            (json!({"a": 0}), json!({}), false),
            (json!([{}]), json!([]), false),
            (json!({"a": {"b": 1}}), json!({"a": {}}), false),
        ] {
            assert_eq!(is_same(&new, &old), same, "{new} {old}");
            assert_eq!(is_same(&old, &new), same, "{old} {new}");
        }
    }
}
