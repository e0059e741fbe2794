//! The levels of the log, changed at the metrics server.

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use reeve_controller::options::LogOptions;
use tokio::net::TcpStream;
use tracing_subscriber::prelude::*;

use super::client::read;
use super::*;

/// The code and the text of an answer.
async fn put(address: SocketAddr, path: &str, host: &str, body: &'static str) -> (u16, String) {
    put_by(None, address, path, host, body).await
}

/// As [`put`], with a token.
async fn put_by(
    token: Option<&str>,
    address: SocketAddr,
    path: &str,
    host: &str,
    body: &'static str,
) -> (u16, String) {
    let mut request = http::Request::put(path).header("host", host);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    let driving = tokio::spawn(connection);
    let answer = read(sender.send_request(request).await.unwrap()).await;
    driving.abort();
    answer.unwrap()
}

#[tokio::test]
async fn a_put_changes_the_levels_of_the_log_for_a_time() {
    let cluster = Cluster::in_process().await;
    let mut options = LogOptions::default();
    options.log_level = Some("warn".into());
    let subscriber = tracing_subscriber::registry().with(options.layer("info"));
    let _guard = tracing::subscriber::set_default(subscriber);
    let manager = cluster
        .manager()
        .metrics_server(MetricsServer::at(anywhere()))
        .log_levels(options.levels().unwrap())
        .build()
        .await
        .unwrap();
    let address = manager.metrics_address().unwrap();
    let running = cluster.start(&manager);
    let shown = async |query: &str| {
        let path = format!("/debug/log{query}");
        get(address, &path, &[], None).await.unwrap().body
    };
    assert_eq!(shown("").await, "warn\n");
    let changed = put(address, "/debug/log?for=10m", "localhost", "error\n").await;
    let text = "error\nfor another 600 s, then warn\n";
    assert_eq!(changed, (200, text.to_owned()));
    let document: Value = serde_json::from_str(&shown("?format=json").await).unwrap();
    assert_eq!(
        (&document["levels"], &document["base"]),
        (&json!("error"), &json!("warn"))
    );
    assert!(document["secondsLeft"].as_u64().unwrap() <= 600);
    let changed = put(address, "/debug/log?for=1s", "localhost", "error").await;
    assert_eq!(changed.0, 200);
    cluster
        .eventually("the levels fall back", async || {
            let levels = shown("").await;
            if levels == "warn\n" {
                Ok(())
            } else {
                Err(levels)
            }
        })
        .await;
    let refused = put(address, "/debug/log", "localhost", "loud").await;
    let problem = "\"loud\" is not a level; use for example debug, or info,reeve_informer=debug\n";
    assert_eq!(refused, (400, problem.to_owned()));
    let long = put(address, "/debug/log?for=48h", "localhost", "debug").await;
    assert_eq!(long.0, 400);
    let elsewhere = put(address, "/debug/log", "evil.example.com", "debug").await;
    assert_eq!(elsewhere.0, 403);
    assert_eq!(shown("").await, "warn\n");
    running.end().await;
}

#[tokio::test]
async fn a_put_to_a_protected_server_needs_the_verb_put() {
    let setup = Setup::new().server(Server::BuiltIn);
    let cluster = setup.api_server(reeve_apiserver::Builder::rbac);
    let cluster = cluster.cluster().await.unwrap();
    // The scraper may get /metrics, and the greeter put /debug/log.
    let [scraper, stranger, greeter] = tokens(&cluster).await;
    let rule = json!({"nonResourceURLs": ["/debug/log"], "verbs": ["put"]});
    let role = json!({"metadata": {"name": "log"}, "rules": [rule]});
    cluster.create::<ClusterRole>(role).await;
    let account = json!({"kind": "ServiceAccount", "name": "greeter", "namespace": "default"});
    let to = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "log"});
    let binding = json!({"metadata": {"name": "log"}, "roleRef": to, "subjects": [account]});
    cluster.create::<ClusterRoleBinding>(binding).await;

    let mut options = LogOptions::default();
    options.log_level = Some("warn".into());
    let subscriber = tracing_subscriber::registry().with(options.layer("info"));
    let _guard = tracing::subscriber::set_default(subscriber);
    let manager = cluster
        .manager()
        .metrics_server(MetricsServer::at(anywhere()).protected())
        .log_levels(options.levels().unwrap())
        .build()
        .await
        .unwrap();
    let address = manager.metrics_address().unwrap();
    let running = cluster.start(&manager);
    let changed = async |token: Option<&str>| {
        put_by(token, address, "/debug/log", "localhost", "error")
            .await
            .0
    };
    assert_eq!(changed(None).await, 401);
    assert_eq!(changed(Some(&stranger)).await, 403);
    assert_eq!(changed(Some(&scraper)).await, 403);
    assert_eq!(options.levels().unwrap().current(), "warn");
    assert_eq!(changed(Some(&greeter)).await, 200);
    assert_eq!(options.levels().unwrap().current(), "error");
    let bearer = format!("Bearer {greeter}");
    let shown = get(address, "/debug/log", &[("authorization", &bearer)], None).await;
    assert_eq!(shown.unwrap().code, 403, "get is another verb");
    running.end().await;
}
