//! Blocks at once, one at a time, and until their end.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::{LANES, create_all, due, until};
use crate::bench::Bench;
use crate::blocks::{self, Error, Result, Watched, address, create, each};

pub(crate) async fn burst(bench: &mut Bench, count: usize, floor: f64) -> Result<()> {
    let scenario = format!("burst {count}");
    let watched = Watched::start(&bench.client).await?;
    let mut subject = bench.start().await?;
    let before = subject.usage();
    let started = Instant::now();
    create_all(bench, "burst", count, "1h").await?;
    let created = started.elapsed();
    until(&mut subject, Duration::from_secs(180), || {
        watched.in_phase("active") >= count
    })
    .await?;
    let reached = watched.reached("active");
    let last = reached.values().max().copied().unwrap_or(started);
    let rate = count as f64 / last.duration_since(started).as_secs_f64();
    let used = subject.usage();
    let name = bench.name.clone();
    bench
        .report
        .add(&scenario, "active a second", &name, rate, "/s");
    bench
        .report
        .add(&scenario, "of the floor", &name, 100.0 * rate / floor, "%");
    bench.report.add(
        &scenario,
        "all created after",
        &name,
        created.as_secs_f64(),
        "s",
    );
    bench.report.add(
        &scenario,
        "CPU of the operator",
        &name,
        (used.cpu - before.cpu).as_secs_f64(),
        "s",
    );
    bench.report.add(
        &scenario,
        "resident memory",
        &name,
        used.resident_bytes as f64 / 1e6,
        "MB",
    );
    bench.report.add(
        &scenario,
        "banned more than once",
        &name,
        bench.gateway.banned_again() as f64,
        "",
    );
    bench.report.add(
        &scenario,
        "not enforced",
        &name,
        (count - bench.gateway.enforced().len().min(count)) as f64,
        "",
    );

    // Deleted while active: nothing may stay at the gateway.
    let started = Instant::now();
    let client = bench.client.clone();
    each(count, LANES, |n| {
        let client = client.clone();
        async move {
            blocks::delete(&client, &format!("burst-{n}"))
                .await
                .map(drop)
        }
    })
    .await?;
    let gone = timeout(Duration::from_secs(120), async {
        while !blocks::list(&client).await?.is_empty() {
            sleep(Duration::from_millis(200)).await;
        }
        Ok::<_, Error>(())
    })
    .await;
    bench.report.add(
        &scenario,
        "deleted a second",
        &name,
        count as f64 / started.elapsed().as_secs_f64(),
        "/s",
    );
    bench.report.add(
        &scenario,
        "objects left after delete",
        &name,
        if gone.is_ok() {
            0.0
        } else {
            blocks::list(&client).await?.len() as f64
        },
        "",
    );
    // An operator without a finalizer lifts nothing on delete, even after a long wait.
    sleep(Duration::from_secs(1)).await;
    bench.report.add(
        &scenario,
        "bans leaked by delete",
        &name,
        bench.gateway.enforced().len() as f64,
        "",
    );
    bench.finish(subject).await
}

pub(crate) async fn single(bench: &mut Bench, count: usize) -> Result<()> {
    let watched = Watched::start(&bench.client).await?;
    let mut subject = bench.start().await?;
    let (mut to_call, mut to_active) = (Vec::new(), Vec::new());
    for n in 0..count {
        let (name, ip) = (format!("one-{n}"), address(n));
        create(&bench.client, &name, &ip, "1h").await?;
        let created = Instant::now();
        let settled = until(&mut subject, Duration::from_secs(10), || {
            watched.reached("active").contains_key(&name)
                || watched.reached("failed").contains_key(&name)
        })
        .await;
        if settled.is_err() {
            continue;
        }
        if let Some(at) = bench.gateway.first_bans().get(&ip) {
            to_call.push(at.saturating_duration_since(created));
        }
        if let Some(at) = watched.reached("active").get(&name) {
            to_active.push(at.saturating_duration_since(created));
        }
        // A second ban of the same block would come within a few milliseconds.
        sleep(Duration::from_millis(20)).await;
    }
    let name = bench.name.clone();
    let failed = watched.in_phase("failed");
    bench
        .report
        .quantiles("one", "created to gateway call", &name, to_call);
    bench
        .report
        .quantiles("one", "created to active", &name, to_active);
    bench.report.add(
        "one",
        "banned more than once",
        &name,
        bench.gateway.banned_again() as f64,
        "",
    );
    bench
        .report
        .add("one", "failed while banned", &name, failed as f64, "");
    bench.finish(subject).await
}

pub(crate) async fn lift(bench: &mut Bench, count: usize, after: Duration) -> Result<()> {
    let name = bench.name.clone();
    let watched = Watched::start(&bench.client).await?;
    let mut subject = bench.start().await?;
    let before = bench.cluster.requests().await?;
    let started = subject.usage();
    create_all(bench, "lift", count, &format!("{}s", after.as_secs())).await?;
    until(&mut subject, Duration::from_secs(120), || {
        let done = watched.reached("expired").len();
        done >= count
    })
    .await?;
    // Events follow when there is nothing more urgent; they count, too.
    let requests = bench.settled().await?;
    let used = subject.usage();
    let lifts = bench.gateway.last_lifts();
    let mut lateness = Vec::new();
    let (mut early, mut unlifted) = (0, 0);
    for object in blocks::list(&bench.client).await? {
        let (Some(ip), Some(due)) = (object["spec"]["ip"].as_str(), due(&object, after)) else {
            continue;
        };
        let Some(at) = lifts.get(ip) else {
            unlifted += 1;
            continue;
        };
        let lifted = bench.wall(*at);
        let late = lifted.duration_since(due);
        match Duration::try_from(late) {
            Ok(late) => lateness.push(late),
            Err(_) => early += 1,
        }
    }
    bench.report.quantiles("lift", "lateness", &name, lateness);
    bench
        .report
        .add("lift", "lifted before due", &name, f64::from(early), "");
    bench
        .report
        .add("lift", "not lifted", &name, f64::from(unlifted), "");
    // One write a block, the creation, is the bench's own.
    let writes = (requests.writes - before.writes) as f64 / count as f64 - 1.0;
    bench.report.add(
        "lift",
        "API writes of the operator a lifecycle",
        &name,
        writes,
        "",
    );
    bench.report.add(
        "lift",
        &format!("CPU for {count} lifecycles"),
        &name,
        (used.cpu - started.cpu).as_secs_f64(),
        "s",
    );

    let (before, cpu) = (bench.cluster.requests().await?, subject.usage().cpu);
    sleep(Duration::from_secs(10)).await;
    let idle = bench.cluster.requests().await?;
    bench.report.add(
        "idle",
        "writes of objects and events in 10 s",
        &name,
        (idle.writes - before.writes) as f64,
        "",
    );
    bench.report.add(
        "idle",
        "CPU in 10 s",
        &name,
        (subject.usage().cpu - cpu).as_secs_f64(),
        "s",
    );
    bench.finish(subject).await
}
