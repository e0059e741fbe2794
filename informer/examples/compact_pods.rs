//! The memory of a hundred thousand Pods, kept as JSON or typed:
//! `cargo run --release -p reeve-informer --example compact_pods [-- typed] [-- COUNT]`.
//!
//! The Pods are made by this process, so no cluster is needed for them.
#![allow(clippy::print_stdout, reason = "it is a program that prints")]

use std::convert::Infallible;
use std::error::Error;

use bytes::Bytes;
use futures::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use k8s_openapi::api::core::v1::Pod;
use kube_client::Client;
use kube_client::client::Body;
use reeve_informer::{Compact, Endpoint, Form, ReflectorOptions, SharedInformer};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

fn pod(number: usize) -> String {
    let containers = (0..3).map(|container| {
        let image = format!("registry.example/team/application-{container}:1.{number}");
        let ports = r#"[{"name":"http","containerPort":8080,"protocol":"TCP"}]"#;
        format!(
            r#"{{"name":"container-{container}","image":"{image}","ports":{ports},"resources":{{"requests":{{"cpu":"100m","memory":"128Mi"}},"limits":{{"memory":"256Mi"}}}},"env":[{{"name":"POD_NAME","valueFrom":{{"fieldRef":{{"apiVersion":"v1","fieldPath":"metadata.name"}}}}}},{{"name":"LEVEL","value":"info"}}],"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}}"#
        )
    });
    let containers = containers.collect::<Vec<_>>().join(",");
    format!(
        r#"{{"metadata":{{"name":"pod-{number:08}","namespace":"ns-{:03}","uid":"uid-{number}","resourceVersion":"{}","labels":{{"app":"web","pod-template-hash":"5d8f7c9b4"}},"managedFields":[{{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:status":{{"f:conditions":{{".":{{}},"k:{{\"type\":\"Ready\"}}":{{".":{{}},"f:status":{{}},"f:type":{{}}}}}}}}}},"subresource":"status"}}]}},"spec":{{"containers":[{containers}],"nodeName":"node-{}","restartPolicy":"Always","serviceAccountName":"default"}},"status":{{"phase":"Running","podIP":"10.0.0.1","conditions":[{{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}}]}}}}"#,
        number % 100,
        number + 1,
        number % 500,
    )
}

/// A server with one list, whose watches are silent.
fn client(count: usize) -> Client {
    // Written in one piece: memory that is freed here would be used again, and hide the memory of the store.
    let mut list = format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{count}"}},"items":["#
    );
    for number in 0..count {
        if number > 0 {
            list.push(',');
        }
        list.push_str(&pod(number));
    }
    list.push_str("]}");
    let list = Bytes::from(list);
    println!("the list: {} MB", list.len() / 1_000_000);
    let answer = move |request: Request<Body>| {
        let watch = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch="));
        let body: UnsyncBoxBody<Bytes, Infallible> = if watch {
            let silence = stream::pending::<Result<Frame<Bytes>, Infallible>>();
            StreamBody::new(silence).boxed_unsync()
        } else {
            Full::new(list.clone()).boxed_unsync()
        };
        std::future::ready(Ok::<_, Infallible>(Response::new(body)))
    };
    Client::new(tower::service_fn(answer), "default")
}

/// Resident memory in MB; zero where it is unknown.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kilobytes.unwrap_or_default() / 1000
}

async fn keep<S: Form<Typed = Pod>>(count: usize) -> Result<(), Box<dyn Error>> {
    let client = client(count);
    let before = resident();
    let options = ReflectorOptions::new().streaming(false);
    let informer = SharedInformer::<S>::builder_for(client, Endpoint::of::<Pod>())
        .reflector(options)
        .build();
    let stop = CancellationToken::new();
    let started = Instant::now();
    let running = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    informer.wait_synced().await?;
    let took = started.elapsed();
    println!(
        "{} Pods in {took:.2?}; {} MB more than before",
        informer.lister().len(),
        resident().saturating_sub(before)
    );
    let one = informer.lister().get_named(Some("ns-042"), "pod-00000042");
    let pod = one.ok_or("fewer than 43 Pods")?.typed()?;
    println!(
        "{:?}",
        pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())
    );
    stop.cancel();
    running.await??;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let count = arguments.iter().find_map(|argument| argument.parse().ok());
    let count = count.unwrap_or(100_000);
    if arguments.iter().any(|argument| argument == "typed") {
        keep::<Pod>(count).await
    } else {
        keep::<Compact<Pod>>(count).await
    }
}
