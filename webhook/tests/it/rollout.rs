//! Certificates that rotate under load: a real kube-apiserver calls two replicas behind a balancer, and they are restarted in
//! turn. `REEVE_ROTATIONS` is the number of rotations.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube_core::params::DeleteParams;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use reeve_apiserver::assets;
use reeve_client::{Client, ObjectKey};
use reeve_webhook::admission::{Mutation, Request, Verdict};
use reeve_webhook::certificates::{Journal, Lifetimes, Notice, Rotation};
use reeve_webhook::{Metrics, Readiness, Server, Webhook};
use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// The number of rotations if the environment names none.
const ROTATIONS: u64 = 3;

/// The longest time of a rotation; it takes ten seconds.
const ROTATION: Duration = Duration::from_secs(60);

/// The interval at which the balancer reads the readiness of its replicas, as the endpoints of a Service follow it.
const ENDPOINTS_EVERY: Duration = Duration::from_millis(200);

/// The time that a replica goes on after its stop began.
const LINGER: Duration = Duration::from_millis(1500);

/// The longest time of a start and of a stop.
const PATIENCE: Duration = Duration::from_secs(60);

const WRITERS: usize = 4;

/// An authority lives for 15 s: the next one is announced after 10 s, issues after 2 s more, and the replaced one retires 3 s
/// after that.
fn lifetimes() -> Lifetimes {
    Lifetimes::default()
        .authority(Duration::from_secs(15))
        .propagation(Duration::from_millis(1500))
        .overlap(Duration::from_secs(3))
}

/// The number of notices by their reason, of all replicas.
#[derive(Debug, Default)]
struct Notices(Mutex<BTreeMap<&'static str, u64>>);

/// What the writers did.
#[derive(Debug, Default)]
struct Writes {
    /// Objects that were written, and objects that were denied.
    done: AtomicU64,
    failed: Mutex<Vec<String>>,
}

/// The replicas that may be called, each with its readiness.
#[derive(Debug, Default)]
struct Replicas {
    all: Mutex<Vec<(SocketAddr, Readiness)>>,
    connections: AtomicU64,
}

/// A replica that runs.
struct Replica {
    address: SocketAddr,
    readiness: Readiness,
    registry: Registry,
    stop: CancellationToken,
    serving: JoinHandle<std::io::Result<()>>,
    rotating: JoinHandle<()>,
}

/// What the replicas of a test share.
struct World {
    client: Client,
    notices: Arc<Notices>,
    replicas: Arc<Replicas>,
    /// Calls of replicas that have ended, by their code.
    calls: BTreeMap<String, u64>,
}

// === impl Notices ===

impl Notices {
    fn count(&self, notice: &Notice) -> u64 {
        self.0.lock().get(notice.reason()).copied().unwrap_or(0)
    }
}

impl Journal for Notices {
    fn record(&self, _: &ObjectKey, notice: &Notice) {
        if let Notice::Failed(_) = notice {
            eprintln!("{notice}");
        }
        *self.0.lock().entry(notice.reason()).or_default() += 1;
    }
}

// === impl Writes ===

impl Writes {
    fn count(&self, result: Result<(), String>) {
        self.done.fetch_add(1, Ordering::Relaxed);
        if let Err(problem) = result {
            eprintln!("a write failed: {problem}");
            self.failed.lock().push(problem);
        }
    }

    /// Creates, changes and deletes objects, and creates ones that are denied, until `stop`.
    async fn run(self: Arc<Self>, client: Client, writer: usize, stop: CancellationToken) {
        let mut number = 0;
        while !stop.is_cancelled() {
            number += 1;
            let name = format!("writer-{writer}-{number}");
            self.count(write(&client, &name).await);
            self.count(write_denied(&client, &name).await);
            sleep(Duration::from_millis(10)).await;
        }
    }
}

fn map(name: &str, data: serde_json::Value) -> ConfigMap {
    let map = json!({"metadata": {"name": name, "namespace": "load"}, "data": data});
    serde_json::from_value(map).unwrap()
}

/// The webhooks saw the write: the mutating one added the label.
fn is_mutated(map: &ConfigMap) -> Result<(), String> {
    let labels = map.metadata.labels.as_ref();
    match labels.and_then(|labels| labels.get("team")) {
        Some(team) if team == "a" => Ok(()),
        _ => Err("an object without the label of the mutating webhook".to_owned()),
    }
}

async fn write(client: &Client, name: &str) -> Result<(), String> {
    let text = |error: reeve_client::Error| error.to_string();
    let created = client.create(&map(name, json!({"a": "1"}))).await;
    let mut created = created.map_err(text)?;
    is_mutated(&created)?;
    created.metadata.labels = None;
    let updated = client.update(&created).await.map_err(text)?;
    is_mutated(&updated)?;
    let key = ObjectKey::namespaced("load", name);
    let deleted = client
        .delete::<ConfigMap>(&key, &DeleteParams::default())
        .await;
    deleted.map(drop).map_err(text)
}

async fn write_denied(client: &Client, name: &str) -> Result<(), String> {
    match client.create(&map(name, json!({"forbidden": "1"}))).await {
        Ok(_) => Err("an object was stored that the validating webhook denies".to_owned()),
        Err(error) if error.to_string().contains("not with this data") => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

// === impl Replicas ===

impl Replicas {
    /// Forwards connections to the ready replicas in turn, and closes none. Readiness is read at intervals.
    async fn balance(self: Arc<Self>, listener: TcpListener) {
        let mut connections = JoinSet::new();
        let mut ready: Vec<SocketAddr> = Vec::new();
        let mut read = tokio::time::interval(ENDPOINTS_EVERY);
        let mut turn = 0_usize;
        loop {
            tokio::select! {
                biased;
                _ = read.tick() => ready = self.ready(),
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => {
                    let (mut near, _) = accepted.unwrap();
                    turn = turn.wrapping_add(1);
                    // Without a ready replica the connection is refused, and the calls of it fail.
                    let Some(&address) = ready.get(turn % ready.len().max(1)) else { continue };
                    self.connections.fetch_add(1, Ordering::Relaxed);
                    connections.spawn(async move {
                        if let Ok(mut far) = TcpStream::connect(address).await {
                            let _ = copy_bidirectional(&mut near, &mut far).await;
                        }
                    });
                }
            }
        }
    }

    fn ready(&self) -> Vec<SocketAddr> {
        let replicas = self.all.lock();
        let ready = replicas
            .iter()
            .filter(|(_, readiness)| readiness.check().is_ok());
        ready.map(|(address, _)| *address).collect()
    }
}

// === impl World ===

impl World {
    /// The configurations, which lead to the balancer.
    async fn configure(&self, balancer: SocketAddr) {
        let webhook = |verb: &str| {
            json!({
                "name": format!("{verb}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail", "timeoutSeconds": 10,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "load"}},
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                    "operations": ["CREATE", "UPDATE"],
                }],
                "clientConfig": {"url": format!("https://{balancer}/{verb}--v1-configmap")},
            })
        };
        let configuration =
            |verb: &str| json!({"metadata": {"name": "guard"}, "webhooks": [webhook(verb)]});
        let validating: ValidatingWebhookConfiguration =
            serde_json::from_value(configuration("validate")).unwrap();
        let mutating: MutatingWebhookConfiguration =
            serde_json::from_value(configuration("mutate")).unwrap();
        self.client.create(&validating).await.unwrap();
        self.client.create(&mutating).await.unwrap();
        for name in ["hbox", "load"] {
            let namespace: Namespace =
                serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            self.client.create(&namespace).await.unwrap();
        }
    }

    /// Starts a replica and waits until it is ready.
    async fn start(&self) -> Replica {
        let rotation = Rotation::new(self.client.clone(), "hbox", "guard")
            .name("127.0.0.1")
            .validating("guard")
            .mutating("guard")
            .lifetimes(lifetimes())
            .every(Duration::from_millis(300))
            .journal(self.notices.clone());
        let guard = Webhook::validating(
            "validate.example.com",
            |request: Request<ConfigMap>| async move {
                let data = request.object.and_then(|map| map.data).unwrap_or_default();
                if data.contains_key("forbidden") {
                    return Verdict::deny("not with this data");
                }
                Verdict::allow()
            },
        );
        let team = Webhook::mutating(
            "mutate.example.com",
            |mut request: Request<ConfigMap>| async move {
                let Some(mut map) = request.object.take() else {
                    return Mutation::unchanged();
                };
                let labels = map.metadata.labels.get_or_insert_default();
                labels.insert("team".to_owned(), "a".to_owned());
                Mutation::changed(map)
            },
        );
        let mut registry = Registry::default();
        let bound = Server::at(([127, 0, 0, 1], 0).into())
            .rotation(&rotation)
            .webhooks([guard, team])
            .metrics(Metrics::register(&mut registry))
            .linger(LINGER)
            .bind()
            .await
            .unwrap();
        let (address, readiness) = (bound.local_addr(), bound.readiness().clone());
        let stop = CancellationToken::new();
        let replica = Replica {
            address,
            readiness: readiness.clone(),
            registry,
            serving: tokio::spawn(bound.run(stop.clone())),
            rotating: tokio::spawn(rotation.run(stop.clone())),
            stop,
        };
        self.replicas.all.lock().push((address, readiness.clone()));
        let ready = async {
            while readiness.check().is_err() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        let waited = timeout(PATIENCE, ready).await;
        waited.unwrap_or_else(|_| panic!("not ready: {:?}", readiness.check()));
        // The balancer has seen it, too.
        sleep(ENDPOINTS_EVERY * 2).await;
        replica
    }

    /// Stops a replica, as the end of its Pod does, and counts its calls.
    async fn stop(&mut self, replica: Replica) {
        replica.stop.cancel();
        let ended = timeout(PATIENCE, replica.serving).await;
        ended.expect("a server that ends").unwrap().unwrap();
        replica.rotating.await.unwrap();
        self.replicas
            .all
            .lock()
            .retain(|(address, _)| *address != replica.address);
        assert!(replica.readiness.check().is_err());
        let text = reeve_serve::metrics::encode(&replica.registry);
        for line in text.lines() {
            let Some(series) = line.strip_prefix("controller_runtime_webhook_requests_total{")
            else {
                continue;
            };
            let (labels, count) = series.rsplit_once(' ').unwrap();
            let code = labels.split("code=\"").nth(1).unwrap();
            let code = code.split('"').next().unwrap();
            *self.calls.entry(code.to_owned()).or_default() += count.parse::<u64>().unwrap();
        }
    }
}

fn rotations() -> u64 {
    std::env::var("REEVE_ROTATIONS").map_or(ROTATIONS, |text| {
        text.parse().expect("REEVE_ROTATIONS is a number")
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_of_a_real_server_fails_while_certificates_rotate_and_replicas_restart() {
    let Some(builder) = assets::control_plane() else {
        return;
    };
    let plane = builder.start().await.unwrap();
    let rotations = rotations();
    let mut world = World {
        client: Client::new(plane.client().unwrap()),
        notices: Arc::default(),
        replicas: Arc::default(),
        calls: BTreeMap::new(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    world.configure(listener.local_addr().unwrap()).await;
    let balancing = tokio::spawn(Arc::clone(&world.replicas).balance(listener));
    let _balancing = AbortOnDropHandle::new(balancing);
    let mut running = vec![world.start().await, world.start().await];

    let (writes, stop) = (Arc::new(Writes::default()), CancellationToken::new());
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let client = Client::new(plane.client().unwrap());
        writers.spawn(Arc::clone(&writes).run(client, writer, stop.clone()));
    }
    let begun = Instant::now();
    let until = begun + ROTATION * u32::try_from(rotations).unwrap();
    let mut restarts = 0;
    // A retirement is the last step of a rotation.
    while world.notices.count(&Notice::Retired) < rotations {
        assert!(Instant::now() < until, "{:?}", world.notices);
        // The oldest replica makes room for another one.
        let oldest = running.remove(0);
        world.stop(oldest).await;
        running.push(world.start().await);
        restarts += 1;
        sleep(Duration::from_secs(2)).await;
    }
    stop.cancel();
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
    for replica in running {
        world.stop(replica).await;
    }
    let done = writes.done.load(Ordering::Relaxed);
    let connections = world.replicas.connections.load(Ordering::Relaxed);
    let failed = writes.failed.lock();
    println!(
        "{rotations} rotations and {restarts} restarts in {:?}: {} of {done} steps of writers failed; \
         calls {:?} over {connections} connections; {:?}",
        begun.elapsed(),
        failed.len(),
        world.calls,
        world.notices,
    );
    assert_eq!(*failed, [""; 0]);
    // A creation and an update call both webhooks, and a denied creation does, too.
    assert_eq!(world.calls["200"], done * 3);
    assert!(
        world
            .calls
            .iter()
            .all(|(code, count)| code == "200" || *count == 0),
        "{:?}",
        world.calls
    );
    assert!(restarts >= 2, "each replica was restarted");
    // The API server connects again for each bundle: after an announcement, and after a retirement.
    assert!(connections >= rotations * 2, "{connections} connections");
}
