//! Roles and bindings.

use k8s_openapi::api::rbac::v1;
use serde_json::Value;

use super::entry::Entry;
use super::pods::put;
use super::strategy::{Context, Grants, Strategy};
use super::{check, selectors};
use crate::field::{Errors, FieldError, Path};
use crate::meta;
use crate::names;
use crate::resource::{Column, ResourceInfo};
use crate::table::cells::{aged, column, items, plain, string, text, wide};

const GROUP: &str = "rbac.authorization.k8s.io";

/// The kinds of this file.
pub(super) const KINDS: &[Entry] = &[
    Entry::of::<v1::ClusterRoleBinding>(GROUP, "clusterrolebindings", &Bindings),
    Entry::of::<v1::ClusterRole>(GROUP, "clusterroles", &Roles),
    Entry::of::<v1::RoleBinding>(GROUP, "rolebindings", &Bindings),
    Entry::of::<v1::Role>(GROUP, "roles", &Roles),
];

/// Roles and ClusterRoles.
#[derive(Debug)]
pub(super) struct Roles;

/// RoleBindings and ClusterRoleBindings.
#[derive(Debug)]
pub(super) struct Bindings;

// === impl Roles ===

impl Strategy for Roles {
    fn describe(&self, info: &mut ResourceInfo) {
        info.create_on_update = true;
    }

    fn columns(&self) -> Vec<Column> {
        vec![created_at()]
    }

    fn name_problems(&self, name: &str) -> Vec<String> {
        names::path_segment(name)
    }

    fn validate(&self, _: &Context<'_>, object: &Value, _: Option<&Value>, errors: &mut Errors) {
        role(object, errors);
    }

    fn grants(&self) -> Option<Grants> {
        Some(Grants::Rules)
    }
}

/// The column of kinds without a printer.
pub(super) fn created_at() -> Column {
    column("Created At", "date", 0, |value, _| {
        plain(&value["metadata"]["creationTimestamp"])
    })
}

// === impl Bindings ===

impl Strategy for Bindings {
    fn describe(&self, info: &mut ResourceInfo) {
        info.create_on_update = true;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("Role", |value, _| {
                let reference = &value["roleRef"];
                format!(
                    "{}/{}",
                    string(&reference["kind"]),
                    string(&reference["name"])
                )
                .into()
            }),
            aged(),
            wide("Users", |value, _| subjects(value, "User")),
            wide("Groups", |value, _| subjects(value, "Group")),
            wide("ServiceAccounts", |value, _| {
                subjects(value, "ServiceAccount")
            }),
        ]
    }

    fn name_problems(&self, name: &str) -> Vec<String> {
        names::path_segment(name)
    }

    fn default(&self, _: &ResourceInfo, object: &mut Value) {
        let map = meta::object_mut(object);
        put(meta::map_at(map, "roleRef"), "apiGroup", GROUP);
        let subjects = map.get_mut("subjects").and_then(Value::as_array_mut);
        for subject in subjects.into_iter().flatten() {
            let person = matches!(subject["kind"].as_str(), Some("User" | "Group"));
            if let (true, Some(subject)) = (person, subject.as_object_mut()) {
                put(subject, "apiGroup", GROUP);
            }
        }
    }

    fn validate(&self, _: &Context<'_>, object: &Value, old: Option<&Value>, errors: &mut Errors) {
        new_binding(object, errors);
        if let Some(old) = old {
            binding(object, old, errors);
        }
    }

    fn grants(&self) -> Option<Grants> {
        Some(Grants::Role)
    }
}

fn subjects(value: &Value, kind: &str) -> Value {
    let names: Vec<String> = items(&value["subjects"])
        .iter()
        .filter(|subject| subject["kind"] == kind)
        .map(|subject| match (kind, string(&subject["namespace"])) {
            ("ServiceAccount", namespace) => format!("{namespace}/{}", string(&subject["name"])),
            _ => string(&subject["name"]).to_owned(),
        })
        .collect();
    names.join(", ").into()
}

/// Checks the rules of a Role or ClusterRole.
fn role(object: &Value, errors: &mut Errors) {
    let (aggregation, path) = (&object["aggregationRule"], Path::new("aggregationRule"));
    let (chosen, path) = (
        items(&aggregation["clusterRoleSelectors"]),
        path.child("clusterRoleSelectors"),
    );
    if !aggregation.is_null() && chosen.is_empty() {
        let text = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required(&path, text));
    }
    for (at, selector) in chosen.iter().enumerate() {
        selectors::validate(selector, &path.index(at), errors);
        if !selectors::is_valid(selector) {
            let (shown, text) = (selector.clone(), "invalid label selector");
            errors.push(FieldError::invalid(&path.index(at), shown, text));
        }
    }
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
fn new_binding(object: &Value, errors: &mut Errors) {
    let path = Path::new("roleRef");
    let group = &object["roleRef"]["apiGroup"];
    check::supported(group, &path.child("apiGroup"), &[GROUP], errors);
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
    let name = &object["roleRef"]["name"];
    check::name(name, names::path_segment, &path.child("name"), errors);
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
        let of_group = path.child("apiGroup");
        match text("kind") {
            "User" | "Group" => check::supported(&subject["apiGroup"], &of_group, &[GROUP], errors),
            "ServiceAccount" => {
                let name = &subject["name"];
                check::optional(name, names::dns_subdomain, &path.child("name"), errors);
                if !text("apiGroup").is_empty() {
                    check::supported(&subject["apiGroup"], &of_group, &[""], errors);
                }
                if object["kind"] == "ClusterRoleBinding" && text("namespace").is_empty() {
                    errors.push(FieldError::required(&path.child("namespace"), ""));
                }
            }
            other => errors.push(FieldError::not_supported(
                &path.child("kind"),
                other,
                &["ServiceAccount", "User", "Group"],
            )),
        }
    }
}

/// The role of a binding is immutable.
fn binding(object: &Value, old: &Value, errors: &mut Errors) {
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
