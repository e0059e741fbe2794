//! Records and reports as Events in the namespace of the guard, which all replicas read.

use k8s_openapi::api::core::v1::Event;
use reeve_client::Client;
use reeve_clock::Clock;
use serde_json::{Value, json};

use super::{Deletion, Gone};

/// The label of Events that are records of deletions, `deletion` as its value.
pub const RECORD_LABEL: &str = "preprod-guard/record";

/// Writes Events about the Service of the guard.
#[derive(Clone, Debug)]
pub struct Journal {
    client: Client,
    clock: Clock,
    namespace: String,
    service: String,
}

// === impl Journal ===

impl Journal {
    /// A journal of the guard behind `service` in `namespace`.
    #[must_use]
    pub fn new(client: Client, clock: Clock, namespace: &str, service: &str) -> Self {
        Self {
            client,
            clock,
            namespace: namespace.to_owned(),
            service: service.to_owned(),
        }
    }

    /// Writes the record of a deletion.
    pub(super) async fn deletion(&self, deletion: &Deletion) {
        let Deletion { key, uid, user } = deletion;
        let mut event = self.event("deletion", uid, &key.to_string());
        event["metadata"]["labels"] = json!({RECORD_LABEL: "deletion"});
        event["type"] = json!("Normal");
        event["reason"] = json!("ProductionObjectDeletion");
        event["message"] = json!(format!("{user} deletes {key}"));
        self.write(event).await;
    }

    /// Reports an object that disappeared.
    pub(super) async fn gone(&self, gone: &Gone) {
        let mut event = self.event("gone", &gone.uid, &gone.key.to_string());
        event["type"] = json!("Warning");
        event["reason"] = json!("ProductionObjectGone");
        event["message"] = json!(format!(
            "{} disappeared without a record of its deletion: the webhook was not called, or did not answer",
            gone.key
        ));
        self.write(event).await;
    }

    /// An Event whose name depends on the object only, so that one of several replicas stores it.
    fn event(&self, prefix: &str, uid: &str, object: &str) -> Value {
        let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": format!("{prefix}.{uid}"), "namespace": self.namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Service", "namespace": self.namespace, "name": self.service},
            "related": {"uid": uid, "fieldPath": object},
            "source": {"component": "preprod-guard"},
            "reportingComponent": "preprod-guard",
            "reportingInstance": self.service,
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        })
    }

    async fn write(&self, event: Value) {
        let event: Event = match serde_json::from_value(event) {
            Ok(event) => event,
            Err(error) => {
                tracing::error!(%error, "an Event of the guard is invalid");
                return;
            }
        };
        match self.client.create(&event).await {
            Ok(_) => {}
            // Another replica, or a repeated request.
            Err(error) if error.is_already_exists() => {}
            Err(error) => tracing::warn!(%error, "could not write an Event"),
        }
    }
}

/// The uid in the record of a deletion.
#[must_use]
pub fn uid_of_record(event: &Event) -> Option<&str> {
    event.related.as_ref()?.uid.as_deref()
}
