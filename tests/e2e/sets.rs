//! Engines that follow the set of bans: the list over HTTP, and objects of network plugins.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::cluster::{documents, manifest_directory};
use crate::process::{free_port, get, http};
use crate::world::{World, collection, until};

on_both_servers!(
    a_list_is_served_by_each_replica_and_lasts_over_a_restart,
    cilium_gets_the_bans_with_the_rights_of_its_manifest,
    calico_gets_the_bans_with_the_rights_of_its_manifest,
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

async fn cilium_gets_the_bans_with_the_rights_of_its_manifest(world: World) {
    let group = ("cilium.io", "v2");
    plugin(
        &world,
        "cilium",
        [
            (group, "CiliumCIDRGroup", "ciliumcidrgroups"),
            (
                group,
                "CiliumClusterwideNetworkPolicy",
                "ciliumclusterwidenetworkpolicies",
            ),
        ],
        "externalCIDRs",
    )
    .await;
}

async fn calico_gets_the_bans_with_the_rights_of_its_manifest(world: World) {
    let group = ("crd.projectcalico.org", "v1");
    plugin(
        &world,
        "calico",
        [
            (group, "GlobalNetworkSet", "globalnetworksets"),
            (group, "GlobalNetworkPolicy", "globalnetworkpolicies"),
        ],
        "nets",
    )
    .await;
}

type Kind = ((&'static str, &'static str), &'static str, &'static str);

/// A cluster with a network plugin's definitions, and an operator with its engine.
async fn plugin(world: &World, engine: &str, kinds: [Kind; 2], field: &str) {
    for ((group, version), kind, plural) in kinds {
        let definition = json!({
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
        });
        let definitions = collection("CustomResourceDefinition", "");
        world.request("POST", &definitions, &definition).await;
    }
    for document in documents(&manifest_directory().join(format!("engines/{engine}.yaml"))) {
        let kind = document["kind"].as_str().expect("a kind");
        world
            .request("POST", &collection(kind, ""), &document)
            .await;
    }
    let paths =
        kinds.map(|((group, version), _, plural)| format!("/apis/{group}/{version}/{plural}"));
    for path in &paths {
        world
            .until("the definition is served", async |world| {
                world.try_request("GET", path, &Value::Null).await.is_ok()
            })
            .await;
    }
    let engines = format!("- name: mesh\n  type: {engine}\n");
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
    world.phase("a", "active").await;
    world.phase("b", "active").await;
    let ranges = async || -> Vec<String> {
        let list = world.request("GET", &paths[0], &Value::Null).await;
        let groups = list["items"].as_array().into_iter().flatten();
        let ranges = groups
            .filter_map(|group| group["spec"][field].as_array())
            .flatten();
        let mut ranges: Vec<String> = ranges
            .filter_map(|range| range.as_str().map(str::to_owned))
            .collect();
        ranges.sort_unstable();
        ranges
    };
    assert_eq!(ranges().await, ["192.0.2.7/32", "198.51.100.0/24"]);
    let policy = format!("{}/mesh", paths[1]);
    assert!(
        world
            .try_request("GET", &policy, &Value::Null)
            .await
            .is_ok()
    );
    world.delete("a").await;
    world
        .until("the block is gone", async |world| {
            world.block("a").await.is_none()
        })
        .await;
    assert_eq!(
        ranges().await,
        ["198.51.100.0/24"],
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
