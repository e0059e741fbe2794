//! Edits of the gateway: another engine or address, former and withdrawn ones, and how it is reached.

use ipblock_operator::config::keys;
use serde_json::json;

use super::{Edits, at_rest, block, none_left};
use crate::gateway::Gateway;
use crate::process::get;
use crate::recorder::Recorder;
use crate::world::{BLOCKS, until};

/// A ban that stands at a gateway from before the record is lifted there once the gateway is named.
async fn forgotten(edits: &Edits<'_>, former: &Gateway) {
    let world = edits.world;
    let ip = "203.0.113.42";
    let limit = get(former.address, &format!("/limit?ip={ip}")).await;
    assert!(matches!(limit, Some((200, _))), "{limit:?}");
    let place = former.address.to_string();
    let intent = json!({"target": ip, "engine": "iptables", "endpoint": place, "attempt": 1});
    let body = json!({"apiVersion": "ops.yiiong.top/v1", "kind": "IPBlock",
        "metadata": {"name": "old", "annotations": {ipblock_operator::api::INTENT: intent.to_string()}},
        "spec": {"ip": ip, "duration": "1h", "unblock": true}});
    world.request("POST", BLOCKS, &body).await;
    world.message("old", "formerGateways").await;
    at_rest(world).await;
    former.enforces(&[ip]).await;
    edits
        .set(keys::FORMER_GATEWAYS, &format!("iptables {place}"))
        .await;
    former.enforces(&[]).await;
    world.phase("old", "expired").await;
    world.delete("old").await;
}

/// A ban that may stand at a gateway that is gone holds its block back until that gateway is withdrawn.
async fn withdrawn(edits: &Edits<'_>) {
    let world = edits.world;
    let (ip, place) = ("203.0.113.43", "192.0.2.251:9521");
    let intent = json!({"target": ip, "engine": "iptables", "endpoint": place, "attempt": 1});
    let body = json!({"apiVersion": "ops.yiiong.top/v1", "kind": "IPBlock",
        "metadata": {"name": "gone", "annotations": {ipblock_operator::api::INTENT: intent.to_string()}},
        "spec": {"ip": ip, "duration": "1h", "unblock": true}});
    world.request("POST", BLOCKS, &body).await;
    until("the block says what it waits for", async || {
        let block = world.block("gone").await.unwrap_or_default();
        let message = block["status"]["message"].as_str().unwrap_or_default();
        message.contains(place)
    })
    .await;
    edits
        .set(keys::WITHDRAWN_GATEWAYS, &format!("iptables {place}"))
        .await;
    until("the block is unblocked", async || {
        let block = world.block("gone").await.unwrap_or_default();
        block["spec"]["unblock"] == false
    })
    .await;
    world.delete("gone").await;
}

/// To another engine, then to another gateway; the bans there then.
pub(super) async fn moving(edits: &Edits<'_>, second: &Gateway) -> Vec<String> {
    let world = edits.world;
    let standing = [
        "198.51.100.0/22",
        "203.0.113.40",
        "203.0.113.41",
        "10.9.8.7",
    ];
    world.gateway.enforces_by("iptables", &standing).await;
    forgotten(edits, second).await;
    withdrawn(edits).await;
    edits.set(keys::ENGINE, "xdp").await;
    world.gateway.enforces_by("xdp", &standing).await;
    world
        .until("the status names the engine", async |world| {
            let blocks = world.blocks().await;
            blocks
                .iter()
                .all(|block| block["status"]["engine"] == "xdp")
        })
        .await;

    block(world, "wide-six", "2001:db8::/40").await;
    world.phase("wide-six", "failed").await;
    at_rest(world).await;
    edits.set(keys::MIN_PREFIX_V6, "40").await;
    world.phase("wide-six", "active").await;

    let address = second.address.to_string();
    edits.set(keys::GATEWAY_HOST, &address).await;
    let mut standing = standing.map(String::from).to_vec();
    standing.push("2001:db8::/40".into());
    let targets: Vec<&str> = standing.iter().map(String::as_str).collect();
    second.enforces(&targets).await;
    world.gateway.enforces(&[]).await;
    // Nothing is on its way any more.
    for name in ["office", "private", "wide", "long", "wide-six"] {
        let what = format!("{name} says that it moved");
        until(&what, async || {
            let block = world.block(name).await.unwrap_or_default();
            let message = block["status"]["message"].as_str().unwrap_or_default();
            message.contains(&address)
        })
        .await;
    }
    standing
}

/// How the gateway is reached: credentials, time limits, certificates.
pub(super) async fn connections(edits: &Edits<'_>) {
    let world = edits.world;
    let file = |name: &str, text: &str| world.file(name, text).display().to_string();
    let recorder = Recorder::start();
    edits
        .set_all(&[
            (keys::ENGINE, "iptables"),
            (keys::GATEWAY_HOST, &recorder.address.to_string()),
        ])
        .await;
    for (name, ip, token) in [
        ("shown-1", "203.0.113.60", "first"),
        ("shown-2", "203.0.113.61", "second"),
    ] {
        let path = file(token, &format!("{token}\n"));
        edits.set(keys::GATEWAY_TOKEN_FILE, &path).await;
        block(world, name, ip).await;
        let call = recorder.receives(&format!("/limit?ip={ip}"), "").await;
        assert_eq!(call.authorization, Some(format!("Bearer {token}")));
        world.phase(name, "active").await;
    }
    none_left(world).await;

    // It accepts connections and never answers, in TLS or in HTTP.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent = silent.local_addr().map(|address| (address, silent));
    let (address, _silent) = silent.expect("a bound address");
    for (key, host, ips) in [
        (
            keys::CONNECT_TIMEOUT,
            format!("https://{address}"),
            ["203.0.113.62", "203.0.113.63"],
        ),
        (
            keys::REQUEST_TIMEOUT,
            address.to_string(),
            ["203.0.113.64", "203.0.113.65"],
        ),
    ] {
        edits
            .set_all(&[
                (keys::GATEWAY_HOST, &host),
                (keys::CONNECT_TIMEOUT, "1h"),
                (keys::REQUEST_TIMEOUT, "1h"),
            ])
            .await;
        let name = key.to_ascii_lowercase();
        let (slow, soon) = (format!("{name}-slow"), format!("{name}-soon"));
        block(world, &slow, ips[0]).await;
        world.message(&slow, "waiting for").await;
        edits.set(key, "1s").await;
        block(world, &soon, ips[1]).await;
        world.reason(&soon, "GatewayTimeout").await;
        // The call that was made before keeps its time.
        world.message(&slow, "waiting for").await;
    }

    // The API server is not a gateway, but it is here, has TLS, and its authority is at hand.
    let (url, authority) = world.cluster.endpoint();
    edits
        .set_all(&[
            (keys::GATEWAY_HOST, &url),
            (keys::CONNECT_TIMEOUT, ""),
            (keys::REQUEST_TIMEOUT, ""),
        ])
        .await;
    block(world, "sealed", "203.0.113.66").await;
    world.reason("sealed", "GatewayTLS").await;
    edits
        .set(keys::GATEWAY_CA_FILE, &file("authority", &authority))
        .await;
    world.message("sealed", "answered HTTP 40").await;
}
