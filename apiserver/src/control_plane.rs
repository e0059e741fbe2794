//! A real control plane for tests: etcd and kube-apiserver, and kube-controller-manager where asked.
//!
//! The binaries come from the directory named by the environment variable `KUBEBUILDER_ASSETS`
//! (`tools/kube-apiserver/build.sh` builds them and prints the line that sets it). Everything runs on
//! free loopback ports with its data in a directory of its own, and ends with the [`ControlPlane`]:
//! also when the test panics, and also when the test process is killed.
//!
//! It has the same face as the built-in server, so that one test runs against either:
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use reeve_apiserver::control_plane::ControlPlane;
//! let Some(control_plane) = ControlPlane::from_assets().await? else {
//!     return Ok(()); // skipped, as `reeve_apiserver::assets` says
//! };
//! let client = control_plane.client()?;
//! println!("{}", client.apiserver_version().await?.git_version);
//! # Ok(())
//! # }
//! ```
//!
//! # Time
//! These are processes on the machine's clock: a runtime with paused time cannot wait for them.

mod credentials;
mod process;
mod reset;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::FutureExt;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use tokio::time::{Instant, sleep};

use credentials::Credentials;
use process::Process;

/// The environment variable that names the directory of the binaries.
pub const ASSETS_VARIABLE: &str = "KUBEBUILDER_ASSETS";

/// The user that [`ControlPlane::client`] acts as, of group `system:masters`.
pub const ADMIN_USER: &str = "reeve-admin";

/// How long a control plane may take to become ready; it takes about five seconds on an idle machine.
const READY_WITHIN: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Why a control plane could not be started or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `KUBEBUILDER_ASSETS` is not set.
    #[error(
        "{ASSETS_VARIABLE} is not set: build the binaries with tools/kube-apiserver/build.sh and set it as that script says"
    )]
    NoAssets,
    /// The directory has no such program.
    #[error("{ASSETS_VARIABLE} names {directory}, which has no program `{program}`")]
    NoProgram {
        /// The directory.
        directory: PathBuf,
        /// The missing program.
        program: &'static str,
    },
    /// A file or directory of the control plane could not be written, or no port was free.
    #[error("cannot prepare {what}: {source}")]
    Prepare {
        /// What was being prepared.
        what: String,
        /// Why not.
        source: std::io::Error,
    },
    /// Keys or certificates could not be made.
    #[error("cannot make the certificates of the control plane: {0}")]
    Certificates(#[from] rcgen::Error),
    /// A program ended before it was ready.
    #[error("{program} ended before it was ready ({status}); the end of {log}:\n{tail}")]
    Ended {
        /// The program.
        program: &'static str,
        /// Its exit status.
        status: String,
        /// Its log file, which is kept.
        log: PathBuf,
        /// The last lines of its log.
        tail: String,
    },
    /// A program was not ready in time.
    #[error("{program} was not ready within {READY_WITHIN:?} ({last}); the end of {log}:\n{tail}")]
    NotReady {
        /// The program.
        program: &'static str,
        /// The last answer to the question.
        last: String,
        /// Its log file, which is kept.
        log: PathBuf,
        /// The last lines of its log.
        tail: String,
    },
    /// The objects could not be removed.
    #[error("cannot reset the control plane: {0}")]
    Reset(String),
    /// The client could not be made.
    #[error("cannot make a client for the control plane: {0}")]
    Client(String),
}

/// What to start. Made by [`ControlPlane::builder`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    assets: Option<PathBuf>,
    controller_manager: bool,
    apiserver_arguments: Vec<String>,
    manager_arguments: Vec<String>,
}

/// A running etcd and kube-apiserver; ends when dropped.
#[derive(Debug)]
pub struct ControlPlane {
    /// `https://127.0.0.1:PORT`.
    url: String,
    etcd_url: String,
    credentials: Credentials,
    apiserver_command: Vec<String>,
    manager_command: Vec<String>,
    // Dropped in this order: those who need the others first.
    controller_manager: Option<Process>,
    apiserver: Option<Process>,
    etcd: Option<Process>,
    /// The keys of etcd at the end of the start.
    baseline: BTreeSet<String>,
    directory: Directory,
}

/// The directory of data and logs, removed when dropped unless something failed.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    keep: bool,
}

// === impl Builder ===

impl Builder {
    /// Takes the binaries from `directory` instead of the one in `KUBEBUILDER_ASSETS`.
    pub fn assets(mut self, directory: impl Into<PathBuf>) -> Self {
        self.assets = Some(directory.into());
        self
    }

    /// Also runs kube-controller-manager: namespaces, garbage collection, service accounts, deployments.
    /// Default: no, as with envtest.
    pub fn controller_manager(mut self, yes: bool) -> Self {
        self.controller_manager = yes;
        self
    }

    /// One more argument for kube-apiserver, such as `--enable-admission-plugins=…`.
    pub fn apiserver_argument(mut self, argument: impl Into<String>) -> Self {
        self.apiserver_arguments.push(argument.into());
        self
    }

    /// One more argument for kube-controller-manager, such as `--controllers=…`.
    pub fn controller_manager_argument(mut self, argument: impl Into<String>) -> Self {
        self.manager_arguments.push(argument.into());
        self
    }

    /// Starts the programs and returns when the API server is ready, its `default` namespace is there,
    /// and, with a controller manager, that namespace's ServiceAccount too.
    ///
    /// # Errors
    /// [`Error::NoAssets`] when neither [`Builder::assets`] nor the environment names a directory;
    /// else whatever kept a program from becoming ready, with the end of its log.
    pub async fn start(self) -> Result<ControlPlane, Error> {
        let mut tries_left = 3;
        loop {
            tries_left -= 1;
            match self.start_once().await {
                // Somebody else took a port between our look and the program's start.
                Err(Error::Ended { tail, .. })
                    if tries_left > 0 && tail.contains("address already in use") => {}
                result => return result,
            }
        }
    }

    async fn start_once(&self) -> Result<ControlPlane, Error> {
        let assets = self.assets_directory()?;
        let directory = Directory::new()?;
        let credentials = Credentials::make(&directory.path)?;
        let [etcd_port, apiserver_port, manager_port] = free_ports()?;
        let etcd = Process::start(
            "etcd",
            &directory.path,
            &etcd_command(&assets, &directory.path, etcd_port),
        )?;
        let mut control_plane = ControlPlane {
            url: format!("https://127.0.0.1:{apiserver_port}"),
            etcd_url: format!("http://127.0.0.1:{etcd_port}"),
            credentials,
            apiserver_command: self.apiserver_command(
                &assets,
                &directory.path,
                etcd_port,
                apiserver_port,
            ),
            manager_command: manager_command(
                &assets,
                &directory.path,
                manager_port,
                &self.manager_arguments,
            ),
            controller_manager: None,
            apiserver: None,
            etcd: Some(etcd),
            baseline: BTreeSet::new(),
            directory,
        };
        control_plane.start_apiserver().await?;
        if self.controller_manager {
            control_plane.start_controller_manager().await?;
        }
        control_plane.baseline = reset::keys(&control_plane.etcd_url).await?;
        Ok(control_plane)
    }

    fn assets_directory(&self) -> Result<PathBuf, Error> {
        let directory = self
            .assets
            .clone()
            .or_else(assets_of_environment)
            .ok_or(Error::NoAssets)?;
        let wanted: &[&'static str] = if self.controller_manager {
            &["etcd", "kube-apiserver", "kube-controller-manager"]
        } else {
            &["etcd", "kube-apiserver"]
        };
        for program in wanted {
            if !directory.join(program).is_file() {
                return Err(Error::NoProgram { directory, program });
            }
        }
        Ok(directory)
    }

    fn apiserver_command(
        &self,
        assets: &Path,
        directory: &Path,
        etcd_port: u16,
        port: u16,
    ) -> Vec<String> {
        let file = |name: &str| directory.join(name).display().to_string();
        let mut command = vec![
            assets.join("kube-apiserver").display().to_string(),
            format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            // A loopback address is no legal endpoint of the `kubernetes` service.
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", file("certificates")),
            format!("--tls-cert-file={}", file(credentials::SERVER_CERTIFICATE)),
            format!("--tls-private-key-file={}", file(credentials::SERVER_KEY)),
            format!("--token-auth-file={}", file(credentials::TOKENS)),
            "--authorization-mode=RBAC".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
            format!(
                "--service-account-signing-key-file={}",
                file(credentials::ACCOUNT_KEY)
            ),
            format!(
                "--service-account-key-file={}",
                file(credentials::ACCOUNT_PUBLIC_KEY)
            ),
            "--allow-privileged=true".to_owned(),
            "--profiling=false".to_owned(),
            "--shutdown-delay-duration=0s".to_owned(),
        ];
        if !self.controller_manager {
            // Nobody makes the `default` ServiceAccounts that it would demand of each Pod.
            command.push("--disable-admission-plugins=ServiceAccount".to_owned());
        }
        command.extend(self.apiserver_arguments.iter().cloned());
        command
    }
}

fn etcd_command(assets: &Path, directory: &Path, port: u16) -> Vec<String> {
    vec![
        assets.join("etcd").display().to_string(),
        format!("--data-dir={}", directory.join("etcd-data").display()),
        format!("--listen-client-urls=http://127.0.0.1:{port}"),
        format!("--advertise-client-urls=http://127.0.0.1:{port}"),
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        // The data live as long as the test: they need not survive a power cut.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ]
}

fn manager_command(assets: &Path, directory: &Path, port: u16, more: &[String]) -> Vec<String> {
    let file = |name: &str| directory.join(name).display().to_string();
    let kubeconfig = file(credentials::MANAGER_KUBECONFIG);
    let mut command = vec![
        assets.join("kube-controller-manager").display().to_string(),
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", file("certificates")),
        "--leader-elect=false".to_owned(),
        format!(
            "--service-account-private-key-file={}",
            file(credentials::ACCOUNT_KEY)
        ),
        format!(
            "--root-ca-file={}",
            file(credentials::AUTHORITY_CERTIFICATE)
        ),
        // The defaults of 20 a second are meant for a server that others use too.
        "--kube-api-qps=1000".to_owned(),
        "--kube-api-burst=2000".to_owned(),
        "--profiling=false".to_owned(),
    ];
    command.extend(more.iter().cloned());
    command
}

fn assets_of_environment() -> Option<PathBuf> {
    std::env::var_os(ASSETS_VARIABLE)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// Ports that nobody listened on a moment ago.
fn free_ports() -> Result<[u16; 3], Error> {
    let prepare = |source| Error::Prepare {
        what: "free loopback ports".to_owned(),
        source,
    };
    let mut listeners = Vec::new();
    let mut ports = [0; 3];
    for port in &mut ports {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).map_err(prepare)?;
        *port = listener.local_addr().map_err(prepare)?.port();
        // Held until all are chosen, so that they differ.
        listeners.push(listener);
    }
    Ok(ports)
}

// === impl ControlPlane ===

impl ControlPlane {
    /// Starts etcd and kube-apiserver from the directory in `KUBEBUILDER_ASSETS`; `None` when that is not set and the
    /// test is to be skipped, see [`assets`](crate::assets).
    ///
    /// # Errors
    /// When the directory lacks a program, or a program does not become ready.
    ///
    /// # Panics
    /// When the variable is not set and `REEVE_REQUIRE_ASSETS=1`.
    pub async fn from_assets() -> Result<Option<Self>, Error> {
        match crate::assets::control_plane() {
            Some(builder) => builder.start().await.map(Some),
            None => Ok(None),
        }
    }

    /// A control plane still to be started.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// `https://127.0.0.1:PORT`; stays the same when the API server is restarted.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where etcd answers, in plain HTTP, also to JSON under `/v3/`: for tests that compact its history.
    #[must_use]
    pub fn etcd_url(&self) -> &str {
        &self.etcd_url
    }

    /// The bearer token of [`ADMIN_USER`].
    #[must_use]
    pub fn admin_token(&self) -> &str {
        &self.credentials.admin_token
    }

    /// The PEM certificate of the authority that signed the API server's.
    #[must_use]
    pub fn certificate_authority(&self) -> &str {
        &self.credentials.authority
    }

    /// A kubeconfig (YAML) for the administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_for(ADMIN_USER, self.admin_token())
    }

    /// A kubeconfig (YAML) for whoever owns `token`, such as a ServiceAccount.
    #[must_use]
    pub fn kubeconfig_for(&self, user: &str, token: &str) -> String {
        credentials::kubeconfig(&self.url, &self.credentials.authority, user, token)
    }

    /// A client of the administrator.
    ///
    /// # Errors
    /// When kube-client refuses the configuration.
    pub fn client(&self) -> Result<kube_client::Client, Error> {
        client_of(&self.url, &self.credentials.authority, self.admin_token())
    }

    /// A client that sends `token`.
    ///
    /// # Errors
    /// When kube-client refuses the configuration.
    pub fn client_for(&self, token: &str) -> Result<kube_client::Client, Error> {
        client_of(&self.url, &self.credentials.authority, token)
    }

    /// Kills the API server at once, as a crash would; etcd and all objects stay.
    pub fn stop_apiserver(&mut self) {
        self.apiserver = None;
    }

    /// Starts the API server (again, on the same port) and returns when it is ready. Does nothing when it runs.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn start_apiserver(&mut self) -> Result<(), Error> {
        if self.apiserver.is_some() {
            return Ok(());
        }
        let process = Process::start(
            "kube-apiserver",
            &self.directory.path,
            &self.apiserver_command,
        )?;
        self.apiserver = Some(process);
        self.wait_until_answered("/readyz").await?;
        self.wait_until_answered("/api/v1/namespaces/default").await
    }

    /// Starts kube-controller-manager (again) and returns when it has made the `default` ServiceAccount. Does nothing
    /// when it runs.
    ///
    /// Its garbage collector learns of new kinds every 30 s: a suite that needs it for its own kinds starts it after
    /// it has defined them.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn start_controller_manager(&mut self) -> Result<(), Error> {
        if self.controller_manager.is_some() {
            return Ok(());
        }
        self.credentials
            .write_manager_kubeconfig(&self.directory.path, &self.url)?;
        let process = Process::start(
            "kube-controller-manager",
            &self.directory.path,
            &self.manager_command,
        )?;
        self.controller_manager = Some(process);
        self.wait_until_answered("/api/v1/namespaces/default/serviceaccounts/default")
            .await
    }

    /// Kills kube-controller-manager at once, as a crash would.
    pub fn stop_controller_manager(&mut self) {
        self.controller_manager = None;
    }

    /// Removes every object that was made since the start, at once and without finalizers: for a suite whose cases use one
    /// control plane in turn. A reset takes milliseconds, a start seconds.
    ///
    /// What the control plane makes by itself stays, as do changes to objects that were there at the start. Only the
    /// objects are gone when this returns: caches of running programs learn of it from their watches.
    ///
    /// # Errors
    /// When etcd does not do it.
    pub async fn reset(&self) -> Result<(), Error> {
        reset::delete_new(&self.etcd_url, &self.baseline).await
    }

    /// Sets whether data and logs are also removed when this process ends without dropping the control plane, as with one
    /// in a `static`. Default: no, they stay for a look at what happened.
    ///
    /// # Errors
    /// When the file that says so cannot be written or removed.
    pub fn remove_directory_at_exit(&self, yes: bool) -> Result<(), Error> {
        let marker = self.directory.path.join(process::REMOVE_AT_EXIT);
        let result = if yes {
            std::fs::write(&marker, "")
        } else {
            match std::fs::remove_file(&marker) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                result => result,
            }
        };
        result.map_err(|source| Error::Prepare {
            what: marker.display().to_string(),
            source,
        })
    }

    /// Where data and logs are; removed with the control plane unless something failed.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory.path
    }

    /// Leaves data and logs where they are when this control plane ends.
    pub fn keep_directory(&mut self) {
        self.directory.keep = true;
    }

    /// Waits until a GET of `path` succeeds.
    async fn wait_until_answered(&mut self, path: &str) -> Result<(), Error> {
        let result = self.try_until_answered(path).await;
        if result.is_err() {
            self.directory.keep = true;
        }
        result
    }

    async fn try_until_answered(&mut self, path: &str) -> Result<(), Error> {
        let deadline = Instant::now() + READY_WITHIN;
        let client = self.client()?;
        loop {
            let request = http::Request::get(path)
                .body(Vec::new())
                .map_err(|error| Error::Client(error.to_string()))?;
            let answer =
                tokio::time::timeout(Duration::from_secs(5), client.request_text(request)).await;
            let last = match answer {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer".to_owned(),
            };
            let processes = [
                &mut self.etcd,
                &mut self.apiserver,
                &mut self.controller_manager,
            ];
            let mut asked = None;
            for process in processes.into_iter().flatten() {
                if let Some(error) = process.ended() {
                    return Err(error);
                }
                asked = Some(process);
            }
            if Instant::now() >= deadline
                && let Some(process) = asked
            {
                return Err(process.not_ready(last));
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

fn client_of(url: &str, authority: &str, token: &str) -> Result<kube_client::Client, Error> {
    let document = credentials::kubeconfig_document(url, authority, "user", token);
    let kubeconfig: Kubeconfig =
        serde_json::from_value(document).map_err(|error| Error::Client(error.to_string()))?;
    // Loading is async only for the sake of files and `exec` plugins, which this configuration does not have.
    let config =
        kube_client::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .now_or_never()
            .ok_or_else(|| Error::Client("loading the configuration had to wait".to_owned()))?
            .map_err(|error| Error::Client(error.to_string()))?;
    kube_client::Client::try_from(config).map_err(|error| Error::Client(error.to_string()))
}

// === impl Directory ===

impl Directory {
    fn new() -> Result<Self, Error> {
        let unique = reeve_clock::Clock::system().random().next_u64();
        let path = std::env::temp_dir().join(format!(
            "reeve-control-plane-{}-{unique:016x}",
            std::process::id()
        ));
        let prepare = |source| Error::Prepare {
            what: path.display().to_string(),
            source,
        };
        std::fs::create_dir_all(&path).map_err(prepare)?;
        Ok(Self { path, keep: false })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.keep || std::thread::panicking() {
            tracing::warn!(directory = %self.path.display(), "data and logs of the control plane are kept");
            return;
        }
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(directory = %self.path.display(), %error, "cannot remove the control plane's data");
        }
    }
}
