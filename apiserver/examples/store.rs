//! Memory and speed of the store, through the service and without sockets.
//!
//! `cargo run --release -p reeve-apiserver --example store -- memory|writes|list|fanout|starts [COUNT]`
//!
//! Each measurement needs a process of its own: memory that one has used is not returned at once.

#![allow(clippy::print_stdout, reason = "the measurements are the output")]

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use reeve_apiserver::{ApiServer, Service};
use tokio::time::Instant;
use tower::ServiceExt as _;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const PODS: &str = "/api/v1/namespaces/default/pods";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_else(|| "memory".to_owned());
    let count = arguments.next().map(|count| count.parse()).transpose()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async move {
        match what.as_str() {
            "memory" => memory(count.unwrap_or(100_000)).await,
            "writes" => writes(count.unwrap_or(20_000)).await,
            "list" => list(count.unwrap_or(100_000)).await,
            "fanout" => fanout(count.unwrap_or(1_000)).await,
            "starts" => starts(count.unwrap_or(1_000)).await,
            other => Err(format!("no measurement {other}").into()),
        }
    })
}

/// A server; with `STORE_DIR` set, one that keeps its objects there.
async fn server() -> Result<ApiServer, Failure> {
    let mut builder = ApiServer::builder().record_requests(false);
    if let Some(directory) = std::env::var_os("STORE_DIR") {
        builder = builder.data_dir(directory);
    }
    Ok(builder.start().await?)
}

async fn call(
    service: &Service,
    method: &str,
    path: &str,
    accept: &str,
    body: String,
) -> Result<Response<reeve_apiserver::Body>, Failure> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("Content-Type", "application/json")
        .header("Accept", accept)
        .body(Full::new(Bytes::from(body)))?;
    Ok(service.clone().oneshot(request).await?)
}

/// The size of the answer in bytes.
async fn size(service: &Service, path: &str, accept: &str) -> Result<usize, Failure> {
    let answer = call(service, "GET", path, accept, String::new()).await?;
    Ok(answer.into_body().collect().await?.to_bytes().len())
}

async fn create(service: &Service, path: &str, body: String) -> Result<(), Failure> {
    let answer = call(service, "POST", path, "application/json", body).await?;
    if answer.status() != 201 {
        let text = answer.into_body().collect().await?.to_bytes();
        return Err(String::from_utf8_lossy(&text).into_owned().into());
    }
    Ok(())
}

/// A Pod of about 2 KB once it is stored.
fn pod(number: usize) -> String {
    let text = "x".repeat(600);
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"pod-{number}","labels":{{"app":"app-{}","tier":"web"}},
        "annotations":{{"note":"{text}"}}}},"spec":{{"nodeName":"node-{}","containers":[{{"name":"main","image":"registry.example/app:1",
        "env":[{{"name":"A","value":"1"}},{{"name":"B","value":"2"}}],"resources":{{"requests":{{"cpu":"100m","memory":"128Mi"}}}}}}]}}}}"#,
        number % 100,
        number % 50,
    )
}

fn config_map(name: &str) -> String {
    let text = "y".repeat(800);
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"text":"{text}"}}}}"#
    )
}

/// Resident memory of this process in MiB.
fn resident() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0.0) * 4096.0 / 1024.0 / 1024.0
}

async fn pods(service: &Service, count: usize) -> Result<(), Failure> {
    for number in 0..count {
        create(service, PODS, pod(number)).await?;
    }
    Ok(())
}

async fn memory(count: usize) -> Result<(), Failure> {
    let server = server().await?;
    let service = server.service();
    let before = resident();
    let start = Instant::now();
    pods(&service, count).await?;
    let one = size(&service, &format!("{PODS}/pod-1"), "application/json").await?;
    println!(
        "{count} Pods of {one} bytes: {before:.0} -> {:.0} MiB, {:.0} creations a second",
        resident(),
        count as f64 / start.elapsed().as_secs_f64()
    );
    Ok(())
}

async fn writes(count: usize) -> Result<(), Failure> {
    for tasks in [1, 8, 64] {
        let server = server().await?;
        let start = Instant::now();
        let writers = (0..tasks).map(|task| {
            let service = server.service();
            tokio::spawn(async move {
                let mut longest = std::time::Duration::ZERO;
                for number in 0..count / tasks {
                    let start = Instant::now();
                    let map = config_map(&format!("map-{tasks}-{task}-{number}"));
                    create(&service, CONFIG_MAPS, map).await?;
                    longest = longest.max(start.elapsed());
                }
                Ok::<_, Failure>(longest)
            })
        });
        let writers: Vec<_> = writers.collect();
        let mut longest = std::time::Duration::ZERO;
        for writer in writers {
            longest = longest.max(writer.await??);
        }
        println!(
            "{tasks} tasks: {:.0} ConfigMaps a second, longest {longest:?}",
            (count / tasks * tasks) as f64 / start.elapsed().as_secs_f64()
        );
        let service = server.service();
        let path = format!("{CONFIG_MAPS}/map-{tasks}-0-0");
        call(
            &service,
            "DELETE",
            CONFIG_MAPS,
            "application/json",
            String::new(),
        )
        .await?;
        call(&service, "GET", &path, "application/json", String::new()).await?;
        server.shutdown().await?;
    }
    Ok(())
}

async fn list(count: usize) -> Result<(), Failure> {
    const JSON: &str = "application/json";
    let server = server().await?;
    let service = server.service();
    pods(&service, count).await?;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let protobuf = "application/vnd.kubernetes.protobuf";
    let lists = [
        ("full", JSON, ""),
        ("full again", JSON, ""),
        ("label selector, 1 %", JSON, "?labelSelector=app%3Dapp-7"),
        (
            "field selector, 2 %",
            JSON,
            "?fieldSelector=spec.nodeName%3Dnode-7",
        ),
        ("metadata", metadata, ""),
        ("Table", table, ""),
        ("protobuf", protobuf, ""),
        ("protobuf again", protobuf, ""),
    ];
    for (name, accept, query) in lists {
        let start = Instant::now();
        let bytes = size(&service, &format!("{PODS}{query}"), accept).await?;
        println!("{name}: {bytes} bytes in {:?}", start.elapsed());
    }
    let start = Instant::now();
    let (mut pages, mut next) = (0, String::new());
    loop {
        let path = format!("{PODS}?limit=500{next}");
        let answer = call(&service, "GET", &path, JSON, String::new()).await?;
        let bytes = answer.into_body().collect().await?.to_bytes();
        pages += 1;
        // The token is near the front; the items would take longer to parse than to list.
        let head = String::from_utf8_lossy(&bytes[..bytes.len().min(500)]).into_owned();
        let Some((_, rest)) = head.split_once("\"continue\":\"") else {
            break;
        };
        let token = rest.split('"').next().unwrap_or_default();
        if token.is_empty() {
            break;
        }
        next = format!("&continue={token}");
        // Each page is of the past.
        if pages % 10 == 0 {
            create(&service, CONFIG_MAPS, config_map(&format!("m{pages}"))).await?;
            create(&service, PODS, pod(count + pages)).await?;
        }
    }
    println!("{pages} pages of 500 in {:?}", start.elapsed());
    println!("{:.0} MiB", resident());
    Ok(())
}

async fn fanout(watchers: usize) -> Result<(), Failure> {
    const WRITES: usize = 200;
    for (name, path) in [
        ("of all", CONFIG_MAPS),
        (
            "of another name",
            "/api/v1/namespaces/kube-system/configmaps",
        ),
    ] {
        for accept in [
            "application/json",
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ] {
            let server = server().await?;
            let mut open = Vec::new();
            let idle = name != "of all";
            for _ in 0..watchers {
                let path = format!("{path}?watch=true&allowWatchBookmarks=false");
                let answer = call(&server.service(), "GET", &path, accept, String::new()).await?;
                open.push(tokio::spawn(async move {
                    let mut body = answer.into_body();
                    let mut lines = 0;
                    while lines < WRITES + 1 {
                        let Some(Ok(frame)) = body.frame().await else {
                            break;
                        };
                        if let Some(data) = frame.data_ref() {
                            lines += data.iter().filter(|&&byte| byte == b'\n').count();
                        }
                    }
                    lines
                }));
            }
            // The certificates of the cluster are the first event, at least in some namespaces.
            tokio::task::yield_now().await;
            let cpu = cpu_seconds();
            let start = Instant::now();
            for number in 0..WRITES + 1 {
                create(
                    &server.service(),
                    CONFIG_MAPS,
                    config_map(&format!("m{number}")),
                )
                .await?;
            }
            let written = start.elapsed();
            if !idle {
                for watcher in open {
                    let lines = watcher.await?;
                    assert!(lines > WRITES, "{lines}");
                }
            }
            println!(
                "{watchers} watchers {name}, {accept}: {} writes in {written:?}, delivered after {:?}, {:.2} CPU seconds",
                WRITES + 1,
                start.elapsed(),
                cpu_seconds() - cpu
            );
        }
    }
    Ok(())
}

/// CPU time of this process in seconds.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |at: usize| -> f64 {
        let field = fields.split_whitespace().nth(at);
        field.and_then(|field| field.parse().ok()).unwrap_or(0.0)
    };
    (ticks(11) + ticks(12)) / 100.0
}

async fn starts(count: usize) -> Result<(), Failure> {
    let first = server().await?;
    pods(&first.service(), 100).await?;
    let template = first.template();
    let start = Instant::now();
    for _ in 0..count {
        let server = ApiServer::builder().template(&template).start().await?;
        server.shutdown().await?;
    }
    println!(
        "{:.0} starts from a template a second",
        count as f64 / start.elapsed().as_secs_f64()
    );
    let small = start.elapsed() / u32::try_from(count)?;
    pods_from(&first.service(), 100, 20_000).await?;
    let template = first.template();
    let start = Instant::now();
    for _ in 0..20 {
        let server = ApiServer::builder().template(&template).start().await?;
        server.shutdown().await?;
    }
    println!(
        "a start with 100 objects: {small:?}, with 20,000: {:?}",
        start.elapsed() / 20
    );
    let start = Instant::now();
    for _ in 0..20 {
        std::hint::black_box(first.template());
    }
    println!("a template of 20,000 objects: {:?}", start.elapsed() / 20);
    Ok(())
}

async fn pods_from(service: &Service, from: usize, to: usize) -> Result<(), Failure> {
    for number in from..to {
        create(service, PODS, pod(number)).await?;
    }
    Ok(())
}
