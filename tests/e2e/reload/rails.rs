//! Edits of what may be banned: the policy, caps, brakes, shadow mode, escalation.

use ipblock_operator::config::keys;
use serde_json::json;

use super::{Edits, at_rest, block};
use crate::world::until;

/// Which addresses may be banned, and for how long.
pub(super) async fn policy(edits: &Edits<'_>) {
    let world = edits.world;
    block(world, "office", "203.0.113.40").await;
    for (key, word) in [
        (keys::WHITELIST, "allowlist"),
        (keys::PROTECTED_RANGES, "protectedRanges"),
    ] {
        world.phase("office", "active").await;
        world.enforces(&["203.0.113.40"]).await;
        at_rest(world).await;
        edits.set(key, "203.0.113.0/24 # the office").await;
        let skipped = world.phase("office", "skipped").await;
        let message = skipped["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(word), "{key}: {message}");
        world.enforces(&[]).await;
        at_rest(world).await;
        edits.set(key, "").await;
    }
    world.phase("office", "active").await;

    // The manifests protect private addresses.
    block(world, "private", "10.9.8.7").await;
    world.phase("private", "skipped").await;
    at_rest(world).await;
    edits.set(keys::PROTECT_PRIVATE, "false").await;
    world.phase("private", "active").await;

    block(world, "wide", "198.51.100.0/22").await;
    world.phase("wide", "failed").await;
    at_rest(world).await;
    edits.set(keys::MIN_PREFIX_V4, "22").await;
    world.phase("wide", "active").await;

    edits.set(keys::MAX_DURATION, "2h").await;
    let long = json!({"ip": "203.0.113.41", "duration": "3h"});
    world.create("long", long).await;
    let refused = world.phase("long", "failed").await;
    let message = refused["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("2h"), "{message}");
    at_rest(world).await;
    edits.set(keys::MAX_DURATION, "4h").await;
    world.phase("long", "active").await;
}

/// Caps, brakes, shadow mode, the addresses of the cluster, and how bans grow.
pub(super) async fn rails(edits: &Edits<'_>) {
    let world = edits.world;
    let (one, two) = ("203.0.113.44", "203.0.113.45");
    for (key, text, reason) in [
        (keys::MAX_ACTIVE_BLOCKS, "1", "Limited"),
        (keys::MAX_BANS_PER_MINUTE, "1", "Limited"),
        (
            keys::LIMITS,
            "namespaces: {'*': {maxActiveBlocks: 1}}",
            "Limited",
        ),
        (keys::BRAKE, "{bansPerMinute: 1}", "Braked"),
    ] {
        edits.set(key, text).await;
        block(world, "rail-one", one).await;
        // The first in the queue is not always the first to be banned. Under maxActiveBlocks, both wait for the others.
        until("the operator has seen the first block", async || {
            let first = world.block("rail-one").await.unwrap_or_default();
            !first["status"]["phase"].is_null()
        })
        .await;
        block(world, "rail-two", two).await;
        world.reason("rail-two", reason).await;
        edits.set(key, "").await;
        for name in ["rail-one", "rail-two"] {
            world.phase(name, "active").await;
            world.delete(name).await;
        }
        until("the blocks are gone", async || {
            let left = [world.block("rail-one").await, world.block("rail-two").await];
            left.iter().all(Option::is_none)
        })
        .await;
    }

    edits.set(keys::SHADOW_SOURCES, "feed").await;
    let shown = json!({"ip": one, "duration": "1h", "source": "feed"});
    world.create("rail-one", shown).await;
    world.phase("rail-one", "skipped").await;
    world.message("rail-one", "would ban").await;
    edits.set(keys::SHADOW_SOURCES, "").await;
    world.phase("rail-one", "active").await;

    edits.set(keys::ESCALATION, "{factor: 2, jitter: 0}").await;
    world
        .patch("rail-one", json!({"spec": {"trigger": true}}))
        .await;
    until("the second ban lasts longer", async || {
        let block = world.block("rail-one").await.unwrap_or_default();
        block["status"]["escalation"]["granted"] == "2h"
    })
    .await;
    edits.set(keys::ESCALATION, "").await;
    world.delete("rail-one").await;

    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "front"},
        "spec": {"ports": [{"port": 80}], "externalIPs": [two]}});
    let services = "/api/v1/namespaces/default/services";
    world.request("POST", services, &service).await;
    block(world, "rail-two", two).await;
    world.phase("rail-two", "skipped").await;
    world.message("rail-two", "Service default/front").await;
    edits.set(keys::PROTECT_CLUSTER, "false").await;
    world.phase("rail-two", "active").await;
    world.delete("rail-two").await;
    until("the blocks are gone", async || {
        let left = [world.block("rail-one").await, world.block("rail-two").await];
        left.iter().all(Option::is_none)
    })
    .await;
}
