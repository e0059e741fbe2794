//! Bodies in protobuf: they do what the same object does in JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::Method;
use reeve_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::rules::raw::*;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Objects in both encodings, by `tools/protobuf`: a link to the corpus of reeve-wire.
const CORPUS: &str = include_str!("corpus.txt");

/// A field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut written = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        written.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    written.push(u8::try_from(length).unwrap());
    written.extend(bytes);
    written
}

fn body(api_version: &str, kind: &str, object: &[u8]) -> Bytes {
    let of = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &of), field(2, object)]
        .concat()
        .into()
}

/// `metadata` with a name.
fn named(name: &str) -> Vec<u8> {
    field(1, &field(1, name.as_bytes()))
}

async fn send(server: &ApiServer, method: Method, path: &str, body: Bytes) -> Answer {
    try_send(server, method, path, PROTOBUF, body)
        .await
        .unwrap()
}

/// The path of each kind's collection in the default namespace, by apiVersion and kind.
async fn collections(server: &ApiServer) -> Vec<(String, String)> {
    let mut versions = vec!["v1".to_owned()];
    for group in get(server, "/apis").await.expect_ok()["groups"]
        .as_array()
        .unwrap()
    {
        versions.push(
            group["preferredVersion"]["groupVersion"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    let mut found = Vec::new();
    for version in versions {
        let root = if version == "v1" {
            "/api/v1".to_owned()
        } else {
            format!("/apis/{version}")
        };
        for resource in get(server, &root).await.expect_ok()["resources"]
            .as_array()
            .unwrap()
        {
            let name = resource["name"].as_str().unwrap();
            if name.contains('/') {
                continue;
            }
            let kind = resource["kind"].as_str().unwrap();
            let namespace = if resource["namespaced"] == true {
                "/namespaces/default"
            } else {
                ""
            };
            found.push((
                format!("{version} {kind}"),
                format!("{root}{namespace}/{name}"),
            ));
        }
    }
    found
}

/// Without uids, which each creation makes of its own and a Job puts into labels.
fn comparable(answer: &Answer) -> (u16, Value) {
    let uid = regex::Regex::new("[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}").unwrap();
    let text = uid.replace_all(&answer.text, "<uid>");
    (answer.code, serde_json::from_str(&text).unwrap())
}

#[tokio::test(start_paused = true)]
async fn every_kind_is_answered_as_the_same_object_in_json() {
    let server = server().await;
    let collections = collections(&server).await;
    let lines: Vec<&str> = CORPUS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    let (mut compared, mut made) = (0, 0);
    for record in lines.chunks(4) {
        let kind = record[0].rsplit_once(' ').unwrap().0;
        // Others are bodies of requests for no collection.
        let Some((_, path)) = collections.iter().find(|(of, _)| of == kind) else {
            continue;
        };
        // A name and a namespace that can be: metadata that is written twice is merged.
        let metadata = field(1, &[field(1, b"a"), field(3, b"default")].concat());
        let mut sent = BASE64.decode(record[1]).unwrap();
        let (api_version, of) = kind.split_once(' ').unwrap();
        let empty = body(api_version, of, b"").len() - 2;
        let object = object_of(&sent[empty..]);
        sent = body(api_version, of, &[object, &metadata].concat()).to_vec();
        let mut plain: Value = serde_json::from_str(record[2]).unwrap();
        if kind != "v1 DeleteOptions" {
            plain["metadata"]["name"] = json!("a");
            plain["metadata"]["namespace"] = json!("default");
        }
        for query in ["?dryRun=All", "?dryRun=All&fieldValidation=Strict"] {
            let path = format!("{path}{query}");
            let one = send(&server, Method::POST, &path, sent.clone().into()).await;
            let other = post(&server, &path, &plain).await;
            assert_eq!(
                comparable(&one),
                comparable(&other),
                "{} {query}",
                record[0]
            );
            assert_eq!(
                one.headers.get("warning"),
                other.headers.get("warning"),
                "{}",
                record[0]
            );
            compared += 1;
            made += usize::from(one.code == 201);
        }
    }
    assert!(compared > 200, "{compared}");
    assert!(made > 20, "{made}");
}

/// The object in the last field of an envelope, whose tag and length come first.
fn object_of(bytes: &[u8]) -> &[u8] {
    assert_eq!(bytes[0], 0x12);
    let length = bytes[1..].iter().position(|byte| byte & 0x80 == 0).unwrap() + 2;
    // contentEncoding and contentType follow, both empty.
    &bytes[length..bytes.len() - 4]
}

#[tokio::test(start_paused = true)]
async fn a_protobuf_body_replaces_an_object_and_fields_without_a_name_warn_of_nothing() {
    let server = server().await;
    let lease = |holder: &str| {
        let spec = field(2, &field(1, holder.as_bytes()));
        body(
            "coordination.k8s.io/v1",
            "Lease",
            &[named("l"), spec, field(15, b"later")].concat(),
        )
    };
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let strict = format!("{path}?fieldValidation=Strict");
    let made = send(&server, Method::POST, &strict, lease("one")).await;
    assert!(made.headers.get("warning").is_none());
    let made = made.expect_ok();
    assert_eq!(made["spec"]["holderIdentity"], "one");
    let version = made["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    let renewed = |version: &str| {
        let metadata = field(1, &[field(1, b"l"), field(6, version.as_bytes())].concat());
        let spec = field(2, &field(1, b"two"));
        body(
            "coordination.k8s.io/v1",
            "Lease",
            &[metadata, spec].concat(),
        )
    };
    let one = format!("{path}/l");
    let put = send(&server, Method::PUT, &one, renewed(&version))
        .await
        .expect_ok();
    assert_eq!(put["spec"]["holderIdentity"], "two");
    let again = send(&server, Method::PUT, &one, renewed(&version)).await;
    assert_eq!(again.code, 409);
}

#[tokio::test(start_paused = true)]
async fn options_of_a_deletion_may_come_in_protobuf() {
    let server = server().await;
    post(&server, MAPS, &map("a")).await.expect_ok();
    let path = format!("{MAPS}/a");
    let options = |uid: &str| body("v1", "DeleteOptions", &field(2, &field(1, uid.as_bytes())));
    let other = send(&server, Method::DELETE, &path, options("another")).await;
    assert_eq!(other.code, 409);
    let wrong = send(&server, Method::DELETE, &path, body("v1", "Secret", b"")).await;
    assert_eq!(wrong.code, 400);
    let broken = send(
        &server,
        Method::DELETE,
        &path,
        Bytes::from_static(b"k8s\0\n"),
    )
    .await;
    assert_eq!(broken.code, 400);
    let uid = get(&server, &path).await.expect_ok()["metadata"]["uid"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        send(&server, Method::DELETE, &path, options(&uid))
            .await
            .code,
        200
    );
    // client-go names the group version of the resource.
    post(&server, MAPS, &map("a")).await.expect_ok();
    let options = body("apps/v1", "DeleteOptions", b"");
    assert_eq!(
        send(&server, Method::DELETE, &path, options).await.code,
        200
    );
}

#[tokio::test(start_paused = true)]
async fn a_scale_and_a_token_request_may_come_in_protobuf() {
    let server = server().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let web = json!({"metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}},
    }});
    post(&server, deployments, &web).await.expect_ok();
    let scale = [named("web"), field(2, &[1 << 3, 3])].concat();
    let path = format!("{deployments}/web/scale");
    let scaled = send(
        &server,
        Method::PUT,
        &path,
        body("autoscaling/v1", "Scale", &scale),
    )
    .await;
    assert_eq!(scaled.expect_ok()["spec"]["replicas"], 3);
    // client-go names no kind where the type alone says it.
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let request = body("", "", &field(2, &[4 << 3, 0xd8, 4]));
    let token = send(&server, Method::POST, path, request).await.expect_ok();
    assert_eq!(token["spec"]["expirationSeconds"], 600);
}

#[tokio::test(start_paused = true)]
async fn a_patch_in_protobuf_is_not_supported() {
    let server = server().await;
    post(&server, MAPS, &map("a")).await.expect_ok();
    let body = body("v1", "ConfigMap", &named("a"));
    let patch = send(&server, Method::PATCH, &format!("{MAPS}/a"), body).await;
    assert_eq!(patch.code, 415);
}

#[tokio::test(start_paused = true)]
async fn custom_resources_are_not_read_from_protobuf() {
    let server = server().await;
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = json!({
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    post(&server, crds, &definition).await.expect_ok();
    settle().await;
    let foos = "/apis/example.com/v1/namespaces/default/foos";
    let body = body("example.com/v1", "Foo", &named("a"));
    let refused = send(&server, Method::POST, foos, body).await;
    assert_eq!(refused.code, 415);
    assert_eq!(
        refused.message(),
        "custom resources cannot be read from protobuf: the body of the request was in an unknown format - accepted media types include: application/json, application/yaml"
    );
}
