//! The page of all reports, and the pages of controllers, elections and own writes.

use reeve_controller::leader_election;

use super::*;

/// A manager with an election, a metrics server and a [`greeter`].
async fn elected(cluster: &Cluster) -> (Running, SocketAddr) {
    let options = leader_election::Options::new("default", "greeter").identity("greeter-0");
    let manager = cluster
        .manager()
        .leader_election(options)
        .instance("greeter-0")
        .metrics_server(MetricsServer::at(anywhere()))
        .build()
        .await
        .unwrap();
    manager.add_controller(greeter()).unwrap();
    let address = manager.metrics_address().unwrap();
    (cluster.start(&manager), address)
}

#[tokio::test]
async fn the_overview_has_the_state_of_every_part_and_its_problems() {
    let cluster = Cluster::in_process().await;
    for name in ["broken", "slow", "fine"] {
        create(&cluster, name).await;
    }
    let (running, address) = elected(&cluster).await;
    let page = async |path: &str| get(address, path, &[], None).await.unwrap();
    let json = async |path: &str| -> Value {
        let got = page(path).await;
        serde_json::from_str(&got.body).unwrap_or_else(|_| panic!("{path}: {}", got.body))
    };
    let all = cluster
        .eventually("each key has run", async || {
            let all = json("/debug?format=json").await;
            let greeter = &all["controllers"][0];
            let ran =
                greeter["reconciles"]["requeueAfter"] == 1 && all["queues"][0]["failing"] == 1;
            ran.then_some(all.clone()).ok_or(all)
        })
        .await;
    let greeter = &all["controllers"][0];
    assert_eq!(greeter["kind"], "ConfigMap (v1)");
    assert_eq!(greeter["state"], "running");
    assert_eq!(
        (&greeter["workers"], &greeter["busy"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(greeter["longestRun"]["key"], "default/slow");
    assert!(greeter["lastSuccess"].is_string(), "{greeter}");
    assert!(greeter["reconciles"]["error"].as_u64().unwrap() > 0);
    let watch = json!({"name": "ConfigMap (v1)", "watch": true, "state": "ready"});
    assert_eq!(greeter["sources"], json!([watch]));

    let lease = &all["election"][0];
    assert_eq!(lease["lease"], "default/greeter");
    assert_eq!(
        (&lease["state"], &lease["holder"]),
        (&json!("leading"), &json!("greeter-0"))
    );
    assert_eq!(all["writes"][0]["controller"], "greeter");
    assert_eq!(all["informers"][0]["name"], "configmaps");
    assert_eq!(all["instance"], "greeter-0");
    let problem = &all["problems"][0];
    assert_eq!(
        (&problem["severity"], &problem["section"]),
        (&json!("error"), &json!("queues"))
    );
    let message = problem["message"].as_str().unwrap();
    assert!(message.contains("default/broken"), "{message}");
    assert!(message.ends_with(": the gateway <is> down"), "{message}");

    for (path, field) in [
        ("/debug/controllers", "controllers"),
        ("/debug/election", "election"),
        ("/debug/writes", "writes"),
    ] {
        let alone = json(&format!("{path}?format=json")).await;
        let names: Vec<&String> = alone.as_object().unwrap().keys().collect();
        assert_eq!(names, [field]);
        assert_eq!(alone[field].as_array().unwrap().len(), 1, "{path}");
        let other = json(&format!("{path}?format=json&name=other")).await;
        assert_eq!(other[field], json!([]), "{path}");
    }
    let text = page("/debug?format=text").await.body;
    assert!(text.contains("ERROR queues greeter: 1 key fails"), "{text}");
    assert!(text.contains("lease default/greeter: leading"), "{text}");
    let html = get(address, "/debug", &[("accept", "text/html")], None)
        .await
        .unwrap();
    assert!(
        html.body.contains("the gateway &lt;is&gt; down"),
        "{}",
        html.body
    );
    assert!(!html.body.contains("<script"), "{}", html.body);
    running.end().await;
}

#[tokio::test]
async fn a_standby_shows_the_leader_and_watches_that_wait() {
    let cluster = Cluster::in_process().await;
    create(&cluster, "fine").await;
    let lease = json!({
        "metadata": {"name": "greeter", "namespace": "default"},
        "spec": {"holderIdentity": "greeter-1", "leaseDurationSeconds": 3600, "leaseTransitions": 0,
            "acquireTime": "2026-05-01T03:00:00.000000Z", "renewTime": "2026-05-01T03:00:00.000000Z"},
    });
    cluster
        .create::<k8s_openapi::api::coordination::v1::Lease>(lease)
        .await;
    let (running, address) = elected(&cluster).await;
    let all = cluster
        .eventually("it stands by", async || {
            let got = get(address, "/debug?format=json", &[], None).await.unwrap();
            let all: Value = serde_json::from_str(&got.body).unwrap();
            let known = all["election"][0]["holder"] == "greeter-1";
            let waits = all["controllers"][0]["state"] == "standby";
            (known && waits).then_some(all.clone()).ok_or(all)
        })
        .await;
    assert_eq!(all["election"][0]["state"], "candidate");
    assert_eq!(all["controllers"][0]["sources"][0]["state"], "standby");
    assert_eq!(all["problems"], json!([]));
    running.end().await;
}
