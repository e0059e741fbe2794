//! The server as a value in a program.

use std::net::SocketAddr;
use std::sync::Arc;

use kube_client::Client;
use reeve_clock::Clock;
#[cfg(feature = "program")]
use reeve_serve::certificates::Certificates;
use tokio::task::JoinHandle;

use crate::builder::Builder;
use crate::control::Control;
use crate::core::Core;
use crate::faults::Faults;
use crate::record::Record;
use crate::restore::RestoreError;
use crate::serve::{ServeError, Serving, Transport};
use crate::service::Service;
use crate::store::PersistError;
use crate::template::Template;

/// A Kubernetes API server in this process.
///
/// Dropping it ends everything it started; clients then get errors.
#[derive(Debug)]
pub struct ApiServer {
    pub(crate) core: Arc<Core>,
    pub(crate) control: Option<Arc<Control>>,
    pub(crate) lifecycle: JoinHandle<()>,
    pub(crate) admin_token: Option<String>,
}

// === impl ApiServer ===

impl ApiServer {
    /// A builder with the defaults.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// The objects and the custom kinds as they are now, for other servers to start with: a test that needs the same server again
    /// and again prepares one, and the others need no time for definitions and first objects.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use reeve_apiserver::ApiServer;
    /// let prepared = ApiServer::builder().start().await?.template();
    /// let server = ApiServer::builder().template(&prepared).start().await?;
    /// # assert!(server.resource_version() >= 10_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn template(&self) -> Template {
        Template::of(&self.core)
    }

    /// Brings the objects and custom kinds back to those of `template`, and returns how many objects were written or removed for
    /// that. Tests share one server that way, and controllers that run go on: clients see writes, with new versions, and no
    /// watch ends. Admission and finalizers have no say. Only what changed since is written.
    ///
    /// A client that still writes does so before or after it: stop controllers, or let them settle, if the result has to be exact.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use reeve_apiserver::ApiServer;
    /// let server = ApiServer::builder().start().await?;
    /// let clean = server.template();
    /// // A test.
    /// server.restore(&clean)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// When the data directory cannot be written, or another client writes an object all the time. Objects may be restored in part
    /// then.
    pub fn restore(&self, template: &Template) -> Result<usize, RestoreError> {
        template.restore(&self.core)
    }

    /// A client in this process, without a socket, with the rights of an administrator and the default
    /// namespace `default`.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client_with(self.admin_token.as_deref())
    }

    /// A client in this process that sends a bearer token, or no credentials.
    #[must_use]
    pub fn client_with(&self, token: Option<&str>) -> Client {
        let header =
            token.and_then(|token| http::HeaderValue::from_str(&format!("Bearer {token}")).ok());
        let service = tower::ServiceBuilder::new()
            .map_request(
                move |mut request: http::Request<kube_client::client::Body>| {
                    if let Some(header) = &header {
                        request
                            .headers_mut()
                            .insert(http::header::AUTHORIZATION, header.clone());
                    }
                    request
                },
            )
            .service(self.service());
        Client::new(service, "default")
    }

    /// The server as a `tower::Service`, for layers of a test's own.
    #[must_use]
    pub fn service(&self) -> Service {
        Service::new(self.core.clone(), self.control.clone())
    }

    /// Serves plain HTTP (HTTP/1.1 and HTTP/2) on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn serve(&self, address: SocketAddr) -> Result<Serving, ServeError> {
        Serving::start(
            self.service(),
            address,
            Transport::Plain,
            self.admin_token.clone(),
        )
        .await
    }

    /// Serves HTTPS on `address`, with a certificate of a fresh authority.
    ///
    /// # Errors
    /// When the address cannot be bound or no certificate can be made.
    pub async fn serve_tls(&self, address: SocketAddr) -> Result<Serving, ServeError> {
        Serving::start(
            self.service(),
            address,
            Transport::OwnAuthority,
            self.admin_token.clone(),
        )
        .await
    }

    /// Serves HTTPS on `address`, with `certificates`.
    #[cfg(feature = "program")]
    pub(crate) async fn serve_with(
        &self,
        address: SocketAddr,
        certificates: Certificates,
    ) -> Result<Serving, ServeError> {
        let transport = Transport::Certificates(certificates);
        Serving::start(self.service(), address, transport, None).await
    }

    /// Sends the calls of webhooks whose `clientConfig` names the Service `namespace/name` to `service`, in this process:
    /// no socket, no certificate, and virtual time. The Service need not exist. Until then, and for others, the server
    /// connects to an endpoint of the Service, its external name or its cluster address, and checks the certificate for
    /// `NAME.NAMESPACE.svc`.
    ///
    /// The requests have the URI that a real server would send them to, `https://NAME.NAMESPACE.svc:443/PATH?timeout=10s`.
    pub fn serve_webhooks<S>(&self, namespace: &str, name: &str, service: S)
    where
        S: tower::Service<
                http::Request<kube_client::client::Body>,
                Response = http::Response<kube_client::client::Body>,
            > + Clone
            + Send
            + Sync
            + 'static,
        S::Error: Into<tower::BoxError>,
        S::Future: Send + 'static,
    {
        self.core.backends.set(namespace, name, service);
    }

    /// Ends [`serve_webhooks`](Self::serve_webhooks): the Service is as it is stored.
    pub fn stop_webhooks(&self, namespace: &str, name: &str) {
        self.core.backends.remove(namespace, name);
    }

    /// The fault rules.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.core.faults.clone()
    }

    /// The requests that were answered; none with [`Builder::record_requests`]`(false)`.
    #[must_use]
    pub fn requests(&self) -> Record {
        self.core.record.clone()
    }

    /// The clock of the server.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.core.clock
    }

    /// The newest resourceVersion.
    #[must_use]
    pub fn resource_version(&self) -> u64 {
        self.core.store.revision()
    }

    /// Compacts the history up to and including a version (default: all of it), as etcd does every few
    /// minutes: reads at older versions and pages that began before get 410. Watches are unaffected, as a real
    /// server resumes them from caches of its own.
    pub fn compact(&self, version: Option<u64>) {
        self.core.store.compact(version.unwrap_or(u64::MAX));
    }

    /// Drops the history up to and including a version (default: all of it), as a real server that
    /// restarts after a compaction: watches that start from an older version get 410, too. Open
    /// watches continue.
    pub fn forget_history(&self, version: Option<u64>) {
        self.core.store.forget(version.unwrap_or(u64::MAX));
    }

    /// Ends every open watch, as a server that restarts or sheds load.
    pub fn close_watches(&self) {
        self.core.close_watches();
    }

    /// Takes the server down as if it had been killed: connections break, sockets are closed, requests
    /// in process fail. Stored objects stay.
    pub fn go_down(&self) {
        self.core.go_down();
    }

    /// Brings it up again on the same addresses. History is lost, as with a restarted server, so older
    /// watches get 410.
    pub fn come_up(&self) {
        self.core.come_up();
    }

    /// Makes the state now the one that a reset of the control API leads to. Default: the state after the start.
    #[cfg(feature = "program")]
    pub(crate) fn set_reset_point(&self) {
        if let Some(control) = &self.control {
            control.set_start(self.template());
        }
    }

    #[cfg(any(test, feature = "program"))]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Ends the background task and waits for its end.
    #[cfg(test)]
    pub(crate) async fn stop_lifecycle(&self) {
        self.lifecycle.abort();
        while !self.lifecycle.is_finished() {
            tokio::task::yield_now().await;
        }
    }

    /// Ends the server: watches end, requests are refused, the data directory is synced.
    ///
    /// # Errors
    /// When the data directory cannot be written.
    pub async fn shutdown(self) -> Result<(), PersistError> {
        self.go_down();
        self.lifecycle.abort();
        self.core.store.close()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.core.up.send_replace(false);
        self.core.close_watches();
        self.lifecycle.abort();
        if let Err(error) = self.core.store.close() {
            // The log holds everything; the next start reads that.
            tracing::warn!(%error, "could not tidy the data directory");
        }
    }
}
