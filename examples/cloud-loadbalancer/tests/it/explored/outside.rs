//! The cloud in memory as the world outside of an explored process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cloud_loadbalancer::identity::{FINALIZER, SERVICE_TAG, UID_TAG};
use cloud_loadbalancer::model::{
    Backend, Create, Group, GroupId, InstanceCharge, Internet, LbId, Listener, ListenerKey,
    ListenerSettings, LoadBalancer, NewGroup, Tags,
};
use cloud_loadbalancer::provider::memory::{self, Cloud, Snapshot};
use cloud_loadbalancer::provider::{Abilities, Answer, Error, Kind, Provider, Token};
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Service;
use kube_core::ResourceExt as _;
use reeve_controller::client::optional;
use reeve_controller::testing::explore::{Failure, Outside, Process};
use reeve_controller::{Client, ObjectKey};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// The cloud, and what went wrong in it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) cloud: Cloud,
    /// The Services without a finalizer for which a load balancer was created.
    pub(crate) unheld: Vec<String>,
}

/// The cloud as one process reaches it.
#[derive(Debug)]
pub(crate) struct Explored {
    outside: Outside<World>,
    /// Reads Services, which is no effect.
    client: Client,
}

// === impl World ===

impl World {
    pub(crate) fn has_no_two(&self) -> bool {
        let all = self.cloud.all();
        let mut uids: Vec<&String> = all
            .iter()
            .filter_map(|one| one.about.tags.get(UID_TAG))
            .collect();
        let count = uids.len();
        uids.sort();
        uids.dedup();
        uids.len() == count
    }
}

impl Default for World {
    fn default() -> Self {
        // Nothing but tokens and tags prevents a second load balancer. A call takes effect at once, since an explored call is one
        // point in time.
        let settings = memory::Settings {
            latency: Duration::ZERO,
            unique_names: false,
            ..memory::Settings::default()
        };
        Self {
            cloud: Cloud::new(settings),
            unheld: Vec::new(),
        }
    }
}

/// All load balancers by Service, without ids, addresses and uids: those depend on what was created first.
impl Serialize for World {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut shown: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for one in self.cloud.all() {
            let service = one.about.tags.get(SERVICE_TAG).cloned();
            let of_service = shown.entry(service.unwrap_or_default()).or_default();
            of_service.push(without_ids(one));
        }
        shown.serialize(serializer)
    }
}

fn without_ids(mut one: Snapshot) -> Value {
    one.listeners.sort_by_key(|listener| listener.key);
    one.groups.sort_by(|a, b| a.name.cmp(&b.name));
    for listener in &mut one.listeners {
        let group = &mut listener.settings.group;
        if let Some(found) = one.groups.iter().find(|found| found.id == *group) {
            *group = GroupId(found.name.clone());
        }
    }
    for group in &mut one.groups {
        group.id = GroupId(group.name.clone());
        group
            .backends
            .sort_by_key(|backend| backend.server.to_string());
    }
    let mut about = json!(one.about);
    for variable in ["id", "address"] {
        about[variable].take();
    }
    let shown = json!({"about": about, "listeners": one.listeners, "groups": one.groups});
    let Some(uid) = one.about.tags.get(UID_TAG) else {
        return shown;
    };
    let text = shown.to_string().replace(uid, "UID");
    let text = text.replace(&uid.replace('-', ""), "UID");
    serde_json::from_str(&text).expect("JSON without uids is JSON")
}

// === impl Explored ===

impl Explored {
    pub(crate) fn of(process: &Process<World>) -> Arc<Self> {
        Arc::new(Self {
            outside: process.outside(),
            client: Client::new(process.kube()),
        })
    }

    /// A call that changes the cloud.
    async fn change<T>(
        &self,
        name: &str,
        target: &str,
        call: impl FnOnce(&Cloud) -> Option<Result<T, Error>>,
    ) -> Result<T, Error> {
        let name = format!("{name} {target}");
        answer_of(self.outside.call(&name, |world| call(&world.cloud)).await)
    }

    /// A call that changes nothing.
    async fn look<T>(
        &self,
        call: impl FnOnce(&Cloud) -> Option<Result<T, Error>>,
    ) -> Result<T, Error> {
        let answer = self.outside.read(|world| call(&world.cloud)).await;
        answer.expect("a cloud without latency answers at once")
    }

    /// Whether the Service of a creation exists with its finalizer.
    async fn is_held(&self, wanted: &Create) -> bool {
        let (namespace, name) = wanted.tags[SERVICE_TAG].split_once('/').unwrap();
        let key = ObjectKey::namespaced(namespace, name);
        let service = optional(self.client.get::<Service>(&key).await).unwrap();
        service.is_some_and(|service| {
            service.finalizers().contains(&FINALIZER.to_owned())
                && service.metadata.uid.as_ref() == wanted.tags.get(UID_TAG)
        })
    }
}

/// The answer of a call, which a fault may have kept back.
fn answer_of<T>(called: Result<Option<Result<T, Error>>, Failure>) -> Result<T, Error> {
    let failure = match called {
        Ok(answer) => return answer.expect("a cloud without latency answers at once"),
        Err(failure) => failure,
    };
    let code = match failure {
        Failure::Lost => "ConnectionReset",
        Failure::Refused => "ServiceUnavailable",
    };
    Err(Error::new(Kind::Unavailable, code, failure.to_string()))
}

/// Methods of a load balancer that change it: effects.
macro_rules! changes {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $name<'a>(&'a self, id: &'a LbId $(, $argument: $type)*) -> Answer<'a, $answer> {
            let call = move |cloud: &Cloud| cloud.$name(id $(, $argument)*).now_or_never();
            self.change(stringify!($name), &id.0, call).boxed()
        })*
    };
}

/// Methods of a load balancer that read it.
macro_rules! looks {
    ($($name:ident -> $answer:ty;)*) => {
        $(fn $name<'a>(&'a self, id: &'a LbId) -> Answer<'a, $answer> {
            self.look(move |cloud: &Cloud| cloud.$name(id).now_or_never()).boxed()
        })*
    };
}

impl Provider for Explored {
    fn abilities(&self) -> &'static Abilities {
        &Abilities::ALL
    }

    fn visible_within(&self) -> Duration {
        World::default().cloud.visible_within()
    }

    fn backends_per_call(&self) -> usize {
        World::default().cloud.backends_per_call()
    }

    fn find<'a>(&'a self, tags: &'a Tags) -> Answer<'a, Vec<LoadBalancer>> {
        self.look(move |cloud: &Cloud| cloud.find(tags).now_or_never())
            .boxed()
    }

    fn create<'a>(&'a self, token: &'a Token, wanted: &'a Create) -> Answer<'a, LbId> {
        async move {
            let held = self.is_held(wanted).await;
            let service = &wanted.tags[SERVICE_TAG];
            let call = |world: &mut World| {
                if !held {
                    world.unheld.push(service.clone());
                }
                world.cloud.create(token, wanted).now_or_never()
            };
            let name = format!("create for {service}");
            answer_of(self.outside.call(&name, call).await)
        }
        .boxed()
    }

    changes! {
        delete() -> ();
        set_name(name: &'a str) -> ();
        set_spec(spec: &'a str) -> ();
        set_instance_charge(charge: InstanceCharge) -> ();
        set_internet(internet: Internet) -> ();
        set_delete_protection(on: bool) -> ();
        set_modification_protection(on: bool) -> ();
        tag(tags: &'a Tags) -> ();
        untag(keys: &'a [String]) -> ();
        create_group(group: &'a NewGroup) -> GroupId;
        delete_group(group: &'a GroupId) -> ();
        add_backends(group: &'a GroupId, backends: &'a [Backend]) -> ();
        remove_backends(group: &'a GroupId, backends: &'a [Backend]) -> ();
        set_weights(group: &'a GroupId, backends: &'a [Backend]) -> ();
        create_listener(key: ListenerKey, settings: &'a ListenerSettings) -> ();
        set_listener(key: ListenerKey, settings: &'a ListenerSettings) -> ();
        start_listener(key: ListenerKey) -> ();
        delete_listener(key: ListenerKey) -> ();
        set_domain(key: ListenerKey, domain: &'a str, certificate: Option<&'a str>) -> ();
    }

    looks! {
        describe -> Option<LoadBalancer>;
        groups -> Vec<Group>;
        listeners -> Vec<Listener>;
    }
}
