//! The versions of one kind, and the two ways of each: to the hub and from it.

use std::any::Any;
use std::fmt::Display;
use std::sync::Arc;

use kube_core::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// An object of the hub's type.
type Hub = Box<dyn Any + Send>;

type Read = Arc<dyn Fn(&str) -> Result<Hub, Problem> + Send + Sync>;
type Write = Arc<dyn Fn(Hub) -> Result<Value, Problem> + Send + Sync>;

/// The reason why an object was not converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The object is not one of its version.
    #[error("the object cannot be read: {0}")]
    Unreadable(String),
    /// The conversion function refused the object.
    #[error("{0}")]
    Refused(String),
    /// The converted object cannot be written.
    #[error("the converted object cannot be encoded: {0}")]
    Encode(String),
}

/// A version of a kind.
#[derive(Clone)]
pub(super) struct Version {
    pub(super) name: String,
    pub(super) read: Read,
    pub(super) write: Write,
}

// === impl Version ===

impl Version {
    /// The version that all others convert to.
    pub(super) fn hub<H: Convertible>() -> Self {
        Self {
            name: H::version(&()).into_owned(),
            read: Arc::new(|text| Ok(Box::new(read::<H>(text)?))),
            write: Arc::new(|hub| write(&unboxed::<H>(hub)?)),
        }
    }

    pub(super) fn spoke<H, K, To, From, E1, E2>(to: To, from: From) -> Self
    where
        H: Convertible,
        K: Convertible,
        To: Fn(K) -> Result<H, E1> + Send + Sync + 'static,
        From: Fn(H) -> Result<K, E2> + Send + Sync + 'static,
        E1: Display,
        E2: Display,
    {
        let refused = |error: &dyn Display| Problem::Refused(error.to_string());
        Self {
            name: K::version(&()).into_owned(),
            read: Arc::new(move |text| {
                let hub = to(read::<K>(text)?).map_err(|error| refused(&error))?;
                Ok(Box::new(hub))
            }),
            write: Arc::new(move |hub| {
                let object = from(unboxed::<H>(hub)?).map_err(|error| refused(&error))?;
                write(&object)
            }),
        }
    }
}

/// A type of objects in one version: what `kube-derive` makes, for example. Every type that fits implements it.
pub trait Convertible:
    Resource<DynamicType = ()> + DeserializeOwned + Serialize + Send + 'static
{
}

impl<K> Convertible for K where
    K: Resource<DynamicType = ()> + DeserializeOwned + Serialize + Send + 'static
{
}

fn read<K: DeserializeOwned>(text: &str) -> Result<K, Problem> {
    serde_json::from_str(text).map_err(|error| Problem::Unreadable(error.to_string()))
}

fn unboxed<H: 'static>(hub: Hub) -> Result<H, Problem> {
    // `Conversion` has one hub, whose type every version was made with.
    let hub = hub.downcast::<H>();
    hub.map(|hub| *hub)
        .map_err(|_| Problem::Refused("another hub's object".to_owned()))
}

/// The object as JSON, with its version and kind.
fn write<K: Convertible>(object: &K) -> Result<Value, Problem> {
    let value = serde_json::to_value(object);
    let value = value.map_err(|error| Problem::Encode(error.to_string()))?;
    let Value::Object(fields) = value else {
        return Err(Problem::Encode("it is not a JSON object".to_owned()));
    };
    let mut whole = Map::new();
    whole.insert("apiVersion".into(), K::api_version(&()).into_owned().into());
    whole.insert("kind".into(), K::kind(&()).into_owned().into());
    for (name, value) in fields {
        whole.insert(name, value);
    }
    Ok(Value::Object(whole))
}
