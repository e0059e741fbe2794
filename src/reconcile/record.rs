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
use crate::config::Config;
use crate::target::Target;

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

    /// Follows intents to the gateways that `config` names, the former ones and the present one.
    pub fn trust_gateways(&self, config: &Config) {
        let former = config.former.iter().filter(|place| !self.trusts(place));
        self.trust(former.cloned().collect::<Vec<_>>());
        self.trust(config.place().ok().cloned());
    }

    /// Whether an administrator configured `place`, now or earlier.
    #[must_use]
    pub fn trusts(&self, place: &Place) -> bool {
        self.known.read().places.contains(place)
    }

    /// The block with the bans of its intent that are not followed set apart, and whether one of them is news: those
    /// at places that no administrator configured, and those of addresses that the block does not ban. A user may
    /// write the intent, and neither may make the operator call a stranger nor lift what it did not ban.
    #[must_use]
    pub fn believe(&self, block: &Arc<IPBlock>) -> (Arc<IPBlock>, bool) {
        let intent = block
            .annotation(INTENT)
            .and_then(|text| text.parse::<Intent>().ok());
        let Some(intent) = intent else {
            return (Arc::clone(block), false);
        };
        let status = block.status.as_ref();
        let banned = status.and_then(|status| status.target.as_deref()?.parse::<Target>().ok());
        let asked = block.spec.ip.parse::<Target>().ok();
        let believed = intent.believed(|standing| {
            let own = [banned, asked].contains(&Some(standing.target));
            own && self.trusts(&standing.place)
        });
        if believed == intent {
            return (Arc::clone(block), false);
        }
        let carried = |standing| intent.unfollowed.contains(standing);
        let news = !believed.unfollowed.iter().all(carried);
        let mut seen = IPBlock::clone(block);
        let annotations = seen.metadata.annotations.get_or_insert_default();
        annotations.insert(INTENT.to_owned(), believed.to_string());
        (Arc::new(seen), news)
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
            unfollowed: Vec::new(),
        };
        let spec = IPBlockSpec {
            ip: "192.0.2.7".into(),
            ..IPBlockSpec::default()
        };
        let mut block = IPBlock::new("a", spec);
        let annotations = block.metadata.annotations.get_or_insert_default();
        annotations.insert(INTENT.into(), intent.to_string());
        Arc::new(block)
    }

    fn seen(record: &Record, block: &Arc<IPBlock>) -> Intent {
        let (seen, _) = record.believe(block);
        seen.annotation(INTENT).unwrap().parse().unwrap()
    }

    fn places(standings: &[Standing]) -> Vec<Place> {
        let places = standings.iter().map(|standing| standing.place.clone());
        places.collect()
    }

    #[test]
    fn an_intent_is_followed_only_to_gateways_that_were_configured_and_forgets_none_of_the_others()
    {
        let record = record();
        let dry = Place::new("dry-run", "");
        for (given, followed, unfollowed) in [
            (vec![here()], vec![here()], vec![]),
            (vec![here(), earlier()], vec![here(), earlier()], vec![]),
            (vec![dry.clone()], vec![], vec![dry.clone()]),
            (vec![strange()], vec![], vec![strange()]),
            (vec![here(), strange()], vec![here()], vec![strange()]),
            (vec![strange(), earlier()], vec![earlier()], vec![strange()]),
        ] {
            let block = block(&given);
            let (believed, news) = record.believe(&block);
            assert_eq!(news, !unfollowed.is_empty(), "{given:?}");
            let intent = seen(&record, &block);
            assert_eq!(intent.attempt, 3);
            assert_eq!(places(&intent.unfollowed), unfollowed, "{given:?}");
            assert_eq!(intent.is_followed(), !followed.is_empty(), "{given:?}");
            if intent.is_followed() {
                let all = [vec![intent.standing.clone()], intent.also.clone()].concat();
                assert_eq!(places(&all), followed, "{given:?}");
            }
            let (again, news) = record.believe(&believed);
            assert!(!news && again == believed, "{given:?} is told once");
        }
        record.trust([dry.clone()]);
        assert!(seen(&record, &block(&[dry])).is_followed());
    }

    #[test]
    fn a_gateway_that_is_named_later_is_followed_from_then_on() {
        let record = record();
        let (carried, _) = record.believe(&block(&[here(), strange()]));
        record.trust([strange()]);
        let intent = seen(&record, &carried);
        assert_eq!(places(&intent.also), [strange()]);
        assert!(intent.unfollowed.is_empty());
    }

    #[test]
    fn an_intent_about_an_address_that_its_block_does_not_ban_is_not_followed() {
        let record = record();
        let mut other = IPBlock::clone(&block(&[here()]));
        other.spec.ip = "198.51.100.1".into();
        assert!(!seen(&record, &Arc::new(other.clone())).is_followed());
        other.status = Some(crate::api::IPBlockStatus {
            target: Some("192.0.2.7".into()),
            ..crate::api::IPBlockStatus::default()
        });
        assert!(
            seen(&record, &Arc::new(other)).is_followed(),
            "it was banned"
        );
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
