//! The calls to the cloud.
//!
//! A [`Provider`] is a thin client: one method for one call of the cloud's API, one call for each attribute. It decides
//! nothing, remembers nothing between calls, and does not retry: an error reaches the controller, which calls again with
//! growing delays. Every method may be called again after its answer was lost, and the second call then has no second
//! effect: a creation of a load balancer by its [`Token`], of a listener by its port, any other call because it sets a state.
//!
//! Reads:
//! - [`Provider::describe`] by id shows every change at once.
//! - [`Provider::find`] by tags may lag behind, for a new load balancer up to [`Provider::visible_within`].
//!
//! Absence is not an error where it is the wanted state: a delete of what is gone succeeds.
//!
//! Clouds differ in what they can do. A provider declares it as [`Abilities`], and the controller adapts what it asks for and
//! warns about annotations without effect. Three rules of the trait come from a cloud that is unlike the first one: an address
//! may be a host name ([`Address`](crate::model::Address)), a group is created for one kind of servers
//! ([`NewGroup`]), and a creation names the tags that identify its load balancer ([`Create::identity`]). An id is the value of
//! a label, so it has at most 63 letters, digits, `-`, `_` and `.`.

mod abilities;
pub mod elbv2;
pub mod layer;
pub mod memory;
pub mod slb;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::model::{
    Backend, Create, Group, GroupId, InstanceCharge, Internet, LbId, Listener, ListenerKey,
    ListenerSettings, LoadBalancer, NewGroup, Tags,
};
pub use abilities::{Abilities, Lack};

/// The answer of a call.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// An idempotency token: at most 64 ASCII characters. For a day, a second creation with the same token and the same
/// settings has the answer of the first; with other settings it fails with [`Kind::TokenReused`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Token(String);

/// The turns of this process at the cloud: one for each request.
pub trait Turns: fmt::Debug + Send + Sync + 'static {
    /// Waits for a turn. A request that `changes` the cloud is refused once this process may not act any more.
    fn take(&self, changes: bool) -> Answer<'_, ()>;

    /// The cloud carried a request out, or refused it for its content.
    fn accepted(&self);

    /// The cloud refused a request since there were too many, and accepts others after `wait`, if it says so.
    fn throttled(&self, wait: Option<Duration>);
}

/// The cloud of a cluster. See the [module](self).
pub trait Provider: fmt::Debug + Send + Sync + 'static {
    /// Gives the provider the turns of this process. One whose methods send several requests takes a turn for each, and
    /// returns `true`. By default a method is one request, for which its caller takes a turn.
    fn take_turns(&self, turns: Arc<dyn Turns>) -> bool {
        drop(turns);
        false
    }

    /// The time after which a created load balancer is shown by [`Provider::find`], also if the answer of the creation
    /// was late. The controller waits that long before it concludes that a creation with a lost answer had no effect.
    fn visible_within(&self) -> Duration;

    /// What the cloud can do. The controller asks for nothing else.
    fn abilities(&self) -> &'static Abilities;

    /// The largest number of backends in one call of [`Provider::add_backends`] and its like.
    fn backends_per_call(&self) -> usize;

    // --- load balancers

    /// All load balancers that carry all of `tags`, of all pages. Their attributes may be older than those of
    /// [`Provider::describe`].
    fn find<'a>(&'a self, tags: &'a Tags) -> Answer<'a, Vec<LoadBalancer>>;

    /// The load balancer `id`; `None` if there is none.
    fn describe<'a>(&'a self, id: &'a LbId) -> Answer<'a, Option<LoadBalancer>>;

    /// Creates a load balancer, which is [`Pending`](crate::model::State::Pending) or
    /// [`Inactive`](crate::model::State::Inactive) at first. It has its tags from the first moment. The answer of a second call with this token is the id of the first, also if that load balancer was
    /// deleted since.
    ///
    /// Without [tokens](Abilities::tokens) the answer is the id of a load balancer with the same name and
    /// [identity](Create::identity), if there is one. A call that is under way when a second one searches can then make
    /// two, of which the controller deletes one.
    fn create<'a>(&'a self, token: &'a Token, wanted: &'a Create) -> Answer<'a, LbId>;

    /// Deletes it with its listeners and groups. It may be there for a while afterwards, as
    /// [`Deleting`](crate::model::State::Deleting). Refused with [`Kind::Protected`] while it has delete protection.
    fn delete<'a>(&'a self, id: &'a LbId) -> Answer<'a, ()>;

    /// Sets the name.
    fn set_name<'a>(&'a self, id: &'a LbId, name: &'a str) -> Answer<'a, ()>;

    /// Sets the size.
    fn set_spec<'a>(&'a self, id: &'a LbId, spec: &'a str) -> Answer<'a, ()>;

    /// Sets the charge for the load balancer.
    fn set_instance_charge<'a>(&'a self, id: &'a LbId, charge: InstanceCharge) -> Answer<'a, ()>;

    /// Sets the charge for traffic and the bandwidth.
    fn set_internet<'a>(&'a self, id: &'a LbId, internet: Internet) -> Answer<'a, ()>;

    /// Sets the delete protection.
    fn set_delete_protection<'a>(&'a self, id: &'a LbId, on: bool) -> Answer<'a, ()>;

    /// Sets the protection of name, charges, size and bandwidth.
    fn set_modification_protection<'a>(&'a self, id: &'a LbId, on: bool) -> Answer<'a, ()>;

    /// Adds tags, and replaces the values of those whose keys exist.
    fn tag<'a>(&'a self, id: &'a LbId, tags: &'a Tags) -> Answer<'a, ()>;

    /// Removes the tags with these keys.
    fn untag<'a>(&'a self, id: &'a LbId, keys: &'a [String]) -> Answer<'a, ()>;

    // --- groups of backends

    /// The groups of a load balancer with their backends; an error if there is no such load balancer.
    fn groups<'a>(&'a self, id: &'a LbId) -> Answer<'a, Vec<Group>>;

    /// Creates a group without backends. Two groups of a load balancer may have the same name: after a lost answer the
    /// controller finds the group with [`Provider::groups`], which shows every change at once. Where names are unique, the
    /// answer is the id of the group that exists.
    fn create_group<'a>(&'a self, id: &'a LbId, group: &'a NewGroup) -> Answer<'a, GroupId>;

    /// Deletes a group. Refused with [`Kind::InUse`] while a listener forwards to it.
    fn delete_group<'a>(&'a self, id: &'a LbId, group: &'a GroupId) -> Answer<'a, ()>;

    /// Adds backends. Those that are there stay as they are.
    fn add_backends<'a>(
        &'a self,
        id: &'a LbId,
        group: &'a GroupId,
        backends: &'a [Backend],
    ) -> Answer<'a, ()>;

    /// Removes backends, found by server and port.
    fn remove_backends<'a>(
        &'a self,
        id: &'a LbId,
        group: &'a GroupId,
        backends: &'a [Backend],
    ) -> Answer<'a, ()>;

    /// Sets the weights of backends, found by server and port.
    fn set_weights<'a>(
        &'a self,
        id: &'a LbId,
        group: &'a GroupId,
        backends: &'a [Backend],
    ) -> Answer<'a, ()>;

    // --- listeners

    /// The listeners of a load balancer; an error if there is no such load balancer.
    fn listeners<'a>(&'a self, id: &'a LbId) -> Answer<'a, Vec<Listener>>;

    /// Creates a listener, which is stopped if the cloud has stopped listeners. Refused with [`Kind::Duplicate`] if the port is taken, also by a call whose
    /// answer was lost.
    fn create_listener<'a>(
        &'a self,
        id: &'a LbId,
        key: ListenerKey,
        settings: &'a ListenerSettings,
    ) -> Answer<'a, ()>;

    /// Replaces the settings of a listener.
    fn set_listener<'a>(
        &'a self,
        id: &'a LbId,
        key: ListenerKey,
        settings: &'a ListenerSettings,
    ) -> Answer<'a, ()>;

    /// Starts a listener.
    fn start_listener<'a>(&'a self, id: &'a LbId, key: ListenerKey) -> Answer<'a, ()>;

    /// Deletes a listener.
    fn delete_listener<'a>(&'a self, id: &'a LbId, key: ListenerKey) -> Answer<'a, ()>;

    /// Sets the certificate of one more domain, or removes the domain.
    fn set_domain<'a>(
        &'a self,
        id: &'a LbId,
        key: ListenerKey,
        domain: &'a str,
        certificate: Option<&'a str>,
    ) -> Answer<'a, ()>;

    // --- leftovers

    /// The ids of objects that calls of this provider made beside load balancers, and that nothing uses. Calls that are
    /// under way may be about to use them. None by default.
    fn leftovers(&self) -> Answer<'_, Vec<String>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Deletes one of the [`leftovers`](Provider::leftovers). It stays if it is used by now.
    fn delete_leftover<'a>(&'a self, id: &'a str) -> Answer<'a, ()> {
        let _ = id;
        Box::pin(async { Ok(()) })
    }
}

/// The meaning of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The object of the call does not exist.
    NotFound,
    /// The load balancer is in a state, or has another change under way, in which the call is refused.
    Busy,
    /// Too many calls.
    Throttled,
    /// A quota of the account or of one call.
    Quota,
    /// The object is protected.
    Protected,
    /// The name or the port is taken.
    Duplicate,
    /// The group has a listener.
    InUse,
    /// The [`Token`] was used with other settings.
    TokenReused,
    /// The credentials or the rights do not suffice.
    Denied,
    /// The call itself is not valid.
    Invalid,
    /// The cloud is out of reach, or failed. The call may have taken effect.
    Unavailable,
}

/// The error of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The meaning.
    pub kind: Kind,
    /// The cloud's code, such as `Throttling.User`.
    pub code: String,
    /// The cloud's message.
    pub message: String,
    /// The cloud's id of the request, for its support; `None` if there was no answer.
    pub request_id: Option<String>,
    /// The time after which the cloud accepts such calls again, if it says so.
    pub retry_after: Option<Duration>,
}

// === impl Kind ===

impl Kind {
    /// The name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not found",
            Self::Busy => "busy",
            Self::Throttled => "throttled",
            Self::Quota => "quota",
            Self::Protected => "protected",
            Self::Duplicate => "duplicate",
            Self::InUse => "in use",
            Self::TokenReused => "token reused",
            Self::Denied => "denied",
            Self::Invalid => "invalid",
            Self::Unavailable => "unavailable",
        }
    }
}

// === impl Token ===

impl Token {
    /// A token of this text.
    ///
    /// # Panics
    /// If it is empty, longer than 64 characters, or not ASCII.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        assert!(
            text.is_ascii() && (1..=64).contains(&text.len()),
            "a token of 1 to 64 ASCII characters: {text:?}"
        );
        Self(text)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Error ===

impl Error {
    /// An error with this meaning, code and message.
    #[must_use]
    pub fn new(kind: Kind, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind,
            code: code.into(),
            message: message.into(),
            request_id: None,
            retry_after: None,
        }
    }

    /// Sets the id of the request.
    #[must_use]
    pub fn with_request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    /// Sets the time after which the cloud accepts such calls again.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        match &self.request_id {
            Some(id) => write!(f, " (request {id})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
