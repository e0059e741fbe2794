//! What the operator keeps from one run to the next, in a ConfigMap of its own.
//!
//! The record holds the last configuration that was right, so that a restart beside a wrong edit goes on as the other
//! replica does, and every gateway that was ever configured. The intent of a block is an annotation, which a user may
//! write. It is followed only to gateways of the record: otherwise the operator would send requests to any address
//! that a user of blocks names.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::ObjectMeta;
use parking_lot::RwLock;
use reeve_controller::client::patch::difference;
use reeve_controller::client::{Error, Patch, WriteOptions, optional};
use reeve_controller::{Client, Request};
use serde_json::json;

use crate::api::{INTENT, IPBlock, Intent, Place};
use crate::engine::Kind;

/// The name of the ConfigMap.
pub const RECORD: &str = "ipblock-operator-record";

/// The annotation with the gateways: a JSON list of places, the latest last.
const GATEWAYS: &str = "ops.yiiong.top/gateways";

/// How many gateways are remembered.
const MOST: usize = 32;

/// Conflicts in a row after which a write is given up until the next one.
const CONFLICTS: usize = 3;

/// The record, and the gateways of it that this process knows.
#[derive(Debug)]
pub struct Record {
    key: Request,
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The latest last.
    places: Vec<Place>,
    /// What was written last.
    written: Option<BTreeMap<String, String>>,
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

    /// Where it is.
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
        self.trust(gateways(&map));
        Ok(Some(map.data.unwrap_or_default()))
    }

    /// Writes `data` as the last configuration that was right, and the gateways known so far. Writes nothing when
    /// nothing changed.
    ///
    /// # Errors
    /// When the server refuses it, or others keep changing it.
    pub async fn write(
        &self,
        client: &Client,
        data: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        if self.known.read().written.as_ref() == Some(data) {
            return Ok(());
        }
        let mut tries = 1;
        loop {
            match self.try_write(client, data).await {
                Err(error)
                    if (error.is_conflict() || error.is_already_exists()) && tries < CONFLICTS =>
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
        if let Some(present) = &present {
            // What another replica wrote stays, and what this one knows comes last.
            let own = self.known.read().places.clone();
            self.trust(gateways(present));
            self.trust(own);
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
        let places = json!(self.known.read().places).to_string();
        let annotations = wanted.metadata.annotations.get_or_insert_default();
        annotations.insert(GATEWAYS.to_owned(), places);
        let Some(present) = present else {
            return client.create(&wanted).await.map(drop);
        };
        if present == wanted {
            return Ok(());
        }
        let mut body = difference(&json!(present), &json!(wanted));
        body["metadata"]["resourceVersion"] = json!(present.metadata.resource_version);
        client
            .patch::<ConfigMap, _>(&self.key, WriteOptions::new(), Patch::merge(body))
            .await
            .map(drop)
    }

    /// Follows intents to `places` from now on.
    pub fn trust(&self, places: impl IntoIterator<Item = Place>) {
        let mut known = self.known.write();
        for place in places {
            if known.places.last() == Some(&place) {
                continue;
            }
            known.places.retain(|it| *it != place);
            known.places.push(place);
            // The next write has to name it.
            known.written = None;
        }
        let surplus = known.places.len().saturating_sub(MOST);
        known.places.drain(..surplus);
    }

    /// Whether an administrator configured `place`, now or earlier. A dry run calls nothing.
    #[must_use]
    pub fn trusts(&self, place: &Place) -> bool {
        *place == Place::new(Kind::DryRun.name(), "") || self.known.read().places.contains(place)
    }

    /// The block without what its intent says of places that no administrator configured, and whether there was any.
    #[must_use]
    pub fn believe(&self, block: &Arc<IPBlock>) -> (Arc<IPBlock>, bool) {
        let intent = block
            .annotation(INTENT)
            .and_then(|text| text.parse::<Intent>().ok());
        let Some(intent) = intent else {
            return (Arc::clone(block), false);
        };
        let mut trusted = std::iter::once(&intent.standing)
            .chain(&intent.also)
            .filter(|standing| self.trusts(&standing.place))
            .cloned();
        let first = trusted.next();
        let also: Vec<_> = trusted.collect();
        if first.as_ref() == Some(&intent.standing) && also.len() == intent.also.len() {
            return (Arc::clone(block), false);
        }
        let mut believed = IPBlock::clone(block);
        let annotations = believed.metadata.annotations.get_or_insert_default();
        match first {
            None => annotations.remove(INTENT),
            Some(standing) => {
                let attempt = intent.attempt;
                let kept = Intent {
                    standing,
                    attempt,
                    asked: intent.asked,
                    also,
                };
                annotations.insert(INTENT.to_owned(), kept.to_string())
            }
        };
        (Arc::new(believed), true)
    }
}

/// Whether the operator lacks the right: the access rules are those of an earlier version.
pub(super) fn is_forbidden(error: &Error) -> bool {
    error.status().is_some_and(|status| status.code == 403)
}

/// The gateways that a record names. What cannot be read is as if it were not there: nothing is trusted by it.
fn gateways(map: &ConfigMap) -> Vec<Place> {
    let text = map
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(GATEWAYS));
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{IPBlockSpec, Standing};

    fn here() -> Place {
        Place::new("iptables", "192.0.2.250:9521")
    }

    fn earlier() -> Place {
        Place::new("iptables", "192.0.2.251:9521")
    }

    fn strange() -> Place {
        Place::new("iptables", "10.0.0.7:80")
    }

    fn record() -> Record {
        let record = Record::new("default");
        record.trust([earlier(), here()]);
        record
    }

    fn block(places: &[Place]) -> Arc<IPBlock> {
        let target = "192.0.2.7".parse().unwrap();
        let mut standings = places.iter().map(|place| Standing {
            target,
            place: place.clone(),
        });
        let intent = Intent {
            standing: standings.next().unwrap(),
            attempt: 3,
            asked: None,
            also: standings.collect(),
        };
        let mut block = IPBlock::new("a", IPBlockSpec::default());
        let annotations = block.metadata.annotations.get_or_insert_default();
        annotations.insert(INTENT.into(), intent.to_string());
        Arc::new(block)
    }

    #[test]
    fn an_intent_is_followed_only_to_gateways_that_were_configured() {
        let record = record();
        let dry = Place::new("dry-run", "");
        for (given, believed) in [
            (vec![here()], vec![here()]),
            (vec![here(), earlier()], vec![here(), earlier()]),
            (vec![dry.clone()], vec![dry]),
            (vec![strange()], vec![]),
            (vec![here(), strange()], vec![here()]),
            (vec![strange(), earlier()], vec![earlier()]),
            (vec![Place::new("xdp", "192.0.2.250:9521")], vec![]),
            (vec![Place::new("dry-run", "10.0.0.7:80")], vec![]),
        ] {
            let block = block(&given);
            let (seen, ignored) = record.believe(&block);
            assert_eq!(ignored, given != believed, "{given:?}");
            let intent = seen.annotation(INTENT).map(str::parse::<Intent>);
            let places: Vec<Place> = intent
                .into_iter()
                .map(Result::unwrap)
                .inspect(|intent| assert_eq!(intent.attempt, 3))
                .flat_map(|intent| std::iter::once(intent.standing).chain(intent.also))
                .map(|standing| standing.place)
                .collect();
            assert_eq!(places, believed, "{given:?}");
        }
    }

    #[test]
    fn the_latest_gateways_are_kept_and_their_number_is_bounded() {
        let record = record();
        for number in 0..MOST - 1 {
            record.trust([Place::new("xdp", format!("g:{number}"))]);
        }
        assert!(!record.trusts(&earlier()) && record.trusts(&here()));
        record.trust([here()]);
        record.trust([Place::new("xdp", "g:next")]);
        assert!(record.trusts(&here()), "it was used again");
        assert_eq!(record.known.read().places.len(), MOST);
    }
}
