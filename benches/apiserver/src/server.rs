//! The measured servers, and how each is started.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::connection::{Access, Call, Connection};
use crate::credentials;
use crate::error::{Error, Result};
use crate::process::{Process, Usage};

/// Pause between two looks at a server that is not ready.
const LOOK_EVERY: Duration = Duration::from_millis(2);
const READY_WITHIN: Duration = Duration::from_secs(60);

/// What is measured: a column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// kube-apiserver and etcd as envtest starts them.
    Real,
    /// `reeve-apiserver` over HTTPS, with roles, in memory.
    Ours,
    /// The same over plain HTTP, without identities.
    Plain,
    /// Over HTTPS with `--data-dir`.
    Durable,
    /// The two programs of `reeve-apiserver envtest`, started as the real pair is.
    DropIn,
}

/// The programs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// The directory of `etcd` and `kube-apiserver`.
    pub(crate) assets: PathBuf,
    /// `reeve-apiserver`.
    pub(crate) ours: PathBuf,
    /// Where data and logs go: a tmpfs.
    pub(crate) scratch: PathBuf,
}

/// A server that is ready; killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) access: Access,
    /// From the start of the first process to the first success of `GET /readyz`.
    pub(crate) ready_after: Duration,
    processes: Vec<Process>,
    directory: Scratch,
}

/// A directory that is removed when dropped.
#[derive(Debug)]
struct Scratch(PathBuf);

// === impl Subject ===

impl Subject {
    pub(crate) const ALL: [Self; 5] = [
        Self::Real,
        Self::Ours,
        Self::Plain,
        Self::Durable,
        Self::DropIn,
    ];

    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::Ours => "ours",
            Self::Plain => "plain",
            Self::Durable => "durable",
            Self::DropIn => "drop-in",
        }
    }

    pub(crate) fn of_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|subject| subject.key() == key)
    }

    /// The head of its column.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Real => "kube-apiserver + etcd",
            Self::Ours => "**ours**",
            Self::Plain => "ours, plain HTTP",
            Self::Durable => "ours, `--data-dir`",
            Self::DropIn => "ours, as envtest's pair",
        }
    }
}

// === impl Server ===

impl Server {
    /// Starts a server, and returns when it is ready.
    pub(crate) async fn start(subject: Subject, programs: &Programs) -> Result<Self> {
        let directory = Scratch::new(&programs.scratch)?;
        let started = match subject {
            Subject::Real => pair(&programs.assets, &directory.0).await,
            Subject::Ours => ours(programs, &directory.0, &["--authorization-mode=RBAC"]).await,
            Subject::Plain => ours(programs, &directory.0, &[]).await,
            Subject::Durable => {
                let data = format!("--data-dir={}", data(&directory.0).display());
                ours(
                    programs,
                    &directory.0,
                    // As etcd of the real pair.
                    &["--authorization-mode=RBAC", "--unsafe-no-fsync", &data],
                )
                .await
            }
            Subject::DropIn => match drop_in(programs, &directory.0).await {
                Ok(assets) => pair(&assets, &directory.0).await,
                Err(error) => Err(error),
            },
        };
        let (access, processes, ready_after) = started.map_err(|error| {
            let log = last_lines(&directory.0);
            Error::Setup(format!("{}: {error}\n{log}", subject.key()))
        })?;
        Ok(Self {
            access,
            ready_after,
            processes,
            directory,
        })
    }

    pub(crate) async fn connect(&self) -> Result<Connection> {
        Connection::open(&self.access).await
    }

    /// The sum of its processes.
    pub(crate) fn usage(&self) -> Result<Usage> {
        self.processes
            .iter()
            .try_fold(Usage::default(), |sum, process| {
                Ok(sum.plus(process.usage()?))
            })
    }

    pub(crate) fn forget_peak(&self) -> Result<()> {
        self.processes.iter().try_for_each(Process::forget_peak)
    }

    /// The `--data-dir` of ours.
    pub(crate) fn data(&self) -> PathBuf {
        data(&self.directory.0)
    }

    pub(crate) async fn stop(self) -> Result<()> {
        for process in self.processes.into_iter().rev() {
            process.kill().await?;
        }
        Ok(())
    }
}

type Started = (Access, Vec<Process>, Duration);

/// Writes the programs that take the place of envtest's; returns their directory.
async fn drop_in(programs: &Programs, directory: &Path) -> Result<PathBuf> {
    let assets = directory.join("assets");
    let written = tokio::process::Command::new(&programs.ours)
        .arg("envtest")
        .arg(&assets)
        .output()
        .await
        .map_err(Error::io("reeve-apiserver envtest"))?;
    if written.status.success() {
        return Ok(assets);
    }
    Err(Error::setup(String::from_utf8_lossy(&written.stderr)))
}

/// etcd and kube-apiserver of a directory, with the arguments of envtest.
async fn pair(assets: &Path, directory: &Path) -> Result<Started> {
    let file = |name: &str| directory.join(name).display().to_string();
    let tls = credentials::make(directory)?;
    let (etcd_port, secure) = (free_port()?, free_port()?);
    let etcd_url = format!("http://127.0.0.1:{etcd_port}");
    let start = Instant::now();
    let mut etcd = Process::start(
        &assets.join("etcd"),
        &[
            "--listen-peer-urls=http://localhost:0".to_owned(),
            format!("--advertise-client-urls={etcd_url}"),
            format!("--listen-client-urls={etcd_url}"),
            format!("--data-dir={}", file("etcd-data")),
            "--unsafe-no-fsync=true".to_owned(),
        ],
        &directory.join("etcd.log"),
    )?;
    let health = ([127, 0, 0, 1], etcd_port).into();
    until(&mut etcd, || is_healthy(health)).await?;
    let mut apiserver = Process::start(
        &assets.join("kube-apiserver"),
        &[
            "--allow-privileged=true".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--cert-dir={}", directory.display()),
            format!("--client-ca-file={}", file(credentials::AUTHORITY)),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            format!("--etcd-servers={etcd_url}"),
            format!("--secure-port={secure}"),
            format!("--service-account-issuer=https://127.0.0.1:{secure}/"),
            format!(
                "--service-account-key-file={}",
                file(credentials::ACCOUNT_CERTIFICATE)
            ),
            format!(
                "--service-account-signing-key-file={}",
                file(credentials::ACCOUNT_KEY)
            ),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        ],
        &directory.join("kube-apiserver.log"),
    )?;
    let access = Access {
        address: ([127, 0, 0, 1], secure).into(),
        tls: Some(tls),
        token: None,
    };
    until_ready(&mut apiserver, &access, "/readyz").await?;
    Ok((access, vec![etcd, apiserver], start.elapsed()))
}

/// `reeve-apiserver` with `arguments`.
async fn ours(programs: &Programs, directory: &Path, arguments: &[&str]) -> Result<Started> {
    let port = free_port()?;
    let kubeconfig = directory.join("kubeconfig");
    let mut all: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    all.push(format!("--listen=127.0.0.1:{port}"));
    all.push(format!("--kubeconfig={}", kubeconfig.display()));
    let start = Instant::now();
    let log = directory.join("reeve-apiserver.log");
    let mut process = Process::start(&programs.ours, &all, &log)?;
    let access = loop {
        process.check()?;
        if let Some(access) = access_of(&kubeconfig, ([127, 0, 0, 1], port).into())? {
            break access;
        }
        if start.elapsed() > READY_WITHIN {
            return Err(Error::setup("no kubeconfig"));
        }
        sleep(LOOK_EVERY).await;
    };
    until_ready(&mut process, &access, "/readyz").await?;
    Ok((access, vec![process], start.elapsed()))
}

/// Reads a kubeconfig that `reeve-apiserver` wrote; `None` while it is not there or not whole.
fn access_of(path: &Path, address: SocketAddr) -> Result<Option<Access>> {
    let Ok(text) = std::fs::read_to_string(path) else {
        return Ok(None);
    };
    if !text.ends_with('\n') {
        return Ok(None);
    }
    let field = |name: &str| {
        let mut lines = text.lines();
        let value =
            lines.find_map(|line| line.trim_start_matches([' ', '-']).strip_prefix(name))?;
        Some(value.trim().trim_matches('"').to_owned())
    };
    let tls = match field("certificate-authority-data:") {
        Some(encoded) => {
            let pem = STANDARD.decode(encoded).map_err(Error::setup)?;
            Some(credentials::of_authority(&pem)?)
        }
        None => None,
    };
    Ok(Some(Access {
        address,
        tls,
        token: field("token:"),
    }))
}

/// Polls `path` until it succeeds.
async fn until_ready(process: &mut Process, access: &Access, path: &str) -> Result<()> {
    let ask = || async {
        let connection = Connection::open(access).await?;
        connection.send(Call::get(path)).await.map(|_| ())
    };
    until(process, ask).await
}

/// Repeats `ask` until it succeeds.
async fn until<F>(process: &mut Process, ask: impl Fn() -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        process.check()?;
        match timeout(Duration::from_secs(5), ask()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) if Instant::now() > deadline => return Err(error),
            Err(_) if Instant::now() > deadline => return Err(Error::setup("not ready")),
            _ => sleep(LOOK_EVERY).await,
        }
    }
}

/// Asks etcd as envtest does, over HTTP/1.1: over HTTP/2 it is a gRPC server.
async fn is_healthy(address: SocketAddr) -> Result<()> {
    let connect = TcpStream::connect(address).await;
    let mut stream = connect.map_err(Error::io("etcd"))?;
    let request = b"GET /health HTTP/1.1\r\nhost: etcd\r\nconnection: close\r\n\r\n";
    let mut answer = Vec::new();
    let asked = async {
        stream.write_all(request).await?;
        stream.read_to_end(&mut answer).await
    };
    asked.await.map_err(Error::io("etcd"))?;
    if answer.starts_with(b"HTTP/1.1 200") {
        return Ok(());
    }
    Err(Error::setup(String::from_utf8_lossy(&answer)))
}

fn data(directory: &Path) -> PathBuf {
    directory.join("data")
}

fn free_port() -> Result<u16> {
    reeve_apiserver::free_port().map_err(Error::io("a free port"))
}

/// The ends of the logs, for the error of a server that did not start.
fn last_lines(directory: &Path) -> String {
    let logs = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let logs = logs.map(|entry| entry.path());
    logs.filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .filter_map(|path| {
            let text = std::fs::read_to_string(&path).ok()?;
            let lines: Vec<&str> = text.lines().rev().take(10).collect();
            let lines: Vec<&str> = lines.into_iter().rev().collect();
            Some(format!("{}:\n{}\n", path.display(), lines.join("\n")))
        })
        .collect()
}

// === impl Scratch ===

impl Scratch {
    fn new(parent: &Path) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("apiserver-bench-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(Error::io(path.display().to_string()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left is below the temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
