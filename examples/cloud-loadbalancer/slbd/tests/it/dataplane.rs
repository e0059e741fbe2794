//! Bytes from the address of a load balancer to a Pod, through HAProxy and a node, each a process of its own.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use reeve_apiserver::assets;
use reeve_clock::Clock;
use slbd::client::{Client, Created};
use slbd::cloud::Rules;
use slbd::dataplane::{HaProxy, Progress, udp};
use slbd::parameters::Parameters;
use slbd::server::{Server, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::process::Cloud;

const PATIENCE: Duration = Duration::from_secs(30);
const HAPROXY: &str = "/usr/sbin/haproxy";

/// The cloud as a process, with HAProxy as its child.
fn slbd(site: &Site, state: &std::path::Path) -> Cloud {
    let addresses = format!("127.{}.{}.64/26", site.second, site.third);
    let folder = site.folder.join("process");
    Cloud::start(&[
        "--addresses",
        &addresses,
        "--state",
        state.to_str().unwrap(),
        "--haproxy",
        HAPROXY,
        "--folder",
        folder.to_str().unwrap(),
    ])
}

/// The cloud, HAProxy, and the addresses of one test: 127.x.y.0/24 for each of three networks.
struct Site {
    client: Client,
    progress: watch::Receiver<Progress>,
    haproxy: Option<JoinHandle<std::io::Result<()>>>,
    stop: CancellationToken,
    folder: PathBuf,
    second: u8,
    third: u8,
    server: Server,
}

/// A process that is killed when this is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn nodesim(arguments: &[String]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_nodesim"))
            .args(arguments)
            .stdout(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    /// SIGTERM, and the end of the process.
    async fn terminate(mut self) {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(sent.unwrap().success());
        within("the end of a node", async || {
            self.0.try_wait().unwrap().is_some()
        })
        .await;
    }
}

/// Waits until `condition` holds. Processes cannot be waited for in paused time.
async fn within(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < until, "no {what} within {PATIENCE:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

async fn get(address: SocketAddr) -> std::io::Result<String> {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.trim());
        match body {
            Some(body) if text.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
            _ => Err(std::io::Error::other(text)),
        }
    };
    timeout(Duration::from_secs(5), ask).await?
}

/// `None` where there is no HAProxy.
fn site(test: u8) -> Option<Site> {
    if !std::path::Path::new(HAPROXY).exists() {
        assets::skip(&format!(
            "{HAPROXY} does not exist: apt-get install haproxy"
        ));
        return None;
    }
    // Tests of other processes on this machine have addresses of their own.
    let pid = std::process::id();
    let second = 128 + u8::try_from(pid % 64).unwrap();
    let third = u8::try_from((pid / 64) % 32).unwrap() * 8 + test;
    let addresses = format!("127.{second}.{third}.0/26").parse().unwrap();
    let settings = Settings {
        rules: Rules {
            addresses,
            provision: jiff::SignedDuration::ZERO,
            lag: jiff::SignedDuration::ZERO,
            ..Rules::default()
        },
        keys: BTreeMap::from([("id".to_owned(), "secret".to_owned())]),
        file: None,
        clock: Clock::system(),
    };
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::start(any, any, settings).unwrap();
    let folder = std::env::temp_dir().join(format!("slbd-dataplane-{pid}-{test}"));
    let haproxy = HaProxy::new(HAPROXY, &folder);
    let progress = haproxy.progress();
    let stop = CancellationToken::new();
    let (states, stopped) = (server.world().states(), stop.clone());
    let haproxy = tokio::spawn(async move { haproxy.run(states, stopped).await });
    let endpoint = format!("http://{}", server.api());
    let client = Client::new(&endpoint, "id", "secret", "cn-loopback", Clock::system());
    Some(Site {
        client: client.unwrap(),
        progress,
        haproxy: Some(haproxy),
        stop,
        folder,
        second,
        third,
        server,
    })
}

impl Site {
    /// An address of nodes and Pods, which no load balancer has.
    fn at(&self, last: u8, port: u16) -> SocketAddr {
        assert!(last >= 128);
        SocketAddr::from(([127, self.second, self.third, last], port))
    }

    /// A Pod as a process, which answers with its name.
    async fn pod(&self, last: u8) -> Process {
        let address = self.at(last, 8080);
        let arguments = [
            "pod",
            "--listen",
            &address.to_string(),
            "--name",
            &format!("pod-{last}"),
        ];
        let process = Process::nodesim(&arguments.map(str::to_owned));
        within("pod", async || get(address).await.is_ok()).await;
        process
    }

    /// A node as a process, whose node port 30080 forwards to Pods.
    async fn node(&self, last: u8, pods: &[u8]) -> Process {
        let address = self.at(last, 30080);
        let mut arguments = vec![
            "node".to_owned(),
            "--listen".to_owned(),
            address.to_string(),
        ];
        for pod in pods {
            arguments.extend(["--pod".to_owned(), self.at(*pod, 8080).to_string()]);
        }
        let process = Process::nodesim(&arguments);
        within("node", async || get(address).await.is_ok()).await;
        process
    }

    fn backend(&self, node: u8, weight: u8) -> String {
        let ip = self.at(node, 0).ip();
        format!(
            r#"[{{"ServerId":"node-{node}","ServerIp":"{ip}","Port":30080,"Weight":{weight},"Type":"eni"}}]"#
        )
    }

    async fn run(&self, call: Parameters) {
        self.client.run(call).await.unwrap();
    }

    /// A call that changes the data plane, and the load of its configuration.
    async fn change(&mut self, call: Parameters) {
        let before = self.progress.borrow().loaded;
        self.run(call).await;
        let state = Arc::clone(&self.server.world().states().borrow());
        let loaded = self
            .progress
            .wait_for(|now| now.loaded > before && now.has(&state));
        timeout(PATIENCE, loaded).await.unwrap().unwrap();
    }

    /// A load balancer with an empty server group and a running listener: its id, the group and the address.
    async fn balancer(&mut self, protocol: &str) -> (String, String, SocketAddr) {
        let made: Created = self
            .client
            .call(Parameters::action("CreateLoadBalancer"))
            .await
            .unwrap();
        let lb = made.load_balancer_id;
        let call = Parameters::action("CreateVServerGroup").with("LoadBalancerId", &lb);
        let group: slbd::client::Group = self.client.call(call).await.unwrap();
        let call = Parameters::action(&format!("CreateLoadBalancer{protocol}Listener"))
            .with("LoadBalancerId", &lb)
            .with("ListenerPort", 8000)
            .with("VServerGroupId", &group.id)
            .with("HealthCheckInterval", 1);
        self.run(call).await;
        let start = Parameters::action("StartLoadBalancerListener")
            .with("LoadBalancerId", &lb)
            .with("ListenerPort", 8000);
        self.change(start).await;
        (lb, group.id, SocketAddr::from((made.address, 8000)))
    }

    fn group_call(&self, action: &str, group: &str, backends: &str) -> Parameters {
        Parameters::action(action)
            .with("VServerGroupId", group)
            .with("BackendServers", backends)
    }

    async fn end(mut self) {
        self.stop.cancel();
        let haproxy = self.haproxy.take().unwrap();
        timeout(PATIENCE, haproxy).await.unwrap().unwrap().unwrap();
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
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
    let datagrams = udp::run(site.server.world().states(), stop.clone());
    let datagrams = tokio::spawn(datagrams);
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
    let made: Created = client
        .call(Parameters::action("CreateLoadBalancer"))
        .await
        .unwrap();
    let call = Parameters::action("CreateVServerGroup")
        .with("LoadBalancerId", &made.load_balancer_id)
        .with("BackendServers", site.backend(151, 100));
    let group: slbd::client::Group = client.call(call).await.unwrap();
    for action in ["CreateLoadBalancerTCPListener", "StartLoadBalancerListener"] {
        let call = Parameters::action(action)
            .with("LoadBalancerId", &made.load_balancer_id)
            .with("ListenerPort", 8000)
            .with("VServerGroupId", &group.id);
        client.run(call).await.unwrap();
    }
    let address = SocketAddr::from((made.address, 8000));
    within("answer", async || {
        get(address).await.is_ok_and(|pod| pod == "pod-201")
    })
    .await;
    // SIGKILL: HAProxy stays and serves.
    drop(first);
    assert_eq!(get(address).await.unwrap(), "pod-201");
    let mut second = slbd(&site, &state);
    let client = second.client();
    client
        .run(site.group_call(
            "AddVServerGroupBackendServers",
            &group.id,
            &site.backend(152, 100),
        ))
        .await
        .unwrap();
    client
        .run(site.group_call(
            "RemoveVServerGroupBackendServers",
            &group.id,
            &site.backend(151, 0),
        ))
        .await
        .unwrap();
    within("change", async || {
        // No request fails meanwhile.
        get(address).await.unwrap() == "pod-202"
    })
    .await;
    // SIGTERM ends HAProxy too.
    let pid = second.child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
    within("end of the cloud", async || {
        second.child.try_wait().unwrap().is_some()
    })
    .await;
    within("refusal", async || {
        TcpStream::connect(address).await.is_err()
    })
    .await;
    site.end().await;
}
