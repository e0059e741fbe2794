//! Connections that a real server would make: this one has no network to nodes.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use reeve_apiserver::ApiServer;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::rules::raw::{get, merge, post, put, server};

const PODS: &str = "/api/v1/namespaces/default/pods";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const NONE: &str = "this server has no network to nodes and Pods";

/// A Pod with an address, on a node with one.
async fn prepare(server: &ApiServer) {
    let node = json!({"metadata": {"name": "n"}});
    post(server, "/api/v1/nodes", &node).await.expect_ok();
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n.local"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 1234}}}});
    let path = "/api/v1/nodes/n/status";
    merge(server, path, &status).await.expect_ok();
    let pod = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n",
        "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 8080}]}]}});
    post(server, PODS, &pod).await.expect_ok();
    let status = json!({"status": {"podIP": "fd00::1", "podIPs": [{"ip": "fd00::1"}]}});
    let path = format!("{PODS}/a/status");
    merge(server, &path, &status).await.expect_ok();
}

async fn upgrade(server: &ApiServer, path: &str) -> (u16, Value) {
    let request = Request::builder().method(Method::POST).uri(path);
    let request = request.header("connection", "Upgrade");
    let request = request.header("upgrade", "SPDY/3.1");
    let request = request.body(Full::new(Bytes::new())).unwrap();
    let answer = server.service().oneshot(request).await.unwrap();
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_connection_to_a_node_fails_as_one_that_does_not_answer() {
    let server = server().await;
    prepare(&server).await;
    for path in ["a/exec?command=sh", "a/attach", "a/portforward?ports=80"] {
        let (code, answer) = upgrade(&server, &format!("{PODS}/{path}")).await;
        let why = format!("dial tcp n.local:1234: {NONE}");
        assert_eq!((code, &answer["message"]), (500, &json!(why)), "{path}");
    }
    for (path, port) in [("a", 8080), ("a:81", 81), ("https:a:82", 82)] {
        let answer = get(&server, &format!("{PODS}/{path}/proxy/x")).await;
        let why = format!("error trying to reach service: dial tcp [fd00::1]:{port}: {NONE}");
        assert_eq!((answer.code, answer.message()), (503, why));
    }
}

#[tokio::test(start_paused = true)]
async fn a_proxy_leads_from_its_name_to_its_root() {
    let server = server().await;
    prepare(&server).await;
    let answer = get(&server, &format!("{PODS}/a/proxy?x=y")).await;
    assert_eq!(answer.code, 301);
    assert_eq!(answer.headers["location"], format!("{PODS}/a/proxy/?x=y"));
}

#[tokio::test(start_paused = true)]
async fn a_proxy_to_a_service_takes_an_address_of_a_pod_of_its_namespace() {
    let server = server().await;
    prepare(&server).await;
    let ports = json!([{"name": "web", "port": 80}]);
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": ports}});
    let services = "/api/v1/namespaces/default/services";
    post(&server, services, &service).await.expect_ok();
    let endpoints = |ip: &str, namespace: &str| {
        let target = json!({"kind": "Pod", "name": "a", "namespace": namespace});
        json!({"metadata": {"name": "s"}, "subsets": [{"addresses": [{"ip": ip, "targetRef": target}], "ports": [{"name": "web", "port": 8080}]}]})
    };
    let own = endpoints("fd00::1", "default");
    post(&server, ENDPOINTS, &own).await.expect_ok();
    let path = format!("{services}/s:web/proxy/x");
    let answer = get(&server, &path).await;
    let why = format!("error trying to reach service: dial tcp [fd00::1]:8080: {NONE}");
    assert_eq!((answer.code, answer.message()), (503, why));
    let stored = format!("{ENDPOINTS}/s");
    for other in [
        endpoints("fd00::2", "default"),
        endpoints("fd00::1", "other"),
    ] {
        put(&server, &stored, &other).await.expect_ok();
        let answer = get(&server, &path).await;
        let why = "no endpoints available for service \"s:web\"";
        assert_eq!((answer.code, answer.message().as_str()), (503, why));
    }
}
