//! The whole path: Service, controller, cloud, HAProxy, node ports, Pods. Nodes are replaced under load.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cloud_loadbalancer::Settings;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, Service};
use reeve_apiserver::{ApiServer, assets};
use reeve_controller::{Client, Manager, ObjectKey};
use serde_json::json;
use slbd::cloud::Rules;
use slbd::dataplane::{HaProxy, Progress};
use slbd::nodesim::{self, Forwarder};
use slbd::server::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(60);
const HAPROXY: &str = "/usr/sbin/haproxy";
const PODS: [u8; 2] = [201, 202];
/// The least number of requests of the test.
const REQUESTS: usize = 1000;

/// A cluster of simulated nodes with the cloud before it.
struct Site {
    client: Client,
    cloud: Server,
    progress: watch::Receiver<Progress>,
    pods: watch::Receiver<Vec<SocketAddr>>,
    second: u8,
    third: u8,
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
    // Slow is not failed: the machine may be busy with other tests.
    timeout(PATIENCE, ask).await?
}

impl Site {
    fn at(&self, last: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([127, self.second, self.third, last], port))
    }

    /// A node: its node port, its instance in the cloud, and its object.
    async fn node(&self, number: u8, node_port: u16) -> Forwarder {
        let address = self.at(number, node_port);
        let forwarder = Forwarder::start(address, self.pods.clone()).await.unwrap();
        let IpAddr::V4(ip) = address.ip() else {
            unreachable!("an address of 127.0.0.0/8")
        };
        let instance = BTreeMap::from([(format!("i-{number}"), ip)]);
        self.cloud.world().set_instances(&instance).unwrap();
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": format!("n{number}") },
            "spec": { "providerID": format!("sim://r1.i-{number}") },
        }))
        .unwrap();
        self.client.create(&node).await.unwrap();
        forwarder
    }

    /// Waits until the cloud forwards to these nodes, and HAProxy has loaded it.
    async fn until(&self, nodes: &[u8]) {
        let mut wanted: Vec<String> = nodes.iter().map(|number| format!("i-{number}")).collect();
        wanted.sort();
        let states = self.cloud.world().states();
        let until = Instant::now() + PATIENCE;
        loop {
            let state = Arc::clone(&states.borrow());
            let mut has: Vec<String> = {
                let group = state.groups.values().next();
                let backends = group.map(|group| group.backends.iter());
                let servers = backends.into_iter().flatten();
                servers.map(|backend| backend.server.clone()).collect()
            };
            has.sort();
            if has == wanted && self.progress.borrow().has(&state) {
                return;
            }
            assert!(Instant::now() < until, "{has:?}, not {wanted:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The number of HAProxy processes with this configuration.
fn processes(config: &Path) -> usize {
    let running = std::fs::read_dir("/proc").unwrap().filter(|process| {
        let line = process
            .as_ref()
            .map(|process| std::fs::read(process.path().join("cmdline")));
        // A process that ended meanwhile is none.
        let Ok(Ok(line)) = line else { return false };
        let mut words = line.split(|byte| *byte == 0);
        words.any(|word| word == config.as_os_str().as_encoded_bytes())
    });
    running.count()
}

/// Waits until the HAProxy processes of earlier configurations have answered their last requests.
async fn until_one_process(config: &Path) {
    let until = Instant::now() + PATIENCE;
    loop {
        let running = processes(config);
        if running == 1 {
            return;
        }
        assert!(Instant::now() < until, "{running} processes of HAProxy");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_nodes_fail_no_request_of_two_hundred_a_second() {
    if assets::file(HAPROXY, "apt-get install haproxy").is_none() {
        return;
    }
    // Tests of other processes on this machine have addresses of their own.
    let pid = std::process::id();
    let second = 192 + u8::try_from(pid % 60).unwrap();
    let third = u8::try_from((pid / 60) % 250).unwrap();
    let cloud = super::cloud_with(Rules {
        addresses: format!("127.{second}.{third}.0/26").parse().unwrap(),
        lag: SignedDuration::from_millis(200),
        ..Rules::default()
    });
    let folder = std::env::temp_dir().join(format!("slb-rolling-{pid}"));
    let config = folder.join("haproxy.cfg");
    let haproxy = HaProxy::new(HAPROXY, &folder);
    let progress = haproxy.progress();
    let stop = CancellationToken::new();
    let (states, stopped) = (cloud.world().states(), stop.clone());
    let dataplane = tokio::spawn(async move { haproxy.run(states, stopped).await });

    let api = ApiServer::builder().start().await.unwrap();
    let provider = Arc::new(super::slb(cloud.api()));
    let settings = Settings::new("test".parse().unwrap());
    let manager = cloud_loadbalancer::build(Manager::builder(api.client()), provider, settings);
    let (manager, stopped) = (manager.await.unwrap(), stop.clone());
    let controller = tokio::spawn(async move { manager.run(stopped).await });

    let pods: Vec<SocketAddr> = PODS
        .iter()
        .map(|last| SocketAddr::from(([127, second, third, *last], 8080)))
        .collect();
    let _pods: Vec<_> = pods
        .iter()
        .map(|address| nodesim::pod(*address, &format!("pod at {address}")).unwrap())
        .collect();
    let (_addresses, pods) = watch::channel(pods);
    let site = Site {
        client: Client::new(api.client()),
        cloud,
        progress,
        pods,
        second,
        third,
    };
    let service: Service = serde_json::from_value(json!({
        "metadata": { "namespace": "default", "name": "web" },
        "spec": {
            "type": "LoadBalancer",
            "selector": { "app": "web" },
            "ports": [{ "port": 8000, "targetPort": 8080 }],
        },
    }))
    .unwrap();
    let service = site.client.create(&service).await.unwrap();
    let ports = service.spec.and_then(|spec| spec.ports).unwrap();
    let node_port = u16::try_from(ports[0].node_port.unwrap()).unwrap();
    let mut nodes = Vec::new();
    for number in 101..=103 {
        nodes.push((number, site.node(number, node_port).await));
    }
    site.until(&[101, 102, 103]).await;
    let key = ObjectKey::namespaced("default", "web");
    let until = Instant::now() + PATIENCE;
    let address: Ipv4Addr = loop {
        let service: Service = site.client.get(&key).await.unwrap();
        let status = service
            .status
            .and_then(|status| status.load_balancer?.ingress);
        let ip = status.and_then(|ingress| ingress.into_iter().next()?.ip);
        if let Some(ip) = ip {
            break ip.parse().unwrap();
        }
        assert!(Instant::now() < until, "no address is published");
        sleep(Duration::from_millis(20)).await;
    };
    let address = SocketAddr::from((address, 8000));
    // The listener is started after its creation.
    while get(address).await.is_err() {
        assert!(Instant::now() < until, "no answer at {address}");
        sleep(Duration::from_millis(20)).await;
    }

    let done = CancellationToken::new();
    let stopped = done.clone();
    let sent = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&sent);
    let load = tokio::spawn(async move {
        let mut ticks = interval(Duration::from_millis(5));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut requests = JoinSet::new();
        while !stopped.is_cancelled() {
            ticks.tick().await;
            requests.spawn(get(address));
            counted.fetch_add(1, Ordering::Relaxed);
        }
        requests.join_all().await
    });
    let started = Instant::now();
    for new in 111..=113 {
        let forwarder = site.node(new, node_port).await;
        let (old, old_forwarder) = nodes.remove(0);
        nodes.push((new, forwarder));
        let with_both: Vec<u8> = nodes
            .iter()
            .map(|(number, _)| *number)
            .chain([old])
            .collect();
        site.until(&with_both).await;
        let key = ObjectKey::cluster(format!("n{old}"));
        site.client
            .delete::<Node>(&key, &Default::default())
            .await
            .unwrap();
        site.until(&nodes.iter().map(|(number, _)| *number).collect::<Vec<_>>())
            .await;
        // A machine outlives its Node: the HAProxy before this configuration may have a connection to it on its way.
        until_one_process(&config).await;
        old_forwarder.stop(PATIENCE).await;
    }
    let until = Instant::now() + PATIENCE;
    while sent.load(Ordering::Relaxed) < REQUESTS {
        assert!(Instant::now() < until, "{sent:?} requests");
        sleep(Duration::from_millis(20)).await;
    }
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
    assert!(answers.len() >= REQUESTS);

    site.client
        .delete::<Service>(&key, &Default::default())
        .await
        .unwrap();
    let until = Instant::now() + PATIENCE;
    while TcpStream::connect(address).await.is_ok() {
        assert!(
            Instant::now() < until,
            "{address} still accepts connections"
        );
        sleep(Duration::from_millis(20)).await;
    }
    stop.cancel();
    controller.await.unwrap().unwrap();
    dataplane.await.unwrap().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}
