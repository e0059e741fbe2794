//! The kinds that the canned server serves, as the Rust peers see them.

mod ipblock;

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube_client::{Client, Config};
use kube_core::metadata::PartialObjectMeta;
use kube_core::{ApiResource, DynamicObject, Resource, ResourceExt};

pub use ipblock::{IpBlock, IpBlockSpec, IpBlockStatus};

/// An object of the bench.
pub trait Object {
    /// When the server wrote it, in microseconds since 1970; `None` if this form does not contain it.
    fn stamp(&self) -> Option<u64>;
}

impl Object for ConfigMap {
    fn stamp(&self) -> Option<u64> {
        self.data.as_ref()?.get("ts")?.parse().ok()
    }
}

impl Object for Pod {
    fn stamp(&self) -> Option<u64> {
        self.spec.as_ref()?.hostname.as_ref()?.parse().ok()
    }
}

impl Object for IpBlock {
    fn stamp(&self) -> Option<u64> {
        self.spec.ts.parse().ok()
    }
}

impl Object for DynamicObject {
    fn stamp(&self) -> Option<u64> {
        let of = |part: &str, field: &str| self.data.get(part)?.get(field)?.as_str()?.parse().ok();
        of("data", "ts")
            .or_else(|| of("spec", "ts"))
            .or_else(|| of("spec", "hostname"))
    }
}

impl<K> Object for PartialObjectMeta<K> {
    fn stamp(&self) -> Option<u64> {
        None
    }
}

/// A client of the server at `address`, with the defaults of kube-client. The certificate of the canned server is
/// self-signed, so it is not verified.
///
/// # Panics
/// Outside a tokio runtime, or if the address is not valid.
#[must_use]
pub fn client(address: &str) -> Client {
    let mut config = Config::new(address.parse().expect("the address of the server"));
    config.default_retry = false;
    config.accept_invalid_certs = true;
    Client::try_from(config).expect("a client")
}

/// The resource of kind `K` for requests without its type.
#[must_use]
pub fn resource<K: Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

/// The version of an object as a number, 0 if it has none.
pub fn version<K: Resource>(object: &K) -> u64 {
    let version = object.meta().resource_version.as_deref();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

/// The name of an object.
pub fn name<K: Resource>(object: &K) -> Cow<'_, str> {
    match object.meta().name.as_deref() {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(object.name_any()),
    }
}
