//! The program as its users run it: a process with the token of its ServiceAccount, `scenarios.sh`, and an API server.
//! One test uses the built-in server. When `KUBEBUILDER_ASSETS` names the binaries (`eval
//! "$(tools/kube-apiserver/build.sh)"`), another one uses a real server with the garbage collector of
//! kube-controller-manager.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use http::Request;
use reeve_apiserver::{ApiServer, assets, free_port};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// The limit of each wait.
const PATIENCE: Duration = Duration::from_secs(60);
const FORMS: [&str; 2] = ["raw", "managed"];

/// A directory that is removed at the end of the test.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An API server from the view of kubectl and the program.
struct World {
    kubectl: PathBuf,
    kubeconfig: PathBuf,
    client: kube_client::Client,
    directory: Directory,
}

/// The program, killed at the end of the test.
struct Program {
    child: Child,
    log: PathBuf,
    health: SocketAddr,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_four_scenarios_on_the_built_in_server() {
    let Some(kubectl) = assets::kubectl() else {
        return;
    };
    let server = ApiServer::builder().rbac().start().await.unwrap();
    let serving = server.serve_tls(([127, 0, 0, 1], 0).into()).await.unwrap();
    let world = World::new(kubectl, "built-in", &serving.kubeconfig(), server.client()).await;
    scenarios(&world).await;
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_four_scenarios_on_a_real_server() {
    let Some(builder) = assets::control_plane() else {
        return;
    };
    let Some(kubectl) = assets::kubectl() else {
        return;
    };
    let control_plane = builder.controller_manager(true).start();
    let control_plane = control_plane.await.unwrap();
    let client = control_plane.client().unwrap();
    let world = World::new(kubectl, "real", &control_plane.kubeconfig(), client).await;
    scenarios(&world).await;
    let answer = world.kubectl_output(&[
        "auth",
        "can-i",
        "delete",
        "services",
        "--as=system:serviceaccount:default:mycontroller-sa",
    ]);
    assert_eq!(answer.await.trim(), "no");
}

/// Installs the program, and runs the scenarios with each form.
async fn scenarios(world: &World) {
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/role");
    let manifests = manifests.display().to_string();
    world.kubectl_output(&["create", "-f", &manifests]).await;
    let account = world.account_kubeconfig().await;
    for form in FORMS {
        let program = world.start(form, &account).await;
        program.until("start success").await;
        program.until_ready().await;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios.sh");
        let mut script = Command::new(script);
        script.env("KUBECTL", &world.kubectl);
        let output = world.output(&mut script).await;
        assert!(output.contains("== all four scenarios passed"), "{output}");
        let log = program.log();
        let line = |what: &str| {
            log.matches(&format!(
                "{what} ingress, name:nginx-pod-demo, namespace:default"
            ))
            .count()
        };
        assert_eq!(line("create"), 3, "{log}");
        // The garbage collector may have deleted the last one first.
        assert!((1..=2).contains(&line("delete")), "{log}");

        // The garbage collector deletes the Ingress without the program, by its owner reference.
        world.annotated_service(form).await;
        world.until_ingress(form, true).await;
        program.quit().await;
        world.kubectl_output(&["delete", "service", form]).await;
        world.until_ingress(form, false).await;
    }
}

// === impl World ===

impl World {
    async fn new(
        kubectl: PathBuf,
        name: &str,
        kubeconfig: &str,
        client: kube_client::Client,
    ) -> Self {
        let directory =
            std::env::temp_dir().join(format!("service-ingress-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("admin.kubeconfig");
        std::fs::write(&file, kubeconfig).unwrap();
        Self {
            kubectl,
            kubeconfig: file,
            client,
            directory: Directory(directory),
        }
    }

    /// The output of a command, which must succeed.
    async fn output(&self, command: &mut Command) -> String {
        let running = command
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = timeout(2 * PATIENCE, running).await.unwrap().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        // `can-i` answers no with an exit status.
        let is_answer = stdout.trim() == "no";
        assert!(
            output.status.success() || is_answer,
            "{command:?}: {}\n{stdout}\n{stderr}",
            output.status
        );
        stdout
    }

    async fn kubectl_output(&self, arguments: &[&str]) -> String {
        self.output(Command::new(&self.kubectl).args(arguments))
            .await
    }

    async fn request(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<Value, kube_client::Error> {
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json");
        self.client.request(request.body(body).unwrap()).await
    }

    /// The kubeconfig of the program's ServiceAccount.
    async fn account_kubeconfig(&self) -> PathBuf {
        let review =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let path = "/api/v1/namespaces/default/serviceaccounts/mycontroller-sa/token";
        let answer = self.request("POST", path, &review).await.unwrap();
        let text = std::fs::read_to_string(&self.kubeconfig).unwrap();
        let mut config: Value = serde_saphyr::from_str(&text).unwrap();
        for user in config["users"].as_array_mut().unwrap() {
            user["user"] = json!({"token": answer["status"]["token"]});
        }
        let file = self.directory.0.join("account.kubeconfig");
        std::fs::write(&file, config.to_string()).unwrap();
        file
    }

    async fn annotated_service(&self, name: &str) {
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "annotations": {"ingress/http": ""}},
            "spec": {"ports": [{"port": 80}]},
        });
        self.request("POST", "/api/v1/namespaces/default/services", &service)
            .await
            .unwrap();
    }

    async fn until_ingress(&self, name: &str, there: bool) {
        let path = format!("/apis/networking.k8s.io/v1/namespaces/default/ingresses/{name}");
        let end = Instant::now() + PATIENCE;
        while self.request("GET", &path, &Value::Null).await.is_ok() != there {
            assert!(Instant::now() < end, "the Ingress {name} is there: {there}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Starts the program with the flag of the original, and those of the Deployment.
    async fn start(&self, form: &str, kubeconfig: &Path) -> Program {
        let log = self.directory.0.join(format!("{form}.log"));
        let file = std::fs::File::create(&log).unwrap();
        let health = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
        let child = Command::new(env!("CARGO_BIN_EXE_service-ingress"))
            .arg("-kubeconfig")
            .arg(kubeconfig)
            .args([
                "--form",
                form,
                "--leader-elect",
                "--leader-election-namespace=default",
                &format!("--health-probe-bind-address={health}"),
            ])
            .env("POD_NAME", format!("pod-{form}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Program { child, log, health }
    }
}

// === impl Program ===

impl Program {
    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until the log has `text`.
    async fn until(&self, text: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.log().contains(text) {
            assert!(Instant::now() < end, "{text}:\n{}", self.log());
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until `/readyz` answers 200.
    async fn until_ready(&self) {
        let end = Instant::now() + PATIENCE;
        while self.get("/readyz").await.as_deref() != Some("200") {
            assert!(Instant::now() < end, "not ready:\n{}", self.log());
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// The status of the answer to a GET.
    async fn get(&self, path: &str) -> Option<String> {
        let mut stream = tokio::net::TcpStream::connect(self.health).await.ok()?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n",
            self.health
        );
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        answer.split_whitespace().nth(1).map(str::to_owned)
    }

    /// Sends SIGQUIT, as the original program also accepts. The program logs the stop and ends without an error.
    async fn quit(mut self) {
        let id = self.child.id().unwrap().to_string();
        let sent = Command::new("kill").args(["-QUIT", &id]).status();
        assert!(sent.await.unwrap().success());
        let ended = timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap();
        let log = self.log();
        assert!(
            ended.success() && log.contains("program shutdown..."),
            "{ended}:\n{log}"
        );
    }
}
