//! The facts of an object that the rules need, read from its JSON.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use crate::config::Mark;

/// The entry of [`Facts::uses`] for all claims that a template of a StatefulSet makes: `data-web-` for `data-web-0`.
pub const CLAIMS_OF_SET: &str = "claims of a set";

/// Group, resource, namespace and name. The namespace of cluster-scoped objects is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The API group, empty for the core group.
    pub group: String,
    /// The plural, such as `pods`.
    pub resource: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// The facts of one state of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// Whether the object, or the template of its Pods or Jobs, has the mark.
    pub marked: bool,
    /// The time of creation.
    pub created: Option<Timestamp>,
    /// The uid.
    pub uid: String,
    /// The uids of the owners.
    pub owners: BTreeSet<String>,
    /// Whether an owner is its controller. A controller does not adopt such an object.
    pub controlled: bool,
    /// Whether its deletion has begun: it has a `deletionTimestamp`.
    pub ends: bool,
    /// The `spec.selector` of a workload.
    pub selector: Option<Value>,
    /// The groups and kinds of the owners.
    pub owner_kinds: BTreeSet<(String, String)>,
    /// The node of a Pod.
    pub node: Option<String>,
    /// ConfigMaps, Secrets, claims and the ServiceAccount of a Pod, Secrets and Services of an Ingress, by resource and name.
    /// [`CLAIMS_OF_SET`] has the start of the names of a StatefulSet's claims.
    pub uses: BTreeSet<(&'static str, String)>,
    /// The PriorityClasses of a Pod or of a template.
    pub priority_classes: BTreeSet<String>,
}

// === impl Key ===

impl Key {
    /// The key of a Namespace.
    #[must_use]
    pub fn namespace(name: &str) -> Self {
        Self {
            resource: "namespaces".into(),
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Whether this is the Namespace of this name, or an object in it.
    #[must_use]
    pub fn is_of_namespace(&self, name: &str) -> bool {
        let is_namespace = self.group.is_empty() && self.resource == "namespaces";
        self.namespace == name || is_namespace && self.name == name
    }
}

impl std::fmt::Display for Key {
    /// `pods/hbox/web-0`, or `nodes/node-1`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.resource)?;
        for part in [&self.namespace, &self.name] {
            if !part.is_empty() {
                write!(f, "/{part}")?;
            }
        }
        Ok(())
    }
}

// === impl Facts ===

impl Facts {
    /// Reads the facts of `object`.
    #[must_use]
    pub fn of(object: &Value, mark: &Mark) -> Self {
        let metadata = &object["metadata"];
        let specs = [
            &object["spec"],
            &object["spec"]["template"]["spec"],
            &object["spec"]["jobTemplate"]["spec"]["template"]["spec"],
        ];
        let marked = [
            object,
            &object["spec"]["template"],
            &object["spec"]["jobTemplate"],
            &object["spec"]["jobTemplate"]["spec"]["template"],
        ]
        .into_iter()
        .any(|part| part["metadata"]["labels"][&mark.label] == mark.value.as_str());
        let owners = || items(&metadata["ownerReferences"]);
        let owner_kinds = owners().filter_map(|owner| {
            let version = text(&owner["apiVersion"])?;
            let group = version.split_once('/').map_or("", |(group, _)| group);
            Some((group.to_owned(), text(&owner["kind"])?))
        });
        Self {
            labels: strings(&metadata["labels"]),
            marked,
            created: metadata["creationTimestamp"]
                .as_str()
                .and_then(|time| time.parse().ok()),
            uid: text(&metadata["uid"]).unwrap_or_default(),
            owners: owners().filter_map(|owner| text(&owner["uid"])).collect(),
            owner_kinds: owner_kinds.collect(),
            controlled: owners().any(|owner| owner["controller"] == true),
            ends: !metadata["deletionTimestamp"].is_null(),
            selector: Some(&object["spec"]["selector"])
                .filter(|selector| selector.is_object())
                .cloned(),
            node: text(&object["spec"]["nodeName"]),
            uses: specs
                .into_iter()
                .flat_map(uses)
                .chain(claims_of_set(object))
                .chain(uses_of_ingress(&object["spec"]))
                .collect(),
            priority_classes: specs
                .into_iter()
                .filter_map(|spec| text(&spec["priorityClassName"]))
                .collect(),
        }
    }
}

/// The older kinds of volumes that name a Secret.
const VOLUMES_WITH_SECRET: [&str; 7] = [
    "cephfs",
    "cinder",
    "flexVolume",
    "iscsi",
    "rbd",
    "scaleIO",
    "storageos",
];

/// The objects that a PodSpec uses.
fn uses(spec: &Value) -> BTreeSet<(&'static str, String)> {
    let mut found = BTreeSet::new();
    let mut add = |resource, name: &Value| {
        if let Some(name) = text(name) {
            found.insert((resource, name));
        }
    };
    add("serviceaccounts", &spec["serviceAccountName"]);
    for secret in items(&spec["imagePullSecrets"]) {
        add("secrets", &secret["name"]);
    }
    for volume in items(&spec["volumes"]) {
        add("configmaps", &volume["configMap"]["name"]);
        add("secrets", &volume["secret"]["secretName"]);
        add(
            "persistentvolumeclaims",
            &volume["persistentVolumeClaim"]["claimName"],
        );
        for source in items(&volume["projected"]["sources"]) {
            add("configmaps", &source["configMap"]["name"]);
            add("secrets", &source["secret"]["name"]);
        }
        add("secrets", &volume["csi"]["nodePublishSecretRef"]["name"]);
        add("secrets", &volume["azureFile"]["secretName"]);
        for kind in VOLUMES_WITH_SECRET {
            add("secrets", &volume[kind]["secretRef"]["name"]);
        }
    }
    for claim in items(&spec["resourceClaims"]) {
        add("resourceclaims", &claim["resourceClaimName"]);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in items(&spec[list]) {
            for source in items(&container["envFrom"]) {
                add("configmaps", &source["configMapRef"]["name"]);
                add("secrets", &source["secretRef"]["name"]);
            }
            for variable in items(&container["env"]) {
                add(
                    "configmaps",
                    &variable["valueFrom"]["configMapKeyRef"]["name"],
                );
                add("secrets", &variable["valueFrom"]["secretKeyRef"]["name"]);
            }
        }
    }
    found
}

impl Facts {
    /// Whether the object itself has the label of production objects.
    #[must_use]
    pub fn has_label(&self, mark: &Mark) -> bool {
        self.labels.get(&mark.label) == Some(&mark.value)
    }
}

/// The start of the names of the claims that a StatefulSet makes.
fn claims_of_set(object: &Value) -> Vec<(&'static str, String)> {
    let set = &object["metadata"]["name"];
    let templates = items(&object["spec"]["volumeClaimTemplates"]);
    let names = templates.filter_map(|template| {
        let (template, set) = (text(&template["metadata"]["name"])?, text(set)?);
        Some((CLAIMS_OF_SET, format!("{template}-{set}-")))
    });
    names.collect()
}

/// The Secrets of the certificates of an Ingress, and its Services.
fn uses_of_ingress(spec: &Value) -> Vec<(&'static str, String)> {
    let secrets = items(&spec["tls"]).map(|tls| ("secrets", &tls["secretName"]));
    let rules = items(&spec["rules"]);
    let paths = rules.flat_map(|rule| items(&rule["http"]["paths"]));
    let backends = paths
        .map(|path| &path["backend"])
        .chain([&spec["defaultBackend"]]);
    let services = backends.map(|backend| ("services", &backend["service"]["name"]));
    let found = secrets.chain(services);
    found
        .filter_map(|(resource, name)| Some((resource, text(name)?)))
        .collect()
}

/// The texts in a map of texts.
pub(crate) fn strings(map: &Value) -> BTreeMap<String, String> {
    let entries = map.as_object().into_iter().flatten();
    let texts = entries.filter_map(|(name, value)| Some((name.clone(), text(value)?)));
    texts.collect()
}

pub(crate) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

pub(crate) fn text(value: &Value) -> Option<String> {
    value
        .as_str()
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}
