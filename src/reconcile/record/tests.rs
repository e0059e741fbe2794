//! What the record makes the operator believe.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::super::trust::MOST;
use super::*;
use crate::api::{INTENT, IPBlock, IPBlockSpec, Intent, Standing};

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
fn an_intent_is_followed_only_to_gateways_that_were_configured_and_forgets_none_of_the_others() {
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
        assert!(!news && again == believed, "{given:?} is reported once");
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
    assert_eq!(record.known.read().trust.places.len(), MOST);
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
