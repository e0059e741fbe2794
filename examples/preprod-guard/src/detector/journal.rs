//! Records and reports as Events in the namespace of the guard, which all replicas read.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use reeve_client::Client;
use reeve_clock::Clock;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::ledger::RECORD_KEPT;
use super::{Change, Observed, Record};

/// The label of Events that are records. Its value is the word of the change.
pub const RECORD_LABEL: &str = "preprod-guard/record";

/// The longest time of a write.
const LONGEST_WRITE: Duration = Duration::from_secs(5);

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

    /// Writes a record. Its name has the time in half hours, so that a later record of the same object is another Event.
    pub(super) async fn record(&self, record: Record) {
        let Record {
            change,
            key,
            uid,
            user,
        } = record;
        let word = change.word();
        let half = i64::try_from(RECORD_KEPT.as_secs() / 2).unwrap_or(1);
        let turn = self.clock.now().as_second() / half;
        let mut event = self.event(&format!("{word}.{uid}.{turn}"), &uid, &key.to_string());
        event["metadata"]["labels"] = json!({RECORD_LABEL: word});
        event["type"] = json!("Normal");
        let (reason, verb) = match change {
            Change::Deletion => ("ProductionObjectDeletion", "deletes"),
            Change::Unmarked => ("ProductionMarkRemoval", "removes the mark of"),
        };
        event["reason"] = json!(reason);
        event["message"] = json!(format!("{user} {verb} {key}"));
        self.write(event).await;
    }

    /// Reports a change that has no record.
    pub(super) async fn report(&self, observed: Observed) {
        let Observed { change, key, uid } = observed;
        let (reason, what) = match change {
            Change::Deletion => ("ProductionObjectGone", "the deletion"),
            Change::Unmarked => ("ProductionMarkLost", "the removal of the mark"),
        };
        let name = format!("gone.{}.{uid}", change.word());
        let mut event = self.event(&name, &uid, &key.to_string());
        event["type"] = json!("Warning");
        event["reason"] = json!(reason);
        event["message"] = json!(format!(
            "{what} of {key} has no record: the webhook was not called, or did not answer"
        ));
        self.write(event).await;
    }

    /// An Event whose name depends on the object, so that one of several replicas stores it.
    fn event(&self, name: &str, uid: &str, object: &str) -> Value {
        let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": self.namespace},
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
        match timeout(LONGEST_WRITE, self.client.create(&event)).await {
            Ok(Ok(_)) => {}
            // Another replica, or a repeated request.
            Ok(Err(error)) if error.is_already_exists() => {}
            Ok(Err(error)) => tracing::warn!(%error, "could not write an Event"),
            Err(_) => tracing::warn!("could not write an Event in time"),
        }
    }
}

/// The change and the uid in a record.
#[must_use]
pub fn of_record(event: &Event) -> Option<(Change, &str)> {
    let word = event.metadata.labels.as_ref()?.get(RECORD_LABEL)?;
    let uid = event.related.as_ref()?.uid.as_deref()?;
    Some((Change::of_word(word)?, uid))
}
