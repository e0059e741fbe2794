//! The API over HTTP: signatures, faults, and the client.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use reeve_clock::Clock;
use serde_json::{Map, Value};
use slbd::client::{Client, Created, Error, Signing};
use slbd::cloud::Rules;
use slbd::parameters::Parameters;
use slbd::server::{Fault, Ports, Rule, Server, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const ANY: std::net::SocketAddr =
    std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn server() -> Server {
    server_on(Ports::new(ANY, ANY))
}

fn server_on(ports: Ports) -> Server {
    let settings = Settings {
        rules: Rules {
            provision: jiff::SignedDuration::ZERO,
            lag: jiff::SignedDuration::ZERO,
            ..Rules::default()
        },
        keys: BTreeMap::from([("id".to_owned(), "secret".to_owned())]),
        file: None,
        clock: Clock::simulated(start(), 1),
    };
    Server::start_on(ports, settings).unwrap()
}

fn client_with(server: &Server, key: &str, secret: &str, clock: Clock) -> Client {
    let endpoint = format!("http://{}", server.api());
    Client::new(&endpoint, key, secret, "cn-loopback", clock).unwrap()
}

fn client(server: &Server) -> Client {
    client_with(server, "id", "secret", Clock::simulated(start(), 2))
}

fn http() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

fn create() -> Parameters {
    Parameters::action("CreateLoadBalancer")
}

fn code(result: Result<Created, Error>) -> String {
    match result {
        Err(Error::Refused { code, .. }) => code,
        other => panic!("{other:?}"),
    }
}

fn fault(server: &Server, action: &str, fault: Fault) {
    let rule = Rule {
        action: Some(action.to_owned()),
        skip: 0,
        times: Some(1),
        fault,
    };
    assert!(server.world().add_fault(rule));
}

#[tokio::test]
async fn both_signatures_are_accepted() {
    let server = server();
    for (signing, seed) in [(Signing::Acs3, 2), (Signing::Version1, 3)] {
        let clock = Clock::simulated(start(), seed);
        let client = client_with(&server, "id", "secret", clock).signing(signing);
        // Characters that need encoding, in names and values.
        let mut call = create().with("LoadBalancerName", "a-b.c/ü");
        call.set_tags([("key with * and ~", "a+b=c&d %"), ("é", "/")]);
        let made: Created = client.call(call).await.unwrap();
        let shown = client.attributes(&made.load_balancer_id).await.unwrap();
        assert_eq!(shown.load_balancer_name, "a-b.c/ü");
        let tags = client.tags(&made.load_balancer_id).await.unwrap();
        assert_eq!(tags[0].tag_value, "a+b=c&d %");
    }
}

#[tokio::test]
async fn a_wrong_secret_or_key_is_refused() {
    let server = server();
    for signing in [Signing::Acs3, Signing::Version1] {
        let clock = || Clock::simulated(start(), 3);
        let wrong = client_with(&server, "id", "other", clock()).signing(signing);
        assert_eq!(code(wrong.call(create()).await), "SignatureDoesNotMatch");
        let unknown = client_with(&server, "unknown", "secret", clock()).signing(signing);
        assert_eq!(
            code(unknown.call(create()).await),
            "InvalidAccessKeyId.NotFound"
        );
    }
    assert!(
        client(&server)
            .balancers(Parameters::default())
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn an_old_request_and_a_used_nonce_are_refused() {
    let server = server();
    for signing in [Signing::Acs3, Signing::Version1] {
        let late: Timestamp = "2026-01-01T00:15:01Z".parse().unwrap();
        let late = client_with(&server, "id", "secret", Clock::simulated(late, 4));
        let refused = late.signing(signing).call(create()).await;
        assert_eq!(code(refused), "InvalidTimeStamp.Expired");
        // The same seed gives the same nonces.
        let seed = if signing == Signing::Acs3 { 5 } else { 6 };
        let same = || client_with(&server, "id", "secret", Clock::simulated(start(), seed));
        let _: Created = same().signing(signing).call(create()).await.unwrap();
        let refused = same().signing(signing).call(create()).await;
        assert_eq!(code(refused), "SignatureNonceUsed");
    }
}

#[tokio::test]
async fn a_request_without_a_signature_is_refused() {
    let server = server();
    let http = http();
    let url = format!(
        "http://{}/?Action=DescribeLoadBalancers&Version=2014-05-15",
        server.api()
    );
    let answer = http.get(&url).send().await.unwrap();
    assert_eq!(answer.status(), 400);
    let body: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    assert_eq!(body["Code"], "MissingParameter");
    assert_eq!(body["RequestId"].as_str().unwrap().len(), 36);
    assert!(server.world().calls().is_empty());
}

#[tokio::test]
async fn a_lost_answer_of_a_creation_is_repaired_by_its_token() {
    let server = server();
    let client = client(&server);
    let call = create().with("ClientToken", "one");
    fault(&server, "CreateLoadBalancer", Fault::LoseAnswer);
    let lost: Error = client.call::<Created>(call.clone()).await.unwrap_err();
    assert!(lost.is_lost(), "{lost}");
    let made: Created = client.call(call.clone()).await.unwrap();
    let again: Created = client.call(call).await.unwrap();
    assert_eq!(made, again);
    let all = client.balancers(Parameters::default()).await.unwrap();
    assert_eq!(all.len(), 1);
    let applied: Vec<bool> = server
        .world()
        .calls()
        .iter()
        .map(|call| call.applied)
        .collect();
    assert_eq!(applied, [true; 4]);
}

#[tokio::test]
async fn faults_do_what_they_say() {
    let server = server();
    let client = client(&server).timeout(Duration::from_millis(300));
    let count = async || client.balancers(Parameters::default()).await.unwrap().len();
    let action = "CreateLoadBalancer";
    for (wrong, lost, made) in [
        (Fault::LoseRequest, true, 0),
        (Fault::HoldRequest, true, 0),
        (Fault::HoldAnswer, true, 1),
        (Fault::LoseAnswer, true, 2),
        (Fault::Throttle, false, 2),
        (
            Fault::Error {
                status: 503,
                code: "ServiceUnavailable".to_owned(),
            },
            true,
            2,
        ),
        (Fault::Partial, true, 2),
    ] {
        fault(&server, action, wrong.clone());
        let error = client.call::<Created>(create()).await.unwrap_err();
        assert_eq!(error.is_lost(), lost, "{wrong:?}: {error}");
        assert_eq!(count().await, made, "{wrong:?}");
        assert_eq!(error.is_throttled(), wrong == Fault::Throttle);
    }
    fault(&server, action, Fault::Delay { millis: 1 });
    let made: Created = client.call(create()).await.unwrap();
    assert_eq!(count().await, 3);
    fault(&server, "DeleteLoadBalancer", Fault::Partial);
    let delete = Parameters::action("DeleteLoadBalancer");
    let delete = delete.with("LoadBalancerId", &made.load_balancer_id);
    assert!(client.run(delete.clone()).await.unwrap_err().is_internal());
    assert_eq!(count().await, 3);
    client.run(delete.clone()).await.unwrap();
    assert!(client.run(delete).await.unwrap_err().is_not_found());
    assert_eq!(count().await, 2);
}

#[tokio::test]
async fn the_client_reads_all_pages() {
    let server = server();
    let client = client(&server);
    let mut made = Vec::new();
    for _ in 0..205 {
        let one: Created = client.call(create()).await.unwrap();
        made.push(one.load_balancer_id);
    }
    let found = client.balancers(Parameters::default()).await.unwrap();
    let found: Vec<String> = found.into_iter().map(|one| one.load_balancer_id).collect();
    assert_eq!(found, made);
}

#[tokio::test]
async fn absence_is_seen_for_every_kind_of_object() {
    let server = server();
    let client = client(&server);
    let made: Created = client.call(create()).await.unwrap();
    let lb = &made.load_balancer_id;
    assert!(
        client
            .attributes("lb-none")
            .await
            .unwrap_err()
            .is_not_found()
    );
    assert!(
        client
            .listeners("lb-none")
            .await
            .unwrap_err()
            .is_not_found()
    );
    assert!(client.group("rsp-none").await.unwrap_err().is_not_found());
    assert!(
        client
            .access_list("acl-none")
            .await
            .unwrap_err()
            .is_not_found()
    );
    let stop = Parameters::action("StopLoadBalancerListener")
        .with("LoadBalancerId", lb)
        .with("ListenerPort", 80);
    assert!(client.run(stop.clone()).await.unwrap_err().is_not_found());
    // A value that is not valid is something else, under the same code.
    let invalid = client.run(stop.with("ListenerPort", 0)).await.unwrap_err();
    assert_eq!(invalid.code(), Some("InvalidParameter"));
    assert!(!invalid.is_not_found());
}

#[tokio::test]
async fn the_admin_port_takes_faults_and_shows_calls() {
    let server = server();
    let client = client(&server);
    let http = http();
    let at = |path: &str| format!("http://{}{path}", server.admin());
    let rule = r#"{"action":"CreateLoadBalancer","skip":1,"times":1,"fault":"error","status":500,"code":"InternalError"}"#;
    let set = http.post(at("/faults")).body(rule).send().await.unwrap();
    assert_eq!(set.status(), 200);
    let _: Created = client.call(create()).await.unwrap();
    assert!(
        client
            .call::<Created>(create())
            .await
            .unwrap_err()
            .is_internal()
    );
    let _: Created = client.call(create()).await.unwrap();
    let calls = http
        .get(at("/calls"))
        .send()
        .await
        .unwrap()
        .bytes()
        .await
        .unwrap();
    let calls: Vec<Map<String, Value>> = serde_json::from_slice(&calls).unwrap();
    let refused: Vec<&Value> = calls.iter().map(|call| &call["refused"]).collect();
    assert_eq!(
        refused,
        [&Value::Null, &Value::from("InternalError"), &Value::Null]
    );
    let page = http.get(at("/calls?after=1&limit=1")).send().await.unwrap();
    let page: Vec<Map<String, Value>> =
        serde_json::from_slice(&page.bytes().await.unwrap()).unwrap();
    assert_eq!(page.len(), 1);
    assert_eq!(page[0]["number"], 2);
    for query in ["limit=0", "limit=10001", "after=x", "before=1"] {
        let wrong = http.get(at(&format!("/calls?{query}"))).send();
        assert_eq!(wrong.await.unwrap().status(), 400, "{query}");
    }
    let long = rule.replace("InternalError", &"x".repeat(4096));
    let long = http.post(at("/faults")).body(long).send().await.unwrap();
    assert_eq!(long.status(), 413);
    let many: BTreeMap<String, &str> = (0..10_001)
        .map(|n| (format!("i-{n}"), "127.77.0.1"))
        .collect();
    let many = serde_json::to_string(&many).unwrap();
    let many = http.put(at("/instances")).body(many).send().await.unwrap();
    assert_eq!(many.status(), 400);
    let none = http.get(at("/dataplane")).send().await.unwrap();
    assert_eq!(none.status(), 404);
    let wrong = http.post(at("/faults")).body("{}").send().await.unwrap();
    assert_eq!(wrong.status(), 400);
    let instances = http.put(at("/instances")).body(r#"{"i-1":"127.77.0.1"}"#);
    assert_eq!(instances.send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_parameter_that_comes_twice_is_refused() {
    let server = server();
    let http = http();
    let url = format!("http://{}/?Action=A&Action=B", server.api());
    let body = http.get(&url).send().await.unwrap().bytes().await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["Code"], "InvalidParameter");
}

/// The whole answer to `request`, and the end of its connection.
async fn exchange(address: std::net::SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_given_up() {
    let ports = Ports::new(ANY, ANY).body_timeout(Duration::from_millis(100));
    let server = server_on(ports);
    let half = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf";
    let patience = Duration::from_secs(60);
    for address in [server.api(), server.admin()] {
        let answer = tokio::time::timeout(patience, exchange(address, half)).await;
        let answer = answer.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(answer.contains("did not arrive within 100ms"), "{answer}");
    }
    // The answers of the API are JSON, and no such request is a call.
    let long = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2000000\r\n\r\n";
    let answer = exchange(server.api(), long).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["Code"], "RequestTooLarge");
    assert!(server.world().calls().is_empty());
    let _: Created = client(&server).call(create()).await.unwrap();
}
