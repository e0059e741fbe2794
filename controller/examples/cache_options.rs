//! The requests that cache options cause: `cargo run -p reeve-controller --example cache_options`.
//!
//! Four ways to cache ConfigMaps, Secrets, Pods and Nodes of an API server in this process. The program prints every LIST
//! and WATCH that was sent, and the objects that the caches hold. It ends by itself.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret};
use kube_core::PartialObjectMeta;
use reeve_apiserver::ApiServer;
use reeve_clock::Clock;
use reeve_controller::cache::{KindOptions, Selected, StoreForm, View};
use reeve_controller::client::Object;
use reeve_controller::{CacheOptions, Client, Manager};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "current_thread")]
#[allow(clippy::print_stdout, reason = "this program prints")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", report().await?);
    Ok(())
}

/// The printed text.
pub(crate) async fn report() -> Result<String, Box<dyn Error>> {
    let mut report = String::new();
    let server = ApiServer::builder().start().await?;
    fill(&Client::new(server.client())).await?;
    let nothing = Selected::new();
    let per_kind = CacheOptions::new()
        // Only objects with this program's label, but all ConfigMaps,
        .selected(Selected::new().labels("app.kubernetes.io/managed-by=example"))
        .for_kind::<ConfigMap>(KindOptions::new().labels(""))
        // one Secret,
        .for_kind::<Secret>(
            KindOptions::new()
                .labels("")
                .fields("metadata.namespace=red,metadata.name=token"),
        )
        // and Pods as their JSON, without the fields that are not read.
        .for_kind::<Pod>(
            KindOptions::new()
                .form(StoreForm::Compact)
                .skip([".status".parse()?, ".spec.containers[*].env".parse()?]),
        );
    let tenants = CacheOptions::new()
        .in_namespace("red", nothing.clone())
        .in_namespace("blue", Selected::new().labels("tier=front"))
        .for_kind::<Secret>(KindOptions::new().in_namespace("red", nothing.clone()));
    let with_others = CacheOptions::new()
        .in_namespace("red", Selected::new().labels("tier=front"))
        .in_all_others(nothing);
    for (title, options) in [
        ("everything", CacheOptions::new()),
        ("selected by kind", per_kind),
        ("two namespaces", tenants),
        ("one namespace in its own way, and all others", with_others),
    ] {
        writeln!(report, "\n== {title}")?;
        show(&server, options, &mut report).await?;
    }
    Ok(report)
}

/// Runs a manager with these options until its caches are filled, and reports its requests.
async fn show(
    server: &ApiServer,
    options: CacheOptions,
    report: &mut String,
) -> Result<(), Box<dyn Error>> {
    server.requests().clear();
    let builder = Manager::builder(server.client()).clock(Clock::system());
    let manager = builder.cache(options).build().await?;
    let caches = manager.caches();
    let maps = caches.keep(&View::<ConfigMap>::typed())?;
    let secrets = caches.keep(&View::<PartialObjectMeta<Secret>>::metadata())?;
    let pods = caches.keep(&View::<Pod>::typed())?;
    let nodes = caches.keep(&View::<Node>::typed())?;
    let stop = CancellationToken::new();
    let (running, stopped) = (manager.clone(), stop.clone());
    let run = tokio::spawn(async move { running.run(stopped).await });
    caches.wait_synced(SOON).await?;
    report.push_str(&requests(server));
    writeln!(report, "-- held")?;
    writeln!(
        report,
        "ConfigMaps        {}",
        names(maps.list()?.iter().map(|map| &map.metadata))
    )?;
    let held = secrets.list()?;
    writeln!(
        report,
        "Secrets' metadata {}",
        names(held.iter().map(|secret| &secret.metadata))
    )?;
    writeln!(
        report,
        "Pods              {}",
        names(pods.list()?.iter().map(|pod| &pod.metadata))
    )?;
    writeln!(
        report,
        "Nodes             {}",
        names(nodes.list()?.iter().map(|node| &node.metadata))
    )?;
    // Namespaces may change at any time; handlers get the events.
    if caches.namespaces().insert("green") {
        server.requests().clear();
        maps.wait_synced(SOON).await?;
        secrets.wait_synced(SOON).await?;
        pods.wait_synced(SOON).await?;
        writeln!(report, "-- and when the namespace green is added")?;
        report.push_str(&requests(server));
    }
    stop.cancel();
    run.await??;
    Ok(())
}

/// Each LIST and WATCH once, as it was sent. A WATCH with `sendInitialEvents` is a list, too.
fn requests(server: &ApiServer) -> String {
    let requests = server.requests().all();
    let lines: BTreeSet<String> = requests
        .iter()
        .filter(|request| ["list", "watch"].contains(&request.verb.as_str()))
        .map(|request| {
            let query = request.query.split('&');
            let chosen = query.filter(|pair| {
                let named = |name: &str| pair.starts_with(name);
                named("labelSelector") || named("fieldSelector") || named("sendInitialEvents")
            });
            let query: Vec<&str> = chosen.collect();
            let verb = request.verb.to_uppercase();
            let line = format!("{verb:5} {} {}", request.path, query.join("&"));
            format!("{}\n", line.trim_end())
        })
        .collect();
    lines.into_iter().collect()
}

fn names<'a>(metadata: impl Iterator<Item = &'a kube_core::ObjectMeta>) -> String {
    let names = metadata.map(|meta| {
        let name = meta.name.as_deref().unwrap_or_default();
        match &meta.namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        }
    });
    let names: Vec<String> = names.collect();
    match &names[..] {
        [] => "none".to_owned(),
        names => names.join(" "),
    }
}

async fn fill(client: &Client) -> Result<(), Box<dyn Error>> {
    for name in ["blue", "green", "red"] {
        create::<Namespace>(client, json!({"metadata": {"name": name}})).await?;
        for tier in ["front", "back"] {
            let metadata = json!({"namespace": name, "name": tier, "labels": {"tier": tier}});
            create::<ConfigMap>(client, json!({"metadata": metadata})).await?;
        }
        let token = json!({"namespace": name, "name": "token"});
        create::<Secret>(client, json!({"metadata": token})).await?;
        let pod = json!({"namespace": name, "name": "web",
            "labels": {"app.kubernetes.io/managed-by": "example", "tier": "front"}});
        let spec = json!({"containers": [{"name": "web", "image": "web"}]});
        create::<Pod>(client, json!({"metadata": pod, "spec": spec})).await?;
    }
    create::<Node>(client, json!({"metadata": {"name": "node-1"}})).await?;
    Ok(())
}

async fn create<K: Object>(client: &Client, object: Value) -> Result<(), Box<dyn Error>> {
    client.create(&serde_json::from_value::<K>(object)?).await?;
    Ok(())
}
