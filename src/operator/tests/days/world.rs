//! The parts of a day: API server, gateways, configuration, and the processes of the operator in their order.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use ipblock_simulator::{Gateway, Operation};
use reeve_apiserver::faults::Handle;
use tokio::task::JoinHandle;

use super::super::*;
use super::process::{Dates, Network, Notices, Process};
use super::users::{ATTACKERS, BY_HAND};
use super::*;
use crate::config::keys;
use crate::reconcile::{Announcer, LONGEST_RETRY};
use crate::target::Target;
use crate::time::ServerTime;

/// Where the gateways are.
pub(super) const PLACES: [&str; 2] = ["192.0.2.250:9521", "192.0.2.251:9521"];

/// Always on the allowlist.
pub(super) const COLLEAGUE: &str = "203.0.113.10";

/// The most calls of gateways within an hour: twenty bans are asserted every five minutes (240), three of them are checked
/// every twenty seconds (540), and the rest is for faults.
const MOST_CALLS: usize = 2000;

/// The most blocks at once: those of users and alerts, and some whose deletion waits for a lift.
const MOST_BLOCKS: usize = BY_HAND as usize + ATTACKERS.len() + 10;

/// The most requests about blocks within an hour.
const MOST_REQUESTS: u64 = 2500;

/// A gateway, and how it is reached.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) gateway: Gateway,
    /// Connections are refused.
    pub(super) off: Arc<AtomicBool>,
    /// Until when something about it fails.
    pub(super) faulty_until: Instant,
    /// From and until when it answers each call with a failure.
    pub(super) failing: Vec<(Instant, Instant)>,
}

/// What the configuration says at present.
#[derive(Clone, Debug)]
pub(super) struct Configured {
    pub(super) place: usize,
    pub(super) allowed: BTreeSet<Target>,
    pub(super) most_active: Option<usize>,
    pub(super) most_per_minute: Option<usize>,
}

pub(super) struct World {
    pub(super) server: Arc<ApiServer>,
    /// The right time.
    pub(super) clock: Clock,
    pub(super) engine: &'static str,
    /// Whether a set engine follows the blocks and a list, too.
    pub(super) follows: bool,
    pub(super) sites: Vec<Site>,
    pub(super) configured: Configured,
    pub(super) processes: Vec<Process>,
    pub(super) notices: Arc<Notices>,
    pub(super) blocks: Api<IPBlock>,
    pub(super) maps: Api<ConfigMap>,
    pub(super) timeline: Timeline,
    /// Until when something fails.
    pub(super) disturbed: Instant,
    /// From and until when something failed, or was about to be mended.
    pub(super) disturbances: Vec<(Timestamp, Timestamp)>,
    /// Until when there are two replicas.
    pub(super) replicas: Option<Instant>,
    /// When the gateway was replaced last.
    pub(super) moved: Instant,
    /// A process ended that must not.
    broken: Arc<Mutex<Option<String>>>,
    /// The ends of faults.
    pub(super) endings: Vec<JoinHandle<()>>,
    /// Counts the requests about blocks.
    requests: Handle,
    counted: u64,
    calls: usize,
    hour: Instant,
    /// The tasks without the operator.
    idle: usize,
}

// === impl World ===

impl World {
    pub(super) async fn new(
        engine: &'static str,
        follows: bool,
        clock: Clock,
        timeline: Timeline,
    ) -> Self {
        let server = ApiServer::builder()
            .clock(clock.clone())
            .event_ttl(None)
            .record_requests(false)
            .token(
                TOKEN,
                User::service_account("default", "ipblock-operator", ""),
            )
            .start()
            .await
            .unwrap();
        let client = server.client();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in api::crds() {
            definitions
                .create(&PostParams::default(), &definition)
                .await
                .unwrap();
        }
        served(&client).await;
        let rule = Rule::new().resource("ipblocks").delay(Duration::ZERO);
        let requests = server.faults().add(rule);
        let site = || Site {
            gateway: Gateway::new(clock.clone()),
            off: Arc::default(),
            faulty_until: Instant::now(),
            failing: Vec::new(),
        };
        let mut world = Self {
            sites: vec![site(), site()],
            processes: Vec::new(),
            notices: Arc::new(Notices {
                all: Mutex::default(),
                timeline: timeline.clone(),
            }),
            blocks: Api::namespaced(client.clone(), "default"),
            maps: Api::namespaced(client, "default"),
            disturbed: Instant::now(),
            replicas: None,
            endings: Vec::new(),
            disturbances: Vec::new(),
            requests,
            counted: 0,
            calls: 0,
            hour: Instant::now(),
            idle: 0,
            configured: Configured {
                place: 0,
                allowed: BTreeSet::new(),
                most_active: None,
                most_per_minute: None,
            },
            server: Arc::new(server),
            clock,
            moved: Instant::now(),
            broken: Arc::default(),
            engine,
            follows,
            timeline,
        };
        world.idle = world.alive_tasks().await;
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(CONFIG_MAP.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(world.data()),
            ..ConfigMap::default()
        };
        let create = PostParams::default();
        world.maps.create(&create, &map).await.unwrap();
        world
    }

    /// The content of the ConfigMap.
    pub(super) fn data(&self) -> BTreeMap<String, String> {
        let configured = &self.configured;
        let mut allowed = vec![COLLEAGUE.to_owned()];
        allowed.extend(configured.allowed.iter().map(ToString::to_string));
        let mut data = BTreeMap::from([
            (keys::ENGINE, self.engine.to_owned()),
            (keys::GATEWAY_HOST, PLACES[configured.place].to_owned()),
            (keys::WHITELIST, allowed.join("\n")),
            (keys::RESYNC_INTERVAL, "5m".to_owned()),
            (keys::RETENTION, "2h".to_owned()),
        ]);
        if self.follows {
            data.insert(keys::ENGINES, super::sets::ENGINE.to_owned());
        }
        if let Some(most) = configured.most_active {
            data.insert(keys::MAX_ACTIVE_BLOCKS, most.to_string());
        }
        if let Some(most) = configured.most_per_minute {
            data.insert(keys::MAX_BANS_PER_MINUTE, most.to_string());
        }
        let data = data.into_iter();
        data.map(|(key, text)| (key.to_owned(), text)).collect()
    }

    /// Nothing has failed for a while.
    pub(super) fn is_settled(&self) -> bool {
        self.disturbed + SETTLED <= Instant::now()
    }

    /// Something fails from now on for this long.
    pub(super) fn disturb(&mut self, duration: Duration) {
        let now = self.clock.now();
        let disturbance = (now, now + signed(duration + SETTLED));
        self.disturbances.push(disturbance);
        self.disturbed = self.disturbed.max(Instant::now() + duration);
    }

    /// The number of tasks, when those that ended are gone.
    pub(super) async fn alive_tasks(&self) -> usize {
        tokio::time::sleep(10 * SECOND).await;
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    }

    /// Starts the operator, alone.
    pub(super) async fn start(&mut self) {
        let process = Process::new(&self.clock, None, 1);
        self.processes = vec![process];
        self.launch(0, Duration::ZERO);
        tokio::time::sleep(MINUTE).await;
    }

    /// Starts process `number` after `downtime`, and again whenever it ends.
    fn launch(&mut self, number: usize, downtime: Duration) {
        let sites = self.sites.iter();
        let network = sites.map(|site| (site.gateway.clone(), Arc::clone(&site.off)));
        let connector = Arc::new(Network(network.collect()));
        let client = self.server.client_with(Some(TOKEN));
        let dates = Arc::new(Dates(client.clone(), self.clock.clone()));
        let process = &mut self.processes[number];
        let (running, node) = (Arc::clone(&process.running), process.node.clone());
        let (identity, announcer) = (process.identity.clone(), Arc::clone(&self.notices));
        let (timeline, broken) = (self.timeline.clone(), Arc::clone(&self.broken));
        let task = tokio::spawn(async move {
            tokio::time::sleep(downtime).await;
            loop {
                let settings = Settings {
                    connector: Some(Arc::clone(&connector) as Arc<dyn Connector>),
                    announcer: Some(Arc::clone(&announcer) as Arc<dyn Announcer>),
                    identity: identity.clone(),
                    server_time: Some(Arc::clone(&dates) as Arc<dyn ServerTime>),
                    ..Settings::new(node.clone())
                };
                match Operator::build(client.clone(), settings).await {
                    Ok(operator) => {
                        *running.lock() = Some(operator.clone());
                        let ended = operator.run(CancellationToken::new()).await;
                        *running.lock() = None;
                        timeline.add(format!("    process {number} ended: {ended:?}"));
                        if identity.is_none() {
                            *broken.lock() = Some(format!("{ended:?}"));
                        }
                    }
                    Err(error) => timeline.add(format!("    process {number}: {error}")),
                }
                tokio::time::sleep(2 * SECOND).await;
            }
        });
        process.task = Some(AbortOnDropHandle::new(task));
    }

    /// Kills process `number`; it is started again after `downtime`.
    pub(super) fn restart(&mut self, number: usize, downtime: Duration) {
        self.timeline
            .add(format!("process {number} is killed for {downtime:?}"));
        self.processes[number].kill();
        self.launch(number, downtime);
        self.disturb(downtime);
    }

    /// Two replicas with a lease from now on, or one without.
    pub(super) fn replicate(&mut self, replicas: bool) {
        self.timeline.add(format!("two replicas: {replicas}"));
        self.processes.iter_mut().for_each(Process::kill);
        let identities: &[Option<&str>] = match replicas {
            true => &[Some("one"), Some("two")],
            false => &[None],
        };
        let clock = &self.clock;
        let processes = identities.iter().zip(1..);
        self.processes = processes
            .map(|(identity, seed)| Process::new(clock, *identity, seed))
            .collect();
        for number in 0..self.processes.len() {
            self.launch(number, SECOND);
        }
        self.disturb(SECOND);
    }

    /// Often in the middle of what follows from the last action.
    pub(super) async fn maybe_kill(&mut self, random: &Random) {
        if random.below(10) > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(random.below(60))).await;
        let number = random.below(self.processes.len() as u64) as usize;
        let downtime = match random.below(3) {
            0 => SECOND,
            1 => seconds_from(random, 2, 30),
            _ => seconds_from(random, 30, 900),
        };
        self.restart(number, downtime);
    }

    /// Ends all faults.
    pub(super) async fn mend(&mut self) {
        self.timeline.add("faults end");
        for ending in std::mem::take(&mut self.endings) {
            ending.await.unwrap();
        }
        for process in &mut self.processes {
            process.node.jump(-process.ahead);
            process.ahead = SignedDuration::ZERO;
        }
        if self.replicas.take().is_some() {
            self.replicate(false);
        }
        let now = Instant::now();
        tokio::time::sleep(self.disturbed.max(now) - now + SETTLED + MINUTE).await;
    }

    /// Counts calls and requests, and fails if a protected address was banned.
    pub(super) fn watch(&mut self, summary: &mut Summary) {
        let broken = self.broken.lock().take();
        assert!(broken.is_none(), "the operator ended: {broken:?}");
        for site in &self.sites {
            let calls = site.gateway.calls();
            site.gateway.forget_calls();
            for call in calls.iter().filter(|call| call.operation == Operation::Ban) {
                let (_, query) = call.request.split_once('=').unwrap();
                let text = query.split('&').next().unwrap().replace("%2F", "/");
                let target: Target = text.replace("%3A", ":").parse().unwrap();
                for protected in [COLLEAGUE, "127.0.0.1"] {
                    let protected: Target = protected.parse().unwrap();
                    assert!(!target.overlaps(&protected), "{call:?}");
                }
            }
            self.calls += calls.len();
        }
        if self.hour.elapsed() < HOUR {
            return;
        }
        let hours = self.hour.elapsed().as_secs_f64() / 3600.0;
        let requests = self.requests.hits() - self.counted;
        self.counted += requests;
        let retries = self.most_retries();
        let (calls, requests) = (self.calls as f64 / hours, requests as f64 / hours);
        (self.calls, self.hour) = (0, Instant::now());
        summary.calls = summary.calls.max(calls as usize);
        summary.requests = summary.requests.max(requests as u64);
        let most = MOST_CALLS + (retries as f64 / hours) as usize;
        assert!(
            calls as usize <= most,
            "{calls} calls in an hour, and {most} at most"
        );
        assert!(
            requests as u64 <= MOST_REQUESTS,
            "{requests} requests about blocks in an hour"
        );
    }

    /// The most calls in the present hour because gateways answer with failures. Such an answer may be about its address
    /// alone, so the breaker stays closed, and each block is tried again with its own back-off.
    fn most_retries(&self) -> usize {
        let failing = self.sites.iter().flat_map(|site| &site.failing);
        let within = failing.map(|(from, until)| {
            let from = (*from).max(self.hour);
            (*until).min(Instant::now()).saturating_duration_since(from)
        });
        let within: Duration = within.sum();
        MOST_BLOCKS * within.as_secs().div_ceil(LONGEST_RETRY.as_secs()) as usize
    }

    /// Deletes all blocks and the operator: nothing stays.
    pub(super) async fn finish(&mut self, users: &mut Users, running: usize) {
        for name in users.names() {
            let delete = DeleteParams::default();
            let _ = self.blocks.delete(&name, &delete).await;
        }
        tokio::time::sleep(2 * MINUTE).await;
        let left = self.blocks.list(&ListParams::default()).await.unwrap();
        let left: Vec<_> = left.items.iter().map(IPBlock::key).collect();
        assert!(left.is_empty(), "still there: {left:?}");
        for site in &self.sites {
            let banned = site.gateway.targets();
            assert!(banned.is_empty(), "still banned: {banned:?}");
        }
        self.check_events().await;
        let operator = self.processes[0].operator().unwrap();
        assert!(operator.kept.coverage.lock().is_empty(), "claims are left");
        assert!(operator.kept.locks.is_empty(), "locks are left");
        drop(operator);
        let tasks = self.alive_tasks().await;
        assert!(
            tasks <= running,
            "{tasks} tasks, and {running} at the start"
        );
        self.processes.clear();
        let tasks = self.alive_tasks().await;
        assert!(
            tasks <= self.idle,
            "{tasks} tasks, and {} before the start",
            self.idle
        );
    }
}
