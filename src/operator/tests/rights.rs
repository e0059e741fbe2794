//! The access rules in `manifests/base`, compared with the requests of the operator.

use reeve_apiserver::rights::Rights;

use super::*;
use crate::target::object_name;

/// The end-to-end tests show that the rules suffice there; this one shows which of them a life of blocks uses.
#[tokio::test(start_paused = true)]
async fn the_stored_access_rules_allow_the_requests_of_the_operator() {
    let mut world = World::new().await;
    world.configure(&[("retention", "1h")]).await;
    world
        .start_with(|settings| settings.identity = Some("one".to_owned()))
        .await;
    // An answer that is lost makes the operator read the block.
    let lost = Rule::new().verb("patch").resource("ipblocks").times(1);
    world.server.faults().add(lost.lose_answer());
    let name = object_name("192.0.2.7");
    world.create(&name, "192.0.2.7", "1m").await;
    world.create("by-hand", "192.0.2.8", "10h").await;
    world.feed("feed", &[("192.0.2.9", "")]).await;
    world.until("by-hand", "active", MINUTE).await;
    world.until(&name, "expired", 2 * MINUTE).await;
    // The record changes.
    world
        .configure(&[("gatewayHost", "192.0.2.251:9521")])
        .await;
    tokio::time::sleep(MINUTE).await;
    // The same Event again and again becomes a series.
    for place in ["nonsense", "engine", "nonsense", "engine"] {
        world.configure(&[("engine", place)]).await;
        tokio::time::sleep(10 * SECOND).await;
    }
    world.configure(&[("engine", "iptables")]).await;
    tokio::time::sleep(62 * MINUTE).await;
    assert!(
        world.blocks.get_opt(&name).await.unwrap().is_none(),
        "it is deleted after its retention"
    );

    assert_eq!(world.server.requests().dropped(), 0);
    let mut requests = world.server.requests().all();
    requests.retain(|request| request.user == "system:serviceaccount:default:ipblock-operator");
    let unused = Rights::of(&requests).check(include_str!("../../../manifests/base/rbac.yaml"));
    let unused: String = unused.iter().map(ToString::to_string).collect();
    let expected = r#"ClusterRole ipblock-operator:
  - apiGroups: [ops.yiiong.top]
    resources: [ipblocks]
    verbs: [create]
Role default/ipblock-operator:
  - apiGroups: [""]
    resources: [configmaps]
    resourceNames: [ipblock-operator-config]
    verbs: [get]
  - apiGroups: [""]
    resources: [configmaps]
    resourceNames: [ipblock-operator-record]
    verbs: [delete]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [ipblock-operator]
    verbs: [delete]
  - apiGroups: [ops.yiiong.top]
    resources: [blocklists]
    verbs: [create, patch, delete]
"#;
    // Alerts create blocks, and sources of many entries lists. The uninstall command reads the configuration, and deletes the record and the Lease.
    assert_eq!(unused, expected);
}
