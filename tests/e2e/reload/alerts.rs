//! Edits of the triggers, and of what alerts do to blocks.

use std::net::SocketAddr;
use std::time::Duration;

use ipblock_operator::config::keys;
use ipblock_operator::target::object_name;
use serde_json::{Value, json};

use super::Edits;
use crate::process::{free_port, http};
use crate::triggers::{alert, alert_without_duration};
use crate::world::until;

/// Alerts, which bring no block to the gateway of this part: they are for an address that is allowed.
pub(super) async fn triggers(edits: &Edits<'_>) {
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
pub(super) async fn endings(edits: &Edits<'_>) {
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
