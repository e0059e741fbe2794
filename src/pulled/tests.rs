//! Sources over time, against objects in memory and servers in process.

mod braked;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::SignedDuration;
use parking_lot::Mutex;
use reeve_clock::Clock;
use tokio_util::sync::CancellationToken;

use super::brake::Brakes;
use super::sink::{BlockSink, Known, Sink};
use super::sources::Sinks;
use super::*;
use crate::api::{IPBlock, Phase, write_time};
use crate::config::Options;
use crate::inbound;
use crate::lock::KeyedLocks;
use crate::outbound::{InProcess, Outbound};
use crate::time::Time;
use crate::trigger::in_memory::InMemory;
use crate::trigger::{self, Blocks, BlocksError, Repeat, Triggers};

/// What the server answers.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) list: Mutex<(u16, String)>,
    calls: Mutex<usize>,
}

#[derive(Debug)]
struct World {
    blocks: Arc<InMemory>,
    server: Arc<Server>,
    sources: Arc<Sources>,
    clock: Clock,
    time: Time,
    metrics: Metrics,
    triggers: Arc<Triggers>,
    stop: CancellationToken,
    /// What the reconciler refuses.
    refused: Mutex<Vec<&'static str>>,
}

/// The cache is never behind here.
#[derive(Debug)]
struct Current(Arc<InMemory>);

impl Known for Current {
    fn get(&self, _: &str, name: &str) -> Option<Arc<IPBlock>> {
        self.0.objects.lock().get(name).cloned().map(Arc::new)
    }

    fn all(&self, _: &str) -> Result<Vec<Arc<IPBlock>>, String> {
        let objects = self.0.objects.lock();
        Ok(objects.values().cloned().map(Arc::new).collect())
    }
}

#[derive(Debug)]
pub(super) struct ToServer(pub(super) Arc<Server>);

impl Connect for ToServer {
    fn connect(&self, _: &Source) -> Result<Arc<dyn Outbound>, String> {
        let server = Arc::clone(&self.0);
        Ok(Arc::new(InProcess::new(move |_| {
            *server.calls.lock() += 1;
            let (status, list) = server.list.lock().clone();
            let answer = http::Response::builder().status(status);
            let answer = answer.body(Bytes::from(list)).unwrap();
            async move { Ok(answer) }
        })))
    }
}

pub(super) fn feed(extra: &str) -> Source {
    let yaml = format!(
        "{{name: list, type: feed, url: 'https://lists.example/bad', interval: 1h, duration: 24h, {extra}}}"
    );
    let raw: RawSource = serde_saphyr::from_str(&yaml).unwrap();
    raw.define(&Options::default()).unwrap()
}

pub(super) fn crowdsec(extra: &str) -> Source {
    let yaml = format!(
        "{{name: list, type: crowdsec, url: 'https://lapi.example', apiKeyFile: /s/k, interval: 1m, {extra}}}"
    );
    let raw: RawSource = serde_saphyr::from_str(&yaml).unwrap();
    let options = Options {
        secrets: crate::mounted::Directory::new("/s"),
        ..Options::default()
    };
    let mut source = raw.define(&options).unwrap();
    // There is no such file.
    source.secret = None;
    source
}

/// The decisions on these addresses, each for `hours`.
pub(super) fn decisions(addresses: &[String], hours: u32) -> String {
    let new = addresses.iter().enumerate().map(|(id, address)| {
        serde_json::json!({
            "id": id, "origin": "crowdsec", "type": "ban", "scenario": "crowdsecurity/ssh-bf",
            "scope": "Ip", "value": address, "duration": format!("{hours}h"),
        })
    });
    let new: Vec<serde_json::Value> = new.collect();
    serde_json::json!({"new": new, "deleted": null}).to_string()
}

/// The answer of a stream without news.
const NO_NEWS: &str = r#"{"new": null, "deleted": null}"#;

/// The rules of alerts, with the defaults of the configuration.
pub(super) fn triggers(
    blocks: Arc<dyn Blocks>,
    time: &Time,
    longest: Option<Duration>,
) -> Triggers {
    Triggers::new(
        trigger::Dependencies {
            blocks,
            locks: KeyedLocks::new(),
            time: time.clone(),
            metrics: trigger::Metrics::default(),
            limits: inbound::limits(),
        },
        settings(longest),
    )
}

fn settings(longest: Option<Duration>) -> trigger::Settings {
    trigger::Settings {
        namespace: "default".into(),
        place: None,
        default_duration: Duration::from_secs(600),
        max_duration: longest,
        repeated_alert: Repeat::Ignore,
        unblock_grace: Duration::from_secs(600),
        escalation: None,
        shadow: std::collections::BTreeSet::new(),
    }
}

impl World {
    fn new(list: &str) -> Self {
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1);
        let time = Time::trusting(clock.clone());
        let blocks = Arc::new(InMemory::default());
        let triggers = triggers(Arc::clone(&blocks) as Arc<dyn Blocks>, &time, None);
        let triggers = Arc::new(triggers);
        let server = Arc::new(Server::default());
        *server.list.lock() = (200, list.to_owned());
        let known = Arc::new(Current(Arc::clone(&blocks)));
        let brakes = Arc::<Brakes>::default();
        let sink = BlockSink::new(Arc::clone(&triggers), known, Arc::clone(&brakes));
        let metrics = Metrics::default();
        let connect = Arc::new(ToServer(Arc::clone(&server)));
        let sink: Arc<dyn Sink> = Arc::new(sink);
        let sinks = Sinks {
            blocks: Arc::clone(&sink),
            lists: sink,
        };
        let sources = Sources::new(connect, sinks, brakes, time.clone(), metrics.clone());
        Self {
            blocks,
            server,
            sources: Arc::new(sources),
            clock,
            time,
            metrics,
            triggers,
            stop: CancellationToken::new(),
            refused: Mutex::default(),
        }
    }

    fn lead(&self) -> tokio::task::JoinHandle<()> {
        let (sources, stop) = (Arc::clone(&self.sources), self.stop.clone());
        tokio::spawn(async move { sources.run(stop).await })
    }

    /// The reconciler bans what is asked for, and lifts what is due.
    fn reconcile(&self) {
        let now = self.time.now();
        let all: Vec<IPBlock> = self.blocks.objects.lock().values().cloned().collect();
        for mut block in all {
            let length = block.spec.duration.as_deref().map(crate::duration::parse);
            let length = SignedDuration::try_from(length.unwrap().unwrap()).unwrap();
            let asked = block.spec.trigger.take() == Some(true);
            let created = block.metadata.creation_timestamp.clone();
            let created =
                created.unwrap_or(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
            block.metadata.creation_timestamp = Some(created);
            let status = block.status.get_or_insert_default();
            if self.refused.lock().contains(&block.spec.ip.as_str()) {
                status.phase = Some(Phase::Skipped);
                self.blocks.put(block);
                continue;
            }
            if asked || status.phase.is_none() || status.is(&Phase::Skipped) {
                status.phase = Some(Phase::Active);
                status.blocked_at = Some(write_time(now));
                status.ban_count = Some(status.bans() + 1);
            }
            let end = status.blocked_at().unwrap() + length;
            status.expires_at = Some(write_time(end));
            if end <= now {
                status.phase = Some(Phase::Expired);
            }
            self.blocks.put(block);
        }
    }

    fn phases(&self) -> BTreeMap<String, String> {
        let objects = self.blocks.objects.lock();
        let phases = objects.values().map(|block| {
            let phase = block.status.as_ref().and_then(|it| it.phase.clone());
            (
                block.spec.ip.clone(),
                phase.map_or_else(String::new, |it| it.as_str().to_owned()),
            )
        });
        phases.collect()
    }

    fn phase(&self, ip: &str) -> String {
        self.phases()
            .get(ip)
            .cloned()
            .unwrap_or_else(|| "none".into())
    }

    fn writes(&self) -> usize {
        self.blocks.writes.lock().len()
    }

    /// Lets time pass, with a reconcile each minute.
    async fn pass(&self, minutes: u32) {
        for _ in 0..minutes {
            tokio::time::sleep(Duration::from_secs(60)).await;
            self.reconcile();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn entries_are_banned_as_long_as_they_are_listed() {
    let world = World::new("192.0.2.1\n192.0.2.2\n");
    world.sources.set(&[feed("")]);
    let running = world.lead();
    world.pass(2).await;
    assert_eq!(
        (world.phase("192.0.2.1"), world.phase("192.0.2.2")),
        ("active".into(), "active".into())
    );
    world.pass(30 * 60).await;
    let block = world.blocks.one(&crate::target::object_name("192.0.2.1"));
    let status = block.status.unwrap();
    assert_eq!(status.bans(), 1, "one ban, whose end moved");
    assert!(status.expires_at().unwrap() > world.time.now() + SignedDuration::from_hours(10));
    assert!(
        world.writes() <= 2 + 2 * 3,
        "{} writes in 30 hours",
        world.writes()
    );

    *world.server.list.lock() = (200, "192.0.2.1\n".into());
    world.pass(70).await;
    assert_eq!(
        (world.phase("192.0.2.1"), world.phase("192.0.2.2")),
        ("active".into(), "expired".into())
    );
    *world.server.list.lock() = (200, "192.0.2.1\n192.0.2.2\n".into());
    world.pass(70).await;
    assert_eq!(world.phase("192.0.2.2"), "active", "listed again");
    world.stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_listed_address_is_never_free_where_bans_have_a_limit() {
    let world = World::new("192.0.2.1\n");
    world
        .triggers
        .set(settings(Some(Duration::from_secs(24 * 3600))));
    world.sources.set(&[feed("")]);
    let running = world.lead();
    world.pass(2).await;
    for minute in 0..60 * 60 {
        assert_eq!(world.phase("192.0.2.1"), "active", "minute {minute}");
        world.pass(1).await;
    }
    let block = world.blocks.one(&crate::target::object_name("192.0.2.1"));
    assert_eq!(block.status.unwrap().bans(), 3, "one a day");
    world.stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_the_server_lifts_nothing_and_is_tried_more_slowly() {
    let world = World::new("192.0.2.1\n");
    world.sources.set(&[feed("")]);
    let _running = world.lead();
    world.pass(2).await;
    for answer in [
        (500, String::new()),
        (200, "<html>\n<p>\n".into()),
        (200, String::new()),
    ] {
        *world.server.list.lock() = answer;
        let before = *world.server.calls.lock();
        world.pass(180).await;
        assert_eq!(world.phase("192.0.2.1"), "active");
        let calls = *world.server.calls.lock() - before;
        assert!((14..=35).contains(&calls), "{calls} calls in three hours");
    }
    assert!(world.metrics.pulls("list", "failed") > 40);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_entries_that_left_meanwhile_are_lifted() {
    let world = World::new("192.0.2.1\n192.0.2.2\n");
    world.sources.set(&[feed("")]);
    let first = world.lead();
    world.pass(2).await;
    first.abort();
    let _ = first.await;
    *world.server.list.lock() = (200, "192.0.2.2\n".into());
    world.pass(120).await;
    assert_eq!(world.phase("192.0.2.1"), "active", "no replica leads");
    let _second = world.lead();
    world.pass(2).await;
    assert_eq!(
        (world.phase("192.0.2.1"), world.phase("192.0.2.2")),
        ("expired".into(), "active".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_ban_of_others_is_not_lifted_by_a_source() {
    let world = World::new("192.0.2.1\n192.0.2.9\n");
    let target: crate::target::Target = "192.0.2.1".parse().unwrap();
    let spec = crate::api::IPBlockSpec {
        ip: target.to_string(),
        duration: Some("48h".into()),
        ..Default::default()
    };
    world.blocks.put(IPBlock::born(
        &target.object_name(),
        "default",
        &target,
        None,
        spec,
    ));
    world.reconcile();
    world.sources.set(&[feed("")]);
    let _running = world.lead();
    world.pass(2).await;
    *world.server.list.lock() = (200, "192.0.2.9\n".into());
    world.pass(70).await;
    assert_eq!(world.phase("192.0.2.1"), "active");
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_is_written_later() {
    let world = World::new("192.0.2.1\n192.0.2.2\n");
    world
        .blocks
        .fail(BlocksError::Unavailable("no API server".into()));
    world.sources.set(&[feed("")]);
    let _running = world.lead();
    world.pass(1).await;
    assert_eq!(world.phases().len(), 2, "a few seconds later");
    assert_eq!(world.metrics.pulls("list", "unwritten"), 1);
    *world.server.list.lock() = (200, "192.0.2.1\n".into());
    world
        .blocks
        .fail(BlocksError::Unavailable("no API server".into()));
    world.pass(70).await;
    assert_eq!(world.phase("192.0.2.2"), "expired", "lifts, too");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_gone_is_pulled_no_more_and_its_bans_run_out() {
    let world = World::new("192.0.2.1\n");
    world.sources.set(&[feed("")]);
    let _running = world.lead();
    world.pass(2).await;
    world.sources.set(&[]);
    world.pass(1).await;
    let calls = *world.server.calls.lock();
    world.pass(23 * 60).await;
    assert_eq!(world.phase("192.0.2.1"), "active");
    world.pass(70).await;
    assert_eq!(world.phase("192.0.2.1"), "expired");
    assert_eq!(*world.server.calls.lock(), calls);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_lifts_no_decision_of_a_stream() {
    let world = World::new(&decisions(&["192.0.2.1".into()], 2));
    world.sources.set(&[crowdsec("")]);
    let _running = world.lead();
    world.pass(2).await;
    *world.server.list.lock() = (200, NO_NEWS.into());
    world.pass(2).await;
    world.clock.jump(SignedDuration::from_hours(3));
    world.pass(5).await;
    assert_eq!(
        world.phase("192.0.2.1"),
        "active",
        "nothing has confirmed the jump"
    );
    world.pass(120).await;
    assert_eq!(world.phase("192.0.2.1"), "expired");
}

#[tokio::test(start_paused = true)]
async fn a_refused_entry_is_not_requested_at_every_pull() {
    let world = World::new("192.0.2.1\n");
    world.refused.lock().push("192.0.2.1");
    world.sources.set(&[feed("")]);
    let _running = world.lead();
    world.pass(24 * 60).await;
    assert_eq!(
        world.writes(),
        1,
        "it is banned when it is not refused any more"
    );
    world.pass(24 * 60).await;
    let writes = world.writes();
    assert!((2..=4).contains(&writes), "{writes} writes in two days");
    world.refused.lock().clear();
    world.sources.recheck();
    world.pass(70).await;
    assert_eq!(world.phase("192.0.2.1"), "active", "at the next pull");
}

#[tokio::test(start_paused = true)]
async fn what_only_a_source_in_shadow_mode_reported_is_banned_for_a_list() {
    let world = World::new("192.0.2.1\n");
    let shown = trigger::Settings {
        shadow: ["shown".to_owned()].into(),
        ..settings(None)
    };
    world.triggers.set(shown);
    world.refused.lock().push("192.0.2.1");
    let other = world.triggers.pulled("shown", None);
    let target = "192.0.2.1".parse().unwrap();
    other.ban(&target, "7d", "an alert").await.unwrap();
    world.reconcile();
    assert_eq!(world.phase("192.0.2.1"), "skipped");
    world.sources.set(&[feed("")]);
    let _running = world.lead();
    world.pass(2).await;
    let blocks = world.blocks.objects.lock();
    let block = blocks.values().next().unwrap();
    assert_eq!(block.spec.source.as_deref(), Some("list"));
    assert!(blocks.len() == 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_decision_is_written_once() {
    let world = World::new(&decisions(&["192.0.2.1".into()], 4));
    world.refused.lock().push("192.0.2.1");
    world.sources.set(&[crowdsec("")]);
    let _running = world.lead();
    world.pass(2).await;
    *world.server.list.lock() = (200, NO_NEWS.into());
    world.pass(230).await;
    assert_eq!(world.writes(), 1);
}
