//! The built-in resources and their types, from `kinds.txt`.
//!
//! [`root`] is the type of a kind; [`Type::field`] leads from a struct to its fields, and [`Form`] from a field to the
//! types of its values. Discovery, schemas, strategic merge patch, OpenAPI documents and server-side apply read the same
//! table. It is parsed once, on first use.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Value, json};

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

    /// Parses a table.
    ///
    /// # Errors
    /// The first invalid line.
    fn parse(text: &'static str) -> Result<Self, String> {
        let lines = || text.lines().filter(|line| !line.starts_with('#'));
        let by_name: HashMap<&str, usize> = lines()
            .filter_map(|line| line.strip_prefix("type "))
            .filter_map(|rest| rest.split(' ').next())
            .enumerate()
            .map(|(index, name)| (name, index))
            .collect();
        let mut data = Self {
            versions: Vec::new(),
            types: Vec::new(),
            by_name,
        };
        for line in lines() {
            data.read(line).ok_or_else(|| line.to_owned())?;
        }
        Ok(data)
    }

    fn read(&mut self, line: &'static str) -> Option<()> {
        if let Some(line) = line.strip_prefix(' ') {
            let field = Field::parse(line, &self.by_name)?;
            let of = self.types.last_mut()?;
            of.by_name.insert(field.name, of.fields.len());
            of.fields.push(field);
            return Some(());
        }
        let (word, rest) = line.split_once(' ')?;
        match word {
            "version" => {
                let (group, name) = rest.split_once('/').unwrap_or(("", rest));
                let resources = Vec::new();
                self.versions.push(Version {
                    group,
                    name,
                    resources,
                });
            }
            "resource" => {
                let resource = Resource::parse(rest, &self.by_name)?;
                self.versions.last_mut()?.resources.push(resource);
            }
            "subresource" => {
                let resource = self.versions.last_mut()?.resources.last_mut()?;
                resource.subresources.push(Subresource::parse(rest)?);
            }
            "type" => self.types.push(Type::parse(rest)?),
            _ => return None,
        }
        Some(())
    }
}

// === impl Resource ===

impl Resource {
    fn parse(line: &'static str, types: &HashMap<&str, usize>) -> Option<Self> {
        let mut words = line.split(' ');
        let mut next = || words.next();
        let mut resource = Self {
            plural: next()?,
            singular: next()?,
            kind: next()?,
            namespaced: next()? == "Namespaced",
            verbs: verbs(next()?),
            of: match next()? {
                "-" => None,
                name => Some(*types.get(name)?),
            },
            short_names: Vec::new(),
            categories: Vec::new(),
            subresources: Vec::new(),
            stored: None,
        };
        for word in words {
            match word.split_once('=')? {
                ("short", names) => resource.short_names = names.split(',').collect(),
                ("stored", version) => resource.stored = Some(version),
                ("categories", names) => resource.categories = names.split(',').collect(),
                _ => return None,
            }
        }
        Some(resource)
    }

    /// The type of its kind.
    pub(crate) fn root(&self) -> Option<&'static Type> {
        self.of.map(|index| &Data::get().types[index])
    }
}

// === impl Subresource ===

impl Subresource {
    fn parse(line: &'static str) -> Option<Self> {
        let [name, kind, of_verbs] = line.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        let (group_version, kind) = match kind.rsplit_once('/') {
            None => (None, kind),
            Some((group_version, kind)) => (Some(group_version.split_once('/')?), kind),
        };
        Some(Self {
            name,
            group_version,
            kind,
            verbs: verbs(of_verbs),
        })
    }
}

fn verbs(word: &'static str) -> Vec<&'static str> {
    match word {
        "*" => ALL_VERBS.to_vec(),
        words => words.split(',').collect(),
    }
}

// === impl Type ===

impl Type {
    fn parse(line: &'static str) -> Option<Self> {
        let mut of = Self {
            name: line,
            special: None,
            atomic: false,
            fields: Vec::new(),
            by_name: HashMap::new(),
        };
        if let Some((name, form)) = line.split_once(" = ") {
            of.name = name;
            of.special = Some(match form {
                "any" => Special::Any,
                "int-or-string" => Special::IntOrString,
                "micro-time" => Special::MicroTime,
                "quantity" => Special::Quantity,
                "schema-or-boolean" => Special::SchemaOrBoolean,
                "schema-or-list" => Special::SchemaOrList,
                "string" => Special::Text,
                "time" => Special::Time,
                _ => return None,
            });
        } else if let Some(name) = line.strip_suffix(" atomic") {
            of.name = name;
            of.atomic = true;
        }
        Some(of)
    }

    /// The field `name`.
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        self.by_name.get(name).map(|&index| &self.fields[index])
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

// === impl Field ===

impl Field {
    fn parse(line: &'static str, types: &HashMap<&str, usize>) -> Option<Self> {
        let mut words = line.split(' ');
        let name = words.next()?;
        let of = words.next()?;
        let bare = of.trim_end_matches(['?', '!']);
        let ends = &of[bare.len()..];
        let plain = bare.strip_prefix('*');
        let mut field = Self {
            name,
            form: Form::parse(plain.unwrap_or(bare), types)?,
            pointer: plain.is_some(),
            omit_empty: ends.contains('?'),
            omit_zero: ends.contains('!'),
            required: false,
            list: None,
            keys: Vec::new(),
            atomic: None,
            patch: Patch::Default,
            patch_strategy: "",
            enumeration: Vec::new(),
            embedded_in: None,
            default: None,
        };
        field.default = field.zero();
        for word in words {
            match word.split_once('=').unwrap_or((word, "")) {
                ("required", "") => field.required = true,
                ("list", "atomic") => field.list = Some(ListType::Atomic),
                ("list", "set") => field.list = Some(ListType::Set),
                ("list", "map") => field.list = Some(ListType::Map),
                ("keys", keys) => field.keys = keys.split(',').collect(),
                ("map", "atomic") => field.atomic = Some(true),
                ("map", "granular") => field.atomic = Some(false),
                ("patch", strategies) => {
                    field.patch_strategy = strategies;
                    let has = |wanted| strategies.split(',').any(|one| one == wanted);
                    if has("replace") {
                        field.patch = Patch::Replace;
                    } else if has("merge") {
                        field.patch = Patch::MergeSet;
                    }
                }
                ("key", key) if field.patch == Patch::MergeSet => field.patch = Patch::MergeBy(key),
                // Without a strategy it has no effect.
                ("key", _) => {}
                ("enum", values) => field.enumeration = values.split('|').collect(),
                ("in", name) => field.embedded_in = Some(name),
                ("default", "-") => field.default = None,
                ("default", text) => field.default = Some(serde_json::from_str(text).ok()?),
                _ => return None,
            }
        }
        Some(field)
    }

    /// The default of a field that is always written.
    fn zero(&self) -> Option<Value> {
        if self.pointer || self.omit_empty || self.omit_zero {
            return None;
        }
        match &self.form {
            Form::Scalar(Scalar::Text, _) => Some(json!("")),
            Form::Scalar(Scalar::Boolean, _) => Some(json!(false)),
            Form::Scalar(Scalar::Bytes, _) | Form::List(..) | Form::Map(..) => None,
            Form::Scalar(..) => Some(json!(0)),
            Form::Named(_) => Some(json!({})),
        }
    }
}

// === impl Form ===

impl Form {
    fn parse(text: &'static str, types: &HashMap<&str, usize>) -> Option<Self> {
        for (open, close) in [('[', ']'), ('{', '}')] {
            if let Some(rest) = text.strip_prefix(open) {
                let (name, of) = rest.split_once(close)?;
                let of = Box::new(Self::parse(of.strip_prefix('*').unwrap_or(of), types)?);
                return Some(if open == '[' {
                    Self::List(name, of)
                } else {
                    Self::Map(name, of)
                });
            }
        }
        if let Some(&index) = types.get(text) {
            return Some(Self::Named(index));
        }
        let (scalar, name) = text.split_once(':').unwrap_or((text, ""));
        let (scalar, plain) = match scalar {
            "string" => (Scalar::Text, "string"),
            "bytes" => (Scalar::Bytes, "[]uint8"),
            "boolean" => (Scalar::Boolean, "bool"),
            "int32" => (Scalar::Int32, "int32"),
            "int64" => (Scalar::Int64, "int64"),
            "double" => (Scalar::Double, "float64"),
            _ => return None,
        };
        Some(Self::Scalar(
            scalar,
            if name.is_empty() { plain } else { name },
        ))
    }

    /// The type of the table, of a value that has one.
    pub(crate) fn named(&self) -> Option<&'static Type> {
        match self {
            Self::Named(index) => Some(&Data::get().types[*index]),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(kind: (&str, &str, &str), path: &str) -> &'static Field {
        let mut of = root(kind.0, kind.1, kind.2).unwrap();
        let mut found = None;
        for name in path.split('.') {
            let field = of.field(name).unwrap_or_else(|| panic!("{path}: {name}"));
            found = Some(field);
            let mut form = &field.form;
            while let Form::List(_, items) | Form::Map(_, items) = form {
                form = items;
            }
            of = form.named().unwrap_or(of);
        }
        found.unwrap()
    }

    #[test]
    fn the_table_is_whole() {
        let data = Data::get();
        for version in &data.versions {
            for resource in &version.resources {
                let root = root(version.group, version.name, resource.kind);
                assert!(root.is_some(), "{}", resource.kind);
            }
        }
        assert_eq!(data.versions[0].group, "");
        assert!(data.types.len() > 500, "{}", data.types.len());
    }

    #[test]
    fn lists_have_the_types_and_keys_of_server_side_apply() {
        let pod = ("", "v1", "Pod");
        let ports = at(pod, "spec.containers.ports");
        assert_eq!(ports.list, Some(ListType::Map));
        assert_eq!(ports.keys, ["containerPort", "protocol"]);
        assert_eq!(
            at(pod, "spec.containers.ports.protocol").default,
            Some(json!("TCP"))
        );
        assert_eq!(at(pod, "spec.tolerations").list, Some(ListType::Atomic));
        assert_eq!(at(pod, "metadata.finalizers").list, Some(ListType::Set));
        assert_eq!(at(pod, "spec.nodeSelector").atomic, Some(true));
        assert!(root("", "v1", "Pod").unwrap().field("spec").is_some());
        assert!(
            Data::get()
                .named("core.v1.LocalObjectReference")
                .unwrap()
                .atomic
        );
    }

    #[test]
    fn lists_merge_by_the_keys_of_a_real_server() {
        let cases = [
            (("", "v1", "Pod"), "spec.containers", "name"),
            (("", "v1", "Pod"), "spec.containers.env", "name"),
            (
                ("", "v1", "Pod"),
                "spec.initContainers.ports",
                "containerPort",
            ),
            (
                ("", "v1", "Pod"),
                "spec.containers.volumeMounts",
                "mountPath",
            ),
            (("", "v1", "Pod"), "spec.hostAliases", "ip"),
            (
                ("", "v1", "Pod"),
                "spec.topologySpreadConstraints",
                "topologyKey",
            ),
            (("", "v1", "Pod"), "status.conditions", "type"),
            (("", "v1", "Pod"), "status.podIPs", "ip"),
            (
                ("apps", "v1", "Deployment"),
                "spec.template.spec.volumes",
                "name",
            ),
            (
                ("apps", "v1", "Deployment"),
                "spec.template.metadata.ownerReferences",
                "uid",
            ),
            (
                ("batch", "v1", "CronJob"),
                "spec.jobTemplate.spec.template.spec.containers",
                "name",
            ),
            (("", "v1", "Service"), "spec.ports", "port"),
            (("", "v1", "ServiceAccount"), "secrets", "name"),
            (("", "v1", "Namespace"), "status.conditions", "type"),
            (
                (
                    "admissionregistration.k8s.io",
                    "v1",
                    "ValidatingWebhookConfiguration",
                ),
                "webhooks.matchConditions",
                "name",
            ),
        ];
        for (kind, path, key) in cases {
            assert_eq!(at(kind, path).patch, Patch::MergeBy(key), "{kind:?} {path}");
        }
        assert_eq!(
            at(("", "v1", "ConfigMap"), "metadata.finalizers").patch,
            Patch::MergeSet
        );
        let replaced = at(("policy", "v1", "PodDisruptionBudget"), "spec.selector");
        assert_eq!(replaced.patch, Patch::Replace);
        for (kind, path) in [
            (("", "v1", "Pod"), "spec.tolerations"),
            (("", "v1", "Pod"), "spec.containers.envFrom"),
            (("", "v1", "ServiceAccount"), "imagePullSecrets"),
            (("networking.k8s.io", "v1", "Ingress"), "spec.rules"),
            (("rbac.authorization.k8s.io", "v1", "Role"), "rules"),
        ] {
            assert_eq!(at(kind, path).patch, Patch::Default, "{kind:?} {path}");
        }
    }

    #[test]
    fn a_type_has_its_names_in_open_api_and_go() {
        for (name, open_api, go) in [
            ("core.v1.Pod", "io.k8s.api.core.v1.Pod", "v1.Pod"),
            (
                "meta.v1.ObjectMeta",
                "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
                "v1.ObjectMeta",
            ),
            (
                "resource.Quantity",
                "io.k8s.apimachinery.pkg.api.resource.Quantity",
                "resource.Quantity",
            ),
            (
                "resource.v1.ResourceClaim",
                "io.k8s.api.resource.v1.ResourceClaim",
                "v1.ResourceClaim",
            ),
        ] {
            let of = Data::get().named(name).unwrap();
            assert_eq!((of.open_api_name().as_str(), of.go_name()), (open_api, go));
        }
    }

    #[test]
    fn a_field_has_the_marks_of_its_go_type() {
        let probe = at(("", "v1", "Pod"), "spec.containers.livenessProbe.httpGet");
        assert_eq!(probe.embedded_in, Some("ProbeHandler"));
        let replicas = at(("apps", "v1", "Deployment"), "spec.replicas");
        assert!(replicas.pointer && replicas.omit_empty);
        let strategy = at(("apps", "v1", "Deployment"), "spec.strategy.type");
        assert_eq!(strategy.enumeration, ["Recreate", "RollingUpdate"]);
        assert!(at(("apps", "v1", "Deployment"), "spec.selector").required);
    }
}
