//! An API server, kubectl, and guards as processes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use reeve_apiserver::control_plane::ControlPlane;
use reeve_apiserver::{ApiServer, Serving, assets, free_port};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// The limit of each wait.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

pub(super) const CONFIG: &str = r#"
name: hbox
callers:
  users: [hbox-pre]
  groups: ["hbox:pre-release"]
  serviceAccountNamespaces: [hbox-pre]
accounts: [hbox/free]
patience: 5
"#;

/// The API server of a test.
enum Server {
    BuiltIn(ApiServer, Serving),
    Real(Box<ControlPlane>),
}

/// A directory that is removed at the end of the test.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An API server with the rights of a guard, from the view of its administrator.
pub(super) struct World {
    server: Server,
    kubectl: PathBuf,
    directory: Directory,
    pub(super) client: kube_client::Client,
}

/// A guard, killed at the end of the test.
pub(super) struct Guard {
    child: Child,
    log: PathBuf,
    pub(super) audit: PathBuf,
    pub(super) address: SocketAddr,
}

// === impl World ===

impl World {
    /// The built-in server. `None` without kubectl.
    pub(super) async fn built_in(name: &str) -> Option<Self> {
        let world = Self::built_in_empty(name).await?;
        world.prepare().await;
        Some(world)
    }

    /// The built-in server with nothing on it.
    pub(super) async fn built_in_empty(name: &str) -> Option<Self> {
        let (kubectl, directory) = (assets::kubectl()?, directory(name));
        let server = ApiServer::builder().rbac().start().await.unwrap();
        let serving = server.serve_tls(([127, 0, 0, 1], 0).into()).await.unwrap();
        let (kubeconfig, client) = (serving.kubeconfig(), server.client());
        let server = Server::BuiltIn(server, serving);
        let world = Self {
            server,
            kubectl,
            directory,
            client,
        };
        std::fs::write(world.file("admin.yaml"), kubeconfig).unwrap();
        Some(world)
    }

    /// A real server that accepts client certificates of the authority in `pki`. `None` without kubectl or kube-apiserver.
    pub(super) async fn real(name: &str) -> Option<Self> {
        let world = Self::real_server(name, false).await?;
        world.prepare().await;
        Some(world)
    }

    /// The same, with nothing on it.
    pub(super) async fn real_empty(name: &str) -> Option<Self> {
        Self::real_server(name, false).await
    }

    /// The same, with the controller that signs client certificates.
    pub(super) async fn real_with_signer(name: &str) -> Option<Self> {
        let world = Self::real_server(name, true).await?;
        world.prepare().await;
        Some(world)
    }

    async fn real_server(name: &str, signs: bool) -> Option<Self> {
        let (mut builder, kubectl) = (assets::control_plane()?, assets::kubectl()?);
        let directory = directory(name);
        certificates(&directory.0).await;
        let authority = directory.0.join("pki/ca.crt").display().to_string();
        builder = builder.apiserver_argument(format!("--client-ca-file={authority}"));
        if signs {
            let key = directory.0.join("pki/ca.key").display().to_string();
            // The other controllers would change objects.
            let controllers = "--controllers=certificatesigningrequest-signing-controller,serviceaccount-controller";
            builder = builder
                .controller_manager(true)
                .controller_manager_argument(controllers)
                .controller_manager_argument(format!("--cluster-signing-cert-file={authority}"))
                .controller_manager_argument(format!("--cluster-signing-key-file={key}"));
        }
        let plane = builder.start().await.unwrap();
        let (kubeconfig, client) = (plane.kubeconfig(), plane.client().unwrap());
        let server = Server::Real(Box::new(plane));
        let world = Self {
            server,
            kubectl,
            directory,
            client,
        };
        std::fs::write(world.file("admin.yaml"), kubeconfig).unwrap();
        Some(world)
    }

    /// Certificates, the configuration, the manifests, and all rights for the pre-release callers: only the guard refuses
    /// their requests.
    async fn prepare(&self) {
        std::fs::write(self.file("guard.yaml"), CONFIG).unwrap();
        certificates(&self.directory.0).await;
        let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
        for file in ["guard.yaml", "rbac.yaml"] {
            let file = manifests.join(file).display().to_string();
            self.kubectl(&["apply", "-f", &file]).await;
        }
        for namespace in ["hbox", "hbox-pre"] {
            self.kubectl(&["create", "namespace", namespace]).await;
        }
        self.kubectl(&["-n", "hbox-pre", "create", "serviceaccount", "ci"])
            .await;
        self.kubectl(&[
            "create",
            "clusterrolebinding",
            "pre-release",
            "--clusterrole=cluster-admin",
            "--user=hbox-pre",
            "--group=hbox:pre-release",
            "--serviceaccount=hbox-pre:ci",
        ])
        .await;
        self.give_rights_to_guard().await;
    }

    /// Writes the kubeconfig of guards, with a token of the ServiceAccount of the manifests.
    pub(super) async fn give_rights_to_guard(&self) {
        let account = [
            "kubeconfig",
            "--unchecked",
            "--user=guard",
            "--namespace=preprod-guard",
            "--service-account=preprod-guard",
        ];
        let out = format!("--out={}", self.file("guard.kubeconfig").display());
        self.guard_command(&[&account[..], &[&out]].concat()).await;
    }

    pub(super) fn is_real(&self) -> bool {
        matches!(self.server, Server::Real(_))
    }

    /// A kubeconfig of the built-in server with a client certificate.
    pub(super) fn kubeconfig_of(&self, user: &str, group: &str) -> Option<String> {
        let Server::BuiltIn(_, serving) = &self.server else {
            return None;
        };
        let certificate = serving.user_certificate(user, Some(group)).unwrap();
        Some(serving.kubeconfig_of(&certificate.unwrap()))
    }

    /// The address of the store of a real server.
    pub(super) fn etcd(&self) -> Option<&str> {
        match &self.server {
            Server::BuiltIn(..) => None,
            Server::Real(plane) => Some(plane.etcd_url()),
        }
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.directory.0.join(name)
    }

    /// The standard output of kubectl, which must succeed.
    pub(super) async fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.try_kubectl("admin.yaml", arguments).await;
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The result of kubectl with a kubeconfig.
    pub(super) async fn try_kubectl(&self, kubeconfig: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.kubectl);
        command
            .args(arguments)
            .env("KUBECONFIG", self.file(kubeconfig));
        run(&mut command).await
    }

    /// The result of a line for the shell in the directory of the test, as the administrator.
    pub(super) async fn shell(&self, line: &str) -> Output {
        let program = Path::new(env!("CARGO_BIN_EXE_preprod-guard"));
        let kubectl = self.kubectl.parent().unwrap();
        let paths = [program.parent().unwrap(), kubectl, Path::new("/usr/bin")];
        let paths = std::env::join_paths(paths.into_iter().chain([Path::new("/bin")])).unwrap();
        let mut command = Command::new("sh");
        command
            .args(["-c", line])
            .current_dir(&self.directory.0)
            .env("PATH", paths)
            .env("KUBECONFIG", self.file("admin.yaml"));
        run(&mut command).await
    }

    /// The result of a command of the program, with the rights of the administrator.
    pub(super) async fn try_guard_command(&self, arguments: &[&str]) -> Output {
        let mut command = program();
        command
            .args(arguments)
            .env("KUBECONFIG", self.file("admin.yaml"));
        run(&mut command).await
    }

    /// The standard output of a command of the program, which must succeed.
    pub(super) async fn guard_command(&self, arguments: &[&str]) -> String {
        let output = self.try_guard_command(arguments).await;
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Applies the webhook configurations, and returns what kubectl printed.
    pub(super) async fn install(&self, guard: &Guard, ca: Option<&Path>) -> String {
        let config = format!("--config={}", self.file("guard.yaml").display());
        let url = format!("--url=https://{}", guard.address);
        let ca = ca.map(|ca| format!("--ca={}", ca.display()));
        let arguments = ["install", &config, &url];
        let manifest = self
            .guard_command(
                &[
                    &arguments[..],
                    &ca.as_deref().into_iter().collect::<Vec<_>>(),
                ]
                .concat(),
            )
            .await;
        let file = self.file("webhooks.yaml");
        std::fs::write(&file, manifest).unwrap();
        self.kubectl(&["apply", "-f", &file.display().to_string()])
            .await
    }

    /// Replaces the Service of the guard with one that leads to `guard`, and installs the configurations for it. The API server
    /// expects a certificate for the name of the Service.
    pub(super) async fn install_service(&self, guard: &Guard) {
        self.kubectl(&["-n", "preprod-guard", "delete", "service", "preprod-guard"])
            .await;
        let arguments = ["--external-name=localhost", "preprod-guard"];
        let create = ["-n", "preprod-guard", "create", "service", "externalname"];
        self.kubectl(&[&create[..], &arguments].concat()).await;
        let config = format!("--config={}", self.file("guard.yaml").display());
        let manifest = self.guard_command(&["install", &config]).await;
        let port = format!("port: {}", guard.address.port());
        let file = self.file("webhooks.yaml");
        std::fs::write(&file, manifest.replace("port: 443", &port)).unwrap();
        self.kubectl(&["apply", "-f", &file.display().to_string()])
            .await;
    }

    /// Starts a guard with the rights of its ServiceAccount.
    pub(super) fn start(&self, name: &str, flags: &[&str]) -> Guard {
        let (log, audit) = (
            self.file(&format!("{name}.log")),
            self.file(&format!("{name}.jsonl")),
        );
        let address = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
        let child = program()
            .arg("run")
            .arg("--config")
            .arg(self.file("guard.yaml"))
            .arg("--kubeconfig")
            .arg(self.file("guard.kubeconfig"))
            .arg("--audit-log")
            .arg(&audit)
            .arg(format!("--webhook-port={}", address.port()))
            .arg("--health-probe-bind-address=0")
            .args(
                flags
                    .iter()
                    .all(|flag| !flag.starts_with("--linger"))
                    .then_some("--linger=0"),
            )
            .args(flags)
            .env("POD_NAME", name)
            .env("POD_NAMESPACE", "preprod-guard")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Guard {
            child,
            log,
            audit,
            address,
        }
    }

    /// Waits until the API server calls the webhooks: a real one reads configurations from a cache.
    pub(super) async fn until_called(&self) {
        let end = Instant::now() + PATIENCE;
        loop {
            let arguments = [
                "--as=hbox-pre",
                "--as-group=system:masters",
                "create",
                "priorityclass",
                "probe",
                "--value=1",
                "--dry-run=server",
            ];
            let output = text(&self.try_kubectl("admin.yaml", &arguments).await);
            if output.contains("denied the request") {
                return;
            }
            assert!(Instant::now() < end, "the webhook is not called: {output}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    pub(super) async fn end(self) {
        match self.server {
            Server::BuiltIn(server, serving) => {
                serving.stop().await;
                server.shutdown().await.unwrap();
            }
            Server::Real(plane) => drop(plane),
        }
    }
}

// === impl Guard ===

impl Guard {
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until the log has `text`.
    pub(super) async fn until(&self, text: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.log().contains(text) {
            assert!(Instant::now() < end, "{text}:\n{}", self.log());
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Sends a signal to the process.
    pub(super) async fn signal(&self, signal: &str) {
        let id = self.child.id().unwrap().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().await;
        assert!(sent.unwrap().success());
    }

    /// Kills the process, as a node that fails does.
    pub(super) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_preprod-guard"))
}

async fn run(command: &mut Command) -> Output {
    let running = command.stdin(Stdio::null()).kill_on_drop(true).output();
    timeout(PATIENCE, running).await.unwrap().unwrap()
}

/// What a command printed.
pub(super) fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

fn directory(name: &str) -> Directory {
    let directory =
        std::env::temp_dir().join(format!("preprod-guard-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    Directory(directory)
}

async fn certificates(directory: &Path) {
    let mut command = program();
    let names = ["--dns=preprod-guard.preprod-guard.svc", "--ip=127.0.0.1"];
    command
        .args(["certs", "init", "--dir"])
        .arg(directory.join("pki"))
        .args(names);
    let output = run(&mut command).await;
    assert!(output.status.success(), "{}", text(&output));
}
