//! Default settings for the controllers of a manager.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cache::Kind;

/// Default settings for the controllers of a manager (controller-runtime: `config.Controller`). See
/// [`Builder::controllers`](crate::manager::Builder::controllers).
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    workers: Option<usize>,
    of_kind: BTreeMap<String, usize>,
    pub(super) reconcile_timeout: Option<Duration>,
    pub(super) cache_sync_timeout: Option<Duration>,
    pub(super) warm_up: bool,
    every_replica: bool,
    pub(super) propagate_panics: bool,
}

// === impl Defaults ===

impl Defaults {
    /// One worker, on the leader, without time-outs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// See [`Builder::workers`](super::Builder::workers).
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// The workers of the controllers [for](super::Builder::for_kind) a kind, called `Kind.group`: `ReplicaSet.apps`,
    /// `ConfigMap`. The controller's own setting overrides this, and this overrides [`Defaults::workers`]
    /// (controller-runtime: `GroupKindConcurrency`).
    #[must_use]
    pub fn group_kind_concurrency(mut self, kind: impl Into<String>, workers: usize) -> Self {
        self.of_kind.insert(kind.into(), workers);
        self
    }

    /// See [`Builder::reconcile_timeout`](super::Builder::reconcile_timeout).
    #[must_use]
    pub fn reconcile_timeout(mut self, timeout: Duration) -> Self {
        self.reconcile_timeout = Some(timeout);
        self
    }

    /// See [`Builder::cache_sync_timeout`](super::Builder::cache_sync_timeout).
    #[must_use]
    pub fn cache_sync_timeout(mut self, timeout: Duration) -> Self {
        self.cache_sync_timeout = Some(timeout);
        self
    }

    /// See [`Builder::warm_up`](super::Builder::warm_up).
    #[must_use]
    pub fn warm_up(mut self, warm_up: bool) -> Self {
        self.warm_up = warm_up;
        self
    }

    /// See [`Builder::without_leader_election`](super::Builder::without_leader_election). A controller with a
    /// [lease](super::Builder::lease) elects all the same.
    #[must_use]
    pub fn without_leader_election(mut self) -> Self {
        self.every_replica = true;
        self
    }

    /// See [`Builder::propagate_panics`](super::Builder::propagate_panics).
    #[must_use]
    pub fn propagate_panics(mut self, propagate: bool) -> Self {
        self.propagate_panics = propagate;
        self
    }

    pub(crate) fn needs_leader_election(&self) -> bool {
        !self.every_replica
    }

    /// The number of workers of a controller for `kind` with the setting `own`. At least one.
    pub(super) fn workers_of(&self, own: Option<usize>, kind: Option<&Kind>) -> usize {
        let of_kind = || {
            let resource = kind?.resource();
            let name = match &*resource.group {
                "" => resource.kind.clone(),
                group => format!("{}.{group}", resource.kind),
            };
            self.of_kind.get(&name).copied()
        };
        own.or_else(of_kind).or(self.workers).unwrap_or(1).max(1)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};

    use super::*;

    #[test]
    fn the_controller_goes_before_the_kind_and_the_kind_before_the_manager() {
        let set = Defaults::new()
            .workers(2)
            .group_kind_concurrency("ReplicaSet.apps", 3)
            .group_kind_concurrency("ConfigMap", 4)
            .group_kind_concurrency("Secret.apps", 5);
        let (replica_sets, maps) = (Kind::of::<ReplicaSet>(), Kind::of::<ConfigMap>());
        let secrets = Kind::of::<Secret>();
        for (case, defaults, own, kind, expected) in [
            ("no setting", &Defaults::new(), None, None, 1),
            ("the manager", &set, None, None, 2),
            ("the kind", &set, None, Some(&replica_sets), 3),
            ("a kind of the core group", &set, None, Some(&maps), 4),
            ("a kind of another group", &set, None, Some(&secrets), 2),
            ("the controller", &set, Some(6), Some(&maps), 6),
        ] {
            assert_eq!(defaults.workers_of(own, kind), expected, "{case}");
        }
    }
}
