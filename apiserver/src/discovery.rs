//! Discovery: the served groups, versions and resources, in three forms.
//!
//! Aggregated (`apidiscovery.k8s.io/v2` and `v2beta1`) returns everything in two requests; the legacy
//! forms take one for each group and version. (apiserver: `endpoints/discovery`.)

use base64::Engine as _;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::kinds::data::Data;
use crate::registry::{Group, Served, Version};
use crate::resource::ResourceInfo;

/// Verbs of `status` and `scale` of a custom resource.
const SUBRESOURCE_VERBS: &[&str] = &["get", "patch", "update"];
/// The verbs of a custom resource, in the order a real server lists them.
const CUSTOM_VERBS: &[&str] = &[
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

/// A form of the aggregated document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `apidiscovery.k8s.io/v2`
    V2,
    /// `apidiscovery.k8s.io/v2beta1`, for clients before 1.30.
    V2Beta1,
}

// === impl Form ===

impl Form {
    /// The best aggregated form in an `Accept` header; `None` for the legacy form.
    pub(crate) fn accepted(accept: &str) -> Option<Self> {
        for range in accept.split(',') {
            let mut parameters = range.split(';').map(str::trim);
            let media_type = parameters.next().unwrap_or_default();
            let (mut group, mut version, mut kind) = ("", "", "");
            for parameter in parameters {
                match parameter.split_once('=') {
                    Some(("g", value)) => group = value,
                    Some(("v", value)) => version = value,
                    Some(("as", value)) => kind = value,
                    _ => {}
                }
            }
            let json = matches!(media_type, "application/json" | "application/*" | "*/*");
            match (json, kind, group, version) {
                (true, "APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => {
                    return Some(Self::V2);
                }
                (true, "APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2beta1") => {
                    return Some(Self::V2Beta1);
                }
                (true, "", ..) => return None,
                _ => {}
            }
        }
        None
    }

    /// The Content-Type of the answer; clients check its parameters.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::V2 => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            Self::V2Beta1 => {
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V2 => "apidiscovery.k8s.io/v2",
            Self::V2Beta1 => "apidiscovery.k8s.io/v2beta1",
        }
    }
}

// === aggregated ===

/// The aggregated document of `/api` (the core group) or of `/apis` (all others).
pub(crate) fn aggregated(served: &Served, form: Form, core: bool) -> Value {
    let items: Vec<Value> = served
        .groups
        .iter()
        .filter(|group| group.name.is_empty() == core)
        .map(aggregated_group)
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": form.api_version(),
        "metadata": {},
        "items": items,
    })
}

fn aggregated_group(group: &Group) -> Value {
    let metadata = if group.name.is_empty() {
        json!({})
    } else {
        json!({"name": group.name})
    };
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| {
            let resources: Vec<Value> = version
                .resources
                .values()
                .map(|info| aggregated_resource(info))
                .collect();
            json!({"version": version.name, "resources": resources, "freshness": "Current"})
        })
        .collect();
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(info: &ResourceInfo) -> Value {
    // A real server sets group and version of its own kinds only where they differ from the resource's.
    let (group, version) = if info.custom {
        (info.group.as_str(), info.version.as_str())
    } else {
        ("", "")
    };
    let kind = json!({"group": group, "version": version, "kind": info.kind});
    let mut resource = Map::new();
    let mut set = |name: &str, value: Value| {
        resource.insert(name.to_owned(), value);
    };
    set("resource", json!(info.plural));
    set("responseKind", kind.clone());
    set(
        "scope",
        json!(if info.namespaced {
            "Namespaced"
        } else {
            "Cluster"
        }),
    );
    set("singularResource", json!(info.singular));
    set("verbs", json!(verbs(info)));
    if !info.short_names.is_empty() {
        set("shortNames", json!(info.short_names));
    }
    if !info.categories.is_empty() {
        set("categories", json!(info.categories));
    }
    let subresources: Vec<Value> = subresources(info)
        .into_iter()
        .map(|subresource| {
            let (group, version) = subresource.group_version.unwrap_or((group, version));
            json!({
                "subresource": subresource.name,
                "responseKind": {"group": group, "version": version, "kind": subresource.kind},
                "verbs": subresource.verbs,
            })
        })
        .collect();
    if !subresources.is_empty() {
        set("subresources", json!(subresources));
    }
    Value::Object(resource)
}

fn verbs(info: &ResourceInfo) -> &'static [&'static str] {
    if info.custom {
        CUSTOM_VERBS
    } else {
        info.verbs
    }
}

/// A subresource in discovery.
struct Subresource<'a> {
    name: &'static str,
    /// Group and version of the kind where they differ from the resource's.
    group_version: Option<(&'static str, &'static str)>,
    kind: &'a str,
    verbs: &'a [&'static str],
}

fn subresources(info: &ResourceInfo) -> Vec<Subresource<'_>> {
    if !info.custom {
        let all = info.subresources.iter();
        return all
            .map(|one| Subresource {
                name: one.name,
                group_version: one.group_version,
                kind: one.kind,
                verbs: &one.verbs,
            })
            .collect();
    }
    let mut all = Vec::new();
    if info.status {
        all.push(Subresource {
            name: "status",
            group_version: None,
            kind: &info.kind,
            verbs: SUBRESOURCE_VERBS,
        });
    }
    if info.scale.is_some() {
        all.push(Subresource {
            name: "scale",
            group_version: Some(("autoscaling", "v1")),
            kind: "Scale",
            verbs: SUBRESOURCE_VERBS,
        });
    }
    all
}

// === legacy ===

/// `/api`: the versions of the core group.
pub(crate) fn core_versions(server_address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [
            {"clientCIDR": "0.0.0.0/0", "serverAddress": server_address},
        ],
    })
}

/// `/apis`: every group but core.
pub(crate) fn groups(served: &Served) -> Value {
    let groups: Vec<Value> = served
        .groups
        .iter()
        .filter(|group| !group.name.is_empty())
        .map(group_entry)
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`.
pub(crate) fn group(group: &Group) -> Value {
    let mut document = group_entry(group);
    document["kind"] = json!("APIGroup");
    document["apiVersion"] = json!("v1");
    document
}

fn group_entry(group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| {
            json!({
                "groupVersion": group_version(&group.name, &version.name),
                "version": version.name,
            })
        })
        .collect();
    let preferred = versions.first().cloned().unwrap_or_default();
    json!({"name": group.name, "versions": versions, "preferredVersion": preferred})
}

/// `/api/v1` and `/apis/GROUP/VERSION`.
pub(crate) fn resources(served: &Served, group: &str, version: &Version) -> Value {
    let mut list = Vec::new();
    for info in version.resources.values() {
        let mut resource = json!({
            "name": info.plural,
            "singularName": info.singular,
            "namespaced": info.namespaced,
            "kind": info.kind,
            "verbs": verbs(info),
        });
        if !info.short_names.is_empty() {
            resource["shortNames"] = json!(info.short_names);
        }
        if !info.categories.is_empty() {
            resource["categories"] = json!(info.categories);
        }
        if let Some(hash) = storage_version_hash(served, info) {
            resource["storageVersionHash"] = json!(hash);
        }
        list.push(resource);
        for subresource in subresources(info) {
            let mut entry = json!({
                "name": format!("{}/{}", info.plural, subresource.name),
                "singularName": "",
                "namespaced": info.namespaced,
                "kind": subresource.kind,
                "verbs": subresource.verbs,
            });
            if let Some((group, version)) = subresource.group_version {
                entry["group"] = json!(group);
                entry["version"] = json!(version);
            }
            list.push(entry);
        }
    }
    let mut document = json!({
        "kind": "APIResourceList",
        "groupVersion": group_version(group, &version.name),
        "resources": list,
    });
    // The core group's does not have it.
    if !group.is_empty() {
        document["apiVersion"] = json!("v1");
    }
    document
}

/// A hash of the version that objects are stored in. (apiserver: `discovery.StorageVersionHash`.)
fn storage_version_hash(served: &Served, info: &ResourceInfo) -> Option<String> {
    const BYTES: usize = 8;
    let stored = served.of_storage(&info.storage)?;
    let built_in = Data::get().versions.iter();
    let built_in = built_in
        .filter(|version| version.group == stored.group && version.name == stored.version)
        .flat_map(|version| &version.resources);
    let version = built_in
        .filter(|resource| resource.plural == stored.plural)
        .find_map(|resource| resource.stored)
        .unwrap_or(&stored.version);
    let name = format!("{}/{version}/{}", stored.group, stored.kind);
    let digest = Sha256::digest(name.as_bytes());
    Some(base64::engine::general_purpose::STANDARD.encode(&digest[..BYTES]))
}

/// `v1` or `group/version`.
pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn served() -> Served {
        let mut groups: Vec<Group> = Vec::new();
        for info in kinds::builtin() {
            let place = match groups.iter().position(|group| group.name == info.group) {
                Some(place) => place,
                None => {
                    groups.push(Group {
                        name: info.group.clone(),
                        versions: vec![Version {
                            name: info.version.clone(),
                            resources: BTreeMap::new(),
                        }],
                    });
                    groups.len() - 1
                }
            };
            groups[place].versions[0]
                .resources
                .insert(info.plural.clone(), Arc::new(info));
        }
        Served {
            groups,
            ..Served::default()
        }
    }

    #[test]
    fn the_accept_header_chooses_the_form() {
        let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        let cases = [
            (format!("{v2},{beta},application/json"), Some(Form::V2)),
            (format!("{beta}, application/json"), Some(Form::V2Beta1)),
            (format!("application/json,{v2}"), None),
            ("application/json".to_owned(), None),
            ("*/*".to_owned(), None),
            (String::new(), None),
            (
                "application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList".to_owned(),
                None,
            ),
        ];
        for (accept, expected) in cases {
            assert_eq!(Form::accepted(&accept), expected, "{accept}");
        }
    }

    #[test]
    fn the_aggregated_form_has_core_apart_and_subresources_below() {
        let core = aggregated(&served(), Form::V2, true);
        assert_eq!(core["apiVersion"], "apidiscovery.k8s.io/v2");
        assert_eq!(core["items"].as_array().unwrap().len(), 1);
        assert_eq!(core["items"][0]["metadata"], json!({}));

        let others = aggregated(&served(), Form::V2Beta1, false);
        assert_eq!(others["apiVersion"], "apidiscovery.k8s.io/v2beta1");
        let apps = others["items"]
            .as_array()
            .unwrap()
            .iter()
            .find(|group| group["metadata"]["name"] == "apps")
            .unwrap();
        let deployments = apps["versions"][0]["resources"]
            .as_array()
            .unwrap()
            .iter()
            .find(|resource| resource["resource"] == "deployments")
            .unwrap();
        assert_eq!(
            *deployments,
            json!({
                "resource": "deployments",
                "responseKind": {"group": "", "version": "", "kind": "Deployment"},
                "scope": "Namespaced",
                "singularResource": "deployment",
                "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
                "shortNames": ["deploy"],
                "categories": ["all"],
                "subresources": [
                    {"subresource": "scale", "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}, "verbs": ["get", "patch", "update"]},
                    {"subresource": "status", "responseKind": {"group": "", "version": "", "kind": "Deployment"}, "verbs": ["get", "patch", "update"]},
                ],
            })
        );
    }

    #[test]
    fn the_legacy_forms_name_groups_versions_and_resources() {
        let served = served();
        assert_eq!(core_versions("x:1")["versions"], json!(["v1"]));
        let all = groups(&served);
        let names: Vec<&Value> = all["groups"]
            .as_array()
            .unwrap()
            .iter()
            .map(|group| &group["name"])
            .collect();
        assert!(names.contains(&&json!("apps")) && !names.contains(&&json!("")));
        let apps = served.group("apps").unwrap();
        assert_eq!(
            group(apps),
            json!({
                "kind": "APIGroup", "apiVersion": "v1", "name": "apps",
                "versions": [{"groupVersion": "apps/v1", "version": "v1"}],
                "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"},
            })
        );
        let list = resources(&served, "apps", &apps.versions[0]);
        let names: Vec<&str> = list["resources"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|resource| resource["name"].as_str())
            .filter(|name| name.starts_with("deployments"))
            .collect();
        assert_eq!(list["groupVersion"], "apps/v1");
        assert_eq!(
            names,
            ["deployments", "deployments/scale", "deployments/status"]
        );
    }
}
