//! Lists of gateways beside the configured one: one `engine host:port` a line.

use std::collections::BTreeMap;

use super::error::Errors;
use super::keys;
use super::parse::entries;
use crate::api::Place;
use crate::engine::{Endpoint, Kind, UnknownEngine};

/// The most former gateways: the record of gateways has room for them and the configured one.
const MOST: usize = 31;

/// The gateways of `key`, as they are recorded in objects; at most 31.
pub(super) fn read(data: &BTreeMap<String, String>, key: &str, errors: &mut Errors) -> Vec<Place> {
    let (places, wrong) = lines(data, key);
    for (line, why) in wrong {
        errors.add(key, Some(line), why);
    }
    if let Some((line, place)) = places.get(MOST) {
        let why = format!(
            "{place} is one too many: at most {MOST} are followed; drop those without bans"
        );
        errors.add(key, Some(*line), why);
    }
    places.into_iter().map(|(_, place)| place).collect()
}

/// The gateways that are withdrawn: neither the configured one nor one of `former`.
pub(super) fn read_withdrawn(
    data: &BTreeMap<String, String>,
    configured: Option<&Place>,
    former: &[Place],
    errors: &mut Errors,
) -> Vec<Place> {
    let key = keys::WITHDRAWN_GATEWAYS;
    let (places, mut wrong) = lines(data, key);
    for (line, place) in &places {
        if configured == Some(place) {
            let why = format!("{place} is the configured gateway; configure another one first");
            wrong.push((*line, why));
        } else if former.contains(place) {
            let why = format!("{place} is in {} too; drop it there", keys::FORMER_GATEWAYS);
            wrong.push((*line, why));
        }
    }
    for (line, why) in wrong {
        errors.add(key, Some(line), why);
    }
    places.into_iter().map(|(_, place)| place).collect()
}

type Lines<T> = Vec<(usize, T)>;

/// The places of `key` and what is wrong, each with its line.
fn lines(data: &BTreeMap<String, String>, key: &str) -> (Lines<Place>, Lines<String>) {
    let (mut places, mut wrong) = (Vec::new(), Vec::new());
    let text = data.get(key).map(String::as_str).unwrap_or_default();
    for (line, entry) in entries(text) {
        match place(entry) {
            Ok(place) => places.push((line, place)),
            Err(why) => wrong.push((line, why)),
        }
    }
    (places, wrong)
}

fn place(entry: &str) -> Result<Place, String> {
    let (engine, endpoint) = entry.split_once(char::is_whitespace).ok_or_else(|| {
        format!("{entry:?} is not an engine and a gateway; write for example: xdp 192.0.2.1:8080")
    })?;
    let kind: Kind = engine
        .parse()
        .map_err(|error: UnknownEngine| error.to_string())?;
    let endpoint = Endpoint::parse(endpoint).map_err(|error| error.to_string())?;
    Ok(Place::new(kind.name(), endpoint.as_str()))
}
