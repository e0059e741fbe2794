//! ConfigMaps, Secrets and ServiceAccounts.

use base64::Engine as _;
use k8s_openapi::api::core::v1;
use serde_json::{Map, Value};

use super::check;
use super::entry::Entry;
use super::pods::put;
use super::strategy::{Context, Strategy};
use crate::field::{Errors, FieldError, Path};
use crate::meta;
use crate::names;
use crate::resource::{Column, ResourceInfo, SelectableField};
use crate::store::wanted::Wanted;
use crate::table::cells::{aged, described, number_of, plain, string, text};

/// The kinds of this file.
pub(super) const KINDS: &[Entry] = &[
    Entry::of::<v1::ConfigMap>("", "configmaps", &ConfigMaps),
    Entry::of::<v1::Secret>("", "secrets", &Secrets),
    Entry::of::<v1::ServiceAccount>("", "serviceaccounts", &ServiceAccounts),
];

const BASIC: &str = "kubernetes.io/basic-auth";
const DOCKER: &str = "kubernetes.io/dockerc";
/// The keys that a Secret of a type needs.
const SECRET_KEYS: &[(&str, &[&str])] = &[
    (BASIC, &["username", "password"]),
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
];

/// ConfigMaps.
#[derive(Debug)]
pub(super) struct ConfigMaps;

/// Secrets.
#[derive(Debug)]
pub(super) struct Secrets;

/// ServiceAccounts.
#[derive(Debug)]
pub(super) struct ServiceAccounts;

/// What the columns of ConfigMaps and Secrets read: the number of entries, not their values.
const READ: Wanted = Wanted::Fields(&[
    ("metadata", Wanted::Except("managedFields")),
    ("type", Wanted::Whole),
    ("data", Wanted::Each(&Wanted::Presence)),
    ("binaryData", Wanted::Each(&Wanted::Presence)),
]);

// === impl ConfigMaps ===

impl Strategy for ConfigMaps {
    fn read_by_columns(&self) -> Wanted {
        READ
    }

    fn columns(&self) -> Vec<Column> {
        let data = text("Data", |value, _| {
            number_of(&value["data"], &value["binaryData"])
        });
        vec![
            described(data, "io.k8s.api.core.v1.ConfigMap", "data"),
            aged(),
        ]
    }

    fn validate(&self, _: &Context<'_>, object: &Value, old: Option<&Value>, errors: &mut Errors) {
        const FIELDS: &[&str] = &["data", "binaryData"];
        config_keys(object, FIELDS, errors);
        if let Some(old) = old {
            immutable_data(object, old, FIELDS, errors);
        }
    }
}

// === impl Secrets ===

impl Strategy for Secrets {
    fn describe(&self, info: &mut ResourceInfo) {
        info.selectable_fields = vec![SelectableField::at("type")];
    }

    fn read_by_columns(&self) -> Wanted {
        READ
    }

    fn columns(&self) -> Vec<Column> {
        const SECRET: &str = "io.k8s.api.core.v1.Secret";
        vec![
            described(
                text("Type", |value, _| plain(&value["type"])),
                SECRET,
                "type",
            ),
            described(
                text("Data", |value, _| number_of(&value["data"], &Value::Null)),
                SECRET,
                "data",
            ),
            aged(),
        ]
    }

    fn default(&self, _: &ResourceInfo, object: &mut Value) {
        let map = meta::object_mut(object);
        put(map, "type", "Opaque");
        if let Some(Value::Object(texts)) = map.remove("stringData")
            && !texts.is_empty()
        {
            let data = meta::map_at(map, "data");
            for (key, text) in texts {
                let text = text.as_str().unwrap_or_default();
                let encoded = base64::engine::general_purpose::STANDARD.encode(text);
                data.insert(key, encoded.into());
            }
        }
    }

    fn validate(&self, _: &Context<'_>, object: &Value, old: Option<&Value>, errors: &mut Errors) {
        config_keys(object, &["data"], errors);
        secret(object, errors);
        if let Some(old) = old {
            if old["type"] != object["type"] {
                errors.push(FieldError::invalid(
                    &Path::new("type"),
                    object["type"].clone(),
                    "field is immutable",
                ));
            }
            immutable_data(object, old, &["data"], errors);
        }
    }
}

// === impl ServiceAccounts ===

impl Strategy for ServiceAccounts {
    fn describe(&self, info: &mut ResourceInfo) {
        info.delete_returns_object = true;
    }
}

/// Checks the keys of a ConfigMap or Secret.
fn config_keys(object: &Value, fields: &[&str], errors: &mut Errors) {
    for field in fields {
        for key in object[*field]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key)
        {
            let path = Path::new(field).key(key);
            check::refuse(key, names::config_key, &path, errors);
        }
    }
}

/// Checks what a Secret of a known type needs.
fn secret(object: &Value, errors: &mut Errors) {
    let (data, path) = (&object["data"], Path::new("data"));
    let kind = string(&object["type"]);
    let Some((_, keys)) = SECRET_KEYS.iter().find(|(known, _)| *known == kind) else {
        return;
    };
    let (basic, json) = (kind == BASIC, kind.starts_with(DOCKER));
    if basic && keys.iter().any(|key| data.get(*key).is_some()) {
        // One of its keys is enough.
        return;
    }
    for key in *keys {
        let path = path.key(key);
        let Some(value) = data.get(*key) else {
            errors.push(FieldError::required(&path, ""));
            continue;
        };
        let bytes = base64::engine::general_purpose::STANDARD.decode(string(value));
        let map = bytes.map(|bytes| serde_json::from_slice::<Option<Map<String, Value>>>(&bytes));
        if json && !matches!(map, Ok(Ok(_))) {
            let (hidden, text) = ("<secret contents redacted>", "must be a JSON object");
            errors.push(FieldError::invalid(&path, hidden, text));
        }
    }
}

/// Checks data that was declared immutable.
fn immutable_data(object: &Value, old: &Value, fields: &[&str], errors: &mut Errors) {
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
