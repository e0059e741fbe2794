//! The versions of a definition as resources, and the conversion between them.
//!
//! Objects are stored in the form of the storage version: fields that only another version has are pruned before. A
//! read completes them with the defaults of the version in which they are stored, and prunes them to that of the request.
//! (apiextensions-apiserver: `crdConversionRESTOptionsGetter`.)

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::apply::LazySchema;
use crate::core::Core;
use crate::kinds::data::ALL_VERBS;
use crate::kinds::strategy::Plain;
use crate::meta;
use crate::resource::{Conversion, Generation, ResourceInfo, Scale, SelectableField, StatusUpdate};
use crate::schema::ObjectSchema;
use crate::table::custom_columns;
use crate::webhooks::ConversionWebhook;

fn is_served(version: &Value) -> bool {
    version["served"] == Value::Bool(true)
}

fn is_storage(version: &Value) -> bool {
    version["storage"] == Value::Bool(true)
}

fn schema(version: &Value) -> &Value {
    &version["schema"]["openAPIV3Schema"]
}

fn is_same_form(one: &Value, other: &Value) -> bool {
    schema(one) == schema(other)
}

fn compiled(version: &Value) -> Option<Arc<ObjectSchema>> {
    let schema = version["schema"].get("openAPIV3Schema")?;
    Some(Arc::new(ObjectSchema::custom(schema)))
}

/// The webhook that converts the objects of a definition.
fn webhook(definition: &Value) -> Option<Arc<ConversionWebhook>> {
    let conversion = &definition["spec"]["conversion"];
    let is_wanted = conversion["strategy"] == "Webhook";
    is_wanted.then(|| Arc::new(ConversionWebhook::read(&conversion["webhook"])))
}

/// Sets up to which version stored objects may differ from the form of each version's schema.
///
/// Objects are pruned and completed on reads in other versions than the stored one, and if they are older than
/// the schema. A webhook that did not change stays the same, with its connections.
pub(super) fn note_conversions(core: &Core, resources: &mut [ResourceInfo]) {
    let now = core.store.revision();
    for info in resources {
        let served = core.registry.find(&info.group, &info.version, &info.plural);
        let served = served.as_ref();
        if let (Some(own), Some(before)) = (
            &mut info.webhook,
            served.and_then(|served| served.webhook.as_ref()),
        ) && own.is_same(before)
        {
            *own = before.clone();
        }
        info.converted_up_to = match served {
            _ if info.stored.is_some() => u64::MAX,
            Some(served) if served.schema == info.schema => served.converted_up_to,
            _ => now,
        };
    }
}

/// The served versions of a definition, and its storage version.
pub(super) fn resources(definition: &Value) -> Vec<ResourceInfo> {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| -> Vec<String> {
        value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let versions = spec["versions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let stored = versions.iter().find(|version| is_storage(version));
    let api_version =
        |version: &Value| format!("{}/{}", text(&spec["group"]), text(&version["name"]));
    let schemas = versions
        .iter()
        .filter_map(|version| Some((api_version(version), compiled(version)?)));
    let schemas: Arc<BTreeMap<_, _>> = Arc::new(schemas.collect());
    let webhook = webhook(definition);
    let compiled = |version: &Value| schemas.get(&api_version(version)).cloned();
    versions
        .iter()
        .filter(|version| is_served(version) || is_storage(version))
        .map(|version| {
            let subresources = &version["subresources"];
            ResourceInfo {
                group: text(&spec["group"]),
                version: text(&version["name"]),
                kind: text(&names["kind"]),
                list_kind: names["listKind"]
                    .as_str()
                    .map_or_else(|| format!("{}List", text(&names["kind"])), str::to_owned),
                plural: text(&names["plural"]),
                singular: names["singular"]
                    .as_str()
                    .map_or_else(|| text(&names["kind"]).to_lowercase(), str::to_owned),
                short_names: texts(&names["shortNames"]),
                categories: texts(&names["categories"]),
                namespaced: spec["scope"] == "Namespaced",
                verbs: ALL_VERBS,
                subresources: &[],
                of: None,
                strategy: &Plain,
                status: subresources.get("status").is_some(),
                scale: subresources.get("scale").map(|scale| Scale {
                    spec_replicas: text(&scale["specReplicasPath"]),
                    status_replicas: text(&scale["statusReplicasPath"]),
                    label_selector: scale["labelSelectorPath"].as_str().map(str::to_owned),
                }),
                status_update: StatusUpdate::StatusOnly,
                generation: Generation::OutsideMetadata,
                unconditional_update: false,
                orphans_by_default: false,
                create_on_update: false,
                delete_returns_object: false,
                columns: custom_columns(version),
                selectable_fields: version["selectableFields"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|field| SelectableField {
                        name: text(&field["jsonPath"]).trim_start_matches('.').to_owned(),
                        extract: None,
                    })
                    .collect(),
                schema: version["schema"]
                    .get("openAPIV3Schema")
                    .map(|schema| Arc::new(schema.clone())),
                structural: compiled(version),
                types: LazySchema::default(),
                storage_version: is_storage(version),
                stored_in: stored.map_or_else(String::new, api_version),
                schemas: schemas.clone(),
                conversion: match &webhook {
                    Some(_) => Conversion::Webhook,
                    None => Conversion::None,
                },
                webhook: webhook.clone(),
                stored: stored
                    .filter(|stored| !is_same_form(version, stored))
                    .and_then(compiled),
                converted_up_to: 0,
                served: is_served(version),
                deprecation: (version["deprecated"] == Value::Bool(true))
                    .then(|| deprecation(spec, version)),
                custom: true,
                storage: meta::text(definition, "name").to_owned(),
            }
        })
        .collect()
}

/// The warning of a deprecated version: its own text, or one that names a version that is not.
fn deprecation(spec: &Value, version: &Value) -> String {
    if let Some(text) = version["deprecationWarning"].as_str() {
        return text.to_owned();
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, kind) = (text(&spec["group"]), text(&spec["names"]["kind"]));
    let better = spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|other| {
            other["served"] == Value::Bool(true) && other["deprecated"] != Value::Bool(true)
        })
        .map(|other| text(&other["name"]))
        .max_by_key(|name| crate::registry::version_rank(name));
    let mut warning = format!("{group}/{} {kind} is deprecated", text(&version["name"]));
    if let Some(better) = better {
        warning.push_str(&format!("; use {group}/{better} {kind}"));
    }
    warning
}
