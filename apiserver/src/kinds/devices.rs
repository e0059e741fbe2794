//! Device classes, resource claims and slices of dynamic resource allocation.

use k8s_openapi::api::resource::v1;
use serde_json::Value;

use super::entry::{Entry, Texts, texts};
use super::pods::put;
use super::strategy::{ALL_BUT_STATUS, Context, Paths, Strategy};
use super::{device_rules, slice_rules};
use crate::field::Errors;
use crate::meta;
use crate::resource::{Column, Generation, ResourceInfo, StatusUpdate};
use crate::table::cells::{aged, items, plain, text};
use crate::table::count;

k8s_openapi::k8s_if_ge_1_34! {
    const CLASS_TEXTS: Texts = texts::<v1::DeviceClass>;
    const CLAIM_TEXTS: Texts = texts::<v1::ResourceClaim>;
    const TEMPLATE_TEXTS: Texts = texts::<v1::ResourceClaimTemplate>;
    const SLICE_TEXTS: Texts = texts::<v1::ResourceSlice>;
}
k8s_openapi::k8s_if_le_1_33! {
    const CLASS_TEXTS: Texts = super::entry::no_texts;
    const CLAIM_TEXTS: Texts = super::entry::no_texts;
    const TEMPLATE_TEXTS: Texts = super::entry::no_texts;
    const SLICE_TEXTS: Texts = super::entry::no_texts;
}

const GROUP: &str = "resource.k8s.io";

/// The kinds of this file.
pub(super) const KINDS: &[Entry] = &[
    Entry::new(GROUP, "deviceclasses", &DeviceClasses, CLASS_TEXTS),
    Entry::new(GROUP, "resourceclaims", &ResourceClaims, CLAIM_TEXTS),
    Entry::new(
        GROUP,
        "resourceclaimtemplates",
        &ClaimTemplates,
        TEMPLATE_TEXTS,
    ),
    Entry::new(GROUP, "resourceslices", &Slices, SLICE_TEXTS),
];

/// DeviceClasses.
#[derive(Debug)]
pub(super) struct DeviceClasses;

/// ResourceClaims.
#[derive(Debug)]
pub(super) struct ResourceClaims;

/// ResourceClaimTemplates.
#[derive(Debug)]
pub(super) struct ClaimTemplates;

/// ResourceSlices.
#[derive(Debug)]
pub(super) struct Slices;

// === impl DeviceClasses ===

impl Strategy for DeviceClasses {
    fn describe(&self, info: &mut ResourceInfo) {
        info.delete_returns_object = true;
        info.generation = Generation::Spec;
    }

    fn validate(&self, _: &Context<'_>, class: &Value, _: Option<&Value>, errors: &mut Errors) {
        device_rules::class(class, errors);
    }
}

// === impl ResourceClaims ===

impl Strategy for ResourceClaims {
    fn describe(&self, info: &mut ResourceInfo) {
        info.delete_returns_object = true;
        info.status_update = StatusUpdate::StatusOnly;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("State", |value, _| {
                let deleted = !value["metadata"]["deletionTimestamp"].is_null();
                let status = &value["status"];
                let mut states = Vec::new();
                if deleted {
                    states.push("deleted");
                }
                if status["allocation"].is_null() {
                    if !deleted {
                        states.push("pending");
                    }
                } else {
                    states.push("allocated");
                    if !items(&status["reservedFor"]).is_empty() {
                        states.push("reserved");
                    }
                }
                states.join(",").into()
            }),
            aged(),
        ]
    }

    fn default(&self, _: &ResourceInfo, claim: &mut Value) {
        default_requests(claim.pointer_mut("/spec/devices/requests"));
    }

    fn reset_fields(&self, subresource: &str) -> Option<Paths> {
        (subresource == "status").then_some(ALL_BUT_STATUS)
    }

    fn validate(&self, _: &Context<'_>, claim: &Value, old: Option<&Value>, errors: &mut Errors) {
        device_rules::claim(claim, old, errors);
    }
}

fn default_requests(requests: Option<&mut Value>) {
    let requests = requests.and_then(Value::as_array_mut);
    for request in requests.into_iter().flatten() {
        if let Some(exactly) = request.get_mut("exactly") {
            default_request(exactly);
        }
        let choices = request.get_mut("firstAvailable");
        let choices = choices.and_then(Value::as_array_mut);
        choices.into_iter().flatten().for_each(default_request);
    }
}

fn default_request(request: &mut Value) {
    let request = meta::object_mut(request);
    put(request, "allocationMode", "ExactCount");
    let exact = request["allocationMode"] == "ExactCount";
    if exact && count(request.get("count").unwrap_or(&Value::Null)) == 0 {
        request.insert("count".to_owned(), 1.into());
    }
}

// === impl ClaimTemplates ===

impl Strategy for ClaimTemplates {
    fn describe(&self, info: &mut ResourceInfo) {
        info.delete_returns_object = true;
    }

    fn default(&self, _: &ResourceInfo, template: &mut Value) {
        default_requests(template.pointer_mut("/spec/spec/devices/requests"));
    }

    fn validate(
        &self,
        _: &Context<'_>,
        template: &Value,
        old: Option<&Value>,
        errors: &mut Errors,
    ) {
        device_rules::template(template, old, errors);
    }
}

// === impl Slices ===

impl Strategy for Slices {
    fn describe(&self, info: &mut ResourceInfo) {
        info.delete_returns_object = true;
        info.generation = Generation::Spec;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("Node", |value, _| plain(&value["spec"]["nodeName"])),
            text("Driver", |value, _| plain(&value["spec"]["driver"])),
            text("Pool", |value, _| plain(&value["spec"]["pool"]["name"])),
            aged(),
        ]
    }

    fn validate(&self, _: &Context<'_>, slice: &Value, old: Option<&Value>, errors: &mut Errors) {
        slice_rules::slice(slice, old, errors);
    }
}
