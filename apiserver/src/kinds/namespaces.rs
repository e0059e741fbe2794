//! Namespaces.

use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use serde_json::{Value, json};

use super::check;
use super::entry::Entry;
use super::strategy::{Context, Strategy};
use crate::field::{Errors, FieldError, Path};
use crate::meta;
use crate::names;
use crate::resource::{Column, ResourceInfo, SelectableField};
use crate::table::cells::{aged, items, plain, string, text};

/// The kinds of this file.
pub(super) const KINDS: &[Entry] = &[Entry::of::<v1::Namespace>("", "namespaces", &Namespaces)];

/// The finalizers without a domain.
const STANDARD_FINALIZERS: &[&str] = &[FINALIZER, "orphan", "foregroundDeletion"];

/// The entry of `spec.finalizers` that stands for the contents of the namespace.
pub(crate) const FINALIZER: &str = "kubernetes";

/// Namespaces.
#[derive(Debug)]
pub(super) struct Namespaces;

// === impl Namespaces ===

impl Strategy for Namespaces {
    fn describe(&self, info: &mut ResourceInfo) {
        info.delete_returns_object = true;
        info.selectable_fields = vec![SelectableField::at("status.phase")];
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("Status", |value, _| plain(&value["status"]["phase"])),
            aged(),
        ]
    }

    fn name_problems(&self, name: &str) -> Vec<String> {
        names::dns_label(name)
    }

    fn prepare_create(&self, _: &Context<'_>, object: &mut Value) {
        let map = meta::object_mut(object);
        map.insert("status".to_owned(), json!({"phase": "Active"}));
        let finalizers = meta::list_at(meta::map_at(map, "spec"), "finalizers");
        if !finalizers.iter().any(|one| one == FINALIZER) {
            finalizers.push(FINALIZER.into());
        }
    }

    fn prepare_update(&self, context: &Context<'_>, old: &Value, new: &mut Value) {
        // Only the finalize subresource changes these.
        if context.subresource != "finalize" {
            let finalizers = old["spec"]["finalizers"].clone();
            meta::map_at(meta::object_mut(new), "spec").insert("finalizers".to_owned(), finalizers);
        }
    }

    fn default(&self, _: &ResourceInfo, object: &mut Value) {
        let name = meta::text(object, "name").to_owned();
        if !name.is_empty() {
            let labels = meta::map_at(meta::metadata_mut(object), "labels");
            labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
        }
    }

    fn validate(&self, _: &Context<'_>, object: &Value, old: Option<&Value>, errors: &mut Errors) {
        if old.is_some() {
            return;
        }
        let path = Path::new("spec").child("finalizers");
        for finalizer in items(&object["spec"]["finalizers"]) {
            let name = string(finalizer);
            check::refuse(name, names::qualified_name, &path, errors);
            if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
                let text = "name is neither a standard finalizer name nor is it fully qualified";
                errors.push(FieldError::invalid(&path, name, text));
            }
        }
    }

    fn may_go(&self, object: &Value) -> bool {
        let finalizers = object["spec"]["finalizers"].as_array();
        finalizers.is_none_or(Vec::is_empty)
    }

    fn mark_deleted(&self, object: &mut Value, now: Timestamp) -> bool {
        meta::metadata_mut(object).insert("deletionTimestamp".to_owned(), meta::time(now).into());
        let status = meta::map_at(meta::object_mut(object), "status");
        status.insert("phase".to_owned(), "Terminating".into());
        true
    }
}
