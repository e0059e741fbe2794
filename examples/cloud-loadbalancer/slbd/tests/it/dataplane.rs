//! Bytes from the address of a load balancer to a Pod, through HAProxy and a node, each a process of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use slbd::client::{Client, Created};
use slbd::dataplane::{HaProxy, udp::Udp};
use slbd::parameters::Parameters;
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::process::Cloud;
use crate::site::{HAPROXY, PATIENCE, Site, get, site, within};

/// The arguments of the cloud as a process, with HAProxy as its child.
fn arguments(site: &Site, state: &std::path::Path) -> [String; 8] {
    let addresses = format!("127.{}.{}.64/26", site.second, site.third);
    let folder = site.folder.join("process");
    [
        "--addresses",
        &addresses,
        "--state",
        state.to_str().unwrap(),
        "--haproxy",
        HAPROXY,
        "--folder",
        folder.to_str().unwrap(),
    ]
    .map(str::to_owned)
}

fn slbd(site: &Site, state: &std::path::Path) -> Cloud {
    Cloud::start(&arguments(site, state).each_ref().map(String::as_str))
}

/// SIGTERM ends the cloud, and HAProxy, which serves `address`, with it.
async fn terminate(mut cloud: Cloud, address: SocketAddr) {
    let pid = cloud.child.id().to_string();
    let sent = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(sent.unwrap().success());
    within("end of the cloud", async || {
        cloud.child.try_wait().unwrap().is_some()
    })
    .await;
    within("refusal", async || {
        TcpStream::connect(address).await.is_err()
    })
    .await;
}

/// A running TCP listener at port 8000 of a new load balancer: the group and the address.
async fn listener(client: &Client, backends: &str) -> (String, SocketAddr) {
    let made: Created = client
        .call(Parameters::action("CreateLoadBalancer"))
        .await
        .unwrap();
    let call = Parameters::action("CreateVServerGroup")
        .with("LoadBalancerId", &made.load_balancer_id)
        .with("BackendServers", backends);
    let group: slbd::client::Group = client.call(call).await.unwrap();
    for action in ["CreateLoadBalancerTCPListener", "StartLoadBalancerListener"] {
        let call = Parameters::action(action)
            .with("LoadBalancerId", &made.load_balancer_id)
            .with("ListenerPort", 8000)
            .with("VServerGroupId", &group.id);
        client.run(call).await.unwrap();
    }
    (group.id, SocketAddr::from((made.address, 8000)))
}

#[tokio::test]
async fn bytes_flow_from_the_address_to_the_pods() {
    let Some(mut site) = site(0) else { return };
    let _pods = [site.pod(201).await, site.pod(202).await];
    let _nodes = [site.node(151, &[201]).await, site.node(152, &[202]).await];
    for protocol in ["TCP", "HTTP"] {
        let (lb, group, address) = site.balancer(protocol).await;
        // Nothing behind the address yet.
        assert!(get(address).await.is_err());
        for node in [151, 152] {
            let call = site.group_call(
                "AddVServerGroupBackendServers",
                &group,
                &site.backend(node, 100),
            );
            site.change(call).await;
        }
        let mut answers = Vec::new();
        for _ in 0..10 {
            answers.push(get(address).await.unwrap());
        }
        let count = |name: &str| answers.iter().filter(|answer| *answer == name).count();
        assert_eq!((count("pod-201"), count("pod-202")), (5, 5), "{answers:?}");
        // A weight of 0 gets no new connections.
        let call = site.group_call("SetVServerGroupAttribute", &group, &site.backend(151, 0));
        site.change(call).await;
        for _ in 0..4 {
            assert_eq!(get(address).await.unwrap(), "pod-202");
        }
        let delete = Parameters::action("DeleteLoadBalancer").with("LoadBalancerId", &lb);
        site.change(delete).await;
        within("refusal", async || {
            TcpStream::connect(address).await.is_err()
        })
        .await;
    }
    site.end().await;
}

#[tokio::test]
async fn datagrams_go_to_the_backends_and_back() {
    let Some(site) = site(5) else { return };
    let stop = CancellationToken::new();
    let (states, stopped) = (site.server.world().states(), stop.clone());
    let datagrams = tokio::spawn(async move { Udp::new(16).run(states, stopped).await });
    let mut servers = JoinSet::new();
    for last in [151, 152] {
        let socket = UdpSocket::bind(site.at(last, 30080)).await.unwrap();
        servers.spawn(async move {
            let mut datagram = [0; 64];
            loop {
                let (length, from) = socket.recv_from(&mut datagram).await.unwrap();
                let answer = format!("{last} {}", String::from_utf8_lossy(&datagram[..length]));
                socket.send_to(answer.as_bytes(), from).await.unwrap();
            }
        });
    }
    let made: Created = site
        .client
        .call(Parameters::action("CreateLoadBalancer"))
        .await
        .unwrap();
    let lb = made.load_balancer_id;
    let call = Parameters::action("CreateVServerGroup")
        .with("LoadBalancerId", &lb)
        .with("BackendServers", site.backend(151, 100));
    let group: slbd::client::Group = site.client.call(call).await.unwrap();
    for action in ["CreateLoadBalancerUDPListener", "StartLoadBalancerListener"] {
        let call = Parameters::action(action)
            .with("LoadBalancerId", &lb)
            .with("ListenerPort", 8000)
            .with("VServerGroupId", &group.id);
        site.run(call).await;
    }
    let address = SocketAddr::from((made.address, 8000));
    let ask = async |client: &UdpSocket, text: &str| {
        let mut datagram = [0; 64];
        let answer = async {
            client.send_to(text.as_bytes(), address).await?;
            client.recv(&mut datagram).await
        };
        let answer = timeout(Duration::from_millis(200), answer).await;
        match answer {
            Ok(Ok(length)) => String::from_utf8_lossy(&datagram[..length]).into_owned(),
            _ => String::new(),
        }
    };
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    within("answer", async || ask(&client, "a").await == "151 a").await;
    // Another backend, which only new clients get, and then in place of the first.
    site.run(site.group_call(
        "AddVServerGroupBackendServers",
        &group.id,
        &site.backend(152, 100),
    ))
    .await;
    assert_eq!(ask(&client, "b").await, "151 b");
    site.run(site.group_call(
        "RemoveVServerGroupBackendServers",
        &group.id,
        &site.backend(151, 0),
    ))
    .await;
    within("other answer", async || ask(&client, "c").await == "152 c").await;
    site.run(Parameters::action("DeleteLoadBalancer").with("LoadBalancerId", &lb))
        .await;
    within("silence", async || ask(&client, "d").await.is_empty()).await;
    stop.cancel();
    timeout(PATIENCE, datagrams).await.unwrap().unwrap();
    site.end().await;
}

#[tokio::test]
async fn an_access_control_list_keeps_other_sources_out() {
    let Some(mut site) = site(1) else { return };
    let _pod = site.pod(201).await;
    let _node = site.node(151, &[201]).await;
    let (lb, group, address) = site.balancer("TCP").await;
    let call = site.group_call(
        "AddVServerGroupBackendServers",
        &group,
        &site.backend(151, 100),
    );
    site.change(call).await;
    get(address).await.unwrap();
    let call = Parameters::action("CreateAccessControlList").with("AclName", "a");
    let list: BTreeMap<String, String> = site.client.call(call).await.unwrap();
    let acl = &list["AclId"];
    let set = |kind: &str| {
        Parameters::action("SetLoadBalancerTCPListenerAttribute")
            .with("LoadBalancerId", &lb)
            .with("ListenerPort", 8000)
            .with("AclStatus", "on")
            .with("AclType", kind)
            .with("AclId", acl)
    };
    // An empty list of allowed sources allows none.
    site.change(set("white")).await;
    assert!(get(address).await.is_err());
    let entries = r#"[{"entry":"127.0.0.0/8"}]"#;
    let add = Parameters::action("AddAccessControlListEntry")
        .with("AclId", acl)
        .with("AclEntrys", entries);
    site.change(add).await;
    get(address).await.unwrap();
    site.change(set("black")).await;
    assert!(get(address).await.is_err());
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_replacement_of_nodes_fails_no_request() {
    let Some(mut site) = site(2) else { return };
    let pods = [
        site.pod(201).await,
        site.pod(202).await,
        site.pod(203).await,
    ];
    let mut nodes = Vec::new();
    for node in 151..154 {
        nodes.push((node, site.node(node, &[201, 202, 203]).await));
    }
    let (_, group, address) = site.balancer("TCP").await;
    for (node, _) in &nodes {
        let call = site.group_call(
            "AddVServerGroupBackendServers",
            &group,
            &site.backend(*node, 100),
        );
        site.change(call).await;
    }
    let done = CancellationToken::new();
    let stopped = done.clone();
    let load = tokio::spawn(async move {
        let mut ticks = interval(Duration::from_millis(5));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut requests = JoinSet::new();
        while !stopped.is_cancelled() {
            ticks.tick().await;
            requests.spawn(get(address));
        }
        requests.join_all().await
    });
    let started = Instant::now();
    // Each node is replaced by a new one: added, the old one drained, removed, and ended.
    for new in 161..164 {
        let process = site.node(new, &[201, 202, 203]).await;
        let call = site.group_call(
            "AddVServerGroupBackendServers",
            &group,
            &site.backend(new, 100),
        );
        site.change(call).await;
        let (old, old_process) = nodes.remove(0);
        let call = site.group_call("SetVServerGroupAttribute", &group, &site.backend(old, 0));
        site.change(call).await;
        let call = site.group_call(
            "RemoveVServerGroupBackendServers",
            &group,
            &site.backend(old, 0),
        );
        site.change(call).await;
        old_process.terminate().await;
        nodes.push((new, process));
    }
    let least = Duration::from_secs(5);
    sleep(least.saturating_sub(started.elapsed())).await;
    done.cancel();
    let took = started.elapsed();
    let answers = load.await.unwrap();
    let failed: Vec<String> = answers
        .iter()
        .filter_map(|answer| answer.as_ref().err().map(ToString::to_string))
        .collect();
    let rate = answers.len() as f64 / took.as_secs_f64();
    println!(
        "{} requests, {rate:.0} a second, {} failed",
        answers.len(),
        failed.len()
    );
    assert!(failed.is_empty(), "{failed:?}");
    assert!(rate > 190.0, "{rate:.0} requests a second");
    for pod in ["pod-201", "pod-202", "pod-203"] {
        let answered =
            |answer: &std::io::Result<String>| answer.as_ref().is_ok_and(|one| one == pod);
        assert!(answers.iter().any(answered), "{pod} got no request");
    }
    drop(pods);
    site.end().await;
}

#[tokio::test]
async fn haproxy_that_dies_is_started_again() {
    let Some(mut site) = site(4) else { return };
    let _pod = site.pod(201).await;
    let _node = site.node(151, &[201]).await;
    let (_, group, address) = site.balancer("TCP").await;
    let call = site.group_call(
        "AddVServerGroupBackendServers",
        &group,
        &site.backend(151, 100),
    );
    site.change(call).await;
    let serving = HaProxy::new(HAPROXY, &site.folder).serving().await;
    let pid = serving.unwrap().unwrap().to_string();
    let sent = Command::new("kill").args(["-KILL", &pid]).status();
    assert!(sent.unwrap().success());
    within("answer", async || get(address).await.is_ok()).await;
    site.end().await;
}

#[tokio::test]
async fn bytes_flow_while_a_killed_cloud_is_away_and_after_its_return() {
    let Some(site) = site(3) else { return };
    let _pods = [site.pod(201).await, site.pod(202).await];
    let _nodes = [site.node(151, &[201]).await, site.node(152, &[202]).await];
    within("folder", async || site.folder.exists()).await;
    let state = site.folder.join("state.json");
    let first = slbd(&site, &state);
    let client = first.client();
    let (group, address) = listener(&client, &site.backend(151, 100)).await;
    within("answer", async || {
        get(address).await.is_ok_and(|pod| pod == "pod-201")
    })
    .await;
    // SIGKILL: HAProxy stays and serves.
    drop(first);
    assert_eq!(get(address).await.unwrap(), "pod-201");
    let second = slbd(&site, &state);
    let client = second.client();
    client
        .run(site.group_call(
            "AddVServerGroupBackendServers",
            &group,
            &site.backend(152, 100),
        ))
        .await
        .unwrap();
    client
        .run(site.group_call(
            "RemoveVServerGroupBackendServers",
            &group,
            &site.backend(151, 0),
        ))
        .await
        .unwrap();
    within("change", async || {
        // No request fails meanwhile.
        get(address).await.unwrap() == "pod-202"
    })
    .await;
    terminate(second, address).await;
    site.end().await;
}

#[tokio::test]
async fn a_process_that_may_open_few_files_serves() {
    let Some(site) = site(10) else { return };
    let _pod = site.pod(201).await;
    let _node = site.node(151, &[201]).await;
    let state = site.folder.join("state.json");
    within("folder", async || site.folder.exists()).await;
    let flags = arguments(&site, &state);
    let cloud = Cloud::start_with_files(128, &flags.each_ref().map(String::as_str));
    let (_, address) = listener(&cloud.client(), &site.backend(151, 100)).await;
    within("answer", async || get(address).await.is_ok()).await;
    // More connections to the API than the process has files: they wait, and the data plane goes on.
    let mut waiting = Vec::new();
    for _ in 0..200 {
        waiting.push(TcpStream::connect(cloud.api).await.unwrap());
    }
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{}/dataplane", cloud.admin);
    let shown = http.get(url).send().await.unwrap().text().await.unwrap();
    assert!(shown.contains(r#""mostClients":64"#), "{shown}");
    assert_eq!(get(address).await.unwrap(), "pod-201");
    drop(waiting);
    let (_, second) = listener(&cloud.client(), &site.backend(151, 100)).await;
    within("answer", async || get(second).await.is_ok()).await;
    terminate(cloud, second).await;
    site.end().await;
}

#[tokio::test]
async fn an_end_before_the_first_load_ends_what_was_left_behind() {
    let Some(site) = site(11) else { return };
    let _pod = site.pod(201).await;
    let _node = site.node(151, &[201]).await;
    let state = site.folder.join("state.json");
    within("folder", async || site.folder.exists()).await;
    let first = slbd(&site, &state);
    let (_, address) = listener(&first.client(), &site.backend(151, 100)).await;
    within("answer", async || get(address).await.is_ok()).await;
    drop(first);
    let mut flags = arguments(&site, &state);
    flags[5] = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/hangs.sh").to_owned();
    let second = Cloud::start(&flags.each_ref().map(String::as_str));
    assert_eq!(get(address).await.unwrap(), "pod-201");
    terminate(second, address).await;
    site.end().await;
}
