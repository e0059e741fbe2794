//! Starting a control plane: the programs, their arguments and their ports.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::credentials::{self, Credentials};
use super::directory::Directory;
use super::error::{ASSETS_VARIABLE, Error};
use super::plane::ControlPlane;
use super::process::Process;
use super::reset;
use crate::ports::free_port;

/// The options of a control plane. Made by [`ControlPlane::builder`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    assets: Option<PathBuf>,
    controller_manager: bool,
    apiserver_arguments: Vec<String>,
    manager_arguments: Vec<String>,
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

    /// Starts the programs and returns when the API server is ready, its `default` namespace exists,
    /// and, with a controller manager, that namespace's ServiceAccount too.
    ///
    /// # Errors
    /// [`Error::NoAssets`] when neither [`Builder::assets`] nor the environment names a directory;
    /// else the reason why a program did not become ready, with the end of its log.
    pub async fn start(self) -> Result<ControlPlane, Error> {
        let mut tries_left = 3;
        loop {
            tries_left -= 1;
            match self.start_once().await {
                // Another process took a port after it was chosen and before the program started.
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
            // A loopback address is not a legal endpoint of the `kubernetes` service.
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", file("certificates")),
            format!("--tls-cert-file={}", file(credentials::SERVER_CERTIFICATE)),
            format!("--tls-private-key-file={}", file(credentials::SERVER_KEY)),
            format!(
                "--client-ca-file={}",
                file(credentials::AUTHORITY_CERTIFICATE)
            ),
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
            // Without the manager, no Pod has the `default` ServiceAccount that this plugin demands.
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
        // The data live as long as the test: they need not survive a power failure.
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
        // The defaults of 20 a second are meant for a shared server.
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

fn free_ports() -> Result<[u16; 3], Error> {
    let prepare = |source| Error::Prepare {
        what: "free loopback ports".to_owned(),
        source,
    };
    let mut ports = [0; 3];
    for port in &mut ports {
        *port = free_port().map_err(prepare)?;
    }
    Ok(ports)
}
