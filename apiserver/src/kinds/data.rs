//! The built-in resources and their types, from `kinds.txt`.
//!
//! [`root`] is the type of a kind; [`Type::field`] leads from a struct to its fields, and [`Form`] from a field to the
//! types of its values. Discovery, schemas, strategic merge patch, OpenAPI documents and server-side apply read the same
//! table. It is parsed once, on first use.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

mod parse;

/// The output of `tools/kinds`; its head explains it.
const TEXT: &str = include_str!("kinds.txt");

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

static DATA: LazyLock<Data> = LazyLock::new(|| {
    // A test reads the same text.
    Data::parse(TEXT).expect("the committed table is whole")
});

/// Every built-in resource and type.
#[derive(Debug)]
pub(crate) struct Data {
    /// In the order of discovery.
    pub(crate) versions: Vec<Version>,
    types: Vec<Type>,
    by_name: HashMap<&'static str, usize>,
}

/// The resources of one version of a group.
#[derive(Debug)]
pub(crate) struct Version {
    /// Empty for core.
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    pub(crate) resources: Vec<Resource>,
}

/// A resource.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) verbs: Vec<&'static str>,
    pub(crate) short_names: Vec<&'static str>,
    pub(crate) categories: Vec<&'static str>,
    pub(crate) subresources: Vec<Subresource>,
    /// The version that a real server stores objects in, if it is another one.
    pub(crate) stored: Option<&'static str>,
    of: Option<usize>,
}

/// A subresource.
#[derive(Clone, Debug)]
pub(crate) struct Subresource {
    pub(crate) name: &'static str,
    /// Group and version of its kind where they differ from the resource's.
    pub(crate) group_version: Option<(&'static str, &'static str)>,
    pub(crate) kind: &'static str,
    pub(crate) verbs: Vec<&'static str>,
}

/// A type of the table.
#[derive(Debug)]
pub(crate) struct Type {
    /// The name in OpenAPI without its beginning: `core.v1.Pod`.
    pub(crate) name: &'static str,
    /// The form of a type that is not a struct.
    pub(crate) special: Option<Special>,
    /// Server-side apply replaces the struct as a whole.
    pub(crate) atomic: bool,
    /// In the order of Go.
    pub(crate) fields: Vec<Field>,
    by_name: HashMap<&'static str, usize>,
    /// The places of the fields, in the order of their names.
    sorted: Vec<usize>,
}

/// A type with a form of its own in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    /// Any JSON.
    Any,
    /// A number or a text.
    IntOrString,
    /// A text with six digits after the second.
    MicroTime,
    /// A number or a text with a unit.
    Quantity,
    /// A schema or whether it is allowed.
    SchemaOrBoolean,
    /// A schema or a list of them.
    SchemaOrList,
    /// A text.
    Text,
    /// A text with a time.
    Time,
}

/// A field of a struct.
#[derive(Debug)]
pub(crate) struct Field {
    /// In JSON.
    pub(crate) name: &'static str,
    pub(crate) form: Form,
    /// Absent differs from zero.
    pub(crate) pointer: bool,
    /// `omitempty`: left out when it is zero and no struct.
    pub(crate) omit_empty: bool,
    /// `omitzero`: a struct is left out when it is zero.
    pub(crate) omit_zero: bool,
    pub(crate) required: bool,
    /// The list type of server-side apply, of a list; `None` is as atomic.
    pub(crate) list: Option<ListType>,
    /// The keys of an item, of a list with [`ListType::Map`].
    pub(crate) keys: Vec<&'static str>,
    /// Whether server-side apply replaces the value, a map or a struct, as a whole; `None`: as its type says.
    pub(crate) atomic: Option<bool>,
    pub(crate) patch: Patch,
    /// The text of the strategy, with `retainKeys`; may be empty.
    pub(crate) patch_strategy: &'static str,
    /// The accepted values; empty for all.
    pub(crate) enumeration: Vec<&'static str>,
    /// The names of the embedded Go structs that have the field.
    pub(crate) embedded_in: Option<&'static str>,
    pub(crate) default: Option<Value>,
}

/// The list type of server-side apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListType {
    Atomic,
    Set,
    Map,
}

/// The strategy of a strategic merge patch for a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Patch {
    /// Maps merge, lists are replaced.
    #[default]
    Default,
    /// A map is replaced, too.
    Replace,
    /// A list of objects merges by this key.
    MergeBy(&'static str),
    /// A list of plain values merges as a set.
    MergeSet,
}

/// The form of a value in JSON.
#[derive(Debug)]
pub(crate) enum Form {
    /// A scalar, and the name of its Go type.
    Scalar(Scalar, &'static str),
    /// A list; the Go type has a name if the text is not empty.
    List(&'static str, Box<Form>),
    /// An object with keys of any name; the Go type has a name if the text is not empty.
    Map(&'static str, Box<Form>),
    /// A type of the table.
    Named(usize),
}

/// A scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Text,
    Bytes,
    Boolean,
    Int32,
    Int64,
    Double,
}

/// The type of a kind; `None` for a kind that is not in the table.
pub(crate) fn root(group: &str, version: &str, kind: &str) -> Option<&'static Type> {
    let data = Data::get();
    let of_version = data
        .versions
        .iter()
        .find(|one| one.group == group && one.name == version)?;
    let resource = of_version.resources.iter().find(|one| one.kind == kind)?;
    resource.of.map(|index| &data.types[index])
}

// === impl Data ===

impl Data {
    /// The table.
    pub(crate) fn get() -> &'static Self {
        &DATA
    }

    /// The type of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Type> {
        self.by_name.get(name).map(|&index| &self.types[index])
    }
}

// === impl Resource ===

impl Resource {
    /// The type of its kind.
    pub(crate) fn root(&self) -> Option<&'static Type> {
        self.of.map(|index| &Data::get().types[index])
    }
}

// === impl Type ===

impl Type {
    /// The field `name`.
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        self.by_name.get(name).map(|&index| &self.fields[index])
    }

    /// The fields in the order of their names.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = &Field> {
        self.sorted.iter().map(|&index| &self.fields[index])
    }

    /// The name in OpenAPI: `io.k8s.api.core.v1.Pod`.
    pub(crate) fn open_api_name(&self) -> String {
        let package = self.name.split('.').next().unwrap_or_default();
        let beginning = match package {
            "apiextensions" => "io.k8s.apiextensions-apiserver.pkg.apis.",
            "apiregistration" => "io.k8s.kube-aggregator.pkg.apis.",
            "meta" => "io.k8s.apimachinery.pkg.apis.",
            "intstr" => "io.k8s.apimachinery.pkg.util.",
            // The group of this name has versions.
            "resource" if self.name == "resource.Quantity" => "io.k8s.apimachinery.pkg.api.",
            "runtime" => "io.k8s.apimachinery.pkg.",
            _ => "io.k8s.api.",
        };
        format!("{beginning}{}", self.name)
    }

    /// The name in Go: `v1.Pod`.
    pub(crate) fn go_name(&self) -> &'static str {
        let package = self.name.rsplitn(3, '.').nth(2);
        package.map_or(self.name, |package| &self.name[package.len() + 1..])
    }
}

// === impl Form ===

impl Form {
    /// The type of the table, of a value that has one.
    pub(crate) fn named(&self) -> Option<&'static Type> {
        match self {
            Self::Named(index) => Some(&Data::get().types[*index]),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
