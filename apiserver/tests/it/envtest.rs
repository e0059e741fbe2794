//! The programs of envtest as a test on envtest uses them: its flags, its files, its health checks, its users.

#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use kube_client::Client;
use kube_client::config::{Config, KubeConfigOptions, Kubeconfig};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, SanType,
};
use serde_json::{Value, json};
use tokio::process::Child;
use tokio::time::Instant;

/// Time for a program to start or stop.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running program; killed when dropped.
struct Program(Child);

/// A directory with the programs and the files of a control plane; removed when dropped.
struct Directory(PathBuf);

/// An authority and the certificates that it signed.
struct Authority(CertifiedIssuer<'static, KeyPair>);

// === impl Program ===

impl Program {
    fn start(path: &Path, arguments: &[String]) -> Self {
        let mut command = tokio::process::Command::new(path);
        command.args(arguments).stdout(Stdio::null());
        Self(
            command
                .kill_on_drop(true)
                .spawn()
                .expect("the program starts"),
        )
    }

    async fn terminate(&mut self) -> ExitStatus {
        let id = self.0.id().expect("it runs").to_string();
        assert!(
            Command::new("kill")
                .arg(id)
                .status()
                .expect("kill runs")
                .success()
        );
        let ended = tokio::time::timeout(PATIENCE, self.0.wait()).await;
        ended.expect("it stops").expect("a child")
    }
}

// === impl Directory ===

impl Directory {
    /// The programs, written by the program itself.
    fn with_programs(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("reeve-envtest-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        let written = Command::new(env!("CARGO_BIN_EXE_reeve-apiserver"))
            .arg("envtest")
            .arg(path.join("bin"))
            .output()
            .expect("it runs");
        assert!(written.status.success());
        let line = String::from_utf8(written.stdout).expect("a text");
        let expected = format!(
            "export KUBEBUILDER_ASSETS='{}'\n",
            path.join("bin").display()
        );
        assert_eq!(line, expected);
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn program(&self, name: &str) -> PathBuf {
        self.0.join("bin").join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

// === impl Authority ===

impl Authority {
    fn new() -> Self {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(parameters, key).expect("a certificate"))
    }

    /// A certificate and its key, PEM.
    fn sign(&self, name: &str, group: &str, purpose: ExtendedKeyUsagePurpose) -> (String, String) {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters
            .distinguished_name
            .push(DnType::OrganizationName, group);
        parameters.extended_key_usages = vec![purpose];
        parameters
            .subject_alt_names
            .push(SanType::IpAddress([127, 0, 0, 1].into()));
        let key = KeyPair::generate().expect("a key");
        let certificate = parameters.signed_by(&key, &self.0).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }
}

/// A control plane of both programs, with what envtest passes to them.
struct ControlPlane {
    directory: Directory,
    port: u16,
    serving: Authority,
    users: Authority,
    arguments: Vec<String>,
    etcd: Program,
    apiserver: Option<Program>,
}

// === impl ControlPlane ===

impl ControlPlane {
    fn new(name: &str, more: &[&str]) -> Self {
        let directory = Directory::with_programs(name);
        let (etcd_port, port) = (free_port(), free_port());
        let etcd_url = format!("http://127.0.0.1:{etcd_port}");
        let etcd = Program::start(
            &directory.program("etcd"),
            &[
                format!("--advertise-client-urls={etcd_url}"),
                format!("--data-dir={}", directory.file("data")),
                format!("--listen-client-urls={etcd_url}"),
                format!("--listen-peer-urls=http://127.0.0.1:{}", free_port()),
                "--unsafe-no-fsync=true".to_owned(),
            ],
        );
        let (serving, users, accounts) = (Authority::new(), Authority::new(), Authority::new());
        let (certificate, key) =
            serving.sign("localhost", "envtest", ExtendedKeyUsagePurpose::ServerAuth);
        for (name, content) in [
            ("apiserver.crt", certificate),
            ("apiserver.key", key),
            ("users.crt", users.0.pem()),
            ("sa.crt", accounts.0.pem()),
            ("sa.key", accounts.0.key().serialize_pem()),
        ] {
            fs::write(directory.file(name), content).expect("a file");
        }
        let mut arguments = vec![
            "--allow-privileged=true".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--cert-dir={}", directory.0.display()),
            format!("--client-ca-file={}", directory.file("users.crt")),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            format!("--etcd-servers={etcd_url}"),
            format!("--secure-port={port}"),
            format!("--service-account-issuer=https://127.0.0.1:{port}/"),
            format!("--service-account-key-file={}", directory.file("sa.crt")),
            format!(
                "--service-account-signing-key-file={}",
                directory.file("sa.key")
            ),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        ];
        arguments.extend(more.iter().map(|text| (*text).to_owned()));
        Self {
            directory,
            port,
            serving,
            users,
            arguments,
            etcd,
            apiserver: None,
        }
    }

    /// Starts the API server and waits until it is healthy for clients without credentials.
    async fn start(&mut self) {
        let program = self.directory.program("kube-apiserver");
        self.apiserver = Some(Program::start(&program, &self.arguments));
        let client = self.client(json!({})).await;
        let deadline = Instant::now() + PATIENCE;
        while get(&client, "/healthz").await.is_err() {
            assert!(Instant::now() < deadline, "it is not healthy");
            tokio::task::yield_now().await;
        }
    }

    async fn stop(&mut self) {
        let mut apiserver = self.apiserver.take().expect("it runs");
        assert_eq!(apiserver.terminate().await.code(), Some(0));
    }

    /// A client with the certificate of a user.
    async fn user(&self, name: &str, group: &str) -> Client {
        let (certificate, key) = self
            .users
            .sign(name, group, ExtendedKeyUsagePurpose::ClientAuth);
        self.client(json!({
            "client-certificate-data": base64(&certificate), "client-key-data": base64(&key),
        }))
        .await
    }

    async fn client(&self, user: Value) -> Client {
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "a", "cluster": {
                "server": format!("https://127.0.0.1:{}", self.port),
                "certificate-authority-data": base64(&self.serving.0.pem()),
            }}],
            "users": [{"name": "a", "user": user}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        });
        let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let mut config = config.expect("a configuration");
        config.default_retry = false;
        Client::try_from(config).expect("a client")
    }
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn free_port() -> u16 {
    reeve_apiserver::free_port().expect("a port")
}

async fn get(client: &Client, path: &str) -> Result<String, u16> {
    let request = http::Request::get(path).body(Vec::new()).expect("a path");
    text_or_code(client.request_text(request).await)
}

async fn post(client: &Client, path: &str, body: &Value) -> Result<Value, u16> {
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(body.to_string().into_bytes()).expect("a path");
    let text = text_or_code(client.request_text(request).await)?;
    Ok(serde_json::from_str(&text).expect("JSON"))
}

fn text_or_code(answer: Result<String, kube_client::Error>) -> Result<String, u16> {
    answer.map_err(|error| match error {
        kube_client::Error::Api(status) => status.code,
        _ => 0,
    })
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn users_of_envtest_have_the_rights_of_their_groups_and_objects_outlive_the_api_server() {
    let mut plane = ControlPlane::new("users", &[]);
    plane.start().await;
    let admin = plane.user("admin", "system:masters").await;
    let jane = plane.user("jane", "developers").await;
    let map = json!({"metadata": {"name": "kept"}, "data": {"a": "b"}});
    assert_eq!(post(&jane, MAPS, &map).await, Err(403));
    post(&admin, MAPS, &map).await.expect("created");
    let anonymous = plane.client(json!({})).await;
    assert_eq!(get(&anonymous, MAPS).await, Err(403));
    let service = get(&admin, "/api/v1/namespaces/default/services/kubernetes").await;
    assert!(service.expect("it is there").contains("\"10.0.0.1\""));

    plane.stop().await;
    plane.start().await;
    let again = get(&admin, &format!("{MAPS}/kept")).await;
    assert!(again.expect("it is there").contains("\"a\":\"b\""));
    // Without a controller a namespace that is deleted terminates indefinitely, and has no ServiceAccount.
    let accounts = get(&admin, "/api/v1/namespaces/default/serviceaccounts").await;
    let accounts: Value = serde_json::from_str(&accounts.expect("a list")).expect("JSON");
    assert_eq!(accounts["items"], json!([]));
    plane.stop().await;
    assert_eq!(plane.etcd.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn tokens_of_service_accounts_are_signed_with_the_key_of_the_flag() {
    let mut plane = ControlPlane::new("tokens", &[]);
    plane.start().await;
    let admin = plane.user("admin", "system:masters").await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    post(&admin, accounts, &json!({"metadata": {"name": "robot"}}))
        .await
        .expect("created");
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
    let token = post(&admin, &format!("{accounts}/robot/token"), &request).await;
    let token = token.expect("a token");
    let issuer = format!("https://127.0.0.1:{}/", plane.port);
    assert_eq!(token["spec"]["audiences"], json!([issuer]));
    let token = token["status"]["token"].as_str().expect("a text");
    let part = |index: usize| -> Value {
        use base64::Engine as _;
        let part = token.split('.').nth(index).expect("a part");
        let part = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part);
        serde_json::from_slice(&part.expect("base64")).expect("JSON")
    };
    assert_eq!(
        (&part(0)["alg"], &part(1)["iss"]),
        (&json!("ES256"), &json!(issuer))
    );
    let robot = plane.client(json!({"token": token})).await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let user = post(&robot, reviews, &review).await.expect("a user");
    assert_eq!(
        user["status"]["userInfo"]["username"],
        "system:serviceaccount:default:robot"
    );
    // It is valid for a server with the same keys.
    plane.stop().await;
    plane.start().await;
    post(&robot, reviews, &review).await.expect("a user");
    let forged = plane.client(json!({"token": format!("{token}x")})).await;
    assert_eq!(post(&forged, reviews, &review).await, Err(401));
}

#[test]
fn a_wrong_command_line_ends_with_an_error_and_help_has_the_flags() {
    let directory = Directory::with_programs("lines");
    for (program, argument, code, expected) in [
        (
            "kube-apiserver",
            "--nosuch",
            1,
            "Error: unknown flag: --nosuch\n",
        ),
        (
            "kube-apiserver",
            "--secure-port=0",
            1,
            "Error: [--secure-port 0 must be",
        ),
        (
            "etcd",
            "--nosuch=1",
            1,
            "Error: flag provided but not defined: -nosuch\n",
        ),
        ("kube-apiserver", "--version", 0, "Kubernetes v1.36."),
        ("etcd", "--version", 0, "etcd Version: 3."),
        ("etcd", "--help", 0, "\n      --unsafe-no-fsync\n"),
        (
            "kube-apiserver",
            "--help",
            0,
            "\n      --etcd-servers strings\n",
        ),
    ] {
        let output = Command::new(directory.program(program))
            .arg(argument)
            .output()
            .expect("it runs");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).expect("a text");
        assert_eq!(
            output.status.code(),
            Some(code),
            "{program} {argument}: {text}"
        );
        assert!(text.contains(expected), "{program} {argument}: {text}");
    }
    // envtest passes it to servers that have it.
    let help = Command::new(directory.program("kube-apiserver"))
        .arg("--help")
        .output();
    let help = String::from_utf8(help.expect("it runs").stdout).expect("a text");
    assert!(!help.contains("--insecure-port"));
}
