//! Warnings about a configuration that is right and does less than it seems to: each an Event and a line of the log, once.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use reeve_controller::Context;

use super::ConfigurationReconciler;
use crate::config::{Config, allowlist};

// === impl ConfigurationReconciler ===

impl ConfigurationReconciler {
    /// Reports once that Pods may be banned: no node names their range, and the configuration names none.
    pub(super) fn warn_of_pods(&self, ctx: &Context, map: Option<&ConfigMap>, config: &Config) {
        let named = config.policy.protected.iter();
        let named = named.map(|(target, _)| target).any(|it| !it.is_host());
        let covered = named || config.policy.protect_private || !config.guard.protect_cluster;
        if covered || !self.consumers.discovery.lacks_pods() {
            return;
        }
        if !std::mem::replace(&mut self.memory.lock().podless, true) {
            let note = "no Pod range was found: the nodes name none, so the network plugin has them. Name the ranges of Pods in protectedRanges, or Pods can be banned";
            tracing::warn!(configmap = %self.request, "{note}");
            self.warn(ctx, map, "PodRangesUnknown", note);
        }
    }

    /// Reports the entries of the allowlist that end within a day, or have ended, each once.
    pub(super) fn warn_of_ends(
        &self,
        ctx: &Context,
        map: Option<&ConfigMap>,
        config: &Config,
        now: Timestamp,
    ) {
        let ending = allowlist::ending(&config.allowlist, now);
        let news = self.memory.lock().ending_news(&ending);
        for (target, allowed) in news {
            let note = match allowed.until {
                Some(until) if until <= now => format!(
                    "whitelist: {target}{allowed} has ended and protects nothing. Change or remove the line"
                ),
                _ => format!(
                    "whitelist: {target}{allowed} ends within a day; blocks for it are banned then if their time is not over. Change or remove the line"
                ),
            };
            tracing::warn!(configmap = %self.request, "{note}");
            self.warn(ctx, map, "AllowlistEnds", &note);
        }
    }

    /// Reports the sources whose entries no engine enforces, each once.
    pub(super) fn warn_of_sources(&self, ctx: &Context, map: Option<&ConfigMap>, config: &Config) {
        let unenforced = config.unenforced_sources().map(str::to_owned).collect();
        let news = self.memory.lock().unenforced_news(unenforced);
        for source in news {
            let note = format!(
                "source {source} has objects: BlockList, and no set engine is configured: none of its entries is enforced. Add an engine to the key engines, or remove objects from the source"
            );
            tracing::warn!(configmap = %self.request, "{note}");
            self.warn(ctx, map, "SourceNotEnforced", &note);
        }
    }
}
