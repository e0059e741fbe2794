//! Checks of single built-in kinds that matter to clients.

use serde_json::Value;

use crate::field::{Errors, FieldError, Path};

const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
/// Maximum length of reason, action and instance of an Event.
const LONGEST: usize = 128;
const LONGEST_NOTE: usize = 1024;

/// Checks the keys of a ConfigMap or Secret.
pub(crate) fn config_keys(object: &Value, fields: &[&str], errors: &mut Errors) {
    for field in fields {
        for key in object[*field]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key)
        {
            let path = Path::new(field).key(key);
            let fine = !key.is_empty()
                && key
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
            if !fine {
                errors.push(FieldError::invalid(&path, key.as_str(), CONFIG_KEY));
            }
        }
    }
}

/// Checks the required keys of a Secret of a known type.
pub(crate) fn secret(object: &Value, errors: &mut Errors) {
    let needed: &[&str] = match object["type"].as_str().unwrap_or_default() {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        _ => &[],
    };
    for key in needed {
        if object["data"].get(*key).is_none() {
            errors.push(FieldError::required(&Path::new("data").key(key), ""));
        }
    }
}

/// Checks data that was declared immutable.
pub(crate) fn immutable_data(object: &Value, old: &Value, fields: &[&str], errors: &mut Errors) {
    const TEXT: &str = "field is immutable when `immutable` is set";
    if old["immutable"] != Value::Bool(true) {
        return;
    }
    if object["immutable"] != Value::Bool(true) {
        errors.push(FieldError::forbidden(&Path::new("immutable"), TEXT));
    }
    for field in fields {
        if object[*field] != old[*field] {
            errors.push(FieldError::forbidden(&Path::new(field), TEXT));
        }
    }
}

/// Checks an Event in its stored form. `new_form`: it was sent through events.k8s.io.
pub(crate) fn event(object: &Value, new_form: bool, errors: &mut Errors) {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let involved = object["involvedObject"]["namespace"]
        .as_str()
        .unwrap_or_default();
    let path = Path::new("involvedObject").child("namespace");
    let fits = if involved.is_empty() {
        matches!(namespace, "default" | "kube-system")
    } else {
        involved == namespace
    };
    if !fits {
        errors.push(FieldError::invalid(
            &path,
            involved,
            "does not match event.namespace",
        ));
    }
    let timed = !text("eventTime").is_empty();
    if timed {
        let controller = if new_form {
            "reportingController"
        } else {
            "reportingComponent"
        };
        let limited = [
            (controller, text("reportingComponent"), usize::MAX),
            ("reportingInstance", text("reportingInstance"), LONGEST),
            ("action", text("action"), LONGEST),
            ("reason", text("reason"), LONGEST),
        ];
        for (field, value, longest) in limited {
            if value.is_empty() {
                errors.push(FieldError::required(&Path::new(field), ""));
            } else if value.len() > longest {
                errors.push(FieldError::invalid(
                    &Path::new(field),
                    "",
                    format!("can have at most {longest} characters"),
                ));
            }
        }
        if text("message").len() > LONGEST_NOTE {
            errors.push(FieldError::invalid(
                &Path::new(if new_form { "note" } else { "message" }),
                "",
                format!("can have at most {LONGEST_NOTE} characters"),
            ));
        }
    }
    if !new_form {
        return;
    }
    if !timed {
        errors.push(FieldError::required(&Path::new("eventTime"), ""));
    }
    if !matches!(text("type"), "Normal" | "Warning") {
        errors.push(FieldError::invalid(
            &Path::new("type"),
            "",
            format!("has invalid value: {}", text("type")),
        ));
    }
}

/// Checks the numbers of a Lease.
pub(crate) fn lease(object: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    if let Some(seconds) = object["spec"]["leaseDurationSeconds"]
        .as_i64()
        .filter(|&seconds| seconds <= 0)
    {
        errors.push(FieldError::invalid(
            &path.child("leaseDurationSeconds"),
            seconds,
            "must be greater than 0",
        ));
    }
    if let Some(count) = object["spec"]["leaseTransitions"]
        .as_i64()
        .filter(|&count| count < 0)
    {
        errors.push(FieldError::invalid(
            &path.child("leaseTransitions"),
            count,
            "must be greater than or equal to 0",
        ));
    }
}

/// Checks the rules of a Role or ClusterRole.
pub(crate) fn role(object: &Value, errors: &mut Errors) {
    for (at, rule) in object["rules"].as_array().into_iter().flatten().enumerate() {
        let path = Path::new("rules").index(at);
        let empty = |field: &str| rule[field].as_array().is_none_or(Vec::is_empty);
        if empty("verbs") {
            errors.push(FieldError::required(
                &path.child("verbs"),
                "verbs must contain at least one value",
            ));
        }
        if !empty("nonResourceURLs") {
            if object["kind"] == "Role" {
                errors.push(FieldError::invalid(
                    &path.child("nonResourceURLs"),
                    rule["nonResourceURLs"].clone(),
                    "namespaced rules cannot apply to non-resource URLs",
                ));
            }
            continue;
        }
        if empty("apiGroups") {
            errors.push(FieldError::required(
                &path.child("apiGroups"),
                "resource rules must supply at least one api group",
            ));
        }
        if empty("resources") {
            errors.push(FieldError::required(
                &path.child("resources"),
                "resource rules must supply at least one resource",
            ));
        }
    }
}

/// Checks the role and the subjects of a RoleBinding or ClusterRoleBinding.
pub(crate) fn new_binding(object: &Value, errors: &mut Errors) {
    let path = Path::new("roleRef");
    let kind = object["roleRef"]["kind"].as_str().unwrap_or_default();
    let allowed: &[&str] = if object["kind"] == "RoleBinding" {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    if !allowed.contains(&kind) {
        errors.push(FieldError::not_supported(
            &path.child("kind"),
            kind,
            allowed,
        ));
    }
    if object["roleRef"]["name"]
        .as_str()
        .unwrap_or_default()
        .is_empty()
    {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
    for (at, subject) in object["subjects"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        let path = Path::new("subjects").index(at);
        let text = |field: &str| subject[field].as_str().unwrap_or_default();
        if text("name").is_empty() {
            errors.push(FieldError::required(&path.child("name"), ""));
        }
        match text("kind") {
            "User" | "Group" => {}
            "ServiceAccount"
                if object["kind"] == "ClusterRoleBinding" && text("namespace").is_empty() =>
            {
                errors.push(FieldError::required(&path.child("namespace"), ""));
            }
            "ServiceAccount" => {}
            other => errors.push(FieldError::not_supported(
                &path.child("kind"),
                other,
                &["ServiceAccount", "User", "Group"],
            )),
        }
    }
}

/// The role of a binding is immutable.
pub(crate) fn binding(object: &Value, old: &Value, errors: &mut Errors) {
    if object["roleRef"] != old["roleRef"] {
        let reference = &object["roleRef"];
        let shown = serde_json::json!({
            "APIGroup": reference["apiGroup"], "Kind": reference["kind"], "Name": reference["name"],
        });
        errors.push(FieldError::invalid(
            &Path::new("roleRef"),
            shown,
            "cannot change roleRef",
        ));
    }
}
