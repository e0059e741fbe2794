//! CustomResourceDefinitions and APIServices.

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use serde_json::Value;

use super::entry::Entry;
use super::pods::put;
use super::rbac::created_at;
use super::registration_rules;
use super::strategy::{ALL_BUT_STATUS, Context, Paths, Strategy};
use crate::crd;
use crate::definitions;
use crate::field::Errors;
use crate::meta;
use crate::names;
use crate::resource::{Column, Generation, ResourceInfo};
use crate::table::cells::{aged, items, string, text};

/// The kinds of this file.
pub(super) const KINDS: &[Entry] = &[
    Entry::of::<CustomResourceDefinition>(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        &Definitions,
    ),
    Entry::of::<APIService>("apiregistration.k8s.io", "apiservices", &ApiServices),
];

/// CustomResourceDefinitions.
#[derive(Debug)]
pub(super) struct Definitions;

/// APIServices.
#[derive(Debug)]
pub(super) struct ApiServices;

// === impl Definitions ===

impl Strategy for Definitions {
    fn describe(&self, info: &mut ResourceInfo) {
        info.unconditional_update = false;
        info.generation = Generation::Spec;
    }

    fn columns(&self) -> Vec<Column> {
        vec![created_at()]
    }

    fn prepare_create(&self, _: &Context<'_>, definition: &mut Value) {
        definition["status"] = crd::initial_status(definition);
    }

    fn prepare_update(&self, context: &Context<'_>, _: &Value, definition: &mut Value) {
        if context.subresource.is_empty() {
            crd::add_stored_version(definition);
        }
    }

    fn default(&self, _: &ResourceInfo, definition: &mut Value) {
        crd::default(definition);
    }

    fn validate(
        &self,
        _: &Context<'_>,
        definition: &Value,
        old: Option<&Value>,
        errors: &mut Errors,
    ) {
        errors.extend(crd::validate(definition, old));
    }

    fn finalizer_on_deletion(&self) -> Option<&'static str> {
        Some(definitions::CLEANUP)
    }

    fn mark_deleted(&self, definition: &mut Value, now: Timestamp) -> bool {
        let time = meta::time(now);
        meta::metadata_mut(definition).insert("deletionTimestamp".to_owned(), time.into());
        crd::mark_terminating(definition, now);
        true
    }

    fn reset_fields(&self, subresource: &str) -> Option<Paths> {
        (subresource == "status").then_some(ALL_BUT_STATUS)
    }
}

// === impl ApiServices ===

impl Strategy for ApiServices {
    fn describe(&self, info: &mut ResourceInfo) {
        info.unconditional_update = false;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("Service", |value, _| {
                let service = &value["spec"]["service"];
                if service.is_null() {
                    return "Local".into();
                }
                format!(
                    "{}/{}",
                    string(&service["namespace"]),
                    string(&service["name"])
                )
                .into()
            }),
            text("Available", |value, _| {
                let mut conditions = items(&value["status"]["conditions"]).iter();
                let Some(available) = conditions.find(|one| one["type"] == "Available") else {
                    return "Unknown".into();
                };
                match (string(&available["status"]), string(&available["reason"])) {
                    ("True", _) => "True".into(),
                    (status, reason) => format!("{status} ({reason})").into(),
                }
            }),
            aged(),
        ]
    }

    fn name_problems(&self, name: &str) -> Vec<String> {
        names::path_segment(name)
    }

    fn default(&self, _: &ResourceInfo, service: &mut Value) {
        if let Some(reference) = service.pointer_mut("/spec/service")
            && reference.is_object()
        {
            put(meta::object_mut(reference), "port", 443);
        }
    }

    fn reset_fields(&self, subresource: &str) -> Option<Paths> {
        (subresource == "status").then_some(ALL_BUT_STATUS)
    }

    fn validate(&self, _: &Context<'_>, service: &Value, _: Option<&Value>, errors: &mut Errors) {
        registration_rules::validate(service, errors);
    }
}
