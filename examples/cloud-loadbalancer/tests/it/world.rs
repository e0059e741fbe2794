//! The environment of one case: an API server, a cloud, and processes to start and to crash.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cloud_loadbalancer::commands::Objects;
use cloud_loadbalancer::identity::{FINALIZER, UID_TAG};
use cloud_loadbalancer::model::{LbId, ListenerKey, NewGroup, Protocol, Server as Target, Targets};
use cloud_loadbalancer::provider::layer::Layered;
use cloud_loadbalancer::provider::memory::{self, Cloud, Snapshot};
use cloud_loadbalancer::{NAME, Settings};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube_core::ResourceExt;
use kube_core::params::ListParams;
use parking_lot::Mutex;
use reeve_apiserver::rbac::User;
use reeve_controller::client::{Object, Patch, optional};
use reeve_controller::testing::{Cluster, Patience, Running, Server, Setup};
use reeve_controller::{Manager, ObjectKey, leader_election, manager};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::effects::Watched;
pub(crate) use crate::effects::{Effects, Faults, Phase};

const TOKEN: &str = "the program's";

/// A case: an API server with the manifests, three nodes, and an empty cloud.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) cloud: Cloud,
    pub(crate) effects: Effects,
    pub(crate) settings: Settings,
    /// The layers of the tests around the cloud, outermost last.
    pub(crate) faults: Mutex<Option<Faults>>,
}

/// Runs one case under paused time.
pub(crate) fn run(case: impl AsyncFnOnce(World)) {
    run_with(memory::Settings::default(), case);
}

/// Runs one case with a cloud that has no rule for names: nothing but tokens and tags prevents a second load balancer.
pub(crate) fn run_with_equal_names(case: impl AsyncFnOnce(World)) {
    run_with(equal_names(), case);
}

/// A cloud that has no rule for names.
pub(crate) fn equal_names() -> memory::Settings {
    memory::Settings {
        unique_names: false,
        ..memory::Settings::default()
    }
}

/// Runs one case with this cloud.
pub(crate) fn run_with(cloud: memory::Settings, case: impl AsyncFnOnce(World)) {
    let account = User::service_account("kube-system", NAME, "");
    let patience = Patience {
        look_every: Duration::from_millis(200),
        ..Patience::VIRTUAL
    };
    let setup = Setup::new().server(Server::BuiltIn).patience(patience);
    let setup = setup.api_server(move |server| server.rbac().token(TOKEN, account));
    setup.run(async |cluster| case(World::new(cluster, cloud).await).await);
}

/// The key of the Service `name`.
pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

/// The manifests, by kind.
pub(crate) fn manifest<K: Object>(kind: &str) -> K {
    let text = include_str!("../../manifests/rbac.yaml");
    let mut parts = text.split("\n---\n");
    let wanted = format!("kind: {kind}\n");
    let part = parts.find(|part| part.contains(&wanted));
    serde_saphyr::from_str(part.unwrap_or_else(|| panic!("a {kind}"))).unwrap()
}

// === impl World ===

impl World {
    async fn new(cluster: Cluster, cloud: memory::Settings) -> Self {
        let client = cluster.client();
        client
            .create(&manifest::<ClusterRole>("ClusterRole"))
            .await
            .unwrap();
        client
            .create(&manifest::<ClusterRoleBinding>("ClusterRoleBinding"))
            .await
            .unwrap();
        let world = Self {
            cluster,
            cloud: Cloud::new(cloud),
            effects: Effects::default(),
            settings: Settings::new("test".parse().unwrap()),
            faults: Mutex::default(),
        };
        for number in 1..=3 {
            world.node(&format!("n{number}"), json!({})).await;
        }
        world
    }

    /// What the controller would do for a Service, as `ccm plan` prints it.
    pub(crate) async fn plan(&self, name: &str) -> String {
        let objects = Objects::fetch(&key(name), &self.cluster.client()).await;
        let plan = objects.unwrap().plan(&self.cloud, &self.settings).await;
        plan.unwrap()
    }

    // --- processes

    pub(crate) async fn start(&self) -> Running {
        self.start_with(self.settings.clone()).await
    }

    pub(crate) async fn start_with(&self, settings: Settings) -> Running {
        self.build(self.manager(), settings).await
    }

    /// Starts one of several copies.
    pub(crate) async fn start_copy(&self, name: &str) -> Running {
        let lease = leader_election::Options::new("kube-system", NAME).identity(name);
        let builder = self.manager().leader_election(lease);
        self.build(builder, self.settings.clone()).await
    }

    fn manager(&self) -> manager::Builder {
        let server = self.cluster.built_in().unwrap();
        let kube = self.effects.counting(server.client_with(Some(TOKEN)));
        Manager::builder(kube).clock(self.cluster.clock().clone())
    }

    async fn build(&self, builder: manager::Builder, settings: Settings) -> Running {
        let layer = Watched {
            effects: self.effects.clone(),
            client: self.cluster.client(),
            faults: self.faults.lock().clone(),
        };
        let provider = Layered::new(Arc::new(self.cloud.clone()), layer);
        let built = cloud_loadbalancer::build(builder, Arc::new(provider), settings).await;
        self.cluster.start(&built.unwrap())
    }

    /// Runs a process until `act` is complete, and a fresh one after each crash.
    pub(crate) async fn supervised(&self, act: impl Future<Output = ()>) {
        let mut running = self.start().await;
        let mut act = pin!(act);
        loop {
            tokio::select! {
                biased;
                () = self.effects.crashed() => {
                    running.crash().await;
                    running = self.start().await;
                }
                () = &mut act => break,
            }
        }
        running.end().await;
    }

    // --- objects

    pub(crate) async fn node(&self, name: &str, more: Value) {
        let number = name.trim_start_matches('n');
        let mut node = json!({
            "metadata": {"name": name},
            "spec": {"providerID": format!("sim://r1.i-{number}")},
        });
        merge(&mut node, more);
        self.cluster.create::<Node>(node).await;
    }

    /// Creates a Service of type LoadBalancer with the port 80, changed by `more`.
    pub(crate) async fn service(&self, name: &str, more: Value) -> Service {
        let mut service = json!({
            "metadata": {"namespace": "default", "name": name},
            "spec": {"type": "LoadBalancer", "selector": {"app": name},
                "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
        });
        merge(&mut service, more);
        self.cluster.create(service).await
    }

    /// Creates the EndpointSlice of a Service: addresses, nodes, and whether each is ready.
    pub(crate) async fn endpoints(&self, service: &str, endpoints: &[(&str, &str, bool)]) {
        let all = endpoints.iter().map(|(address, node, ready)| {
            json!({"addresses": [address], "nodeName": node, "conditions": {"ready": ready}})
        });
        let slice = json!({
            "metadata": {"namespace": "default", "name": format!("{service}-1"),
                "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4",
            "endpoints": all.collect::<Vec<_>>(),
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        });
        let client = self.cluster.client();
        if optional(
            client
                .get::<EndpointSlice>(&key(&format!("{service}-1")))
                .await,
        )
        .unwrap()
        .is_some()
        {
            let patch = Patch::merge(json!({"endpoints": slice["endpoints"]}));
            let patched = client
                .patch::<EndpointSlice>(&key(&format!("{service}-1")), patch)
                .await;
            patched.unwrap();
        } else {
            self.cluster.create::<EndpointSlice>(slice).await;
        }
    }

    pub(crate) async fn get(&self, name: &str) -> Option<Service> {
        optional(self.cluster.client().get(&key(name)).await).unwrap()
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value) {
        let patched = self
            .cluster
            .client()
            .patch::<Service>(&key(name), Patch::merge(patch))
            .await;
        patched.unwrap();
    }

    /// Sets annotations of this controller; null removes one.
    pub(crate) async fn annotate(&self, name: &str, annotations: Value) {
        let all = annotations.as_object().unwrap().iter();
        let all: serde_json::Map<_, _> = all
            .map(|(name, value)| (format!("lb.reeve.dev/{name}"), value.clone()))
            .collect();
        self.patch(name, json!({"metadata": {"annotations": all}}))
            .await;
    }

    pub(crate) async fn patch_node(&self, name: &str, patch: Value) {
        let node = ObjectKey::cluster(name);
        let patched = self
            .cluster
            .client()
            .patch::<Node>(&node, Patch::merge(patch))
            .await;
        patched.unwrap();
    }

    pub(crate) async fn delete<K: Object>(&self, key: &ObjectKey) {
        let deleted = self
            .cluster
            .client()
            .delete::<K>(key, &Default::default())
            .await;
        deleted.unwrap();
    }

    /// The published addresses of a Service.
    pub(crate) async fn addresses(&self, name: &str) -> Vec<String> {
        let service = self.get(name).await;
        let status = service.and_then(|service| service.status?.load_balancer?.ingress);
        let all = status.into_iter().flatten();
        all.filter_map(|one| one.ip.or(one.hostname)).collect()
    }

    /// The reasons of the Events about a Service, each once.
    pub(crate) async fn reasons(&self, name: &str) -> BTreeSet<String> {
        let events = self.events(name).await;
        events
            .into_iter()
            .filter_map(|event| event.reason)
            .collect()
    }

    pub(crate) async fn events(&self, name: &str) -> Vec<Event> {
        let all = self
            .cluster
            .client()
            .list::<Event>(Some("default"), &ListParams::default())
            .await;
        let mut all = all.unwrap().items;
        all.retain(|event| {
            let about = event.regarding.as_ref();
            about.is_some_and(|about| about.name.as_deref() == Some(name))
        });
        all
    }

    pub(crate) async fn until_reason(&self, name: &str, reason: &str) {
        let what = format!("{name} has an Event {reason}");
        let reported = async || {
            let reasons = self.reasons(name).await;
            if reasons.contains(reason) {
                Ok(())
            } else {
                Err(format!("{reasons:?}"))
            }
        };
        self.cluster.eventually(&what, reported).await;
    }

    // --- the cloud

    /// The load balancers of a Service's uid, all states.
    pub(crate) fn of(&self, service: &Service) -> Vec<Snapshot> {
        let uid = service.metadata.uid.clone();
        let mut all = self.cloud.all();
        all.retain(|one| one.about.tags.get(UID_TAG).cloned() == uid);
        all
    }

    /// The only load balancer of a Service.
    pub(crate) async fn only(&self, name: &str) -> Snapshot {
        let service = self.get(name).await.expect("the Service");
        let mut all = self.of(&service);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    pub(crate) fn balancer(&self, id: &LbId) -> Option<Snapshot> {
        self.cloud.all().into_iter().find(|one| one.about.id == *id)
    }

    /// Waits until the Service is served as it should be: one load balancer, its listeners run with all nodes behind
    /// them, the address is published, the hash is stored.
    pub(crate) async fn until_served(&self, name: &str, ports: &[u16]) -> Snapshot {
        let what = format!("{name} is served at {ports:?}");
        self.cluster
            .eventually(&what, async || self.served(name, ports).await)
            .await
    }

    pub(crate) async fn served(&self, name: &str, ports: &[u16]) -> Result<Snapshot, String> {
        let service = self.get(name).await.ok_or("no Service")?;
        let mut all = self.of(&service);
        let Some(one) = all.pop().filter(|_| all.is_empty()) else {
            return Err(format!("{} load balancers too many, or none", all.len()));
        };
        let wanted: BTreeSet<_> = ports.iter().map(|port| tcp(*port)).collect();
        let running = one.listeners.iter().filter(|listener| listener.running);
        let running: BTreeSet<_> = running.map(|listener| listener.key).collect();
        if running != wanted
            || one.listeners.len() != ports.len()
            || one.groups.len() != ports.len()
        {
            return Err(format!("{one:?}"));
        }
        if one.groups.iter().any(|group| group.backends.len() != 3) {
            return Err(format!("backends: {:?}", one.groups));
        }
        if !one.about.delete_protection || !one.about.modification_protection {
            return Err(format!("not protected: {:?}", one.about));
        }
        let addresses = self.addresses(name).await;
        if addresses != [one.about.address.to_string()] {
            return Err(format!("published: {addresses:?}"));
        }
        let labels = service.labels();
        let id = labels.get("lb.reeve.dev/loadbalancer-id");
        if id != Some(&one.about.id.0) || !labels.contains_key("lb.reeve.dev/hash") {
            return Err(format!("labels: {labels:?}"));
        }
        if !service.finalizers().contains(&FINALIZER.to_owned()) {
            return Err("no finalizer".to_owned());
        }
        Ok(one)
    }

    /// Waits until the Service is gone.
    pub(crate) async fn until_absent(&self, name: &str) {
        let what = format!("{name} is gone");
        self.cluster
            .eventually(&what, async || self.get(name).await.is_none())
            .await;
    }

    /// Waits until the Service and all load balancers are gone.
    pub(crate) async fn until_gone(&self, name: &str) {
        self.until_absent(name).await;
        assert_eq!(self.cloud.all(), [], "no Service, no load balancer");
    }

    /// The calls that changed the cloud since the last look.
    pub(crate) fn changes(&self) -> Vec<&'static str> {
        let calls = self.cloud.calls();
        self.cloud.clear_calls();
        let reads = ["find", "describe", "groups", "listeners"];
        let changes = calls.into_iter().filter(|call| !reads.contains(&call.name));
        changes.map(|call| call.name).collect()
    }

    /// Lets time pass: all effects of former steps have happened then.
    pub(crate) async fn quiet(&self) {
        sleep(Duration::from_secs(60)).await;
    }
}

/// A group of instances for a TCP port.
pub(crate) fn new_group(name: &str) -> NewGroup {
    NewGroup {
        name: name.to_owned(),
        protocol: Protocol::Tcp,
        targets: Targets::Instances,
    }
}

/// The TCP listener of a port.
pub(crate) fn tcp(port: u16) -> ListenerKey {
    ListenerKey {
        port,
        protocol: Protocol::Tcp,
    }
}

/// The instances and addresses in the groups of a load balancer.
pub(crate) fn targets(snapshot: &Snapshot) -> BTreeSet<String> {
    let backends = snapshot.groups.iter().flat_map(|group| &group.backends);
    let name = |server: &Target| server.to_string();
    backends.map(|backend| name(&backend.server)).collect()
}

/// A JSON merge patch.
fn merge(value: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *value = patch;
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    for (key, new) in patch {
        merge(&mut value[key], new);
    }
}
