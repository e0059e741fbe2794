//! One process that contends for the lease.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::proxy::Proxy;
use super::{LEASE, RENEW, RETRY};

/// The leader election that a process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Ours,
    Go,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ours => "ours",
            Self::Go => "go",
        })
    }
}

/// A running process; killed when dropped.
pub(crate) struct Contender {
    pub(crate) side: Side,
    pub(crate) identity: String,
    pub(crate) proxy: Proxy,
    child: Child,
    output: PathBuf,
    errors: PathBuf,
}

// === impl Contender ===

impl Contender {
    pub(crate) async fn start(
        side: Side,
        program: &Path,
        flags: Vec<String>,
        identity: &str,
        kubeconfig: &str,
        directory: &Path,
        proxy: Proxy,
    ) -> Self {
        let file = |suffix: &str| directory.join(format!("{identity}.{suffix}"));
        let (config, output, errors) = (file("kubeconfig"), file("out"), file("err"));
        tokio::fs::write(&config, kubeconfig).await.unwrap();
        let create = |path: &Path| Stdio::from(std::fs::File::create(path).unwrap());
        let milliseconds = |length: Duration| format!("{}ms", length.as_millis());
        let child = Command::new(program)
            .arg(format!("-kubeconfig={}", config.display()))
            .args(flags)
            .arg(format!("-lease-duration={}", milliseconds(LEASE)))
            .arg(format!("-renew-deadline={}", milliseconds(RENEW)))
            .arg(format!("-retry-period={}", milliseconds(RETRY)))
            .stdin(Stdio::null())
            .stdout(create(&output))
            .stderr(create(&errors))
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        Self {
            side,
            identity: identity.to_owned(),
            proxy,
            child,
            output,
            errors,
        }
    }

    /// Sends the signal `name`.
    pub(crate) async fn signal(&self, name: &str) {
        let process = self.child.id().expect("a running process").to_string();
        let mut kill = Command::new("kill");
        let sent = kill.args([&format!("-{name}"), &process]).status().await;
        assert!(sent.unwrap().success(), "{name} was delivered");
    }

    /// Waits until it has ended by itself, and returns how many writes its fence refused.
    pub(crate) async fn ended(&mut self, limit: Duration) -> u64 {
        let ended = timeout(limit, self.child.wait()).await;
        assert!(ended.is_ok(), "{} goes on\n{}", self.identity, self.log());
        let said = std::fs::read_to_string(&self.output).unwrap_or_default();
        let refused = said.lines().find_map(|line| line.strip_prefix("refused "));
        refused.map_or(0, |number| number.parse().expect("a number"))
    }

    /// SIGTERM, and waits for the end.
    pub(crate) async fn end(mut self) {
        self.signal("TERM").await;
        self.ended(Duration::from_secs(10)).await;
    }

    pub(crate) fn log(&self) -> String {
        let errors = std::fs::read_to_string(&self.errors).unwrap_or_default();
        let lines: Vec<&str> = errors.lines().rev().take(30).collect();
        let tail: Vec<&str> = lines.into_iter().rev().collect();
        format!("--- {}\n{}", self.identity, tail.join("\n"))
    }
}
