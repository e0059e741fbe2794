//! The owners of the number of replicas, from an object to its scale and back.

use serde_json::{Value, json};

use super::super::manage::ScaleFields;

fn scale() -> ScaleFields {
    ScaleFields::new(
        "apps/v1",
        [
            ("apps/v1".to_owned(), Some(".spec.replicas")),
            ("apps/v2".to_owned(), Some(".spec.the.replicas")),
            ("apps/v3".to_owned(), None),
        ],
    )
}

fn entry(manager: &str, operation: &str, version: &str, fields: Value) -> Value {
    json!({
        "manager": manager, "operation": operation, "apiVersion": version, "fieldsType": "FieldsV1", "fieldsV1": fields,
    })
}

fn of_scale(manager: &str, operation: &str) -> Value {
    let mut entry = entry(
        manager,
        operation,
        "autoscaling/v1",
        json!({"f:spec": {"f:replicas": {}}}),
    );
    entry["subresource"] = "scale".into();
    entry
}

fn with_replicas() -> Value {
    json!({"f:spec": {"f:replicas": {}, "f:selector": {}}})
}

fn without_replicas() -> Value {
    json!({"f:spec": {"f:selector": {}}})
}

#[test]
fn the_scale_has_the_owners_of_the_replicas() {
    let mut timed = entry("a", "Apply", "apps/v1", with_replicas());
    timed["time"] = "2026-01-01T00:00:00Z".into();
    let parent = json!([
        timed,
        entry("b", "Update", "apps/v1", without_replicas()),
        entry(
            "c",
            "Apply",
            "apps/v2",
            json!({"f:spec": {"f:the": {"f:replicas": {}}}})
        ),
        entry("d", "Apply", "apps/v3", with_replicas()),
        entry("e", "Apply", "apps/v9", with_replicas()),
    ]);
    let found = scale().of_scale(&parent).unwrap().unwrap();
    let replicas = json!({"f:spec": {"f:replicas": {}}});
    let mut first = entry("a", "Apply", "autoscaling/v1", replicas.clone());
    first["time"] = "2026-01-01T00:00:00Z".into();
    assert_eq!(
        found,
        json!([entry("c", "Apply", "autoscaling/v1", replicas), first])
    );
    assert_eq!(scale().of_scale(&Value::Null), Ok(None));
}

#[test]
fn a_write_of_the_scale_takes_the_replicas() {
    for operation in ["Apply", "Update"] {
        let parent = json!([entry("test", operation, "apps/v1", with_replicas())]);
        for by in ["Apply", "Update"] {
            let after = scale().of_parent(&parent, &json!([of_scale("scale", by)]));
            let mut taken = of_scale("scale", by);
            taken["apiVersion"] = "apps/v1".into();
            let rest = entry("test", operation, "apps/v1", without_replicas());
            let mut expected = vec![taken, rest];
            let order =
                |entry: &Value| (entry["operation"].to_string(), entry["manager"].to_string());
            expected.sort_by_key(order);
            assert_eq!(after, Ok(Some(Value::Array(expected))), "{operation} {by}");
        }
    }
}

#[test]
fn an_entry_that_had_only_the_replicas_goes() {
    let parent = json!([entry(
        "test",
        "Update",
        "apps/v1",
        json!({"f:spec": {"f:replicas": {}}})
    )]);
    let after = scale().of_parent(&parent, &json!([of_scale("scale", "Update")]));
    let mut taken = of_scale("scale", "Update");
    taken["apiVersion"] = "apps/v1".into();
    assert_eq!(after, Ok(Some(json!([taken]))));
}

#[test]
fn an_applier_that_shares_the_replicas_keeps_them() {
    let parent = json!([entry("test", "Apply", "apps/v1", with_replicas())]);
    let still = entry(
        "test",
        "Apply",
        "autoscaling/v1",
        json!({"f:spec": {"f:replicas": {}}}),
    );
    let after = scale().of_parent(&parent, &json!([still, of_scale("scale", "Apply")]));
    let mut added = of_scale("scale", "Apply");
    added["apiVersion"] = "apps/v1".into();
    assert_eq!(
        after,
        Ok(Some(json!([
            added,
            entry("test", "Apply", "apps/v1", with_replicas())
        ])))
    );
}

#[test]
fn entries_of_versions_without_a_scale_stay_and_unknown_ones_go() {
    let parent = json!([
        entry(
            "c",
            "Apply",
            "apps/v2",
            json!({"f:spec": {"f:the": {"f:replicas": {}}, "f:x": {}}})
        ),
        entry("d", "Apply", "apps/v3", with_replicas()),
        entry("e", "Apply", "apps/v9", with_replicas()),
    ]);
    let after = scale().of_parent(&parent, &Value::Null);
    assert_eq!(
        after,
        Ok(Some(json!([
            entry("c", "Apply", "apps/v2", json!({"f:spec": {"f:x": {}}})),
            entry("d", "Apply", "apps/v3", with_replicas()),
        ])))
    );
}
