//! The description of one resource: its names, its rules and its columns.
//!
//! Built-in resources come from a table; those of CustomResourceDefinitions are made when the
//! definition is accepted. All other code depends on a [`ResourceInfo`], not on the kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::apply::LazySchema;
use crate::builtin_schema;
use crate::kinds::data;
use crate::kinds::strategy::Strategy;
use crate::schema::ObjectSchema;
use crate::status::GroupResource;
use crate::table::Now;
use crate::webhooks::ConversionWebhook;

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
    /// Whether objects live in namespaces.
    pub(crate) namespaced: bool,
    /// The served verbs, as in discovery.
    pub(crate) verbs: &'static [&'static str],
    /// The subresources of a built-in kind; `status` and `scale` of a custom one follow from the fields below.
    pub(crate) subresources: &'static [data::Subresource],
    /// The type of a built-in kind.
    pub(crate) of: Option<&'static data::Type>,
    /// The rules of the kind.
    pub(crate) strategy: &'static dyn Strategy,
    /// Whether there is a `status` subresource.
    pub(crate) status: bool,
    /// The parts that a write to it may change besides the status.
    pub(crate) status_update: StatusUpdate,
    /// The paths of the `scale` subresource, if there is one.
    pub(crate) scale: Option<Scale>,
    /// The changes that raise `metadata.generation`.
    pub(crate) generation: Generation,
    /// PUT without a resourceVersion is allowed (most built-ins; never custom resources).
    pub(crate) unconditional_update: bool,
    /// A DELETE without propagation orphans the dependents, with a warning.
    pub(crate) orphans_by_default: bool,
    /// PUT on an absent name creates it.
    pub(crate) create_on_update: bool,
    /// DELETE returns the object instead of a Status.
    pub(crate) delete_returns_object: bool,
    /// Columns after `Name` (and `Namespace`, which kubectl adds itself).
    pub(crate) columns: Vec<Column>,
    /// Fields of field selectors besides `metadata.name` and `metadata.namespace`.
    pub(crate) selectable_fields: Vec<SelectableField>,
    /// The OpenAPI v3 schema of an object: a CRD version's `openAPIV3Schema`, or a built-in's.
    pub(crate) schema: Option<Arc<Value>>,
    /// The same, compiled, of a custom resource.
    pub(crate) structural: Option<Arc<ObjectSchema>>,
    /// The same as server-side apply reads it, of a custom resource.
    pub(crate) types: LazySchema,
    /// Whether objects are stored in this version.
    pub(crate) storage_version: bool,
    /// The `apiVersion` of the storage version.
    pub(crate) stored_in: String,
    /// The way between this version and the storage version.
    pub(crate) conversion: Conversion,
    /// The webhook of [`Conversion::Webhook`].
    pub(crate) webhook: Option<Arc<ConversionWebhook>>,
    /// The schemas of all versions of a custom resource, by `apiVersion`.
    pub(crate) schemas: Arc<BTreeMap<String, Arc<ObjectSchema>>>,
    /// The schema of the storage version, if it is another one than this.
    pub(crate) stored: Option<Arc<ObjectSchema>>,
    /// Objects stored up to this version may have been written under another schema, or in another version of the
    /// resource: they are pruned and completed when they are read.
    pub(crate) converted_up_to: u64,
    /// Whether clients can request it. A storage version that is not served is here for the server itself.
    pub(crate) served: bool,
    /// Text of the warning on each answer, for a deprecated version.
    pub(crate) deprecation: Option<String>,
    /// Whether it comes from a CustomResourceDefinition.
    pub(crate) custom: bool,
    /// Versions of one resource share a store of this name: `plural.group`, or `plural` of core.
    /// core/v1 and events.k8s.io/v1 Events share one too.
    pub(crate) storage: String,
}

/// The way in which objects become those of another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// By the rules of a built-in kind.
    BuiltIn,
    /// Only `apiVersion` changes (`conversion.strategy: None`).
    None,
    /// By a webhook.
    Webhook,
    /// Not at all: objects are read and written in the version in which they are stored. For the server itself, which
    /// changes only metadata.
    Kept,
}

/// The parts that a write to the `status` subresource may change besides the status. `spec` is never among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusUpdate {
    /// Nothing (custom resources).
    StatusOnly,
    /// The metadata as well, except for these fields (built-in kinds).
    Metadata {
        /// Fields of `metadata` that are not changed.
        except: &'static [&'static str],
    },
}

/// The changes that raise `metadata.generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// Objects have no generation (ConfigMap, Secret, Lease, …).
    None,
    /// It is 1 (PriorityClass).
    First,
    /// A change of `spec`; a new object has none (CSIDriver).
    Changes,
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
    /// The type and the field whose description it has instead.
    pub(crate) described_by: Option<(&'static str, &'static str)>,
    /// 0 is always shown; more only with `-o wide`.
    pub(crate) priority: i64,
    /// The source of the cell's value.
    pub(crate) source: ColumnSource,
}

/// The source of a cell's value.
#[derive(Clone, Debug)]
pub(crate) enum ColumnSource {
    /// A JSONPath of the CRD form, such as `.spec.replicas` or `.status.conditions[?(@.type=="Ready")].status`.
    JsonPath(String),
    /// Computed from the object and the current time.
    Computed(fn(&Value, &Now) -> Value),
    /// The cell at an index of several that are computed together. A kind has one such function.
    Together(fn(&Value, &Now) -> Vec<Value>, usize),
}

/// A field for field selectors.
#[derive(Clone, Debug)]
pub(crate) struct SelectableField {
    /// The name in selectors, without a leading dot: `spec.nodeName`.
    pub(crate) name: String,
    /// Extracts its text. `None`: the name is the path.
    pub(crate) extract: Option<fn(&Value) -> String>,
}

// === impl SelectableField ===

impl SelectableField {
    /// The field at the path `name`.
    pub(crate) fn at(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            extract: None,
        }
    }

    /// A field with a text of its own.
    pub(crate) fn computed(name: &str, extract: fn(&Value) -> String) -> Self {
        Self {
            name: name.to_owned(),
            extract: Some(extract),
        }
    }
}

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

    /// The schema that prunes, defaults and validates. Those of built-ins are made on first use.
    pub(crate) fn structural(&self) -> Option<Arc<ObjectSchema>> {
        if self.custom {
            return self.structural.clone();
        }
        self.of.map(builtin_schema::schema)
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
