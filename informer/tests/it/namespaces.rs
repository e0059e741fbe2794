//! An informer of a set of namespaces that changes while it runs, against the built-in API server, under paused
//! time.
//!
//! A tenth of `REEVE_HISTORIES` random histories are tried (default 150); `REEVE_SEED` tries one again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube_client::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube_client::{Api, Client};
use parking_lot::Mutex;
use reeve_apiserver::ApiServer;
use reeve_apiserver::faults::Rule;
use reeve_clock::Random;
use reeve_informer::{
    Activity, Builder, Endpoint, Event, HandlerOptions, InformerFactory, NamespaceSet, Policy,
    ResourceVersion, Scope, Selection, SharedInformer, Stored, WaitError, Within,
};

use crate::setup::{clock, run};

const NAMESPACES: [&str; 4] = ["blue", "green", "red", "white"];

type Maps = SharedInformer<ConfigMap>;

async fn server(seed: u64) -> ApiServer {
    let builder = ApiServer::builder().clock(clock(seed));
    let server = builder.start().await.unwrap();
    let namespaces = Api::<Namespace>::all(server.client());
    for name in NAMESPACES {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
    }
    server
}

/// `namespace/name`, created.
async fn create(client: &Client, keys: &[&str]) {
    for key in keys {
        let (namespace, name) = key.split_once('/').unwrap();
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.to_owned());
        Api::<ConfigMap>::namespaced(client.clone(), namespace)
            .create(&PostParams::default(), &map)
            .await
            .unwrap();
    }
}

fn informer(server: &ApiServer, set: &NamespaceSet) -> Builder<ConfigMap> {
    SharedInformer::<ConfigMap>::builder(server.client())
        .namespaces(set.clone())
        .clock(server.clock().clone())
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn keys(informer: &Maps) -> String {
    let mut keys: Vec<_> = informer
        .lister()
        .list()
        .iter()
        .map(|map| map.key().to_string())
        .collect();
    keys.sort();
    keys.join(" ")
}

/// Follows the events of a handler: `+ns/name*`, `~ns/name`, `-ns/name!`; records impossible ones.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<Followed>>);

#[derive(Default)]
struct Followed {
    /// Version and uid of each object.
    known: BTreeMap<String, (u64, String)>,
    /// The newest version seen of each uid.
    newest: BTreeMap<String, u64>,
    lines: Vec<String>,
    wrong: Vec<String>,
}

impl Received {
    fn handler(&self) -> impl Fn(Event<ConfigMap>) + Send + Sync + 'static + use<> {
        let followed = Arc::clone(&self.0);
        move |event| followed.lock().follow(&event)
    }

    /// In the order of keys: events of several watches have no order.
    fn take(&self) -> String {
        let mut lines = std::mem::take(&mut self.0.lock().lines);
        lines.sort();
        lines.join(" ")
    }
}

impl Followed {
    fn follow(&mut self, event: &Event<ConfigMap>) {
        let key = event.key().to_string();
        let now = event.object().map(|map| {
            let version: u64 = map.resource_version().parse().unwrap();
            (version, map.uid().to_owned())
        });
        let known = self.known.remove(&key);
        let (line, legal) = match event {
            Event::Added { initial, .. } => (
                format!("+{key}{}", if *initial { "*" } else { "" }),
                known.is_none(),
            ),
            Event::Updated { old, .. } => (
                format!("~{key}"),
                known
                    .as_ref()
                    .is_some_and(|(version, _)| old.resource_version() == version.to_string()),
            ),
            Event::Deleted { tombstone, .. } => (
                format!("-{key}{}", if *tombstone { "!" } else { "" }),
                known.is_some(),
            ),
        };
        if !legal {
            self.wrong.push(format!("{line} {now:?} after {known:?}"));
        }
        if let Some((version, uid)) = now {
            let newest = self.newest.entry(uid.clone()).or_default();
            if version < *newest {
                self.wrong.push(format!("{line}: {version} after {newest}"));
            }
            *newest = version;
            if !matches!(event, Event::Deleted { .. }) {
                self.known.insert(key, (version, uid));
            }
        }
        self.lines.push(line);
    }
}

#[tokio::test(start_paused = true)]
async fn one_store_holds_several_namespaces_each_with_a_watch_of_its_own() {
    let server = server(1).await;
    let client = server.client();
    create(&client, &["red/a", "blue/b", "green/c"]).await;
    let set = NamespaceSet::new(["red", "blue"]);
    let informer = informer(&server, &set).build();
    let received = Received::default();
    let handle = informer
        .add_handler(received.handler(), HandlerOptions::new())
        .unwrap();
    assert!(!informer.has_synced(), "nothing runs yet");
    let (stop, task) = run(&informer);
    handle.wait_synced().await.unwrap();
    assert_eq!(keys(&informer), "blue/b red/a");
    assert_eq!(received.take(), "+blue/b* +red/a*");
    create(&client, &["red/d", "green/e"]).await;
    seconds(1).await;
    assert_eq!(received.take(), "+red/d");
    assert_eq!(informer.lister().namespace("red").len(), 2);
    assert!(informer.covers(&Scope::namespace("red")) && !informer.covers(&Scope::Cluster));
    let health = informer.health();
    let scopes: Vec<_> = health.watches.iter().map(|watch| &watch.scope).collect();
    assert_eq!(
        scopes,
        [&Scope::namespace("blue"), &Scope::namespace("red")]
    );
    assert!(health.is_ready(), "{health:?}");
    let asked = server.requests().all();
    let maps = asked
        .iter()
        .filter(|asked| asked.resource == "configmaps" && asked.verb == "watch");
    assert!(
        maps.clone()
            .all(|asked| asked.namespace == "red" || asked.namespace == "blue")
    );
    assert_eq!(maps.count(), 2);
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_added_namespace_is_listed_and_a_removed_one_is_delivered_as_deletions() {
    added_and_removed(HandlerOptions::new()).await;
}

#[tokio::test(start_paused = true)]
async fn an_inline_handler_receives_changes_of_the_namespaces_too() {
    added_and_removed(HandlerOptions::new().inline()).await;
}

async fn added_and_removed(options: HandlerOptions) {
    let server = server(1).await;
    let client = server.client();
    create(&client, &["red/a", "blue/b", "blue/c", "green/d"]).await;
    let set = NamespaceSet::new(["red", "blue"]);
    let informer = informer(&server, &set).build();
    let received = Received::default();
    let handle = informer.add_handler(received.handler(), options).unwrap();
    let (_stop, _task) = run(&informer);
    handle.wait_synced().await.unwrap();
    received.take();

    assert!(set.insert("green") && !set.insert("green"));
    assert!(!informer.has_synced(), "it is requested and not there");
    assert!(handle.has_synced(), "a handler syncs once");
    informer.wait_synced().await.unwrap();
    assert_eq!(keys(&informer), "blue/b blue/c green/d red/a");
    seconds(1).await;
    assert_eq!(received.take(), "+green/d*");

    let waiting = tokio::spawn({
        let informer = informer.clone();
        let never = ResourceVersion::from("99999999");
        async move {
            let scope = Scope::namespace("blue");
            informer.wait_for_resource_version(&scope, &never).await
        }
    });
    tokio::task::yield_now().await;
    assert!(set.remove("blue") && !set.remove("blue"));
    informer.wait_synced().await.unwrap();
    assert_eq!(keys(&informer), "green/d red/a");
    let gone = waiting.await.unwrap();
    assert!(
        matches!(gone, Err(WaitError::OutOfScope { .. })),
        "{gone:?}"
    );
    seconds(1).await;
    assert_eq!(received.take(), "-blue/b! -blue/c!");
    create(&client, &["blue/e", "green/f"]).await;
    seconds(1).await;
    assert_eq!(received.take(), "+green/f", "there is no watch any more");

    set.set(["white", "blue"]);
    informer.wait_synced().await.unwrap();
    seconds(1).await;
    let expected = "+blue/b* +blue/c* +blue/e* -green/d! -green/f! -red/a!";
    assert_eq!(received.take(), expected);
    set.set(Vec::<String>::new());
    informer.wait_synced().await.unwrap();
    seconds(1).await;
    assert_eq!(
        (keys(&informer), informer.health().watches.len()),
        (String::new(), 0)
    );
    assert!(informer.health().is_ready(), "there is nothing to follow");
    assert_eq!(received.take(), "-blue/b! -blue/c! -blue/e!");
    assert_eq!(received.0.lock().wrong, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn objects_that_stay_in_view_are_not_delivered_again_when_all_namespaces_become_some_and_back()
 {
    let server = server(1).await;
    let client = server.client();
    create(&client, &["red/a", "blue/b"]).await;
    let set = NamespaceSet::all();
    let informer = informer(&server, &set).build();
    let received = Received::default();
    let handle = informer
        .add_handler(received.handler(), HandlerOptions::new())
        .unwrap();
    let (_stop, _task) = run(&informer);
    handle.wait_synced().await.unwrap();
    let all = informer.lister().len();
    received.take();
    let key = "red/a".parse().unwrap();
    let before = informer.lister().get(&key).unwrap();
    assert!(informer.covers(&Scope::Cluster));
    set.set(["red"]);
    let first = server.resource_version();
    create(&client, &["red/c"]).await;
    informer.wait_synced().await.unwrap();
    seconds(1).await;
    assert_eq!(keys(&informer), "red/a red/c");
    let after = informer.lister().get(&key).unwrap();
    assert!(Arc::ptr_eq(&before, &after), "it was in view all the time");
    seconds(1).await;
    let lines = received.take();
    assert!(
        lines.contains("-blue/b!") && !lines.contains("red/a"),
        "{lines}"
    );
    assert!(lines.contains("+red/c"), "{lines}");

    // A lagging server has the former state, which is refused.
    server.faults().refuse_streaming_lists(true);
    let stale = Rule::new().resource("configmaps").verb("list");
    server.faults().add(stale.times(2).stale(first));
    set.set_all();
    informer.wait_synced().await.unwrap();
    assert_eq!(informer.lister().len(), all + 1);
    seconds(1).await;
    let lines = received.take();
    assert!(
        lines.contains("+blue/b*") && !lines.contains("red/"),
        "{lines}"
    );
    for r in server
        .requests()
        .all()
        .iter()
        .filter(|r| r.resource == "configmaps")
    {
        println!("{} {} {} {}", r.verb, r.path, r.query, r.code);
    }
    assert!(informer.health().stale > 0, "the old state was refused");
    assert_eq!(received.0.lock().wrong, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_cannot_be_read_costs_that_namespace_and_is_named() {
    let server = server(1).await;
    create(&server.client(), &["red/a", "blue/b"]).await;
    server.faults().add(
        Rule::new()
            .resource("configmaps")
            .namespace("blue")
            .status(403, "no"),
    );
    let set = NamespaceSet::new(["red", "blue"]);
    let factory = InformerFactory::new(server.client(), server.clock().clone());
    let informer = factory.informer_within::<ConfigMap>(
        Endpoint::of::<ConfigMap>(),
        &set,
        Selection::default(),
    );
    let same = factory.informer_within::<ConfigMap>(
        Endpoint::of::<ConfigMap>(),
        &set.clone(),
        Selection::default(),
    );
    let other = factory.informer_within::<ConfigMap>(
        Endpoint::of::<ConfigMap>(),
        &NamespaceSet::new(["red", "blue"]),
        Selection::default(),
    );
    assert!(Arc::ptr_eq(informer.indexer(), same.indexer()));
    assert!(
        !Arc::ptr_eq(informer.indexer(), other.indexer()),
        "another set"
    );
    drop(other);
    factory.start();
    let error = factory
        .wait_for_cache_sync(Duration::from_secs(30))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("configmaps in blue: failing"),
        "{error}"
    );
    assert_eq!(keys(&informer), "red/a");
    let version = ResourceVersion::from(server.resource_version().to_string());
    create(&server.client(), &["red/c"]).await;
    let red = Scope::namespace("red");
    informer
        .wait_for_resource_version(&red, &version)
        .await
        .unwrap();
    let health = informer.health();
    assert_eq!(
        (health.synced, health.activity),
        (false, Activity::BackingOff)
    );
    assert_eq!(health.resource_version.as_str(), "", "not all is known");
    assert!(health.watches[1].synced && health.watches[1].failure.is_none());
    set.remove("blue");
    // The other one is unused.
    factory
        .wait_for_cache_sync(Duration::from_secs(60))
        .await
        .unwrap();
    assert!(informer.health().is_ready(), "{:?}", informer.health());
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn all_other_namespaces_are_one_watch_that_leaves_out_those_with_their_own() {
    let server = server(3).await;
    let client = server.client();
    create(&client, &["blue/a", "green/a", "red/a", "white/a"]).await;
    let set = NamespaceSet::with_others(["red"]);
    let informer = informer(&server, &set).build();
    let received = Received::default();
    let options = HandlerOptions::new();
    let handle = informer.add_handler(received.handler(), options).unwrap();
    let (stop, task) = run(&informer);
    informer.wait_synced().await.unwrap();
    assert_eq!(keys(&informer), "blue/a green/a red/a white/a");
    let watched = || -> Vec<String> {
        let requests = server.requests().all();
        server.requests().clear();
        let mut watched: Vec<String> = requests
            .iter()
            .filter(|request| request.verb == "watch" && request.resource == "configmaps")
            .map(|request| {
                let fields = request
                    .query
                    .split('&')
                    .find(|pair| pair.starts_with("fieldSelector"));
                format!("{} {}", request.path, fields.unwrap_or_default())
            })
            .collect();
        watched.sort();
        watched
    };
    let red = "/api/v1/namespaces/red/configmaps ";
    let blue = "/api/v1/namespaces/blue/configmaps ";
    let not = "fieldSelector=metadata.namespace%21%3D";
    assert_eq!(
        watched(),
        [format!("/api/v1/configmaps {not}red"), red.to_owned()]
    );
    // One more by itself: the others get a new watch without it, and red keeps its watch.
    assert!(set.insert("blue"));
    informer.wait_synced().await.unwrap();
    create(&client, &["blue/b", "green/b", "red/b"]).await;
    seconds(1).await;
    let all = "blue/a blue/b green/a green/b red/a red/b white/a";
    assert_eq!(keys(&informer), all);
    let both = format!("/api/v1/configmaps {not}blue%2Cmetadata.namespace%21%3Dred");
    assert_eq!(watched(), [both, blue.to_owned()]);
    // The versions of the others do not apply to red, and the other way round.
    let scope = Scope::namespace("white");
    let version = ResourceVersion::from(server.resource_version().to_string());
    let waiting = informer.wait_for_resource_version(&scope, &version);
    tokio::time::timeout(Duration::from_secs(120), waiting)
        .await
        .expect("a bookmark comes")
        .unwrap();
    // Back among the others: no event.
    drop(received.take());
    assert!(set.remove("blue") && !set.remove("white"));
    informer.wait_synced().await.unwrap();
    assert_eq!(keys(&informer), all);
    assert_eq!(received.take(), "");
    // Without the others, their objects are gone.
    set.set(["red"]);
    informer.wait_synced().await.unwrap();
    seconds(1).await;
    assert_eq!(keys(&informer), "red/a red/b");
    assert!(received.0.lock().wrong.is_empty());
    assert!(handle.has_synced());
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_object_that_comes_to_a_scope_that_leaves_out_other_parts_is_read_again() {
    let server = server(4).await;
    let client = server.client();
    create(&client, &["green/a"]).await;
    for name in ["a", "b"] {
        let maps = Api::<ConfigMap>::namespaced(client.clone(), "red");
        write(&maps, name, 0, true).await;
        write(&maps, name, 1, false).await;
    }
    let set = NamespaceSet::with_others(["blue"]);
    let cluster_without_data = |scope: &Scope| Within {
        skip: match scope {
            Scope::Cluster => vec![".data".parse().unwrap()],
            Scope::Namespace(_) => Vec::new(),
        },
        ..Within::default()
    };
    let informer = informer(&server, &set).within(cluster_without_data).build();
    let received = Received::default();
    let options = HandlerOptions::new();
    let _handle = informer.add_handler(received.handler(), options).unwrap();
    let (stop, task) = run(&informer);
    let with_data = || {
        let all = informer.lister().list();
        all.iter().filter(|map| map.data.is_some()).count()
    };
    informer.wait_synced().await.unwrap();
    assert_eq!((informer.lister().len(), with_data()), (3, 0));
    drop(received.take());
    for (by_itself, expected) in [(true, 2), (false, 0)] {
        let changed = if by_itself {
            set.insert("red")
        } else {
            set.remove("red")
        };
        assert!(changed);
        informer.wait_synced().await.unwrap();
        seconds(1).await;
        assert_eq!(with_data(), expected);
        assert_eq!(received.take(), "~red/a ~red/b");
    }
    // Others that leave out the same change nothing, also before their list.
    assert!(set.remove("blue"));
    assert!(set.insert("red") && set.insert("white") && set.remove("red"));
    informer.wait_synced().await.unwrap();
    seconds(1).await;
    assert_eq!(with_data(), 0);
    assert!(received.0.lock().wrong.is_empty());
    stop.cancel();
    task.await.unwrap();
}

// === Random histories ===

async fn write(maps: &Api<ConfigMap>, name: &str, value: u64, create_it: bool) {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    let patch = serde_json::json!({"data": {"value": value.to_string()}});
    // Some exist already, some do not, some fail: only the server's state in the end counts.
    if create_it {
        let _ = maps.create(&PostParams::default(), &map).await;
    } else {
        let params = PatchParams::default();
        let _ = maps.patch(name, &params, &Patch::Merge(patch)).await;
    }
}

/// Leaves one object out of each namespace that is watched by itself, and another one out of all that are watched as
/// one.
fn choice(scope: &Scope) -> Within {
    let name = match scope {
        Scope::Cluster => "o2",
        Scope::Namespace(_) => "o1",
    };
    Within {
        fields: format!("metadata.name!={name}"),
        ..Within::default()
    }
}

fn left_out(set: &NamespaceSet, namespace: &str, name: &str) -> bool {
    let names = set.names().unwrap_or_default();
    let by_itself = names.iter().any(|known| &**known == namespace);
    name == if by_itself { "o1" } else { "o2" }
}

async fn history(seed: u64) -> Result<(), String> {
    let random = Random::seeded(seed);
    let pick = |many: u64| usize::try_from(random.below(many)).unwrap();
    let server = server(seed).await;
    let client = server.client();
    let set = NamespaceSet::new([NAMESPACES[pick(4)]]);
    let choosy = random.below(2) == 0;
    let mut builder = informer(&server, &set);
    if choosy {
        builder = builder.within(choice);
    }
    if random.below(3) == 0 {
        builder = builder.delta_fifo();
    }
    let informer = builder.build();
    let policies = [
        Policy::Coalesce { bound: 1 },
        Policy::Block { bound: 1 },
        Policy::DropToResync { bound: 1 },
    ];
    let received = policies.map(|policy| {
        let received = Received::default();
        let options = HandlerOptions::new()
            .policy(policy)
            .resync(Duration::from_secs(20));
        let handle = informer.add_handler(received.handler(), options).unwrap();
        (received, handle)
    });
    let (stop, task) = run(&informer);
    for step in 0..20 + random.below(40) {
        let maps = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACES[pick(4)]);
        let name = format!("o{}", random.below(4));
        match random.below(20) {
            0..5 => write(&maps, &name, step, true).await,
            5..9 => write(&maps, &name, step, false).await,
            9..12 => {
                let _ = maps.delete(&name, &DeleteParams::default()).await;
            }
            12 => drop(set.insert(NAMESPACES[pick(4)])),
            13 => drop(set.remove(NAMESPACES[pick(4)])),
            14 => match random.below(5) {
                0 => set.set_all(),
                3 => set.set_with_others([NAMESPACES[pick(4)]]),
                4 => set.set_with_others([NAMESPACES[pick(4)], NAMESPACES[pick(4)]]),
                1 => set.set([NAMESPACES[pick(4)], NAMESPACES[pick(4)]]),
                _ => set.set([NAMESPACES[pick(4)]]),
            },
            15 => server.close_watches(),
            16 => {
                server.close_watches();
                server.forget_history(None);
            }
            17 => {
                let codes = [429, 500, 503, 403];
                let verb = ["list", "watch"][pick(2)];
                let rule = Rule::new().resource("configmaps").verb(verb);
                let rule = rule.times(1 + random.below(4));
                server.faults().add(match random.below(4) {
                    0 => rule.reset_after(pick(3)),
                    1 => rule.stall_after(pick(3)),
                    _ => rule.status(codes[pick(4)], "fault"),
                });
            }
            18 => seconds(1 + random.below(120)).await,
            _ => tokio::time::sleep(Duration::from_millis(random.below(300))).await,
        }
    }
    server.faults().clear();
    seconds(600).await;
    tokio::time::timeout(Duration::from_secs(60), informer.wait_synced())
        .await
        .map_err(|_| format!("{set:?} does not sync: {:?}", informer.health()))?
        .unwrap();
    let mut wanted: Vec<String> = Api::<ConfigMap>::all(client)
        .list(&Default::default())
        .await
        .unwrap()
        .items
        .iter()
        .filter(|map| set.contains(&Scope::namespace(map.namespace().unwrap())))
        .filter(|map| !choosy || !left_out(&set, map.namespace().unwrap(), map.name()))
        .map(|map| format!("{}@{}", map.key(), map.resource_version()))
        .collect();
    wanted.sort();
    let mut stored: Vec<String> = informer
        .lister()
        .list()
        .iter()
        .map(|map| format!("{}@{}", map.key(), map.resource_version()))
        .collect();
    stored.sort();
    if stored != wanted {
        return Err(format!("store {stored:?}, server {wanted:?}, {set:?}"));
    }
    for (received, handle) in &received {
        let received = received.0.lock();
        let believed: Vec<_> = received
            .known
            .iter()
            .map(|(key, (version, _))| format!("{key}@{version}"))
            .collect();
        if believed != wanted || !received.wrong.is_empty() || !handle.has_synced() {
            return Err(format!(
                "received {believed:?}, server {wanted:?}, wrong {:?}, synced {}",
                received.wrong,
                handle.has_synced()
            ));
        }
    }
    stop.cancel();
    task.await.unwrap();
    Ok(())
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn random_histories_with_changing_namespaces_end_in_the_servers_state() {
    let seeds = match number("REEVE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("REEVE_HISTORIES").map_or(150, |many| many.div_ceil(10)),
    };
    for seed in seeds {
        let received = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(history(seed));
        if let Err(error) = received {
            panic!("REEVE_SEED={seed}: {error}");
        }
    }
}
