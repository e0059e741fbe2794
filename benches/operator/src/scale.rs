//! Many blocks and lists, against the built-in API server: memory, start, idle work, and lifts during a flood.
//!
//! The API server runs in the bench, so the operator's process is measured alone. kube-apiserver with etcd would take
//! minutes to make 100,000 objects, and nothing here depends on its speed but the rate of the flood, which is not judged.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use ipblock_operator::api::{self, BlockList, IPBlock, IPBlockSpec, Place};
use ipblock_operator::target::Target;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::blocks::{self, Error, Result, each, merge, send};
use crate::gateway::Gateway;
use crate::local::{LISTS, Local, fetch, free, now, peak, setup, sum};
use crate::report::Report;
use crate::subject::{Recipe, Subject};

/// Of requests. The first one writes nothing.
const METHODS: [&str; 5] = ["GET", "POST", "PATCH", "PUT", "DELETE"];

const LANES: usize = 16;
/// New blocks of the flood, and blocks that fall due while it lasts.
const FLOOD: usize = 10_000;
const DUE: usize = 500;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) blocks: usize,
    /// Entries of lists, 5,000 a list.
    pub(crate) entries: usize,
    /// How long the idle operator is watched.
    pub(crate) idle: Duration,
    /// Whether a gateway has the blocks, with a call for each; otherwise an engine of the type `list` serves all.
    pub(crate) called: bool,
    /// Whether the API server is reached by TLS.
    pub(crate) tls: bool,
}

struct Scale {
    local: Local,
    recipe: Recipe,
    scenario: String,
    /// Where blocks are banned.
    place: Place,
    gateway: Option<Gateway>,
}

/// Measures one size.
pub(crate) async fn run(
    report: &mut Report,
    operator: PathBuf,
    log: PathBuf,
    size: Size,
) -> Result<()> {
    let local = Local::start("scale", size.tls).await?;
    let (place, gateway, data) = if size.called {
        let gateway = Gateway::start().await?;
        let host = gateway.host();
        let data = json!({"engine": "iptables", "gatewayHost": host, "trigger": "[]"});
        (Place::new("iptables", &host), Some(gateway), data)
    } else {
        let list = free()?;
        let engines = format!("- {{name: edge, type: list, addr: '{list}', insecure: true}}");
        let data = json!({"engines": engines, "trigger": "[]"});
        (Place::new("sets", ""), None, data)
    };
    local.install(&data).await?;
    let more: &[&str] = if size.called {
        &["--allow-loopback"]
    } else {
        &[]
    };
    let at = if size.called { " at a gateway" } else { "" };
    let scale = Scale {
        recipe: local.recipe(operator, log, more),
        local,
        scenario: format!("{} + {} entries{at}", size.blocks, size.entries),
        place,
        gateway,
    };
    scale.measure(report, size).await
}

// === impl Scale ===

impl Scale {
    async fn measure(&self, report: &mut Report, size: Size) -> Result<()> {
        let add = |report: &mut Report, figure: &str, value: f64, unit| {
            report.add(&self.scenario, figure, "ours", value, unit);
        };
        let later = now() + SignedDuration::from_hours(5);
        self.active(0..size.blocks, later).await?;
        self.lists(size.entries, later).await?;

        let started = Instant::now();
        let mut subject = self.recipe.start()?;
        let wanted = size.blocks + size.entries;
        self.has(&mut subject, wanted, Duration::from_secs(180))
            .await?;
        add(
            report,
            "start until all is enforced",
            started.elapsed().as_secs_f64(),
            "s",
        );
        // Statuses of lists are written once; blocks are asserted.
        sleep(Duration::from_secs(20)).await;
        add(
            report,
            "writes of the start",
            writes(&self.metrics().await?),
            "",
        );
        let used = subject.usage();
        add(
            report,
            "CPU of the start and 20 s",
            used.cpu.as_secs_f64(),
            "s",
        );
        add(
            report,
            "resident memory",
            used.resident_bytes as f64 / 1e6,
            "MB",
        );
        add(report, "resident memory, peak", peak(&subject), "MB");

        let (cpu, before) = (subject.usage().cpu, self.metrics().await?);
        sleep(size.idle).await;
        let share = (subject.usage().cpu - cpu).as_secs_f64() / size.idle.as_secs_f64();
        add(report, "idle: CPU of one core", 100.0 * share, "%");
        let sent = writes(&self.metrics().await?) - writes(&before);
        add(report, "idle: writes", sent, "");

        self.flood(report, &mut subject, size.blocks).await?;
        add(
            report,
            "resident memory after the flood",
            subject.usage().resident_bytes as f64 / 1e6,
            "MB",
        );
        subject.stop().await?;
        Ok(())
    }

    /// New blocks as fast as the server takes them, while others fall due.
    async fn flood(&self, report: &mut Report, subject: &mut Subject, from: usize) -> Result<()> {
        // The flood lasts for some seconds; these fall due in its midst.
        let due = now() + SignedDuration::from_secs(8);
        self.active(from..from + DUE, due).await?;
        let left = Duration::try_from(due.duration_since(now())).unwrap_or_default();
        sleep(left.saturating_sub(Duration::from_secs(2))).await;
        let cpu = subject.usage().cpu;
        let before = self.metrics().await?;
        let lag = Lag::read(&before);
        let started = Instant::now();
        let client = self.local.client.clone();
        each(FLOOD, LANES, |n| {
            let client = client.clone();
            let (name, ip) = (format!("flood-{n}"), blocks::address(8_000_000 + n));
            async move { blocks::create(&client, &name, &ip, "1h").await.map(drop) }
        })
        .await?;
        let created = started.elapsed().as_secs_f64();
        report.add(
            &self.scenario,
            "flood: 10,000 blocks created in",
            "ours",
            created,
            "s",
        );
        let active = || async {
            let metrics = self.metrics().await?;
            Ok::<_, Error>(sum(&metrics, "ipblock_bans_total{") as usize >= FLOOD)
        };
        let all = timeout(Duration::from_secs(120), async {
            while subject.alive() && !active().await? {
                sleep(Duration::from_millis(100)).await;
            }
            Ok::<_, Error>(())
        });
        all.await
            .map_err(|_| Error::Setup("the flood is not banned within 120 s".into()))??;
        let took = started.elapsed().as_secs_f64();
        report.add(&self.scenario, "flood: all banned after", "ours", took, "s");
        let after = self.lag().await?;
        let lifted = after.count - lag.count;
        report.add(
            &self.scenario,
            "flood: due blocks lifted, of 500",
            "ours",
            lifted,
            "",
        );
        for (bound, label) in [(0.1, "100 ms"), (0.5, "500 ms"), (1.0, "1 s")] {
            let late = lifted - (after.within(bound) - lag.within(bound));
            let figure = format!("flood: lifted more than {label} late");
            report.add(&self.scenario, &figure, "ours", late, "");
        }
        sleep(Duration::from_secs(5)).await;
        let used = (subject.usage().cpu - cpu).as_secs_f64();
        report.add(&self.scenario, "flood: CPU", "ours", used, "s");
        let after = self.metrics().await?;
        for method in METHODS {
            let sent = requests(&after, method) - requests(&before, method);
            let figure = format!("flood: requests of the operator, {method}");
            report.add(&self.scenario, &figure, "ours", sent, "");
        }
        Ok(())
    }

    /// Makes blocks as the operator leaves them while their bans stand.
    async fn active(&self, numbers: std::ops::Range<usize>, until: Timestamp) -> Result<()> {
        let first = numbers.start;
        let since = now();
        each(numbers.len(), LANES, |n| {
            let client = self.local.client.clone();
            let number = first + n;
            let place = &self.place;
            async move {
                let (block, status) = active(number, since, until, place)?;
                let path = "/apis/ops.yiiong.top/v1/namespaces/default/ipblocks";
                send(&client, "POST", path, "application/json", &block).await?;
                merge(&client, &format!("active-{number}"), "/status", &status).await?;
                Ok(())
            }
        })
        .await
    }

    async fn lists(&self, entries: usize, until: Timestamp) -> Result<()> {
        let lists = entries.div_ceil(api::MOST_ENTRIES);
        each(lists, 4, |list| {
            let client = self.local.client.clone();
            async move {
                // As a feed that is split by a hash: each list has addresses from everywhere.
                let numbers = (list..entries).step_by(lists);
                let targets = numbers.map(|n| {
                    let bits = 0x2D00_0000 + u32::try_from(n).unwrap_or_default() * 97;
                    let end = until + SignedDuration::from_secs(i64::from(bits % 7200));
                    (Target::host(Ipv4Addr::from(bits).into()), Some(end))
                });
                let object = BlockList::of(&format!("feed-{list}"), targets);
                let object = serde_json::to_value(object).map_err(setup)?;
                send(&client, "POST", LISTS, "application/json", &object)
                    .await
                    .map(drop)
            }
        })
        .await
    }

    /// How many targets the list engine serves, or the gateway has.
    async fn enforced(&self) -> Result<usize> {
        if let Some(gateway) = &self.gateway {
            return Ok(gateway.enforced().len());
        }
        let all = self.metrics().await?;
        Ok(sum(&all, "ipblock_engine_enforced{") as usize)
    }

    /// Waits until at least `wanted` targets are enforced.
    async fn has(&self, subject: &mut Subject, wanted: usize, limit: Duration) -> Result<()> {
        let waiting = async {
            while subject.alive() {
                if self.enforced().await.is_ok_and(|count| count >= wanted) {
                    return Ok(());
                }
                sleep(Duration::from_millis(50)).await;
            }
            Err(Error::Setup(
                "the operator ended; its log has the reason".into(),
            ))
        };
        let waited = timeout(limit, waiting).await;
        waited
            .map_err(|_| Error::Setup(format!("{wanted} targets are not enforced in {limit:?}")))?
    }

    async fn metrics(&self) -> Result<String> {
        fetch(self.local.metrics, "/metrics").await
    }

    async fn lag(&self) -> Result<Lag> {
        Ok(Lag::read(&self.metrics().await?))
    }
}

/// The lateness of lifts so far.
struct Lag {
    count: f64,
    /// Upper bound and lifts up to it.
    buckets: Vec<(f64, f64)>,
}

// === impl Lag ===

impl Lag {
    fn read(metrics: &str) -> Self {
        let bucket = "ipblock_expiry_lag_seconds_bucket{le=\"";
        let buckets = metrics.lines().filter_map(|line| {
            let (bound, count) = line.strip_prefix(bucket)?.split_once("\"} ")?;
            Some((bound.parse().ok()?, count.trim().parse().ok()?))
        });
        Self {
            count: sum(metrics, "ipblock_expiry_lag_seconds_count"),
            buckets: buckets.collect(),
        }
    }

    fn within(&self, bound: f64) -> f64 {
        let mut buckets = self.buckets.iter();
        buckets.find(|(at, _)| *at >= bound).map_or(0.0, |it| it.1)
    }
}

/// A block that is banned until `until`, as an earlier leader left it, and its status. The end is the beginning and the
/// duration: a block whose records disagree is written again.
fn active(
    number: usize,
    now: Timestamp,
    until: Timestamp,
    place: &Place,
) -> Result<(Value, Value)> {
    let seconds = until.as_second() - now.as_second();
    let since = until - SignedDuration::from_secs(seconds);
    let ip = blocks::address(number);
    let target: Target = ip.parse().map_err(setup)?;
    let spec = IPBlockSpec {
        ip: ip.clone(),
        reason: Some("bench".into()),
        source: Some("bench".into()),
        duration: Some(format!("{seconds}s")),
        ..IPBlockSpec::default()
    };
    let name = format!("active-{number}");
    let block = IPBlock::born(&name, "default", &target, Some(place), spec);
    let block = serde_json::to_value(block).map_err(setup)?;
    let mut status = blocks::active_status(&ip, since, until, place)?;
    if place.endpoint.is_empty() {
        status["status"]["engines"] = json!([{"name": "edge", "enforced": true}]);
    }
    Ok((block, status))
}

/// What the operator wrote.
fn writes(metrics: &str) -> f64 {
    let [_, writing @ ..] = METHODS;
    writing.map(|method| requests(metrics, method)).iter().sum()
}

/// The requests of the operator with a method.
fn requests(metrics: &str, method: &str) -> f64 {
    let label = format!("method=\"{method}\"");
    let lines = metrics.lines();
    let lines = lines.filter(|line| line.starts_with("rest_client_requests_total{"));
    lines
        .filter(|line| line.contains(&label))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}
