//! Access control lists of listeners.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::state::{AccessList, Listener, State};
use super::{Answered, Context, Refusal, fields};
use crate::parameters::Parameters;

const ENTRIES: &str = "AclEntrys";
const LONGEST_NAME: usize = 80;
const LONGEST_COMMENT: usize = 256;

#[derive(Deserialize)]
struct Entry {
    entry: String,
    #[serde(default)]
    comment: String,
}

fn name(call: &Parameters) -> Result<String, Refusal> {
    let name = call.short("AclName", LONGEST_NAME)?;
    Ok(name.ok_or_else(|| Refusal::missing("AclName"))?.to_owned())
}

fn find<'a>(state: &'a State, call: &Parameters) -> Result<&'a AccessList, Refusal> {
    let id = call.required("AclId")?;
    let list = state.access_lists.get(id);
    list.ok_or_else(|| Refusal::no_access_list(id))
}

fn find_mut<'a>(state: &'a mut State, call: &Parameters) -> Result<&'a mut AccessList, Refusal> {
    let id = call.required("AclId")?;
    let list = state.access_lists.get_mut(id);
    list.ok_or_else(|| Refusal::no_access_list(id))
}

/// The networks of the call with their comments. An address counts as a network of one.
fn entries(context: Context<'_>, call: &Parameters) -> Result<BTreeMap<String, String>, Refusal> {
    let entries: Vec<Entry> =
        serde_json::from_str(call.required(ENTRIES)?).map_err(|_| Refusal::invalid(ENTRIES))?;
    if entries.len() > context.rules.entries {
        let most = context.rules.entries;
        return Err(Refusal::quota(
            "AclEntryProcessing.Limit",
            "entries in a call",
            most,
        ));
    }
    let network = |text: &str| {
        let network: Option<Ipv4Net> = match text.parse() {
            Ok(network) => Some(network),
            Err(_) => text.parse::<Ipv4Addr>().ok().map(Ipv4Net::from),
        };
        let network = network.ok_or_else(|| Refusal::invalid(ENTRIES))?;
        Ok(network.trunc().to_string())
    };
    let entries = entries.into_iter();
    let entries = entries.map(|entry| {
        if entry.comment.chars().count() > LONGEST_COMMENT {
            return Err(Refusal::invalid(ENTRIES));
        }
        Ok((network(&entry.entry)?, entry.comment))
    });
    entries.collect()
}

fn users_of<'a>(
    state: &'a State,
    id: &'a str,
) -> impl Iterator<Item = (&'a super::Balancer, &'a Listener)> {
    let listeners = state.listeners();
    listeners.filter(move |(_, one)| one.settings.get("AclId").map(String::as_str) == Some(id))
}

pub(super) fn create(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let most = context.rules.access_lists;
    if state.access_lists.len() >= most {
        return Err(Refusal::quota(
            "AclNumberOverLimit",
            "access control lists",
            most,
        ));
    }
    let name = name(call)?;
    call.one_of("AddressIPVersion", &["ipv4"])?;
    let id = state.new_id("acl");
    let list = AccessList {
        id: id.clone(),
        name,
        entries: BTreeMap::new(),
    };
    state.access_lists.insert(id.clone(), list);
    Ok(fields(json!({ "AclId": id })))
}

pub(super) fn delete(state: &mut State, _: Context<'_>, call: &Parameters) -> Answered {
    let id = find(state, call)?.id.clone();
    if users_of(state, &id).next().is_some() {
        let message = "A listener uses the access control list.";
        return Err(Refusal::new(400, "AclInUsed", message));
    }
    state.access_lists.remove(&id);
    Ok(Map::new())
}

pub(super) fn set(state: &mut State, _: Context<'_>, call: &Parameters) -> Answered {
    let name = name(call)?;
    let list = find_mut(state, call)?;
    list.name = name;
    Ok(fields(json!({ "AclId": list.id })))
}

pub(super) fn add(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let sent = entries(context, call)?;
    let list = find_mut(state, call)?;
    if let Some(entry) = sent.keys().find(|one| list.entries.contains_key(*one)) {
        let message = format!("The entry {entry} exists.");
        return Err(Refusal::new(400, "Duplicate.AclEntry", message));
    }
    list.entries.extend(sent);
    let most = context.rules.entries;
    if list.entries.len() > most {
        return Err(Refusal::quota(
            "AclEntryNumberOverLimit",
            "entries in a list",
            most,
        ));
    }
    Ok(Map::new())
}

/// Entries that are absent are skipped.
pub(super) fn remove(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let sent = entries(context, call)?;
    let list = find_mut(state, call)?;
    list.entries.retain(|entry, _| !sent.contains_key(entry));
    Ok(Map::new())
}

pub(super) fn describe(state: &State, _: Context<'_>, call: &Parameters) -> Answered {
    let list = find(state, call)?;
    let entries = list.entries.iter();
    let entries: Vec<Value> = entries
        .map(|(entry, comment)| json!({ "AclEntryIP": entry, "AclEntryComment": comment }))
        .collect();
    let users: Vec<Value> = users_of(state, &list.id)
        .map(|(balancer, listener)| {
            json!({
                "LoadBalancerId": balancer.id,
                "ListenerPort": listener.port,
                "Protocol": listener.protocol.name(),
                "AclType": listener.settings.get("AclType"),
            })
        })
        .collect();
    Ok(fields(json!({
        "AclId": list.id,
        "AclName": list.name,
        "AddressIPVersion": "ipv4",
        "AclEntrys": { "AclEntry": entries },
        "RelatedListeners": { "RelatedListener": users },
    })))
}

pub(super) fn list(state: &State, _: Context<'_>, call: &Parameters) -> Answered {
    let size = call.integer("PageSize", 1..=50)?.unwrap_or(10);
    let page = call
        .integer("PageNumber", 1..=i64::from(i32::MAX))?
        .unwrap_or(1);
    let name = call.text("AclName");
    let named = |list: &&AccessList| name.is_none_or(|name| list.name == name);
    let found: Vec<&AccessList> = state.access_lists.values().filter(named).collect();
    let skipped = usize::try_from((page - 1) * size).unwrap_or(usize::MAX);
    let shown: Vec<Value> = found
        .iter()
        .skip(skipped)
        .take(usize::try_from(size).unwrap_or(0))
        .map(|list| json!({ "AclId": list.id, "AclName": list.name, "AddressIPVersion": "ipv4" }))
        .collect();
    Ok(fields(json!({
        "Acls": { "Acl": shown },
        "TotalCount": found.len(),
        "PageNumber": page,
        "PageSize": size,
    })))
}
