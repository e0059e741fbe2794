//! Signals, each to its own process, because an installed handler stays; and the end of a process by itself.
//!
//! One process works on a real kube-apiserver when it gets its signal.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use clap::Parser as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Config;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_core::params::ListParams;
use reeve_apiserver::ApiServer;
use reeve_apiserver::control_plane::ControlPlane;
use reeve_controller::client::Patch;
use reeve_controller::options::{Options, Program};
use reeve_controller::{Client, Manager, ObjectKey, Runnable, leader_election};
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::shutdown::{Acknowledged, counter, counts_of};

/// Set for a process that gets signals: whether its worker ends at the stop.
const WORKER: &str = "REEVE_TEST_WORKER";
/// Set for a process with an API server outside of it: the kubeconfig.
const KUBECONFIG: &str = "REEVE_TEST_KUBECONFIG";
/// The test that waits for a signal.
const MANAGER: &str = "a_manager_that_runs_until_a_signal";
/// The limit of each wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// The process that gets signals. Without the variable the test does nothing.
#[tokio::test]
#[ignore = "other tests start it as a process"]
async fn a_manager_that_runs_until_a_signal() {
    let Ok(worker) = std::env::var(WORKER) else {
        return;
    };
    let server = ApiServer::builder().start().await.unwrap();
    let manager = Manager::builder(server.client())
        .grace_period(Duration::MAX)
        .build()
        .await
        .unwrap();
    let runnable = Runnable::new("worker", move |stop: CancellationToken| async move {
        println!("at work");
        stop.cancelled().await;
        println!("stopping");
        if worker == "hangs" {
            std::future::pending::<()>().await;
        }
        sleep(Duration::from_millis(200)).await;
        println!("done");
        Ok::<_, Infallible>(())
    });
    manager.add(runnable).unwrap();
    manager.run_until_signal().await.unwrap();
}

/// The process that gets a signal while it writes. Without the variable the test does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "another test starts it as a process"]
async fn a_controller_that_counts_until_a_signal() {
    let Ok(file) = std::env::var(KUBECONFIG) else {
        return;
    };
    let kubeconfig = Kubeconfig::read_from(file).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options);
    let client = kube_client::Client::try_from(config.await.unwrap()).unwrap();
    let acknowledged = Acknowledged::default();
    let manager = Manager::builder(client)
        .leader_election(leader_election::Options::new("default", "counter").identity("pod"))
        .build()
        .await
        .unwrap();
    manager.add_controller(counter(&acknowledged)).unwrap();
    let written = Arc::clone(&acknowledged);
    let watching = tokio::spawn(async move {
        while written.lock().values().sum::<u32>() < 100 {
            sleep(Duration::from_millis(5)).await;
        }
        println!("at work");
    });
    manager.run_until_signal().await.unwrap();
    watching.abort();
    for (name, count) in &*acknowledged.lock() {
        println!("acknowledged {name} {count}");
    }
}

/// The flags of the program that blocks a thread.
#[derive(clap::Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

/// The process that blocks a thread while it leads. Without the variable the test does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "another test starts it as a process"]
async fn a_program_that_blocks_a_thread() {
    let Ok(file) = std::env::var(KUBECONFIG) else {
        return;
    };
    let arguments = Arguments::parse_from([
        "blocker",
        "--leader-elect",
        "--leader-election-namespace=default",
        "--health-probe-bind-address=0",
        &format!("--kubeconfig={file}"),
    ]);
    let add = |manager: &Manager| {
        let blocking = Runnable::new("blocking", |_| async {
            println!("at work");
            tokio::task::block_in_place(|| {
                loop {
                    thread::park();
                }
            });
            Ok::<_, Infallible>(())
        });
        Ok(manager.add(blocking)?)
    };
    let program = Program::new("blocker", "1.0.0");
    arguments.options.run(program, add).await;
}

/// A process that gets signals, killed on drop.
struct Process {
    child: Child,
    /// The lines of its output; closed when it has ended.
    lines: Receiver<String>,
}

// === impl Process ===

impl Process {
    /// A process of this binary that runs one test, with one more variable in its environment.
    fn start(test: &str, variable: &str, value: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("signals::{test}")])
            .args(["--ignored", "--nocapture"])
            .env(variable, value)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    /// Reads lines until `said`.
    fn prints(&self, said: &str) {
        while !self
            .lines
            .recv_timeout(PATIENCE)
            .expect(said)
            .ends_with(said)
        {}
    }

    fn is_sent(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.unwrap().success());
    }

    /// The exit status, and the output until the end.
    fn ends(&mut self) -> (Option<i32>, Vec<String>) {
        let mut said = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => said.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end"),
            }
        }
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_first_signal_stops_gracefully() {
    for signal in ["-TERM", "-INT"] {
        let mut process = Process::start(MANAGER, WORKER, "ends");
        process.prints("at work");
        process.is_sent(signal);
        process.prints("stopping");
        process.prints("done");
        assert_eq!(process.ends().0, Some(0), "{signal}");
    }
}

#[test]
fn a_second_signal_exits_with_status_1() {
    for (first, second) in [("-TERM", "-TERM"), ("-INT", "-INT"), ("-TERM", "-INT")] {
        let mut process = Process::start(MANAGER, WORKER, "hangs");
        process.prints("at work");
        process.is_sent(first);
        process.prints("stopping");
        process.is_sent(second);
        assert_eq!(process.ends().0, Some(1), "{first}, {second}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_loses_its_lease_ends_although_a_thread_is_blocked() {
    let server = ApiServer::builder().start().await.unwrap();
    let serving = server.serve(([127, 0, 0, 1], 0).into()).await.unwrap();
    let name = format!("reeve-blocker-{}.kubeconfig", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, serving.kubeconfig()).unwrap();
    let path = file.display().to_string();
    let start = move || Process::start("a_program_that_blocks_a_thread", KUBECONFIG, &path);
    let working = tokio::task::spawn_blocking(move || {
        let process = start();
        process.prints("at work");
        process
    });
    let mut process = working.await.unwrap();
    let client = Client::new(server.client());
    let taken = Patch::merge(json!({"spec": {"holderIdentity": "another"}}));
    let key = ObjectKey::namespaced("default", "blocker");
    client.patch::<Lease>(&key, taken).await.unwrap();
    let ended = tokio::task::spawn_blocking(move || process.ends().0);
    assert_eq!(ended.await.unwrap(), Some(1));
    std::fs::remove_file(&file).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_under_load_loses_no_write_that_a_real_server_acknowledged() {
    let Some(control_plane) = ControlPlane::from_assets().await.unwrap() else {
        return;
    };
    let client = Client::new(control_plane.client().unwrap());
    for number in 0..40 {
        let name = format!("map-{number:03}");
        let map = json!({"metadata": {"name": name, "namespace": "default"}});
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        client.create(&map).await.unwrap();
    }
    let file = control_plane.directory().join("counter.kubeconfig");
    std::fs::write(&file, control_plane.kubeconfig()).unwrap();
    let file = file.display().to_string();
    let said = tokio::task::spawn_blocking(move || {
        let test = "a_controller_that_counts_until_a_signal";
        let mut process = Process::start(test, KUBECONFIG, &file);
        process.prints("at work");
        process.is_sent("-TERM");
        process.ends()
    });
    let (code, said) = said.await.unwrap();
    assert_eq!(code, Some(0), "{said:?}");
    let acknowledged: BTreeMap<String, u32> = said
        .iter()
        .filter_map(|line| line.strip_prefix("acknowledged ")?.split_once(' '))
        .map(|(name, count)| (name.to_owned(), count.parse().unwrap()))
        .collect();
    assert!(acknowledged.values().sum::<u32>() >= 100, "{said:?}");
    let all = ListParams::default();
    let maps = client.list::<ConfigMap>(Some("default"), &all).await;
    assert_eq!(counts_of(maps.unwrap().items), acknowledged);
    let key = ObjectKey::namespaced("default", "counter");
    let lease = client.get::<Lease>(&key).await.unwrap();
    let holder = lease.spec.unwrap().holder_identity;
    assert_eq!(holder.as_deref(), Some(""), "released");
}
