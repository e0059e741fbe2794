//! The status of a definition: its accepted names, and whether it is served.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::definition::bundle_problem;
use super::fields::{items, storage_versions, text};
use crate::meta;

/// The status of a new definition, before its names are checked.
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

/// The status of `definition` beside the stored `others`, at the time `now` (RFC 3339).
///
/// Names belong to the group: singular, plural and short names among themselves, kind and list kind
/// among themselves; the first definition with an accepted name keeps it. A definition is established once all
/// its names are accepted and its webhook has an authority, and stays so.
pub(crate) fn accept(definition: &Value, others: &[Value], now: &str) -> Value {
    let spec = &definition["spec"];
    let old = &definition["status"];
    let wanted = &spec["names"];
    let taken = Taken::by(others, definition);
    let mut accepted: Map<String, Value> = old["acceptedNames"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let mut conflict: Option<(&str, String)> = None;
    let mut judge = |name: &str, reason: &'static str, all: Vec<&str>, used: &[String]| {
        let clashing = all
            .into_iter()
            .find(|candidate| used.iter().any(|used| used == candidate));
        if let Some(clashing) = clashing {
            conflict = Some((reason, format!("\"{clashing}\" is already in use")));
        } else if let Some(value) = wanted.get(name) {
            accepted.insert(name.to_owned(), value.clone());
        } else {
            accepted.remove(name);
        }
    };
    let one = |name: &str| vec![text(wanted.get(name))];
    judge("plural", "PluralConflict", one("plural"), &taken.resources);
    judge(
        "singular",
        "SingularConflict",
        one("singular"),
        &taken.resources,
    );
    let short = items(wanted, "shortNames");
    judge(
        "shortNames",
        "ShortNamesConflict",
        short.iter().filter_map(Value::as_str).collect(),
        &taken.resources,
    );
    judge("kind", "KindConflict", one("kind"), &taken.kinds);
    judge(
        "listKind",
        "ListKindConflict",
        one("listKind"),
        &taken.kinds,
    );
    if let Some(categories) = wanted.get("categories") {
        accepted.insert("categories".to_owned(), categories.clone());
    }

    let mut conditions: Vec<Value> = items(old, "conditions").to_vec();
    match &conflict {
        Some((reason, message)) => {
            set_condition(
                &mut conditions,
                "NamesAccepted",
                false,
                reason,
                message,
                now,
            );
            if !is_true(&conditions, "Established") {
                set_condition(
                    &mut conditions,
                    "Established",
                    false,
                    "NotAccepted",
                    "not all names are accepted",
                    now,
                );
            }
        }
        None => {
            set_condition(
                &mut conditions,
                "NamesAccepted",
                true,
                "NoConflicts",
                "no conflicts found",
                now,
            );
            let is_usable = bundle_problem(spec).is_none() || is_true(&conditions, "Established");
            let (reason, message) = if is_usable {
                (
                    "InitialNamesAccepted",
                    "the initial names have been accepted",
                )
            } else {
                (
                    "InvalidCABundle",
                    "The conversion webhook CABundle is invalid",
                )
            };
            set_condition(
                &mut conditions,
                "Established",
                is_usable,
                reason,
                message,
                now,
            );
        }
    }
    let stored = stored_versions(spec, old);
    json!({"acceptedNames": accepted, "conditions": conditions, "storedVersions": stored})
}

/// The `storedVersions` of a status, and the storage version.
fn stored_versions(spec: &Value, status: &Value) -> Vec<Value> {
    let mut stored: Vec<Value> = items(status, "storedVersions").to_vec();
    for version in storage_versions(spec) {
        if !stored.iter().any(|known| known == version) {
            stored.push(json!(version));
        }
    }
    stored
}

/// Adds the storage version to `status.storedVersions`, with the write that makes it the storage version: from then on
/// objects may be stored in it.
pub(crate) fn add_stored_version(definition: &mut Value) {
    let stored = stored_versions(&definition["spec"], &definition["status"]);
    let status = meta::map_at(meta::object_mut(definition), "status");
    status.insert("storedVersions".to_owned(), stored.into());
}

/// Whether the condition `Established` is true.
pub(crate) fn is_established(status: &Value) -> bool {
    is_true(items(status, "conditions"), "Established")
}

/// Whether only the authority of its webhook is missing: its names are accepted, but none of its versions can be served.
pub(crate) fn lacks_authority(definition: &Value) -> bool {
    let status = &definition["status"];
    let names_are_accepted = is_true(items(status, "conditions"), "NamesAccepted");
    names_are_accepted && !is_established(status) && bundle_problem(&definition["spec"]).is_some()
}

/// Sets the condition `Established` to the step before it is true: the definition is being installed.
pub(crate) fn mark_installing(status: &mut Value) {
    let conditions = status["conditions"].as_array_mut();
    for condition in conditions.into_iter().flatten() {
        if condition["type"] == "Established" {
            condition["status"] = json!("False");
            condition["reason"] = json!("Installing");
        }
    }
}

/// Adds the condition that the definition is being deleted.
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

/// Names that other definitions of the group have accepted.
struct Taken {
    resources: Vec<String>,
    kinds: Vec<String>,
}

// === impl Taken ===

impl Taken {
    fn by(others: &[Value], definition: &Value) -> Self {
        let mut taken = Self {
            resources: Vec::new(),
            kinds: Vec::new(),
        };
        for other in others {
            let same = other["metadata"]["name"] == definition["metadata"]["name"];
            if same || other["spec"]["group"] != definition["spec"]["group"] {
                continue;
            }
            let names = &other["status"]["acceptedNames"];
            let add = |list: &mut Vec<String>, name: &str| {
                let name = text(names.get(name));
                if !name.is_empty() {
                    list.push(name.to_owned());
                }
            };
            add(&mut taken.resources, "plural");
            add(&mut taken.resources, "singular");
            add(&mut taken.kinds, "kind");
            add(&mut taken.kinds, "listKind");
            let short = items(names, "shortNames");
            taken
                .resources
                .extend(short.iter().filter_map(Value::as_str).map(str::to_owned));
        }
        taken
    }
}

fn is_true(conditions: &[Value], kind: &str) -> bool {
    conditions
        .iter()
        .any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// Sets a condition; its time changes only with its status, and an unchanged status keeps its reason
/// when the definition is established already.
fn set_condition(
    conditions: &mut Vec<Value>,
    kind: &str,
    status: bool,
    reason: &str,
    message: &str,
    now: &str,
) {
    let status = if status { "True" } else { "False" };
    let condition = conditions
        .iter_mut()
        .find(|condition| condition["type"] == kind);
    let Some(condition) = condition else {
        conditions.push(json!({
            "type": kind,
            "status": status,
            "lastTransitionTime": now,
            "reason": reason,
            "message": message,
        }));
        return;
    };
    if condition["status"] != status {
        condition["status"] = json!(status);
        condition["lastTransitionTime"] = json!(now);
    }
    condition["reason"] = json!(reason);
    condition["message"] = json!(message);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str) -> Value {
        let mut definition = json!({
            "metadata": {"name": format!("{plural}.g.io")},
            "spec": {
                "group": "g.io",
                "names": {"plural": plural, "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true}],
            },
        });
        super::super::default(&mut definition);
        definition
    }

    #[test]
    fn free_names_are_accepted_and_the_definition_established() {
        let status = accept(&definition("ups", "Up"), &[], "T1");
        assert_eq!(
            status,
            json!({
                "conditions": [
                    {"type": "NamesAccepted", "status": "True", "lastTransitionTime": "T1", "reason": "NoConflicts", "message": "no conflicts found"},
                    {"type": "Established", "status": "True", "lastTransitionTime": "T1", "reason": "InitialNamesAccepted", "message": "the initial names have been accepted"},
                ],
                "acceptedNames": {"plural": "ups", "singular": "up", "kind": "Up", "listKind": "UpList"},
                "storedVersions": ["v1"],
            })
        );
    }

    /// As kube-apiserver 1.36 answers.
    #[test]
    fn a_taken_name_keeps_a_definition_from_being_established() {
        let mut first = definition("ups", "Up");
        first["status"] = accept(&first, &[], "T1");
        let mut second = definition("upps", "Up");
        second["spec"]["names"]["shortNames"] = json!(["ups"]);
        let status = accept(&second, &[first], "T2");
        assert_eq!(
            status,
            json!({
                "conditions": [
                    {"type": "NamesAccepted", "status": "False", "lastTransitionTime": "T2", "reason": "ListKindConflict", "message": "\"UpList\" is already in use"},
                    {"type": "Established", "status": "False", "lastTransitionTime": "T2", "reason": "NotAccepted", "message": "not all names are accepted"},
                ],
                "acceptedNames": {"plural": "upps"},
                "storedVersions": ["v1"],
            })
        );
    }

    #[test]
    fn names_of_other_groups_do_not_matter() {
        let mut first = definition("ups", "Up");
        first["spec"]["group"] = json!("h.io");
        first["metadata"]["name"] = json!("ups.h.io");
        first["status"] = accept(&first, &[], "T1");
        let status = accept(&definition("ups", "Up"), &[first], "T2");
        assert!(is_true(
            status["conditions"].as_array().unwrap(),
            "Established"
        ));
    }

    #[test]
    fn a_second_look_changes_nothing_and_a_new_storage_version_is_remembered() {
        let mut definition = definition("ups", "Up");
        definition["status"] = accept(&definition, &[], "T1");
        assert_eq!(accept(&definition, &[], "T2"), definition["status"]);
        definition["spec"]["versions"] = json!([
            {"name": "v1", "storage": false}, {"name": "v2", "storage": true},
        ]);
        assert_eq!(
            accept(&definition, &[], "T2")["storedVersions"],
            json!(["v1", "v2"])
        );
    }
}
