//! The client this crate builds, over real sockets.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Config;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_core::params::ListParams;
use reeve_apiserver::rbac::User;
use reeve_apiserver::{ApiServer, Serving};
use reeve_controller::client::connect::{Options, connect};
use reeve_controller::{Client, Metrics, ObjectKey};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::time::timeout;

async fn configuration(kubeconfig: &str) -> Config {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_uses_https_sends_its_user_agent_and_counts_requests() {
    let server = ApiServer::builder().start().await.unwrap();
    let serving = server.serve_tls(([127, 0, 0, 1], 0).into()).await.unwrap();
    let metrics = Metrics::new();
    let options = Options::new().user_agent("greeter/1.2").metrics(&metrics);
    let client =
        Client::new(connect(configuration(&serving.kubeconfig()).await, &options).unwrap());
    client
        .list::<ConfigMap>(None, &ListParams::default())
        .await
        .unwrap();
    let missing = client
        .get::<ConfigMap>(&ObjectKey::namespaced("default", "none"))
        .await;
    assert!(missing.unwrap_err().is_not_found());
    let requests = server.requests().all();
    assert!(
        requests
            .iter()
            .all(|request| request.agent == "greeter/1.2"),
        "{requests:?}"
    );
    let text = metrics.encode();
    let counted = |code: &str| {
        let label =
            format!("rest_client_requests_total{{code=\"{code}\",method=\"GET\",host=\"127.0.0.1:");
        text.lines()
            .any(|line| line.starts_with(&label) && line.ends_with(" 1"))
    };
    assert!(counted("200") && counted("404"), "{text}");
}

/// The kubelet renews the mounted files of a ServiceAccount. They are read again after about a minute of real time,
/// because the clock is kube-client's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_token_and_a_new_authority_of_the_cluster_are_used_within_minutes() {
    let server = ApiServer::builder()
        .token("first", User::new("one", [""; 0]))
        .token("second", User::new("two", [""; 0]));
    let server = server.start().await.unwrap();
    let directory = std::env::temp_dir().join(format!("reeve-rotation-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (authority, token) = (directory.join("ca.crt"), directory.join("token"));
    let mount = |serving: &Serving, secret: &str| {
        std::fs::write(&authority, serving.certificate_authority().unwrap()).unwrap();
        std::fs::write(&token, secret).unwrap();
    };
    let address = ([127, 0, 0, 1], reeve_apiserver::free_port().unwrap()).into();
    let serving = server.serve_tls(address).await.unwrap();
    mount(&serving, "first");
    // The result of `Config::incluster` for the files of a Pod.
    let mut config = Config::new(serving.url().parse().unwrap());
    config.root_cert_file = Some(authority.clone());
    config.auth_info.token_file = Some(token.to_str().unwrap().to_owned());
    let client = Client::new(connect(config, &Options::new()).unwrap());
    let key = ObjectKey::namespaced("default", "none");
    let asker = async || {
        let error = client.get::<ConfigMap>(&key).await.unwrap_err();
        error.is_not_found().then_some(())?;
        Some(server.requests().all().pop()?.user)
    };
    assert_eq!(asker().await.as_deref(), Some("one"));

    serving.stop().await;
    // With another authority.
    let serving = server.serve_tls(address).await.unwrap();
    assert_eq!(asker().await, None, "the server is not trusted");
    mount(&serving, "second");
    let renewed = async {
        while asker().await.as_deref() != Some("two") {
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    };
    timeout(Duration::from_secs(300), renewed).await.unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_connection_certainly_sent_nothing() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let config = Config::new(format!("http://{address}").parse().unwrap());
    let client = Client::new(connect(config, &Options::new()).unwrap());
    let mut map = ConfigMap::default();
    map.metadata.namespace = Some("default".into());
    let error = client.create(&map).await.unwrap_err();
    assert!(!error.is_ambiguous(), "{error}");
    assert!(
        error.to_string().contains("could not be reached"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_connection_breaks_the_result_of_its_request_is_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let peer = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = [0; 1024];
        let read = stream.read(&mut bytes).await.unwrap();
        assert!(read > 0);
    });
    let config = Config::new(format!("http://{address}").parse().unwrap());
    let client = Client::new(connect(config, &Options::new()).unwrap());
    let mut map = ConfigMap::default();
    map.metadata.namespace = Some("default".into());
    let error = timeout(Duration::from_secs(20), client.create(&map))
        .await
        .unwrap()
        .unwrap_err();
    assert!(error.is_ambiguous(), "{error}");
    peer.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_retries_nothing_by_itself() {
    let server = ApiServer::builder().start().await.unwrap();
    let serving = server.serve(([127, 0, 0, 1], 0).into()).await.unwrap();
    let config = configuration(&serving.kubeconfig()).await;
    let client = Client::new(connect(config, &Options::new()).unwrap());
    let rule = reeve_apiserver::faults::Rule::new().status(503, "not now");
    server.faults().add(rule);
    let error = client
        .list::<ConfigMap>(None, &ListParams::default())
        .await
        .unwrap_err();
    assert_eq!(error.status().unwrap().code, 503);
    assert_eq!(server.requests().count("list", "configmaps"), 1);
}

/// A process that exits because it lost its lease may have a write in flight that the network delays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undelivered_requests_are_discarded_when_a_process_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let process = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    process.spawn(async move {
        let config = Config::new(format!("http://{address}").parse().unwrap());
        let client = Client::new(connect(config, &Options::new()).unwrap());
        let mut map = ConfigMap::default();
        map.metadata.name = Some("a".into());
        map.metadata.namespace = Some("default".into());
        // More than the buffers on the way can hold; the other end does not read.
        map.data = Some([("key".into(), "x".repeat(16 << 20))].into());
        client.create(&map).await
    });
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut read = vec![0; 1024];
    stream.read_exact(&mut read).await.unwrap();
    process.shutdown_background();
    let end = timeout(Duration::from_secs(10), stream.read_to_end(&mut read)).await;
    let error = end.expect("closed").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}
