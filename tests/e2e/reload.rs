//! Every key of the ConfigMap, edited while the operator runs, with what the edit changes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use ipblock_operator::api::BlockList;
use ipblock_operator::config::keys;
use ipblock_operator::inbound;
use ipblock_operator::target::object_name;
use kube_client::Api;
use serde_json::{Value, json};
use sha2::Sha256;

use crate::gateway::Gateway;
use crate::process::{free_port, get, http};
use crate::recorder::Recorder;
use crate::triggers::{alert, alert_without_duration};
use crate::world::{BLOCKS, Operator, World, until};

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

/// Which addresses may be banned, and for how long.
async fn policy(edits: &Edits<'_>) {
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
async fn rails(edits: &Edits<'_>) {
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
async fn moving(edits: &Edits<'_>, second: &Gateway) -> Vec<String> {
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

/// Alerts, which bring no block to the gateway of this part: they are for an address that is allowed.
async fn triggers(edits: &Edits<'_>) {
    let world = edits.world;
    edits.set(keys::WHITELIST, "192.0.2.0/24").await;
    let [first, other] =
        [free_port(), free_port()].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let entry = |address: SocketAddr, path: &str| {
        format!("- name: grafana\n  addr: \"{address}\"\n  path: {path}\n")
    };
    edits.set(keys::TRIGGER, &entry(first, "/one")).await;
    answers(first, "/one", "192.0.2.1", 200).await;
    edits.set(keys::TRIGGER, &entry(first, "/two")).await;
    answers(first, "/two", "192.0.2.1", 200).await;
    answers(first, "/one", "192.0.2.1", 404).await;
    edits.set(keys::TRIGGER, &entry(other, "/two")).await;
    answers(other, "/two", "192.0.2.1", 200).await;
    until("the former address is closed", async || {
        tokio::net::TcpStream::connect(first).await.is_err()
    })
    .await;

    for (ip, duration) in [("192.0.2.2", "45m"), ("192.0.2.3", "1h30m")] {
        edits.set(keys::DEFAULT_DURATION, duration).await;
        send(other, "/two", &alert_without_duration(ip)).await;
        let blocks = world.blocks().await;
        let made = blocks.iter().find(|block| block["spec"]["ip"] == ip);
        let made = made.unwrap_or_else(|| panic!("a block for {ip}"));
        assert_eq!(made["spec"]["duration"], duration, "{made:#}");
    }

    // The answer counts what it made of the alerts.
    edits.set(keys::DEBOUNCE, "10m").await;
    assert_eq!(send(other, "/two", &alert("192.0.2.4")).await["created"], 1);
    assert_eq!(
        send(other, "/two", &alert("192.0.2.4")).await["debounced"],
        1
    );
    edits.set(keys::DEBOUNCE, "1s").await;
    assert_eq!(send(other, "/two", &alert("192.0.2.5")).await["created"], 1);
    until("a repeat is looked at again after a second", async || {
        let repeat = send(other, "/two", &alert("192.0.2.5")).await;
        repeat["debounced"] == 0
    })
    .await;

    edits
        .set_all(&[(keys::DEBOUNCE, "10m"), (keys::DEBOUNCE_ENTRIES, "1")])
        .await;
    for ip in ["192.0.2.6", "192.0.2.7"] {
        assert_eq!(send(other, "/two", &alert(ip)).await["created"], 1, "{ip}");
    }
    let last = send(other, "/two", &alert("192.0.2.7")).await;
    assert_eq!(last["debounced"], 1, "{last}");
    let first = send(other, "/two", &alert("192.0.2.6")).await;
    assert_eq!(first["debounced"], 0, "{first}");
}

/// The effect of alerts on a block that is banned or was lifted by hand, and when it is deleted.
async fn endings(edits: &Edits<'_>) {
    let world = edits.world;
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let entry = format!("- name: grafana\n  addr: \"{address}\"\n  path: /ends\n");
    edits
        .set_all(&[
            (keys::TRIGGER, &entry),
            (keys::DEBOUNCE, "1s"),
            (keys::DEFAULT_DURATION, "30s"),
            (keys::REPEATED_ALERT, "ignore"),
        ])
        .await;
    let alert = alert_without_duration("203.0.113.90");
    let name = object_name("203.0.113.90");
    let sent = send(address, "/ends", &alert).await;
    assert_eq!(sent["created"], 1, "{sent}");
    world.phase(&name, "active").await;
    tokio::time::sleep(Duration::from_secs(16)).await;
    let sent = send(address, "/ends", &alert).await;
    assert_eq!(sent["leftAlone"], 1, "{sent}");
    edits.set(keys::REPEATED_ALERT, "extend").await;
    let sent = send(address, "/ends", &alert).await;
    assert_eq!(sent["extended"], 1, "in its second half: {sent}");

    let unblock = async || {
        world.patch(&name, json!({"spec": {"unblock": true}})).await;
        world.phase(&name, "expired").await;
        until("the flag is set back", async || {
            let block = world.block(&name).await.unwrap_or_default();
            block["spec"]["unblock"] == false
        })
        .await;
    };
    unblock().await;
    until("the debounce is over", async || {
        send(address, "/ends", &alert).await["debounced"] == 0
    })
    .await;
    let sent = send(address, "/ends", &alert).await;
    assert_eq!(sent["leftAlone"], 1, "within the grace: {sent}");
    edits.set(keys::UNBLOCK_GRACE, "none").await;
    let sent = send(address, "/ends", &alert).await;
    assert_eq!(sent["triggered"], 1, "{sent}");
    world.phase(&name, "active").await;

    unblock().await;
    edits.set(keys::RETENTION, "1s").await;
    until("it is deleted", async || world.block(&name).await.is_none()).await;
}

/// Engines that follow the set, beside the gateway.
async fn engines(edits: &Edits<'_>) {
    let world = edits.world;
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let entry = format!("- name: edge\n  type: list\n  addr: \"{address}\"\n  insecure: true\n");
    edits.set(keys::ENGINES, &entry).await;
    block(world, "listed", "203.0.113.95").await;
    let listed = world.phase("listed", "active").await;
    let names = listed["status"]["engines"].as_array().map_or(0, Vec::len);
    assert_eq!(names, 2, "the gateway and the list: {listed}");
    let (_, text) = get(address, "/bans").await.expect("an answer");
    assert!(text.contains("203.0.113.95\n"), "{text}");
    edits.set(keys::ENGINES, "").await;
    until("the list is not served any more", async || {
        get(address, "/bans").await.is_none()
    })
    .await;
}

/// Sends an alert until it is answered with `status`.
async fn answers(address: SocketAddr, path: &str, ip: &str, status: u16) {
    until(&format!("{address}{path} answers {status}"), async || {
        let answer = http(address, "POST", path, &[], &alert(ip)).await;
        answer.is_some_and(|(given, _)| given == status)
    })
    .await;
}

/// Sends an alert that is accepted; the answer's document.
async fn send(address: SocketAddr, path: &str, alert: &[u8]) -> Value {
    let answer = http(address, "POST", path, &[], alert).await;
    let (status, body) = answer.expect("an answer");
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("a JSON document")
}

/// The channel and the text of notifications.
async fn notifications(edits: &Edits<'_>) {
    let world = edits.world;
    let hook = Recorder::start();
    let file = |name: &str, text: &str| world.file(name, text).display().to_string();
    let notified = async |path: &str, number: u8| {
        let ip = format!("203.0.113.{number}");
        block(world, &format!("notified-{number}"), &ip).await;
        hook.receives(path, &ip).await.body
    };

    edits
        .set_all(&[
            (keys::NOTIFY_TYPE, "lark"),
            (keys::NOTIFY_HOOK, &hook.url("/plain")),
        ])
        .await;
    let plain = notified("/plain", 50).await;
    assert!(plain["sign"].is_null(), "{plain:#}");
    assert!(plain.to_string().contains(" UTC"), "{plain:#}");

    edits.set(keys::NOTIFY_HOOK, &hook.url("/other")).await;
    notified("/other", 51).await;

    let mounted = file("hook", &format!("{}\n", hook.url("/mounted")));
    edits.set(keys::NOTIFY_HOOK_FILE, &mounted).await;
    notified("/mounted", 52).await;

    let secret = file("signing", "s1gn\n");
    edits.set(keys::NOTIFY_SIGNING_FILE, &secret).await;
    let signed = notified("/mounted", 53).await;
    let time = signed["timestamp"].as_str().unwrap_or_default();
    let key = format!("{time}\ns1gn");
    let mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("HMAC takes any key");
    let wanted = base64::engine::general_purpose::STANDARD.encode(mac.finalize().into_bytes());
    assert_eq!(signed["sign"], wanted.as_str(), "{signed:#}");

    edits.set(keys::NOTIFY_ZONE, "+08:00").await;
    let zoned = notified("/mounted", 54).await;
    assert!(zoned.to_string().contains("+08:00"), "{zoned:#}");

    for event in ["ban", "resolve", "common"] {
        let key = format!("{}{event}", keys::NOTIFY_TEMPLATE_PREFIX);
        let card = json!({"of": event, "text": "own card: ${ip}"});
        edits.set(&key, &file(event, &card.to_string())).await;
    }
    let own = |body: &Value, event: &str, ip: &str| {
        assert_eq!(body["card"]["of"], event, "{body:#}");
        assert_eq!(body["card"]["text"], format!("own card: {ip}"), "{body:#}");
    };
    own(&notified("/mounted", 55).await, "ban", "203.0.113.55");
    world
        .patch("notified-55", json!({"spec": {"unblock": true}}))
        .await;
    own(
        &hook.receives("/mounted", r#""of":"resolve""#).await.body,
        "resolve",
        "203.0.113.55",
    );
    block(world, "too-wide", "2001:db8::/32").await;
    own(
        &hook.receives("/mounted", r#""of":"common""#).await.body,
        "common",
        "2001:db8::/32",
    );

    edits.set(keys::NOTIFY_TYPE, "").await;
    block(world, "untold", "203.0.113.56").await;
    world.phase("untold", "active").await;
    edits
        .set_all(&[
            (keys::NOTIFY_TYPE, "lark"),
            (keys::NOTIFY_HOOK_FILE, ""),
            (keys::NOTIFY_HOOK, &hook.url("/again")),
        ])
        .await;
    notified("/again", 57).await;
    // Notifications go out in order: had there been one, it would be here.
    let all = hook.all();
    assert!(
        !all.iter()
            .any(|one| one.body.to_string().contains("203.0.113.56")),
        "{all:#?}"
    );
    edits.set(keys::NOTIFY_TYPE, "").await;

    let chat = file("chat", &hook.url("/chat"));
    let events = hook.url("/events");
    let channels = format!(
        "[{{type: webhook, url: '{events}'}}, {{name: chat, type: lark, urlFile: {chat}, events: [resolve]}}]"
    );
    edits.set(keys::NOTIFY_CHANNELS, &channels).await;
    let event = notified("/events", 58).await;
    assert_eq!(event["type"], "top.yiiong.ops.ipblock.ban", "{event:#}");
    assert_eq!(event["subject"], "203.0.113.58");
    world
        .patch("notified-58", json!({"spec": {"unblock": true}}))
        .await;
    hook.receives("/chat", "203.0.113.58").await;
    edits.set(keys::NOTIFY_CHANNELS, "").await;
}

/// A list that is pulled.
async fn sources(edits: &Edits<'_>) {
    let handler = |_| async { inbound::text(http::StatusCode::OK, "203.0.113.70 # a comment") };
    let list = inbound::serve(([127, 0, 0, 1], 0).into(), inbound::limits(), handler);
    let list = list.expect("a free port");
    let source = format!(
        "[{{name: partners, type: feed, url: 'http://{}/'}}]",
        list.local_addr()
    );
    edits.set(keys::SOURCES, &source).await;
    let name = object_name("203.0.113.70");
    let block = edits.world.phase(&name, "active").await;
    assert_eq!(block["spec"]["source"], "partners");
    // The same list as one object.
    let whole = source.replace("}]", ", objects: BlockList}]");
    edits.set(keys::SOURCES, &whole).await;
    let lists: Api<BlockList> = Api::namespaced(edits.world.cluster.client(), "default");
    until("the list is written", async || {
        let list = lists.get_opt("partners-0").await.ok().flatten();
        list.is_some_and(|list| list.spec.entries[0].target == "203.0.113.70")
    })
    .await;
    edits.set(keys::SOURCES, "").await;
}

/// How the gateway is reached: credentials, time limits, certificates.
async fn connections(edits: &Edits<'_>) {
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
