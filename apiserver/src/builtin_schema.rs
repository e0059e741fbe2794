//! Structural schemas of the built-in kinds, from the table of their types.
//!
//! They prune a body, report unknown fields, and describe wrong types as Go's decoder does. Each is built on first use.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use crate::kinds::data::{Data, Form, Scalar, Special, Type};
use crate::schema::{Additional, Kind, ObjectSchema, Schema};

/// The one recursive type.
const JSON_SCHEMA: &str = "apiextensions.v1.JSONSchemaProps";

static JSON_SCHEMA_PROPS: LazyLock<Schema> = LazyLock::new(|| {
    with_stack(|| {
        let of = Data::get().named(JSON_SCHEMA);
        of.map_or_else(free, |of| resolve(of, &mut Vec::new()))
    })
});
static SCHEMAS: LazyLock<Mutex<HashMap<&'static str, Arc<ObjectSchema>>>> =
    LazyLock::new(Mutex::default);

/// The schema of a built-in kind with this type.
pub(crate) fn schema(of: &'static Type) -> Arc<ObjectSchema> {
    if let Some(known) = SCHEMAS.lock().get(of.name) {
        return known.clone();
    }
    let schema = with_stack(|| resolve(of, &mut Vec::new()));
    let parsed = Arc::new(ObjectSchema::built_in(schema));
    SCHEMAS.lock().insert(of.name, parsed.clone());
    parsed
}

/// Runs `work` on a stack of its own. A schema of a Pod is deep: in a debug build it takes a megabyte, which the thread of a
/// test does not have below a request that it makes in process.
fn with_stack<T: Send>(work: impl Fn() -> T + Sync) -> T {
    const STACK: usize = 16 << 20;
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().stack_size(STACK);
        match builder.spawn_scoped(scope, &work) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => work(),
        }
    })
}

fn json_schema_props() -> &'static Schema {
    &JSON_SCHEMA_PROPS
}

/// The schema of any JSON.
fn free() -> Schema {
    Schema {
        preserve_unknown: true,
        ..Schema::default()
    }
}

/// A type as a structural schema; `above` are the types that contain it.
fn resolve(of: &'static Type, above: &mut Vec<&'static str>) -> Schema {
    if let Some(special) = of.special {
        return special_form(special);
    }
    if above.contains(&of.name) {
        return if of.name == JSON_SCHEMA {
            Schema {
                kind: Some(Kind::Object),
                recursion: Some(json_schema_props),
                ..Schema::default()
            }
        } else {
            free()
        };
    }
    above.push(of.name);
    let properties = of.fields.iter().map(|field| {
        let mut schema = convert(&field.form, above);
        schema.embedded_in = field.embedded_in;
        (field.name.to_owned(), schema)
    });
    let properties = properties.collect();
    above.pop();
    Schema {
        kind: Some(Kind::Object),
        properties,
        go_type: Some(of.go_name().to_owned()),
        ..Schema::default()
    }
}

fn special_form(special: Special) -> Schema {
    let mut schema = Schema::default();
    let (kind, format) = match special {
        Special::Any => return free(),
        Special::SchemaOrBoolean | Special::SchemaOrList => {
            schema.recursion = Some(json_schema_props);
            return schema;
        }
        Special::IntOrString => (None, ""),
        Special::Quantity => (None, "quantity"),
        Special::MicroTime => (Some(Kind::String), "micro-time"),
        Special::Text => (Some(Kind::String), ""),
        Special::Time => (Some(Kind::String), "date-time"),
    };
    schema.int_or_string = kind.is_none();
    schema.kind = kind;
    schema.limits.format = (!format.is_empty()).then(|| format.to_owned());
    schema
}

fn convert(form: &'static Form, above: &mut Vec<&'static str>) -> Schema {
    let mut schema = Schema::default();
    let name = match form {
        Form::Named(_) => return form.named().map_or_else(free, |of| resolve(of, above)),
        Form::Scalar(scalar, name) => {
            let (kind, format) = match scalar {
                Scalar::Text => (Kind::String, ""),
                Scalar::Bytes => (Kind::String, "byte"),
                Scalar::Boolean => (Kind::Boolean, ""),
                Scalar::Int32 => (Kind::Integer, "int32"),
                Scalar::Int64 => (Kind::Integer, "int64"),
                Scalar::Double => (Kind::Number, "double"),
            };
            schema.kind = Some(kind);
            schema.limits.format = (!format.is_empty()).then(|| format.to_owned());
            *name
        }
        Form::List(name, of) => {
            schema.kind = Some(Kind::Array);
            schema.items = Some(Box::new(convert(of, above)));
            *name
        }
        Form::Map(name, of) => {
            schema.kind = Some(Kind::Object);
            schema.additional = Additional::Of(Box::new(convert(of, above)));
            *name
        }
    };
    schema.go_type = (!name.is_empty()).then(|| name.to_owned());
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_text::{Node, parse};
    use crate::kinds::data;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn of(group: &str, kind: &str) -> Arc<ObjectSchema> {
        schema(data::root(group, "v1", kind).unwrap())
    }

    /// Texts of kube-apiserver 1.36.
    #[test]
    fn a_body_of_a_wrong_type_is_refused_as_a_real_server_refuses_it() {
        let pod = |spec: &str| {
            format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"d"}},"spec":{spec}}}"#)
        };
        let cases = [
            (
                pod(r#"{"containers":[{"name":"a","image":"b","foo":1},{"name":"b","image":5}]}"#),
                "json: cannot unmarshal number into Go struct field Container.spec.containers.image of type string",
            ),
            (
                pod(r#"{"containers":[{"name":"a","livenessProbe":{"httpGet":{"port":true}}}]}"#),
                "json: cannot unmarshal bool into Go struct field HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
            ),
            (
                pod(r#"{"containers":[{"name":"a","livenessProbe":{"httpGet":{"port":1.5}}}]}"#),
                "json: cannot unmarshal number 1.5 into Go struct field HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
            ),
            (
                pod(r#"{"volumes":[{"name":"v","configMap":{"name":5}}]}"#),
                "json: cannot unmarshal number into Go struct field ConfigMapVolumeSource.spec.volumes.VolumeSource.configMap.LocalObjectReference.name of type string",
            ),
            (
                pod(r#"{"volumes":[{"name":"v","emptyDir":{"sizeLimit":true}}]}"#),
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
            (
                pod(r#"{"containers":{"name":"a"}}"#),
                "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
            ),
            (
                pod(r#"{"terminationGracePeriodSeconds":"5"}"#),
                "json: cannot unmarshal string into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64",
            ),
            (
                pod(r#"{"terminationGracePeriodSeconds":1.5}"#),
                "json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64",
            ),
            (
                pod(r#"{"containers":[{"name":"a","resources":{"limits":{"cpu":"foo"}}}]}"#),
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
        ];
        for (body, expected) in cases {
            let error = of("", "Pod").decode_error(&parse(body.as_bytes()).unwrap());
            assert_eq!(error.as_deref(), Some(expected), "{body}");
        }
        let config_map = br#"{"data":{"a":1}}"#;
        assert_eq!(
            of("", "ConfigMap")
                .decode_error(&parse(config_map).unwrap())
                .as_deref(),
            Some(
                "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
            )
        );
        let lease = |time: &str| {
            let body = format!(r#"{{"spec":{{"renewTime":"{time}"}}}}"#);
            of("coordination.k8s.io", "Lease").decode_error(&parse(body.as_bytes()).unwrap())
        };
        assert_eq!(
            lease("2026-01-01T00:00:00Z").as_deref(),
            Some(
                r#"parsing time "2026-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
            )
        );
        assert_eq!(lease("2026-01-01T00:00:00.123456+01:00"), None);
        let secret = br#"{"data":{"a":"%%"}}"#;
        assert_eq!(
            of("", "Secret")
                .decode_error(&parse(secret).unwrap())
                .as_deref(),
            Some("illegal base64 data at input byte 0")
        );
    }

    #[test]
    fn unknown_fields_are_named_at_any_depth() {
        let body = br#"{"spec":{"template":{"spec":{"containers":[{"name":"a","imagePolicy":"x"}],"foo":1}},"template":{}},"bar":1}"#;
        assert_eq!(
            of("apps", "Deployment").strict_errors(&parse(body).unwrap()),
            [
                "unknown field \"spec.template.spec.containers[0].imagePolicy\"",
                "unknown field \"spec.template.spec.foo\"",
                "duplicate field \"spec.template\"",
                "unknown field \"bar\"",
            ]
        );
    }

    #[test]
    fn pruning_keeps_what_the_types_have() {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "x", "labels": {"a": "b"}, "managedFields": [{"manager": "m", "fieldsV1": {"f:x": {}}}], "foo": 1},
            "spec": {
                "containers": [{"name": "c", "foo": 1, "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}, "env": [{"name": "A", "value": null}],
                    "livenessProbe": {"httpGet": {"port": "web", "path": "/"}}}],
                "nodeSelector": {"x": "y"}, "volumes": [{"name": "v", "emptyDir": {}}],
            },
        });
        of("", "Pod").prune(&mut pod);
        assert_eq!(
            pod,
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "x", "labels": {"a": "b"}, "managedFields": [{"manager": "m", "fieldsV1": {"f:x": {}}}]},
                "spec": {
                    "containers": [{"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "env": [{"name": "A"}],
                        "livenessProbe": {"httpGet": {"port": "web", "path": "/"}}}],
                    "nodeSelector": {"x": "y"}, "volumes": [{"name": "v", "emptyDir": {}}],
                },
            })
        );
    }

    #[test]
    fn times_are_stored_in_utc_with_the_fraction_of_their_type() {
        let mut lease = json!({
            "metadata": {"creationTimestamp": "2026-01-01T01:00:00.5+01:00"},
            "spec": {"renewTime": "2026-01-01T00:00:00.123456+00:00"},
        });
        of("coordination.k8s.io", "Lease").prune(&mut lease);
        assert_eq!(
            lease,
            json!({
                "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"renewTime": "2026-01-01T00:00:00.123456Z"},
            })
        );
    }

    #[test]
    fn nulls_are_absent_fields_and_empty_entries() {
        let mut config_map = json!({"data": {"a": null, "b": "1"}, "immutable": null, "metadata": {"labels": {"x": null}, "finalizers": [null], "annotations": null}});
        of("", "ConfigMap").prune(&mut config_map);
        assert_eq!(
            config_map,
            json!({"data": {"a": "", "b": "1"}, "metadata": {"labels": {"x": ""}, "finalizers": [""]}})
        );
    }

    /// JSON whose fields have names of a Pod, at wrong places, too.
    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..9).prop_map(Value::from),
            prop::sample::select(vec!["a", "1000m", "0.5Gi", "2026-01-01T01:00:00.5+01:00"])
                .prop_map(Value::from),
        ];
        let name = prop::sample::select(vec![
            "metadata",
            "labels",
            "managedFields",
            "fieldsV1",
            "time",
            "creationTimestamp",
            "spec",
            "nodeSelector",
            "containers",
            "name",
            "env",
            "valueFrom",
            "resources",
            "limits",
            "cpu",
            "livenessProbe",
            "httpGet",
            "port",
            "volumes",
            "emptyDir",
            "sizeLimit",
            "foo",
        ]);
        leaf.prop_recursive(7, 64, 5, move |inner| {
            let members = prop::collection::btree_map(name.clone(), inner.clone(), 0..6);
            prop_oneof![
                1 => prop::collection::vec(inner, 0..4).prop_map(Value::from),
                4 => members.prop_map(|map| {
                    map.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_pruned_object_stays_as_it_is_and_has_no_unknown_field(
            metadata in any_json(), spec in any_json(), labels in any_json(), limits in any_json(),
        ) {
            let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": null});
            let meant = json!({"labels": labels, "creationTimestamp": "2026-01-01T01:00:00.5+01:00"});
            if limits.is_object() {
                pod["metadata"] = meant;
                pod["spec"] = json!({"containers": [{"resources": {"limits": limits}}], "volumes": [spec]});
            }
            let schema = of("", "Pod");
            let mut once = pod.clone();
            schema.prune(&mut once);
            let mut twice = once.clone();
            schema.prune(&mut twice);
            prop_assert_eq!(&twice, &once);
            prop_assert_eq!(schema.strict_errors_of(&once), Vec::<String>::new());

            // The one walk finds the same as the two that describe what is wrong.
            let node = Node::from_value(&pod);
            let is_sound = schema.decode_error(&node).is_none() && schema.strict_errors(&node).is_empty();
            prop_assert_eq!(schema.is_sound(&node), is_sound);

            // Only the changed fields are looked at.
            let mut half = pod.clone();
            schema.prune_changed(&mut half, &|field| field == "metadata");
            prop_assert_eq!(&half["metadata"], &once["metadata"]);
            prop_assert_eq!(&half["spec"], if pod["spec"].is_null() { &once["spec"] } else { &pod["spec"] });
        }
    }

    #[test]
    fn a_definition_keeps_the_schema_of_its_versions_and_loses_what_no_schema_has() {
        let schema = |below: Value| {
            json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": {
                    "a": below,
                    "b": {"type": "object", "additionalProperties": true},
                }}},
            }}}]}})
        };
        let good = json!({"type": "integer", "maximum": 5, "default": 3, "x-kubernetes-validations": [{"rule": "true"}], "items": {"type": "string"}});
        let mut bad = good.clone();
        bad["foo"] = json!(1);
        bad["items"]["bar"] = json!(1);
        let mut definition = schema(bad);
        let crd = of("apiextensions.k8s.io", "CustomResourceDefinition");
        assert_eq!(
            crd.strict_errors_of(&definition),
            [
                "unknown field \"spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.a.foo\"",
                "unknown field \"spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.a.items.bar\"",
            ]
        );
        crd.prune(&mut definition);
        assert_eq!(definition, schema(good));
        assert_eq!(crd.decode_error(&Node::from_value(&definition)), None);
    }
}
