//! Alerts become blocks; what is no proper alert becomes an error and nothing else.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::process::{free_port, get, http};
use crate::world::World;

on_both_servers!(
    a_grafana_alert_bans_and_repeats_are_debounced,
    requests_that_are_no_alert_make_no_object,
    credentials_are_asked_for,
    while_the_api_server_is_down_the_sender_is_told_to_retry,
);

async fn listen(world: &World) -> SocketAddr {
    listen_with(world, "").await
}

async fn listen_with(world: &World, more: &str) -> SocketAddr {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let trigger =
        format!("- name: grafana\n  addr: \"{address}\"\n  path: /trigger/grafana\n{more}");
    world
        .configure(json!({"trigger": trigger, "defaultDuration": "30m"}))
        .await;
    world
        .until("the trigger listens", async move |_| {
            get(address, "/").await.is_some()
        })
        .await;
    address
}

fn alert(ip: &str) -> Vec<u8> {
    let alert = json!({"status": "firing", "labels": {"alertname": "scan", "ip": ip, "duration": "10m"},
        "annotations": {"description": "too many requests"}, "startsAt": "2026-01-01T00:00:00Z",
        "endsAt": "0001-01-01T00:00:00Z", "fingerprint": "f", "values": {"A": 22}, "valueString": ""});
    json!({"receiver": "ban", "status": "firing", "version": "1", "alerts": [alert]})
        .to_string()
        .into_bytes()
}

async fn a_grafana_alert_bans_and_repeats_are_debounced(world: World) {
    let _operator = world
        .operator_with("ipblock-operator-0", &["--insecure-triggers"])
        .await;
    let trigger = listen(&world).await;
    for _ in 0..3 {
        let (status, body) = http(
            trigger,
            "POST",
            "/trigger/grafana",
            &[("content-type", "application/json")],
            &alert("1.2.3.4"),
        )
        .await
        .expect("an answer");
        assert_eq!(status, 200, "{body}");
    }
    let block = world.phase("ipblock-6465ec74397c9126", "active").await;
    assert_eq!(block["spec"]["source"], "grafana");
    assert_eq!(block["status"]["banCount"], 1);
    world.enforces(&["1.2.3.4"]).await;
    assert_eq!(world.blocks().await.len(), 1);
}

async fn requests_that_are_no_alert_make_no_object(world: World) {
    let _operator = world
        .operator_with("ipblock-operator-0", &["--insecure-triggers"])
        .await;
    let trigger = listen(&world).await;
    let path = "/trigger/grafana";
    let huge = vec![b'x'; 2 << 20];
    let cases: [(&str, &str, &[u8], u16); 4] = [
        ("GET", path, b"", 405),
        ("POST", path, b"{not json", 400),
        ("POST", path, &huge, 413),
        ("POST", "/elsewhere", b"{}", 404),
    ];
    for (method, path, body, wanted) in cases {
        match http(trigger, method, path, &[], body).await {
            Some((status, answer)) => assert_eq!(status, wanted, "{method} {path}: {answer}"),
            // A server may close on a body it will not read, before this side has sent it all.
            None => assert_eq!(wanted, 413, "{method} {path} is answered"),
        }
    }
    let (_, answer) = http(trigger, "POST", path, &[], &alert("example.org"))
        .await
        .expect("an answer");
    assert!(
        answer.contains("rejected") && answer.contains("example.org"),
        "the answer names what was no address: {answer}"
    );
    assert!(world.blocks().await.is_empty());
}

async fn credentials_are_asked_for(world: World) {
    let token = world.file("token", "s3cr3t\n");
    let _operator = world.operator("ipblock-operator-0").await;
    let trigger = listen_with(&world, &format!("  bearerTokenFile: {}\n", token.display())).await;
    let path = "/trigger/grafana";
    for header in [None, Some(("authorization", "Bearer wrong"))] {
        let headers: Vec<(&str, &str)> = header.into_iter().collect();
        let (status, _) = http(trigger, "POST", path, &headers, &alert("1.2.3.4"))
            .await
            .expect("an answer");
        assert_eq!(status, 401, "{headers:?}");
    }
    assert!(world.blocks().await.is_empty());
    let right = [("authorization", "Bearer s3cr3t")];
    let (status, body) = http(trigger, "POST", path, &right, &alert("1.2.3.4"))
        .await
        .expect("an answer");
    assert_eq!(status, 200, "{body}");
    world.phase("ipblock-6465ec74397c9126", "active").await;
}

async fn while_the_api_server_is_down_the_sender_is_told_to_retry(mut world: World) {
    let _operator = world
        .operator_with("ipblock-operator-0", &["--insecure-triggers"])
        .await;
    let trigger = listen(&world).await;
    world.cluster.stop_api();
    let (status, _) = http(trigger, "POST", "/trigger/grafana", &[], &alert("1.2.3.4"))
        .await
        .expect("an answer");
    assert_eq!(status, 503);
    world.cluster.start_api().await;
    world.client = world.cluster.client();
    world
        .until("the sender's retry works", async move |_| {
            matches!(
                http(trigger, "POST", "/trigger/grafana", &[], &alert("1.2.3.4")).await,
                Some((200, _))
            )
        })
        .await;
    let made: Value = world.phase("ipblock-6465ec74397c9126", "active").await;
    assert_eq!(made["status"]["banCount"], 1);
}
