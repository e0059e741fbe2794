//! Waiting until the caches are filled.

use std::time::Duration;

use reeve_informer::Activity;
use tokio::time::{Instant, sleep, timeout_at};

use super::Kind;
use super::caches::{Caches, LOOK};
use super::slot::Slot;
use reeve_clock::LONGEST;

/// Some caches are not filled.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", causes(.0))]
pub struct NotSynced(pub Vec<Unsynced>);

/// A cache that is not filled.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unsynced {
    /// The kind.
    pub kind: Kind,
    /// The cause, as far as it is known; it names the kind: `secrets in red: failing 4 times since …: 403 …`.
    pub cause: String,
}

// === impl Caches ===

impl Caches {
    /// Waits until every kind that is watched or kept is cached, at most for `limit`; before the manager runs it waits
    /// for the start, too. A kind that the server does not have is not waited for if no watch requires it (client-go:
    /// `WaitForCacheSync`, which returns no cause).
    ///
    /// Reconcilers need not wait: the workers of a controller start when the kinds that it watches are cached. This is
    /// for other readers of the caches. [`Lister::wait_synced`](super::Lister::wait_synced) waits for one kind.
    ///
    /// # Errors
    /// The caches that are not filled, and the causes.
    pub async fn wait_synced(&self, limit: Duration) -> Result<(), NotSynced> {
        let end = Instant::now() + limit.min(LONGEST);
        loop {
            let slots = self.slots();
            let Some(slot) = slots.iter().find(|slot| slot.unsynced().is_some()) else {
                return Ok(());
            };
            // One after the other, with repeated checks, because a kind may be released or be found missing.
            let synced = async { slot.made().await.synced().await };
            let look = (Instant::now() + LOOK).min(end);
            if timeout_at(look, synced).await == Ok(false) {
                sleep(LOOK).await;
            }
            drop(slots);
            if Instant::now() >= end {
                let slots = self.slots();
                let unsynced: Vec<_> = slots.iter().filter_map(|slot| slot.unsynced()).collect();
                return if unsynced.is_empty() {
                    Ok(())
                } else {
                    Err(NotSynced(unsynced))
                };
            }
        }
    }
}

// === impl Slot ===

impl Slot {
    /// The cause, if it is not filled and should be.
    fn unsynced(&self) -> Option<Unsynced> {
        let cause = match self.store() {
            None => format!("{}: not started", self.kind),
            Some(store) if store.has_synced() => return None,
            Some(store) => {
                let health = store.health();
                if health.activity == Activity::Missing && !self.is_required() {
                    return None;
                }
                let trouble = health.trouble();
                trouble.unwrap_or_else(|| format!("{}: not synced", self.kind))
            }
        };
        let kind = self.kind.clone();
        Some(Unsynced { kind, cause })
    }
}

fn causes(unsynced: &[Unsynced]) -> String {
    let causes: Vec<&str> = unsynced.iter().map(|one| one.cause.as_str()).collect();
    format!("not cached yet: {}", causes.join("; "))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use kube_core::{ApiResource, GroupVersionKind};
    use reeve_apiserver::faults::Rule;

    use super::super::View;
    use super::super::wire_tests::tiers;
    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn it_is_waited_for_all_and_what_is_missing_is_named_with_its_cause() {
        let cluster = tiers().await;
        let caches = cluster.caches();
        caches.wait_synced(Duration::ZERO).await.unwrap();
        let maps = caches.keep(&View::<ConfigMap>::typed()).unwrap();
        let secrets = caches.keep(&View::<Secret>::typed()).unwrap();
        let error = caches.wait_synced(SOON).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "not cached yet: ConfigMap (v1): not started; Secret (v1): not started"
        );

        let refusal = Rule::new()
            .resource("secrets")
            .status(403, "no right to it");
        cluster.server.faults().add(refusal);
        // A wait before the start includes the start.
        let (early, later) = (caches.clone(), caches.clone());
        let waits = tokio::spawn(async move { early.wait_synced(Duration::MAX).await });
        sleep(SOON).await;
        caches.start();
        let begun = Instant::now();
        let error = later.wait_synced(SOON).await.unwrap_err();
        let took = begun.elapsed();
        assert!(SOON <= took && took < SOON + LOOK * 2, "{took:?}");
        assert_eq!(error.0.len(), 1, "{error}");
        assert_eq!(error.0[0].kind, Kind::of::<Secret>());
        let text = error.to_string();
        assert!(
            text.contains("secrets: failing") && text.contains("no right to it"),
            "{text}"
        );
        assert!(maps.has_synced() && !waits.is_finished());

        cluster.server.faults().clear();
        waits.await.unwrap().unwrap();
        assert!(secrets.has_synced());
        caches.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_all_can_do_without_is_not_waited_for() {
        let cluster = tiers().await;
        let caches = cluster.caches();
        let gvk = GroupVersionKind::gvk("example.com", "v1", "Widget");
        let widgets = Kind::namespaced(ApiResource::from_gvk(&gvk));
        let view = View::dynamic(&widgets);
        let optional = caches.watch(&view, false).unwrap();
        caches.start();
        caches.wait_synced(SOON).await.unwrap();
        let required = caches.watch(&view, true).unwrap();
        let error = caches.wait_synced(SOON).await.unwrap_err();
        assert_eq!(error.0[0].kind, widgets, "{error}");
        drop((optional, required));
        caches.wait_synced(SOON).await.unwrap();
        caches.stop().await;
    }
}
