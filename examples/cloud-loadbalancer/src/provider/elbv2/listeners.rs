//! Listeners. Most of their settings in the model are those of their target groups in this API.

use std::time::Duration;

use super::query::Call;
use super::wire::{self, Attributes};
use super::xml::Element;
use super::{Elbv2, gone, present};
use crate::model::{
    GroupId, HealthCheck, LbId, Listener, ListenerKey, ListenerSettings, Probe, Protocol,
    Scheduler, Tags,
};
use crate::provider::{Error, Kind};

/// The affinity that the cloud's, which has no time, stands for: the default of Kubernetes.
pub(super) const AFFINITY: Duration = Duration::from_secs(10_800);
/// The tag with the name of the listener in the model.
const NAME_TAG: &str = "reeve.dev/listener";
/// The port and the path of kube-proxy's health, which says whether its node forwards traffic.
pub(super) const PROXY_PORT: u16 = 10_256;
const PROXY_PATH: &str = "/healthz";
/// The port of a check that means the target's own.
const OWN_PORT: &str = "traffic-port";

const DRAIN: &str = "deregistration_delay.timeout_seconds";
const CUT: &str = "deregistration_delay.connection_termination.enabled";
const PROXY_PROTOCOL: &str = "proxy_protocol_v2.enabled";
const STICKY: &str = "stickiness.enabled";
const STICKY_BY: &str = "stickiness.type";

/// The health check and the attributes of a target group.
type GroupSettings = (HealthCheck, Attributes);

/// A listener in a list. Its protocol is `None` if the controller does not have it.
struct Listed {
    arn: String,
    port: u16,
    protocol: Option<Protocol>,
    group: String,
    certificate: Option<String>,
}

// === impl Listed ===

impl Listed {
    fn key(&self) -> Option<ListenerKey> {
        let (port, protocol) = (self.port, self.protocol?);
        Some(ListenerKey { port, protocol })
    }
}

fn listed(member: Element<'_>) -> Result<Listed, Error> {
    let action = member.members("DefaultActions").next();
    // A forward to one group, or to several with weights, which the controller does not make.
    let group = action.map_or("", |action| action.text("TargetGroupArn"));
    let weighted = action.and_then(|action| action.child("ForwardConfig"));
    let weighted = weighted.and_then(|config| config.members("TargetGroups").next());
    let weighted = weighted.map_or("", |group| group.text("TargetGroupArn"));
    let certificate = member.members("Certificates").next();
    let certificate = certificate.map_or("", |one| one.text("CertificateArn"));
    Ok(Listed {
        arn: member.needed("ListenerArn")?.to_owned(),
        port: member.value("Port")?,
        protocol: match member.text("Protocol") {
            "TCP" => Some(Protocol::Tcp),
            "UDP" => Some(Protocol::Udp),
            "TLS" => Some(Protocol::Https),
            _ => None,
        },
        group: if group.is_empty() { weighted } else { group }.to_owned(),
        certificate: Some(certificate.to_owned()).filter(|arn| !arn.is_empty()),
    })
}

/// The health check of a target group.
fn health_check(member: Element<'_>) -> Result<HealthCheck, Error> {
    let seconds = |name| member.value(name).map(Duration::from_secs);
    let path = || member.text("HealthCheckPath").to_owned();
    Ok(HealthCheck {
        probe: match member.text("HealthCheckProtocol") {
            "TCP" => Probe::Tcp,
            _ => Probe::Http { path: path() },
        },
        port: match member.text("HealthCheckPort") {
            OWN_PORT | "" => None,
            _ => Some(member.value("HealthCheckPort")?),
        },
        interval: seconds("HealthCheckIntervalSeconds")?,
        timeout: seconds("HealthCheckTimeoutSeconds")?,
        healthy: member.value("HealthyThresholdCount")?,
        unhealthy: member.value("UnhealthyThresholdCount")?,
    })
}

/// The health check as the cloud has it: none has packets of UDP.
fn to_cloud(check: &HealthCheck) -> HealthCheck {
    match check.probe {
        Probe::Udp => HealthCheck {
            probe: Probe::Http {
                path: PROXY_PATH.to_owned(),
            },
            port: Some(check.port.unwrap_or(PROXY_PORT)),
            ..check.clone()
        },
        _ => check.clone(),
    }
}

fn from_cloud(protocol: Protocol, mut check: HealthCheck) -> HealthCheck {
    let of_proxy = matches!(&check.probe, Probe::Http { path } if path == PROXY_PATH);
    if protocol == Protocol::Udp && of_proxy {
        check.probe = Probe::Udp;
        check.port = check.port.filter(|port| *port != PROXY_PORT);
    }
    check
}

fn health_check_call(group: &GroupId, check: &HealthCheck) -> Call {
    let check = to_cloud(check);
    let call = Call::new("ModifyTargetGroup").with("TargetGroupArn", group);
    let call = match &check.probe {
        Probe::Http { path } => call
            .with("HealthCheckProtocol", "HTTP")
            .with("HealthCheckPath", path),
        Probe::Tcp | Probe::Udp => call.with("HealthCheckProtocol", "TCP"),
    };
    let port = check.port.map(|port| port.to_string());
    call.with("HealthCheckPort", port.as_deref().unwrap_or(OWN_PORT))
        .with("HealthCheckIntervalSeconds", check.interval.as_secs())
        .with("HealthCheckTimeoutSeconds", check.timeout.as_secs())
        .with("HealthyThresholdCount", check.healthy)
        .with("UnhealthyThresholdCount", check.unhealthy)
}

fn attributes_call(settings: &ListenerSettings) -> Call {
    let drain = settings.drain.unwrap_or_default().as_secs();
    Call::new("ModifyTargetGroupAttributes")
        .with("TargetGroupArn", &settings.group)
        .with_attributes(&[
            (DRAIN, drain.to_string()),
            (CUT, true.to_string()),
            (PROXY_PROTOCOL, settings.proxy_protocol.to_string()),
            (STICKY, settings.affinity.is_some().to_string()),
            (STICKY_BY, "source_ip".to_owned()),
        ])
}

fn name_tag(name: &str) -> Tags {
    [(NAME_TAG.to_owned(), name.to_owned())].into()
}

/// Refuses what the cloud cannot express. It would be open to more clients, or speak another protocol.
fn check_settings(key: ListenerKey, settings: &ListenerSettings) -> Result<&'static str, Error> {
    if !settings.sources.is_empty() {
        return Err(wire::unsupported("a limit to some sources"));
    }
    match key.protocol {
        Protocol::Tcp => Ok("TCP"),
        Protocol::Udp => Ok("UDP"),
        Protocol::Https => Ok("TLS"),
        Protocol::Http => Err(wire::unsupported("HTTP")),
    }
}

fn with_target(call: Call, settings: &ListenerSettings) -> Call {
    let call = call
        .with("DefaultActions.member.1.Type", "forward")
        .with("DefaultActions.member.1.TargetGroupArn", &settings.group);
    match &settings.certificate {
        Some(certificate) => call.with("Certificates.member.1.CertificateArn", certificate),
        None => call,
    }
}

// === impl Elbv2 ===

impl Elbv2 {
    async fn listed(&self, arn: &str) -> Result<Vec<Listed>, Error> {
        let call = Call::new("DescribeListeners").with("LoadBalancerArn", arn);
        self.pages(call, "Listeners", listed).await
    }

    pub(super) async fn listeners_of(&self, id: &LbId) -> Result<Vec<Listener>, Error> {
        let listed = self.listed(&self.arn(id).await?).await?;
        let mut tags = self.tags(listed.iter().map(|one| one.arn.as_str())).await?;
        let mut listeners = Vec::new();
        for one in listed {
            let (Some(key), Some(mut tags)) = (one.key(), tags.remove(&one.arn)) else {
                continue;
            };
            let group = if one.group.is_empty() {
                None
            } else {
                self.group_settings(&one.group).await?
            };
            let name = tags.remove(NAME_TAG).unwrap_or_default();
            listeners.push(Listener {
                key,
                settings: settings(key, name, one, group),
                domains: Default::default(),
                running: true,
            });
        }
        Ok(listeners)
    }

    /// The settings of a target group; `None` if it is gone.
    async fn group_settings(&self, group: &str) -> Result<Option<GroupSettings>, Error> {
        let call = Call::new("DescribeTargetGroups").with_all("TargetGroupArns", [group]);
        let check = present(self.pages(call, "TargetGroups", health_check).await)?;
        let check = check.into_iter().flatten().next();
        let call = Call::new("DescribeTargetGroupAttributes").with("TargetGroupArn", group);
        let attributes = present(self.client.call(call, wire::attributes).await)?;
        Ok(check.zip(attributes))
    }

    /// Sets what the target group has of the settings.
    async fn set_group(&self, settings: &ListenerSettings) -> Result<(), Error> {
        let check = health_check_call(&settings.group, &settings.health_check);
        self.client.run(check).await?;
        self.client.run(attributes_call(settings)).await
    }

    /// The port is searched first: a cloud with two listeners at one port exists.
    pub(super) async fn create_one_listener(
        &self,
        id: &LbId,
        key: ListenerKey,
        settings: &ListenerSettings,
    ) -> Result<(), Error> {
        let protocol = check_settings(key, settings)?;
        let arn = self.arn(id).await?;
        if self
            .listed(&arn)
            .await?
            .iter()
            .any(|one| one.port == key.port)
        {
            let message = format!("there is a listener at port {}", key.port);
            return Err(Error::new(Kind::Duplicate, "DuplicateListener", message));
        }
        self.set_group(settings).await?;
        let call = Call::new("CreateListener")
            .with("LoadBalancerArn", arn)
            .with("Protocol", protocol)
            .with("Port", key.port);
        let call = with_target(call, settings).with_tags(&name_tag(&settings.name));
        self.client.run(call).await
    }

    /// The name goes last: until then a listener of others stays one.
    pub(super) async fn set_one_listener(
        &self,
        id: &LbId,
        key: ListenerKey,
        settings: &ListenerSettings,
    ) -> Result<(), Error> {
        check_settings(key, settings)?;
        let all = self.listed(&self.arn(id).await?).await?;
        let Some(found) = all.iter().find(|one| one.key() == Some(key)) else {
            let message = format!("there is no listener {key}");
            return Err(Error::new(Kind::NotFound, "ListenerNotFound", message));
        };
        self.set_group(settings).await?;
        let call = Call::new("ModifyListener").with("ListenerArn", &found.arn);
        self.client.run(with_target(call, settings)).await?;
        self.tag_resource(&found.arn, &name_tag(&settings.name))
            .await
    }

    pub(super) async fn delete_listeners_at(
        &self,
        id: &LbId,
        key: ListenerKey,
    ) -> Result<(), Error> {
        let Some(arn) = present(self.arn(id).await)? else {
            return Ok(());
        };
        self.delete_listeners(&arn, |one| one == Some(key)).await
    }

    /// Deletes the listeners of a load balancer whose keys are `of`.
    pub(super) async fn delete_listeners(
        &self,
        arn: &str,
        of: impl Fn(Option<ListenerKey>) -> bool,
    ) -> Result<(), Error> {
        let all = present(self.listed(arn).await)?;
        for one in all.into_iter().flatten().filter(|one| of(one.key())) {
            let call = Call::new("DeleteListener").with("ListenerArn", one.arn);
            gone(self.client.run(call).await)?;
        }
        Ok(())
    }
}

/// The settings of a listener. One without a group, made by hand, has no health check.
fn settings(
    key: ListenerKey,
    name: String,
    listed: Listed,
    group: Option<GroupSettings>,
) -> ListenerSettings {
    let none = HealthCheck {
        probe: Probe::Tcp,
        port: None,
        interval: Duration::ZERO,
        timeout: Duration::ZERO,
        healthy: 0,
        unhealthy: 0,
    };
    let (check, attributes) = group.unwrap_or((none, Attributes::new()));
    let is_on = |name: &str| attributes.get(name).is_some_and(|value| value == "true");
    let drain = attributes.get(DRAIN).and_then(|text| text.parse().ok());
    let drain = drain.map(Duration::from_secs);
    ListenerSettings {
        name,
        group: GroupId(listed.group),
        scheduler: Scheduler::default(),
        affinity: is_on(STICKY).then_some(AFFINITY),
        sources: Vec::new(),
        health_check: from_cloud(key.protocol, check),
        drain: drain.filter(|drain| !drain.is_zero()),
        proxy_protocol: is_on(PROXY_PROTOCOL),
        certificate: listed.certificate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::elbv2::xml;

    const TCP: ListenerKey = ListenerKey {
        port: 80,
        protocol: Protocol::Tcp,
    };

    fn wanted() -> ListenerSettings {
        ListenerSettings {
            name: "k8s/80/tcp/u/c".to_owned(),
            group: GroupId("g".to_owned()),
            scheduler: Scheduler::Wrr,
            affinity: None,
            sources: Vec::new(),
            health_check: HealthCheck {
                probe: Probe::Tcp,
                port: None,
                interval: Duration::from_secs(5),
                timeout: Duration::from_secs(5),
                healthy: 3,
                unhealthy: 4,
            },
            drain: None,
            proxy_protocol: false,
            certificate: None,
        }
    }

    fn parameters(call: &Call) -> String {
        let form = call.form();
        form.split_once("TargetGroupArn=g&").unwrap().1.to_owned()
    }

    #[test]
    fn each_probe_has_its_parameters() {
        let path = |path: &str| Probe::Http {
            path: path.to_owned(),
        };
        for (probe, port, begin) in [
            (
                Probe::Tcp,
                None,
                "HealthCheckProtocol=TCP&HealthCheckPort=traffic-port&",
            ),
            (
                path("/live"),
                Some(32_000),
                "HealthCheckProtocol=HTTP&HealthCheckPath=%2Flive&HealthCheckPort=32000&",
            ),
            (
                Probe::Udp,
                None,
                "HealthCheckProtocol=HTTP&HealthCheckPath=%2Fhealthz&HealthCheckPort=10256&",
            ),
            (
                Probe::Udp,
                Some(32_000),
                "HealthCheckProtocol=HTTP&HealthCheckPath=%2Fhealthz&HealthCheckPort=32000&",
            ),
        ] {
            let mut settings = wanted();
            settings.health_check.probe = probe;
            settings.health_check.port = port;
            let call = health_check_call(&settings.group, &settings.health_check);
            let rest = "HealthCheckIntervalSeconds=5&HealthCheckTimeoutSeconds=5&\
                        HealthyThresholdCount=3&UnhealthyThresholdCount=4";
            assert_eq!(parameters(&call), format!("{begin}{rest}"));
        }
    }

    #[test]
    fn the_check_of_a_udp_port_is_read_as_it_was_written() {
        for port in [None, Some(32_000)] {
            let mut check = wanted().health_check;
            (check.probe, check.port) = (Probe::Udp, port);
            assert_eq!(from_cloud(Protocol::Udp, to_cloud(&check)), check);
            // At a TCP port it is what it looks like.
            assert_ne!(from_cloud(Protocol::Tcp, to_cloud(&check)), check);
        }
        // The port of kube-proxy is none of its own, and is wanted as that.
        let mut check = wanted().health_check;
        (check.probe, check.port) = (Probe::Udp, Some(PROXY_PORT));
        let check = super::super::health_check(&check);
        assert_eq!(from_cloud(Protocol::Udp, to_cloud(&check)), check);
    }

    #[test]
    fn draining_affinity_and_proxy_protocol_are_attributes_of_the_group() {
        let off = "Attributes.member.1.Key=deregistration_delay.timeout_seconds&Attributes.member.1.Value=0&\
             Attributes.member.2.Key=deregistration_delay.connection_termination.enabled&\
             Attributes.member.2.Value=true&\
             Attributes.member.3.Key=proxy_protocol_v2.enabled&Attributes.member.3.Value=false&\
             Attributes.member.4.Key=stickiness.enabled&Attributes.member.4.Value=false&\
             Attributes.member.5.Key=stickiness.type&Attributes.member.5.Value=source_ip";
        assert_eq!(parameters(&attributes_call(&wanted())), off);
        let on = ListenerSettings {
            drain: Some(Duration::from_secs(30)),
            affinity: Some(AFFINITY),
            proxy_protocol: true,
            ..wanted()
        };
        let set = parameters(&attributes_call(&on));
        for part in ["1.Value=30", "3.Value=true", "4.Value=true"] {
            assert!(set.contains(part), "{set}");
        }
    }

    #[test]
    fn what_a_listener_cannot_have_is_refused() {
        let mut limited = wanted();
        limited.sources = vec!["10.0.0.0/8".parse().unwrap()];
        let http = ListenerKey {
            protocol: Protocol::Http,
            ..TCP
        };
        for (key, settings) in [(TCP, &limited), (http, &wanted())] {
            let error = check_settings(key, settings).unwrap_err();
            assert_eq!(error.kind, Kind::Invalid);
        }
    }

    #[test]
    fn listeners_of_others_are_read_too() {
        let read = |rest: &str| {
            let text =
                format!("<member><ListenerArn>l</ListenerArn><Port>80</Port>{rest}</member>");
            xml::read(&text, listed).unwrap()
        };
        let bare = read("<Protocol>TCP_UDP</Protocol>");
        assert_eq!((bare.key(), bare.group.as_str()), (None, ""));
        let weighted = read(
            "<Protocol>TLS</Protocol><DefaultActions><member><Type>forward</Type><ForwardConfig>\
             <TargetGroups><member><TargetGroupArn>g-1</TargetGroupArn></member>\
             <member><TargetGroupArn>g-2</TargetGroupArn></member></TargetGroups></ForwardConfig>\
             </member></DefaultActions><Certificates><member><CertificateArn>c</CertificateArn>\
             </member></Certificates>",
        );
        let https = ListenerKey {
            protocol: Protocol::Https,
            ..TCP
        };
        assert_eq!(weighted.key(), Some(https));
        assert_eq!(
            (weighted.group.as_str(), weighted.certificate.as_deref()),
            ("g-1", Some("c"))
        );
    }
}
