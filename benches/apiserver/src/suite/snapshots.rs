//! Latencies of writes while the server writes a snapshot of all objects beside them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::writes::{self, Write};
use crate::connection::Call;
use crate::error::Result;
use crate::objects::Kind;
use crate::report::{Unit, Values, percentile};
use crate::server::Server;

/// The sizes of the suite.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    /// Objects that exist.
    pub(crate) objects: usize,
    /// How often each is updated.
    pub(crate) updates: usize,
}

/// The times in which a snapshot was written.
#[derive(Debug, Default)]
struct Snapshots {
    whole: Vec<(Instant, Instant)>,
    running: Option<Instant>,
}

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Result<Values> {
    let filled = writes::fill_more(server, &Kind::config_map(), 0, sizes.objects).await?;
    let snapshots = Arc::new(Mutex::new(Snapshots::default()));
    let looking = tokio::spawn(follow(server.data(), Arc::clone(&snapshots)));
    let mut filled = filled;
    let mut writes: Vec<Write> = Vec::new();
    for step in 0..sizes.updates {
        let (next, mut some) = filled.update(step as u64 + 1).await?;
        filled = next;
        writes.append(&mut some);
    }
    looking.abort();
    // The server still answers after them.
    let connection = server.connect().await?;
    connection.send(Call::get("/readyz")).await?;

    let snapshots = snapshots.lock().await;
    let during = |&&(end, _): &&Write| {
        snapshots
            .whole
            .iter()
            .any(|(from, to)| (*from..=*to).contains(&end))
    };
    let sorted = |writes: Vec<f64>| {
        let mut writes = writes;
        writes.sort_by(f64::total_cmp);
        writes
    };
    let within = sorted(writes.iter().filter(during).map(|write| write.1).collect());
    let outside = sorted(
        writes
            .iter()
            .filter(|write| !during(write))
            .map(|write| write.1)
            .collect(),
    );
    let mut values = Values::default();
    add(&mut values, "updates by 16 clients", &outside);
    if !within.is_empty() {
        add(&mut values, "updates during a snapshot", &within);
        let total: Duration = snapshots.whole.iter().map(|(from, to)| *to - *from).sum();
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let mean = total.as_secs_f64() / snapshots.whole.len() as f64;
        values.add("time of a snapshot", Unit::Seconds, mean);
    }
    Ok(values)
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn add(values: &mut Values, title: &str, sorted: &[f64]) {
    values.add(format!("{title}: number"), Unit::Count, sorted.len() as f64);
    for (name, share) in [
        ("p50", 0.5),
        ("p99", 0.99),
        ("p99.9", 0.999),
        ("longest", 1.0),
    ] {
        values.add(
            format!("{title}: {name}"),
            Unit::Seconds,
            percentile(sorted, share),
        );
    }
}

/// Looks each millisecond whether a snapshot is being written: there is a second log, or the file of the new snapshot.
async fn follow(data: std::path::PathBuf, snapshots: Arc<Mutex<Snapshots>>) {
    loop {
        let now = Instant::now();
        let is_written = is_written(&data);
        let mut snapshots = snapshots.lock().await;
        match (snapshots.running, is_written) {
            (None, true) => snapshots.running = Some(now),
            (Some(from), false) => {
                snapshots.whole.push((from, now));
                snapshots.running = None;
            }
            _ => {}
        }
        drop(snapshots);
        sleep(Duration::from_millis(1)).await;
    }
}

fn is_written(data: &Path) -> bool {
    let entries = std::fs::read_dir(data).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with("log.")).count() > 1
}
