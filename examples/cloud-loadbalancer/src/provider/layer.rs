//! Layers around a provider: metrics, the fence of the leader, and in tests faults and crashes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use super::{Abilities, Answer, Error, Provider, Token, Turns};
use crate::model::{
    Backend, Create, Group, GroupId, InstanceCharge, Internet, LbId, Listener, ListenerKey,
    ListenerSettings, LoadBalancer, NewGroup, Tags,
};

/// A call on its way.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The name of the method.
    pub name: &'static str,
    /// Whether it changes anything.
    pub mutates: bool,
    /// The load balancer, unless it is a search or a creation.
    pub id: Option<&'a LbId>,
    /// The settings of a creation.
    pub create: Option<&'a Create>,
}

/// Sees every call of a provider.
pub trait Layer: Send + Sync + 'static {
    /// What it remembers during a call.
    type Started: Send;

    /// Before the call; with an error the call is not sent.
    fn before<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, Result<Self::Started, Error>>;

    /// After the call. An error replaces the answer.
    fn after<'a>(
        &'a self,
        call: &'a Call<'a>,
        started: Self::Started,
        answer: Result<(), &'a Error>,
    ) -> BoxFuture<'a, Result<(), Error>>;
}

/// A provider behind a layer.
pub struct Layered<L> {
    inner: Arc<dyn Provider>,
    layer: L,
}

// === impl Layered ===

impl<L: Layer> Layered<L> {
    /// Puts `layer` around `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Provider>, layer: L) -> Self {
        Self { inner, layer }
    }

    async fn send<T: Send>(&self, call: Call<'_>, answer: Answer<'_, T>) -> Result<T, Error> {
        let started = self.layer.before(&call).await?;
        let answer = answer.await;
        // The future of `after` holds no reference to the answer itself, which need not be `Sync`.
        let error = answer.as_ref().err().cloned();
        let seen = error.as_ref().map_or(Ok(()), Err);
        self.layer.after(&call, started, seen).await?;
        answer
    }
}

impl<L> fmt::Debug for Layered<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layered")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

/// The methods that pass their arguments on. A future of the inner provider does nothing before it is polled.
macro_rules! passed_on {
    ($($mutates:literal $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(
            fn $name<'a>(&'a self, id: &'a LbId $(, $argument: $type)*) -> Answer<'a, $answer> {
                let call = Call { name: stringify!($name), mutates: $mutates, id: Some(id), create: None };
                Box::pin(self.send(call, self.inner.$name(id $(, $argument)*)))
            }
        )*
    };
}

impl<L: Layer> Provider for Layered<L> {
    fn take_turns(&self, turns: Arc<dyn Turns>) -> bool {
        self.inner.take_turns(turns)
    }

    fn visible_within(&self) -> Duration {
        self.inner.visible_within()
    }

    fn abilities(&self) -> &'static Abilities {
        self.inner.abilities()
    }

    fn backends_per_call(&self) -> usize {
        self.inner.backends_per_call()
    }

    fn find<'a>(&'a self, tags: &'a Tags) -> Answer<'a, Vec<LoadBalancer>> {
        let call = Call {
            name: "find",
            mutates: false,
            id: None,
            create: None,
        };
        Box::pin(self.send(call, self.inner.find(tags)))
    }

    fn create<'a>(&'a self, token: &'a Token, wanted: &'a Create) -> Answer<'a, LbId> {
        let call = Call {
            name: "create",
            mutates: true,
            id: None,
            create: Some(wanted),
        };
        Box::pin(self.send(call, self.inner.create(token, wanted)))
    }

    fn leftovers(&self) -> Answer<'_, Vec<String>> {
        let call = Call {
            name: "leftovers",
            mutates: false,
            id: None,
            create: None,
        };
        Box::pin(self.send(call, self.inner.leftovers()))
    }

    fn delete_leftover<'a>(&'a self, id: &'a str) -> Answer<'a, ()> {
        let call = Call {
            name: "delete_leftover",
            mutates: true,
            id: None,
            create: None,
        };
        Box::pin(self.send(call, self.inner.delete_leftover(id)))
    }

    passed_on! {
        false describe() -> Option<LoadBalancer>;
        true delete() -> ();
        true set_name(name: &'a str) -> ();
        true set_spec(spec: &'a str) -> ();
        true set_instance_charge(charge: InstanceCharge) -> ();
        true set_internet(internet: Internet) -> ();
        true set_delete_protection(on: bool) -> ();
        true set_modification_protection(on: bool) -> ();
        true tag(tags: &'a Tags) -> ();
        true untag(keys: &'a [String]) -> ();
        false groups() -> Vec<Group>;
        true create_group(group: &'a NewGroup) -> GroupId;
        true delete_group(group: &'a GroupId) -> ();
        true add_backends(group: &'a GroupId, backends: &'a [Backend]) -> ();
        true remove_backends(group: &'a GroupId, backends: &'a [Backend]) -> ();
        true set_weights(group: &'a GroupId, backends: &'a [Backend]) -> ();
        false listeners() -> Vec<Listener>;
        true create_listener(key: ListenerKey, settings: &'a ListenerSettings) -> ();
        true set_listener(key: ListenerKey, settings: &'a ListenerSettings) -> ();
        true start_listener(key: ListenerKey) -> ();
        true delete_listener(key: ListenerKey) -> ();
        true set_domain(key: ListenerKey, domain: &'a str, certificate: Option<&'a str>) -> ();
    }
}
