//! Access control lists that interrupted calls leave.

use std::sync::Arc;
use std::time::Duration;

use cloud_loadbalancer::Settings;
use cloud_loadbalancer::model::{ListenerKey, Probe, Protocol};
use cloud_loadbalancer::provider::Provider;
use jiff::SignedDuration;
use reeve_apiserver::ApiServer;
use reeve_controller::{CancellationToken, Manager};
use serde_json::json;
use slbd::client::Client;
use slbd::parameters::Parameters;
use slbd::server::{Fault, Rule};
use tokio::time::{Instant, sleep};

use super::provider::{balancer, quick, settings};

const KEY: ListenerKey = ListenerKey {
    port: 80,
    protocol: Protocol::Tcp,
};

async fn make_list(client: &Client, name: &str, source: &str) -> String {
    let call = Parameters::action("CreateAccessControlList").with("AclName", name);
    let made: serde_json::Value = client.call(call).await.unwrap();
    let id = made["AclId"].as_str().unwrap().to_owned();
    let call = Parameters::action("AddAccessControlListEntry")
        .with("AclId", &id)
        .with("AclEntrys", json!([{ "entry": source }]));
    client.run(call).await.unwrap();
    id
}

/// The names of all lists, sorted.
async fn names(client: &Client) -> Vec<String> {
    let lists = client.access_lists("").await.unwrap();
    let mut names: Vec<String> = lists.into_iter().map(|list| list.name).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_new_listener_is_not_open_to_the_sources_of_an_interrupted_creation() {
    let (server, slb) = quick();
    let (id, group) = balancer(&slb).await;
    let mut wanted = settings(&group, Probe::Tcp);
    wanted.sources = vec!["10.0.0.0/8".parse().unwrap()];
    let interrupted = Rule {
        action: Some("CreateLoadBalancerTCPListener".to_owned()),
        skip: 0,
        times: Some(1),
        fault: Fault::LoseRequest,
    };
    assert!(server.world().add_fault(interrupted));
    slb.create_listener(&id, KEY, &wanted).await.unwrap_err();
    wanted.sources = vec!["172.16.0.0/12".parse().unwrap()];
    slb.create_listener(&id, KEY, &wanted).await.unwrap();
    let listeners = slb.listeners(&id).await.unwrap();
    assert_eq!(listeners[0].settings.sources, wanted.sources);
    let calls = server.world().calls();
    let removed = calls
        .iter()
        .position(|call| call.action == "RemoveAccessControlListEntry");
    let created = calls
        .iter()
        .position(|call| call.action == "CreateLoadBalancerTCPListener" && call.applied);
    assert!(removed.unwrap() < created.unwrap(), "not for a moment");
    assert_eq!(names(&super::client(server.api())).await.len(), 1);
}

#[tokio::test]
async fn unused_lists_of_the_provider_are_leftovers_and_no_others() {
    let (server, slb) = quick();
    assert_eq!(slb.leftovers().await.unwrap(), [] as [String; 0]);
    let (id, group) = balancer(&slb).await;
    let mut wanted = settings(&group, Probe::Tcp);
    wanted.sources = vec!["10.0.0.0/8".parse().unwrap()];
    slb.create_listener(&id, KEY, &wanted).await.unwrap();
    let client = super::client(server.api());
    make_list(&client, "office", "10.0.0.0/8").await;
    let left = make_list(&client, "reeve.dev/sources/lb-none/tcp/80", "10.0.0.0/8").await;
    assert_eq!(slb.leftovers().await.unwrap(), [&*left]);
    let own = format!("reeve.dev/sources/{id}/tcp/80");
    let used = client.access_lists(&own).await.unwrap().remove(0).id;
    // One that is used by now stays.
    slb.delete_leftover(&used).await.unwrap();
    slb.delete_leftover(&left).await.unwrap();
    slb.delete_leftover(&left).await.unwrap();
    assert_eq!(names(&client).await, ["office", &*own]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controller_deletes_leftovers() {
    let cloud = super::cloud(SignedDuration::ZERO, SignedDuration::ZERO);
    let client = super::client(cloud.api());
    make_list(&client, "office", "10.0.0.0/8").await;
    make_list(&client, "reeve.dev/sources/lb-none/tcp/80", "10.0.0.0/8").await;
    let api = ApiServer::builder().start().await.unwrap();
    let settings = Settings {
        orphan_period: Duration::from_millis(100),
        ..Settings::new("test".parse().unwrap())
    };
    let provider = Arc::new(super::slb(cloud.api()));
    let manager = cloud_loadbalancer::build(Manager::builder(api.client()), provider, settings);
    let (manager, stop) = (manager.await.unwrap(), CancellationToken::new());
    let stopped = stop.clone();
    let running = tokio::spawn(async move { manager.run(stopped).await });
    let until = Instant::now() + Duration::from_secs(60);
    while names(&client).await != ["office"] {
        assert!(Instant::now() < until, "{:?}", names(&client).await);
        sleep(Duration::from_millis(20)).await;
    }
    stop.cancel();
    running.await.unwrap().unwrap();
}
