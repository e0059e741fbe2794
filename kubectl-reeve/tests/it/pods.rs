//! The Pods of a program, with a kubectl that is a script.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use reeve_controller::metrics_server::Certificate;
use reeve_controller::testing::Cluster;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::plugin::{plugin, run};
use super::program::{anywhere, start};

/// A folder with a kubectl that knows the Deployment `web`, and forwards to fixed ports. It is removed with its files.
struct Kubectl(PathBuf);

impl Kubectl {
    /// A kubectl that serves these Pods, each with its phase and its port on this machine.
    fn new(test: &str, pods: &[(&str, &str, u16)]) -> Self {
        let folder =
            std::env::temp_dir().join(format!("kubectl-reeve-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let items = pods.iter().map(|(name, phase, _)| {
            let ports = json!([{"name": "metrics", "containerPort": 8080}]);
            let spec = json!({"containers": [{"name": "web"}, {"name": "more", "ports": ports}]});
            json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}})
        });
        let list = json!({"items": items.collect::<Vec<Value>>()});
        let deployment = json!({"spec": {"selector": {"matchLabels": {"app": "web"}}}});
        let mut ports = String::new();
        for (name, _, port) in pods {
            let _ = writeln!(ports, "  *pod/{name}\\ :*) port={port} ;;");
        }
        let folder_name = folder.display();
        let script = format!(
            "#!/bin/sh\necho \"$*\" >>{folder_name}/calls\ncase \"$*\" in\n\
             *port-forward*) ;;\n\
             *'get deployment web -o json') echo '{deployment}'; exit ;;\n\
             *'get pods -l app=web -o json') echo '{list}'; exit ;;\n\
             *) echo 'Error from server (NotFound): no such thing' >&2; exit 1 ;;\nesac\n\
             port=\ncase \"$*\" in\n{ports}esac\n\
             if [ -z \"$port\" ]; then echo 'error: unable to forward port' >&2; exit 1; fi\n\
             echo $$ >>{folder_name}/processes\n\
             echo \"Forwarding from 127.0.0.1:$port -> 8080\"\nexec /bin/sleep 1000\n"
        );
        let file = folder.join("kubectl");
        std::fs::write(&file, script).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        Self(folder)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn lines(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.0.join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits for the end of each process that forwards a port.
    async fn ends(&self, cluster: &Cluster) {
        let ended = async || self.has_ended().then_some(()).ok_or("it runs");
        cluster.eventually("no kubectl runs", ended).await;
    }

    /// Whether no process that forwards a port runs. A killed one may be a zombie until its parent collects it.
    fn has_ended(&self) -> bool {
        self.lines("processes").iter().all(|process| {
            let state = std::fs::read_to_string(format!("/proc/{process}/stat"));
            state.map_or(true, |state| state.contains(") Z "))
        })
    }
}

impl Drop for Kubectl {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn every_pod_of_a_deployment_is_shown_the_leader_first() {
    let cluster = Cluster::in_process().await;
    let (leader, led) = start(&cluster, "web-b", anywhere()).await;
    let running = cluster.eventually("it leads", async || {
        let text = super::plugin::at(&led.to_string(), &[]).await.text;
        if text.contains("(leads)") {
            Ok(())
        } else {
            Err(text)
        }
    });
    running.await;
    let (standby, waits) = start(&cluster, "web-a", anywhere()).await;
    let pods = [
        ("web-a", "Running", waits.port()),
        ("web-b", "Running", led.port()),
        ("web-c", "Pending", 1),
    ];
    let kubectl = Kubectl::new("leader", &pods);
    let flags = [
        "deploy/web",
        "-n",
        "ns",
        "--context",
        "here",
        "--kubeconfig",
        "file",
    ];
    let output = run(kubectl.path(), &flags).await;
    assert_eq!(output.code, Some(1), "one Pod has no report: {output:?}");
    let text = &output.text;
    assert!(text.starts_with("pod/web-b  (leads)\n"), "{text}");
    assert!(text.contains("\npod/web-a\n"), "{text}");
    assert!(
        text.contains("\npod/web-c\n  error: the Pod is Pending\n"),
        "{text}"
    );
    let calls = kubectl.lines("calls");
    let flags = "--kubeconfig file --context here --namespace ns ";
    assert!(
        calls.iter().all(|call| call.starts_with(flags)),
        "{calls:?}"
    );
    let forward = format!("{flags}port-forward --address 127.0.0.1 pod/web-b :metrics");
    assert!(calls.contains(&forward), "{calls:?}");
    assert_eq!(kubectl.lines("processes").len(), 2);
    kubectl.ends(&cluster).await;
    leader.end().await;
    standby.end().await;
}

#[tokio::test]
async fn what_kubectl_refuses_is_shown() {
    let kubectl = Kubectl::new("refuses", &[]);
    for (target, text) in [
        (
            "deploy/other",
            "kubectl get deployment other -o json failed: Error from server (NotFound)",
        ),
        ("deploy/web", "deployment/web has no Pods"),
    ] {
        let output = run(kubectl.path(), &[target]).await;
        assert_eq!(output.code, Some(1));
        assert!(output.errors.contains(text), "{output:?}");
    }
}

#[tokio::test]
async fn a_server_that_answers_only_https_is_found() {
    let cluster = Cluster::in_process().await;
    let server = anywhere().secure(Certificate::SelfSigned);
    let (running, address) = start(&cluster, "web-a", server).await;
    let kubectl = Kubectl::new("https", &[("web-a", "Running", address.port())]);
    let flags = ["deploy/web", "--port", "8443", "--insecure-skip-tls-verify"];
    let output = run(kubectl.path(), &flags).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    let forward = "port-forward --address 127.0.0.1 pod/web-a :8443".to_owned();
    assert!(kubectl.lines("calls").contains(&forward));
    running.end().await;
}

#[tokio::test]
async fn a_watch_keeps_its_connection_and_ends_it_at_a_signal() {
    let cluster = Cluster::in_process().await;
    let (running, address) = start(&cluster, "web-a", anywhere()).await;
    let kubectl = Kubectl::new("watch", &[("web-a", "Running", address.port())]);
    let mut watch = plugin(kubectl.path(), &["-l", "app=web", "--watch"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut refreshes = 0;
    while refreshes < 2 {
        let line = lines.next_line().await.unwrap().unwrap();
        refreshes += usize::from(line.starts_with("pod/web-a"));
    }
    assert_eq!(kubectl.lines("processes").len(), 1, "one connection");
    assert!(!kubectl.has_ended());
    let process = watch.id().unwrap().to_string();
    let killed = std::process::Command::new("kill").arg(process).status();
    assert!(killed.unwrap().success());
    assert_eq!(watch.wait().await.unwrap().code(), Some(0));
    kubectl.ends(&cluster).await;
    running.end().await;
}
