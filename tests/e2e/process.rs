//! Programs under test as child processes, killed with the test; their logs are shown when it fails.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

/// A running program; killed when dropped, its log shown when the test panics.
pub(crate) struct Process {
    name: String,
    args: Vec<String>,
    environment: Vec<(String, String)>,
    child: Child,
    log: PathBuf,
}

// === impl Process ===

impl Process {
    /// Starts this repository's `ipblock-operator` with `args`.
    pub(crate) fn operator(name: &str, args: &[String], environment: &[(String, String)]) -> Self {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let log = std::env::temp_dir().join(format!(
            "reeve-e2e-{}-{count}-{name}.log",
            std::process::id()
        ));
        Self {
            name: name.into(),
            args: args.to_vec(),
            environment: environment.to_vec(),
            child: spawn(&log, args, environment),
            log,
        }
    }

    /// Starts the program again whenever it ends because it lost its lease, as the kubelet does; any other end, a panic
    /// first of all, fails the case. Runs until it is dropped.
    pub(crate) async fn kept_running(&mut self) -> std::convert::Infallible {
        let mut read = 0;
        loop {
            let status = self.child.wait().await.expect("an exit status");
            let log = self.log();
            let run = log.get(read..).unwrap_or_default();
            assert!(
                status.code() == Some(1) && lost_its_lease(run),
                "{} ended ({status}), and not because it lost its lease",
                self.name
            );
            read = log.len();
            eprintln!("{} lost its lease and is started again", self.name);
            tokio::time::sleep(Duration::from_millis(500)).await;
            self.child = spawn(&self.log, &self.args, &self.environment);
        }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// `kill -9`.
    pub(crate) async fn kill(mut self) {
        self.child
            .kill()
            .await
            .expect("a running process can be killed");
    }

    /// Sends it the signal `name`.
    pub(crate) async fn signal(&self, name: &str) {
        let pid = self.child.id().expect("a running process").to_string();
        let signal = format!("-{name}");
        let status = Command::new("kill").args([&signal, &pid]).status().await;
        assert!(status.expect("kill runs").success(), "{name} was delivered");
    }

    /// SIGTERM, then its exit code; panics when it has not ended within 30 s.
    pub(crate) async fn terminate(mut self) -> Option<i32> {
        self.signal("TERM").await;
        let ended = tokio::time::timeout(Duration::from_secs(30), self.child.wait()).await;
        ended
            .unwrap_or_else(|_| panic!("{} ends within 30 s of SIGTERM", self.name))
            .expect("an exit status")
            .code()
    }

    /// The exit code and the log of a program that ends by itself within `limit`.
    pub(crate) async fn ended(mut self, limit: Duration) -> (Option<i32>, String) {
        let ended = tokio::time::timeout(limit, self.child.wait()).await;
        let code = ended
            .unwrap_or_else(|_| {
                panic!(
                    "{} ends within {limit:?}; its log:\n{}",
                    self.name,
                    self.log()
                )
            })
            .expect("an exit status")
            .code();
        (code, self.log())
    }
}

/// Whether a log ends as that of an operator whose lease was lost.
pub(crate) fn lost_its_lease(log: &str) -> bool {
    let last = log.lines().rev().find(|line| !line.trim().is_empty());
    last.is_some_and(|line| line.starts_with("ipblock-operator: leadership is lost: "))
        && !log.contains("panicked at")
}

fn spawn(log: &Path, args: &[String], environment: &[(String, String)]) -> Child {
    let file = std::fs::File::options().create(true).append(true).open(log);
    let file = file.expect("a log file in the temporary directory");
    Command::new(env!("CARGO_BIN_EXE_ipblock-operator"))
        .args(args)
        .env_remove("KUBECONFIG")
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(file.try_clone().expect("a second handle of the log"))
        .stderr(file)
        .kill_on_drop(true)
        .spawn()
        .expect("the operator's binary starts")
}

impl Drop for Process {
    fn drop(&mut self) {
        print_if_panicking(&self.name, &self.log());
        let _ = std::fs::remove_file(&self.log);
    }
}

/// Prints the last lines of the log of `name` when a case fails.
pub(crate) fn print_if_panicking(name: &str, log: &str) {
    if std::thread::panicking() {
        let tail: Vec<&str> = log.lines().rev().take(60).collect();
        eprintln!("--- the end of {name}'s log");
        for line in tail.iter().rev() {
            eprintln!("{line}");
        }
    }
}

/// A loopback port without a listener.
pub(crate) fn free_port() -> u16 {
    reeve_apiserver::free_port().expect("a port")
}

/// `GET` of a loopback address: status and body, or `None` without a listener.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    http(address, "GET", path, &[], b"").await
}

/// One HTTP request over a connection of its own.
pub(crate) async fn http(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Option<(u16, String)> {
    use tokio::io::AsyncWriteExt;
    let mut stream = tokio::net::TcpStream::connect(address).await.ok()?;
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(body).await.ok()?;
    answer(&mut stream).await
}

/// The answer on a connection that its server closes after it: status and body; `None` when there is none in 20 s.
pub(crate) async fn answer(stream: &mut tokio::net::TcpStream) -> Option<(u16, String)> {
    use tokio::io::AsyncReadExt;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await;
    read.ok()?.ok()?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split_whitespace().nth(1)?.parse().ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let body = if head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked")
    {
        dechunk(body)
    } else {
        body.to_string()
    };
    Some((status, body))
}

fn dechunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size.trim(), 16) else {
            break;
        };
        if size == 0 || rest.len() < size {
            break;
        }
        whole.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}
