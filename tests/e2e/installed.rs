//! The Deployment, word for word: its arguments, environment, ports and probes.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use reeve_apiserver::assets;
use serde_json::json;

use crate::cluster::container;
use crate::process::{Process, get};
use crate::world::World;

/// The Deployment's ports are there once; the case runs on two servers.
static PORTS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

on_both_servers!(the_deployment_runs_with_its_literal_arguments_and_its_probes_pass);

async fn the_deployment_runs_with_its_literal_arguments_and_its_probes_pass(world: World) {
    let container = container();
    let port = |name: &str| {
        let ports = container["ports"].as_array().expect("ports");
        let port = ports
            .iter()
            .find(|port| port["name"] == name)
            .unwrap_or_else(|| panic!("a port named {name}"));
        u16::try_from(port["containerPort"].as_u64().expect("a number")).expect("a port")
    };
    let _alone = PORTS.lock().await;
    let mut ports = ["metrics", "health", "trigger"].map(port).into_iter();
    let taken = ports.find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_err());
    let number = taken.unwrap_or_default();
    let reason =
        format!("another program on this machine listens on the Deployment's port {number}");
    if assets::decide(taken.is_none().then_some(()), &reason).is_none() {
        return;
    }
    let mut args = crate::cluster::arguments(&container);
    // The gateway of this case is on loopback, where one of a cluster never is.
    args.push("--allow-loopback".into());
    let environment = world.environment(&container, "ipblock-operator-0");
    let data = crate::cluster::configuration();
    // Metrics of set engines are there when there is one.
    let list = crate::sets::address();
    let engines = format!("- name: edge\n  type: list\n  addr: \"{list}\"\n  insecure: true\n");
    world
        .configure(json!({"trigger": data["trigger"], "engines": engines}))
        .await;
    let operator = Process::operator("ipblock-operator-0", &args, &environment);
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        let probe = &container[probe]["httpGet"];
        let Some(path) = probe["path"].as_str() else {
            continue;
        };
        let name = probe["port"].as_str().expect("probes name their port");
        let address = SocketAddr::from(([127, 0, 0, 1], port(name)));
        world
            .until(&format!("{path} passes"), async |_| {
                matches!(get(address, path).await, Some((200, _)))
            })
            .await;
    }
    world
        .create("probe", json!({"ip": "203.0.113.120", "duration": "1h"}))
        .await;
    world.phase("probe", "active").await;
    world.enforces(&["203.0.113.120"]).await;
    let metrics = SocketAddr::from(([127, 0, 0, 1], port("metrics")));
    let (status, body) = get(metrics, "/metrics").await.expect("metrics answer");
    assert_eq!(status, 200);
    let absent: Vec<String> = documented()
        .into_iter()
        .filter(|name| !body.contains(name))
        .collect();
    assert!(absent.is_empty(), "{absent:?} are not served:\n{body}");
    assert_eq!(operator.terminate().await, Some(0));
}

/// The metrics of docs/operate.md.
fn documented() -> BTreeSet<String> {
    let guide = include_str!("../../docs/operate.md");
    let words = guide.split(|c: char| c != '_' && !c.is_ascii_lowercase());
    let families = [
        "ipblock_",
        "controller_runtime_",
        "workqueue_",
        "leader_election_",
        "rest_client_",
    ];
    let metrics: BTreeSet<String> = words
        .filter(|word| families.iter().any(|family| word.starts_with(family)))
        // Exposed after the first count: in this case nothing is notified, sent, pulled, skipped or shown, no
        // audit log is written, no set engine is configured, and there is no list.
        .filter(|word| {
            ![
                "ipblock_agents",
                "ipblock_audit_lines_total",
                "ipblock_engine_batches_total",
                "ipblock_engine_desired",
                "ipblock_engine_enforced",
                "ipblock_engine_overflow",
                "ipblock_engine_readers",
                "ipblock_engine_refused_readers_total",
                "ipblock_engine_unsupported",
                "ipblock_list_entries",
                "ipblock_notifications_total",
                "ipblock_shadow_total",
                "ipblock_skipped_total",
                "ipblock_source_entries",
                "ipblock_source_list_writes_total",
                "ipblock_source_lists",
                "ipblock_source_pulls_total",
                "ipblock_webhook_requests_total",
            ]
            .contains(word)
        })
        .map(String::from)
        .collect();
    assert!(metrics.len() > 10, "{metrics:?}");
    metrics
}
