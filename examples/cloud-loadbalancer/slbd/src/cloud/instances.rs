//! Backends as they are sent: a JSON array in a parameter.

use std::net::Ipv4Addr;

use serde::Deserialize;
use serde_json::{Value, json};

use super::state::{Backend, Kind};
use super::{Context, Refusal, State};
use crate::parameters::Parameters;

/// The weight of a backend that names none.
const DEFAULT_WEIGHT: u8 = 100;
/// The longest id, and the longest description, of a backend, in bytes.
const LONGEST_TEXT: usize = 256;

/// A backend of a parameter. Numbers are sent as numbers or as text.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Sent {
    server_id: String,
    #[serde(default)]
    weight: Option<Value>,
    #[serde(default)]
    port: Option<Value>,
    #[serde(default, rename = "Type")]
    kind: Option<String>,
    #[serde(default)]
    server_ip: Option<String>,
    #[serde(default)]
    description: Option<String>,
}

/// Whether the backends of a call have ports of their own, as in a server group, or take that of the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ports {
    Own,
    Listener,
}

/// A backend to remove: an id, and what else the call names.
#[derive(Debug)]
pub(super) struct Key {
    server: String,
    address: Option<Ipv4Addr>,
    port: Option<u16>,
}

fn sent(context: Context<'_>, parameters: &Parameters, name: &str) -> Result<Vec<Sent>, Refusal> {
    let values: Vec<Value> =
        serde_json::from_str(parameters.required(name)?).map_err(|_| Refusal::invalid(name))?;
    let most = context.rules.backends_per_call;
    if values.len() > most {
        let code = "TooManyBackendServers";
        return Err(Refusal::quota(code, "backend servers in a call", most));
    }
    let values = values.into_iter().map(|value| match value {
        // The oldest form of a removal names ids only.
        Value::String(server_id) => Ok(Sent {
            server_id,
            weight: None,
            port: None,
            kind: None,
            server_ip: None,
            description: None,
        }),
        value => serde_json::from_value(value).map_err(|_| Refusal::invalid(name)),
    });
    values.collect()
}

/// The backends in the parameter `name`, of which no two are the same.
pub(super) fn parse(
    state: &State,
    context: Context<'_>,
    parameters: &Parameters,
    name: &str,
    ports: Ports,
) -> Result<Vec<Backend>, Refusal> {
    let sent = sent(context, parameters, name)?.into_iter();
    let backends: Result<Vec<Backend>, Refusal> =
        sent.map(|sent| backend(state, sent, name, ports)).collect();
    let backends = backends?;
    let twice = |(index, one): (usize, &Backend)| {
        backends[..index].iter().any(|other| other.same_place(one))
    };
    if backends.iter().enumerate().any(twice) {
        return Err(Refusal::invalid(name));
    }
    Ok(backends)
}

/// The backends to remove in the parameter `name`. In a server group each names its port.
pub(super) fn parse_keys(
    context: Context<'_>,
    parameters: &Parameters,
    name: &str,
    ports: Ports,
) -> Result<Vec<Key>, Refusal> {
    let sent = sent(context, parameters, name)?.into_iter();
    let keys = sent.map(|sent| {
        let port = match ports {
            Ports::Own => {
                let port = number(name, sent.port, 1, u16::MAX)?;
                Some(port.ok_or_else(|| Refusal::missing("Port"))?)
            }
            Ports::Listener => None,
        };
        let address = sent.server_ip.filter(|text| !text.is_empty());
        let address = address.map(|text| text.parse()).transpose();
        Ok(Key {
            server: sent.server_id,
            address: address.map_err(|_| Refusal::invalid("ServerIp"))?,
            port,
        })
    });
    keys.collect()
}

fn number(name: &str, value: Option<Value>, least: u16, most: u16) -> Result<Option<u16>, Refusal> {
    let number = match &value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(number)) => number.as_u64(),
        Some(Value::String(text)) => text.parse().ok(),
        Some(_) => None,
    };
    let number = number.and_then(|number| u16::try_from(number).ok());
    let number = number.filter(|number| (least..=most).contains(number));
    number.map(Some).ok_or_else(|| Refusal::invalid(name))
}

fn backend(state: &State, sent: Sent, name: &str, ports: Ports) -> Result<Backend, Refusal> {
    let description = sent.description.unwrap_or_default();
    if sent.server_id.len() > LONGEST_TEXT || description.len() > LONGEST_TEXT {
        return Err(Refusal::invalid(name));
    }
    let kind = match sent.kind.as_deref() {
        None | Some("") => Kind::Ecs,
        Some(kind) => Kind::named(kind).ok_or_else(|| Refusal::invalid(name))?,
    };
    let port = match ports {
        Ports::Own => {
            number(name, sent.port, 1, u16::MAX)?.ok_or_else(|| Refusal::missing("Port"))?
        }
        Ports::Listener => 0,
    };
    let weight = number(name, sent.weight, 0, 100)?;
    let weight = weight.map_or(Ok(DEFAULT_WEIGHT), u8::try_from);
    let address = match sent.server_ip.filter(|text| !text.is_empty()) {
        Some(text) => text.parse().map_err(|_| Refusal::invalid("ServerIp"))?,
        None => resolve(state, &sent.server_id, kind)?,
    };
    Ok(Backend {
        server: sent.server_id,
        kind,
        address,
        port,
        weight: weight.map_err(|_| Refusal::invalid(name))?,
        description,
    })
}

fn resolve(state: &State, id: &str, kind: Kind) -> Result<Ipv4Addr, Refusal> {
    if kind != Kind::Ecs {
        return Err(Refusal::missing("ServerIp"));
    }
    let address = state.instances.get(id).copied();
    address.ok_or_else(|| {
        let message = format!("The address of the instance {id} is not known.");
        Refusal::new(400, "ObtainIpFail", message)
    })
}

/// Merges `sent` into `backends`: a backend that is there keeps its weight if `keep`, and takes the sent one otherwise.
pub(super) fn merge(
    backends: &mut Vec<Backend>,
    sent: Vec<Backend>,
    keep: bool,
    most: usize,
) -> Result<(), Refusal> {
    for one in sent {
        match backends.iter_mut().find(|other| other.same_place(&one)) {
            Some(_) if keep => {}
            Some(other) => *other = one,
            None => backends.push(one),
        }
    }
    if backends.len() > most {
        let code = "InstanceBackendServerNumberOverLimit";
        return Err(Refusal::quota(code, "backend servers in a group", most));
    }
    Ok(())
}

/// The backends as an answer lists them.
pub(super) fn listed(backends: &[Backend]) -> Value {
    let backends: Vec<Value> = backends.iter().map(Backend::shown).collect();
    json!({ "BackendServer": backends })
}

// === impl Key ===

impl Key {
    pub(super) fn names(&self, backend: &Backend) -> bool {
        self.server == backend.server
            && self
                .address
                .is_none_or(|address| address == backend.address)
            && self.port.is_none_or(|port| port == backend.port)
    }
}

// === impl Backend ===

impl Backend {
    /// Whether both are the same backend: instance, address and port.
    #[must_use]
    pub fn same_place(&self, other: &Self) -> bool {
        (&self.server, self.address, self.port) == (&other.server, other.address, other.port)
    }

    fn shown(&self) -> Value {
        let mut shown = json!({
            "ServerId": self.server,
            "Type": self.kind.name(),
            "ServerIp": self.address,
            "Weight": self.weight,
            "Description": self.description,
        });
        if self.port != 0 {
            shown["Port"] = self.port.into();
        }
        shown
    }
}
