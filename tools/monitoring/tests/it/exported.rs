//! The metrics that a running program exports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use reeve_controller::client::Patch;
use reeve_controller::testing::{self, Cluster, Rule};
use reeve_controller::{Context, Controller, Outcome, Request, leader_election, reconcile};
use serde_json::json;

/// A scrape.
pub(crate) struct Exported {
    /// The type of each family, by its name in queries: a counter's ends with `_total`.
    pub(crate) families: BTreeMap<String, String>,
    /// The labels of the series of each name, and the values of each label.
    pub(crate) series: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

/// A scrape of a program with an election, a controller that works, and one that lacks a right.
pub(crate) fn exported() -> Exported {
    let text = Arc::new(std::sync::OnceLock::new());
    let scraped = Arc::clone(&text);
    testing::run(async move |cluster: Cluster| {
        let refused = Rule::new().resource("secrets").status(403, "no");
        cluster.faults().add(refused);
        let manager = cluster.manager().namespace("default");
        let manager = manager.leader_election(leader_election::Options::new("default", "lock"));
        let manager = manager.build().await.expect("a manager");
        manager.metrics().measure_requests();
        let maps = Controller::builder("maps").for_kind::<ConfigMap>();
        let secrets = Controller::builder("secrets").for_kind::<Secret>();
        for controller in [
            maps.complete(reconcile::function(patch)),
            secrets.complete(reconcile::function(patch)),
        ] {
            let controller = controller.expect("a controller");
            manager.add_controller(controller).expect("a new name");
        }
        let map = json!({"metadata": {"name": "a", "namespace": "default"}});
        cluster.create::<ConfigMap>(map).await;
        let running = cluster.start(&manager);
        // Own writes, bookmarks and the end of a watch.
        tokio::time::sleep(Duration::from_secs(900)).await;
        scraped.set(manager.metrics().encode()).expect("one scrape");
        running.end().await;
    });
    Exported::parse(text.get().expect("a scrape"))
}

/// Patches the ConfigMap of a request.
async fn patch(ctx: Context, request: Request) -> Result<Outcome, reconcile::Error> {
    let patch = Patch::merge(json!({"data": {"a": "b"}}));
    ctx.client().patch::<ConfigMap>(&request, patch).await?;
    Ok(Outcome::done())
}

// === impl Exported ===

impl Exported {
    fn parse(text: &str) -> Self {
        let mut families = BTreeMap::new();
        let mut series: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for line in text.lines() {
            if let Some(family) = line.strip_prefix("# TYPE ") {
                let (name, kind) = family.split_once(' ').expect("a name and a type");
                let suffix = if kind == "counter" { "_total" } else { "" };
                families.insert(format!("{name}{suffix}"), kind.to_owned());
            } else if !line.starts_with('#') {
                let (sample, _) = line.rsplit_once(' ').expect("a sample and its value");
                let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
                let of_name = series.entry(name.to_owned()).or_default();
                // No value of these series has a comma and a quote in a row.
                for label in labels.trim_end_matches('}').split("\",") {
                    if let Some((label, value)) = label.split_once("=\"") {
                        let value = value.trim_end_matches('"').to_owned();
                        of_name.entry(label.to_owned()).or_default().insert(value);
                    }
                }
            }
        }
        Self { families, series }
    }

    /// The family of a name in a query: histograms have three names.
    pub(crate) fn family(&self, metric: &str) -> Option<&str> {
        let base = ["_bucket", "_count", "_sum"]
            .iter()
            .find_map(|suffix| metric.strip_suffix(suffix))
            .filter(|base| {
                self.families
                    .get(*base)
                    .is_some_and(|kind| kind == "histogram")
            });
        let found = self.families.get_key_value(base.unwrap_or(metric))?;
        Some(found.0)
    }
}
