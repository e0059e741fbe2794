//! A definition as a whole: its defaults, and the checks of everything but the schemas of its versions.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::fields::{items, storage_versions, text};
use super::versions::Shared;
use crate::field::{ErrorKind, Errors, FieldError, Path};
use crate::kinds::webhook_rules;
use crate::names;
use crate::webhooks;

const APPROVAL: &str = "api-approved.kubernetes.io";

/// Sets optional fields: `singular`, `listKind`, `conversion`.
pub(crate) fn default(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
    }
    let service = spec
        .get_mut("conversion")
        .and_then(|conversion| conversion.pointer_mut("/webhook/clientConfig/service"))
        .and_then(Value::as_object_mut);
    if let Some(service) = service {
        service.entry("port").or_insert(443.into());
    }
    let versions = spec.get_mut("versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten() {
        for flag in ["served", "storage"] {
            if let Some(version) = version.as_object_mut() {
                version.entry(flag).or_insert(Value::Bool(false));
            }
        }
    }
    let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) else {
        return;
    };
    let kind = text(names.get("kind")).to_owned();
    let mut set = |name: &str, value: String| {
        if text(names.get(name)).is_empty() && !kind.is_empty() {
            names.insert(name.to_owned(), value.into());
        }
    };
    set("singular", kind.to_lowercase());
    set("listKind", format!("{kind}List"));
}

/// What is wrong with a new definition, or with a changed one; of its metadata only the name
/// is checked here.
pub(crate) fn validate(definition: &Value, old: Option<&Value>) -> Errors {
    let mut errors = Errors::new();
    let spec = &definition["spec"];
    let path = Path::new("spec");
    let plural = text(spec["names"].get("plural"));
    let group = text(spec.get("group"));
    let name = text(definition["metadata"].get("name"));
    if name != format!("{plural}.{group}") {
        errors.push(FieldError::invalid(
            &Path::new("metadata").child("name"),
            name,
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    validate_spec(spec, &path, &mut errors);
    match old {
        None => validate_approval(definition, group, &mut errors),
        Some(old) => validate_update(definition, old, &mut errors),
    }
    if old.is_none() {
        validate_stored_versions(spec, &mut errors);
    }
    errors
}

/// A new definition stores objects in the first version with `storage: true`.
fn validate_stored_versions(spec: &Value, errors: &mut Errors) {
    let path = Path::new("status").child("storedVersions");
    match storage_versions(spec).as_slice() {
        [] => errors.push(FieldError::invalid(
            &path,
            Value::Null,
            "must have at least one stored version",
        )),
        [stored, others @ ..] => {
            for other in others.iter().filter(|other| *other != stored) {
                errors.push(FieldError::invalid(
                    &path,
                    json!([stored]),
                    format!("must have the storage version {other}"),
                ));
            }
        }
    }
}

fn validate_spec(spec: &Value, path: &Path, errors: &mut Errors) {
    validate_group(text(spec.get("group")), &path.child("group"), errors);
    match text(spec.get("scope")) {
        "" => errors.push(FieldError::required(&path.child("scope"), "")),
        "Cluster" | "Namespaced" => {}
        other => errors.push(FieldError::not_supported(
            &path.child("scope"),
            other,
            &["Cluster", "Namespaced"],
        )),
    }
    let versions = spec["versions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let shared = Shared::of(versions);
    for (index, version) in versions.iter().enumerate() {
        let path = path.child("versions").index(index);
        let name = text(version.get("name"));
        for wrong in names::dns_1035_label(name) {
            errors.push(FieldError::invalid(&path.child("name"), name, wrong));
        }
        if !version["deprecationWarning"].is_null() && version["deprecated"] != true {
            errors.push(FieldError::invalid(
                &path.child("deprecationWarning"),
                version["deprecationWarning"].clone(),
                "can only be set for deprecated versions",
            ));
        }
        shared.validate_apart(version, &path, errors);
    }
    let mut seen: Vec<&Value> = Vec::new();
    let unique = versions.iter().all(|version| {
        let fresh = !seen.contains(&&version["name"]);
        seen.push(&version["name"]);
        fresh
    });
    let mut invalid_versions = |wrong: &str| {
        let detail = format!("{}: {wrong}", shown_versions(&spec["versions"]));
        errors.push(FieldError::new(
            ErrorKind::Invalid,
            &path.child("versions"),
            None,
            detail,
        ));
    };
    if !unique {
        invalid_versions("must contain unique version names");
    }
    if storage_versions(spec).len() != 1 {
        invalid_versions("must have exactly one version marked as storage version");
    }
    // The first version is also the only version of definitions without a list of versions.
    if let Some(version) = versions.first() {
        let name = text(version.get("name"));
        for wrong in names::dns_1035_label(name) {
            errors.push(FieldError::invalid(&path.child("version"), name, wrong));
        }
    }
    validate_names(&spec["names"], &path.child("names"), errors);
    if let Some(version) = versions.first() {
        shared.validate_together(version, path, errors);
    }
    validate_conversion(spec, path, errors);
}

/// Versions in the format of a real server's error: its own struct, without the shared parts.
fn shown_versions(versions: &Value) -> String {
    let Value::Array(versions) = versions else {
        return "null".to_owned();
    };
    let shown: Vec<String> = versions
        .iter()
        .map(|version| {
            format!(
                "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
                json!(text(version.get("name"))),
                version["served"] == true,
                version["storage"] == true,
                version["deprecated"] == true,
                version["deprecationWarning"],
            )
        })
        .collect();
    format!("[{}]", shown.join(","))
}

fn validate_group(group: &str, path: &Path, errors: &mut Errors) {
    if group.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let wrong = names::dns_subdomain(group);
    if wrong.is_empty() && !group.contains('.') {
        errors.push(FieldError::invalid(
            path,
            group,
            "should be a domain with at least one dot",
        ));
    }
    for wrong in wrong {
        errors.push(FieldError::invalid(path, group, wrong));
    }
}

fn validate_names(names: &Value, path: &Path, errors: &mut Errors) {
    let required = ["plural", "singular", "kind", "listKind"];
    for name in required {
        if text(names.get(name)).is_empty() {
            errors.push(FieldError::required(&path.child(name), ""));
        }
    }
    for name in required {
        let value = text(names.get(name));
        if value.is_empty() {
            continue;
        }
        let is_kind = matches!(name, "kind" | "listKind");
        let checked = if is_kind {
            value.to_lowercase()
        } else {
            value.to_owned()
        };
        for wrong in names::dns_1035_label(&checked) {
            let wrong = if is_kind {
                format!("may have mixed case, but should otherwise match: {wrong}")
            } else {
                wrong
            };
            errors.push(FieldError::invalid(&path.child(name), value, wrong));
        }
    }
    for list in ["shortNames", "categories"] {
        for (index, name) in items(names, list).iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            for wrong in names::dns_1035_label(name) {
                errors.push(FieldError::invalid(
                    &path.child(list).index(index),
                    name,
                    wrong,
                ));
            }
        }
    }
    let kind = text(names.get("kind"));
    if !kind.is_empty() && kind == text(names.get("listKind")) {
        errors.push(FieldError::invalid(
            &path.child("listKind"),
            kind,
            "kind and listKind may not be the same",
        ));
    }
}

fn validate_conversion(spec: &Value, path: &Path, errors: &mut Errors) {
    if spec["preserveUnknownFields"] == true {
        errors.push(FieldError::invalid(
            &path.child("preserveUnknownFields"),
            true,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
    let conversion = &spec["conversion"];
    let path = path.child("conversion");
    match text(conversion.get("strategy")) {
        "" if conversion.is_null() => {}
        "" => errors.push(FieldError::required(&path.child("strategy"), "")),
        "None" => {
            if !conversion["webhook"].is_null() {
                errors.push(FieldError::forbidden(
                    &path.child("webhook"),
                    "should not be set when strategy is not set to Webhook",
                ));
            }
        }
        "Webhook" => {
            let (config, at) = (
                &conversion["webhook"]["clientConfig"],
                path.child("webhookClientConfig"),
            );
            if config.is_null() {
                errors.push(FieldError::required(
                    &at,
                    "required when strategy is set to Webhook",
                ));
            } else {
                webhook_rules::client_config(config, &at, errors);
            }
            webhook_rules::reviews(
                &conversion["webhook"]["conversionReviewVersions"],
                &path.child("conversionReviewVersions"),
                "",
                errors,
            );
        }
        other => errors.push(FieldError::not_supported(
            &path.child("strategy"),
            other,
            &["None", "Webhook"],
        )),
    }
}

fn validate_approval(definition: &Value, group: &str, errors: &mut Errors) {
    let is_protected = ["k8s.io", "kubernetes.io"]
        .into_iter()
        .any(|domain| group == domain || group.ends_with(&format!(".{domain}")));
    let annotations = &definition["metadata"]["annotations"];
    if is_protected && text(annotations.get(APPROVAL)).is_empty() {
        errors.push(FieldError::required(
            &Path::new("metadata").child("annotations").key(APPROVAL),
            "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111",
        ));
    }
}

fn validate_update(definition: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let (new_spec, old_spec) = (&definition["spec"], &old["spec"]);
    let established = items(&old["status"], "conditions")
        .iter()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True");
    let mut immutable = |path: &Path, new: &Value, old: &Value| {
        if new != old {
            errors.push(FieldError::invalid(path, new.clone(), "field is immutable"));
        }
    };
    if established {
        immutable(&path.child("scope"), &new_spec["scope"], &old_spec["scope"]);
        immutable(
            &path.child("names").child("kind"),
            &new_spec["names"]["kind"],
            &old_spec["names"]["kind"],
        );
    }
    immutable(&path.child("group"), &new_spec["group"], &old_spec["group"]);
    immutable(
        &path.child("names").child("plural"),
        &new_spec["names"]["plural"],
        &old_spec["names"]["plural"],
    );
    if established && bundle_problem(old_spec).is_none() {
        let config = ["conversion", "webhookClientConfig"];
        let at = config.iter().fold(path, |path, field| path.child(field));
        errors.extend(
            bundle_problem(new_spec).map(|(bundle, why)| {
                FieldError::invalid(&at.child("caBundle"), bundle.clone(), why)
            }),
        );
    }
    for (index, stored) in items(&old["status"], "storedVersions").iter().enumerate() {
        let kept = items(new_spec, "versions")
            .iter()
            .any(|version| version["name"] == *stored);
        if !kept {
            let name = stored.as_str().unwrap_or_default();
            errors.push(FieldError::invalid(
                &Path::new("status").child("storedVersions").index(index),
                name,
                format!(
                    "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
                ),
            ));
        }
    }
    // A real server does not continue with names that may not change.
    if errors
        .iter()
        .any(|error| error.detail == "field is immutable")
    {
        errors.retain(|error| error.path.as_str() != "metadata.name");
    }
}

/// The bundle of a definition's webhook, and why it has no authority. A definition that is not established may have such
/// a bundle. (apiextensions-apiserver: `allowInvalidCABundle`.)
pub(super) fn bundle_problem(spec: &Value) -> Option<(&Value, String)> {
    let bundle = &spec["conversion"]["webhook"]["clientConfig"]["caBundle"];
    let decoded = STANDARD.decode(text(Some(bundle))).ok()?;
    let is_empty = decoded.is_empty() || spec["conversion"]["strategy"] != "Webhook";
    let why = webhooks::certificates(&decoded).err()?;
    (!is_empty).then_some((bundle, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::aggregate;

    fn definition() -> Value {
        json!({
            "metadata": {"name": "foos.g.io"},
            "spec": {
                "group": "g.io",
                "scope": "Namespaced",
                "names": {"plural": "foos", "kind": "Foo"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        })
    }

    fn errors(change: impl Fn(&mut Value)) -> String {
        let mut definition = definition();
        change(&mut definition);
        default(&mut definition);
        aggregate(&validate(&definition, None))
    }

    #[test]
    fn names_and_conversion_are_completed() {
        let mut completed = definition();
        default(&mut completed);
        assert_eq!(
            completed["spec"]["names"],
            json!({"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"})
        );
        assert_eq!(completed["spec"]["conversion"], json!({"strategy": "None"}));
        assert_eq!(aggregate(&validate(&completed, None)), "");
    }

    /// Texts of kube-apiserver 1.36.
    #[test]
    fn each_rule_is_worded_as_a_real_server_words_it() {
        const LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
        type Change = fn(&mut Value);
        let cases: Vec<(&str, Change, String)> = vec![
            ("name", |d| d["metadata"]["name"] = json!("x.g.io"), r#"metadata.name: Invalid value: "x.g.io": must be spec.names.plural+"."+spec.group"#.into()),
            ("no spec", |d| d["spec"] = json!({}), r#"[metadata.name: Invalid value: "foos.g.io": must be spec.names.plural+"."+spec.group, spec.group: Required value, spec.scope: Required value, spec.versions: Invalid value: null: must have exactly one version marked as storage version, spec.names.plural: Required value, spec.names.singular: Required value, spec.names.kind: Required value, spec.names.listKind: Required value, status.storedVersions: Invalid value: null: must have at least one stored version]"#.into()),
            ("group without a dot", |d| { d["spec"]["group"] = json!("g"); d["metadata"]["name"] = json!("foos.g"); }, r#"spec.group: Invalid value: "g": should be a domain with at least one dot"#.into()),
            ("scope", |d| d["spec"]["scope"] = json!("Foo"), r#"spec.scope: Unsupported value: "Foo": supported values: "Cluster", "Namespaced""#.into()),
            ("protected group", |d| { d["spec"]["group"] = json!("x.k8s.io"); d["metadata"]["name"] = json!("foos.x.k8s.io"); }, r#"metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111"#.into()),
            ("no schema", |d| d["spec"]["versions"][0]["schema"] = json!(null), "spec.versions[0].schema.openAPIV3Schema: Required value".into()),
            ("kind", |d| d["spec"]["names"]["singular"] = json!("X"), format!("spec.names.singular: Invalid value: \"X\": {LABEL}")),
            ("kind as list kind", |d| d["spec"]["names"]["listKind"] = json!("Foo"), r#"spec.names.listKind: Invalid value: "Foo": kind and listKind may not be the same"#.into()),
            ("short names", |d| d["spec"]["names"]["shortNames"] = json!(["ok", "A"]), format!("spec.names.shortNames[1]: Invalid value: \"A\": {LABEL}")),
            ("categories", |d| d["spec"]["names"]["categories"] = json!(["A B"]), format!("spec.names.categories[0]: Invalid value: \"A B\": {LABEL}")),
            ("preserving everything", |d| d["spec"]["preserveUnknownFields"] = json!(true), "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead".into()),
            ("conversion without a webhook", |d| d["spec"]["conversion"] = json!({"strategy": "Webhook"}), "[spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook, spec.conversion.conversionReviewVersions: Required value]".into()),
            ("conversion of another strategy", |d| d["spec"]["conversion"] = json!({"strategy": "Foo"}), r#"spec.conversion.strategy: Unsupported value: "Foo": supported values: "None", "Webhook""#.into()),
            (
                "columns",
                |d| d["spec"]["versions"][0]["additionalPrinterColumns"] = json!([{"name": "", "type": "foo", "jsonPath": "x"}, {"name": "a", "type": "string"}, {"name": "b", "type": "string", "jsonPath": ".a", "format": "zz"}]),
                r#"[spec.additionalPrinterColumns[0].name: Required value, spec.additionalPrinterColumns[0].type: Invalid value: "foo": must be one of boolean,date,integer,number,string, spec.additionalPrinterColumns[0].JSONPath: Invalid value: "x": must be a simple json path starting with ., spec.additionalPrinterColumns[1].JSONPath: Required value, spec.additionalPrinterColumns[2].format: Invalid value: "zz": must be one of byte,date,date-time,double,float,int32,int64,password]"#.into(),
            ),
            (
                "selectable fields",
                |d| d["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.x"}, {"jsonPath": "x"}, {"jsonPath": ".metadata.name"}]),
                r#"[spec.selectableFields[0].jsonPath: Invalid value: ".spec.x": is an invalid path: does not refer to a valid field, spec.selectableFields[1].jsonPath: Invalid value: "x": is an invalid path: expected [ or . but got: x, spec.selectableFields[2].jsonPath: Invalid value: ".metadata.name": is an invalid path: does not refer to a valid field]"#.into(),
            ),
            (
                "scale elsewhere",
                |d| d["spec"]["versions"][0]["subresources"] = json!({"scale": {"specReplicasPath": ".x", "statusReplicasPath": ".y"}}),
                r#"[spec.subresources.scale.specReplicasPath: Invalid value: ".x": should be a json path under .spec, spec.subresources.scale.statusReplicasPath: Invalid value: ".y": should be a json path under .status]"#.into(),
            ),
            (
                "scale without paths",
                |d| d["spec"]["versions"][0]["subresources"] = json!({"scale": {}}),
                "[spec.subresources.scale.specReplicasPath: Required value, spec.subresources.scale.statusReplicasPath: Required value]".into(),
            ),
            (
                "scale and status",
                |d| d["spec"]["versions"][0]["subresources"] = json!({"status": {}, "scale": {"specReplicasPath": ".spec.x", "statusReplicasPath": ".status.y", "labelSelectorPath": ".status.s"}}),
                String::new(),
            ),
            ("a warning without deprecation", |d| d["spec"]["versions"][0]["deprecationWarning"] = json!("x"), r#"spec.versions[0].deprecationWarning: Invalid value: "x": can only be set for deprecated versions"#.into()),
            (
                "a version of its own",
                |d| d["spec"]["versions"].as_array_mut().unwrap().push(json!({"name": "v1beta1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"a": {}}}}, "additionalPrinterColumns": [{"name": "a", "type": "string"}]})),
                "[spec.versions[1].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields, spec.versions[1].additionalPrinterColumns[0].JSONPath: Required value]".into(),
            ),
        ];
        for (name, change, expected) in cases {
            assert_eq!(errors(change), expected, "{name}");
        }
    }

    #[test]
    fn two_storage_versions_or_two_of_a_name_are_refused() {
        let twice = errors(|definition| {
            let version = definition["spec"]["versions"][0].clone();
            definition["spec"]["versions"]
                .as_array_mut()
                .unwrap()
                .push(version);
        });
        assert!(
            twice.contains("must contain unique version names"),
            "{twice}"
        );
        assert!(
            twice.contains("must have exactly one version marked as storage version"),
            "{twice}"
        );
    }

    #[test]
    fn what_names_the_resource_cannot_change() {
        let mut old = definition();
        default(&mut old);
        old["status"] = json!({"conditions": [{"type": "Established", "status": "True"}], "storedVersions": ["v1"]});
        type Change = fn(&mut Value);
        let cases: Vec<(Change, &str)> = vec![
            (
                |d| d["spec"]["scope"] = json!("Cluster"),
                r#"spec.scope: Invalid value: "Cluster": field is immutable"#,
            ),
            (
                |d| d["spec"]["names"]["kind"] = json!("Other"),
                r#"spec.names.kind: Invalid value: "Other": field is immutable"#,
            ),
            (
                |d| d["spec"]["names"]["plural"] = json!("others"),
                r#"spec.names.plural: Invalid value: "others": field is immutable"#,
            ),
            (
                |d| d["spec"]["group"] = json!("h.io"),
                r#"spec.group: Invalid value: "h.io": field is immutable"#,
            ),
            (|d| d["spec"]["names"]["listKind"] = json!("Xs"), ""),
            (|d| d["spec"]["versions"][0]["served"] = json!(false), ""),
            (
                |d| d["spec"]["versions"][0]["name"] = json!("v2"),
                r#"status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions"#,
            ),
        ];
        for (change, expected) in cases {
            let mut new = old.clone();
            change(&mut new);
            assert_eq!(aggregate(&validate(&new, Some(&old))), expected);
        }
    }
}
