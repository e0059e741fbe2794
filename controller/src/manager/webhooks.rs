//! The webhook server of a manager, and its certificates.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use reeve_clock::Clock;
use reeve_webhook::certificates::{Journal, Notice, Rotation, RotationMetrics};
use tokio_util::sync::CancellationToken;

use super::Error;
use crate::ObjectKey;
use crate::client::Client;
use crate::events::{EventType, Recorder};
use crate::health::Health;
use crate::lifecycle::{Group, Runnable};
use crate::metrics::Metrics;

type Make = Box<dyn FnOnce(reeve_client::Client) -> Rotation + Send>;

/// The configured webhook server.
pub(super) struct Webhooks {
    pub(super) enabled: bool,
    pub(super) server: Option<reeve_webhook::Server>,
    pub(super) rotation: Option<Make>,
}

/// The parts of the manager that it uses.
pub(super) struct Parts<'a> {
    pub(super) client: &'a Client,
    pub(super) recorder: Recorder,
    pub(super) clock: &'a Clock,
    pub(super) metrics: &'a Metrics,
    pub(super) health: &'a Health,
    pub(super) stopping: &'a CancellationToken,
    /// The time for the stop of the server, from the begin of the manager's.
    pub(super) time_to_stop: Duration,
}

/// Records Events of the Secret.
struct Events(Recorder);

// === impl Webhooks ===

impl Default for Webhooks {
    fn default() -> Self {
        Self {
            enabled: true,
            server: None,
            rotation: None,
        }
    }
}

impl Webhooks {
    /// Whether there is a server to run.
    pub(super) fn check(&self) -> Result<bool, Error> {
        if !self.enabled {
            if self.server.is_some() {
                tracing::info!("the webhook server is off");
            }
            return Ok(false);
        }
        if self.server.is_none() && self.rotation.is_some() {
            return Err(Error::CertificatesWithoutWebhooks);
        }
        Ok(self.server.is_some())
    }

    /// Binds the server: its address, and its runnables.
    pub(super) async fn bind(
        self,
        parts: Parts<'_>,
    ) -> Result<Option<(SocketAddr, Vec<Runnable>)>, Error> {
        let Some(server) = self.server else {
            return Ok(None);
        };
        let metrics = parts.metrics.register(reeve_webhook::Metrics::register);
        let mut server = server
            .clock(parts.clock.clone())
            .metrics(metrics)
            .stop_within(parts.time_to_stop)
            .certificate_metrics(parts.metrics.certificates());
        let mut runnables = Vec::new();
        if let Some(make) = self.rotation {
            let rotation = make((**parts.client).clone())
                .clock(parts.clock.clone())
                .journal(Arc::new(Events(parts.recorder)))
                .metrics(parts.metrics.register(RotationMetrics::register));
            server = server.rotation(&rotation);
            let rotating = Runnable::new("webhook certificates", move |stop| async move {
                rotation.run(stop).await;
                Ok::<(), Infallible>(())
            });
            runnables.push(rotating.in_group(Group::Webhooks));
        }
        let bound = server.bind().await?;
        let readiness = bound.readiness().clone();
        let ready = parts.health.ready();
        ready.add_all("webhooks", readiness.checks());
        let address = bound.local_addr();
        // It goes on for its linger time from the begin of the manager's stop, and not from that of its group.
        let stopping = parts.stopping.clone();
        let serving = Runnable::new("webhook server", move |_| bound.run(stopping));
        runnables.push(serving.in_group(Group::Webhooks));
        Ok(Some((address, runnables)))
    }
}

// === impl Events ===

impl Journal for Events {
    fn record(&self, secret: &ObjectKey, notice: &Notice) {
        let mut object = Secret::default();
        object.metadata.namespace = secret.namespace.as_deref().map(str::to_owned);
        object.metadata.name = Some(secret.name.to_string());
        let event_type = if notice.is_warning() {
            EventType::Warning
        } else {
            EventType::Normal
        };
        let reason = notice.reason();
        self.0
            .event(&object, event_type, reason, "Rotate", notice.to_string());
    }
}
