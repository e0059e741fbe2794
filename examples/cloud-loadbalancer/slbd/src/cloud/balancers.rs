//! Load balancers: creation, description, edits, deletion.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde_json::{Map, Value, json};

use super::context::time;
use super::state::{Balancer, State, Tag};
use super::{Answered, Context, Refusal, fields, instances, tags};
use crate::parameters::Parameters;

const SPECS: &[&str] = &[
    "slb.s1.small",
    "slb.s2.small",
    "slb.s2.medium",
    "slb.s3.small",
    "slb.s3.medium",
    "slb.s3.large",
    "slb.lcu.elastic",
];
const CHARGES: &[&str] = &["paybytraffic", "paybybandwidth"];
const INSTANCE_CHARGES: &[&str] = &["PayBySpec", "PayByCLCU"];
const PROTECTIONS: &[&str] = &["NonProtection", "ConsoleProtection"];
/// Parameters that are kept and given back.
const PLACE: &[&str] = &[
    "MasterZoneId",
    "SlaveZoneId",
    "VpcId",
    "VSwitchId",
    "ResourceGroupId",
];
const LONGEST_NAME: usize = 80;
const LONGEST_PLACE: usize = 64;
const BANDWIDTH: std::ops::RangeInclusive<i64> = 1..=5120;

pub(super) fn create(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let rules = context.rules;
    if state.balancers.len() >= rules.balancers {
        let code = "QuotaLimitExceeds";
        return Err(Refusal::quota(code, "load balancers", rules.balancers));
    }
    let sent_tags = tags::parse(call)?;
    if sent_tags.len() > rules.tags {
        return Err(Refusal::quota(
            "QuotaExceeded.TagsPerResource",
            "tags",
            rules.tags,
        ));
    }
    call.one_of("AddressIPVersion", &["ipv4"])?;
    let internet = match call.one_of("AddressType", &["internet", "intranet"])? {
        Some(kind) => kind == "internet",
        None => call.text("VSwitchId").is_none(),
    };
    let protection = call.one_of("ModificationProtectionStatus", PROTECTIONS)?;
    let name = call.text("LoadBalancerName").map(name).transpose()?;
    let reason = reason(call)?;
    let mut place = BTreeMap::new();
    for name in PLACE {
        if let Some(value) = call.short(name, LONGEST_PLACE)? {
            place.insert((*name).to_owned(), value.to_owned());
        }
    }
    let address = address(state, context, call)?;
    let id = state.new_id("lb");
    let name = name.unwrap_or_else(|| format!("auto-{id}"));
    check_name_is_free(state, context, &name)?;
    let balancer = Balancer {
        id: id.clone(),
        name: name.clone(),
        address,
        active: true,
        delete_protection: call.switch("DeleteProtection")?.unwrap_or(false),
        listeners: Vec::new(),
        backends: Vec::new(),
        tags: sent_tags
            .into_iter()
            .map(|(key, value)| {
                let visible_at = context.now + rules.lag;
                (key, Tag { value, visible_at })
            })
            .collect(),
        internet,
        spec: call.one_of("LoadBalancerSpec", SPECS)?.map(str::to_owned),
        charge: text_or(call.one_of("InternetChargeType", CHARGES)?, CHARGES[0]),
        instance_charge: text_or(
            call.one_of("InstanceChargeType", INSTANCE_CHARGES)?,
            INSTANCE_CHARGES[0],
        ),
        bandwidth: call.integer("Bandwidth", BANDWIDTH)?.unwrap_or(5120),
        modification_protection: protection == Some("ConsoleProtection"),
        modification_reason: reason,
        place,
        created_at: context.now,
        ready_at: context.now + rules.provision,
        settled_at: context.now,
    };
    state.balancers.insert(id.clone(), balancer);
    Ok(fields(json!({
        "LoadBalancerId": id,
        "LoadBalancerName": name,
        "Address": address,
        "AddressIPVersion": "ipv4",
        "NetworkType": if internet { "classic" } else { "vpc" },
        "OrderId": 0,
        "VpcId": call.text("VpcId").unwrap_or_default(),
        "VSwitchId": call.text("VSwitchId").unwrap_or_default(),
        "ResourceGroupId": call.text("ResourceGroupId").unwrap_or("rg-default"),
    })))
}

/// Why changes in the console are refused.
fn reason(call: &Parameters) -> Result<Option<String>, Refusal> {
    let reason = call.short("ModificationProtectionReason", LONGEST_NAME)?;
    Ok(reason.map(str::to_owned))
}

fn text_or(text: Option<&str>, default: &str) -> String {
    text.unwrap_or(default).to_owned()
}

fn name(name: &str) -> Result<String, Refusal> {
    let allowed = |c: char| c.is_alphanumeric() || "-_./".contains(c);
    if name.chars().count() > LONGEST_NAME || !name.chars().all(allowed) {
        return Err(Refusal::invalid("LoadBalancerName"));
    }
    Ok(name.to_owned())
}

fn check_name_is_free(state: &State, context: Context<'_>, name: &str) -> Result<(), Refusal> {
    let mut balancers = state.balancers.values();
    if context.rules.unique_names && balancers.any(|balancer| balancer.name == name) {
        let message = format!("A load balancer of the name {name} exists.");
        return Err(Refusal::new(400, "DuplicateLoadBalancerName", message));
    }
    Ok(())
}

/// The address that the call names, or the lowest free one.
fn address(state: &State, context: Context<'_>, call: &Parameters) -> Result<Ipv4Addr, Refusal> {
    let taken: std::collections::BTreeSet<Ipv4Addr> =
        state.balancers.values().map(|one| one.address).collect();
    if let Some(text) = call.text("Address") {
        let address: Ipv4Addr = text.parse().map_err(|_| Refusal::invalid("Address"))?;
        if !context.rules.addresses.contains(&address) {
            return Err(Refusal::invalid("Address"));
        }
        if taken.contains(&address) {
            let message = format!("The address {address} is in use.");
            return Err(Refusal::new(400, "IpConflict", message));
        }
        return Ok(address);
    }
    let mut addresses = context.rules.addresses.hosts();
    let free = addresses.find(|address| !taken.contains(address));
    free.ok_or_else(|| Refusal::new(400, "InsufficientIp", "No address is free."))
}

pub(super) fn delete(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let id = call.required("LoadBalancerId")?;
    let balancer = state.balancer_mut(context, id)?;
    if balancer.delete_protection {
        return Err(Refusal::new(
            403,
            "OperationDenied.DeleteProtectionIsOn",
            "The load balancer has deletion protection.",
        ));
    }
    state.balancers.remove(id);
    state.groups.retain(|_, group| group.balancer != id);
    Ok(Map::new())
}

pub(super) fn describe(state: &State, context: Context<'_>, call: &Parameters) -> Answered {
    let balancer = state.balancer(call.required("LoadBalancerId")?)?;
    let mut shown = shown(context, balancer);
    let ports: Vec<Value> = balancer
        .listeners
        .iter()
        .map(|listener| listener.port.into())
        .collect();
    let listeners: Vec<Value> = balancer
        .listeners
        .iter()
        .map(|listener| {
            let protocol = listener.protocol.name();
            json!({
                "ListenerPort": listener.port,
                "ListenerProtocol": protocol,
                "ListenerForward": "off",
                "Description": listener.settings.get("Description"),
            })
        })
        .collect();
    shown.extend(fields(json!({
        "ListenerPorts": { "ListenerPort": ports },
        "ListenerPortsAndProtocol": { "ListenerPortAndProtocol": listeners },
        "BackendServers": instances::listed(&balancer.backends),
    })));
    Ok(shown)
}

/// What lists and descriptions show of a load balancer.
fn shown(context: Context<'_>, balancer: &Balancer) -> Map<String, Value> {
    let status = if context.now < balancer.ready_at || !balancer.active {
        "inactive"
    } else {
        "active"
    };
    let mut shown = fields(json!({
        "LoadBalancerId": balancer.id,
        "LoadBalancerName": balancer.name,
        "LoadBalancerStatus": status,
        "Address": balancer.address,
        "AddressType": if balancer.internet { "internet" } else { "intranet" },
        "AddressIPVersion": "ipv4",
        "NetworkType": if balancer.internet { "classic" } else { "vpc" },
        "RegionId": context.rules.region,
        "InternetChargeType": balancer.charge,
        "InstanceChargeType": balancer.instance_charge,
        "Bandwidth": balancer.bandwidth,
        "PayType": "PayOnDemand",
        "DeleteProtection": if balancer.delete_protection { "on" } else { "off" },
        "ModificationProtectionStatus":
            if balancer.modification_protection { PROTECTIONS[1] } else { PROTECTIONS[0] },
        "CreateTime": time(balancer.created_at),
        "CreateTimeStamp": balancer.created_at.as_millisecond(),
        "Tags": { "Tag": balancer.tags.iter().map(|(key, tag)| {
            json!({ "TagKey": key, "TagValue": tag.value })
        }).collect::<Vec<Value>>() },
    }));
    if let Some(spec) = &balancer.spec {
        shown.insert("LoadBalancerSpec".to_owned(), spec.as_str().into());
    }
    if let Some(reason) = &balancer.modification_reason {
        shown.insert(
            "ModificationProtectionReason".to_owned(),
            reason.as_str().into(),
        );
    }
    for (name, value) in &balancer.place {
        shown.insert(name.clone(), value.as_str().into());
    }
    shown
}

pub(super) fn list(state: &State, context: Context<'_>, call: &Parameters) -> Answered {
    let size = call.integer("PageSize", 1..=100)?.unwrap_or(50);
    let page = call
        .integer("PageNumber", 1..=i64::from(i32::MAX))?
        .unwrap_or(1);
    let ids: Option<Vec<&str>> = call
        .text("LoadBalancerId")
        .map(|ids| ids.split(',').collect());
    let wanted = tags::wanted(call)?;
    let seen = |balancer: &&Balancer| {
        let at = balancer.created_at + context.rules.lag;
        // A search by id alone does not lag.
        (ids.is_some() || at <= context.now)
            && ids
                .as_ref()
                .is_none_or(|ids| ids.contains(&balancer.id.as_str()))
            && matches(call, "LoadBalancerName", &balancer.name)
            && matches(call, "Address", &balancer.address.to_string())
            && tags::match_all(balancer, &wanted, context.now)
    };
    let found: Vec<&Balancer> = state.balancers.values().filter(seen).collect();
    let skipped = usize::try_from((page - 1) * size).unwrap_or(usize::MAX);
    let size_of_page = usize::try_from(size).unwrap_or(0);
    let shown: Vec<Value> = found
        .iter()
        .skip(skipped)
        .take(size_of_page)
        .map(|balancer| Value::Object(shown(context, balancer)))
        .collect();
    Ok(fields(json!({
        "LoadBalancers": { "LoadBalancer": shown },
        "TotalCount": found.len(),
        "PageNumber": page,
        "PageSize": size,
    })))
}

fn matches(call: &Parameters, name: &str, value: &str) -> bool {
    call.text(name).is_none_or(|wanted| wanted == value)
}

fn edit(
    state: &mut State,
    context: Context<'_>,
    call: &Parameters,
    edit: impl FnOnce(&mut Balancer) -> Result<(), Refusal>,
) -> Answered {
    edit(state.balancer_mut(context, call.required("LoadBalancerId")?)?)?;
    Ok(Map::new())
}

pub(super) fn set_name(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let name = name(call.required("LoadBalancerName")?)?;
    let own = state.balancer(call.required("LoadBalancerId")?)?.name == name;
    if !own {
        check_name_is_free(state, context, &name)?;
    }
    edit(state, context, call, |balancer| {
        balancer.name = name;
        Ok(())
    })
}

pub(super) fn set_status(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let status = call.one_of("LoadBalancerStatus", &["active", "inactive"])?;
    let status = status.ok_or_else(|| Refusal::missing("LoadBalancerStatus"))?;
    edit(state, context, call, |balancer| {
        balancer.active = status == "active";
        Ok(())
    })
}

pub(super) fn set_delete_protection(
    state: &mut State,
    context: Context<'_>,
    call: &Parameters,
) -> Answered {
    let on = call.switch("DeleteProtection")?;
    let on = on.ok_or_else(|| Refusal::missing("DeleteProtection"))?;
    edit(state, context, call, |balancer| {
        balancer.delete_protection = on;
        Ok(())
    })
}

pub(super) fn set_modification_protection(
    state: &mut State,
    context: Context<'_>,
    call: &Parameters,
) -> Answered {
    let name = "ModificationProtectionStatus";
    let status = call.one_of(name, PROTECTIONS)?;
    let on = status.ok_or_else(|| Refusal::missing(name))? == "ConsoleProtection";
    let reason = reason(call)?;
    edit(state, context, call, |balancer| {
        balancer.modification_protection = on;
        balancer.modification_reason = reason.filter(|_| on);
        Ok(())
    })
}

pub(super) fn modify_spec(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let spec = call.one_of("LoadBalancerSpec", SPECS)?;
    let spec = spec
        .ok_or_else(|| Refusal::missing("LoadBalancerSpec"))?
        .to_owned();
    edit(state, context, call, |balancer| {
        if balancer.instance_charge == "PayByCLCU" {
            let message = "A load balancer that is paid by use has no specification.";
            return Err(Refusal::new(
                400,
                "OperationFailed.InstanceChargeType",
                message,
            ));
        }
        balancer.spec = Some(spec);
        Ok(())
    })
}

pub(super) fn modify_internet_spec(
    state: &mut State,
    context: Context<'_>,
    call: &Parameters,
) -> Answered {
    let charge = call
        .one_of("InternetChargeType", CHARGES)?
        .map(str::to_owned);
    let bandwidth = call.integer("Bandwidth", BANDWIDTH)?;
    edit(state, context, call, |balancer| {
        if !balancer.internet {
            let message = "An internal load balancer has no charge for traffic.";
            return Err(Refusal::new(
                400,
                "OperationUnsupported.AddressType",
                message,
            ));
        }
        if let Some(charge) = charge {
            balancer.charge = charge;
        }
        if let Some(bandwidth) = bandwidth {
            balancer.bandwidth = bandwidth;
        }
        Ok(())
    })
}

pub(super) fn modify_charge_type(
    state: &mut State,
    context: Context<'_>,
    call: &Parameters,
) -> Answered {
    let charge = call.one_of("InstanceChargeType", INSTANCE_CHARGES)?;
    let charge = charge
        .ok_or_else(|| Refusal::missing("InstanceChargeType"))?
        .to_owned();
    let spec = call.one_of("LoadBalancerSpec", SPECS)?.map(str::to_owned);
    edit(state, context, call, |balancer| {
        balancer.spec = match charge.as_str() {
            "PayByCLCU" => None,
            _ => Some(spec.ok_or_else(|| Refusal::missing("LoadBalancerSpec"))?),
        };
        balancer.instance_charge = charge;
        Ok(())
    })
}
