//! The Deployment, word for word: its arguments, environment, ports and probes.

use std::net::SocketAddr;

use serde_json::json;

use crate::cluster::container;
use crate::process::{Process, get};
use crate::world::World;

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
    if std::net::TcpListener::bind(("127.0.0.1", port("metrics"))).is_err()
        || std::net::TcpListener::bind(("127.0.0.1", port("health"))).is_err()
    {
        assert!(
            std::env::var_os("REEVE_REQUIRE_ASSETS").is_none(),
            "the Deployment's ports are taken on this machine"
        );
        eprintln!("SKIPPED: the Deployment's ports are taken on this machine");
        return;
    }
    let mut args = crate::cluster::arguments(&container);
    // The gateway of this case is on loopback, where one of a cluster never is.
    args.push("--allow-loopback-gateway".into());
    let environment = world.environment(&container, "ipblock-operator-0");
    let data = crate::cluster::configuration();
    world.configure(json!({"trigger": data["trigger"]})).await;
    let _operator = Process::operator("ipblock-operator-0", &args, &environment);
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
    for name in [
        "ipblock_active",
        "ipblock_bans_total",
        "controller_runtime_reconcile_total",
        "workqueue_depth",
        "leader_election_master_status",
    ] {
        assert!(body.contains(name), "{name} is served:\n{body}");
    }
}
