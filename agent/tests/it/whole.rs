//! From an object to a dropped packet: the API server, the operator and the agent as processes on the node.
//!
//! The case runs on `reeve-apiserver`, and on etcd and kube-apiserver where `KUBEBUILDER_ASSETS` names them. The programs of
//! other packages are those that `cargo test --workspace` builds beside this one.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use reeve_apiserver::assets;
use serde_json::{Value, json};

use crate::namespace::{CLIENT, Pair, wait};
use crate::server::{Kind, Server, beside};

/// How long the operator has to start and to act.
const TRIES: usize = 200;

/// The processes, which are killed when this is dropped, and their files.
struct World {
    pair: Pair,
    directory: PathBuf,
    server: Option<Server>,
    processes: Vec<Child>,
}

impl World {
    /// Starts an API server and the operator, whose engine is a list, and the agent.
    fn start(kind: Kind) -> Option<Self> {
        let pair = Pair::new()?;
        let operator = beside("ipblock-operator")?;
        let curl = Command::new("curl").arg("--version").output().ok();
        assets::decide(curl, "curl is not installed")?;
        let directory =
            std::env::temp_dir().join(format!("ipblock-whole-{kind:?}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let token = directory.join("list-token");
        std::fs::write(&token, "t0ken\n").unwrap();
        let mut world = Self {
            server: Server::start(kind, &pair.node, &directory),
            pair,
            directory,
            processes: Vec::new(),
        };
        let kubeconfig = world.server.as_ref()?.kubeconfig.clone();
        world.install(&operator, &token);
        let mut command = world.pair.node.command(operator.to_str().unwrap());
        command
            .args([
                "run",
                "--metrics-bind-address=0",
                "--health-probe-bind-address=0",
            ])
            .arg("--secrets-dir")
            .arg(&world.directory)
            .env("KUBECONFIG", &kubeconfig);
        world.spawn(&mut command);
        let mut command = world.pair.node.command(env!("CARGO_BIN_EXE_ipblock-agent"));
        command
            .args([
                "run",
                "--list-url=http://127.0.0.1:8093/bans",
                "--node-name=node-7",
            ])
            .args(["--bind-address=127.0.0.1:9478", "--token-file"])
            .arg(&token);
        world.spawn(&mut command);
        Some(world)
    }

    /// The kinds and the ConfigMap.
    fn install(&self, operator: &Path, token: &Path) {
        let printed = Command::new(operator).arg("crd").output().unwrap().stdout;
        let definitions: Vec<Value> =
            serde_saphyr::from_multiple(std::str::from_utf8(&printed).unwrap()).unwrap();
        for definition in &definitions {
            self.create(
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                definition,
            );
        }
        let engines = json!([{
            "name": "nodes",
            "type": "list",
            "addr": "127.0.0.1:8093",
            "bearerTokenFile": token,
        }]);
        self.create(
            "/api/v1/namespaces/default/configmaps",
            &json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "ipblock-operator-config"},
                "data": {"whitelist": "", "engines": engines.to_string()},
            }),
        );
    }

    fn spawn(&mut self, command: &mut Command) {
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        self.processes.push(quiet.spawn().unwrap());
    }

    /// Creates an object; its kind may have been defined a moment ago.
    fn create(&self, path: &str, object: &Value) {
        let created = (0..TRIES).any(|_| {
            let done = self.request("POST", path, Some(object)).is_some();
            if !done {
                wait(Duration::from_millis(50));
            }
            done
        });
        assert!(created, "{object}");
    }

    /// Whether the phase of a block becomes `phase`.
    fn becomes(&self, name: &str, phase: &str) -> bool {
        let path = format!("{BLOCKS}/{name}");
        (0..TRIES).any(|_| {
            let block = self.request("GET", &path, None).unwrap_or_default();
            let done = block["status"]["phase"] == phase;
            if !done {
                wait(Duration::from_millis(50));
            }
            done
        })
    }

    /// Bans `target` for `duration`.
    fn ban(&self, name: &str, target: &str, duration: &str) {
        let block = json!({
            "apiVersion": "ops.yiiong.top/v1",
            "kind": "IPBlock",
            "metadata": {"name": name},
            "spec": {"ip": target, "duration": duration, "reason": "a test"},
        });
        self.create(BLOCKS, &block);
    }

    /// Changes a block by a merge patch.
    fn patch(&self, name: &str, patch: &Value) {
        let path = format!("{BLOCKS}/{name}");
        assert!(
            self.request("PATCH", &path, Some(patch)).is_some(),
            "{patch}"
        );
    }

    /// A request from inside of the node. `None`: no answer, or no success.
    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Option<Value> {
        let server = self.server.as_ref()?;
        server.request(&self.pair.node, method, path, body)
    }

    /// Kills all processes.
    fn kill(&mut self) {
        for mut process in self.processes.drain(..).rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
        self.server = None;
    }
}

const BLOCKS: &str = "/apis/ops.yiiong.top/v1/namespaces/default/ipblocks";

impl Drop for World {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

mod builtin {
    #[test]
    fn a_block_drops_packets_and_ends_on_time_without_operator_api_server_and_agent() {
        super::case(crate::server::Kind::Builtin);
    }
}

mod real {
    #[test]
    fn a_block_drops_packets_and_ends_on_time_without_operator_api_server_and_agent() {
        super::case(crate::server::Kind::Real);
    }
}

fn case(kind: Kind) {
    let Some(mut world) = World::start(kind) else {
        return;
    };
    world.ban("lifted", CLIENT[2], "1h");
    world.ban("kept", CLIENT[1], "1h");
    assert!(world.pair.becomes_dropped(CLIENT[2]) && world.pair.becomes_dropped(CLIENT[1]));
    assert!(world.becomes("lifted", "active"));
    // The operator lifts it, and the agent follows.
    world.patch("lifted", &json!({"spec": {"unblock": true}}));
    assert!(world.pair.passes(CLIENT[2]));
    assert!(world.becomes("lifted", "expired"));

    // Everything but the kernel is gone.
    world.ban("short", CLIENT[0], "5s");
    assert!(world.pair.becomes_dropped(CLIENT[0]));
    world.kill();
    assert!(world.pair.is_dropped(CLIENT[0]));
    assert!(world.pair.passes(CLIENT[0]), "its time is over");
    assert!(
        world.pair.is_dropped(CLIENT[1]),
        "the time of the other is not"
    );
}
