//! The API server on the node: `reeve-apiserver` as a process, or etcd and kube-apiserver.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use reeve_apiserver::assets;
use reeve_apiserver::control_plane::ControlPlane;
use serde_json::Value;

use crate::namespace::Namespace;

/// Which API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `reeve-apiserver`.
    Builtin,
    /// etcd and kube-apiserver.
    Real,
}

enum Running {
    Builtin(Child),
    Real(#[allow(dead_code, reason = "it runs until it is dropped")] Box<ControlPlane>),
}

/// A running API server. It ends when this is dropped.
pub(crate) struct Server {
    running: Running,
    url: String,
    /// The arguments of curl that name the certificate authority and the user.
    access: Vec<String>,
    pub(crate) kubeconfig: PathBuf,
}

/// A program that `cargo test --workspace` builds beside the agent; `None` skips the test.
pub(crate) fn beside(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_ipblock-agent")).with_file_name(name);
    assets::file(path, "`cargo test --workspace` builds it")
}

// === impl Server ===

impl Server {
    /// Starts a server inside of `node`, with its files in `directory`. `None` skips the test.
    pub(crate) fn start(kind: Kind, node: &Namespace, directory: &Path) -> Option<Self> {
        match kind {
            Kind::Builtin => Self::builtin(node, directory),
            Kind::Real => Self::real(node, directory),
        }
    }

    fn builtin(node: &Namespace, directory: &Path) -> Option<Self> {
        let program = beside("reeve-apiserver")?;
        let kubeconfig = directory.join("kubeconfig");
        let mut child = node
            .command(program.to_str().unwrap())
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("ready ") {
            line.clear();
            let read = output.read_line(&mut line).unwrap();
            assert!(read > 0, "the API server starts");
        }
        Some(Self {
            running: Running::Builtin(child),
            url: line["ready ".len()..]
                .trim()
                .trim_end_matches('/')
                .to_owned(),
            access: Vec::new(),
            kubeconfig,
        })
    }

    fn real(node: &Namespace, directory: &Path) -> Option<Self> {
        let builder = assets::control_plane()?;
        // The programs inherit the namespace of the thread that starts them.
        let control_plane = node.inside(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(builder.start()).unwrap()
        });
        let kubeconfig = directory.join("kubeconfig");
        std::fs::write(&kubeconfig, control_plane.kubeconfig()).unwrap();
        let authority = directory.join("authority.crt");
        std::fs::write(&authority, control_plane.certificate_authority()).unwrap();
        let token = format!("Authorization: Bearer {}", control_plane.admin_token());
        let authority = authority.display().to_string();
        Some(Self {
            url: control_plane.url().to_owned(),
            access: vec!["--cacert".into(), authority, "--header".into(), token],
            running: Running::Real(Box::new(control_plane)),
            kubeconfig,
        })
    }

    /// A request from inside of `node`. `None`: no answer, or no success.
    pub(crate) fn request(
        &self,
        node: &Namespace,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Option<Value> {
        let kind = if method == "PATCH" {
            "Content-Type: application/merge-patch+json"
        } else {
            "Content-Type: application/json"
        };
        let mut command = node.command("curl");
        command
            .args(["--silent", "--fail", "--max-time", "20"])
            .args(["--request", method, "--header", kind])
            .args(&self.access)
            .arg(format!("{}{path}", self.url));
        if body.is_some() {
            command.args(["--data-binary", "@-"]);
        }
        let mut curl = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = curl.stdin.take().unwrap();
        if let Some(body) = body {
            // An early refusal closes it.
            let _ = input.write_all(body.to_string().as_bytes());
        }
        drop(input);
        let output = curl.wait_with_output().unwrap();
        let answer = serde_json::from_slice(&output.stdout).unwrap_or_default();
        output.status.success().then_some(answer)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Running::Builtin(child) = &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
