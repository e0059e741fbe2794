//! A running control plane.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use futures::FutureExt;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use tokio::time::{Instant, sleep};

use super::builder::Builder;
use super::credentials::{self, ADMIN_USER, Credentials};
use super::directory::Directory;
use super::error::{Error, READY_WITHIN};
use super::process::{self, Process};
use super::reset;
use crate::kubeconfig::{Access, kubeconfig};
use crate::user_certificate::UserCertificate;

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A running etcd and kube-apiserver; ends when dropped.
#[derive(Debug)]
pub struct ControlPlane {
    /// `https://127.0.0.1:PORT`.
    pub(super) url: String,
    pub(super) etcd_url: String,
    pub(super) credentials: Credentials,
    pub(super) apiserver_command: Vec<String>,
    pub(super) manager_command: Vec<String>,
    // Dropped in this order: a program goes before those that it needs.
    pub(super) controller_manager: Option<Process>,
    pub(super) apiserver: Option<Process>,
    pub(super) etcd: Option<Process>,
    /// The keys of etcd at the end of the start.
    pub(super) baseline: BTreeSet<String>,
    pub(super) directory: Directory,
}

// === impl ControlPlane ===

impl ControlPlane {
    /// Starts etcd and kube-apiserver from the directory in `KUBEBUILDER_ASSETS`; `None` when that is not set and the
    /// test must be skipped, see [`assets`](crate::assets).
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

    /// A builder of a control plane.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// `https://127.0.0.1:PORT`; stays the same when the API server is restarted.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The URL of etcd: plain HTTP, with the JSON gateway under `/v3/`, for tests that compact its history.
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

    /// A kubeconfig (YAML) for the owner of `token`, such as a ServiceAccount.
    #[must_use]
    pub fn kubeconfig_for(&self, user: &str, token: &str) -> String {
        credentials::kubeconfig(&self.url, &self.credentials.authority, user, token)
    }

    /// A certificate that makes its holder the user `user`, in `group`.
    ///
    /// # Errors
    /// When it cannot be made, as for a name that a certificate cannot have.
    pub fn user_certificate(
        &self,
        user: &str,
        group: Option<&str>,
    ) -> Result<UserCertificate, Error> {
        self.credentials.user_certificate(user, group)
    }

    /// A kubeconfig (YAML) with a client certificate.
    #[must_use]
    pub fn kubeconfig_of(&self, certificate: &UserCertificate) -> String {
        kubeconfig(&Access {
            url: &self.url,
            authority: Some(&self.credentials.authority),
            token: None,
            certificate: Some(certificate),
        })
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

    /// Starts kube-controller-manager (again) and returns when it has created the `default` ServiceAccount. Does nothing
    /// when it runs.
    ///
    /// Its garbage collector discovers new kinds every 30 s: a suite that needs it for its own kinds starts it after
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

    /// Removes every object that was created since the start, at once and without finalizers: for a suite whose cases use
    /// one control plane in turn. A reset takes milliseconds, a start seconds.
    ///
    /// Objects that the control plane makes by itself stay, as do changes to objects that were there at the start. When
    /// this returns only the objects are gone: caches of running programs see the deletions in their watches.
    ///
    /// # Errors
    /// When etcd refuses it.
    pub async fn reset(&self) -> Result<(), Error> {
        reset::delete_new(&self.etcd_url, &self.baseline).await
    }

    /// Sets whether data and logs are also removed when this process ends without dropping the control plane, as with one
    /// in a `static`. Default: no, they stay for inspection.
    ///
    /// # Errors
    /// When the marker file cannot be written or removed.
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

    /// The directory of data and logs; removed with the control plane unless something failed.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory.path
    }

    /// Keeps data and logs when this control plane ends.
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
    // Loading is async only for files and `exec` plugins, which this configuration does not have.
    let config =
        kube_client::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .now_or_never()
            .ok_or_else(|| Error::Client("loading the configuration had to wait".to_owned()))?
            .map_err(|error| Error::Client(error.to_string()))?;
    kube_client::Client::try_from(config).map_err(|error| Error::Client(error.to_string()))
}
