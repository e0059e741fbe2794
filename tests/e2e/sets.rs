//! Engines that follow the set of bans: the list over HTTP, and objects of network plugins.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use reeve_apiserver::assets;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::cluster::{documents, manifest_directory};
use crate::process::{free_port, get, http};
use crate::world::{World, collection, until};

on_both_servers!(
    a_list_is_served_by_each_replica_and_lasts_over_a_restart,
    cilium_gets_the_bans_with_the_rights_of_its_manifest,
    calico_gets_the_bans_with_the_rights_of_its_manifest,
    cilium_accepts_the_objects_by_its_own_definitions,
    calico_accepts_the_objects_by_its_own_definitions,
);

/// A listener of the case.
pub(crate) fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

async fn a_list_is_served_by_each_replica_and_lasts_over_a_restart(world: World) {
    let token = world.file("list-token", "canary\n");
    let address = address();
    let engines = format!(
        "- name: edge\n  type: list\n  addr: \"{address}\"\n  bearerTokenFile: {}\n",
        token.display()
    );
    world
        .configure(json!({"engines": engines, "engine": "", "gatewayHost": ""}))
        .await;
    let operator = world.operator("ipblock-operator-0").await;
    world
        .create("a", json!({"ip": "192.0.2.7", "duration": "1h"}))
        .await;
    world
        .create("b", json!({"ip": "2001:db8::/48", "duration": "1h"}))
        .await;
    let block = world.phase("a", "active").await;
    world.phase("b", "active").await;
    assert_eq!(
        block["status"]["engines"],
        json!([{"name": "edge", "enforced": true}])
    );
    let read = async |query: &str| {
        let bearer = [("authorization", "Bearer canary")];
        http(address, "GET", &format!("/bans{query}"), &bearer, b"").await
    };
    let (status, text) = read("").await.expect("an answer");
    assert_eq!((status, text.as_str()), (200, "192.0.2.7\n2001:db8::/48\n"));
    assert_eq!(get(address, "/bans").await.expect("an answer").0, 401);
    let (_, before) = read("?format=json").await.expect("an answer");

    operator.process.kill().await;
    let _operator = world.operator("ipblock-operator-0").await;
    // Until the blocks are read there is no listener, or it answers 503; never an empty list.
    until("the list is back", async || {
        match read("?format=json").await {
            Some((200, text)) => {
                assert_eq!(text, before, "the version is the same after a restart");
                true
            }
            Some((status, text)) => {
                assert_eq!(status, 503, "{text}");
                false
            }
            None => false,
        }
    })
    .await;
    world.delete("a").await;
    until("the lift is served", async || {
        read("")
            .await
            .is_some_and(|(_, text)| text == "2001:db8::/48\n")
    })
    .await;
}

/// The objects of a network plugin, at the API server alone.
struct Objects {
    engine: &'static str,
    group: &'static str,
    version: &'static str,
    /// Kinds and plurals: of the groups, and of the policy.
    kinds: [(&'static str, &'static str); 2],
    /// The field of a group that has its ranges.
    ranges: &'static str,
    /// Settings of the engine that the plugin has to understand.
    settings: &'static str,
    /// The spec of the policy with these settings.
    policy: fn() -> Value,
}

const CILIUM: Objects = Objects {
    engine: "cilium",
    group: "cilium.io",
    version: "v2",
    kinds: [
        ("CiliumCIDRGroup", "ciliumcidrgroups"),
        (
            "CiliumClusterwideNetworkPolicy",
            "ciliumclusterwidenetworkpolicies",
        ),
    ],
    ranges: "externalCIDRs",
    settings: "  endpoints: {app.kubernetes.io/name: shop}\n",
    policy: || {
        json!({
            "description": "Refuses traffic from addresses that the IPBlock operator bans.",
            "endpointSelector": {"matchLabels": {"app.kubernetes.io/name": "shop"}},
            "enableDefaultDeny": {"ingress": false, "egress": false},
            "ingressDeny": [{"fromCIDRSet": [{"cidrGroupRef": "mesh-0"}]}],
        })
    },
};

const CALICO: Objects = Objects {
    engine: "calico",
    group: "crd.projectcalico.org",
    version: "v1",
    kinds: [
        ("GlobalNetworkSet", "globalnetworksets"),
        ("GlobalNetworkPolicy", "globalnetworkpolicies"),
    ],
    ranges: "nets",
    settings: "  selector: has(edge)\n  order: -7\n",
    policy: || {
        json!({
            "order": -7, "selector": "has(edge)", "types": ["Ingress"],
            "preDNAT": true, "applyOnForward": true,
            "ingress": [{
                "action": "Deny", "source": {"selector": "ops.yiiong.top/engine == 'mesh'"},
            }],
        })
    },
};

async fn cilium_gets_the_bans_with_the_rights_of_its_manifest(world: World) {
    plugin(&world, &CILIUM, None).await;
}

async fn calico_gets_the_bans_with_the_rights_of_its_manifest(world: World) {
    plugin(&world, &CALICO, None).await;
}

async fn cilium_accepts_the_objects_by_its_own_definitions(world: World) {
    if let Some(folder) = plugins() {
        plugin(&world, &CILIUM, Some(&folder)).await;
    }
}

async fn calico_accepts_the_objects_by_its_own_definitions(world: World) {
    if let Some(folder) = plugins() {
        plugin(&world, &CALICO, Some(&folder)).await;
    }
}

/// The folder in `REEVE_PLUGINS`; `None` skips the test.
fn plugins() -> Option<PathBuf> {
    let folder = std::env::var_os("REEVE_PLUGINS").map(PathBuf::from);
    assets::decide(
        folder.filter(|folder| folder.is_dir()),
        "REEVE_PLUGINS names no folder; tests/e2e/plugins.sh sets it",
    )
}

impl Objects {
    /// The definitions: the plugin's own, or ones that take any spec.
    fn definitions(&self, own: Option<&Path>) -> Vec<Value> {
        let Self { group, version, .. } = self;
        let kinds = self.kinds.iter();
        let definitions = kinds.flat_map(|(kind, plural)| match own {
            Some(folder) => documents(&folder.join(format!("{plural}.yaml"))),
            None => vec![json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{plural}.{group}")},
                "spec": {
                    "group": group, "scope": "Cluster",
                    "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                    "versions": [{"name": version, "served": true, "storage": true, "schema": {
                        "openAPIV3Schema": {"type": "object", "properties": {"spec": {
                            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                        }}},
                    }}],
                },
            })],
        });
        definitions.collect()
    }
}

/// Fails with what the plugin finds wrong in `object`, where `plugins.sh judge` was called.
async fn judge(object: &Value) {
    let Some(program) = std::env::var_os("REEVE_PLUGINS_JUDGE") else {
        return;
    };
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the judge starts");
    let mut input = child.stdin.take().expect("an input");
    let text = object.to_string();
    input.write_all(text.as_bytes()).await.expect("it reads");
    drop(input);
    let output = child.wait_with_output().await.expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{object}");
}

/// A cluster with a network plugin's definitions, and an operator with its engine.
async fn plugin(world: &World, objects: &Objects, own: Option<&Path>) {
    let Objects {
        engine, settings, ..
    } = objects;
    for definition in objects.definitions(own) {
        let definitions = collection("CustomResourceDefinition", "");
        world.request("POST", &definitions, &definition).await;
    }
    for document in documents(&manifest_directory().join(format!("engines/{engine}.yaml"))) {
        let kind = document["kind"].as_str().expect("a kind");
        world
            .request("POST", &collection(kind, ""), &document)
            .await;
    }
    let paths = objects
        .kinds
        .map(|(_, plural)| format!("/apis/{}/{}/{plural}", objects.group, objects.version));
    for path in &paths {
        world
            .until("the definition is served", async |world| {
                world.try_request("GET", path, &Value::Null).await.is_ok()
            })
            .await;
    }
    let engines = format!("- name: mesh\n  type: {engine}\n{settings}");
    world
        .configure(json!({"engines": engines, "engine": "", "gatewayHost": ""}))
        .await;
    let _operator = world.operator("ipblock-operator-0").await;
    world
        .create("a", json!({"ip": "192.0.2.7", "duration": "1h"}))
        .await;
    world
        .create("b", json!({"ip": "198.51.100.0/24", "duration": "1h"}))
        .await;
    world
        .create("six", json!({"ip": "2001:db8::/48", "duration": "1h"}))
        .await;
    for name in ["a", "b", "six"] {
        world.phase(name, "active").await;
    }
    let ranges = async || -> Vec<String> {
        let list = world.request("GET", &paths[0], &Value::Null).await;
        let groups = list["items"].as_array().into_iter().flatten();
        let ranges = groups
            .filter_map(|group| group["spec"][objects.ranges].as_array())
            .flatten();
        let mut ranges: Vec<String> = ranges
            .filter_map(|range| range.as_str().map(str::to_owned))
            .collect();
        ranges.sort_unstable();
        ranges
    };
    assert_eq!(
        ranges().await,
        ["192.0.2.7/32", "198.51.100.0/24", "2001:db8::/48"]
    );
    let policy = format!("{}/mesh", paths[1]);
    let written = world.request("GET", &policy, &Value::Null).await;
    // The server drops what its definition does not have.
    assert_eq!(written["spec"], (objects.policy)());
    if own.is_some() {
        judge(&written).await;
        let groups = world.request("GET", &paths[0], &Value::Null).await;
        for group in groups["items"].as_array().expect("groups") {
            judge(group).await;
        }
    }
    world.delete("a").await;
    world
        .until("the block is gone", async |world| {
            world.block("a").await.is_none()
        })
        .await;
    assert_eq!(
        ranges().await,
        ["198.51.100.0/24", "2001:db8::/48"],
        "it is gone after its lift"
    );
    world
        .configure(json!({"engines": "", "engine": "dry-run"}))
        .await;
    until("the engine is emptied", async || ranges().await.is_empty()).await;
    until("the policy is gone", async || {
        world
            .try_request("GET", &policy, &Value::Null)
            .await
            .is_err()
    })
    .await;
}
