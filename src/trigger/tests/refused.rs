//! Requests that are refused: too large, malformed, endless, or without credentials.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

#[tokio::test]
async fn what_is_malformed_or_too_much_is_refused_and_makes_no_object() {
    let world = World::new();
    let address = world.serve(&[insecure()]).await;
    let long = format!("{{\"alerts\":[],\"x\":\"{}\"}}", "x".repeat(1024 * 1024));
    let cases: [(&str, String, u16); 9] = [
        ("GET", String::new(), 405),
        ("DELETE", String::new(), 405),
        ("POST", String::new(), 400),
        ("POST", "not json".into(), 400),
        ("POST", "[]".into(), 400),
        ("POST", "{}".into(), 400),
        ("POST", r#"{"alerts":null}"#.into(), 400),
        ("POST", payload(&[alert("example.com")]).to_string(), 400),
        ("POST", long, 413),
    ];
    for (method, body, expected) in cases {
        let start: String = body.chars().take(60).collect();
        let (code, text) = world.send(address, method, &[], body).await;
        assert_eq!(code, expected, "{method} {start}: {text}");
    }
    assert!(world.blocks.names().is_empty());
    let (code, _) = world
        .send(
            address,
            "PUT",
            &[],
            payload(&[alert("192.0.2.1")]).to_string(),
        )
        .await;
    assert_eq!(code, 200);
}

#[tokio::test]
async fn a_body_without_announced_length_is_cut_at_the_limit() {
    let world = World::new();
    let address = world.serve(&[insecure()]).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = "POST /trigger/grafana HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
    for _ in 0..40 {
        if stream.write_all(&chunk).await.is_err() {
            break;
        }
    }
    let mut answer = vec![0; 64];
    let read = stream.read(&mut answer).await.unwrap_or(0);
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    // The server may also have closed before the request was written, which loses the answer.
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 413"),
        "{answer}"
    );
    assert!(world.blocks.names().is_empty());
}

#[tokio::test]
async fn a_body_that_never_ends_is_answered_with_503_in_time() {
    let world = World::with(inbound::limits().answer_timeout(Duration::from_millis(200)));
    let address = world.serve(&[insecure()]).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = "POST /trigger/grafana HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    let ended = tokio::time::timeout(Duration::from_secs(5), read).await;
    assert!(ended.is_ok(), "the connection must end");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert_eq!(world.metrics.answered_so_far("grafana", 503), 1);
}

#[tokio::test]
async fn senders_without_credentials_take_no_room_from_another_trigger() {
    let secret = std::env::temp_dir().join(format!("ipblock-{}-budget", std::process::id()));
    std::fs::write(&secret, "s3cr3t\n").unwrap();
    let file = secret.display();
    let world = World::new();
    let address = "127.0.0.1:0";
    let signed = definition(&format!(
        "{{name: signed, type: grafana, addr: '{address}', path: /signed, hmacSecretFile: {file}}}"
    ));
    let bearer = definition(&format!(
        "{{name: grafana, addr: '{address}', path: /trigger/grafana, bearerTokenFile: {file}}}"
    ));
    let address = world.serve(&[signed, bearer]).await;
    // Bodies that never end, of more bytes in all than all triggers share; the signature is checked at the end.
    let head = "POST /signed HTTP/1.1\r\nHost: x\r\nX-Grafana-Alerting-Signature: 00\r\nContent-Length: 1048576\r\n\r\n";
    let body = vec![b' '; 1024 * 1024 - 1];
    let mut open = Vec::new();
    let mut refused = 0;
    for _ in 0..18 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        // The server closes early when there is no room.
        refused += usize::from(stream.write_all(&body).await.is_err());
        open.push(stream);
    }
    let body = payload(&[alert("192.0.2.1")]).to_string();
    let right = [("authorization", "Bearer s3cr3t")];
    let (code, text) = world.send(address, "POST", &right, body).await;
    assert_eq!(code, 200, "{text}, {refused} refused");
    std::fs::remove_file(&secret).unwrap();
}

#[tokio::test]
async fn without_the_right_credentials_nothing_is_made() {
    let secret = std::env::temp_dir().join(format!("ipblock-{}-trigger", std::process::id()));
    std::fs::write(&secret, "s3cr3t\n").unwrap();
    let file = secret.display();
    let body = payload(&[alert("192.0.2.1")]).to_string();
    let world = World::new();

    let bearer = definition(&format!(
        "{{name: grafana, addr: '127.0.0.1:0', path: /trigger/grafana, bearerTokenFile: {file}}}"
    ));
    let address = world.serve(&[bearer]).await;
    for headers in [&[][..], &[("authorization", "Bearer wrong")]] {
        let (code, text) = world.send(address, "POST", headers, body.clone()).await;
        assert_eq!(code, 401);
        assert!(!text.contains("s3cr3t"));
    }
    assert!(world.blocks.names().is_empty());
    let right = [("authorization", "Bearer s3cr3t")];
    assert_eq!(
        world.send(address, "POST", &right, body.clone()).await.0,
        200
    );

    let hmac = definition(&format!(
        "{{name: grafana, addr: '127.0.0.1:0', path: /trigger/grafana, hmacSecretFile: {file}}}"
    ));
    let address = world.serve(&[hmac]).await;
    let vector = r#"{"status":"firing","alerts":[]}"#;
    let signature = "aecf38b515928abd5374263edc754ad9a32c22e099dc08b3210ca68ae45cbf30";
    let signed = [("x-grafana-alerting-signature", signature)];
    assert_eq!(world.send(address, "POST", &signed, vector).await.0, 200);
    assert_eq!(
        world.send(address, "POST", &signed, body.clone()).await.0,
        401
    );
    assert_eq!(world.send(address, "POST", &[], vector).await.0, 401);

    std::fs::remove_file(&secret).unwrap();
    assert_eq!(world.send(address, "POST", &signed, vector).await.0, 503);
}
