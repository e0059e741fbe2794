//! The model as the API writes it, and its errors as the controller reads them.

use serde::Deserialize;
use serde_json::{Value, json};
use slbd::client::{self, Attributes};
use slbd::parameters::Parameters;

use crate::model::{
    Address, AddressType, Backend, Fixed, Group, GroupId, InstanceCharge, Internet, IpVersion,
    LbId, LoadBalancer, Server, State, Tags, TrafficCharge,
};
use crate::provider::{Error, Kind};

/// The code of a refusal to delete what is protected.
pub(super) const PROTECTED: &str = "OperationDenied.DeleteProtectionIsOn";

/// The largest bandwidth in Mbit/s, which means no limit.
const NO_LIMIT: u32 = 5120;

/// The tags of a load balancer.
#[derive(Default, Deserialize)]
struct TagList {
    #[serde(default, rename = "Tag")]
    tags: Vec<Tag>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Tag {
    tag_key: String,
    #[serde(default)]
    tag_value: String,
}

pub(super) fn error(error: client::Error) -> Error {
    let error = match error {
        client::Error::NotSent { action, source } => {
            let error = source.downcast::<Error>();
            return error.map_or_else(
                |source| Error::new(Kind::Unavailable, "NotSent", format!("{action}: {source}")),
                |error| *error,
            );
        }
        error => error,
    };
    let message = error.to_string();
    let client::Error::Refused {
        status,
        code,
        message,
        request_id,
        ..
    } = &error
    else {
        return Error::new(Kind::Unavailable, "NoAnswer", message);
    };
    let denied = code.starts_with("Forbidden")
        || code.starts_with("InvalidAccessKeyId")
        || code.starts_with("InvalidTimeStamp")
        || code == "SignatureDoesNotMatch";
    let quota = [
        "OverLimit",
        "Quota",
        "TooMany",
        "LimitExceeds",
        "InsufficientIp",
    ];
    let kind = match code.as_str() {
        _ if denied => Kind::Denied,
        _ if *status >= 500 => Kind::Unavailable,
        _ if error.is_throttled() => Kind::Throttled,
        _ if error.is_busy() => Kind::Busy,
        _ if error.is_not_found() => Kind::NotFound,
        // A nonce that was used before: another nonce may pass.
        "SignatureNonceUsed" => Kind::Unavailable,
        "RspoolVipExist" | "AclInUsed" => Kind::InUse,
        PROTECTED => Kind::Protected,
        "ListenerAlreadyExists" | "DuplicateLoadBalancerName" => Kind::Duplicate,
        "IdempotentParameterMismatch" => Kind::TokenReused,
        code if quota.iter().any(|part| code.contains(part)) => Kind::Quota,
        _ => Kind::Invalid,
    };
    Error::new(kind, code, message).with_request_id(request_id)
}

pub(super) fn unsupported(what: &str) -> Error {
    let message = format!("{what} is not supported by this cloud");
    Error::new(Kind::Invalid, "Unsupported", message)
}

pub(super) fn unreadable(what: &str, value: impl std::fmt::Display) -> Error {
    let message = format!("the cloud's {what} cannot be read: {value}");
    Error::new(Kind::Unavailable, "Unreadable", message)
}

pub(super) fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

pub(super) fn modification_protection(on: bool) -> &'static str {
    if on {
        "ConsoleProtection"
    } else {
        "NonProtection"
    }
}

pub(super) fn instance_charge(charge: InstanceCharge) -> &'static str {
    match charge {
        InstanceCharge::PayBySpec => "PayBySpec",
        InstanceCharge::PayByUse => "PayByCLCU",
    }
}

pub(super) fn set_internet(call: &mut Parameters, internet: Internet) {
    let charge = match internet.charge {
        TrafficCharge::PayByTraffic => "paybytraffic",
        TrafficCharge::PayByBandwidth => "paybybandwidth",
    };
    let bandwidth = match internet.bandwidth {
        0 => NO_LIMIT,
        bandwidth => bandwidth,
    };
    call.set("InternetChargeType", charge);
    call.set("Bandwidth", bandwidth);
}

/// A load balancer as it is described.
pub(super) fn balancer(attributes: Attributes) -> Result<LoadBalancer, Error> {
    let text = |name: &str| {
        let value = attributes.other.get(name).and_then(Value::as_str);
        value.filter(|value| !value.is_empty()).map(str::to_owned)
    };
    let charge = match attributes.internet_charge_type.as_str() {
        "paybybandwidth" => TrafficCharge::PayByBandwidth,
        _ => TrafficCharge::PayByTraffic,
    };
    let bandwidth = u32::try_from(attributes.bandwidth);
    let bandwidth = bandwidth.map_err(|_| unreadable("bandwidth", attributes.bandwidth))?;
    let unlimited = charge == TrafficCharge::PayByTraffic && bandwidth == NO_LIMIT;
    let tags = attributes.other.get("Tags").cloned().unwrap_or_default();
    let tags = Option::<TagList>::deserialize(tags).map_err(|error| unreadable("tags", error))?;
    Ok(LoadBalancer {
        name: attributes.load_balancer_name,
        // A load balancer that is being made is inactive, too. It refuses changes as busy.
        state: match attributes.load_balancer_status.as_str() {
            "active" => State::Active,
            "locked" => State::Locked,
            _ => State::Inactive,
        },
        address: Address::Ip(attributes.address),
        fixed: Fixed {
            address_type: match attributes.address_type.as_str() {
                "intranet" => AddressType::Intranet,
                _ => AddressType::Internet,
            },
            ip_version: match text("AddressIPVersion").as_deref() {
                Some("ipv6") => IpVersion::Ipv6,
                _ => IpVersion::Ipv4,
            },
            subnet: text("VSwitchId"),
            zone: text("MasterZoneId"),
            resource_group: text("ResourceGroupId"),
        },
        internet: Internet {
            charge,
            bandwidth: if unlimited { 0 } else { bandwidth },
        },
        instance_charge: match text("InstanceChargeType").as_deref() {
            Some("PayByCLCU") => InstanceCharge::PayByUse,
            _ => InstanceCharge::PayBySpec,
        },
        spec: attributes.load_balancer_spec.unwrap_or_default(),
        delete_protection: attributes.delete_protection == "on",
        modification_protection: attributes.modification_protection_status == "ConsoleProtection",
        tags: tags_of(tags.unwrap_or_default()),
        id: LbId(attributes.load_balancer_id),
    })
}

fn tags_of(list: TagList) -> Tags {
    let tags = list.tags.into_iter();
    tags.map(|tag| (tag.tag_key, tag.tag_value)).collect()
}

pub(super) fn group(group: client::Group) -> Result<Group, Error> {
    let backends: Result<Vec<Backend>, Error> = group.backends().iter().map(backend).collect();
    Ok(Group {
        backends: backends?,
        id: GroupId(group.id),
        name: group.name,
        targets: None,
    })
}

fn backend(backend: &client::BackendServer) -> Result<Backend, Error> {
    let server = match backend.kind.as_str() {
        "ecs" => Server::Instance(backend.server_id.clone()),
        _ => {
            let address = backend.server_ip.parse();
            Server::Address(address.map_err(|_| unreadable("address", &backend.server_ip))?)
        }
    };
    Ok(Backend {
        server,
        port: backend.port,
        weight: backend.weight,
    })
}

/// Backends as a parameter. An address is sent as a network interface of the same name.
pub(super) fn backends(backends: &[Backend]) -> String {
    let backends = backends.iter().map(|backend| match &backend.server {
        Server::Instance(id) => json!({
            "ServerId": id,
            "Type": "ecs",
            "Port": backend.port,
            "Weight": backend.weight,
        }),
        Server::Address(address) => json!({
            "ServerId": address.to_string(),
            "ServerIp": address.to_string(),
            "Type": "eni",
            "Port": backend.port,
            "Weight": backend.weight,
        }),
    });
    Value::Array(backends.collect()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, code: &str, message: &str) -> Kind {
        error(client::Error::Refused {
            action: "X".to_owned(),
            status,
            code: code.to_owned(),
            message: message.to_owned(),
            request_id: "R".to_owned(),
        })
        .kind
    }

    #[test]
    fn codes_have_their_meaning() {
        let absent = "The specified resource does not exist.";
        for (status, code, message, kind) in [
            (404, "InvalidLoadBalancerId.NotFound", "", Kind::NotFound),
            (404, "InvalidAccessKeyId.NotFound", "", Kind::Denied),
            (400, "InvalidParameter", absent, Kind::NotFound),
            (
                400,
                "InvalidParameter",
                "The value is not valid.",
                Kind::Invalid,
            ),
            (400, "ServiceIsConfiguring", "", Kind::Busy),
            (400, "BackendServer.configuring", "", Kind::Busy),
            (400, "Throttling.User", "", Kind::Throttled),
            (400, "RspoolVipExist", "", Kind::InUse),
            (403, PROTECTED, "", Kind::Protected),
            (400, "ListenerAlreadyExists", "", Kind::Duplicate),
            (400, "IdempotentParameterMismatch", "", Kind::TokenReused),
            (400, "InstanceBackendServerNumberOverLimit", "", Kind::Quota),
            (400, "SignatureDoesNotMatch", "", Kind::Denied),
            (503, "ServiceUnavailable", "", Kind::Unavailable),
        ] {
            assert_eq!(refused(status, code, message), kind, "{code}");
        }
    }
}
