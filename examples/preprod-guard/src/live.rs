//! Reads of single objects from the API server, for what informers do not have or may have late.

use std::time::Duration;

use kube_core::{ApiResource, GroupVersionKind};
use reeve_client::{Client, Kind, ObjectKey, optional};
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::object::Key;

/// The longest time of a read.
const LONGEST_READ: Duration = Duration::from_secs(2);

/// The time that a webhook needs to answer after its reads.
const TIME_TO_ANSWER: Duration = Duration::from_millis(300);

/// Reads objects by their keys.
#[derive(Clone, Debug)]
pub struct Live {
    client: Client,
}

// === impl Live ===

impl Live {
    /// Reads with the rights of `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The object of this key. `None` if there is none, or it could not be read in time; the log has the reason. A read takes
    /// at most 2 s, and ends 300 ms before `deadline`.
    pub async fn read(&self, version: &str, key: &Key, deadline: Option<Instant>) -> Option<Value> {
        let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
        let limit = left.map_or(LONGEST_READ, |left| {
            left.saturating_sub(TIME_TO_ANSWER).min(LONGEST_READ)
        });
        let gvk = GroupVersionKind::gvk(&key.group, version, "");
        let resource = ApiResource::from_gvk_with_plural(&gvk, &key.resource);
        let (kind, name) = if key.namespace.is_empty() {
            let kind = Kind::cluster_scoped(resource);
            (kind, ObjectKey::cluster(key.name.as_str()))
        } else {
            let kind = Kind::namespaced(resource);
            let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
            (kind, ObjectKey::namespaced(namespace, name))
        };
        let objects = self.client.dynamic(&kind);
        match timeout(limit, objects.get(&name)).await.map(optional) {
            Ok(Ok(object)) => serde_json::to_value(object?).ok(),
            Ok(Err(error)) => {
                tracing::warn!(object = %key, %error, "could not read an object");
                None
            }
            Err(_) => {
                tracing::warn!(object = %key, "could not read an object in time");
                None
            }
        }
    }
}
