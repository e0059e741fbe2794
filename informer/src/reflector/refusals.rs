//! The servers that do not offer streaming lists: [`Refusals`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use reeve_client::transport::Endpoint;

/// For each group and version: the time at which its server last refused streaming lists, or that it offered them since.
/// Another server may stand behind each group and version (an aggregated API).
///
/// A refusal that may concern one request only is not recorded here, nor is silence, which has other causes. It is shared
/// by all watches of an informer and all informers of a factory, which use one client, and so one API server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals {
    last: Arc<Mutex<HashMap<String, Last>>>,
}

/// The last answer for a group and version.
#[derive(Clone, Copy, Debug)]
enum Last {
    Refused(Instant),
    Offered,
}

// === impl Refusals ===

impl Refusals {
    /// Records that the server of `endpoint` does not offer streaming lists now.
    pub(super) fn refused(&self, endpoint: &Endpoint) {
        let now = Instant::now();
        let refused = Last::Refused(now);
        self.last.lock().insert(endpoint.api_version(), refused);
    }

    /// Records that it does.
    pub(super) fn offered(&self, endpoint: &Endpoint) {
        self.last
            .lock()
            .insert(endpoint.api_version(), Last::Offered);
    }

    /// True if the last streaming list that was not silent was complete.
    pub(super) fn has_offered(&self, endpoint: &Endpoint) -> bool {
        let last = self.last.lock();
        matches!(last.get(&endpoint.api_version()), Some(Last::Offered))
    }

    /// True if one was refused less than `retry` ago, and none was complete since.
    pub(super) fn is_recent(&self, endpoint: &Endpoint, retry: Duration) -> bool {
        let last = self.last.lock();
        match last.get(&endpoint.api_version()) {
            Some(Last::Refused(at)) => at.elapsed() < retry,
            Some(Last::Offered) | None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use tokio::time::sleep;

    use super::*;

    const RETRY: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_refusal_counts_for_all_kinds_of_a_group_and_for_a_limited_time() {
        let (maps, secrets) = (Endpoint::of::<ConfigMap>(), Endpoint::of::<Secret>());
        let refusals = Refusals::default();
        refusals.clone().refused(&maps);
        assert!(refusals.is_recent(&secrets, RETRY));
        assert!(!refusals.is_recent(&Endpoint::of::<Deployment>(), RETRY));
        sleep(RETRY).await;
        assert!(!refusals.is_recent(&secrets, RETRY));
        assert!(refusals.is_recent(&secrets, RETRY * 2));
        assert!(!refusals.has_offered(&secrets));
        refusals.offered(&maps);
        assert!(!refusals.is_recent(&secrets, RETRY * 2));
        assert!(refusals.has_offered(&secrets));
        refusals.refused(&secrets);
        assert!(!refusals.has_offered(&maps), "it offers them no longer");
    }
}
