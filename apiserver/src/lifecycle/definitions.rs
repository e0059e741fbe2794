//! CustomResourceDefinitions: a definition that is accepted becomes a resource; one that is deleted
//! takes its objects with it.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{collector, internal_request};
use crate::core::Core;
use crate::crd;
use crate::meta;
use crate::resource::{ALL_VERBS, Generation, ResourceInfo, Scale, SelectableField};
use crate::schema::ObjectSchema;
use crate::store::{Chore, Expected, Object};
use crate::table::custom_columns;
use crate::verbs::delete::{self, Options};

/// Where definitions are stored.
pub(crate) const STORAGE: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// Keeps a definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// A definition was written: serves what it says.
pub(crate) fn after_write(
    core: &Core,
    info: &ResourceInfo,
    old: Option<&Object>,
    new: Option<&Object>,
) {
    if info.storage != STORAGE {
        return;
    }
    match (old, new) {
        (_, Some(definition)) => serve(core, definition),
        (Some(definition), None) => {
            core.registry.set(definition.name(), Vec::new());
            core.store.set_ending(definition.name(), false);
            core.store.drop_table(definition.name());
            // Names that are free now may be what another definition waits for.
            for other in core.store.list(STORAGE, "").1 {
                if !crd::is_established(&other.value()["status"]) {
                    serve(core, &other);
                }
            }
        }
        (None, None) => {}
    }
}

/// Serves all definitions that are stored, as a restarted server must.
pub(crate) fn serve_stored(core: &Core) {
    for definition in core.store.list(STORAGE, "").1 {
        serve(core, &definition);
    }
}

/// Gives a definition its status, and serves it once its names are accepted.
///
/// It is served before it says so: whoever sees `Established` may create at once.
fn serve(core: &Core, definition: &Object) {
    let key = definition.name();
    let established = settle(core, key, |current, status| {
        let newly = crd::is_established(status) && !crd::is_established(&current["status"]);
        if newly {
            install(status);
        }
    });
    if established.is_none() {
        return;
    }
    let Some(current) = core.store.get(STORAGE, key) else {
        return;
    };
    let accepted = accept(core, &current);
    if crd::is_established(&accepted) {
        core.store.create_table(key);
        let mut resources = resources(current.value());
        note_conversions(core, &mut resources);
        core.registry.set(key, resources);
        settle(core, key, |_, _| {});
    }
    if current.is_terminating() {
        core.store.set_ending(key, true);
        core.store.add_chore(Chore::Definition(key.to_owned()));
    }
}

/// The status of a new definition, which nobody has looked at yet.
pub(crate) fn initial_status(definition: &Value) -> Value {
    let stored: Vec<&Value> = definition["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == Value::Bool(true))
        .map(|version| &version["name"])
        .collect();
    json!({
        "conditions": null,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": stored,
    })
}

/// The step before a definition is established.
fn install(status: &mut Value) {
    let conditions = status["conditions"].as_array_mut();
    for condition in conditions.into_iter().flatten() {
        if condition["type"] == "Established" {
            condition["status"] = json!("False");
            condition["reason"] = json!("Installing");
        }
    }
}

/// The status of a stored definition beside all others.
fn accept(core: &Core, definition: &Object) -> Value {
    let others: Vec<Value> = core
        .store
        .list(STORAGE, "")
        .1
        .iter()
        .filter(|other| other.name() != definition.name())
        .map(|other| other.value().clone())
        .collect();
    crd::accept(definition.value(), &others, &meta::time(core.clock.now()))
}

/// Writes the status of a definition, after `adjust`; `None` when the definition is gone.
fn settle(core: &Core, key: &str, adjust: impl Fn(&Value, &mut Value)) -> Option<()> {
    loop {
        let current = core.store.get(STORAGE, key)?;
        let mut status = accept(core, &current);
        adjust(current.value(), &mut status);
        let mut new = current.value().clone();
        meta::object_mut(&mut new).insert("status".to_owned(), status);
        if new == *current.value() {
            return Some(());
        }
        let expected = Expected::Version(current.version());
        if core.store.commit(STORAGE, key, expected, Some(new)).is_ok() {
            return Some(());
        }
        if core.store.is_closed() {
            return None;
        }
    }
}

/// Says which stored objects may not be in the form of each version's schema: all, where versions differ; those from
/// before the schema, where it is new.
fn note_conversions(core: &Core, resources: &mut [ResourceInfo]) {
    let now = core.store.revision();
    let differ = resources
        .windows(2)
        .any(|pair| pair[0].schema != pair[1].schema);
    for info in resources {
        let served = core.registry.find(&info.group, &info.version, &info.plural);
        info.converted_up_to = match served {
            _ if differ => u64::MAX,
            Some(served) if served.schema == info.schema => served.converted_up_to,
            _ => now,
        };
    }
}

/// Says that a definition is on its way out.
pub(crate) fn mark_terminating(definition: &mut Value, now: Timestamp) {
    set_terminating(
        definition,
        now,
        "True",
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    );
}

fn set_terminating(
    definition: &mut Value,
    now: Timestamp,
    status: &str,
    reason: &str,
    message: &str,
) {
    let part = meta::map_at(meta::object_mut(definition), "status");
    let conditions = meta::list_at(part, "conditions");
    conditions.retain(|condition| condition["type"] != "Terminating");
    conditions.push(json!({
        "type": "Terminating", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": meta::time(now),
    }));
}

/// The served versions of a definition.
fn resources(definition: &Value) -> Vec<ResourceInfo> {
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
    spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["served"] == Value::Bool(true))
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
                status: subresources.get("status").is_some(),
                scale: subresources.get("scale").map(|scale| Scale {
                    spec_replicas: text(&scale["specReplicasPath"]),
                    status_replicas: text(&scale["statusReplicasPath"]),
                    label_selector: scale["labelSelectorPath"].as_str().map(str::to_owned),
                }),
                generation: Generation::OutsideMetadata,
                unconditional_update: false,
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
                structural: version["schema"]
                    .get("openAPIV3Schema")
                    .map(|schema| Arc::new(ObjectSchema::custom(schema))),
                converted_up_to: 0,
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

/// Deletes the objects of a definition that terminates; when none is left, the definition goes.
pub(crate) fn empty(core: &Core, storage: &str) {
    let Some(definition) = core.store.get(STORAGE, storage) else {
        core.store.set_ending(storage, false);
        return;
    };
    if !definition.is_terminating() {
        return;
    }
    let Some(info) = core.registry.of_storage(storage) else {
        collector::drop_finalizer(core, STORAGE, &definition, CLEANUP);
        return;
    };
    for object in core.store.list(storage, "").1 {
        if object.is_terminating() {
            continue;
        }
        let request = internal_request(core, &info, &object.key());
        if let Err(status) = delete::delete(core, &request, &Options::default())
            && status.code != 404
        {
            tracing::warn!(%status, object = %object.key(), "not deleted with its definition");
        }
    }
    if core.store.count(storage) == 0 {
        collector::drop_finalizer(core, STORAGE, &definition, CLEANUP);
    }
}
