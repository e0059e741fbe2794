//! The floor of processor time: a process that makes the requests of the lifecycles, and nothing else.

use std::process::Stdio;

use bytes::Bytes;
use futures::StreamExt;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client as Plain;
use hyper_util::rt::TokioExecutor;
use ipblock_operator::api::Place;
use jiff::SignedDuration;
use kube_client::Client;
use reeve_client::connect;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::task::JoinSet;

use super::{LANES, create_all};
use crate::bench::Bench;
use crate::blocks::{self, Error, GROUP_PATH, Result, address, each};
use crate::local::{now, setup};
use crate::subject::own_cpu;

const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

/// The processor time of a process that makes the requests of `count` lifecycles: three patches, two Events and two calls of
/// the gateway each, beside a watch whose lines it does not read.
pub(crate) async fn bare(bench: &mut Bench, count: usize) -> Result<()> {
    bench.gateway.clear();
    create_all(bench, "bare", count, "1h").await?;
    let output = Command::new(std::env::current_exe()?)
        .args(["--bare", &count.to_string()])
        .args(["--gateway", &bench.gateway.host()])
        .envs(bench.recipe.environment.iter().cloned())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await?;
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let cpu: f64 = printed
        .parse()
        .map_err(|_| Error::Setup(format!("the bare driver printed {printed:?}")))?;
    let figure = format!("CPU for {count} lifecycles");
    bench.report.add("lift", &figure, "floor", cpu, "s");
    blocks::clear(&bench.client).await?;
    bench.gateway.clear();
    Ok(())
}

/// The driver itself: returns its processor time in seconds.
pub(crate) async fn drive(count: usize, gateway: &str) -> Result<f64> {
    let client = connect::infer(&connect::Options::new())
        .await
        .map_err(setup)?;
    let mut watch = JoinSet::new();
    watch.spawn(follow(client.clone()));
    let plain = Plain::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let before = own_cpu();
    each(count, LANES, |n| {
        let (client, plain) = (client.clone(), plain.clone());
        async move {
            let (name, ip) = (format!("bare-{n}"), address(n));
            let place = Place::new("iptables", gateway);
            let patch = async |subresource: &str, body: Value| {
                let path = format!("{GROUP_PATH}/{name}{subresource}");
                write(
                    &client,
                    "PATCH",
                    &path,
                    "application/merge-patch+json",
                    &body,
                )
                .await
            };
            let call = async |path: &str| {
                let uri = format!("http://{gateway}{path}?ip={ip}")
                    .parse()
                    .map_err(setup)?;
                let answer = plain.get(uri).await.map_err(setup)?;
                answer.into_body().collect().await.map_err(setup)?;
                Ok::<_, Error>(())
            };
            let intent = json!({"metadata": {"finalizers": ["bench.reeve/floor"],
                "annotations": {"ops.yiiong.top/intent": format!("v1 iptables {ip}")}}});
            patch("", intent).await?;
            call("/limit").await?;
            let until = now() + SignedDuration::from_hours(1);
            patch("/status", blocks::active_status(&ip, now(), until, &place)?).await?;
            write(
                &client,
                "POST",
                EVENTS,
                "application/json",
                &event(&name, "Banned"),
            )
            .await?;
            call("/unlimit").await?;
            patch("/status", blocks::expired_status(&ip, now())).await?;
            write(
                &client,
                "POST",
                EVENTS,
                "application/json",
                &event(&name, "Unbanned"),
            )
            .await
        }
    })
    .await?;
    Ok((own_cpu() - before).as_secs_f64())
}

async fn write(client: &Client, verb: &str, path: &str, kind: &str, body: &Value) -> Result<()> {
    let request = Request::builder()
        .method(verb)
        .uri(path)
        .header("content-type", kind);
    client
        .request_text(request.body(body.to_string().into_bytes())?)
        .await?;
    Ok(())
}

fn event(block: &str, reason: &str) -> Value {
    let note = format!("{block} is {reason} because of a lifecycle of the bench");
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": format!("{block}.{reason}").to_lowercase(), "namespace": "default"},
        "eventTime": format!("{:.6}", now()), "type": "Normal", "reason": reason, "action": reason, "note": note,
        "reportingController": "bench.reeve/floor", "reportingInstance": "floor",
        "regarding": {"apiVersion": "ops.yiiong.top/v1", "kind": "IPBlock", "namespace": "default", "name": block},
    })
}

/// Receives the changes without reading them.
async fn follow(client: Client) {
    let path = format!("{GROUP_PATH}?watch=true&resourceVersion=0");
    let Ok(request) = Request::get(path).body(kube_client::client::Body::empty()) else {
        return;
    };
    if let Ok(answer) = client.send(request).await {
        let mut chunks = answer.into_body().into_data_stream();
        while chunks.next().await.is_some() {}
    }
}
