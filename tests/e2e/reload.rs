//! Every key of the ConfigMap, edited while the operator runs, with what the edit changes.

mod alerts;
mod channels;
mod gateways;
mod rails;

use std::cell::RefCell;
use std::collections::BTreeSet;

use ipblock_operator::config::keys;
use serde_json::{Value, json};

use self::alerts::{endings, triggers};
use self::channels::{engines, notifications, sources};
use self::gateways::{connections, moving};
use self::rails::{policy, rails};
use crate::gateway::Gateway;
use crate::world::{Operator, World, until};

on_both_servers!(every_key_takes_effect_without_a_restart);

async fn every_key_takes_effect_without_a_restart(world: World) {
    let operator = world
        .operator_with("ipblock-operator-0", &["--insecure-triggers"])
        .await;
    let edits = Edits {
        world: &world,
        operator: &operator,
        keys: RefCell::default(),
    };
    policy(&edits).await;
    rails(&edits).await;
    let second = Gateway::start().await;
    let standing = moving(&edits, &second).await;
    // It takes ten seconds until lost bans are asserted again; meanwhile nothing calls the gateway.
    second.lose_state().await;
    edits.set(keys::RESYNC_INTERVAL, "10s").await;
    triggers(&edits).await;
    let standing: Vec<&str> = standing.iter().map(String::as_str).collect();
    second.enforces(&standing).await;
    endings(&edits).await;
    sources(&edits).await;
    notifications(&edits).await;
    engines(&edits).await;
    none_left(&world).await;
    connections(&edits).await;

    let edited = edits.keys.into_inner();
    let templates = ["ban", "resolve", "common"]
        .map(|event| format!("{}{event}", keys::NOTIFY_TEMPLATE_PREFIX));
    let known = keys::ALL
        .iter()
        .chain(keys::NOTIFY)
        .map(ToString::to_string);
    let all: BTreeSet<String> = known.chain(templates).collect();
    assert_eq!(edited, all, "every key has its place in this case");
}

/// The ConfigMap, and which of its keys were edited.
struct Edits<'a> {
    world: &'a World,
    operator: &'a Operator,
    keys: RefCell<BTreeSet<String>>,
}

// === impl Edits ===

impl Edits<'_> {
    async fn set(&self, key: &str, text: &str) {
        self.set_all(&[(key, text)]).await;
    }

    /// Several keys in one edit; an empty text counts as an absent key. Returns when the edit is in force.
    async fn set_all(&self, pairs: &[(&str, &str)]) {
        let mut data = serde_json::Map::new();
        for (key, text) in pairs {
            self.keys.borrow_mut().insert((*key).to_owned());
            data.insert((*key).to_owned(), json!(text));
        }
        // Some effects of an edit cannot be waited for: a notification is sent or not. The log shows when the edit is
        // in force.
        let before = self.loaded();
        self.world.configure(Value::Object(data)).await;
        until(&format!("{pairs:?} is in force"), async || {
            self.loaded() > before
        })
        .await;
    }

    /// How often the operator has logged that a configuration is in force.
    fn loaded(&self) -> usize {
        let log = self.operator.process.log();
        log.matches("the configuration is in force").count()
    }
}

async fn block(world: &World, name: &str, ip: &str) {
    world
        .create(name, json!({"ip": ip, "duration": "1h"}))
        .await;
}

/// Deletes every block: standing bans would only be moved to the next gateway.
async fn none_left(world: &World) {
    for block in world.blocks().await {
        let name = block["metadata"]["name"].as_str().expect("a name");
        world.delete(name).await;
    }
    world
        .until("all blocks are gone", async |world| {
            world.blocks().await.is_empty()
        })
        .await;
}

/// Waits until the effects of the blocks' own writes are done, so that only the next edit moves them: a block that was
/// made after those writes comes after them in the queue.
async fn at_rest(world: &World) {
    block(world, "last", "192.0.2.250").await;
    world.phase("last", "active").await;
    world.delete("last").await;
    world
        .until("the last block is gone", async |world| {
            world.block("last").await.is_none()
        })
        .await;
}
