//! The program as its users start it: its flags, its files, its end.

mod files;
mod flags;
mod stop;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kube_client::Client;
use kube_client::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Time within which the program starts and ends, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running program; killed when it is dropped.
pub(crate) struct Program {
    pub(crate) child: Child,
    /// The line of `--output json`.
    pub(crate) ready: Value,
}

impl Program {
    /// Starts the program with `--output json` and these words, and waits for its line.
    pub(crate) async fn start(words: &[&str]) -> Self {
        let mut child = command(words).spawn().unwrap();
        let line = first_line(&mut child).await;
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        Self { child, ready }
    }

    pub(crate) fn url(&self) -> &str {
        self.ready["url"].as_str().unwrap()
    }

    /// The administrator's client.
    pub(crate) async fn client(&self) -> Client {
        client(self.ready["kubeconfig"].as_str().unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, u16> {
        send(&self.client().await, "GET", path, &Value::Null).await
    }

    /// Waits for the end of the program, which must be a success.
    pub(crate) async fn ends(mut self) {
        let status = timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap();
        assert!(status.success(), "{status}");
    }
}

pub(crate) fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reeve-apiserver"));
    command
        .args(["--output", "json"])
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command
}

pub(crate) async fn first_line(child: &mut Child) -> String {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap();
    line.expect("the program prints a line when it is ready")
}

/// The error of a program that must not start.
pub(crate) async fn refused(words: &[&str]) -> String {
    let run = command(words).stderr(Stdio::piped()).output();
    let output = timeout(PATIENCE, run).await.unwrap().unwrap();
    assert!(!output.status.success(), "{words:?} was accepted");
    assert!(output.stdout.is_empty(), "{:?}", output.stdout);
    String::from_utf8(output.stderr).unwrap()
}

pub(crate) async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.unwrap()).unwrap()
}

/// The answer, or the code of a failure.
pub(crate) async fn send(
    client: &Client,
    method: &str,
    path: &str,
    body: &Value,
) -> Result<Value, u16> {
    let content = match body {
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json");
    match client.request(request.body(content).unwrap()).await {
        Ok(value) => Ok(value),
        Err(kube_client::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{path}: {error}"),
    }
}

/// A folder of one test; removed when it is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("reeve-program-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file; returns its path.
    pub(crate) fn write(&self, name: &str, content: &str) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
