//! Which configuration is put in force: the ConfigMap's, the last good one, or none.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use reeve_controller::Context;

use super::super::live::State;
use super::ConfigurationReconciler;
use crate::config::{self, Config, Errors, keys};

/// A configuration to put in force.
pub(super) struct Chosen {
    pub(super) data: BTreeMap<String, String>,
    pub(super) config: Config,
    /// It is the ConfigMap's, not the last good one.
    pub(super) right: bool,
}

// === impl ConfigurationReconciler ===

impl ConfigurationReconciler {
    /// The configuration to put in force: the ConfigMap's when it is right, otherwise the last good one. Protection is
    /// never dropped because an object was deleted or an edit was wrong.
    pub(super) fn choose(&self, ctx: &Context, map: Option<&ConfigMap>) -> Option<Chosen> {
        let version = map.and_then(|map| map.metadata.resource_version.as_deref());
        let good = self.memory.lock().good.clone();
        let mut why = match map {
            None => format!(
                "the ConfigMap {} does not exist; create it with engine and gatewayHost",
                self.request
            ),
            Some(map) => {
                let data = map.data.clone().unwrap_or_default();
                match self.parse(&data, good.as_ref()) {
                    Ok(config) => {
                        self.consumers.live.refuses(None);
                        let right = true;
                        return Some(Chosen {
                            data,
                            config,
                            right,
                        });
                    }
                    Err(errors) => errors.to_string(),
                }
            }
        };
        let last = good.and_then(|data| match config::parse_first(&data, &self.options) {
            Ok(config) => Some(Chosen {
                data,
                config,
                right: false,
            }),
            Err(errors) => {
                let record = self.consumers.record.key();
                why = format!("{why}; the last good one in {record} cannot be read: {errors}");
                None
            }
        });
        self.consumers.live.refuses(Some(why.clone()));
        if self.memory.lock().refuse(version) {
            self.refuse(ctx, map, &why, last.is_some());
        }
        if last.is_none() {
            self.trust_gateways(map);
            let why = match map {
                Some(_) => format!("the ConfigMap {} is wrong: {why}", self.request),
                None => why,
            };
            self.consumers.live.set(State::Missing(why.into()));
        }
        last
    }

    /// An error elsewhere in the ConfigMap does not make its gateway a stranger: bans that stand there are lifted.
    fn trust_gateways(&self, map: Option<&ConfigMap>) {
        let mut data = map.and_then(|map| map.data.clone()).unwrap_or_default();
        data.retain(|key, _| keys::ABOUT_GATEWAY.contains(&key.as_str()));
        if let Ok(config) = config::parse_first(&data, &self.options) {
            self.consumers.record.trust_gateways(&config);
        }
    }

    /// In a takeover, leniently what was put in force first, and again after a restart; an edit is never read so.
    fn parse(
        &self,
        data: &BTreeMap<String, String>,
        good: Option<&BTreeMap<String, String>>,
    ) -> Result<Config, Errors> {
        let config = if good.is_none_or(|good| good == data) {
            config::parse_first(data, &self.options)?
        } else {
            config::parse(data, &self.options)?
        };
        let lost = good.and_then(|good| config::unprotected(good, data));
        lost.map_or(Ok(config), Err)
    }

    fn refuse(&self, ctx: &Context, map: Option<&ConfigMap>, why: &str, last: bool) {
        if map.is_some() {
            self.consumers.metrics.config_read(false);
        }
        let note = match (map, last) {
            (Some(_), true) => {
                format!("the configuration is wrong, the last good one stays in force: {why}")
            }
            (Some(_), false) => format!(
                "the configuration is wrong, and there was none before, so nothing is banned: {why}"
            ),
            (None, true) => "the ConfigMap is gone; its last content stays in force".to_owned(),
            (None, false) => why.to_owned(),
        };
        tracing::error!(configmap = %self.request, "{note}");
        self.warn(ctx, map, "ConfigInvalid", &note);
    }
}
