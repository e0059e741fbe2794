//! What HAProxy cannot serve, and how little it holds up.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use slbd::client::Created;
use slbd::cloud::State;
use slbd::dataplane::{HaProxy, LeftOut, Progress};
use slbd::parameters::Parameters;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::site::{HAPROXY, PATIENCE, Site, get, site, within};

#[tokio::test]
async fn a_hundred_sources_and_a_path_with_quotes_are_served() {
    let Some(mut site) = site(6) else { return };
    let _pod = site.pod(201).await;
    let _node = site.node(151, &[201]).await;
    let (lb, group, address) = site.balancer("TCP").await;
    let add = "AddVServerGroupBackendServers";
    site.change(site.group_call(add, &group, &site.backend(151, 100)))
        .await;
    let call = Parameters::action("CreateAccessControlList").with("AclName", "a");
    let list: serde_json::Map<String, Value> = site.client.call(call).await.unwrap();
    let acl = list["AclId"].as_str().unwrap();
    // The last of them is the one of this test.
    let mut entries: Vec<Value> = (0..99)
        .map(|n| json!({ "entry": format!("10.0.{n}.0/24") }))
        .collect();
    entries.push(json!({ "entry": "127.0.0.0/8" }));
    let call = |action: &str, entries: &[Value]| {
        Parameters::action(action)
            .with("AclId", acl)
            .with("AclEntrys", Value::from(entries))
    };
    site.run(call("AddAccessControlListEntry", &entries)).await;
    let set = Parameters::action("SetLoadBalancerTCPListenerAttribute")
        .with("LoadBalancerId", &lb)
        .with("ListenerPort", 8000)
        .with("AclStatus", "on")
        .with("AclType", "white")
        .with("AclId", acl)
        .with("HealthCheckType", "http")
        .with("HealthCheckURI", "/it's?a=#1");
    site.change(set).await;
    assert_eq!(site.progress.borrow().left_out, []);
    assert_eq!(get(address).await.unwrap(), "pod-201");
    site.change(call("RemoveAccessControlListEntry", &entries[99..]))
        .await;
    assert!(get(address).await.is_err());
    site.end().await;
}

/// A state in which the health check of a load balancer's listener has a value that the API refuses.
fn with_interval(state: &State, balancer: &str, interval: &str) -> Arc<State> {
    let mut state = serde_json::to_value(state).unwrap();
    let listener = &mut state["balancers"][balancer]["listeners"][0];
    listener["settings"]["HealthCheckInterval"] = interval.into();
    Arc::new(serde_json::from_value(state).unwrap())
}

async fn loaded(progress: &mut watch::Receiver<Progress>, state: &Arc<State>) -> Vec<LeftOut> {
    let loaded = progress.wait_for(|now| now.has(state));
    let loaded = timeout(PATIENCE, loaded).await.unwrap().unwrap();
    loaded.left_out.clone()
}

#[tokio::test]
async fn a_listener_that_haproxy_refuses_holds_up_no_other_one() {
    let Some(mut site) = site(7) else { return };
    let _pods = [site.pod(201).await, site.pod(202).await];
    let _nodes = [site.node(151, &[201]).await, site.node(152, &[202]).await];
    let (bad, bad_group, bad_address) = site.balancer("TCP").await;
    let (_, group, address) = site.balancer("TCP").await;
    let add = "AddVServerGroupBackendServers";
    for group in [&bad_group, &group] {
        site.run(site.group_call(add, group, &site.backend(151, 100)))
            .await;
    }
    // Another data plane takes over, whose state may hold anything.
    site.stop_haproxy().await;
    let haproxy = Arc::new(HaProxy::new(HAPROXY, site.folder.join("other")));
    let mut progress = haproxy.progress();
    let wrong = || with_interval(&site.server.world().states().borrow(), &bad, "soon");
    let (states, followed) = watch::channel(wrong());
    let stop = CancellationToken::new();
    let running = {
        let (haproxy, stop) = (Arc::clone(&haproxy), stop.clone());
        tokio::spawn(async move { haproxy.run(followed, stop).await })
    };
    let check = |left_out: &[LeftOut]| {
        assert_eq!(left_out.len(), 1, "{left_out:?}");
        assert_eq!(left_out[0].load_balancer, bad);
        assert_eq!(left_out[0].address, bad_address);
        let reason = &left_out[0].reason;
        assert!(reason.contains("unexpected character 's'"), "{reason}");
    };
    let first = Arc::clone(&states.borrow());
    check(&loaded(&mut progress, &first).await);
    assert_eq!(get(address).await.unwrap(), "pod-201");
    assert!(get(bad_address).await.is_err());
    // A change of the other one gets through.
    let change = Parameters::action("ModifyVServerGroupBackendServers")
        .with("VServerGroupId", &group)
        .with("OldBackendServers", site.backend(151, 100))
        .with("NewBackendServers", site.backend(152, 100));
    site.run(change).await;
    let second = wrong();
    states.send_replace(Arc::clone(&second));
    check(&loaded(&mut progress, &second).await);
    assert_eq!(get(address).await.unwrap(), "pod-202");
    assert!(get(bad_address).await.is_err());
    // Mended, it is served.
    let mended = with_interval(&second, &bad, "5");
    states.send_replace(Arc::clone(&mended));
    assert_eq!(loaded(&mut progress, &mended).await, []);
    assert_eq!(get(bad_address).await.unwrap(), "pod-201");
    stop.cancel();
    timeout(PATIENCE, running).await.unwrap().unwrap().unwrap();
    site.end().await;
}

/// What the admin port shows of the data plane.
async fn shown(site: &Site) -> Value {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{}/dataplane", site.server.admin());
    let body = http.get(url).send().await.unwrap().bytes().await.unwrap();
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test]
async fn a_taken_port_holds_up_no_other_listener_and_is_served_when_it_is_free() {
    let Some(mut site) = site(8) else { return };
    let _pod = site.pod(201).await;
    let _node = site.node(151, &[201]).await;
    let made: Created = site
        .client
        .call(Parameters::action("CreateLoadBalancer"))
        .await
        .unwrap();
    let taken = SocketAddr::from((made.address, 8000));
    let other_process = TcpListener::bind(taken).await.unwrap();
    let call = Parameters::action("CreateVServerGroup")
        .with("LoadBalancerId", &made.load_balancer_id)
        .with("BackendServers", site.backend(151, 100));
    let group: slbd::client::Group = site.client.call(call).await.unwrap();
    for action in ["CreateLoadBalancerTCPListener", "StartLoadBalancerListener"] {
        let call = Parameters::action(action)
            .with("LoadBalancerId", &made.load_balancer_id)
            .with("ListenerPort", 8000)
            .with("VServerGroupId", &group.id);
        site.run(call).await;
    }
    let (_, group, address) = site.balancer("TCP").await;
    let add = "AddVServerGroupBackendServers";
    site.change(site.group_call(add, &group, &site.backend(151, 100)))
        .await;
    assert_eq!(get(address).await.unwrap(), "pod-201");
    let dataplane = shown(&site).await;
    assert_eq!(dataplane["current"], true);
    assert_eq!(dataplane["leftOut"][0]["address"], taken.to_string());
    assert_eq!(
        dataplane["leftOut"][0]["loadBalancer"],
        made.load_balancer_id
    );
    let reason = dataplane["leftOut"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("cannot be bound"), "{reason}");
    drop(other_process);
    within("answer", async || get(taken).await.is_ok()).await;
    let served = async || shown(&site).await["leftOut"] == json!([]);
    within("report", served).await;
    site.end().await;
}

#[tokio::test]
async fn an_haproxy_that_hangs_does_not_hold_up_the_end() {
    let folder = std::env::temp_dir().join(format!("slbd-hangs-{}", std::process::id()));
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/hangs.sh");
    let haproxy = HaProxy::new(program, &folder);
    let (_states, followed) = watch::channel(Arc::default());
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let running = tokio::spawn(async move { haproxy.run(followed, stopped).await });
    within("check", async || folder.join("haproxy.cfg.new").exists()).await;
    stop.cancel();
    let ended = timeout(Duration::from_secs(5), running).await;
    ended.expect("the end").unwrap().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn a_program_or_a_folder_that_cannot_be_used_is_named() {
    let folder = std::env::temp_dir().join(format!("slbd-named-{}", std::process::id()));
    let haproxy = HaProxy::new("/none/haproxy", &folder);
    let mut progress = haproxy.progress();
    let (_states, followed) = watch::channel(Arc::default());
    let stop = CancellationToken::new();
    let running = haproxy.run(followed.clone(), stop.clone());
    let failed = async {
        let failed = progress.wait_for(|now| now.error.is_some());
        let error = timeout(PATIENCE, failed)
            .await
            .unwrap()
            .unwrap()
            .error
            .clone();
        let error = error.unwrap();
        assert!(error.starts_with("cannot start /none/haproxy"), "{error}");
        stop.cancel();
    };
    tokio::join!(running, failed).0.unwrap();
    let file = folder.join("haproxy.cfg.new");
    let haproxy = HaProxy::new(HAPROXY, &file);
    let error = haproxy.run(followed, stop).await.unwrap_err().to_string();
    assert!(error.contains(file.to_str().unwrap()), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}
