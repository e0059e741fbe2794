//! An API server, the operator with an engine that only records, and the plugin as a process.
//!
//! The server is the built-in one, or kube-apiserver with etcd, see [`World::real`].

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ipblock_operator::api::{self, IPBlock, IPBlockStatus, Phase};
use ipblock_operator::config::CONFIG_MAP;
use ipblock_operator::operator::{Operator, Settings};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::api::{ListParams, Patch, PatchParams, PostParams};
use kube_client::{Api, Client};
use reeve_apiserver::assets;
use reeve_apiserver::control_plane::ControlPlane;
use reeve_apiserver::{ApiServer, Builder, Serving};
use reeve_clock::Clock;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

pub(crate) const WHITELIST: &str = "# offices\n203.0.113.10\n198.51.100.0/24";

/// What the plugin printed, and its exit status.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) text: String,
    pub(crate) errors: String,
    pub(crate) code: Option<i32>,
}

pub(crate) struct World {
    /// An administrator's.
    pub(crate) client: Client,
    _server: Server,
    stop: CancellationToken,
    folder: PathBuf,
}

/// A server that runs until it is dropped.
enum Server {
    Builtin(#[allow(dead_code, reason = "held for its drop")] (ApiServer, Serving)),
    Real(#[allow(dead_code, reason = "held for its drop")] Box<ControlPlane>),
}

// === impl World ===

impl World {
    /// With the kind, the ConfigMap and a running operator.
    pub(crate) async fn new() -> Self {
        Self::empty(ApiServer::builder()).await.complete().await
    }

    /// The same on kube-apiserver with etcd. `None` skips the test, see `reeve_apiserver::assets`.
    pub(crate) async fn real() -> Option<Self> {
        let control_plane = assets::control_plane()?.start().await.unwrap();
        let (client, kubeconfig) = (control_plane.client().unwrap(), control_plane.kubeconfig());
        let server = Server::Real(Box::new(control_plane));
        let world = Self::of(server, client, &kubeconfig);
        Some(world.complete().await)
    }

    /// Adds the kind, the ConfigMap and a running operator.
    async fn complete(mut self) -> Self {
        self.install().await;
        self.configure(&[]).await;
        self.operate().await;
        self
    }

    /// The built-in API server alone.
    pub(crate) async fn empty(builder: Builder) -> Self {
        let server = builder.start().await.unwrap();
        let serving = server.serve(([127, 0, 0, 1], 0).into()).await.unwrap();
        let (client, kubeconfig) = (server.client(), serving.kubeconfig());
        Self::of(Server::Builtin((server, serving)), client, &kubeconfig)
    }

    fn of(server: Server, client: Client, kubeconfig: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("kubectl-ipb-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let world = Self {
            client,
            _server: server,
            stop: CancellationToken::new(),
            folder,
        };
        world.file("kubeconfig", kubeconfig);
        world
    }

    pub(crate) async fn install(&self) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let create = PostParams::default();
        definitions.create(&create, &api::crd()).await.unwrap();
        while self.blocks().list(&ListParams::default()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let web = serde_json::from_value(json!({"metadata": {"name": "web"}})).unwrap();
        namespaces.create(&create, &web).await.unwrap();
    }

    /// Writes the ConfigMap with these keys more.
    pub(crate) async fn configure(&self, more: &[(&str, &str)]) {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "default");
        let mut data = json!({"engine": "dry-run", "whitelist": WHITELIST});
        for (key, text) in more {
            data[*key] = json!(text);
        }
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP}, "data": data});
        let apply = PatchParams::apply("test").force();
        maps.patch(CONFIG_MAP, &apply, &Patch::Apply(map))
            .await
            .unwrap();
    }

    /// Starts the operator.
    pub(crate) async fn operate(&mut self) {
        let operator = Operator::build(self.client.clone(), Settings::new(Clock::system()));
        let operator = operator.await.unwrap();
        let stop = self.stop.child_token();
        tokio::spawn(async move { operator.run(stop).await });
    }

    pub(crate) fn blocks(&self) -> Api<IPBlock> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// The status of a block in the namespace `default`.
    pub(crate) async fn status(&self, name: &str) -> IPBlockStatus {
        self.blocks()
            .get(name)
            .await
            .unwrap()
            .status
            .unwrap_or_default()
    }

    /// Waits until the operator has decided about each block of the namespace `default`.
    pub(crate) async fn decided(&self) {
        let undecided = |block: &IPBlock| {
            let phase = block
                .status
                .as_ref()
                .and_then(|status| status.phase.clone());
            phase.is_none_or(|phase| matches!(phase, Phase::Pending))
        };
        let all = async || {
            let blocks = self.blocks().list(&ListParams::default()).await.unwrap();
            !blocks.items.iter().any(undecided)
        };
        let wait = async {
            while !all().await {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let patience = Duration::from_secs(60);
        let waited = tokio::time::timeout(patience, wait).await;
        waited.expect("each block has a phase within a minute");
    }

    /// Writes a file, and returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs `kubectl-ipb` with the words of `line`; single quotes hold a word with spaces together.
    pub(crate) async fn ipb(&self, line: &str) -> Output {
        self.ipb_with(line, "").await
    }

    /// The same with a standard input.
    pub(crate) async fn ipb_with(&self, line: &str, input: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ipb"));
        command.args(words(line));
        self.run(command, input).await
    }

    /// What it prints on both outputs, in its order.
    pub(crate) async fn printed(&self, line: &str) -> String {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 2>&1"]);
        command.arg(env!("CARGO_BIN_EXE_kubectl-ipb"));
        command.args(words(line));
        self.run(command, "").await.text
    }

    /// Runs a program with the kubeconfig, in the folder of the world.
    pub(crate) async fn run(&self, mut command: Command, input: &str) -> Output {
        let mut child = command
            .env("KUBECONFIG", self.folder.join("kubeconfig"))
            .env("USER", "alice")
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that does not read closes it.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let output = tokio::time::timeout(Duration::from_secs(60), child.wait_with_output());
        let output = output.await.expect("it ends within a minute").unwrap();
        Output {
            text: String::from_utf8(output.stdout).unwrap(),
            errors: String::from_utf8(output.stderr).unwrap(),
            code: output.status.code(),
        }
    }

    /// Runs it and expects success.
    pub(crate) async fn ok(&self, line: &str) -> String {
        let output = self.ipb(line).await;
        assert_eq!(output.code, Some(0), "{line}: {output:?}");
        output.text
    }

    /// Runs it and expects exit status 1 with `part` in its errors.
    pub(crate) async fn refused(&self, line: &str, part: &str) {
        let output = self.ipb(line).await;
        assert_eq!(output.code, Some(1), "{line}: {output:?}");
        assert!(output.errors.contains(part), "{line}: {output:?}");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The words of a line; single quotes hold a word with spaces together.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (place, part) in line.split('\'').enumerate() {
        if place % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// `text` with every time and span replaced, so that outputs can be compared.
pub(crate) fn steady(text: &str) -> String {
    let words = text.split_inclusive(|letter: char| letter.is_whitespace() || letter == ',');
    words
        .map(|word| {
            let bare = word.trim_matches(|c: char| c.is_whitespace() || "(),;:".contains(c));
            let is_time = bare.len() >= 20 && bare.ends_with('Z') && bare.contains('T');
            let is_span = bare.ends_with(['s', 'm', 'h', 'd'])
                && bare.starts_with(|c: char| c.is_ascii_digit())
                && bare
                    .chars()
                    .all(|c| c.is_ascii_digit() || "smhd".contains(c));
            match () {
                () if is_time => word.replace(bare, "TIME"),
                () if is_span => word.replace(bare, "SPAN"),
                () => word.to_owned(),
            }
        })
        .collect()
}
