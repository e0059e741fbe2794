//! What the operator keeps from one run to the next, in a ConfigMap of its own.
//!
//! The record holds the last configuration that was right, so that a restart beside a wrong edit goes on as the other
//! replica does, and the gateways that were configured, so that the intents of blocks are followed there: see
//! [`trust`](super::trust).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::ObjectMeta;
use parking_lot::RwLock;
use reeve_controller::client::patch::difference;
use reeve_controller::client::{Error, Patch, optional};
use reeve_controller::{Client, Request};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::trust::{Recorded, Trust};
use crate::api::{IPBlock, Place};
use crate::config::Config;
use crate::sets::Keeper;

/// The name of the ConfigMap.
pub const RECORD: &str = "ipblock-operator-record";

/// The annotation with the gateways: a JSON list of places, the latest last.
const GATEWAYS: &str = "ops.yiiong.top/gateways";

/// The annotation with the times since when gateways are not the configured one any more.
const REPLACED: &str = "ops.yiiong.top/gateways-replaced";

/// The annotation with the set engines that keep objects: a JSON list.
const ENGINES: &str = "ops.yiiong.top/set-engines";

/// How often a write that conflicts is tried before it is left to the next call.
const WRITES: usize = 3;

/// The record, and the gateways of it that this process has read.
#[derive(Debug)]
pub struct Record {
    key: Request,
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    trust: Trust,
    /// What of the record cannot be read, until it is reported.
    unreadable: Option<String>,
    /// The gateways that the record names, as it was last read or written.
    stored: Recorded,
    /// The gateways at which no ban is made yet, because the record does not name them.
    held: Vec<Place>,
    /// The configuration that was written last.
    written: Option<BTreeMap<String, String>>,
    /// The set engines of the record that keep objects.
    recorded: BTreeSet<Keeper>,
    /// Those of the configuration.
    keepers: BTreeSet<Keeper>,
    /// Those that keep nothing any more.
    cleared: BTreeSet<Keeper>,
}

/// One entry of [`REPLACED`].
#[derive(Debug, Serialize, Deserialize)]
struct Replaced {
    #[serde(flatten)]
    place: Place,
    at: Timestamp,
}

// === impl Record ===

impl Record {
    /// The record in `namespace`, not read yet.
    #[must_use]
    pub fn new(namespace: &str) -> Self {
        Self {
            key: Request::namespaced(namespace, RECORD),
            known: RwLock::default(),
        }
    }

    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> &Request {
        &self.key
    }

    /// Reads the gateways, and returns the last configuration that was right.
    ///
    /// # Errors
    /// When the server does not answer with the object, or with that there is none.
    pub async fn read(&self, client: &Client) -> Result<Option<BTreeMap<String, String>>, Error> {
        let Some(map) = optional(client.get::<ConfigMap>(&self.key).await)? else {
            return Ok(None);
        };
        self.learn(&map);
        Ok(Some(map.data.unwrap_or_default()))
    }

    /// Writes `data` as the last configuration that was right, and the gateways known so far. Writes nothing when
    /// the record has both already.
    ///
    /// Call it again from time to time: a record that was deleted is created again, and one that lacks gateways gets
    /// them. The configuration in it is written once for each change of `data`, and the record of another configuration
    /// keeps its times of replaced gateways, so that two replicas of which one lags do not overwrite each other in turn.
    ///
    /// # Errors
    /// When the server refuses it, or others keep changing it.
    pub async fn write(
        &self,
        client: &Client,
        data: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let mut tries = 1;
        loop {
            match self.try_write(client, data).await {
                Err(error)
                    if (error.is_conflict() || error.is_already_exists()) && tries < WRITES =>
                {
                    tries += 1;
                }
                Err(error) => return Err(error),
                Ok(()) => {
                    self.known.write().written = Some(data.clone());
                    return Ok(());
                }
            }
        }
    }

    async fn try_write(
        &self,
        client: &Client,
        data: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let present = optional(client.get::<ConfigMap>(&self.key).await)?;
        let mut data = data;
        // The gateways of the record, if another replica has recorded another configuration since.
        let mut others = None;
        if let Some(present) = &present {
            let own = self.known.read().trust.places.clone();
            let recorded = self.learn(present);
            let mut known = self.known.write();
            if known.written.as_ref() == Some(data) {
                let other = present.data.as_ref();
                if let Some(other) = other.filter(|other| !other.is_empty() && *other != data) {
                    data = other;
                    others = Some(recorded);
                }
            } else {
                // The gateways that another replica wrote stay, and those of this one come last.
                known.trust.add(own);
            }
        }
        let mut wanted = present.clone().unwrap_or_else(|| ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.key.name.to_string()),
                namespace: self.key.namespace.as_deref().map(str::to_owned),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        });
        wanted.data = Some(data.clone());
        let stored = {
            let trust = &self.known.read().trust;
            Recorded {
                places: trust.places.clone(),
                replaced: trust.replaced_beside(others),
            }
        };
        let places = json!(stored.places).to_string();
        let replaced = stored.replaced.clone().into_iter();
        let replaced: Vec<Replaced> = replaced.map(|(place, at)| Replaced { place, at }).collect();
        let replaced = json!(replaced).to_string();
        let annotations = wanted.metadata.annotations.get_or_insert_default();
        annotations.insert(GATEWAYS.to_owned(), places);
        annotations.insert(REPLACED.to_owned(), replaced);
        let keepers: Vec<String> = self.keepers().iter().map(ToString::to_string).collect();
        if !keepers.is_empty() || annotations.contains_key(ENGINES) {
            annotations.insert(ENGINES.to_owned(), json!(keepers).to_string());
        }
        match present {
            None => drop(client.create(&wanted).await?),
            Some(present) if present == wanted => {}
            Some(present) => {
                let mut body = difference(&json!(present), &json!(wanted));
                body["metadata"]["resourceVersion"] = json!(present.metadata.resource_version);
                let patched = client.patch::<ConfigMap>(&self.key, Patch::merge(body));
                drop(patched.await?);
            }
        }
        self.known.write().stored = stored;
        Ok(())
    }

    /// Takes the gateways of the record over, and returns them.
    fn learn(&self, map: &ConfigMap) -> Recorded {
        let replaced: Vec<Replaced> = self.annotation(map, REPLACED);
        let recorded = Recorded {
            places: self.annotation(map, GATEWAYS),
            replaced: replaced.into_iter().map(|it| (it.place, it.at)).collect(),
        };
        let keepers: Vec<String> = self.annotation(map, ENGINES);
        let mut known = self.known.write();
        known.recorded = keepers.iter().filter_map(|it| Keeper::read(it)).collect();
        known.trust.learn(&recorded);
        known.stored = recorded.clone();
        recorded
    }

    /// No ban is made at `held` from now on.
    pub fn hold(&self, held: Vec<Place>) {
        self.known.write().held = held;
    }

    /// Where bans wait for the record.
    #[must_use]
    pub fn held(&self) -> Vec<Place> {
        self.known.read().held.clone()
    }

    /// Whether bans at `place` wait for the record.
    #[must_use]
    pub fn holds(&self, place: &Place) -> bool {
        self.known.read().held.contains(place)
    }

    /// Whether the record names `place` as the configured gateway, as it was last read or written. Only then does the next
    /// process follow all intents to it.
    #[must_use]
    pub fn names(&self, place: &Place) -> bool {
        let Recorded { places, replaced } = &self.known.read().stored;
        places.contains(place) && !replaced.contains_key(place)
    }

    /// The set engines that may keep objects.
    #[must_use]
    pub fn keepers(&self) -> BTreeSet<Keeper> {
        let known = self.known.read();
        let left = known.recorded.difference(&known.cleared);
        left.chain(&known.keepers).cloned().collect()
    }

    /// The set engines of the configuration that keep objects from now on, and those that were emptied. Takes effect with
    /// the next write, which comes before the engines start.
    pub fn set_keepers(&self, keepers: BTreeSet<Keeper>, cleared: BTreeSet<Keeper>) {
        let mut known = self.known.write();
        known.keepers = keepers;
        known.cleared = cleared;
    }

    /// The set engines that may keep objects and are not configured any more.
    #[must_use]
    pub fn former_keepers(&self) -> BTreeSet<Keeper> {
        let all = self.keepers();
        all.difference(&self.known.read().keepers)
            .cloned()
            .collect()
    }

    /// An annotation of the record, empty if there is none. One that cannot be read counts as absent: no gateway is
    /// trusted by it.
    fn annotation<T: Default + serde::de::DeserializeOwned>(
        &self,
        map: &ConfigMap,
        name: &str,
    ) -> T {
        let annotations = map.metadata.annotations.as_ref();
        let Some(text) = annotations.and_then(|annotations| annotations.get(name)) else {
            return T::default();
        };
        serde_json::from_str(text).unwrap_or_else(|error| {
            tracing::warn!(record = %self.key, annotation = name, text, "could not read the record");
            self.known.write().unreadable = Some(format!(
                "operator cannot read annotation {name} of its record {}: {error}; it is written again without its former content, so name the gateways where bans may stand in formerGateways",
                self.key
            ));
            T::default()
        })
    }

    /// What of the record could not be read since the last call.
    pub fn unreadable(&self) -> Option<String> {
        self.known.write().unreadable.take()
    }

    /// Follows intents to `places` from now on.
    pub fn trust(&self, places: impl IntoIterator<Item = Place>) {
        self.known.write().trust.add(places);
    }

    /// Follows intents to the gateways that `config` names, the former ones and the present one, and no longer to those
    /// that it withdraws. Returns those that were followed until now.
    ///
    /// Call [`in_force`](Self::in_force) once no worker calls another gateway for new bans.
    pub fn trust_gateways(&self, config: &Config) -> Vec<Place> {
        self.known.write().trust.configure(config)
    }

    /// The configured gateway is in force at `now`, by the API server's clock: the others were replaced by then. Returns
    /// whether the record lacks that.
    pub fn in_force(&self, now: Timestamp) -> bool {
        self.known.write().trust.in_force(now)
    }

    /// Whether the configuration withdraws `place`.
    #[must_use]
    pub fn withdraws(&self, place: &Place) -> bool {
        self.known.read().trust.withdraws(place)
    }

    /// Whether an administrator configured `place`, now or earlier.
    #[must_use]
    pub fn trusts(&self, place: &Place) -> bool {
        self.known.read().trust.places.contains(place)
    }

    /// The block with the bans of its intent that are not followed set apart, and whether one of them is news.
    #[must_use]
    pub fn believe(&self, block: &Arc<IPBlock>) -> (Arc<IPBlock>, bool) {
        self.known.read().trust.believe(block)
    }
}

/// Whether the operator lacks the right: the access rules are those of an earlier version.
pub(super) fn is_forbidden(error: &Error) -> bool {
    error.status().is_some_and(|status| status.code == 403)
}

#[cfg(test)]
mod tests;
