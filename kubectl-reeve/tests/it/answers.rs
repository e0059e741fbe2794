//! Answers that no manager of this version gives.

use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::plugin::{at, run};

/// A server that answers each request with the status and body that `answer` returns for its path, and stops with the test.
async fn server(answer: fn(&str) -> (u16, &'static str)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut request = vec![0; 4096];
            let length = connection.read(&mut request).await.unwrap_or_default();
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let path = request.split(' ').nth(1).unwrap_or_default();
            let (code, body) = answer(path.split('?').next().unwrap_or_default());
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {code} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            let _ = connection.write_all((head + body).as_bytes()).await;
        }
    });
    format!("http://{address}")
}

#[tokio::test]
async fn an_earlier_program_is_shown_as_far_as_it_goes() {
    let address = server(|path| match path {
        "/debug/queues" => (
            200,
            r#"{"queues": [{"name": "old", "ready": 3, "items": []}]}"#,
        ),
        "/debug/informers" => (200, r#"{"informers": []}"#),
        _ => (404, "404 not found\n"),
    })
    .await;
    let output = at(&address, &[]).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.text.contains("  old    3"), "{output:?}");
    let missing = "election\n  not served by this version of the program\n";
    assert!(output.text.contains(missing), "{output:?}");
}

#[tokio::test]
async fn each_refusal_says_what_to_do() {
    let refusing = [
        (server(|_| (401, "unauthorized\n")).await, "--token"),
        (
            server(|_| (403, "this page names objects\n")).await,
            "403): this page names objects",
        ),
        (server(|_| (500, "broken\n")).await, "status 500: broken"),
        (server(|_| (200, "<html>")).await, "not a report: <html>"),
        (
            "http://127.0.0.1:1".to_owned(),
            "nothing listens at http://127.0.0.1:1",
        ),
    ];
    for (address, text) in refusing {
        let output = at(&address, &[]).await;
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.text.contains(text), "{text}: {output:?}");
    }
}

#[tokio::test]
async fn a_line_that_names_no_program_and_a_missing_kubectl_are_errors() {
    let nowhere = Path::new("/nowhere");
    let output = run::<&str>(nowhere, &[]).await;
    assert_eq!(output.code, Some(1));
    assert!(
        output.errors.starts_with("error: no program named: "),
        "{output:?}"
    );
    let output = run(nowhere, &["deploy/web"]).await;
    assert_eq!(output.code, Some(1));
    assert!(
        output.errors.contains("kubectl is not in PATH"),
        "{output:?}"
    );
    assert_eq!(run(nowhere, &["--unknown"]).await.code, Some(2));
}
