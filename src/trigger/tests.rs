//! Triggers as their senders see them, over sockets; the objects are in memory.

mod refused;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reeve_clock::Clock;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::blocks::in_memory::InMemory;
use super::*;
use crate::config::Options;
use crate::inbound::{self, Limits};
use crate::lock::KeyedLocks;
use crate::mounted::Directory;
use crate::outbound::{AddressPolicy, Http, Outbound};
use crate::time::Time;

struct World {
    blocks: Arc<InMemory>,
    triggers: Triggers,
    metrics: Metrics,
    http: Http,
}

fn definition(yaml: &str) -> Definition {
    let raw: RawTrigger = serde_saphyr::from_str(yaml).unwrap();
    let options = Options {
        secrets: Directory::new(std::env::temp_dir()),
        ..Options::default()
    };
    raw.define(&options).unwrap()
}

fn insecure() -> Definition {
    definition("{name: grafana, addr: '127.0.0.1:0', path: /trigger/grafana, insecure: true}")
}

impl World {
    fn new() -> Self {
        Self::with(inbound::limits())
    }

    fn with(limits: Limits) -> Self {
        let blocks = Arc::new(InMemory::default());
        let metrics = Metrics::default();
        let dependencies = Dependencies {
            blocks: Arc::clone(&blocks) as Arc<dyn Blocks>,
            locks: KeyedLocks::new(),
            time: Time::trusting(Clock::system()),
            metrics: metrics.clone(),
            limits,
        };
        let settings = Settings {
            namespace: "default".into(),
            place: None,
            default_duration: Duration::from_secs(600),
            max_duration: None,
            repeated_alert: Repeat::Extend,
            unblock_grace: Duration::from_secs(600),
            escalation: None,
            shadow: BTreeSet::new(),
        };
        let policy = AddressPolicy {
            allow_loopback: true,
        };
        Self {
            blocks,
            triggers: Triggers::new(dependencies, settings),
            metrics,
            http: Http::builder().policy(policy).build().unwrap(),
        }
    }

    async fn serve(&self, definitions: &[Definition]) -> SocketAddr {
        let failed = self.triggers.apply(definitions).await;
        assert!(failed.is_empty(), "{failed:?}");
        self.triggers.addresses().await[0]
    }

    async fn send(
        &self,
        address: SocketAddr,
        method: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> (u16, String) {
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("http://{address}/trigger/grafana"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body.into()).unwrap();
        let answer = self.http.send(request).await.unwrap();
        let text = String::from_utf8(answer.body().to_vec()).unwrap();
        (answer.status().as_u16(), text)
    }

    async fn post(&self, address: SocketAddr, body: &Value) -> (u16, String) {
        self.send(address, "POST", &[], body.to_string()).await
    }
}

fn alert(ip: &str) -> Value {
    json!({
        "status": "firing",
        "labels": { "alertname": "Scan", "ip": ip, "duration": "10m" },
        "annotations": { "description": "too many requests" },
        "startsAt": "2026-01-01T00:00:00Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "values": { "A": 22 },
        "valueString": format!("[ var='A' labels={{ip={ip}}} value=22 ]"),
        "fingerprint": "0123456789abcdef"
    })
}

fn payload(alerts: &[Value]) -> Value {
    json!({
        "receiver": "ipblock", "status": "firing", "alerts": alerts, "groupLabels": {},
        "commonLabels": {}, "commonAnnotations": {}, "externalURL": "http://grafana.example/",
        "version": "1", "groupKey": "{}", "truncatedAlerts": 0, "orgId": 1,
        "title": "[FIRING]", "state": "alerting", "message": "…"
    })
}

#[tokio::test]
async fn a_request_of_many_alerts_becomes_an_object_for_each_firing_address() {
    let world = World::new();
    let address = world.serve(&[insecure()]).await;
    let mut alerts: Vec<Value> = (0..29)
        .map(|i| alert(&format!("2001:db8::{i:x}")))
        .collect();
    alerts.push(alert("198.51.100.7"));
    alerts.push(alert("203.0.113.9"));
    for ip in ["192.0.2.1", "192.0.2.2"] {
        let mut resolved = alert(ip);
        resolved["status"] = "resolved".into();
        resolved["annotations"]["grafana_state_reason"] = "MissingSeries".into();
        alerts.push(resolved);
    }
    assert_eq!(alerts.len(), 33);
    let (code, text) = world.post(address, &payload(&alerts)).await;
    assert_eq!(code, 200, "{text}");
    assert_eq!(world.blocks.names().len(), 31);
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&answer["created"], &answer["ignored"]),
        (&json!(31), &json!(2))
    );
}

#[tokio::test]
async fn when_the_api_is_down_the_answer_is_503_and_the_senders_retry_works() {
    let world = World::new();
    let address = world.serve(&[insecure()]).await;
    let body = payload(&[alert("192.0.2.1"), alert("192.0.2.2"), alert("192.0.2.3")]);
    world
        .blocks
        .fail(BlocksError::Unavailable("no API server".into()));
    let (code, text) = world.post(address, &body).await;
    assert_eq!(code, 503, "{text}");
    assert_eq!(world.blocks.names().len(), 2, "the others are written");
    let (code, text) = world.post(address, &body).await;
    assert_eq!(code, 200, "{text}");
    assert_eq!(world.blocks.names().len(), 3);
    assert_eq!(world.blocks.writes.lock().len(), 3, "none is written twice");
}

#[tokio::test]
async fn an_object_stuck_in_deletion_does_not_fail_the_alerts_beside_it() {
    let world = World::new();
    let address = world.serve(&[insecure()]).await;
    let target = "192.0.2.1".parse::<crate::target::Target>().unwrap();
    let spec = crate::api::IPBlockSpec {
        ip: target.to_string(),
        ..Default::default()
    };
    let name = target.object_name();
    let mut stuck = crate::api::IPBlock::born(&name, "default", &target, None, spec);
    let long_ago = "2026-01-01T00:00:00Z".parse().unwrap();
    stuck.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
        long_ago,
    ));
    world.blocks.put(stuck);
    let body = payload(&[alert("192.0.2.1"), alert("192.0.2.2")]);
    let (code, text) = world.post(address, &body).await;
    assert_eq!(code, 200, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&answer["created"], &answer["deleting"]),
        (&json!(1), &json!(1))
    );
}

#[tokio::test]
async fn a_request_with_more_alerts_than_are_read_still_bans_and_counts_the_rest() {
    let world = World::new();
    let address = world.serve(&[insecure()]).await;
    // Two addresses many times: the limit counts alerts, and the writes are few.
    let lists = ["192.0.2.1 ".repeat(100), "192.0.2.2 ".repeat(100)];
    let alerts: Vec<Value> = (0..42).map(|i| alert(&lists[i % 2])).collect();
    let mut body = payload(&alerts);
    body["truncatedAlerts"] = json!(7);
    let (code, text) = world.post(address, &body).await;
    assert_eq!(code, 200, "{text}");
    assert_eq!(world.blocks.names().len(), 2);
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["notRead"], json!(200), "{text}");
    let missed = |cause| world.metrics.missed_so_far("grafana", cause);
    assert_eq!((missed("limit"), missed("truncated")), (200, 7));
}

#[tokio::test]
async fn a_group_of_alertmanager_bans_and_its_resolved_alerts_lift() {
    let world = World::new();
    let lifts = definition(
        "{name: am, type: alertmanager, addr: '127.0.0.1:0', path: /trigger/grafana, insecure: true, resolved: lift}",
    );
    let address = world.serve(&[lifts]).await;
    let group = |alerts: &[Value]| {
        let mut group = payload(alerts);
        group["version"] = json!("4");
        group
    };
    let with = |ip: &str, status: &str, fingerprint: &str| {
        let mut alert = alert(ip);
        alert["status"] = json!(status);
        alert["fingerprint"] = json!(fingerprint);
        alert
    };
    let firing = [
        with("192.0.2.1", "firing", "a"),
        with("192.0.2.2", "firing", "b"),
    ];
    let (code, text) = world.post(address, &group(&firing)).await;
    assert_eq!((code, world.blocks.names().len()), (200, 2), "{text}");
    let resolved = [
        with("192.0.2.1", "resolved", "a"),
        with("192.0.2.2", "resolved", "b"),
        with("192.0.2.2", "firing", "c"),
        with("192.0.2.9", "resolved", "d"),
    ];
    let (code, text) = world.post(address, &group(&resolved)).await;
    assert_eq!(code, 200, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        answer["lifted"],
        json!(1),
        "an alert that fires keeps the second: {text}"
    );
    let name = |ip: &str| crate::target::object_name(ip);
    let duration = |ip| world.blocks.one(&name(ip)).spec.duration;
    assert_eq!(duration("192.0.2.1").as_deref(), Some("1s"));
    assert_eq!(duration("192.0.2.2").as_deref(), Some("10m"));
}

#[tokio::test]
async fn the_alert_of_a_ban_is_in_the_audit_log_and_in_the_answer_to_why() {
    let world = World::new();
    let address = world.serve(&[insecure()]).await;
    let name = crate::target::object_name("192.0.2.1");
    let mut sent = alert("192.0.2.1");
    for (rule, fingerprint) in [("Scan", "0123456789abcdef"), ("Login", "f2")] {
        sent["labels"]["alertname"] = json!(rule);
        sent["fingerprint"] = json!(fingerprint);
        let (code, text) = world
            .post(address, &payload(std::slice::from_ref(&sent)))
            .await;
        assert_eq!(code, 200, "{text}");
        let mut block = world.blocks.one(&name);
        let announcement = crate::decide::Announcement {
            warning: false,
            reason: "Banned",
            note: String::new(),
            notice: None,
        };
        let (effect, now) = (crate::decide::Effect::Banned, Clock::system().now());
        let line = crate::audit::Line::of(&block, effect, &announcement, now, "a");
        let expected = crate::api::Alert {
            rule: Some(rule.into()),
            fingerprint: Some(fingerprint.into()),
        };
        assert_eq!(line.alert.as_ref(), Some(&expected));
        let entry = crate::why::Entry::of(&block).unwrap();
        assert_eq!(entry.alert, Some(expected));
        // The ban ends, and the next alert bans again.
        let status = block.status.get_or_insert_default();
        status.phase = Some(crate::api::Phase::Expired);
        block.spec.trigger = None;
        world.blocks.put(block);
    }
}

#[tokio::test]
async fn one_unusable_alert_does_not_lose_the_others() {
    let world = World::new();
    let address = world.serve(&[insecure()]).await;
    let body = payload(&[alert("example.com"), alert("192.0.2.1")]);
    let (code, text) = world.post(address, &body).await;
    assert_eq!(code, 200);
    assert!(text.contains("example.com"), "{text}");
    assert_eq!(world.blocks.names().len(), 1);
}

#[tokio::test]
async fn test_alerts_are_answered_with_200_and_ban_nothing() {
    let world = World::new();
    let address = world.serve(&[insecure()]).await;
    let test =
        json!({"status": "firing", "labels": {"alertname": "TestAlert", "instance": "Grafana"}});
    assert_eq!(world.post(address, &payload(&[test])).await.0, 200);
    assert_eq!(world.post(address, &payload(&[])).await.0, 200);
    assert!(world.blocks.names().is_empty());
}

#[tokio::test]
async fn a_reload_keeps_what_is_unchanged_and_stops_what_is_gone() {
    let world = World::new();
    let kept = insecure();
    let address = world.serve(std::slice::from_ref(&kept)).await;
    let body = payload(&[alert("192.0.2.1")]);
    assert_eq!(world.post(address, &body).await.0, 200);

    // Another trigger comes to the same address, and the defaults change: the first runs on, and
    // remembers its alerts.
    let mut added = kept.clone();
    added.name = "second".into();
    added.path = "/other".into();
    world.triggers.set(Settings {
        namespace: "default".into(),
        place: None,
        default_duration: Duration::from_secs(60),
        max_duration: None,
        repeated_alert: Repeat::Extend,
        unblock_grace: Duration::from_secs(600),
        escalation: None,
        shadow: BTreeSet::new(),
    });
    let again = world.serve(&[kept.clone(), added]).await;
    assert_eq!(again, address);
    let (_, text) = world.post(address, &body).await;
    assert!(text.contains("\"debounced\":1"), "{text}");

    // A changed trigger keeps its debounce too.
    let mut changed = kept.clone();
    changed.payload.allow_ranges = true;
    assert_eq!(world.serve(&[changed]).await, address);
    let (_, text) = world.post(address, &body).await;
    assert!(text.contains("\"debounced\":1"), "{text}");

    world.triggers.stop().await;
    assert!(TcpStream::connect(address).await.is_err());
    assert!(world.triggers.addresses().await.is_empty());
}

#[tokio::test]
async fn an_address_that_is_taken_is_reported_and_tried_again() {
    let world = World::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut definition = insecure();
    definition.address = taken.local_addr().unwrap();
    let failed = world
        .triggers
        .apply(std::slice::from_ref(&definition))
        .await;
    assert_eq!(failed.len(), 1);
    assert!(failed[0].to_string().contains("grafana"), "{}", failed[0]);
    assert_eq!(world.metrics.unbound.get(), 1);
    drop(taken);
    assert!(world.triggers.apply(&[definition]).await.is_empty());
    assert_eq!(world.metrics.unbound.get(), 0);
}
