//! Takeovers through controllers and identities, changes of the guard itself, and stops and hangs of replicas.

use std::path::Path;

use preprod_guard::commands::{Access, Credentials, client, kubeconfig};
use reeve_clock::Clock;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use super::requests::{Attempt, Caller};
use super::world::{CONFIG, PATIENCE, World};

const PRE: Caller = ("hbox-pre", "system:authenticated");
const ADMIN: Caller = ("anna", "system:masters");
const PODS: &str = "/api/v1/namespaces/hbox/pods";
const OWN: &str = "/api/v1/namespaces/preprod-guard";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takeovers_and_stops_on_the_built_in_server() {
    if let Some(world) = World::built_in("guarded-built-in").await {
        guarded(world).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takeovers_and_stops_on_a_real_server() {
    if let Some(world) = World::real("guarded-real").await {
        guarded(world).await;
    }
}

fn set(name: &str) -> Value {
    let exists = json!({"matchExpressions": [{"key": "environment", "operator": "Exists"}]});
    let template = json!({
        "metadata": {"labels": {"environment": "pre"}},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    });
    json!({
        "metadata": {"name": name, "labels": {"environment": "pre"}},
        "spec": {"replicas": 0, "selector": exists, "template": template},
    })
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"environment": "production", "turn": "one"}},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "a", "image": "a"}]},
    })
}

async fn guarded(world: World) {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo.yaml");
    world
        .kubectl(&["apply", "-f", &demo.display().to_string()])
        .await;
    let flags = ["--tls-name=127.0.0.1", "--certificates-every=1"];
    let called = world.start("called", &[&flags[..], &["--linger=8"]].concat());
    let other = world.start("other", &flags);
    for guard in [&called, &other] {
        guard.until("caches synced").await;
    }
    world.install(&called, None).await;
    called.until("another certificate is in use").await;
    world.until_called().await;
    world.until_recorded(&called, true).await;
    takeovers(&world).await;

    // A replica that stops records until the API server has gone to another one.
    world.must("POST", PODS, pod("rolled")).await;
    called.signal("-TERM").await;
    called.until("stopping").await;
    let path = format!("{PODS}/rolled");
    let grace = json!({"gracePeriodSeconds": 0});
    world.must("DELETE", &path, grace).await;
    let end = Instant::now() + PATIENCE;
    loop {
        let list = world
            .must("GET", &format!("{OWN}/events"), Value::Null)
            .await;
        let mut events = list["items"].as_array().unwrap().iter();
        if events.any(|event| {
            event["reason"] == "ProductionObjectDeletion"
                && event["related"]["fieldPath"] == "pods/hbox/rolled"
        }) {
            break;
        }
        assert!(Instant::now() < end, "the record is lost: {}", called.log());
        sleep(Duration::from_millis(100)).await;
    }
    assert!(!other.log().contains("pods/hbox/rolled"), "{}", other.log());

    // A guard that hangs costs each object of a collection the second of the record.
    world.install(&other, None).await;
    world.until_recorded(&other, true).await;
    let names = ["one", "two", "three"];
    for name in names {
        world.must("POST", PODS, pod(name)).await;
    }
    other.signal("-STOP").await;
    let collection = format!("{PODS}?labelSelector=turn%3Done");
    let all = Attempt::new(
        "DELETE",
        collection.clone(),
        json!({"gracePeriodSeconds": 0}),
    );
    let answer = world.send(&all, Some(ADMIN)).await;
    assert_eq!(answer.code, 200, "{}", answer.message);
    let left = world.must("GET", &collection, Value::Null).await;
    assert_eq!(left["items"], json!([]));
    other.kill().await;
    called.kill().await;
    clients(&world).await;
    unready(&world).await;
    world.end().await;
}

/// With the authorities of client certificates, the webhook port answers a client that has one, and no other.
async fn clients(world: &World) {
    let (pki, authority) = (world.file("pki"), world.file("pki/ca.crt"));
    let flags = [
        format!("--tls={}", pki.display()),
        format!("--webhook-client-ca-file={}", authority.display()),
    ];
    let guard = world.start("closed", &flags.each_ref().map(String::as_str));
    guard.until("caches synced").await;
    let (certificate, key) = client(&pki, "kube-apiserver", None, &Clock::system()).unwrap();
    let access = Access {
        server: format!("https://{}", guard.address),
        authorities: std::fs::read_to_string(authority).unwrap(),
    };
    for (credentials, answered) in [
        (Credentials::Certificate { certificate, key }, true),
        (Credentials::Token("unknown".to_owned()), false),
    ] {
        let text = kubeconfig(&access, "server", "hbox", &credentials).unwrap();
        std::fs::write(world.file("server.yaml"), text).unwrap();
        let output = world
            .try_kubectl("server.yaml", &["get", "--raw", "/readyz"])
            .await;
        assert_eq!(output.status.success(), answered, "{output:?}");
    }
    guard.kill().await;
}

async fn takeovers(world: &World) {
    let secret = |kind: &str| {
        let annotations = json!({"kubernetes.io/service-account.name": "web"});
        json!({"metadata": {"name": "credential", "annotations": annotations}, "type": kind})
    };
    let token =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let event = json!({
        "metadata": {"name": "deletion.uid", "labels": {"preprod-guard/record": "deletion"}},
        "involvedObject": {"namespace": "preprod-guard"}, "related": {"uid": "uid"},
    });
    let allowed = json!({"data": {"guard.yaml": "callers: {}"}});
    let account = json!({"metadata": {"name": "web"}});
    let accounts = "/api/v1/namespaces/hbox/serviceaccounts";
    world.must("POST", accounts, account).await;
    let attempts = [
        (
            "POST",
            "/apis/apps/v1/namespaces/hbox/replicasets".to_owned(),
            set("adopt"),
            "its controller could adopt 1 production object (pods/web-0)",
        ),
        (
            "POST",
            "/apis/apps/v1/namespaces/hbox/daemonsets".to_owned(),
            set("adopt"),
            "could adopt 1 production object (pods/web-0)",
        ),
        (
            "POST",
            format!("{accounts}/web/token"),
            token,
            "token of service account web",
        ),
        (
            "POST",
            "/api/v1/namespaces/hbox/secrets".to_owned(),
            secret("kubernetes.io/service-account-token"),
            "secret with a token of service account web",
        ),
        (
            "PATCH",
            format!("{OWN}/configmaps/preprod-guard"),
            allowed,
            "UPDATE production configmap",
        ),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/preprod-guard/deployments/preprod-guard/scale".to_owned(),
            json!({"spec": {"replicas": 0}}),
            "production deployment",
        ),
        (
            "POST",
            format!("{OWN}/events"),
            event,
            "CREATE production event",
        ),
        (
            "PATCH",
            OWN.to_owned(),
            json!({"metadata": {"labels": {"environment": null}}}),
            "UPDATE production namespace",
        ),
    ];
    // The informers report the Pod of the demonstration within some milliseconds.
    let end = Instant::now() + PATIENCE;
    for (method, path, body, text) in attempts {
        let attempt = Attempt::new(method, path, body);
        loop {
            let answer = world.send(&attempt, Some(PRE)).await;
            if answer.message.contains(text) {
                break;
            }
            let is_late = answer.message.contains("try again");
            assert!(is_late && Instant::now() < end, "{attempt:?}: {answer:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }
    // What production does not have is free.
    let mut own = set("own");
    own["spec"]["selector"] = json!({"matchLabels": {"environment": "pre", "own": "yes"}});
    own["spec"]["template"]["metadata"]["labels"]["own"] = json!("yes");
    let own = Attempt::new("POST", "/apis/apps/v1/namespaces/hbox/replicasets", own);
    let answer = world.send(&own, Some(PRE)).await;
    assert_eq!(answer.code, 200, "{}", answer.message);
}

/// A kind that the API server does not serve keeps the guard unready, and the log names it.
async fn unready(world: &World) {
    let kinds = "kinds: [{group: example.com, version: v1, kind: Absent, plural: absents}]";
    std::fs::write(world.file("guard.yaml"), format!("{CONFIG}{kinds}\n")).unwrap();
    let flag = format!("--tls={}", world.file("pki").display());
    let guard = world.start("unready", &[&flag]);
    guard.until("serving webhooks").await;
    guard.until("the first lists are not complete").await;
    let end = Instant::now() + PATIENCE;
    while !guard.log().contains("absents") {
        assert!(Instant::now() < end, "{}", guard.log());
        sleep(Duration::from_millis(100)).await;
    }
    assert!(!guard.log().contains("caches synced"));
    guard.kill().await;
}
