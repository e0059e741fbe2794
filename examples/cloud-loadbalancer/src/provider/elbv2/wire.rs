//! The model as the API writes it, and its errors as the controller reads them.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::names;
use super::xml::{self, Element};
use crate::model::{
    Address, AddressType, Backend, Fixed, InstanceCharge, Internet, IpVersion, LbId, LoadBalancer,
    Server, State, Tags, TrafficCharge,
};
use crate::provider::{Error, Kind};

/// The code of a refusal to delete what is protected.
pub(super) const PROTECTED: &str = "OperationNotPermitted";
/// The code of a refusal of what the API cannot express.
const UNSUPPORTED: &str = "Unsupported";
/// The attribute of a load balancer that refuses its deletion.
pub(super) const DELETE_PROTECTION: &str = "deletion_protection.enabled";
/// The weight of every target: the API has none.
const WEIGHT: u8 = 100;

/// Attributes by name.
pub(super) type Attributes = BTreeMap<String, String>;

/// A load balancer in a list, without its tags and attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) arn: String,
    pub(super) id: LbId,
    name: String,
    host: String,
    internet: bool,
    state: String,
    subnets: Vec<String>,
}

/// The error that an answer with this status and text is.
pub(super) fn refusal(status: u16, text: &str) -> Error {
    let read = xml::read(text, |root| {
        let error = root.child("Error").unwrap_or(root);
        let code = error.needed("Code")?.to_owned();
        let id = [root.text("RequestId"), root.text("RequestID")].concat();
        Ok((code, error.text("Message").to_owned(), id))
    });
    let Ok((code, message, id)) = read else {
        let start: String = text.chars().take(200).collect();
        let kind = match status {
            429 => Kind::Throttled,
            500.. => Kind::Unavailable,
            _ => Kind::Invalid,
        };
        let message = format!("the answer is not one of the API: {start}");
        return Error::new(kind, format!("Status{status}"), message);
    };
    let error = Error::new(kind(status, &code), code, message);
    if id.is_empty() {
        error
    } else {
        error.with_request_id(id)
    }
}

fn kind(status: u16, code: &str) -> Kind {
    let denied = [
        "AccessDenied",
        "AuthFailure",
        "ExpiredToken",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignature",
        "MissingAuthenticationToken",
        "NotAuthorized",
        "OptInRequired",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClient",
    ];
    match code {
        "RequestLimitExceeded" | "TooManyRequests" | "TooManyRequestsException" => Kind::Throttled,
        _ if code.starts_with("Throttling") || status == 429 => Kind::Throttled,
        _ if denied.iter().any(|one| code.starts_with(one)) => Kind::Denied,
        "PriorRequestNotComplete" => Kind::Busy,
        _ if status >= 500 => Kind::Unavailable,
        "LoadBalancerNotFound" | "TargetGroupNotFound" | "ListenerNotFound" => Kind::NotFound,
        "DuplicateLoadBalancerName" | "DuplicateListener" | "DuplicateTargetGroupName" => {
            Kind::Duplicate
        }
        "ResourceInUse" => Kind::InUse,
        PROTECTED => Kind::Protected,
        _ if code.starts_with("TooMany") || code.contains("LimitExceeded") => Kind::Quota,
        _ => Kind::Invalid,
    }
}

pub(super) fn unsupported(what: impl Display) -> Error {
    let message = format!("{what} is not supported by this cloud");
    Error::new(Kind::Invalid, UNSUPPORTED, message)
}

pub(super) fn unreadable(what: &str, value: impl Display) -> Error {
    let message = format!("the cloud's {what} cannot be read: {value}");
    Error::new(Kind::Unavailable, "Unreadable", message)
}

/// The load balancers of a list. Gateway load balancers are left out: they have no address, and no Service has one.
pub(super) fn summary(member: Element<'_>) -> Result<Option<Summary>, Error> {
    if member.text("Type") == "gateway" {
        return Ok(None);
    }
    one(member).map(Some)
}

fn one(member: Element<'_>) -> Result<Summary, Error> {
    let arn = member.needed("LoadBalancerArn")?;
    let id = names::id(arn).ok_or_else(|| unreadable("ARN", arn))?;
    let zones = member.members("AvailabilityZones");
    let mut subnets: Vec<_> = zones.map(|zone| zone.text("SubnetId").to_owned()).collect();
    subnets.sort();
    let state = member.child("State").map(|state| state.text("Code"));
    Ok(Summary {
        arn: arn.to_owned(),
        id,
        name: member.needed("LoadBalancerName")?.to_owned(),
        host: member.needed("DNSName")?.to_owned(),
        internet: member.text("Scheme") != "internal",
        state: state.unwrap_or_default().to_owned(),
        subnets,
    })
}

/// A load balancer as the controller sees it.
pub(super) fn balancer(summary: Summary, tags: Tags, attributes: &Attributes) -> LoadBalancer {
    LoadBalancer {
        id: summary.id,
        name: summary.name,
        state: match summary.state.as_str() {
            "active" | "active_impaired" => State::Active,
            // Its creation failed. It can be deleted.
            "failed" => State::Inactive,
            _ => State::Pending,
        },
        address: Address::Host(summary.host),
        fixed: Fixed {
            address_type: if summary.internet {
                AddressType::Internet
            } else {
                AddressType::Intranet
            },
            // One with both has targets of IPv4.
            ip_version: IpVersion::Ipv4,
            subnet: Some(summary.subnets.join(",")).filter(|subnets| !subnets.is_empty()),
            zone: None,
            resource_group: None,
        },
        // What the API does not have reads as what the model calls unlimited and by use.
        internet: Internet {
            charge: TrafficCharge::PayByTraffic,
            bandwidth: 0,
        },
        instance_charge: InstanceCharge::PayByUse,
        spec: String::new(),
        delete_protection: attributes
            .get(DELETE_PROTECTION)
            .is_some_and(|on| on == "true"),
        modification_protection: false,
        tags,
    }
}

/// A list of keys and values.
pub(super) fn pairs(element: Element<'_>, list: &str) -> Result<BTreeMap<String, String>, Error> {
    let members = element.members(list);
    members
        .map(|one| Ok((one.needed("Key")?.to_owned(), one.text("Value").to_owned())))
        .collect()
}

/// The attributes of a load balancer or a target group.
pub(super) fn attributes(result: Element<'_>) -> Result<Attributes, Error> {
    pairs(result, "Attributes")
}

/// The backend of a target; `None` for one that is on its way out.
pub(super) fn backend(member: Element<'_>) -> Result<Option<Backend>, Error> {
    let target = member.child("Target");
    let target = target.ok_or_else(|| unreadable("answer", "there is no Target"))?;
    let health = member.child("TargetHealth");
    let state = health.map_or("", |health| health.text("State"));
    let reason = health.map_or("", |health| health.text("Reason"));
    if state == "draining" || reason == "Target.NotRegistered" {
        return Ok(None);
    }
    let id = target.needed("Id")?;
    Ok(Some(Backend {
        server: match id.parse() {
            Ok(address) => Server::Address(address),
            Err(_) => Server::Instance(id.to_owned()),
        },
        port: target.value("Port")?,
        weight: WEIGHT,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: &str) -> String {
        format!(
            r#"<ErrorResponse xmlns="http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/"><Error>
               <Type>Sender</Type><Code>{code}</Code><Message>it is so</Message></Error>
               <RequestId>f9880f01</RequestId></ErrorResponse>"#
        )
    }

    #[test]
    fn codes_have_their_meaning() {
        for (status, code, kind) in [
            (400, "LoadBalancerNotFound", Kind::NotFound),
            (400, "TargetGroupNotFound", Kind::NotFound),
            (400, "ListenerNotFound", Kind::NotFound),
            (400, "DuplicateLoadBalancerName", Kind::Duplicate),
            (400, "DuplicateListener", Kind::Duplicate),
            (400, "DuplicateTargetGroupName", Kind::Duplicate),
            (400, "ResourceInUse", Kind::InUse),
            (400, "OperationNotPermitted", Kind::Protected),
            (400, "Throttling", Kind::Throttled),
            (503, "ThrottlingException", Kind::Throttled),
            (503, "RequestLimitExceeded", Kind::Throttled),
            (400, "TooManyTargetGroups", Kind::Quota),
            (403, "AccessDenied", Kind::Denied),
            (403, "SignatureDoesNotMatch", Kind::Denied),
            (403, "InvalidClientTokenId", Kind::Denied),
            (400, "ValidationError", Kind::Invalid),
            (400, "InvalidTarget", Kind::Invalid),
            (500, "InternalFailure", Kind::Unavailable),
            (503, "ServiceUnavailable", Kind::Unavailable),
        ] {
            let refusal = refusal(status, &error(code));
            assert_eq!(refusal.kind, kind, "{code}");
            assert_eq!(
                (refusal.code.as_str(), refusal.message.as_str()),
                (code, "it is so")
            );
            assert_eq!(refusal.request_id.as_deref(), Some("f9880f01"));
        }
    }

    #[test]
    fn an_answer_of_something_in_between_keeps_its_status() {
        for (status, kind) in [
            (404, Kind::Invalid),
            (429, Kind::Throttled),
            (502, Kind::Unavailable),
        ] {
            let refusal = refusal(status, "<html>bad gateway");
            assert_eq!(
                (refusal.kind, refusal.code),
                (kind, format!("Status{status}"))
            );
            assert!(refusal.message.contains("bad gateway"));
        }
    }

    fn member(text: &str) -> Result<Summary, Error> {
        let found = xml::read(&format!("<member>{text}</member>"), summary)?;
        Ok(found.expect("a network load balancer"))
    }

    #[test]
    fn a_gateway_load_balancer_of_the_account_is_left_out() {
        let text = format!("<member>{ARN}<Type>gateway</Type></member>");
        assert!(xml::read(&text, summary).unwrap().is_none());
    }

    const ARN: &str = "<LoadBalancerArn>arn:aws:elasticloadbalancing:r:1:loadbalancer/net/web/50dc</LoadBalancerArn>";

    #[test]
    fn a_load_balancer_is_read() {
        let text = format!(
            "{ARN}<LoadBalancerName>web</LoadBalancerName><DNSName>web-1.elb.example</DNSName>\
             <Scheme>internal</Scheme><IpAddressType>ipv4</IpAddressType>\
             <State><Code>provisioning</Code></State><AvailabilityZones>\
             <member><SubnetId>subnet-2</SubnetId></member>\
             <member><SubnetId>subnet-1</SubnetId></member></AvailabilityZones>"
        );
        let attributes = Attributes::from([(DELETE_PROTECTION.to_owned(), "true".to_owned())]);
        let balancer = balancer(member(&text).unwrap(), Tags::new(), &attributes);
        assert_eq!(balancer.id.0, "net.web.50dc");
        assert_eq!(
            balancer.address,
            Address::Host("web-1.elb.example".to_owned())
        );
        assert_eq!(balancer.state, State::Pending);
        assert_eq!(balancer.fixed.address_type, AddressType::Intranet);
        assert_eq!(balancer.fixed.subnet.as_deref(), Some("subnet-1,subnet-2"));
        assert!(balancer.delete_protection);
    }

    #[test]
    fn a_load_balancer_without_an_id_or_an_address_is_an_error() {
        let name = "<LoadBalancerName>web</LoadBalancerName>";
        let foreign = ARN.replace(":loadbalancer/net/web/50dc", ":listener/1");
        for text in [format!("{ARN}{name}"), name.to_owned(), foreign] {
            assert_eq!(member(&text).unwrap_err().code, "Unreadable", "{text}");
        }
    }

    #[test]
    fn targets_are_read_without_those_that_go() {
        let read = |id: &str, health: &str| {
            let text = format!(
                "<member><Target><Id>{id}</Id><Port>30080</Port></Target>\
                 <TargetHealth>{health}</TargetHealth></member>"
            );
            let backend = xml::read(&text, backend).unwrap();
            backend.map(|backend| backend.to_string())
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(read("i-1", "<State>healthy</State>"), text("i-1:30080=100"));
        assert_eq!(
            read("10.0.0.1", "<State>initial</State>"),
            text("10.0.0.1:30080=100")
        );
        assert_eq!(
            read("fd00::1", "<State>unhealthy</State>"),
            text("[fd00::1]:30080=100")
        );
        assert_eq!(read("i-1", "<State>draining</State>"), None);
        let gone = "<State>unused</State><Reason>Target.NotRegistered</Reason>";
        assert_eq!(read("i-1", gone), None);
        let idle = "<State>unused</State><Reason>Target.NotInUse</Reason>";
        assert_eq!(read("i-1", idle), text("i-1:30080=100"));
    }
}
