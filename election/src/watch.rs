//! The watch on the lease, as events of the machine.

use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube_core::params::WatchParams;
use kube_core::{Request, Resource, WatchEvent};
use reeve_client::{Client, ObjectKey};
use tokio::time::timeout;

use crate::machine::Event;

/// Duration of one watch in seconds; then it is opened again.
const WATCH_SECONDS: u32 = 290;

/// A watch that starts with the current state as its first event. Nothing is sent before the first poll; to open it may
/// take up to `deadline`.
pub(crate) fn watch(
    client: &Client,
    key: &ObjectKey,
    deadline: Duration,
) -> BoxStream<'static, Event> {
    let params = WatchParams::default()
        .fields(&format!("metadata.name={}", key.name))
        .timeout(WATCH_SECONDS);
    let path = Lease::url_path(&(), key.namespace.as_deref());
    let (kube, name) = (client.kube().clone(), key.name.to_string());
    let opened = async move {
        let request = Request::new(path)
            .watch(&params, "")
            .map_err(|error| error.to_string())?;
        let events = timeout(deadline, kube.request_events::<Lease>(request))
            .await
            .map_err(|_| format!("no answer within {deadline:?}"))?
            .map_err(|error| error.to_string())?;
        Ok::<_, String>(events.map(|event| event.map_err(|error| error.to_string())))
    };
    let named = move |lease: &Lease| lease.metadata.name.as_deref() == Some(&*name);
    stream::once(opened)
        .try_flatten()
        .filter_map(move |event| {
            std::future::ready(match event {
                Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) if named(&lease) => {
                    Some(Event::Shown(Box::new(lease)))
                }
                Ok(WatchEvent::Deleted(lease)) if named(&lease) => Some(Event::Deleted),
                Ok(WatchEvent::Error(status)) => Some(Event::WatchEnded(Some(status.message))),
                Ok(_) => None,
                Err(error) => Some(Event::WatchEnded(Some(error))),
            })
        })
        .boxed()
}
