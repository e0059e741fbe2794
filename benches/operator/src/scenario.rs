//! The scenarios: each leaves the server empty and the gateway clean.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::Bench;
use crate::blocks::{self, Error, Result, Watched, address, create, each, merge};
use crate::gateway::Mode;
use crate::scale::now;
use crate::subject::Subject;

/// Requests in flight at once, for the bench and for the floor alike.
const LANES: usize = 16;

// === floor ===

/// The writes for an active block without an operator: creation, finalizer and intent, status. Their content is that of the
/// operator's, and the bench watches here, too: both cost the API server processor time.
pub(crate) async fn floor(bench: &mut Bench, count: usize) -> Result<f64> {
    let _watched = Watched::start(&bench.client).await?;
    let started = Instant::now();
    let client = bench.client.clone();
    each(count, LANES, |n| {
        let client = client.clone();
        async move {
            let (name, ip) = (format!("floor-{n}"), address(n));
            create(&client, &name, &ip, "1h").await?;
            let intent = json!({"metadata": {"finalizers": ["bench.reeve/floor"],
                "annotations": {"ops.yiiong.top/intent": format!("v1 iptables {ip}")}}});
            merge(&client, &name, "", &intent).await?;
            let until = now() + SignedDuration::from_hours(1);
            let status = blocks::active_status(&ip, now(), until, "iptables")?;
            merge(&client, &name, "/status", &status).await?;
            Ok(())
        }
    })
    .await?;
    let rate = count as f64 / started.elapsed().as_secs_f64();
    bench.report.add(
        &format!("burst {count}"),
        "active a second",
        "floor",
        rate,
        "/s",
    );

    blocks::clear(&client).await?;
    Ok(rate)
}

/// One write at a time, for the floor of a single block.
pub(crate) async fn write_alone(bench: &mut Bench, count: usize) -> Result<()> {
    let client = bench.client.clone();
    create(&client, "alone", &address(0), "1h").await?;
    let mut writes = Vec::new();
    for n in 0..count {
        let body = json!({"metadata": {"annotations": {"bench": n.to_string()}}});
        let before = Instant::now();
        merge(&client, "alone", "", &body).await?;
        writes.push(before.elapsed());
    }
    bench
        .report
        .quantiles("one", "a write alone", "floor", writes);
    blocks::clear(&client).await
}

// === burst ===

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

async fn create_all(bench: &Bench, prefix: &str, count: usize, duration: &str) -> Result<()> {
    let client = bench.client.clone();
    each(count, LANES, |n| {
        let (client, name) = (client.clone(), format!("{prefix}-{n}"));
        async move {
            create(&client, &name, &address(n), duration)
                .await
                .map(drop)
        }
    })
    .await
}

// === one at a time ===

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

// === lifts, requests of a lifecycle, idle ===

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

/// When an object was due: its own status, or (for the original) its creation and duration.
fn due(object: &serde_json::Value, after: Duration) -> Option<jiff::Timestamp> {
    if let Some(at) = object["status"]["expiresAt"].as_str() {
        return at.parse().ok();
    }
    let blocked: jiff::Timestamp = object["status"]["blockedAt"].as_str()?.parse().ok()?;
    blocked
        .checked_add(jiff::SignedDuration::try_from(after).ok()?)
        .ok()
}

// === gateway faults ===

pub(crate) async fn gateway_faults(bench: &mut Bench, count: usize) -> Result<()> {
    let name = bench.name.clone();
    for (label, mode) in [
        ("500", Mode::Fail),
        ("refuses", Mode::Refuse),
        ("hangs 30 s", Mode::Hang),
    ] {
        let watched = Watched::start(&bench.client).await?;
        bench.gateway.set_mode(mode).await?;
        let mut subject = bench.start().await?;
        create_all(bench, "fault", count, "1h").await?;
        sleep(Duration::from_secs(if mode == Mode::Hang {
            30
        } else {
            10
        }))
        .await;
        bench.gateway.set_mode(Mode::Serve).await?;
        let recovered = Instant::now();
        let all = until(&mut subject, Duration::from_secs(45), || {
            watched.in_phase("active") >= count
        })
        .await;
        let active = watched.in_phase("active");
        bench.report.add(
            "gateway",
            &format!("{label}: active within 45 s of recovery, of {count}"),
            &name,
            active as f64,
            "",
        );
        if all.is_ok() {
            bench.report.add(
                "gateway",
                &format!("{label}: all active after recovery"),
                &name,
                recovered.elapsed().as_secs_f64(),
                "s",
            );
        }
        bench.finish(subject).await?;
    }

    // Resets: how often is a dead gateway called?
    bench.gateway.set_mode(Mode::Reset).await?;
    let subject = bench.start().await?;
    create_all(bench, "reset", 10, "1h").await?;
    sleep(Duration::from_secs(30)).await;
    bench.report.add(
        "gateway",
        "resets: calls in 30 s for 10 blocks",
        &name,
        bench.gateway.touched() as f64,
        "",
    );
    bench.gateway.set_mode(Mode::Serve).await?;
    bench.finish(subject).await?;

    // A failure at expiry: the ban must still be lifted.
    let watched = Watched::start(&bench.client).await?;
    let mut subject = bench.start().await?;
    create_all(bench, "expiry", count, "5s").await?;
    until(&mut subject, Duration::from_secs(30), || {
        watched.reached("active").len() >= count
    })
    .await?;
    bench.gateway.set_mode(Mode::Fail).await?;
    sleep(Duration::from_secs(12)).await;
    bench.gateway.set_mode(Mode::Serve).await?;
    let gateway = &bench.gateway;
    let _ = until(&mut subject, Duration::from_secs(45), || {
        gateway.enforced().is_empty()
    })
    .await;
    bench.report.add(
        "gateway",
        &format!("500 at expiry: still banned 45 s after recovery, of {count}"),
        &name,
        bench.gateway.enforced().len() as f64,
        "",
    );
    bench.finish(subject).await
}

// === API server down ===

pub(crate) async fn api_down(bench: &mut Bench, count: usize) -> Result<()> {
    let name = bench.name.clone();
    let mut subject = bench.start().await?;
    create_all(bench, "down", count, "15s").await?;
    sleep(Duration::from_millis(300)).await;
    bench.cluster.stop_apiserver();
    sleep(Duration::from_secs(10)).await;
    bench.cluster.start_apiserver().await?;
    let watched = Watched::start(&bench.client).await?;
    // Every block was due long before: a block that is not expired now is stuck.
    let gateway = &bench.gateway;
    let _ = until(&mut subject, Duration::from_secs(60), || {
        gateway.enforced().is_empty()
    })
    .await;
    sleep(Duration::from_secs(5)).await;
    drop(watched);
    let stuck = blocks::list(&bench.client)
        .await?
        .iter()
        .filter(|object| object["status"]["phase"].as_str() != Some("expired"))
        .count();
    bench.report.add(
        "API down",
        &format!("still not expired, of {count}"),
        &name,
        stuck as f64,
        "",
    );
    bench.report.add(
        "API down",
        "bans left at the gateway",
        &name,
        bench.gateway.enforced().len() as f64,
        "",
    );
    bench.finish(subject).await
}

// === kill -9 ===

pub(crate) async fn kill(bench: &mut Bench, count: usize) -> Result<()> {
    let name = bench.name.clone();
    let watched = Watched::start(&bench.client).await?;
    let mut subject = bench.start().await?;
    create_all(bench, "kill", count, "10s").await?;
    until(&mut subject, Duration::from_secs(60), || {
        watched.in_phase("active") >= count
    })
    .await?;
    subject.kill().await?;
    // The operator is down for half of the time left: some blocks fall due before the restart, some after it.
    sleep(Duration::from_secs(6)).await;
    let restarted = bench.wall(Instant::now());
    let mut subject = bench.start_again().await?;
    let gateway = &bench.gateway;
    let _ = until(&mut subject, Duration::from_secs(40), || {
        gateway.enforced().is_empty()
    })
    .await;
    bench.report.add(
        "kill -9",
        &format!("bans never lifted, of {count}"),
        &name,
        bench.gateway.enforced().len() as f64,
        "",
    );
    let lifts = bench.gateway.last_lifts();
    let mut late = Vec::new();
    for object in blocks::list(&bench.client).await? {
        let (Some(ip), Some(due)) = (
            object["spec"]["ip"].as_str(),
            due(&object, Duration::from_secs(10)),
        ) else {
            continue;
        };
        if let Some(at) = lifts.get(ip) {
            let from = due.max(restarted);
            late.push(Duration::try_from(bench.wall(*at).duration_since(from)).unwrap_or_default());
        }
    }
    bench
        .report
        .quantiles("kill -9", "lifted after due or restart", &name, late);
    bench.finish(subject).await
}

/// Waits until `done`, with frequent checks; fails when `limit` passes or the operator ended.
async fn until(subject: &mut Subject, limit: Duration, done: impl Fn() -> bool) -> Result<()> {
    let waiting = async {
        while !done() {
            if !subject.alive() {
                return Err(Error::Setup(
                    "the operator ended; its log has the reason".into(),
                ));
            }
            sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    };
    timeout(limit, waiting)
        .await
        .map_err(|_| Error::Setup(format!("not done within {limit:?}")))?
}
