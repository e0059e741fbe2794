//! Credentials that change: of a plugin, and of certificates in files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Config;
use kube_client::config::{AuthInfo, ExecConfig};
use reeve_apiserver::rbac::User;
use reeve_apiserver::{ApiServer, Serving};
use reeve_clock::Clock;
use serde_json::{Value, json};
use tokio::time::{advance, pause, resume, sleep, timeout};

use super::plugin::{Failed, Plugin, has_terminal};
use super::{Options, connect};
use crate::Client;

const VERSION: &str = "client.authentication.k8s.io/v1";
/// What takes longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder of one test.
struct Folder(PathBuf);

// === impl Folder ===

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("reeve-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A plugin that counts its runs in the file `runs` and prints the file `answer`.
    fn plugin(&self) -> ExecConfig {
        self.plugin_of("echo run >> runs; cat answer")
    }

    fn plugin_of(&self, script: &str) -> ExecConfig {
        let script = format!("cd {}; {script}", self.0.display());
        exec(&script)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    fn answer(&self, status: &Value) {
        let answer = json!({"apiVersion": VERSION, "kind": "ExecCredential", "status": status});
        self.write("answer", answer.to_string());
    }

    fn runs(&self) -> usize {
        let runs = std::fs::read_to_string(self.0.join("runs")).unwrap_or_default();
        runs.lines().count()
    }

    async fn until(&self, name: &str) -> String {
        let there = async {
            loop {
                match std::fs::read_to_string(self.0.join(name)) {
                    Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
                    _ => sleep(Duration::from_millis(5)).await,
                }
            }
        };
        timeout(PATIENCE, there).await.unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn exec(script: &str) -> ExecConfig {
    let exec = json!({"apiVersion": VERSION, "command": "sh", "args": ["-c", script],
        "interactiveMode": "Never"});
    serde_json::from_value(exec).unwrap()
}

fn plugin(exec: ExecConfig) -> Plugin {
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    Plugin::new(exec, Clock::simulated(start, 1))
}

async fn token(plugin: &Plugin) -> Result<String, Failed> {
    let credential = timeout(PATIENCE, plugin.credential()).await.unwrap()?;
    Ok(credential.token.unwrap().to_str().unwrap().to_owned())
}

/// Lets the clocks go on, without waiting.
async fn pass(time: Duration) {
    pause();
    advance(time).await;
    resume();
}

#[tokio::test]
async fn a_plugin_that_hangs_is_ended_after_three_minutes() {
    let folder = Folder::new("hangs");
    let hangs = "sh -c 'echo $$ > pid; exec sleep 1000'";
    // A wrapper of the program that hangs. It ends with the plugin where the program has no terminal.
    let script = match has_terminal() {
        true => format!("exec {hangs}"),
        false => format!("{hangs}; true"),
    };
    let plugin = plugin(folder.plugin_of(&script));
    let plugin = Arc::new(plugin);
    let asked = Arc::clone(&plugin);
    let asked = tokio::spawn(async move { asked.credential().await.err() });
    let process = folder.until("pid").await;
    assert!(runs(&process) || !Path::new("/proc/self").exists());
    pass(Duration::from_secs(180)).await;
    let failed = timeout(PATIENCE, asked).await.unwrap().unwrap().unwrap();
    assert_eq!(
        failed.to_string(),
        "the credential plugin of the kubeconfig did not end within 180 s"
    );
    until_gone(&process).await;
}

/// Whether a process runs. One that nothing has waited for does not.
fn runs(process: &str) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{process}/stat"));
    state.is_ok_and(|state| !state.contains(") Z "))
}

async fn until_gone(process: &str) {
    let gone = async {
        while runs(process) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, gone).await.unwrap();
}

#[tokio::test]
async fn the_process_ends_with_the_client() {
    let folder = Folder::new("dropped");
    let plugin = plugin(folder.plugin_of("echo $$ > pid; exec sleep 1000"));
    let asked = timeout(Duration::ZERO, plugin.credential()).await;
    assert!(asked.is_err());
    let process = folder.until("pid").await;
    drop(plugin);
    until_gone(&process).await;
}

#[tokio::test]
async fn requests_share_a_run_which_goes_on_without_the_first() {
    let folder = Folder::new("shared");
    let script = "echo run >> runs; while [ ! -e answer ]; do sleep 0.01; done; cat answer";
    let plugin = plugin(folder.plugin_of(script));
    let first = timeout(Duration::ZERO, plugin.credential()).await;
    assert!(first.is_err());
    folder.until("runs").await;
    let answer = async {
        folder.answer(&json!({"token": "a"}));
    };
    let (one, other, ()) = tokio::join!(token(&plugin), token(&plugin), answer);
    assert_eq!(
        (one.unwrap(), other.unwrap()),
        ("Bearer a".into(), "Bearer a".into())
    );
    assert_eq!(token(&plugin).await.unwrap(), "Bearer a");
    assert_eq!(folder.runs(), 1);
}

#[tokio::test]
async fn credentials_are_renewed_before_their_end_and_used_until_then() {
    let folder = Folder::new("renewed");
    let plugin = plugin(folder.plugin());
    let hour = Duration::from_secs(3600);
    folder.answer(&json!({"token": "a", "expirationTimestamp": "2026-01-01T01:00:00Z"}));
    assert_eq!(token(&plugin).await.unwrap(), "Bearer a");
    folder.answer(&json!({"token": "b", "expirationTimestamp": "2026-01-01T02:00:00Z"}));
    pass(hour - Duration::from_secs(70)).await;
    assert_eq!(token(&plugin).await.unwrap(), "Bearer a");
    assert_eq!(folder.runs(), 1);
    pass(Duration::from_secs(20)).await;
    // The run begins, and the request does not wait for it.
    assert_eq!(token(&plugin).await.unwrap(), "Bearer a");
    plugin.idle().await;
    assert_eq!(token(&plugin).await.unwrap(), "Bearer b");
    assert_eq!(folder.runs(), 2);

    // The plugin fails: what it returned is used to its end, and no longer.
    std::fs::remove_file(folder.0.join("answer")).unwrap();
    pass(hour).await;
    for _ in 0..3 {
        assert_eq!(token(&plugin).await.unwrap(), "Bearer b");
        plugin.idle().await;
        pass(Duration::from_secs(2)).await;
    }
    assert_eq!(folder.runs(), 5);
    pass(Duration::from_secs(60)).await;
    let failed = token(&plugin).await.unwrap_err().to_string();
    assert!(failed.contains("failed (exit status: 1)"), "{failed}");
    // The next run begins a second later.
    let runs = folder.runs();
    assert!(token(&plugin).await.is_err());
    assert_eq!(folder.runs(), runs);
    pass(Duration::from_secs(1)).await;
    folder.answer(&json!({"token": "c"}));
    assert_eq!(token(&plugin).await.unwrap(), "Bearer c");
}

#[tokio::test]
async fn credentials_that_have_ended_start_a_process_each_ten_seconds_at_most() {
    let folder = Folder::new("ended");
    let plugin = plugin(folder.plugin());
    folder.answer(&json!({"token": "a", "expirationTimestamp": "2025-01-01T00:00:00Z"}));
    for runs in 1..4 {
        for _ in 0..5 {
            assert_eq!(token(&plugin).await.unwrap(), "Bearer a");
        }
        assert_eq!(folder.runs(), runs);
        pass(Duration::from_secs(10)).await;
    }
}

#[tokio::test]
async fn a_plugin_that_returns_the_same_credentials_to_their_end_runs_again_then() {
    let folder = Folder::new("cached");
    let plugin = plugin(folder.plugin());
    folder.answer(&json!({"token": "a", "expirationTimestamp": "2026-01-01T00:01:00Z"}));
    assert_eq!(token(&plugin).await.unwrap(), "Bearer a");
    pass(Duration::from_secs(55)).await;
    // In the last tenth of their life: the plugin returns the same.
    assert_eq!(token(&plugin).await.unwrap(), "Bearer a");
    plugin.idle().await;
    assert_eq!(token(&plugin).await.unwrap(), "Bearer a");
    assert_eq!(folder.runs(), 2);
    folder.answer(&json!({"token": "b"}));
    pass(Duration::from_secs(6)).await;
    assert_eq!(token(&plugin).await.unwrap(), "Bearer b");
}

#[tokio::test]
async fn one_401_while_the_plugin_fails_delays_no_later_request() {
    let folder = Folder::new("one-401");
    let plugin = plugin(folder.plugin());
    folder.answer(&json!({"token": "a"}));
    let number = plugin.credential().await.unwrap().number;
    std::fs::remove_file(folder.0.join("answer")).unwrap();
    pass(Duration::from_secs(10)).await;
    plugin.rejected(number);
    for _ in 0..3 {
        assert_eq!(token(&plugin).await.unwrap(), "Bearer a");
        pass(Duration::from_secs(10)).await;
    }
    assert_eq!(folder.runs(), 2);
    plugin.rejected(number);
    assert_eq!(token(&plugin).await.unwrap(), "Bearer a");
    assert_eq!(folder.runs(), 3);
}

#[tokio::test]
async fn a_plugin_that_is_missing_is_named_with_the_hint_of_the_kubeconfig() {
    let mut exec = exec("");
    exec.command = Some("reeve-no-such-plugin".into());
    exec.install_hint = Some("install it with brew".into());
    let failed = token(&plugin(exec)).await.unwrap_err();
    assert_eq!(
        failed.to_string(),
        "the credential plugin reeve-no-such-plugin of the kubeconfig could not be started: No such file or directory (os error 2); install it with brew"
    );
}

/// The user of the next request, or the code of its refusal.
async fn user(client: &kube_client::Client, server: &ApiServer) -> Result<String, u16> {
    match timeout(PATIENCE, client.apiserver_version()).await.unwrap() {
        Ok(_) => Ok(server.requests().all().pop().unwrap().user),
        Err(kube_client::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{}", crate::error_chain(&error)),
    }
}

async fn served(server: &ApiServer) -> (Serving, Config) {
    let serving = server.serve_tls(([127, 0, 0, 1], 0).into()).await.unwrap();
    let kubeconfig = kube_client::config::Kubeconfig::from_yaml(&serving.kubeconfig()).unwrap();
    let options = kube_client::config::KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    config.auth_info = AuthInfo::default();
    (serving, config)
}

#[tokio::test]
async fn a_token_that_the_server_does_not_accept_is_asked_for_again() {
    let folder = Folder::new("rejected");
    let server = ApiServer::builder().token("good", User::new("jane", [""; 0]));
    let server = server.start().await.unwrap();
    let (_serving, mut config) = served(&server).await;
    config.auth_info.exec = Some(folder.plugin());
    let client = connect(config, &Options::new()).unwrap();
    folder.answer(&json!({"token": "bad"}));
    assert_eq!(user(&client, &server).await, Err(401));
    folder.answer(&json!({"token": "good"}));
    assert_eq!(user(&client, &server).await, Err(401));
    pass(Duration::from_secs(10)).await;
    assert_eq!(user(&client, &server).await.as_deref(), Ok("jane"));
    assert_eq!(folder.runs(), 2);
}

#[tokio::test]
async fn a_new_certificate_of_a_plugin_opens_new_connections() {
    let folder = Folder::new("certificates");
    let server = ApiServer::builder().rbac().start().await.unwrap();
    let (serving, mut config) = served(&server).await;
    let answer = |name: &str| {
        let pair = serving
            .user_certificate(name, Some("system:masters"))
            .unwrap()
            .unwrap();
        folder.answer(&json!({"clientCertificateData": pair.certificate(),
            "clientKeyData": pair.key(), "expirationTimestamp": "2020-01-01T00:00:00Z"}));
    };
    config.auth_info.exec = Some(folder.plugin());
    let client = connect(config, &Options::new()).unwrap();
    answer("one");
    assert_eq!(user(&client, &server).await.as_deref(), Ok("one"));
    answer("two");
    assert_eq!(user(&client, &server).await.as_deref(), Ok("one"));
    pass(Duration::from_secs(10)).await;
    assert_eq!(user(&client, &server).await.as_deref(), Ok("two"));
}

#[tokio::test]
async fn a_first_certificate_that_cannot_be_used_is_an_error_and_asked_for_again() {
    let folder = Folder::new("unusable");
    let server = ApiServer::builder().rbac().start().await.unwrap();
    let (serving, mut config) = served(&server).await;
    config.auth_info.exec = Some(folder.plugin());
    let pair = serving.user_certificate("jane", Some("system:masters"));
    let pair = pair.unwrap().unwrap();
    // A key whose line ends were escaped twice is one line, which must not be shown.
    let key = pair.key().replace('\n', "\\n");
    let status =
        |key: &str| json!({"clientCertificateData": pair.certificate(), "clientKeyData": key});
    folder.answer(&status(&key));
    let client = connect(config, &Options::new()).unwrap();
    for _ in 0..2 {
        let error = client.apiserver_version().await.unwrap_err();
        let shown = format!("{} {error:?}", crate::error_chain(&error));
        assert!(
            shown.contains("the client certificate or its key is not PEM"),
            "{shown}"
        );
        let bytes = key.as_bytes()[..20].iter().map(ToString::to_string);
        let bytes = bytes.collect::<Vec<_>>().join(", ");
        assert!(
            !shown.contains(&bytes) && !shown.contains("PRIVATE"),
            "{shown}"
        );
    }
    folder.answer(&status(pair.key()));
    pass(Duration::from_secs(10)).await;
    assert_eq!(user(&client, &server).await.as_deref(), Ok("jane"));
}

#[tokio::test]
async fn a_write_without_credentials_was_certainly_not_sent() {
    let pair = json!({"clientCertificateData": "none", "clientKeyData": "none"});
    let answer = json!({"apiVersion": VERSION, "kind": "ExecCredential", "status": pair});
    for (script, cause) in [
        ("exit 1", "the credential plugin of the kubeconfig failed"),
        (&*format!("echo '{answer}'"), "PEM is missing a private key"),
    ] {
        let mut config = Config::new("https://127.0.0.1:1".parse().unwrap());
        config.auth_info.exec = Some(exec(script));
        let client = Client::new(connect(config, &Options::new()).unwrap());
        let mut map = ConfigMap::default();
        map.metadata.namespace = Some("default".to_owned());
        let error = client.create(&map).await.unwrap_err();
        assert!(error.to_string().contains(cause), "{error}");
        assert!(!error.is_ambiguous(), "{error}");
    }
}

#[tokio::test]
async fn a_plugin_runs_only_for_requests_without_other_credentials() {
    let folder = Folder::new("others");
    let server = ApiServer::builder().token("good", User::new("jane", [""; 0]));
    let server = server.start().await.unwrap();
    let (_serving, mut config) = served(&server).await;
    config.auth_info.exec = Some(folder.plugin());
    folder.answer(&json!({"token": "bad"}));
    let client = connect(config.clone(), &Options::new()).unwrap();
    let request = || {
        let request = http::Request::get("/version").header("authorization", "Bearer good");
        request.body(Vec::new()).unwrap()
    };
    client.request_text(request()).await.unwrap();
    assert_eq!(folder.runs(), 0);
    config.auth_info.token = Some("good".to_owned().into());
    let client = connect(config.clone(), &Options::new()).unwrap();
    assert_eq!(user(&client, &server).await.as_deref(), Ok("jane"));
    config.auth_info.token = None;
    folder.write("token", "good");
    config.auth_info.token_file = Some(folder.0.join("token").display().to_string());
    let client = connect(config, &Options::new()).unwrap();
    assert_eq!(user(&client, &server).await.as_deref(), Ok("jane"));
    assert_eq!(folder.runs(), 0);
}

#[tokio::test]
async fn a_certificate_in_files_is_read_again() {
    let folder = Folder::new("files");
    let server = ApiServer::builder().rbac().start().await.unwrap();
    let (serving, mut config) = served(&server).await;
    let mount = |name: &str| {
        let pair = serving
            .user_certificate(name, Some("system:masters"))
            .unwrap()
            .unwrap();
        folder.write("tls.crt", pair.certificate());
        folder.write("tls.key", pair.key());
    };
    let path = |name: &str| Some(folder.0.join(name).display().to_string());
    config.auth_info.client_certificate = path("tls.crt");
    config.auth_info.client_key = path("tls.key");
    let missing = connect(config.clone(), &Options::new()).err().unwrap();
    let missing = missing.to_string();
    assert!(missing.contains("could not read "), "{missing}");
    assert!(missing.contains("tls.crt: No such file"), "{missing}");
    mount("one");
    let client = connect(config, &Options::new()).unwrap();
    assert_eq!(user(&client, &server).await.as_deref(), Ok("one"));
    mount("two");
    assert_eq!(user(&client, &server).await.as_deref(), Ok("one"));
    pass(Duration::from_secs(60)).await;
    assert_eq!(user(&client, &server).await.as_deref(), Ok("two"));

    // A key that does not belong to the certificate, and then no file: the former certificate stays.
    let other = serving.user_certificate("three", None).unwrap().unwrap();
    folder.write("tls.key", other.key());
    pass(Duration::from_secs(60)).await;
    assert_eq!(user(&client, &server).await.as_deref(), Ok("two"));
    std::fs::remove_file(folder.0.join("tls.key")).unwrap();
    pass(Duration::from_secs(60)).await;
    assert_eq!(user(&client, &server).await.as_deref(), Ok("two"));
    mount("four");
    pass(Duration::from_secs(60)).await;
    assert_eq!(user(&client, &server).await.as_deref(), Ok("four"));
}

#[tokio::test]
async fn a_certificate_in_files_that_the_server_does_not_accept_is_read_again_sooner() {
    let folder = Folder::new("files-401");
    let other = ApiServer::builder().rbac().start().await.unwrap();
    let (strange, _) = served(&other).await;
    let server = ApiServer::builder().rbac().start().await.unwrap();
    let (serving, mut config) = served(&server).await;
    let mount = |serving: &Serving| {
        let pair = serving.user_certificate("jane", Some("system:masters"));
        let pair = pair.unwrap().unwrap();
        folder.write("both.pem", format!("{}{}", pair.certificate(), pair.key()));
    };
    // One file for both, as the kubelet has.
    let path = Some(folder.0.join("both.pem").display().to_string());
    config.auth_info.client_certificate.clone_from(&path);
    config.auth_info.client_key = path;
    mount(&strange);
    let client = connect(config, &Options::new()).unwrap();
    assert_eq!(user(&client, &server).await, Err(401));
    mount(&serving);
    assert_eq!(user(&client, &server).await, Err(401));
    pass(Duration::from_secs(10)).await;
    assert_eq!(user(&client, &server).await.as_deref(), Ok("jane"));
}
