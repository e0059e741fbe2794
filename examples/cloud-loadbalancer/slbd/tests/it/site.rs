//! A cloud with HAProxy before simulated nodes and Pods, at addresses of its own.

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
use slbd::dataplane::{HaProxy, Progress, udp::Udp};
use slbd::parameters::Parameters;
use slbd::server::{Server, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const HAPROXY: &str = "/usr/sbin/haproxy";

/// The cloud, HAProxy, and the addresses of one test: 127.x.y.0/24 for each of three networks.
pub(crate) struct Site {
    pub(crate) client: Client,
    pub(crate) progress: watch::Receiver<Progress>,
    haproxy: Option<JoinHandle<std::io::Result<()>>>,
    stop: CancellationToken,
    pub(crate) folder: PathBuf,
    pub(crate) second: u8,
    pub(crate) third: u8,
    pub(crate) server: Server,
}

/// A process that is killed when this is dropped.
pub(crate) struct Process(Child);

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
    pub(crate) async fn terminate(mut self) {
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
pub(crate) async fn within(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < until, "no {what} within {PATIENCE:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn get(address: SocketAddr) -> std::io::Result<String> {
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
pub(crate) fn site(test: u8) -> Option<Site> {
    assets::file(HAPROXY, "apt-get install haproxy")?;
    // Tests of other processes on this machine have addresses of their own.
    let pid = std::process::id();
    let second = 128 + u8::try_from(pid % 64).unwrap();
    let third = u8::try_from((pid / 64) % 16).unwrap() * 16 + test;
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
    server
        .world()
        .show_dataplane(haproxy.progress(), Udp::new(16));
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
    pub(crate) fn at(&self, last: u8, port: u16) -> SocketAddr {
        assert!(last >= 128);
        SocketAddr::from(([127, self.second, self.third, last], port))
    }

    /// A Pod as a process, which answers with its name.
    pub(crate) async fn pod(&self, last: u8) -> Process {
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
    pub(crate) async fn node(&self, last: u8, pods: &[u8]) -> Process {
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

    pub(crate) fn backend(&self, node: u8, weight: u8) -> String {
        let ip = self.at(node, 0).ip();
        format!(
            r#"[{{"ServerId":"node-{node}","ServerIp":"{ip}","Port":30080,"Weight":{weight},"Type":"eni"}}]"#
        )
    }

    pub(crate) async fn run(&self, call: Parameters) {
        self.client.run(call).await.unwrap();
    }

    /// A call that changes the data plane, and the load of its configuration.
    pub(crate) async fn change(&mut self, call: Parameters) {
        let before = self.progress.borrow().loaded;
        self.run(call).await;
        let state = Arc::clone(&self.server.world().states().borrow());
        let loaded = self
            .progress
            .wait_for(|now| now.loaded > before && now.has(&state));
        timeout(PATIENCE, loaded).await.unwrap().unwrap();
    }

    /// A load balancer with an empty server group and a running listener: its id, the group and the address.
    pub(crate) async fn balancer(&mut self, protocol: &str) -> (String, String, SocketAddr) {
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

    pub(crate) fn group_call(&self, action: &str, group: &str, backends: &str) -> Parameters {
        Parameters::action(action)
            .with("VServerGroupId", group)
            .with("BackendServers", backends)
    }

    /// Ends HAProxy; the cloud goes on.
    pub(crate) async fn stop_haproxy(&mut self) {
        self.stop.cancel();
        if let Some(haproxy) = self.haproxy.take() {
            timeout(PATIENCE, haproxy).await.unwrap().unwrap().unwrap();
        }
    }

    pub(crate) async fn end(mut self) {
        self.stop_haproxy().await;
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}
