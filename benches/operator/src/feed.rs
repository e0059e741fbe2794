//! A list of many entries that is pulled and kept as BlockLists, against the built-in API server: the time until it is
//! enforced, memory, and the writes of a small change.
//!
//! The API server and the server of the list run in the bench, so the operator's process is measured alone.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipblock_operator::inbound;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::blocks::{Error, Result};
use crate::local::{Local, fetch, free, loopback, peak, sum};
use crate::report::Report;
use crate::subject::Subject;

/// The entries that leave and come in the small change.
const CHANGED: usize = 100;

/// How long a step may take.
const LIMIT: Duration = Duration::from_secs(900);

/// Measures a list of `entries`.
pub(crate) async fn run(
    report: &mut Report,
    operator: PathBuf,
    log: PathBuf,
    entries: usize,
) -> Result<()> {
    let local = Local::start("feed", false).await?;
    let list = Arc::new(Mutex::new(lines(0..entries)));
    let shown = Arc::clone(&list);
    let handler = move |_| {
        let text = shown.lock().clone();
        async move { inbound::text(http::StatusCode::OK, text) }
    };
    let serving_list = inbound::serve(loopback(0), inbound::limits(), handler)?;
    let edge = free()?;
    let engines = format!("- {{name: edge, type: list, addr: '{edge}', insecure: true}}");
    let sources = format!(
        "- {{name: feed, type: feed, url: 'http://{}/', interval: 30s, objects: BlockList, maxEntries: {entries}}}",
        serving_list.local_addr()
    );
    let data = json!({"engines": engines, "trigger": "[]", "sources": sources});
    local.install(&data).await?;
    let recipe = local.recipe(operator, log, &["--allow-loopback"]);
    let mut bench = Bench {
        report,
        metrics: local.metrics,
        subject: recipe.start()?,
        scenario: format!("a list of {entries}"),
    };
    bench.measure(&list, entries).await?;
    bench.subject.stop().await?;
    Ok(())
}

/// The operator at work on one list.
struct Bench<'a> {
    report: &'a mut Report,
    metrics: SocketAddr,
    subject: Subject,
    scenario: String,
}

// === impl Bench ===

impl Bench<'_> {
    async fn measure(&mut self, list: &Mutex<String>, entries: usize) -> Result<()> {
        let started = Instant::now();
        self.until("every entry is enforced", |metrics| {
            sum(metrics, "ipblock_engine_enforced{") as usize >= entries
        })
        .await?;
        self.add("start until enforced", started.elapsed().as_secs_f64(), "s");
        let first = self.writes().await?;
        self.add("writes of lists", first, "");
        // Statuses are written after it.
        sleep(Duration::from_secs(20)).await;
        let used = self.subject.usage();
        self.add("CPU so far", used.cpu.as_secs_f64(), "s");
        self.add("resident memory", used.resident_bytes as f64 / 1e6, "MB");
        self.add("resident memory, peak", peak(&self.subject), "MB");

        // From places all over the list.
        let step = entries / CHANGED;
        let stay = (0..entries).filter(|number| number % step != 0);
        *list.lock() = lines(stay.chain(entries..entries + CHANGED));
        let started = Instant::now();
        let changed = |metrics: &str| {
            sum(
                metrics,
                "ipblock_source_pulls_total{source=\"feed\",outcome=\"changed\"",
            ) >= 2.0
        };
        self.until("the change is written", changed).await?;
        let took = started.elapsed().as_secs_f64();
        self.add("change of 100 entries: written after", took, "s");
        let second = self.writes().await?;
        self.add("change of 100 entries: writes", second - first, "");

        let cpu = self.subject.usage().cpu;
        let idle = Duration::from_secs(90);
        sleep(idle).await;
        let share = (self.subject.usage().cpu - cpu).as_secs_f64() / idle.as_secs_f64();
        self.add(
            "pulled each 30 s, unchanged: CPU of one core",
            100.0 * share,
            "%",
        );
        let third = self.writes().await?;
        self.add("pulled each 30 s, unchanged: writes", third - second, "");
        self.add("resident memory, peak of all", peak(&self.subject), "MB");
        Ok(())
    }

    fn add(&mut self, figure: &str, value: f64, unit: &'static str) {
        self.report.add(&self.scenario, figure, "ours", value, unit);
    }

    async fn writes(&self) -> Result<f64> {
        let metrics = fetch(self.metrics, "/metrics").await?;
        Ok(sum(&metrics, "ipblock_source_list_writes_total{"))
    }

    async fn until(&mut self, what: &str, is_so: impl Fn(&str) -> bool) -> Result<()> {
        let waiting = async {
            while self.subject.alive() {
                let metrics = fetch(self.metrics, "/metrics").await;
                if metrics.is_ok_and(|metrics| is_so(&metrics)) {
                    return Ok(());
                }
                sleep(Duration::from_millis(500)).await;
            }
            Err(Error::Setup(
                "the operator ended; its log has the reason".into(),
            ))
        };
        let waited = timeout(LIMIT, waiting).await;
        waited.map_err(|_| Error::Setup(format!("after {LIMIT:?} it is not so that {what}")))?
    }
}

/// One address a line, spread over 45.0.0.0 and what follows.
fn lines(numbers: impl IntoIterator<Item = usize>) -> String {
    let mut text = String::new();
    for number in numbers {
        let bits = 0x2D00_0000 + u32::try_from(number).unwrap_or_default() * 97;
        text.push_str(&Ipv4Addr::from(bits).to_string());
        text.push('\n');
    }
    text
}
