//! A program on this machine: a manager with the built-in API server.

use std::net::SocketAddr;

use k8s_openapi::api::core::v1::ConfigMap;
use reeve_controller::debug::Pages;
use reeve_controller::metrics_server::Certificate;
use reeve_controller::options::LogOptions;
use reeve_controller::testing::{Cluster, Running};
use reeve_controller::{
    Context, Controller, MetricsServer, Outcome, Request, leader_election, reconcile,
};
use serde_json::{Value, json};
use tracing_subscriber::prelude::*;

use super::plugin::{Output, at};

pub(crate) fn anywhere() -> MetricsServer {
    MetricsServer::at(([127, 0, 0, 1], 0).into())
}

/// A manager of this identity, whose controller fails for `broken`.
pub(crate) async fn start(
    cluster: &Cluster,
    identity: &str,
    server: MetricsServer,
) -> (Running, SocketAddr) {
    let reconciler = reconcile::function(|_: Context, request: Request| async move {
        match &*request.name {
            "broken" => Err(reconcile::Error::message("no \u{1b}[2Jroom")),
            _ => Ok(Outcome::done()),
        }
    });
    let controller = Controller::builder("greeter")
        .for_kind::<ConfigMap>()
        .complete(reconciler)
        .unwrap();
    let options = leader_election::Options::new("default", "greeter").identity(identity);
    let manager = cluster.manager().leader_election(options);
    let manager = manager.instance(identity).metrics_server(server);
    let manager = manager.build().await.unwrap();
    manager.add_controller(controller).unwrap();
    let address = manager.metrics_address().unwrap();
    (cluster.start(&manager), address)
}

pub(crate) async fn create(cluster: &Cluster, name: &str) {
    let map = json!({"metadata": {"name": name, "namespace": "default"}});
    cluster.create::<ConfigMap>(map).await;
}

/// The first output of the plugin that has `text`.
async fn shows(cluster: &Cluster, address: &str, more: &[&str], text: &str) -> Output {
    let seen = cluster.eventually(text, async || {
        let output = at(address, more).await;
        match output.text.contains(text) {
            true => Ok(output),
            false => Err(format!("{output:?}")),
        }
    });
    seen.await
}

#[tokio::test]
async fn a_summary_has_problems_first_and_no_control_characters_of_errors() {
    let cluster = Cluster::in_process().await;
    create(&cluster, "broken").await;
    create(&cluster, "fine").await;
    let (running, address) = start(&cluster, "greeter-0", anywhere()).await;
    let address = format!("http://{address}");
    let output = shows(&cluster, &address, &[], "queues greeter: 1 key fails").await;
    assert_eq!((output.code, output.errors.as_str()), (Some(0), ""));
    let text = &output.text;
    let title = format!("{address}  greeter-0  (leads)\n");
    assert!(text.starts_with(&title), "{text}");
    assert!(
        text.contains("no \u{fffd}[2Jroom") && !text.contains('\u{1b}'),
        "{text}"
    );
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    let parts = [
        "problem",
        "controllers\n",
        "queues\n",
        "informers\n",
        "election\n",
        "own writes\n",
    ];
    assert!(parts.map(place).is_sorted(), "{text}");
    assert!(
        text.contains("default/greeter") && text.contains("leading"),
        "{text}"
    );
    assert!(
        text.contains("default/broken") && !text.contains("default/fine"),
        "{text}"
    );

    let colored = at(&address, &["--color", "always"]).await.text;
    assert!(colored.contains("\u{1b}[1;31m"), "{colored}");
    let queues = at(&address, &["queues", "--name", "other"]).await;
    assert_eq!(queues.code, Some(0));
    let text = queues.text;
    assert!(text.contains("nothing of the name other"), "{text}");
    assert!(!text.contains("no problems"), "{text}");
    for lease in ["greeter", "default/greeter"] {
        let text = at(&address, &["election", "--name", lease]).await.text;
        assert!(text.contains("leading"), "{text}");
    }

    let output = at(&address, &["-o", "json"]).await;
    let document: Value = serde_json::from_str(&output.text).unwrap();
    let program = &document["programs"][0];
    assert_eq!(program["from"], address.as_str());
    assert_eq!(program["report"]["queues"][0]["failing"], 1);
    running.end().await;
}

#[tokio::test]
async fn https_needs_a_certificate_that_is_trusted() {
    let cluster = Cluster::in_process().await;
    let server = anywhere().secure(Certificate::SelfSigned);
    let (running, address) = start(&cluster, "greeter-0", server).await;
    let (secure, plain) = (format!("https://{address}"), format!("http://{address}"));
    let refused = at(&secure, &[]).await;
    assert_eq!(refused.code, Some(1));
    assert!(refused.text.contains("certificate"), "{refused:?}");
    let accepted = at(&secure, &["--insecure-skip-tls-verify"]).await;
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    let mistaken = at(&plain, &[]).await;
    assert_eq!(mistaken.code, Some(1));
    assert!(
        mistaken.text.contains("HTTPS where HTTP was"),
        "{mistaken:?}"
    );
    let missing = at(&secure, &["--certificate-authority", "/nowhere/ca.pem"]).await;
    assert!(missing.errors.contains("/nowhere/ca.pem: "), "{missing:?}");
    running.end().await;
}

#[tokio::test]
async fn a_program_without_pages_is_named_as_one() {
    let cluster = Cluster::in_process().await;
    let server = anywhere().debug_pages(Pages::Off);
    let (running, address) = start(&cluster, "greeter-0", server).await;
    let output = at(&address.to_string(), &[]).await;
    assert_eq!(output.code, Some(1));
    assert!(
        output.text.contains("no debug pages there (404)"),
        "{output:?}"
    );
    running.end().await;
}

#[tokio::test]
async fn the_levels_of_the_log_are_shown_and_changed_for_a_time() {
    let cluster = Cluster::in_process().await;
    let mut options = LogOptions::default();
    options.log_level = Some("warn".into());
    let subscriber = tracing_subscriber::registry().with(options.layer("info"));
    let _guard = tracing::subscriber::set_default(subscriber);
    let manager = cluster.manager().metrics_server(anywhere());
    let manager = manager.log_levels(options.levels().unwrap());
    let manager = manager.build().await.unwrap();
    let address = manager.metrics_address().unwrap().to_string();
    let running = cluster.start(&manager);

    let shown = at(&address, &["log"]).await;
    assert_eq!(shown.text, format!("http://{address}\n  warn\n"));
    let changed = at(&address, &["log", "--set", "error", "--for", "10m"]).await;
    assert_eq!((changed.code, changed.errors.as_str()), (Some(0), ""));
    let (_, line) = changed.text.split_once("\n  ").unwrap();
    assert!(
        line.starts_with("error for another ") && line.ends_with(" s, then warn\n"),
        "{line}"
    );
    let json = at(&address, &["log", "-o", "json"]).await.text;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["programs"][0]["report"]["levels"], "error");

    let refused = at(&address, &["log", "--set", "loud"]).await;
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.text.contains("\"loud\" is not a level"),
        "{refused:?}"
    );
    let repeated = at(&address, &["log", "--set", "info", "--watch"]).await;
    assert!(repeated.errors.contains("--watch repeats"), "{repeated:?}");
    running.end().await;
}

#[tokio::test]
async fn a_program_without_levels_is_named_as_one() {
    let cluster = Cluster::in_process().await;
    let (running, address) = start(&cluster, "greeter-0", anywhere()).await;
    let output = at(&address.to_string(), &["log"]).await;
    assert_eq!(output.code, Some(1));
    assert!(
        output.text.contains("levels of the log are not served"),
        "{output:?}"
    );
    running.end().await;
}
