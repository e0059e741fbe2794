//! What the guard rails add to a configuration, and what is reported about them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use reeve_controller::Context;
use reeve_controller::events::EventType;

use super::ConfigurationReconciler;
use super::engaged::Engaged;
use crate::config::Config;
use crate::guard::brake::{self, Part};
use crate::prefix::Prefixes;

// === impl ConfigurationReconciler ===

impl ConfigurationReconciler {
    /// The addresses of the cluster. The first configuration waits a moment for them.
    pub(super) async fn discovered(&self, config: &Config, first: bool) -> Arc<Prefixes<Arc<str>>> {
        let discovery = &self.consumers.discovery;
        discovery.enable(config.guard.protect_cluster);
        if first && config.guard.protect_cluster {
            discovery.settled().await;
        }
        discovery.ranges()
    }

    /// The entries of lists, and those that `config` would lift. They are counted when that may have changed.
    pub(super) async fn listed(&self, config: &Config, before: Option<&Config>) -> Part {
        let same = before.is_some_and(|before| {
            before.policy == config.policy
                && before.max_duration == config.max_duration
                && before.guard.shadow == config.guard.shadow
        });
        if same && self.consumers.guard.lifts().is_none() {
            return Part::default();
        }
        self.consumers.lists.would_lift(config).await
    }

    /// Has the guard judge a configuration before it is in force. Whether blocks that were held may go on.
    pub(super) fn consider(
        &self,
        map: Option<&ConfigMap>,
        data: &BTreeMap<String, String>,
        config: &Arc<Config>,
        before: Option<&Config>,
        lists: Part,
    ) -> bool {
        let annotations = map.and_then(|map| map.metadata.annotations.as_ref());
        let released = annotations.and_then(|all| all.get(brake::RELEASE)).cloned();
        let sources = &self.consumers.sources;
        sources.set_brake(config.guard.brake, released.clone());
        let coverage = self.consumers.coverage.lock();
        let guard = &self.consumers.guard;
        guard.configured(
            &coverage,
            lists,
            config,
            before,
            brake::id(data, &config.guard),
            released,
        )
    }

    /// Reports brakes that engaged, were released or ended since the last run.
    pub(super) fn report_brakes(&self, ctx: &Context, map: Option<&ConfigMap>) {
        let guard = &self.consumers.guard;
        let lifts = guard.lifts().map(|lifts| lifts.to_string());
        let bans = guard.braked().map(|id| format!(
            "the brake holds all new bans: there were more within a minute than brake.bansPerMinute; check their source, then set the annotation {} of the ConfigMap to {id}, or raise bansPerMinute",
            brake::RELEASE
        ));
        let engaged = [("BansBraked", bans), ("LiftsBraked", lifts)];
        let engaged = engaged
            .into_iter()
            .filter_map(|(reason, note)| Some(Engaged::new(reason, "", note?)));
        let sources = self.consumers.sources.held_of_sources();
        guard.metrics().brake("sources", !sources.is_empty());
        let sources = sources
            .into_iter()
            .map(|(source, note)| Engaged::new("SourceLiftsBraked", &source, note));
        let resolved = guard
            .resolved_of_triggers()
            .into_iter()
            .map(|(trigger, note)| Engaged::new("ResolvedLiftsBraked", &trigger, note));
        let engaged: Vec<Engaged> = engaged.chain(resolved).chain(sources).collect();
        let (news, gone) = self.memory.lock().brakes_changed(engaged);
        for Engaged { reason, note, .. } in &news {
            tracing::warn!(configmap = %self.request, "{note}");
            self.warn(ctx, map, reason, note);
        }
        let annotations = map.and_then(|map| map.metadata.annotations.as_ref());
        let annotation = annotations.and_then(|all| all.get(brake::RELEASE));
        for brake in &gone {
            let (reason, note) = brake.ended(annotation.map(String::as_str));
            tracing::info!(configmap = %self.request, "{note}");
            self.event(ctx, map, EventType::Normal, reason, &note);
        }
    }
}
