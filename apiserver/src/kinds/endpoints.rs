//! Endpoints and EndpointSlices.

use serde_json::Value;

use super::pods::put;
use super::required;
use super::strategy::{Context, Strategy};
use crate::field::{Errors, FieldError, Path};
use crate::meta;
use crate::resource::{Column, Generation, ResourceInfo};
use crate::table::cells::{aged, first_three, items, plain, string, text};
use crate::table::networking::endpoints;

/// Endpoints.
#[derive(Debug)]
pub(super) struct Endpoints;

/// EndpointSlices.
#[derive(Debug)]
pub(super) struct EndpointSlices;

// === impl Endpoints ===

impl Strategy for Endpoints {
    fn describe(&self, info: &mut ResourceInfo) {
        info.create_on_update = true;
    }

    fn columns(&self) -> Vec<Column> {
        vec![text("Endpoints", endpoints), aged()]
    }

    fn default(&self, _: &ResourceInfo, object: &mut Value) {
        let subsets = object.get_mut("subsets").and_then(Value::as_array_mut);
        for subset in subsets.into_iter().flatten() {
            let ports = subset.get_mut("ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten() {
                put(meta::object_mut(port), "protocol", "TCP");
            }
        }
    }

    fn validate(&self, _: &Context<'_>, object: &Value, _: Option<&Value>, errors: &mut Errors) {
        for (at, subset) in items(&object["subsets"]).iter().enumerate() {
            let ports = items(&subset["ports"]);
            let unnamed = |port: &&Value| string(&port["name"]).is_empty();
            if ports.len() > 1
                && let Some(first) = ports.iter().position(|port| unnamed(&port))
            {
                let path = Path::new("subsets").index(at).child("ports").index(first);
                errors.push(FieldError::required(&path.child("name"), ""));
            }
        }
    }
}

// === impl EndpointSlices ===

impl Strategy for EndpointSlices {
    fn describe(&self, info: &mut ResourceInfo) {
        info.generation = Generation::OutsideMetadata;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("AddressType", |value, _| plain(&value["addressType"])),
            text("Ports", |value, _| {
                let ports = items(&value["ports"]).iter();
                let ports = ports.map(|port| match port["port"].as_i64() {
                    Some(number) => number.to_string(),
                    None => port["name"].as_str().unwrap_or("*").to_owned(),
                });
                first_three(&some(ports.collect()))
            }),
            text("Endpoints", |value, _| {
                let all = items(&value["endpoints"]).iter();
                let all = all.flat_map(|one| items(&one["addresses"]));
                first_three(&some(
                    all.map(|address| string(address).to_owned()).collect(),
                ))
            }),
            aged(),
        ]
    }

    fn default(&self, _: &ResourceInfo, slice: &mut Value) {
        let ports = slice.get_mut("ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten() {
            let port = meta::object_mut(port);
            port.entry("name").or_insert_with(|| "".into());
            port.entry("protocol").or_insert_with(|| "TCP".into());
        }
    }

    fn validate(
        &self,
        context: &Context<'_>,
        slice: &Value,
        old: Option<&Value>,
        errors: &mut Errors,
    ) {
        required::validate(context.info, slice, errors);
        if old.is_some_and(|old| old["addressType"] != slice["addressType"]) {
            errors.push(FieldError::invalid(
                &Path::new("addressType"),
                slice["addressType"].clone(),
                "field is immutable",
            ));
        }
    }
}

/// An empty list is shown as `<unset>`.
fn some(all: Vec<String>) -> Vec<String> {
    if all.is_empty() {
        vec!["<unset>".to_owned()]
    } else {
        all
    }
}
