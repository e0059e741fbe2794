//! Edits of what the operator reads and writes beside the gateway: set engines, notifications, pulled sources.

use std::net::SocketAddr;

use base64::Engine as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use ipblock_operator::api::BlockList;
use ipblock_operator::config::keys;
use ipblock_operator::inbound;
use ipblock_operator::target::object_name;
use kube_client::Api;
use serde_json::{Value, json};
use sha2::Sha256;

use super::{Edits, block};
use crate::process::{free_port, get};
use crate::recorder::Recorder;
use crate::world::until;

/// Engines that follow the set, beside the gateway.
pub(super) async fn engines(edits: &Edits<'_>) {
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

/// The channel and the text of notifications.
pub(super) async fn notifications(edits: &Edits<'_>) {
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
pub(super) async fn sources(edits: &Edits<'_>) {
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
