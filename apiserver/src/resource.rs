//! What the server knows of one resource: its names, its rules and how it is shown.
//!
//! Built-in resources come from a table; those of CustomResourceDefinitions are made when the
//! definition is accepted. Everything else in the server asks a [`ResourceInfo`], not the kind.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::builtin_schema;
use crate::schema::ObjectSchema;
use crate::status::GroupResource;

/// One served version of one resource.
#[derive(Clone, Debug)]
pub(crate) struct ResourceInfo {
    /// API group; empty for the core group.
    pub(crate) group: String,
    /// API version, such as `v1`.
    pub(crate) version: String,
    /// Kind of one object.
    pub(crate) kind: String,
    /// Kind of a list.
    pub(crate) list_kind: String,
    /// Plural name, as in paths.
    pub(crate) plural: String,
    /// Singular name.
    pub(crate) singular: String,
    /// Short names, as `kubectl get cm`.
    pub(crate) short_names: Vec<String>,
    /// Categories, such as `all`.
    pub(crate) categories: Vec<String>,
    /// Objects live in namespaces.
    pub(crate) namespaced: bool,
    /// The verbs served, as discovery names them.
    pub(crate) verbs: &'static [&'static str],
    /// There is a `status` subresource.
    pub(crate) status: bool,
    /// What a write to it may change beside the status.
    pub(crate) status_update: StatusUpdate,
    /// There is a `scale` subresource, and where its parts are.
    pub(crate) scale: Option<Scale>,
    /// What raises `metadata.generation`.
    pub(crate) generation: Generation,
    /// PUT without a resourceVersion is allowed (most built-ins; never custom resources).
    pub(crate) unconditional_update: bool,
    /// A DELETE that names no propagation orphans the dependents, with a warning.
    pub(crate) orphans_by_default: bool,
    /// PUT on an absent name creates it.
    pub(crate) create_on_update: bool,
    /// DELETE answers the object instead of a Status.
    pub(crate) delete_returns_object: bool,
    /// Columns after `Name` (and `Namespace`, which kubectl adds itself).
    pub(crate) columns: Vec<Column>,
    /// Fields of field selectors beside `metadata.name` and `metadata.namespace`.
    pub(crate) selectable_fields: Vec<SelectableField>,
    /// The OpenAPI v3 schema of an object: a CRD version's `openAPIV3Schema`, or a built-in's.
    pub(crate) schema: Option<Arc<Value>>,
    /// The same, compiled, of a custom resource.
    pub(crate) structural: Option<Arc<ObjectSchema>>,
    /// Objects are stored in this version.
    pub(crate) storage_version: bool,
    /// The schema of the version that objects are stored in, where it is another one than this.
    pub(crate) stored: Option<Arc<ObjectSchema>>,
    /// Objects stored up to this version may have been written under another schema, or in another version of the
    /// resource: they are pruned and completed when they are read.
    pub(crate) converted_up_to: u64,
    /// Objects stored up to this version would have to be converted by a webhook.
    pub(crate) unconvertible_up_to: u64,
    /// Clients can ask for it. A version that objects are only stored in is here for the server itself.
    pub(crate) served: bool,
    /// Text of the warning on each answer, of a version that is deprecated.
    pub(crate) deprecation: Option<String>,
    /// It comes from a CustomResourceDefinition.
    pub(crate) custom: bool,
    /// Versions of one resource share a store of this name: `plural.group`, or `plural` of core.
    /// core/v1 and events.k8s.io/v1 Events share one too.
    pub(crate) storage: String,
}

/// What a write to the `status` subresource may change beside the status. `spec` is never among it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusUpdate {
    /// Nothing (custom resources).
    StatusOnly,
    /// The metadata as well, but for the fields named here (built-in kinds).
    Metadata {
        /// Fields of `metadata` that stay as they are.
        except: &'static [&'static str],
    },
}

/// What raises `metadata.generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// Objects have no generation (ConfigMap, Secret, Lease, …).
    None,
    /// A change of `spec` (ReplicaSet, Ingress, CustomResourceDefinition, …).
    Spec,
    /// A change of `spec` or of the annotations, which a Deployment's ReplicaSets copy.
    SpecAndAnnotations,
    /// A change of anything outside `metadata`; with a status subresource, `status` does not count
    /// (custom resources).
    OutsideMetadata,
}

/// Paths of the `scale` subresource, in the JSONPath form of CRDs (`.spec.replicas`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    /// `specReplicasPath`.
    pub(crate) spec_replicas: String,
    /// `statusReplicasPath`.
    pub(crate) status_replicas: String,
    /// `labelSelectorPath`; of built-ins `.spec.selector`, given as an object.
    pub(crate) label_selector: Option<String>,
}

/// A column of a Table.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// Heading.
    pub(crate) name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub(crate) kind: String,
    /// Format, such as `name` or `date-time`; may be empty.
    pub(crate) format: String,
    /// Text for people.
    pub(crate) description: String,
    /// 0 is always shown; more only with `-o wide`.
    pub(crate) priority: i64,
    /// Where the cell's value comes from.
    pub(crate) source: ColumnSource,
}

/// Where a cell's value comes from.
#[derive(Clone, Debug)]
pub(crate) enum ColumnSource {
    /// A JSONPath of the CRD form, such as `.spec.replicas` or `.status.conditions[?(@.type=="Ready")].status`.
    JsonPath(String),
    /// Computed from the object and the time it is.
    Computed(fn(&Value, Timestamp) -> Value),
}

/// A field that field selectors may name.
#[derive(Clone, Debug)]
pub(crate) struct SelectableField {
    /// As in selectors, without a leading dot: `spec.nodeName`.
    pub(crate) name: String,
    /// How its text is found. `None`: the name is the path.
    pub(crate) extract: Option<fn(&Value) -> String>,
}

/// The verbs of an ordinary resource.
pub(crate) const ALL_VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

// === impl ResourceInfo ===

impl ResourceInfo {
    /// Group and plural, for texts.
    #[must_use]
    pub(crate) fn group_resource(&self) -> GroupResource<'_> {
        GroupResource {
            group: &self.group,
            resource: &self.plural,
        }
    }

    /// The schema that prunes, defaults and validates. Those of built-ins are made when first used.
    pub(crate) fn structural(&self) -> Option<Arc<ObjectSchema>> {
        if self.custom {
            return self.structural.clone();
        }
        builtin_schema::schema(&self.group, &self.version, &self.kind)
    }

    /// `v1` or `group/version`.
    #[must_use]
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}
