//! Schemas of the built-in kinds, from the Kubernetes types themselves.
//!
//! `k8s-openapi` describes every type with its feature `schemars`; this module turns the descriptions into
//! structural schemas, which prune and report unknown fields, and into the components of OpenAPI documents.
//! Everything is built on first use. The final binary chooses the version of Kubernetes for
//! `k8s-openapi`.

use std::collections::{BTreeMap, HashMap};
use std::panic::resume_unwind;
use std::sync::{Arc, LazyLock};

use k8s_openapi::Resource;
use k8s_openapi::api;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use parking_lot::Mutex;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use crate::schema::{Additional, Kind, ObjectSchema, Schema};

const REFERENCE: &str = "#/components/schemas/";

/// The one recursive type.
const JSON_SCHEMA: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// Types that are a schema or another value; the fields of a schema are checked.
const JSON_SCHEMA_OR_ELSE: &[&str] = &[
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
];

/// Types that hold any JSON.
const FREE_FORM: &[&str] = &[
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
];

/// Group, version and kind.
type Name = (String, String, String);

struct Definitions {
    /// The component that describes a kind.
    roots: HashMap<Name, String>,
    /// Every component by name.
    components: Map<String, Value>,
}

static DEFINITIONS: LazyLock<Definitions> = LazyLock::new(Definitions::build);
static JSON_SCHEMA_PROPS: LazyLock<Schema> =
    LazyLock::new(|| with_stack(|| resolve(JSON_SCHEMA, &mut Vec::new())));
static SCHEMAS: LazyLock<Mutex<HashMap<Name, Arc<ObjectSchema>>>> = LazyLock::new(Mutex::default);

/// The schema of a built-in kind; `None` if the server has no type for it.
pub(crate) fn schema(group: &str, version: &str, kind: &str) -> Option<Arc<ObjectSchema>> {
    let name = (group.to_owned(), version.to_owned(), kind.to_owned());
    if let Some(known) = SCHEMAS.lock().get(&name) {
        return Some(known.clone());
    }
    let root = DEFINITIONS.roots.get(&name)?;
    let schema = with_stack(|| resolve(root, &mut Vec::new()));
    let parsed = Arc::new(ObjectSchema::built_in(schema));
    SCHEMAS.lock().insert(name, parsed.clone());
    Some(parsed)
}

/// The component of a kind, and every component it refers to, by name.
pub(crate) fn components(
    group: &str,
    version: &str,
    kind: &str,
) -> Option<(String, BTreeMap<String, Value>)> {
    let name = (group.to_owned(), version.to_owned(), kind.to_owned());
    let root = DEFINITIONS.roots.get(&name)?;
    let mut needed = BTreeMap::new();
    collect(root, &mut needed);
    if let Some(component) = needed.get_mut(root) {
        component["x-kubernetes-group-version-kind"] =
            json!([{"group": group, "version": version, "kind": kind}]);
    }
    Some((root.clone(), needed))
}

/// The component of ObjectMeta and those it refers to, for the documents of custom resources.
pub(crate) fn object_meta() -> (String, BTreeMap<String, Value>) {
    let name = OBJECT_META.to_owned();
    let mut needed = BTreeMap::new();
    collect(&name, &mut needed);
    (name, needed)
}

/// The name of ObjectMeta's component.
pub(crate) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The description of a property of a component; empty when there is none.
pub(crate) fn description(component: &str, property: &str) -> &'static str {
    DEFINITIONS
        .components
        .get(component)
        .and_then(|component| component["properties"][property]["description"].as_str())
        .unwrap_or_default()
}

fn collect(name: &str, needed: &mut BTreeMap<String, Value>) {
    if needed.contains_key(name) {
        return;
    }
    let Some(component) = DEFINITIONS.components.get(name) else {
        return;
    };
    needed.insert(name.to_owned(), component.clone());
    visit_references(component, &mut |reference| collect(reference, needed));
}

fn visit_references(value: &Value, visit: &mut dyn FnMut(&str)) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text) if key == "$ref" => {
                        visit(text.strip_prefix(REFERENCE).unwrap_or(text));
                    }
                    value => visit_references(value, visit),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| visit_references(item, visit)),
        _ => {}
    }
}

// === impl Definitions ===

impl Definitions {
    fn build() -> Self {
        let mut generator = SchemaSettings::openapi3().into_generator();
        let mut roots = HashMap::new();
        macro_rules! add {
            ($($kind:ty),* $(,)?) => {
                $(
                    let name = register::<$kind>(&mut generator);
                    roots.insert(
                        (
                            <$kind as Resource>::GROUP.to_owned(),
                            <$kind as Resource>::VERSION.to_owned(),
                            <$kind as Resource>::KIND.to_owned(),
                        ),
                        name,
                    );
                )*
            };
        }
        add!(
            api::core::v1::ConfigMap,
            api::core::v1::Endpoints,
            api::core::v1::Event,
            api::core::v1::Namespace,
            api::core::v1::Node,
            api::core::v1::Pod,
            api::core::v1::Secret,
            api::core::v1::Service,
            api::core::v1::ServiceAccount,
            api::apps::v1::DaemonSet,
            api::apps::v1::Deployment,
            api::apps::v1::ReplicaSet,
            api::apps::v1::StatefulSet,
            api::authentication::v1::SelfSubjectReview,
            api::authentication::v1::TokenReview,
            api::authorization::v1::LocalSubjectAccessReview,
            api::authorization::v1::SelfSubjectAccessReview,
            api::authorization::v1::SelfSubjectRulesReview,
            api::authorization::v1::SubjectAccessReview,
            api::batch::v1::CronJob,
            api::batch::v1::Job,
            api::coordination::v1::Lease,
            api::events::v1::Event,
            api::networking::v1::Ingress,
            api::networking::v1::IngressClass,
            api::networking::v1::NetworkPolicy,
            api::policy::v1::PodDisruptionBudget,
            api::rbac::v1::ClusterRole,
            api::rbac::v1::ClusterRoleBinding,
            api::rbac::v1::Role,
            api::rbac::v1::RoleBinding,
            apiextensions::CustomResourceDefinition,
        );
        let mut components = generator.take_definitions(true);
        for root in roots.values() {
            // `k8s-openapi` requires metadata for every kind; a server does not.
            let required = components
                .get_mut(root)
                .and_then(|component| component.get_mut("required"))
                .and_then(Value::as_array_mut);
            if let Some(required) = required {
                required.retain(|name| name != "metadata");
            }
        }
        Self { roots, components }
    }
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

fn register<T: schemars::JsonSchema>(generator: &mut SchemaGenerator) -> String {
    generator.subschema_for::<T>();
    T::schema_name().into_owned()
}

fn json_schema_props() -> &'static Schema {
    &JSON_SCHEMA_PROPS
}

/// A component as a structural schema.
fn resolve(name: &str, above: &mut Vec<String>) -> Schema {
    let free = || Schema {
        preserve_unknown: true,
        ..Schema::default()
    };
    if FREE_FORM.contains(&name) {
        return free();
    }
    if JSON_SCHEMA_OR_ELSE.contains(&name) {
        return Schema {
            recursion: Some(json_schema_props),
            ..Schema::default()
        };
    }
    if above.iter().any(|other| other == name) {
        return if name == JSON_SCHEMA {
            Schema {
                kind: Some(Kind::Object),
                recursion: Some(json_schema_props),
                ..Schema::default()
            }
        } else {
            free()
        };
    }
    let Some(source) = DEFINITIONS.components.get(name) else {
        return free();
    };
    above.push(name.to_owned());
    let mut schema = convert(source, above);
    above.pop();
    if name.ends_with(".resource.Quantity") {
        schema.limits.format = Some("quantity".to_owned());
    }
    if name.ends_with(".v1.MicroTime") {
        schema.limits.format = Some("micro-time".to_owned());
    }
    if schema.kind == Some(Kind::Object) {
        schema.go_type = Some(go_type(name));
    }
    schema
}

fn convert(source: &Value, above: &mut Vec<String>) -> Schema {
    let reference = source["$ref"]
        .as_str()
        .or_else(|| source["allOf"][0]["$ref"].as_str());
    if let Some(reference) = reference {
        return resolve(
            reference.strip_prefix(REFERENCE).unwrap_or(reference),
            above,
        );
    }
    // Children are converted here, because they may be references.
    let mut shallow = source.clone();
    if let Some(map) = shallow.as_object_mut() {
        for name in ["properties", "items", "additionalProperties", "required"] {
            map.remove(name);
        }
    }
    let mut schema = Schema::parse(&shallow);
    schema.properties = source["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, source)| (name.clone(), convert(source, above)))
        .collect();
    schema.items = source
        .get("items")
        .filter(|items| items.is_object())
        .map(|items| Box::new(convert(items, above)));
    schema.additional = match source.get("additionalProperties") {
        Some(of @ Value::Object(_)) => Additional::Of(Box::new(convert(of, above))),
        Some(Value::Bool(true)) => Additional::Any,
        _ => Additional::Unspecified,
    };
    let says_nothing = schema.properties.is_empty()
        && matches!(schema.additional, Additional::Unspecified)
        && matches!(schema.kind, None | Some(Kind::Object))
        && !schema.int_or_string;
    schema.preserve_unknown |= says_nothing;
    schema
}

/// `v1.Container` of `io.k8s.api.core.v1.Container`.
fn go_type(name: &str) -> String {
    let mut parts = name.rsplitn(3, '.');
    let kind = parts.next().unwrap_or_default();
    let package = parts.next().unwrap_or_default();
    format!("{package}.{kind}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_text::{Node, parse};

    fn of(group: &str, kind: &str) -> Arc<ObjectSchema> {
        schema(group, "v1", kind).unwrap()
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
            schema("coordination.k8s.io", "v1", "Lease")
                .unwrap()
                .decode_error(&parse(body.as_bytes()).unwrap())
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
        schema("coordination.k8s.io", "v1", "Lease")
            .unwrap()
            .prune(&mut lease);
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

    #[test]
    fn every_kind_has_a_schema_and_finds_all_its_components() {
        for (group, version, kind) in DEFINITIONS.roots.keys() {
            let schema = schema(group, version, kind).unwrap();
            assert!(
                schema.root().properties.contains_key("metadata") || kind.ends_with("Review"),
                "{kind}"
            );
            let (root, components) = components(group, version, kind).unwrap();
            assert!(components.contains_key(&root));
            for component in components.values() {
                visit_references(component, &mut |name| {
                    assert!(components.contains_key(name), "{kind}: {name}");
                });
            }
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
