//! Set-up of the tests against API servers.

use std::collections::BTreeMap;

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use reeve_clock::Clock;
use reeve_informer::{SharedInformer, Stored};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A clock that follows paused time, with randomness from `seed`.
pub fn clock(seed: u64) -> Clock {
    Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), seed)
}

/// A ConfigMap with one entry.
pub fn map(name: &str, value: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.data = Some(BTreeMap::from([("value".to_owned(), value.to_owned())]));
    map
}

/// Runs an informer until the token is cancelled.
pub fn run<S: Stored>(informer: &SharedInformer<S>) -> (CancellationToken, JoinHandle<()>) {
    let stop = CancellationToken::new();
    let task = run_until(informer, &stop);
    (stop, task)
}

/// Runs an informer until `stop` is cancelled.
pub fn run_until<S: Stored>(
    informer: &SharedInformer<S>,
    stop: &CancellationToken,
) -> JoinHandle<()> {
    let (informer, stop) = (informer.clone(), stop.clone());
    // Boxed, so that it is compiled once and not for each kind.
    tokio::spawn(async move { informer.run(stop).await.unwrap() }.boxed())
}
