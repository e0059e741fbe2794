//! What the operator keeps from one run to the next, in a ConfigMap of its own.
//!
//! The record holds the last configuration that was right, so that a restart beside a wrong edit goes on as the other
//! replica does, and every gateway that was ever configured. The intent of a block is an annotation, which a user may
//! write. It is followed only to gateways of the record: otherwise the operator would send requests to any address
//! that a user of blocks names.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::ObjectMeta;
use parking_lot::RwLock;
use reeve_controller::client::patch::difference;
use reeve_controller::client::{Error, Patch, WriteOptions, optional};
use reeve_controller::{Client, Request};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::api::{INTENT, IPBlock, Intent, Place, Standing};
use crate::config::Config;
use crate::target::Target;

/// The name of the ConfigMap.
pub const RECORD: &str = "ipblock-operator-record";

/// The annotation with the gateways: a JSON list of places, the latest last.
const GATEWAYS: &str = "ops.yiiong.top/gateways";

/// The annotation that says since when gateways are not the configured one any more.
const REPLACED: &str = "ops.yiiong.top/gateways-replaced";

/// A block that was made this long after its gateway was replaced may still have been banned there: the time of the
/// operator and that of the API server differ by up to a minute.
const LATE: SignedDuration = SignedDuration::from_secs(60);

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
    /// The one that is configured.
    configured: Option<Place>,
    /// Those that the configuration names as former ones.
    former: Vec<Place>,
    /// Since when places are not configured any more.
    replaced: BTreeMap<Place, Timestamp>,
    /// Those that were configured here, and that workers call until another one is in force.
    leaving: Vec<Place>,
    /// What of the record cannot be read, until it is reported.
    unreadable: Option<String>,
    /// Those that the configuration takes back.
    withdrawn: Vec<Place>,
    /// The configuration that was written last.
    written: Option<BTreeMap<String, String>>,
}

/// One entry of [`REPLACED`].
#[derive(Debug, Serialize, Deserialize)]
struct Replaced {
    #[serde(flatten)]
    place: Place,
    at: Timestamp,
}

/// The gateways that the ConfigMap names.
#[derive(Debug, Default)]
struct Recorded {
    places: Vec<Place>,
    replaced: BTreeMap<Place, Timestamp>,
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
        self.learn(&map);
        Ok(Some(map.data.unwrap_or_default()))
    }

    /// Writes `data` as the last configuration that was right, and the gateways known so far. Writes nothing when
    /// the record says so already.
    ///
    /// Call it again from time to time: a record that was deleted is created again, and one that lacks gateways gets
    /// them. The configuration in it is written once for each change of `data`, and the record of another configuration
    /// keeps what it says of replaced gateways, so that two replicas of which one lags do not overwrite each other in
    /// turn.
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
        let mut data = data;
        // What the record says, when another replica has recorded another configuration since.
        let mut others = None;
        if let Some(present) = &present {
            let own = self.known.read().places.clone();
            let recorded = self.learn(present);
            let written = self.known.read().written.as_ref() == Some(data);
            if written {
                let other = present.data.as_ref();
                if let Some(other) = other.filter(|other| !other.is_empty() && *other != data) {
                    data = other;
                    others = Some(recorded);
                }
            } else {
                // What another replica wrote stays, and what this one knows comes last.
                self.trust(own);
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
        let (places, replaced) = {
            let known = self.known.read();
            let replaced = known.replaced_beside(others);
            let replaced = replaced.into_iter();
            let replaced: Vec<Replaced> =
                replaced.map(|(place, at)| Replaced { place, at }).collect();
            (json!(known.places).to_string(), json!(replaced).to_string())
        };
        let annotations = wanted.metadata.annotations.get_or_insert_default();
        annotations.insert(GATEWAYS.to_owned(), places);
        annotations.insert(REPLACED.to_owned(), replaced);
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
            if !known.withdrawn.contains(&place) {
                known.places.retain(|it| *it != place);
                known.places.push(place);
            }
        }
        let surplus = known.places.len().saturating_sub(MOST);
        known.places.drain(..surplus);
    }

    /// Takes the gateways of the record over, and returns them.
    fn learn(&self, map: &ConfigMap) -> Recorded {
        let places: Vec<Place> = self.annotation(map, GATEWAYS);
        let replaced: Vec<Replaced> = self.annotation(map, REPLACED);
        self.trust(places.iter().cloned());
        let replaced = replaced.into_iter().map(|it| (it.place, it.at));
        let replaced = BTreeMap::from_iter(replaced);
        let known = &mut *self.known.write();
        for (place, at) in &replaced {
            // Another replica may not have read yet that it is configured again, or may have replaced it earlier.
            let called = known.configured.as_ref() == Some(place) || known.leaving.contains(place);
            if !called && known.places.contains(place) {
                let since = known.replaced.entry(place.clone()).or_insert(*at);
                *since = (*at).max(*since);
            }
        }
        Recorded { places, replaced }
    }

    /// An annotation of the record, empty if there is none. One that cannot be read is as if it were not there: nothing
    /// is trusted by it.
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
                "operator cannot read annotation {name} of its record {}: {error}; it is written again without what it said, so name the gateways where bans may stand in formerGateways",
                self.key
            ));
            T::default()
        })
    }

    /// What of the record could not be read since the last call.
    pub fn unreadable(&self) -> Option<String> {
        self.known.write().unreadable.take()
    }

    /// Follows intents to the gateways that `config` names, the former ones and the present one, and no longer to those
    /// that it withdraws. Returns which of these were followed until now.
    ///
    /// Call [`in_force`](Self::in_force) once no worker calls another gateway for new bans.
    pub fn trust_gateways(&self, config: &Config) -> Vec<Place> {
        let withdrawn = {
            let mut known = self.known.write();
            known.withdrawn.clone_from(&config.withdrawn);
            let places = std::mem::take(&mut known.places);
            let (withdrawn, kept) = places
                .into_iter()
                .partition(|place| config.withdrawn.contains(place));
            known.places = kept;
            withdrawn
        };
        let former = config.former.iter().filter(|place| !self.trusts(place));
        self.trust(former.cloned().collect::<Vec<_>>());
        self.trust(config.place().ok().cloned());
        let known = &mut *self.known.write();
        known.former.clone_from(&config.former);
        known
            .replaced
            .retain(|place, _| known.places.contains(place));
        // Without an engine the last gateway is still the one that blocks are meant for.
        if let Ok(place) = config.place() {
            known.replaced.remove(place);
            let before = known.configured.replace(place.clone());
            known.leaving.extend(before);
            known.leaving.retain(|it| it != place);
        }
        withdrawn
    }

    /// Notes that the configured gateway is in force at `now`, by the API server's clock: the others were replaced by
    /// then. Returns whether the record lacks that.
    pub fn in_force(&self, now: Timestamp) -> bool {
        let known = &mut *self.known.write();
        let Some(configured) = &known.configured else {
            return false;
        };
        let left = std::mem::take(&mut known.leaving);
        let mut news = false;
        for place in known.places.iter().filter(|it| *it != configured) {
            match known.replaced.entry(place.clone()) {
                Entry::Vacant(entry) => {
                    entry.insert(now);
                }
                Entry::Occupied(mut entry) if left.contains(place) && *entry.get() < now => {
                    entry.insert(now);
                }
                Entry::Occupied(_) => continue,
            }
            news = true;
        }
        news
    }

    /// Whether the configuration withdraws `place`.
    #[must_use]
    pub fn withdraws(&self, place: &Place) -> bool {
        self.known.read().withdrawn.contains(place)
    }

    /// Whether an administrator configured `place`, now or earlier.
    #[must_use]
    pub fn trusts(&self, place: &Place) -> bool {
        self.known.read().places.contains(place)
    }

    /// Whether a block that was made at `created` may have been banned at `place`: the administrator configured it at
    /// that time or later, or names it as a former one. Otherwise who may edit blocks could have bans lifted at every
    /// gateway that was ever configured, where they may be the bans of others by now.
    fn follows(&self, place: &Place, created: Option<Timestamp>) -> bool {
        let known = self.known.read();
        let in_time = |replaced: &Timestamp| created.is_some_and(|at| at <= *replaced + LATE);
        known.places.contains(place)
            && (known.former.contains(place) || known.replaced.get(place).is_none_or(in_time))
    }

    /// The block with the bans of its intent that are not followed set apart, and whether one of them is news: those
    /// at places that no administrator configured in the time of the block, and those of addresses that the block does
    /// not ban. A user may write the intent, and neither may make the operator call a stranger nor lift what it did not
    /// ban.
    ///
    /// Bans at gateways that the configuration withdraws are left out: they count as lifted. An intent about no others
    /// is marked as withdrawn.
    #[must_use]
    pub fn believe(&self, block: &Arc<IPBlock>) -> (Arc<IPBlock>, bool) {
        let intent = block
            .annotation(INTENT)
            .and_then(|text| text.parse::<Intent>().ok());
        let Some(mut written) = intent else {
            return (Arc::clone(block), false);
        };
        // Only the configuration withdraws.
        let forged = std::mem::take(&mut written.withdrawn);
        let seen = |intent: Intent| {
            let mut seen = IPBlock::clone(block);
            let annotations = seen.metadata.annotations.get_or_insert_default();
            annotations.insert(INTENT.to_owned(), intent.to_string());
            Arc::new(seen)
        };
        let Some(intent) = without(&written, &self.known.read().withdrawn) else {
            let withdrawn = Intent {
                also: Vec::new(),
                unfollowed: Vec::new(),
                withdrawn: true,
                ..written
            };
            return (seen(withdrawn), false);
        };
        let status = block.status.as_ref();
        let banned = status.and_then(|status| status.target.as_deref()?.parse::<Target>().ok());
        let asked = block.spec.ip.parse::<Target>().ok();
        let created = block.metadata.creation_timestamp.as_ref();
        let created = created.map(|created| created.0);
        let believed = intent.believed(|standing| {
            let own = [banned, asked].contains(&Some(standing.target));
            own && self.follows(&standing.place, created)
        });
        if believed == written && !forged {
            return (Arc::clone(block), false);
        }
        let carried = |standing| written.unfollowed.contains(standing);
        let news = !believed.unfollowed.iter().all(carried);
        (seen(believed), news)
    }
}

// === impl Known ===

impl Known {
    /// Since when places are replaced, for a record that says `others` of another configuration; `None`: of this one.
    ///
    /// What is replaced by the other configuration is not this one's to say. Only gateways that the record lacks are
    /// added to it.
    fn replaced_beside(&self, others: Option<Recorded>) -> BTreeMap<Place, Timestamp> {
        let mut replaced = self.replaced.clone();
        let Some(recorded) = others else {
            return replaced;
        };
        replaced.retain(|place, _| {
            recorded.replaced.contains_key(place) || !recorded.places.contains(place)
        });
        for (place, at) in recorded.replaced {
            if self.places.contains(&place) {
                replaced.entry(place).or_insert(at);
            }
        }
        replaced
    }
}

/// The intent without the bans at `withdrawn` gateways; `None` if it is about no others.
fn without(intent: &Intent, withdrawn: &[Place]) -> Option<Intent> {
    let kept = |all: &[Standing]| -> Vec<Standing> {
        let kept = all
            .iter()
            .filter(|standing| !withdrawn.contains(&standing.place));
        kept.cloned().collect()
    };
    let (mut also, unfollowed) = (kept(&intent.also), kept(&intent.unfollowed));
    let standing = if !withdrawn.contains(&intent.standing.place) {
        intent.standing.clone()
    } else if also.is_empty() {
        unfollowed.first()?.clone()
    } else {
        also.remove(0)
    };
    Some(Intent {
        standing,
        also,
        unfollowed,
        ..intent.clone()
    })
}

/// Whether the operator lacks the right: the access rules are those of an earlier version.
pub(super) fn is_forbidden(error: &Error) -> bool {
    error.status().is_some_and(|status| status.code == 403)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::IPBlockSpec;

    fn here() -> Place {
        Place::new("iptables", "192.0.2.250:9521")
    }

    fn earlier() -> Place {
        Place::new("iptables", "192.0.2.251:9521")
    }

    fn strange() -> Place {
        Place::new("iptables", "10.0.0.7:80")
    }

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn record() -> Record {
        let record = Record::new("default");
        record.trust([earlier(), here()]);
        record
    }

    fn config(data: &[(&str, &str)]) -> Config {
        let data = data
            .iter()
            .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
        crate::config::parse(&data.collect(), &crate::config::Options::default()).unwrap()
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
            trigger: None,
            also: standings.collect(),
            unfollowed: Vec::new(),
            withdrawn: false,
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
    fn bans_at_a_withdrawn_gateway_are_left_out_of_intents_and_it_is_not_trusted_again() {
        let record = record();
        let mut config = config(&[("engine", "iptables"), ("gatewayHost", "192.0.2.250:9521")]);
        config.withdrawn = vec![earlier(), strange()];
        assert_eq!(record.trust_gateways(&config), [earlier()]);
        assert_eq!(record.trust_gateways(&config), [], "it is reported once");
        for (given, followed) in [
            (vec![here()], vec![here()]),
            (vec![here(), earlier()], vec![here()]),
            (vec![earlier(), strange(), here()], vec![here()]),
        ] {
            let block = block(&given);
            let (believed, news) = record.believe(&block);
            assert!(!news, "{given:?}");
            let intent: Intent = believed.annotation(INTENT).unwrap().parse().unwrap();
            let all = [vec![intent.standing.clone()], intent.also].concat();
            assert_eq!(places(&all), followed, "{given:?}");
            assert!(intent.unfollowed.is_empty(), "{given:?}");
        }
        let (believed, news) = record.believe(&block(&[earlier(), strange()]));
        let intent: Intent = believed.annotation(INTENT).unwrap().parse().unwrap();
        assert!(intent.withdrawn && intent.also.is_empty() && intent.unfollowed.is_empty());
        assert!(!news);
        let status = json!({"phase": "active", "target": "192.0.2.7"});
        let mut active = IPBlock::clone(&believed);
        active.status = serde_json::from_value(status).unwrap();
        let standings = crate::decide::recorded_standings(&active, Some(&here()));
        assert_eq!(standings, Some(Vec::new()), "nothing stands");
        assert_eq!(crate::decide::recorded_claim(&active, Some(&here())), None);
        let mut forged = IPBlock::clone(&block(&[here()]));
        let intent = forged.annotation(INTENT).unwrap().parse().unwrap();
        let intent = Intent {
            withdrawn: true,
            ..intent
        };
        let annotations = forged.metadata.annotations.get_or_insert_default();
        annotations.insert(INTENT.into(), intent.to_string());
        assert!(
            !seen(&record, &Arc::new(forged)).withdrawn,
            "a user wrote it"
        );
        let other = Place::new("xdp", "10.0.0.8:80");
        let (believed, news) = record.believe(&block(&[earlier(), other.clone()]));
        let intent: Intent = believed.annotation(INTENT).unwrap().parse().unwrap();
        assert!(news && !intent.is_followed());
        assert_eq!(places(&intent.unfollowed), [other]);
        // What the record of another replica still names.
        record.trust([earlier()]);
        assert!(!record.trusts(&earlier()));
        config.withdrawn.clear();
        record.trust_gateways(&config);
        record.trust([earlier()]);
        assert!(
            record.trusts(&earlier()),
            "the key does not name it any more"
        );
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

    #[test]
    fn a_block_is_not_followed_to_a_gateway_that_was_replaced_before_the_block_was_made() {
        let at = |place: Place, former: &[Place]| {
            let line = |place: &Place| format!("{} {}", place.engine, place.endpoint);
            let former: Vec<String> = former.iter().map(line).collect();
            config(&[
                ("engine", "iptables"),
                ("gatewayHost", &place.endpoint),
                ("formerGateways", &former.join("\n")),
            ])
        };
        let record = Record::new("default");
        let configure = |record: &Record, place: Place, former: &[Place], hours: i64| {
            record.trust_gateways(&at(place, former));
            record.in_force(now() + SignedDuration::from_hours(hours))
        };
        configure(&record, earlier(), &[], 0);
        assert!(configure(&record, here(), &[], 1));
        // Later edits are about other things.
        assert!(!configure(&record, here(), &[], 9));
        let follows = |record: &Record, place: Place, minutes: i64| {
            let mut block = IPBlock::clone(&block(&[place]));
            let created = now() + SignedDuration::from_mins(minutes);
            block.metadata.creation_timestamp = Some(
                k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(created),
            );
            seen(record, &Arc::new(block)).is_followed()
        };
        for (place, minutes, expected) in [
            (earlier(), 30, true),
            (earlier(), 61, true),
            (earlier(), 62, false),
            (here(), 0, true),
            (here(), 6_000, true),
        ] {
            assert_eq!(
                follows(&record, place.clone(), minutes),
                expected,
                "{place}"
            );
        }
        configure(&record, here(), &[earlier()], 10);
        assert!(follows(&record, earlier(), 62), "named as a former one");
        configure(&record, here(), &[], 10);
        assert!(!follows(&record, earlier(), 62), "not any more");
        configure(&record, earlier(), &[], 10);
        assert!(follows(&record, earlier(), 6_000), "configured again");
        assert!(!follows(&record, here(), 6_000));
    }
}
