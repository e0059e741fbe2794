//! Listeners, and the access control lists of their sources.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::{Value, json};
use slbd::client;
use slbd::parameters::Parameters;

use super::{Slb, gone, on, wire};
use crate::model::{
    GroupId, HealthCheck, LbId, Listener, ListenerKey, ListenerSettings, Probe, Protocol, Scheduler,
};
use crate::provider::{Error, Kind};

/// The port of a health check that means the backend's own.
const OWN_PORT: &str = "-520";
/// Every class of status codes: any answer is a good one, as for a connection.
const ANY_CODE: &str = "http_2xx,http_3xx,http_4xx,http_5xx";
const GOOD_CODES: &str = "http_2xx,http_3xx";
/// The entries of one call.
const ENTRIES_PER_CALL: usize = 50;
/// The entries of one list.
const ENTRIES: usize = 300;

/// A call about a listener.
pub(super) fn about(action: &str, id: &LbId, key: ListenerKey) -> Parameters {
    on(action, id)
        .with("ListenerPort", key.port)
        .with("ListenerProtocol", key.protocol)
}

/// The begin of the names of all access control lists that this provider makes.
const LISTS: &str = "reeve.dev/sources/";

/// The name of the access control list of a listener. Those of a load balancer begin with [`list_prefix`].
fn list_name(id: &LbId, key: ListenerKey) -> String {
    format!("{}{}/{}", list_prefix(id), key.protocol, key.port)
}

/// The network of an entry, which may be one address.
fn network(entry: &str) -> Option<IpNet> {
    let address = || entry.parse::<IpAddr>().ok().map(IpNet::from);
    entry.parse().ok().or_else(address)
}

fn list_prefix(id: &LbId) -> String {
    format!("{LISTS}{id}/")
}

impl Slb {
    pub(super) async fn listeners_of(&self, id: &LbId) -> Result<Vec<Listener>, Error> {
        let listed = self.client.listeners(&id.0).await.map_err(wire::error)?;
        let mut listeners = Vec::new();
        for one in &listed {
            // A protocol that the controller does not have.
            let Some(protocol) = protocol(&one.listener_protocol) else {
                continue;
            };
            let key = ListenerKey {
                port: one.listener_port,
                protocol,
            };
            let sources = self.sources_of(one).await?;
            listeners.push(Listener {
                key,
                settings: settings(one, key, sources),
                domains: Default::default(),
                running: one.status == "running",
            });
        }
        Ok(listeners)
    }

    async fn sources_of(&self, listener: &client::Listener) -> Result<Vec<IpNet>, Error> {
        let setting = |name| setting(listener, name);
        // A list of refused sources, made by hand, cannot be expressed.
        let allowed = setting("AclStatus") == Some("on") && setting("AclType") == Some("white");
        let Some(list) = setting("AclId").filter(|_| allowed) else {
            return Ok(Vec::new());
        };
        let list = match self.client.access_list(list).await {
            Ok(list) => list,
            // The listener is deleted meanwhile, too.
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            Err(error) => return Err(wire::error(error)),
        };
        let mut sources = Vec::new();
        for entry in list.entries() {
            let network = network(&entry.network);
            sources.push(network.ok_or_else(|| wire::unreadable("network", &entry.network))?);
        }
        sources.sort();
        Ok(sources)
    }

    pub(super) async fn create_one_listener(
        &self,
        id: &LbId,
        key: ListenerKey,
        settings: &ListenerSettings,
    ) -> Result<(), Error> {
        let call = call("Create", "Listener", id, key, settings)?;
        let call = self.with_sources(call, id, key, &settings.sources).await?;
        self.run(call).await
    }

    pub(super) async fn set_one_listener(
        &self,
        id: &LbId,
        key: ListenerKey,
        settings: &ListenerSettings,
    ) -> Result<(), Error> {
        let call = call("Set", "ListenerAttribute", id, key, settings)?;
        let call = self.with_sources(call, id, key, &settings.sources).await?;
        self.run(call.with("VServerGroup", "on")).await?;
        if settings.sources.is_empty() {
            self.delete_list(&list_name(id, key)).await?;
        }
        Ok(())
    }

    pub(super) async fn delete_one_listener(
        &self,
        id: &LbId,
        key: ListenerKey,
    ) -> Result<(), Error> {
        let call = about("DeleteLoadBalancerListener", id, key);
        gone(self.run(call).await)?;
        self.delete_list(&list_name(id, key)).await
    }

    /// The call with the access control list of `sources`, which has these and no other.
    async fn with_sources(
        &self,
        call: Parameters,
        id: &LbId,
        key: ListenerKey,
        sources: &[IpNet],
    ) -> Result<Parameters, Error> {
        if sources.is_empty() {
            return Ok(call.with("AclStatus", "off"));
        }
        if sources.iter().any(|source| matches!(source, IpNet::V6(_))) {
            return Err(wire::unsupported("an IPv6 source"));
        }
        let list = self.fill_list(&list_name(id, key), sources).await?;
        Ok(call
            .with("AclStatus", "on")
            .with("AclType", "white")
            .with("AclId", list))
    }

    async fn lists(&self, name: &str) -> Result<Vec<client::AccessList>, Error> {
        let found = self.client.access_lists(name).await.map_err(wire::error)?;
        // The filter of the API may match parts.
        Ok(found.into_iter().filter(|list| list.name == name).collect())
    }

    /// The id of the list of that name, made if need be, with exactly `sources`: one that an interrupted call left has the
    /// sources of its time. Entries are added before others are removed, since an empty list allows all.
    async fn fill_list(&self, name: &str, sources: &[IpNet]) -> Result<String, Error> {
        #[derive(Deserialize)]
        struct Made {
            #[serde(rename = "AclId")]
            id: String,
        }
        let mut lists = self.lists(name).await?.into_iter();
        let (id, has) = match lists.next() {
            Some(list) => {
                let has = self.entries(&list.id).await?;
                (list.id, has)
            }
            None => {
                let call = Parameters::action("CreateAccessControlList").with("AclName", name);
                let made: Made = self.client.call(call).await.map_err(wire::error)?;
                (made.id, BTreeSet::new())
            }
        };
        let count = has.len();
        let missing = sources.iter().filter(|source| !has.contains(source));
        let missing: Vec<IpNet> = missing.copied().collect();
        let others = has.into_iter().filter(|source| !sources.contains(source));
        let others: Vec<IpNet> = others.collect();
        // In turn, and where the list would be too long in the other order, so that a full list is replaced as well.
        let mut missing = missing.chunks(ENTRIES_PER_CALL);
        let mut others = others.chunks(ENTRIES_PER_CALL);
        let mut count = count;
        loop {
            let (more, fewer) = (missing.next(), others.next());
            let (more_len, fewer_len) = (more.map_or(0, <[_]>::len), fewer.map_or(0, <[_]>::len));
            // Some entries stay: an empty list allows all.
            let makes_room = count + more_len > ENTRIES && fewer_len < count;
            if let Some(fewer) = fewer.filter(|_| makes_room) {
                self.change_entries("RemoveAccessControlListEntry", &id, fewer)
                    .await?;
            }
            count = count + more_len - fewer_len;
            if let Some(more) = more {
                self.change_entries("AddAccessControlListEntry", &id, more)
                    .await?;
            }
            if let Some(fewer) = fewer.filter(|_| !makes_room) {
                self.change_entries("RemoveAccessControlListEntry", &id, fewer)
                    .await?;
            }
            if more.is_none() && fewer.is_none() {
                return Ok(id);
            }
        }
    }

    async fn entries(&self, id: &str) -> Result<BTreeSet<IpNet>, Error> {
        let list = self.client.access_list(id).await.map_err(wire::error)?;
        let entries = list.entries().iter();
        Ok(entries
            .filter_map(|entry| network(&entry.network))
            .collect())
    }

    async fn change_entries(&self, action: &str, id: &str, entries: &[IpNet]) -> Result<(), Error> {
        let entries = entries.iter().map(|network| json!({ "entry": network }));
        let call = Parameters::action(action)
            .with("AclId", id)
            .with("AclEntrys", Value::Array(entries.collect()));
        self.run(call).await
    }

    async fn delete_list(&self, name: &str) -> Result<(), Error> {
        for list in self.lists(name).await? {
            self.delete_list_by_id(&list.id).await?;
        }
        Ok(())
    }

    async fn delete_list_by_id(&self, id: &str) -> Result<(), Error> {
        let call = Parameters::action("DeleteAccessControlList").with("AclId", id);
        gone(self.run(call).await)
    }

    /// The access control lists of this provider that no listener uses: of a listener that was not created, or was deleted,
    /// by a call that was interrupted, and of load balancers that were deleted by hand.
    pub(super) async fn unused_lists(&self) -> Result<Vec<String>, Error> {
        let mut lists = self.client.access_lists("").await.map_err(wire::error)?;
        lists.retain(|list| list.name.starts_with(LISTS));
        if lists.is_empty() {
            return Ok(Vec::new());
        }
        let listeners = self.client.all_listeners().await.map_err(wire::error)?;
        let used: BTreeSet<&str> = listeners
            .iter()
            .filter_map(|one| setting(one, "AclId"))
            .collect();
        let unused = lists.into_iter().filter(|list| !used.contains(&*list.id));
        Ok(unused.map(|list| list.id).collect())
    }

    /// Deletes a list, unless a listener uses it by now.
    pub(super) async fn delete_unused_list(&self, id: &str) -> Result<(), Error> {
        match self.delete_list_by_id(id).await {
            Err(error) if error.kind == Kind::InUse => Ok(()),
            result => result,
        }
    }

    /// Deletes the lists of a load balancer, each after its listener.
    pub(super) async fn delete_access_lists(&self, id: &LbId) -> Result<(), Error> {
        let all = self.client.access_lists("").await.map_err(wire::error)?;
        let prefix = list_prefix(id);
        for list in all.iter().filter(|list| list.name.starts_with(&prefix)) {
            let rest = list.name[prefix.len()..].split_once('/');
            let key = rest.and_then(|(name, port)| {
                let (protocol, port) = (protocol(name)?, port.parse().ok()?);
                Some(ListenerKey { port, protocol })
            });
            if let Some(key) = key {
                gone(self.run(about("DeleteLoadBalancerListener", id, key)).await)?;
            }
            self.delete_list_by_id(&list.id).await?;
        }
        Ok(())
    }
}

fn protocol(name: &str) -> Option<Protocol> {
    match name {
        "tcp" => Some(Protocol::Tcp),
        "udp" => Some(Protocol::Udp),
        "http" => Some(Protocol::Http),
        _ => None,
    }
}

/// The call that creates or sets a listener.
fn call(
    verb: &str,
    noun: &str,
    id: &LbId,
    key: ListenerKey,
    settings: &ListenerSettings,
) -> Result<Parameters, Error> {
    let protocol = match key.protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Http => "HTTP",
        Protocol::Https => return Err(wire::unsupported("HTTPS")),
    };
    let mut call = on(&format!("{verb}LoadBalancer{protocol}{noun}"), id)
        .with("ListenerPort", key.port)
        .with("VServerGroupId", &settings.group)
        .with("Description", &settings.name)
        .with("Bandwidth", -1);
    call.set(
        "Scheduler",
        match settings.scheduler {
            Scheduler::Wrr => "wrr",
            Scheduler::Rr => "rr",
            Scheduler::Wlc => "wlc",
        },
    );
    set_affinity(&mut call, key, settings.affinity);
    set_health_check(&mut call, key, &settings.health_check)?;
    let http = key.protocol == Protocol::Http;
    if http && settings.drain.is_some() {
        return Err(wire::unsupported("connection draining at an HTTP listener"));
    }
    if http && settings.proxy_protocol {
        return Err(wire::unsupported("the PROXY protocol at an HTTP listener"));
    }
    if !http {
        call.set("ConnectionDrain", wire::switch(settings.drain.is_some()));
        if let Some(drain) = settings.drain {
            call.set("ConnectionDrainTimeout", drain.as_secs());
        }
        call.set("ProxyProtocolV2Enabled", settings.proxy_protocol);
    }
    Ok(call)
}

fn set_affinity(call: &mut Parameters, key: ListenerKey, affinity: Option<Duration>) {
    if key.protocol == Protocol::Http {
        call.set("StickySession", wire::switch(affinity.is_some()));
        if let Some(affinity) = affinity {
            call.set("StickySessionType", "insert");
            call.set("CookieTimeout", affinity.as_secs());
        }
    } else {
        let affinity = affinity.unwrap_or_default();
        call.set("PersistenceTimeout", affinity.as_secs());
    }
}

fn set_health_check(
    call: &mut Parameters,
    key: ListenerKey,
    check: &HealthCheck,
) -> Result<(), Error> {
    let http = key.protocol == Protocol::Http;
    match (key.protocol, &check.probe) {
        (Protocol::Udp, Probe::Udp) => {}
        (Protocol::Tcp, Probe::Tcp) => call.set("HealthCheckType", "tcp"),
        (Protocol::Tcp, Probe::Http { path }) => {
            call.set("HealthCheckType", "http");
            call.set("HealthCheckURI", path);
            call.set("HealthCheckHttpCode", GOOD_CODES);
        }
        (Protocol::Http, Probe::Http { path }) => {
            call.set("HealthCheckURI", path);
            call.set("HealthCheckHttpCode", GOOD_CODES);
        }
        (Protocol::Http, Probe::Tcp) => {
            call.set("HealthCheckURI", "/");
            call.set("HealthCheckHttpCode", ANY_CODE);
        }
        (_, probe) => return Err(wire::unsupported(&format!("{probe:?} at {key}"))),
    }
    let (switch, timeout) = if http {
        ("HealthCheck", "HealthCheckTimeout")
    } else {
        ("HealthCheckSwitch", "HealthCheckConnectTimeout")
    };
    call.set(switch, "on");
    call.set(timeout, check.timeout.as_secs());
    call.set("HealthCheckInterval", check.interval.as_secs());
    call.set("HealthyThreshold", check.healthy);
    call.set("UnhealthyThreshold", check.unhealthy);
    match check.port {
        Some(port) => call.set("HealthCheckConnectPort", port),
        None => call.set("HealthCheckConnectPort", OWN_PORT),
    }
    Ok(())
}

/// A setting of a listener, general or of its protocol.
fn value<'a>(listener: &'a client::Listener, name: &str) -> Option<&'a Value> {
    let own = format!(
        "{}ListenerConfig",
        listener.listener_protocol.to_uppercase()
    );
    let own = listener.other.get(&own).and_then(|own| own.get(name));
    own.or_else(|| listener.other.get(name))
}

fn setting<'a>(listener: &'a client::Listener, name: &str) -> Option<&'a str> {
    value(listener, name).and_then(Value::as_str)
}

fn settings(
    listener: &client::Listener,
    key: ListenerKey,
    sources: Vec<IpNet>,
) -> ListenerSettings {
    let text = |name| setting(listener, name);
    let number = |name| value(listener, name).and_then(Value::as_u64);
    let seconds = |name| number(name).map(Duration::from_secs);
    let small = |name| number(name).and_then(|number| u8::try_from(number).ok());
    let http = key.protocol == Protocol::Http;
    let affinity = if http {
        seconds("CookieTimeout").filter(|_| text("StickySession") == Some("on"))
    } else {
        seconds("PersistenceTimeout").filter(|affinity| !affinity.is_zero())
    };
    let path = || text("HealthCheckURI").unwrap_or("/").to_owned();
    let probe = match key.protocol {
        Protocol::Udp => Probe::Udp,
        Protocol::Http if text("HealthCheckHttpCode") == Some(ANY_CODE) => Probe::Tcp,
        Protocol::Tcp if text("HealthCheckType") != Some("http") => Probe::Tcp,
        _ => Probe::Http { path: path() },
    };
    let timeout = if http {
        "HealthCheckTimeout"
    } else {
        "HealthCheckConnectTimeout"
    };
    let check_port = number("HealthCheckConnectPort");
    ListenerSettings {
        name: text("Description").unwrap_or_default().to_owned(),
        group: GroupId(listener.group.clone().unwrap_or_default()),
        scheduler: match text("Scheduler") {
            Some("rr") => Scheduler::Rr,
            Some("wlc") => Scheduler::Wlc,
            _ => Scheduler::Wrr,
        },
        affinity,
        sources,
        health_check: HealthCheck {
            probe,
            port: check_port.and_then(|port| u16::try_from(port).ok()),
            interval: seconds("HealthCheckInterval").unwrap_or_default(),
            timeout: seconds(timeout).unwrap_or_default(),
            healthy: small("HealthyThreshold").unwrap_or_default(),
            unhealthy: small("UnhealthyThreshold").unwrap_or_default(),
        },
        drain: seconds("ConnectionDrainTimeout").filter(|_| text("ConnectionDrain") == Some("on")),
        proxy_protocol: text("ProxyProtocolV2Enabled") == Some("true"),
        certificate: None,
    }
}
