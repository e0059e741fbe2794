//! The schema of ObjectMeta, which every kind shares.

use std::sync::LazyLock;

use serde_json::json;

use super::node::{Additional, Schema};

static OBJECT_META: LazyLock<Schema> = LazyLock::new(|| {
    let text = json!({"type": "string"});
    let time = json!({"type": "string", "format": "date-time"});
    let integer = json!({"type": "integer", "format": "int64"});
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let mut schema = Schema::parse(&json!({
        "type": "object",
        "properties": {
            "annotations": texts,
            "creationTimestamp": time,
            "deletionGracePeriodSeconds": integer,
            "deletionTimestamp": time,
            "finalizers": {"type": "array", "items": text},
            "generateName": text,
            "generation": integer,
            "labels": texts,
            "managedFields": {"type": "array", "items": {"type": "object", "properties": {
                "apiVersion": text,
                "fieldsType": text,
                "fieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "manager": text,
                "operation": text,
                "subresource": text,
                "time": time,
            }}},
            "name": text,
            "namespace": text,
            "ownerReferences": {"type": "array", "items": {"type": "object", "properties": {
                "apiVersion": text,
                "blockOwnerDeletion": {"type": "boolean"},
                "controller": {"type": "boolean"},
                "kind": text,
                "name": text,
                "uid": text,
            }}},
            "resourceVersion": text,
            "selfLink": text,
            "uid": text,
        },
    }));
    schema.go_type = Some("v1.ObjectMeta".to_owned());
    name_item_type(&mut schema, "managedFields", "v1.ManagedFieldsEntry");
    name_item_type(&mut schema, "ownerReferences", "v1.OwnerReference");
    // Go's names of the two string types that are not plain.
    if let Some(uid) = schema.properties.get_mut("uid") {
        uid.go_type = Some("types.UID".to_owned());
    }
    schema
});

/// ObjectMeta as a schema.
pub(super) fn schema() -> &'static Schema {
    &OBJECT_META
}

fn name_item_type(schema: &mut Schema, list: &str, go_type: &str) {
    let items = schema
        .properties
        .get_mut(list)
        .and_then(|list| list.items.as_mut());
    if let Some(items) = items {
        debug_assert!(matches!(items.additional, Additional::Unspecified));
        items.go_type = Some(go_type.to_owned());
    }
}
