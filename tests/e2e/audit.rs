//! The audit log and the page of the program, with its flags and signals.

use std::net::SocketAddr;

use ipblock_operator::audit::{Action, Line};
use ipblock_operator::page::State;
use serde_json::json;

use crate::process::{free_port, get};
use crate::world::{World, until};

on_both_servers!(
    the_audit_log_is_opened_again_at_a_signal_and_written_to_the_end,
    the_page_is_served_where_the_flag_says,
);

async fn the_audit_log_is_opened_again_at_a_signal_and_written_to_the_end(world: World) {
    let path = world.file("audit.log", "");
    let flag = format!("--audit-log={}", path.display());
    let operator = world.operator_with("ipblock-operator-0", &[&flag]).await;
    let lines = |name: &str| -> Vec<Line> {
        let text = std::fs::read_to_string(path.with_file_name(name)).unwrap_or_default();
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).expect(line))
            .collect()
    };
    let actions =
        |name: &str| -> Vec<Action> { lines(name).into_iter().map(|line| line.action).collect() };
    world
        .create(
            "first",
            json!({"ip": "192.0.2.7", "duration": "1h", "by": "alice"}),
        )
        .await;
    until("the ban is written", async || {
        actions("audit.log") == [Action::Banned]
    })
    .await;
    let line = lines("audit.log").remove(0);
    assert_eq!(line.replica, "ipblock-operator-0");
    assert_eq!(
        (line.name.as_str(), line.by.as_deref()),
        ("first", Some("alice"))
    );
    assert!(
        line.created_with.is_some() && line.uid.is_some(),
        "{line:?}"
    );

    std::fs::rename(&path, path.with_file_name("audit.log.1")).expect("a rotation");
    operator.process.signal("HUP").await;
    until("the file is there again", async || path.exists()).await;
    world
        .patch("first", json!({"spec": {"unblock": true}}))
        .await;
    world.phase("first", "expired").await;
    assert_eq!(
        operator.process.terminate().await,
        Some(0),
        "SIGHUP ended nothing"
    );
    assert_eq!(actions("audit.log.1"), [Action::Banned]);
    assert_eq!(actions("audit.log"), [Action::Lifted]);
    assert_eq!(lines("audit.log")[0].cause.as_deref(), Some("unblocked"));
}

async fn the_page_is_served_where_the_flag_says(world: World) {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let flag = format!("--page-address={address}");
    let _operator = world.operator_with("ipblock-operator-0", &[&flag]).await;
    world
        .create("first", json!({"ip": "192.0.2.7", "duration": "1h"}))
        .await;
    world.phase("first", "active").await;
    until("the page shows the ban", async || {
        let (status, body) = get(address, "/blocks/state").await.expect("an answer");
        let state = serde_json::from_str::<State>(&body);
        status == 200 && state.is_ok_and(|state| state.counts.active == 1 && state.leads)
    })
    .await;
    let (status, page) = get(address, "/blocks").await.expect("an answer");
    assert!(status == 200 && page.contains("IPBlock operator"), "{page}");
}
