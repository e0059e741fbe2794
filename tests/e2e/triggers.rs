//! Alerts become blocks; a request that is not a proper alert becomes an error and nothing else.

use std::net::SocketAddr;
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::process::{answer, free_port, get, http};
use crate::world::{World, until};

on_both_servers!(
    a_grafana_alert_bans_and_repeats_are_debounced,
    an_alert_over_the_longest_ban_is_banned_for_the_longest,
    a_block_of_a_trigger_is_deleted_when_it_was_kept_for_long_enough,
    requests_that_are_no_alert_make_no_object,
    bodies_past_the_limit_are_refused_before_they_are_held,
    slow_senders_are_cut_off_and_hold_up_no_other,
    bearer_tokens_are_asked_for,
    signatures_are_checked_against_the_body,
    while_the_api_server_is_down_the_sender_must_retry,
);

const PATH: &str = "/trigger/grafana";

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

pub(crate) fn alert(ip: &str) -> Vec<u8> {
    payload(&json!({"alertname": "scan", "ip": ip, "duration": "10m"}))
}

pub(crate) fn alert_without_duration(ip: &str) -> Vec<u8> {
    payload(&json!({"alertname": "scan", "ip": ip}))
}

fn payload(labels: &Value) -> Vec<u8> {
    let alert = json!({"status": "firing", "labels": labels, "annotations": {"description": "too many requests"}, "startsAt": "2026-01-01T00:00:00Z",
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

async fn an_alert_over_the_longest_ban_is_banned_for_the_longest(world: World) {
    let _operator = world
        .operator_with("ipblock-operator-0", &["--insecure-triggers"])
        .await;
    // In force before anything listens.
    world.configure(json!({"maxDuration": "45m"})).await;
    let trigger = listen(&world).await;
    let long = payload(&json!({"alertname": "scan", "ip": "1.2.3.4", "duration": "999h"}));
    let sent = http(trigger, "POST", PATH, &[], &long).await;
    assert!(matches!(sent, Some((200, _))), "{sent:?}");
    let block = world.phase("ipblock-6465ec74397c9126", "active").await;
    assert_eq!(block["spec"]["duration"], "45m");
    assert_eq!(block["status"]["banCount"], 1, "{block:#}");
}

async fn a_block_of_a_trigger_is_deleted_when_it_was_kept_for_long_enough(world: World) {
    let _operator = world
        .operator_with("ipblock-operator-0", &["--insecure-triggers"])
        .await;
    let trigger = listen(&world).await;
    world.configure(json!({"retention": "2s"})).await;
    let short = payload(&json!({"alertname": "scan", "ip": "1.2.3.4", "duration": "1s"}));
    let sent = http(trigger, "POST", PATH, &[], &short).await;
    assert!(matches!(sent, Some((200, _))), "{sent:?}");
    assert_eq!(world.blocks().await.len(), 1);
    // With the rights of the manifests, delete among them.
    world
        .until("it is deleted", async |world| {
            world.blocks().await.is_empty()
        })
        .await;
    world.enforces(&[]).await;
}

async fn requests_that_are_no_alert_make_no_object(world: World) {
    let _operator = world
        .operator_with("ipblock-operator-0", &["--insecure-triggers"])
        .await;
    let trigger = listen(&world).await;
    let half = alert("203.0.113.1");
    let cases: [(&str, &str, &[u8], u16); 9] = [
        ("GET", PATH, b"", 405),
        ("DELETE", PATH, b"", 405),
        ("POST", "/elsewhere", b"{}", 404),
        ("POST", PATH, b"", 400),
        ("POST", PATH, b"{not json", 400),
        ("POST", PATH, &half[..half.len() / 2], 400),
        ("POST", PATH, b"\"a text\"", 400),
        ("POST", PATH, br#"{"alerts": "none"}"#, 400),
        ("POST", PATH, b"\xff\xfe\x00", 400),
    ];
    for (method, path, body, wanted) in cases {
        let (status, said) = http(trigger, method, path, &[], body)
            .await
            .expect("an answer");
        let body = String::from_utf8_lossy(body);
        assert_eq!(status, wanted, "{method} {path} {body}: {said}");
    }
    for ip in [
        "example.org",
        "203.0.113.0/24",
        "127.0.0.1&ip=203.0.113.1",
        "1.2.3.256",
    ] {
        let (status, said) = http(trigger, "POST", PATH, &[], &alert(ip))
            .await
            .expect("an answer");
        assert_eq!(status, 400, "{ip}: {said}");
        assert!(
            said.contains("rejected") && said.contains(ip),
            "the answer names what was no address: {said}"
        );
    }
    assert!(world.blocks().await.is_empty());
}

async fn bodies_past_the_limit_are_refused_before_they_are_held(world: World) {
    let _operator = world
        .operator_with("ipblock-operator-0", &["--insecure-triggers"])
        .await;
    let trigger = listen(&world).await;
    // Announced: refused without a byte of it.
    let mut announced = TcpStream::connect(trigger).await.expect("it listens");
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 1048577\r\n\r\n"
    );
    announced
        .write_all(head.as_bytes())
        .await
        .expect("it is read");
    let (status, said) = answer(&mut announced).await.expect("an answer");
    assert_eq!(status, 413, "{said}");
    // Not announced: refused with the first byte too many. It begins with a good alert, which must not count.
    let mut chunked = TcpStream::connect(trigger).await.expect("it listens");
    let mut body = alert("203.0.113.2");
    body.resize(1024 * 1024 + 1, b' ');
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n",
        body.len()
    );
    chunked
        .write_all(head.as_bytes())
        .await
        .expect("it is read");
    chunked.write_all(&body).await.expect("it is read");
    let (status, said) = answer(&mut chunked).await.expect("an answer");
    assert_eq!(status, 413, "{said}");
    assert!(world.blocks().await.is_empty());
    // A sender that is as large as is allowed is served.
    body.truncate(1024 * 1024);
    let (status, said) = http(trigger, "POST", PATH, &[], &body)
        .await
        .expect("an answer");
    assert_eq!(status, 200, "{said}");
    assert_eq!(world.blocks().await.len(), 1);
}

async fn slow_senders_are_cut_off_and_hold_up_no_other(world: World) {
    let _operator = world
        .operator_with("ipblock-operator-0", &["--insecure-triggers"])
        .await;
    let trigger = listen(&world).await;
    let mut slow = tokio::task::JoinSet::new();
    for n in 0..20 {
        slow.spawn(trickle(trigger, alert(&format!("203.0.113.{n}"))));
    }
    slow.spawn(half_a_header(trigger));
    let (status, said) = http(trigger, "POST", PATH, &[], &alert("1.2.3.4"))
        .await
        .expect("an answer");
    assert_eq!(status, 200, "{said}");
    world.phase("ipblock-6465ec74397c9126", "active").await;
    assert!(
        slow.try_join_next().is_none(),
        "the slow ones were at it all the time"
    );
    for status in slow.join_all().await {
        // After a 503 a sender whose network was slow repeats the request.
        assert!(matches!(status, None | Some(408 | 503)), "{status:?}");
    }
    assert_eq!(world.blocks().await.len(), 1, "nothing was made of a part");
}

/// Sends one byte of `body` after another, far apart, until it is answered: the status, `None` when cut off.
async fn trickle(address: SocketAddr, body: Vec<u8>) -> Option<u16> {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    let (mut reader, mut writer) = stream.split();
    let mut pace = tokio::time::interval(Duration::from_millis(500));
    let writing = async {
        for byte in body {
            pace.tick().await;
            if writer.write_all(&[byte]).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = writing => None,
        status = status_line(&mut reader) => status,
    }
}

/// Begins a request and goes silent.
async fn half_a_header(address: SocketAddr) -> Option<u16> {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let head = format!("POST {PATH} HTTP/1.1\r\nhost: x\r\nx-slow: ");
    stream.write_all(head.as_bytes()).await.ok()?;
    status_line(&mut stream).await
}

/// The status of the answer within a minute; `None` when the connection ends without one.
async fn status_line(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Option<u16> {
    use tokio::io::AsyncReadExt as _;
    let mut start = [0; 12];
    let read = tokio::time::timeout(Duration::from_secs(60), stream.read_exact(&mut start)).await;
    read.expect("slow senders are cut off").ok()?;
    std::str::from_utf8(&start[9..]).ok()?.parse().ok()
}

async fn bearer_tokens_are_asked_for(world: World) {
    let token = world.file("token", "s3cr3t\n");
    let _operator = world.operator("ipblock-operator-0").await;
    let trigger = listen_with(&world, &format!("  bearerTokenFile: {}\n", token.display())).await;
    for header in [
        None,
        Some(("authorization", "Bearer wrong")),
        Some(("authorization", "Basic s3cr3t")),
    ] {
        let headers: Vec<(&str, &str)> = header.into_iter().collect();
        let (status, _) = http(trigger, "POST", PATH, &headers, &alert("1.2.3.4"))
            .await
            .expect("an answer");
        assert_eq!(status, 401, "{headers:?}");
    }
    assert!(world.blocks().await.is_empty());
    let right = [("authorization", "Bearer s3cr3t")];
    let (status, body) = http(trigger, "POST", PATH, &right, &alert("1.2.3.4"))
        .await
        .expect("an answer");
    assert_eq!(status, 200, "{body}");
    world.phase("ipblock-6465ec74397c9126", "active").await;
}

async fn signatures_are_checked_against_the_body(world: World) {
    let secret = world.file("hmac", "gr4f4n4\n");
    let _operator = world.operator("ipblock-operator-0").await;
    let trigger = listen_with(&world, &format!("  hmacSecretFile: {}\n", secret.display())).await;
    let sign = |secret: &str, body: &[u8]| {
        let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes any key");
        let bytes = mac.chain_update(body).finalize().into_bytes();
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let body = alert("1.2.3.4");
    let header = "x-grafana-alerting-signature";
    for (case, signature) in [
        ("none", None),
        ("another secret", Some(sign("wrong", &body))),
        ("another body", Some(sign("gr4f4n4", &alert("203.0.113.3")))),
        ("no signature at all", Some("zz".into())),
    ] {
        let headers: Vec<(&str, &str)> = signature.iter().map(|text| (header, &**text)).collect();
        let (status, said) = http(trigger, "POST", PATH, &headers, &body)
            .await
            .expect("an answer");
        assert_eq!(status, 401, "{case}: {said}");
    }
    assert!(world.blocks().await.is_empty());
    let right = sign("gr4f4n4", &body);
    let (status, said) = http(trigger, "POST", PATH, &[(header, &right)], &body)
        .await
        .expect("an answer");
    assert_eq!(status, 200, "{said}");
    world.phase("ipblock-6465ec74397c9126", "active").await;

    // The secret is gone for a moment: no request is accepted, and the sender has to repeat it.
    std::fs::remove_file(&secret).expect("the secret's file");
    let other = alert("203.0.113.4");
    let signature = sign("gr4f4n4", &other);
    let (status, said) = http(trigger, "POST", PATH, &[(header, &signature)], &other)
        .await
        .expect("an answer");
    assert_eq!(status, 503, "{said}");
    assert_eq!(world.blocks().await.len(), 1);
}

async fn while_the_api_server_is_down_the_sender_must_retry(mut world: World) {
    let mut operator = world
        .operator_with("ipblock-operator-0", &["--insecure-triggers"])
        .await;
    let trigger = listen(&world).await;
    let case = async {
        world.cluster.stop_api();
        let (status, said) = http(trigger, "POST", PATH, &[], &alert("1.2.3.4"))
            .await
            .expect("an answer");
        assert_eq!(status, 503, "{said}");
        world.cluster.start_api().await;
        world.client = world.cluster.client();
        assert!(
            world.blocks().await.is_empty(),
            "what was not accepted is not made afterwards"
        );
        until("the sender's retry works", async || {
            let answer = http(trigger, "POST", PATH, &[], &alert("1.2.3.4")).await;
            matches!(answer, Some((200, _)))
        })
        .await;
        let made: Value = world.phase("ipblock-6465ec74397c9126", "active").await;
        assert_eq!(made["status"]["banCount"], 1);
    };
    // An API server that takes more than ten seconds costs the leader its lease, and with it its process.
    tokio::select! {
        () = case => {}
        never = operator.process.kept_running() => match never {},
    }
}
