//! Tags of load balancers.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::state::{Balancer, State, Tag};
use super::{Answered, Context, Refusal, fields};
use crate::parameters::Parameters;

const LONGEST_KEY: usize = 128;
const LONGEST_VALUE: usize = 128;
/// The tags of a page of `ListTagResources`.
const PAGE: usize = 50;

/// A tag of the older, JSON form of a search.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Older {
    tag_key: String,
    #[serde(default)]
    tag_value: Option<String>,
}

/// The tags that a call sets.
pub(super) fn parse(call: &Parameters) -> Result<BTreeMap<String, String>, Refusal> {
    let tags = call.tags();
    let count = tags.len();
    let parsed: Result<BTreeMap<String, String>, Refusal> = tags
        .into_iter()
        .map(|(key, value)| {
            let value = value.unwrap_or_default();
            if key.len() > LONGEST_KEY || value.len() > LONGEST_VALUE {
                return Err(Refusal::invalid("Tag"));
            }
            Ok((key.to_owned(), value.to_owned()))
        })
        .collect();
    let parsed = parsed?;
    if parsed.len() < count {
        let message = "A tag key is sent twice.";
        return Err(Refusal::new(400, "Duplicate.TagKey", message));
    }
    Ok(parsed)
}

/// The tags that a search names, in either form. A tag without a value matches any.
pub(super) fn wanted(call: &Parameters) -> Result<Vec<(String, Option<String>)>, Refusal> {
    if let Some(text) = call.text("Tags") {
        let tags: Vec<Older> = serde_json::from_str(text).map_err(|_| Refusal::invalid("Tags"))?;
        let tags = tags.into_iter();
        return Ok(tags.map(|tag| (tag.tag_key, tag.tag_value)).collect());
    }
    let tags = call.tags().into_iter();
    Ok(tags
        .map(|(key, value)| (key.to_owned(), value.map(str::to_owned)))
        .collect())
}

/// Whether a search at `now` finds all of `wanted` at the load balancer.
pub(super) fn match_all(
    balancer: &Balancer,
    wanted: &[(String, Option<String>)],
    now: Timestamp,
) -> bool {
    wanted.iter().all(|(key, value)| {
        let tag = balancer.tags.get(key);
        tag.is_some_and(|tag| {
            tag.visible_at <= now && value.as_ref().is_none_or(|value| *value == tag.value)
        })
    })
}

fn resources(call: &Parameters) -> Result<Vec<&str>, Refusal> {
    let kind = call.one_of("ResourceType", &["instance"])?;
    kind.ok_or_else(|| Refusal::missing("ResourceType"))?;
    Ok(call.numbered("ResourceId"))
}

fn required_resources(call: &Parameters) -> Result<Vec<&str>, Refusal> {
    let resources = resources(call)?;
    if resources.is_empty() {
        return Err(Refusal::missing("ResourceId.1"));
    }
    Ok(resources)
}

pub(super) fn tag(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let tags = parse(call)?;
    if tags.is_empty() {
        return Err(Refusal::missing("Tag.1.Key"));
    }
    let visible_at = context.now + context.rules.lag;
    for id in required_resources(call)? {
        let balancer = state.balancer_mut(context, id)?;
        for (key, value) in &tags {
            let same = |tag: &Tag| tag.value == *value;
            if !balancer.tags.get(key).is_some_and(same) {
                let value = value.clone();
                balancer.tags.insert(key.clone(), Tag { value, visible_at });
            }
        }
        if balancer.tags.len() > context.rules.tags {
            let code = "QuotaExceeded.TagsPerResource";
            return Err(Refusal::quota(code, "tags", context.rules.tags));
        }
    }
    Ok(Map::new())
}

pub(super) fn untag(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let keys = call.numbered("TagKey");
    let all = call.text("All") == Some("true");
    if keys.is_empty() && !all {
        return Err(Refusal::missing("TagKey.1"));
    }
    let all = all && keys.is_empty();
    for id in required_resources(call)? {
        let balancer = state.balancer_mut(context, id)?;
        balancer
            .tags
            .retain(|key, _| !all && !keys.contains(&key.as_str()));
    }
    Ok(Map::new())
}

pub(super) fn list(state: &State, context: Context<'_>, call: &Parameters) -> Answered {
    let ids = resources(call)?;
    let wanted = wanted(call)?;
    if ids.is_empty() && wanted.is_empty() {
        return Err(Refusal::missing("ResourceId.1"));
    }
    let matching = |balancer: &&Balancer| {
        let id = balancer.id.as_str();
        (ids.is_empty() || ids.contains(&id)) && match_all(balancer, &wanted, context.now)
    };
    let all: Vec<Value> = state
        .balancers
        .values()
        .filter(matching)
        .flat_map(|balancer| {
            let shown = |(key, tag): (&String, &Tag)| {
                json!({
                    "ResourceId": balancer.id,
                    "ResourceType": "instance",
                    "TagKey": key,
                    "TagValue": tag.value,
                })
            };
            balancer.tags.iter().map(shown).collect::<Vec<Value>>()
        })
        .collect();
    let skipped = call
        .integer("NextToken", 0..=i64::from(i32::MAX))?
        .unwrap_or(0);
    let skipped = usize::try_from(skipped).unwrap_or(0);
    let page: Vec<&Value> = all.iter().skip(skipped).take(PAGE).collect();
    let read = skipped + page.len();
    let next = (read < all.len()).then(|| read.to_string());
    Ok(fields(json!({
        "NextToken": next.unwrap_or_default(),
        "TagResources": { "TagResource": page },
    })))
}
