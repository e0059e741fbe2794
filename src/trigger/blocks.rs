//! The IPBlock objects, as far as triggers read and write them.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use reeve_controller::cache::Caches;
use reeve_controller::client::{self, Patch, optional};
use reeve_controller::events::{EventType, Recorder};
use reeve_controller::{Client, ObjectKey};
use serde_json::Value;

use super::repeat;
use crate::api::IPBlock;
use crate::outbound::BoxFuture;

/// The field manager in managedFields.
const FIELD_MANAGER: &str = "ipblock-operator";

/// A request that takes longer is given up, so that the sender is answered in time.
const DEADLINE: Duration = Duration::from_secs(4);

/// Reads and writes IPBlock objects.
pub trait Blocks: Send + Sync + fmt::Debug {
    /// The object, if there is one.
    fn get<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<IPBlock>, BlocksError>>;

    /// Creates the object, in its namespace.
    fn create<'a>(&'a self, block: &'a IPBlock) -> BoxFuture<'a, Result<(), BlocksError>>;

    /// Applies a JSON merge patch. A resourceVersion in it is a precondition.
    fn patch<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        patch: &'a Value,
    ) -> BoxFuture<'a, Result<(), BlocksError>>;

    /// Records an Event of `block` for people. Never waits.
    fn report(&self, _block: &IPBlock, _reason: &'static str, _note: &str) {}

    /// Whether the object was last seen with a ban that is over, and no ban was requested since. Never waits; `false` also
    /// when the object was not seen.
    fn has_ended(&self, _namespace: &str, _name: &str, _now: Timestamp) -> bool {
        false
    }
}

/// Why an object is not read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlocksError {
    /// There is one of that name.
    #[error("the object exists already")]
    Exists,
    /// It changed since it was read.
    #[error("another client changed the object")]
    Conflict,
    /// It is gone.
    #[error("the object is gone")]
    Gone,
    /// It will never be accepted as it is.
    #[error("{0}")]
    Rejected(String),
    /// Not now: worth trying again.
    #[error("{0}")]
    Unavailable(String),
}

/// Objects at the API server.
#[derive(Clone)]
pub struct KubeBlocks {
    client: Client,
    caches: Option<Caches>,
    events: Option<Recorder>,
}

// === impl KubeBlocks ===

impl KubeBlocks {
    /// Through `client`, which needs get, create and patch on ipblocks.
    #[must_use]
    pub fn new(client: kube_client::Client) -> Self {
        let client = Client::new(client)
            .with_deadline(DEADLINE)
            .field_owner(FIELD_MANAGER);
        Self {
            client,
            caches: None,
            events: None,
        }
    }

    /// Records Events by `events`.
    #[must_use]
    pub fn recording(mut self, events: Recorder) -> Self {
        self.events = Some(events);
        self
    }

    /// Reads what was last seen of a block from `caches`.
    #[must_use]
    pub fn cached(mut self, caches: Caches) -> Self {
        self.caches = Some(caches);
        self
    }
}

impl fmt::Debug for KubeBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeBlocks").finish_non_exhaustive()
    }
}

impl Blocks for KubeBlocks {
    fn get<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<IPBlock>, BlocksError>> {
        Box::pin(async move {
            let key = ObjectKey::namespaced(namespace, name);
            optional(self.client.get(&key).await).map_err(classify)
        })
    }

    fn create<'a>(&'a self, block: &'a IPBlock) -> BoxFuture<'a, Result<(), BlocksError>> {
        Box::pin(async move { self.client.create(block).await.map(drop).map_err(classify) })
    }

    fn patch<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        patch: &'a Value,
    ) -> BoxFuture<'a, Result<(), BlocksError>> {
        Box::pin(async move {
            let key = ObjectKey::namespaced(namespace, name);
            let patch = Patch::merge(patch);
            let patched = self.client.patch::<IPBlock>(&key, patch).await;
            patched.map(drop).map_err(classify)
        })
    }

    fn report(&self, block: &IPBlock, reason: &'static str, note: &str) {
        if let Some(events) = &self.events {
            events.event(block, EventType::Normal, reason, "Alert", note);
        }
    }

    fn has_ended(&self, namespace: &str, name: &str, now: Timestamp) -> bool {
        let lister = self.caches.as_ref().map(Caches::lister::<IPBlock>);
        let Some(Ok(lister)) = lister else {
            return false;
        };
        let seen = lister.get(&ObjectKey::namespaced(namespace, name));
        matches!(seen, Ok(Some(block)) if repeat::has_ended(&block, now))
    }
}

fn classify(error: client::Error) -> BlocksError {
    match error.status() {
        _ if error.is_already_exists() => BlocksError::Exists,
        _ if error.is_conflict() => BlocksError::Conflict,
        // The object alone, or its namespace or kind, which may be created later.
        _ if error.is_not_found() => BlocksError::Gone,
        Some(status) if matches!(status.code, 400 | 413 | 422) => {
            BlocksError::Rejected(status.message.clone())
        }
        _ => BlocksError::Unavailable(error.to_string()),
    }
}

#[cfg(test)]
pub(crate) mod in_memory {
    use super::*;
    use parking_lot::Mutex;
    use std::collections::BTreeMap;
    use std::collections::VecDeque;

    /// Objects in memory, with errors that the next writes answer with.
    #[derive(Debug, Default)]
    pub(crate) struct InMemory {
        pub(crate) objects: Mutex<BTreeMap<String, IPBlock>>,
        pub(crate) writes: Mutex<Vec<String>>,
        pub(crate) faults: Mutex<VecDeque<BlocksError>>,
        pub(crate) version: Mutex<u64>,
        pub(crate) events: Mutex<Vec<String>>,
    }

    impl InMemory {
        pub(crate) fn fail(&self, error: BlocksError) {
            self.faults.lock().push_back(error);
        }

        pub(crate) fn put(&self, mut block: IPBlock) {
            block.metadata.resource_version = Some(self.next_version());
            let name = block.metadata.name.clone().unwrap();
            self.objects.lock().insert(name, block);
        }

        pub(crate) fn names(&self) -> Vec<String> {
            self.objects.lock().keys().cloned().collect()
        }

        pub(crate) fn one(&self, name: &str) -> IPBlock {
            self.objects.lock()[name].clone()
        }

        fn next_version(&self) -> String {
            let mut version = self.version.lock();
            *version += 1;
            version.to_string()
        }

        fn fault(&self) -> Result<(), BlocksError> {
            self.faults.lock().pop_front().map_or(Ok(()), Err)
        }
    }

    impl Blocks for InMemory {
        fn get<'a>(
            &'a self,
            _: &'a str,
            name: &'a str,
        ) -> BoxFuture<'a, Result<Option<IPBlock>, BlocksError>> {
            Box::pin(async move { Ok(self.objects.lock().get(name).cloned()) })
        }

        fn create<'a>(&'a self, block: &'a IPBlock) -> BoxFuture<'a, Result<(), BlocksError>> {
            Box::pin(async move {
                // As long as a write really takes, so that races are races.
                tokio::time::sleep(Duration::from_millis(2)).await;
                self.fault()?;
                let name = block.metadata.name.clone().unwrap();
                if self.objects.lock().contains_key(&name) {
                    return Err(BlocksError::Exists);
                }
                self.writes.lock().push(format!("create {name}"));
                self.put(block.clone());
                Ok(())
            })
        }

        fn report(&self, block: &IPBlock, reason: &'static str, note: &str) {
            let name = block.metadata.name.as_deref().unwrap_or_default();
            self.events.lock().push(format!("{name} {reason}: {note}"));
        }

        fn has_ended(&self, _: &str, name: &str, now: Timestamp) -> bool {
            let objects = self.objects.lock();
            objects
                .get(name)
                .is_some_and(|block| repeat::has_ended(block, now))
        }

        fn patch<'a>(
            &'a self,
            _: &'a str,
            name: &'a str,
            patch: &'a Value,
        ) -> BoxFuture<'a, Result<(), BlocksError>> {
            Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(2)).await;
                self.fault()?;
                let Some(present) = self.objects.lock().get(name).cloned() else {
                    return Err(BlocksError::Gone);
                };
                let given = patch["metadata"]["resourceVersion"].as_str();
                if given.is_some() && given != present.metadata.resource_version.as_deref() {
                    return Err(BlocksError::Conflict);
                }
                let mut merged = serde_json::to_value(present).unwrap();
                merge(&mut merged, patch);
                self.writes.lock().push(format!("patch {name}"));
                self.put(serde_json::from_value(merged).unwrap());
                Ok(())
            })
        }
    }

    /// RFC 7386.
    fn merge(into: &mut Value, patch: &Value) {
        match (into, patch) {
            (Value::Object(into), Value::Object(patch)) => {
                for (key, value) in patch {
                    if value.is_null() {
                        into.remove(key);
                    } else {
                        merge(into.entry(key).or_insert(Value::Null), value);
                    }
                }
            }
            (into, Value::Object(patch)) => {
                *into = Value::Object(serde_json::Map::new());
                merge(into, &Value::Object(patch.clone()));
            }
            (into, patch) => *into = patch.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u16, reason: &str) -> BlocksError {
        let status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "code": code, "reason": reason, "message": "m"
        });
        classify(client::Error::Api {
            request: "create ipblock default/one".into(),
            status: serde_json::from_value(status).unwrap(),
        })
    }

    #[test]
    fn a_refusal_is_distinguished_from_an_outage() {
        assert_eq!(error(409, "AlreadyExists"), BlocksError::Exists);
        assert_eq!(error(409, "Conflict"), BlocksError::Conflict);
        assert_eq!(error(404, "NotFound"), BlocksError::Gone);
        assert_eq!(error(422, "Invalid"), BlocksError::Rejected("m".into()));
        for (code, reason) in [
            (401, "Unauthorized"),
            (403, "Forbidden"),
            (429, "TooManyRequests"),
            (500, "InternalError"),
            (503, "ServiceUnavailable"),
            (504, "Timeout"),
        ] {
            assert!(
                matches!(error(code, reason), BlocksError::Unavailable(_)),
                "{code}"
            );
        }
    }
}
