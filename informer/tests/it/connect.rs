//! The client of `connect`, and the effect of kube-client's own retries on an informer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::client::Body;
use kube_client::client::retry::RetryPolicy;
use kube_client::{Client, Config};
use reeve_informer::connect;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::harness::{clock, run, seconds};

/// The answer to a request through a client, from a server whose first answer is 503 and whose second is 200, and the
/// number of requests.
async fn through(client: impl FnOnce(Config) -> Client) -> (u16, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let server = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap().to_lowercase();
            assert!(head.contains("user-agent: greeter/1.2\r\n"), "{head}");
            let status = match counted.fetch_add(1, Ordering::SeqCst) {
                0 => "503 Service Unavailable",
                _ => "200 OK",
            };
            let answer =
                format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let config = Config::new(url.parse().unwrap());
    assert!(config.default_retry, "kube-client's default");
    let request = Request::get("/version").body(Body::empty()).unwrap();
    let answer = client(config).send(request).await.unwrap();
    server.abort();
    (answer.status().as_u16(), requests.load(Ordering::SeqCst))
}

#[tokio::test]
async fn an_answer_of_503_comes_back_after_one_request() {
    let options = connect::Options::new().user_agent("greeter/1.2");
    let ours = through(|config| connect::connect(config, &options).unwrap()).await;
    assert_eq!(ours, (503, 1));
    // The same server and configuration, through kube-client's retrying client.
    let theirs = through(|mut config| {
        let agent = http::HeaderValue::from_static("greeter/1.2");
        config.headers.push((http::header::USER_AGENT, agent));
        Client::try_from(config).unwrap()
    });
    assert_eq!(theirs.await, (200, 2));
}

#[tokio::test(start_paused = true)]
async fn retries_below_the_informer_would_break_its_bound_of_120_requests_an_hour() {
    for retries in [false, true] {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        let busy = tower::service_fn(move |_: Request<Body>| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Response::builder().status(503).body(Body::empty()) }
        });
        let client = if retries {
            let layer = tower::retry::RetryLayer::new(RetryPolicy::server_retry());
            let service = tower::ServiceBuilder::new()
                .layer(layer)
                .map_err(tower::BoxError::from)
                .service(busy);
            Client::new(service, "default")
        } else {
            Client::new(busy, "default")
        };
        let informer = reeve_informer::SharedInformer::<ConfigMap>::builder(client)
            .clock(clock())
            .build();
        let running = run(informer);
        seconds(3600).await;
        let requests = requests.load(Ordering::SeqCst);
        assert_eq!(requests > 120, retries, "{requests} requests");
        running.stop().await;
    }
}
