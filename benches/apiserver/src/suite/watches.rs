//! Writes at an even rate, and the events that many watchers get of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use memchr::{memchr_iter, memmem};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

use super::Span;
use super::writes::Verb;
use crate::connection::{Call, Connection};
use crate::error::{Error, Result};
use crate::objects::Kind;
use crate::report::{Unit, Values, percentile};
use crate::server::Server;

/// Streams of one connection; servers allow 100 to 250.
const STREAMS: usize = 90;
/// Watchers whose events are timed; the others are only counted, for the bench shares the processor.
const TIMED: usize = 10;
/// How long the last events may take after the last write.
const PATIENCE: Duration = Duration::from_secs(60);

/// The sizes of the suite.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    pub(crate) watchers: Vec<usize>,
    pub(crate) writes: usize,
    /// Events a second, of all watchers together.
    pub(crate) events: usize,
}

/// The mark of an event that belongs to a write: a field of its annotations.
const MARK: &[u8] = br#""bench/step":""#;

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Result<Values> {
    let mut values = Values::default();
    for &watchers in &sizes.watchers {
        one(server, sizes, watchers, &mut values).await?;
    }
    Ok(values)
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
async fn one(server: &Server, sizes: &Sizes, watchers: usize, values: &mut Values) -> Result<()> {
    let kind = Kind::config_map();
    let name = format!("watched-{watchers}");
    let writer = server.connect().await?;
    writer
        .send(Verb::Create.call(&kind, &name, 0, 0, 0))
        .await?;
    let mut connections = Vec::new();
    for _ in 0..watchers.div_ceil(STREAMS) {
        connections.push(server.connect().await?);
    }
    let seen = Arc::new(AtomicU64::new(0));
    let (times, mut timed) = mpsc::unbounded_channel();
    let mut watches = JoinSet::new();
    for watcher in 0..watchers {
        let stream = open(&connections[watcher / STREAMS], &kind, &name).await?;
        let times = (watcher < TIMED).then(|| times.clone());
        watches.spawn(follow(stream, Arc::clone(&seen), times));
    }
    drop(times);
    // Each watch begins with the object as it is.
    until(&seen, watchers as u64, &mut watches).await?;

    let rate = (sizes.events / watchers).clamp(1, 500);
    let mut ticks = interval(Duration::from_secs(1) / u32::try_from(rate).unwrap_or(1));
    let mut sent = Vec::with_capacity(sizes.writes);
    let span = Span::start(server)?;
    for step in 1..=sizes.writes {
        ticks.tick().await;
        sent.push(Instant::now());
        writer
            .send(Verb::Update.call(&kind, &name, 0, step as u64, 0))
            .await?;
    }
    let events = (watchers * sizes.writes) as u64;
    until(&seen, watchers as u64 + events, &mut watches).await?;
    let (time, cpu) = span.end()?;
    watches.abort_all();
    let mut latencies = Vec::new();
    while let Ok((step, at)) = timed.try_recv() {
        if let Some(sent) = sent.get(step - 1) {
            latencies.push(at.saturating_duration_since(*sent).as_secs_f64());
        }
    }
    latencies.sort_by(f64::total_cmp);
    let plural = if watchers == 1 { "" } else { "s" };
    let title = |what: &str| format!("{watchers} watcher{plural}: {what}");
    values.add(
        title("events"),
        Unit::PerSecond,
        events as f64 / time.as_secs_f64(),
    );
    let per_cpu = events as f64 / cpu.as_secs_f64().max(0.01);
    values.add(title("events a CPU-second"), Unit::PerSecond, per_cpu);
    values.add(
        title("write → event p50"),
        Unit::Seconds,
        percentile(&latencies, 0.5),
    );
    values.add(
        title("write → event p99"),
        Unit::Seconds,
        percentile(&latencies, 0.99),
    );
    Ok(())
}

async fn open(connection: &Connection, kind: &Kind, name: &str) -> Result<Incoming> {
    let selector = format!("fieldSelector=metadata.name%3D{name}");
    let call = Call::get(format!(
        "{}?watch=1&timeoutSeconds=3600&{selector}",
        kind.path
    ));
    connection.stream(call).await
}

/// Counts the events of a watch, and reports the step and the time of each to `times`.
async fn follow(
    mut stream: Incoming,
    seen: Arc<AtomicU64>,
    times: Option<mpsc::UnboundedSender<(usize, Instant)>>,
) -> Result<()> {
    let mut rest = Vec::new();
    while let Some(frame) = stream.frame().await {
        let frame = frame?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        let now = Instant::now();
        let events = memchr_iter(b'\n', data).count() as u64;
        if let Some(times) = &times {
            rest.extend_from_slice(data);
            while let Some(end) = memchr::memchr(b'\n', &rest) {
                if let Some(step) = step_of(&rest[..end]).filter(|step| *step > 0) {
                    // The receiver is dropped when the measurement has ended.
                    let _ = times.send((step, now));
                }
                rest.drain(..=end);
            }
        }
        seen.fetch_add(events, Ordering::Relaxed);
    }
    Err(Error::setup("a watch ended early"))
}

fn step_of(event: &[u8]) -> Option<usize> {
    let at = memmem::find(event, MARK)? + MARK.len();
    let digits = event[at..].split(|&byte| byte == b'"').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Waits until `count` events were seen.
async fn until(seen: &AtomicU64, count: u64, watches: &mut JoinSet<Result<()>>) -> Result<()> {
    let counted = async {
        let mut look = interval(Duration::from_millis(2));
        while seen.load(Ordering::Relaxed) < count {
            look.tick().await;
        }
    };
    let waited = timeout(PATIENCE, async {
        tokio::select! {
            () = counted => Ok(()),
            Some(ended) = watches.join_next() => ended?,
        }
    });
    match waited.await {
        Ok(result) => result,
        Err(_) => Err(Error::Setup(format!(
            "{} of {count} events after {PATIENCE:?}",
            seen.load(Ordering::Relaxed)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_of_an_event_is_found() {
        let event =
            br#"{"type":"MODIFIED","object":{"metadata":{"annotations":{"bench/step":"17"}}}}"#;
        assert_eq!(step_of(event), Some(17));
        assert_eq!(step_of(b"{}"), None);
    }
}
