//! Requests that are carried out in paused time, against objects in memory.

use super::*;
use crate::logged::Logged;
use crate::trigger::RawTrigger;
use crate::trigger::alerts::Judged;
use crate::trigger::blocks::BlocksError;
use crate::trigger::blocks::in_memory::InMemory;
use crate::trigger::intake::tests::{intake, wanted};

fn route(blocks: &Arc<InMemory>) -> Route {
    let raw = "{name: grafana, addr: '127.0.0.1:0', path: /p, insecure: true}";
    let raw: RawTrigger = serde_saphyr::from_str(raw).unwrap();
    let every = Duration::from_secs(10);
    Route {
        definition: raw.define(&crate::config::Options::default()).unwrap(),
        intake: Intake {
            lifts: true,
            ..intake(blocks)
        },
        bodies: Budget::mebibytes(1),
        refusals: Sampled::every(every),
        missed: Sampled::every(every),
        accepted: Sampled::every(every),
        faults: Sampled::every(every),
    }
}

fn alerts(verdicts: Vec<Verdict>) -> Alerts {
    let verdicts = verdicts.into_iter().enumerate();
    Alerts {
        judged: verdicts
            .map(|(position, verdict)| Judged { position, verdict })
            .collect(),
        ..Alerts::default()
    }
}

fn ban(ip: &str, alert: &str) -> Verdict {
    Verdict::Ban(Wanted {
        alert: alert.into(),
        ..wanted(ip, Some("1h"))
    })
}

fn resolved(ip: &str, alert: &str) -> Verdict {
    Verdict::Resolved(Resolved {
        target: ip.parse().unwrap(),
        raw: ip.into(),
        alert: alert.into(),
    })
}

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_long_is_answered_with_503_before_the_server_cuts_it_off() {
    let blocks = Arc::new(InMemory::default());
    let route = route(&blocks);
    let stuck = "192.0.2.1".parse().unwrap();
    let _held = route.intake.shared.locks.lock(stuck).await;
    let begun = Instant::now();
    let alerts = alerts(vec![
        ban("192.0.2.1", "a"),
        ban("192.0.2.2", "b"),
        resolved("192.0.2.1", "c"),
    ]);
    let answer = route.carry_out(alerts, begun + DEADLINE).await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(begun.elapsed() < crate::inbound::limits().answer_timeout);
    assert_eq!(blocks.names().len(), 1, "the other is written");
}

#[tokio::test(start_paused = true)]
async fn a_group_that_takes_longer_than_a_request_is_done_after_some() {
    let blocks = Arc::new(InMemory::default());
    let route = route(&blocks);
    let group = || {
        let addresses = (0..2_000).map(|last| format!("10.0.{}.{}", last / 250, last % 250));
        alerts(addresses.map(|ip| ban(&ip, "a")).collect())
    };
    // 16 writes take two milliseconds.
    let part = Duration::from_millis(101);
    let mut codes = Vec::new();
    while codes.last() != Some(&StatusCode::OK) && codes.len() < 10 {
        let answer = route.carry_out(group(), Instant::now() + part).await;
        codes.push(answer.status());
    }
    assert_eq!(codes, [503, 503, 200]);
    assert_eq!(blocks.names().len(), 2_000);
}

#[tokio::test(start_paused = true)]
async fn an_alert_that_fires_and_is_not_written_keeps_the_ban_from_a_resolved_one_beside_it() {
    let blocks = Arc::new(InMemory::default());
    let route = route(&blocks);
    let at = || Instant::now() + DEADLINE;
    let first = alerts(vec![ban("192.0.2.1", "a")]);
    route.carry_out(first, at()).await;
    blocks.fail(BlocksError::Unavailable("down".into()));
    let both = || alerts(vec![resolved("192.0.2.1", "a"), ban("192.0.2.1", "b")]);
    let name = blocks.names().remove(0);
    for (status, expected) in [(503, "1h"), (200, "1h")] {
        let answer = route.carry_out(both(), at()).await;
        assert_eq!(answer.status(), status);
        let duration = blocks.one(&name).spec.duration;
        assert_eq!(duration.as_deref(), Some(expected), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_duration_alone_is_logged_as_such_and_not_as_an_alert_that_cannot_be_used() {
    let log = Logged::at(tracing::Level::INFO);
    let remarked = |ip| {
        Verdict::Ban(Wanted {
            remark: Some("the remark".into()),
            ..wanted(ip, None)
        })
    };
    let logged = async |verdicts| {
        let route = route(&Arc::default());
        let answer = route.carry_out(alerts(verdicts), Instant::now() + DEADLINE);
        assert_eq!(answer.await.status(), StatusCode::OK);
        log.take()
    };

    let alone = logged(vec![remarked("192.0.2.1")]).await;
    assert!(
        alone.contains("a duration of a request is wrong"),
        "{alone}"
    );
    assert!(alone.contains("the remark"), "{alone}");
    assert!(!alone.contains("could not use"), "{alone}");

    let beside = vec![remarked("192.0.2.1"), Verdict::Invalid("no address".into())];
    let beside = logged(beside).await;
    assert!(beside.contains("could not use all alerts"), "{beside}");
    assert!(beside.contains("the remark"), "{beside}");
    assert!(!beside.contains("is wrong"), "{beside}");

    let good = logged(vec![ban("192.0.2.1", "a")]).await;
    assert!(!good.contains("WARN"), "{good}");
}
