//! The documents of discovery, aggregated and legacy.

use http::header::ACCEPT;
use kube_core::ApiResource;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::known::{Group, State};
use crate::answer::{decode, refusal};
use crate::client::Client;
use crate::error::Error;
use crate::kind::Kind;

/// The `Accept` of the two roots: the aggregated form, or the legacy one for servers without it.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// The root of discovery.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// `/api`: the core group.
    Core,
    /// `/apis`: all others.
    Groups,
}

/// A root's answer in either form, as `kind` shows.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Root {
    kind: String,
    /// Aggregated.
    items: Vec<AggregatedGroup>,
    /// Legacy, of `/api`.
    versions: Vec<String>,
    /// Legacy, of `/apis`.
    groups: Vec<OldGroup>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AggregatedGroup {
    metadata: Named,
    versions: Vec<AggregatedVersion>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AggregatedVersion {
    version: String,
    resources: Vec<AggregatedResource>,
    freshness: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AggregatedResource {
    resource: String,
    response_kind: KindName,
    scope: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KindName {
    kind: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct OldGroup {
    name: String,
    versions: Vec<OldVersion>,
    preferred_version: OldVersion,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OldVersion {
    version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OldResources {
    resources: Vec<OldResource>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OldResource {
    name: String,
    kind: String,
    namespaced: bool,
}

/// Reads one root into `state`.
pub(super) async fn read(client: &Client, form: Form, state: &mut State) -> Result<(), Error> {
    let path = match form {
        Form::Core => "/api",
        Form::Groups => "/apis",
    };
    let root: Root = fetch(client, path, AGGREGATED).await?;
    if root.kind == "APIGroupDiscoveryList" {
        for group in root.items {
            let name = group.metadata.name.clone();
            let group = aggregated(client, group).await;
            state.groups.insert(name, Some(group));
        }
        return Ok(());
    }
    let mut add = |name: String, versions: Vec<String>| {
        state.groups.insert(name.clone(), None);
        state.legacy.insert(name, versions);
    };
    match form {
        Form::Core => add(String::new(), root.versions),
        Form::Groups => {
            for group in root.groups {
                let preferred = group.preferred_version.version;
                let mut versions: Vec<String> =
                    group.versions.into_iter().map(|one| one.version).collect();
                // Stable: the others keep the server's order.
                versions.sort_by_key(|version| *version != preferred);
                add(group.name, versions);
            }
        }
    }
    Ok(())
}

/// The kinds of a group, with one request for each version.
pub(super) async fn legacy(
    client: &Client,
    group: &str,
    versions: &[String],
) -> Result<Group, Error> {
    let mut found = Group::default();
    for version in versions {
        let kinds = legacy_kinds(client, group, version).await?;
        found.versions.push((version.clone(), kinds));
    }
    Ok(found)
}

async fn aggregated(client: &Client, group: AggregatedGroup) -> Group {
    let name = group.metadata.name;
    let mut found = Group::default();
    for version in group.versions {
        let mut kinds: Vec<Kind> = version
            .resources
            .into_iter()
            .filter(|resource| !resource.response_kind.kind.is_empty())
            .map(|resource| {
                kind(
                    &name,
                    &version.version,
                    resource.response_kind.kind,
                    resource.resource,
                    resource.scope == "Namespaced",
                )
            })
            .collect();
        if version.freshness == "Stale" {
            // The extension server did not answer the aggregator, but may answer directly; else only this group fails.
            if let Ok(fresh) = legacy_kinds(client, &name, &version.version).await {
                kinds = fresh;
            }
        }
        found.versions.push((version.version, kinds));
    }
    found
}

async fn legacy_kinds(client: &Client, group: &str, version: &str) -> Result<Vec<Kind>, Error> {
    let path = if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    };
    let list: OldResources = fetch(client, &path, "application/json").await?;
    let whole = list
        .resources
        .into_iter()
        .filter(|resource| !resource.name.contains('/'));
    let kinds = whole.map(|resource| {
        kind(
            group,
            version,
            resource.kind,
            resource.name,
            resource.namespaced,
        )
    });
    Ok(kinds.collect())
}

fn kind(group: &str, version: &str, kind: String, plural: String, namespaced: bool) -> Kind {
    let api_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let resource = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version,
        kind,
        plural,
    };
    if namespaced {
        Kind::namespaced(resource)
    } else {
        Kind::cluster_scoped(resource)
    }
}

async fn fetch<T: DeserializeOwned>(client: &Client, path: &str, accept: &str) -> Result<T, Error> {
    let request = format!("discover {path}");
    let http = http::Request::get(path)
        .header(ACCEPT, accept)
        .body(Vec::new())
        .map_err(|error| Error::Invalid {
            request: request.clone(),
            message: error.to_string(),
        })?;
    let reply = client.within_deadline(&|| request.clone(), http).await?;
    if !reply.code.is_success() {
        return Err(refusal(request, &reply));
    }
    decode(|| request, &reply.body)
}
