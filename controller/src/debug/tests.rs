//! The pages of fixed reports.

use serde_json::{Value, json};

use super::*;

const HOSTILE: &str = "<script>alert(\"1\")</script>";

/// The overview of these reports, a minute past three.
fn overview(reports: &Value) -> Overview {
    let mut document = json!({
        "instance": "web-0", "reeve": "0.1.0", "time": "2026-05-01T03:01:00Z",
        "controllers": [], "queues": [], "informers": [], "election": [], "writes": [],
    });
    for (name, report) in reports.as_object().unwrap() {
        document[name] = json!([report]);
    }
    let overview: Overview = serde_json::from_value(document).unwrap();
    overview.with_problems()
}

fn controller() -> Value {
    json!({
        "name": "web", "kind": "Website (example.com/v1)", "state": "running", "since": "2026-05-01T02:00:00Z",
        "workers": 2, "busy": 0, "panics": 0, "timeouts": 0, "givenUp": 0, "watchPanics": 0,
        "reconciles": {"success": 5, "error": 0, "requeue": 0, "requeueAfter": 0},
        "sources": [{"name": "Website (example.com/v1)", "watch": true, "state": "ready"}],
    })
}

fn queue() -> Value {
    json!({
        "name": "web", "ready": 0, "waiting": 1, "awaitingToken": 0, "inFlight": 0, "failing": 0, "refused": 0,
        "shuttingDown": false, "more": false, "items": [],
    })
}

fn informer() -> Value {
    json!({
        "name": "websites", "synced": true, "activity": "watching", "since": "2026-05-01T02:00:00Z",
        "resourceVersion": "7", "objects": 1, "bytes": 100, "queued": 0, "quarantined": 0, "quarantinedObjects": [],
        "unreadable": 0, "stale": 0, "epochs": 0, "handlers": [],
    })
}

fn election() -> Value {
    json!({
        "lease": "ns/web", "identity": "web-0", "state": "leading", "since": "2026-05-01T02:00:00Z",
        "holder": "web-0", "renewals": 9, "lastRenewal": "2026-05-01T03:00:59Z",
    })
}

fn writes() -> Value {
    json!({"controller": "web", "keys": 0, "limitMillis": 10_000, "hidden": 0, "kinds": []})
}

/// `report` with `changes`.
fn with(mut report: Value, changes: Value) -> Value {
    let changes = changes.as_object().unwrap().clone();
    report.as_object_mut().unwrap().extend(changes);
    report
}

#[test]
fn a_healthy_program_has_no_problems() {
    let all = overview(&json!({
        "controllers": controller(), "queues": queue(), "informers": informer(),
        "election": election(), "writes": writes(),
    }));
    assert_eq!(all.problems, []);
    assert!(all.html().contains("no problems"));
    assert!(all.text().contains("no problems\n"), "{}", all.text());
}

#[test]
fn each_part_names_its_problems() {
    let early = "2026-05-01T02:59:30Z";
    let cases = [
        (
            "controllers",
            with(controller(), json!({"state": "syncing", "since": early})),
            "error",
            "no worker runs, syncing for 1m 30s",
        ),
        (
            "controllers",
            with(controller(), json!({"panics": 2})),
            "warning",
            "2 reconciles panicked since the start",
        ),
        (
            "controllers",
            with(
                controller(),
                json!({"longestRun": {"key": "ns/a", "since": "2026-05-01T02:51:00Z"}}),
            ),
            "warning",
            "ns/a runs for 10m",
        ),
        (
            "controllers",
            with(
                controller(),
                json!({"sources": [{"name": "queue", "watch": false, "state": "notReady", "cause": "source failed", "message": "refused"}]}),
            ),
            "error",
            "its source queue is not ready (source failed): refused",
        ),
        (
            "queues",
            with(
                queue(),
                json!({"failing": 1, "items": [{"key": "ns/a", "state": "ready", "priority": 0, "failures": 7, "reasons": [], "lastError": {"message": "quota\nexceeded"}}]}),
            ),
            "error",
            "1 key fails, ns/a 7 times: quota exceeded",
        ),
        (
            "informers",
            with(
                informer(),
                json!({"synced": false, "activity": "listing", "since": early}),
            ),
            "error",
            "not synced: listing for 1m 30s",
        ),
        (
            "informers",
            with(
                informer(),
                json!({"synced": false, "activity": "listing", "since": "2026-05-01T03:00:59Z"}),
            ),
            "warning",
            "not synced: listing for 1s",
        ),
        (
            "informers",
            with(
                informer(),
                json!({"failure": {"class": "forbidden", "message": "no right to list", "since": early, "times": 4}}),
            ),
            "error",
            "failing for 1m 30s, 4 times (forbidden): no right to list",
        ),
        (
            "informers",
            with(
                informer(),
                json!({"quarantined": 3, "quarantinedObjects": [{"key": "ns/a", "error": "no spec", "outline": "{}"}]}),
            ),
            "error",
            "3 objects cannot be read, as ns/a: no spec",
        ),
        (
            "informers",
            with(
                informer(),
                json!({"handlers": [{"name": "web", "synced": true, "backlog": 1001, "delivered": 1, "dropped": 0, "panics": 0}]}),
            ),
            "warning",
            "1001 events wait for handler web",
        ),
        (
            "informers",
            with(
                informer(),
                json!({"handlers": [{"name": "web", "synced": true, "backlog": 0, "delivered": 1, "dropped": 5, "panics": 0}]}),
            ),
            "error",
            "handler web missed 5 events",
        ),
        (
            "election",
            with(
                election(),
                json!({"state": "lost", "lastError": {"message": "taken", "since": early}}),
            ),
            "error",
            "the lease was lost: taken",
        ),
        (
            "election",
            with(
                election(),
                json!({"lastRenewal": early, "lastError": {"message": "500", "since": "2026-05-01T02:59:32Z"}}),
            ),
            "error",
            "not renewed for 1m 30s: 500",
        ),
        (
            "election",
            with(
                election(),
                json!({"state": "candidate", "holder": null, "since": early}),
            ),
            "error",
            "no holder is known for 1m 30s",
        ),
        (
            "writes",
            with(
                writes(),
                json!({"keys": 1, "kinds": [{"kind": "Pod", "writes": 2, "unknown": 1}]}),
            ),
            "warning",
            "1 writes have no answer: their effect is unknown",
        ),
        (
            "writes",
            with(writes(), json!({"keys": 1, "oldest": early})),
            "warning",
            "the caches have not shown own writes for 1m 30s",
        ),
    ];
    for (section, report, severity, message) in cases {
        let all = overview(&json!({section: report}));
        let found: Vec<_> = all
            .problems
            .iter()
            .map(|one| {
                (
                    one.severity.to_string(),
                    one.section.name(),
                    one.message.as_str(),
                )
            })
            .collect();
        assert_eq!(found, [(severity.to_owned(), section, message)]);
        assert!(all.text().contains(message), "{}", all.text());
    }
}

#[test]
fn what_is_over_or_belongs_to_another_is_no_problem() {
    let old = json!({"message": "500", "since": "2026-05-01T02:30:00Z"});
    for (section, report) in [
        ("election", with(election(), json!({"lastError": old}))),
        // Its watch ended just now, or a renewal failed that is repeated.
        (
            "election",
            with(
                election(),
                json!({"lastRenewal": "2026-05-01T03:00:57Z", "lastError": {"message": "closed", "since": "2026-05-01T03:00:58Z"}}),
            ),
        ),
        (
            "election",
            with(election(), json!({"state": "candidate", "holder": "web-1"})),
        ),
        (
            "controllers",
            with(controller(), json!({"state": "standby"})),
        ),
        (
            "informers",
            with(informer(), json!({"synced": false, "activity": "idle"})),
        ),
    ] {
        assert_eq!(overview(&json!({section: report})).problems, [], "{report}");
    }
}

#[test]
fn a_controller_whose_workers_are_all_busy_is_one_only_with_a_backlog() {
    let busy = with(controller(), json!({"busy": 2}));
    assert_eq!(overview(&json!({"controllers": busy})).problems, []);
    let backlog = with(queue(), json!({"ready": 40}));
    let all = overview(&json!({"controllers": busy, "queues": backlog}));
    let message = "all 2 workers are busy, and 40 keys are ready";
    assert_eq!(all.problems[0].message, message);
}

#[test]
fn errors_come_before_warnings() {
    let all = overview(&json!({
        "controllers": with(controller(), json!({"panics": 2})),
        "queues": with(queue(), json!({"failing": 3})),
    }));
    let severities: Vec<_> = all
        .problems
        .iter()
        .map(|problem| problem.severity)
        .collect();
    assert_eq!(severities, [Severity::Error, Severity::Warning]);
    assert_eq!(all.problems[0].message, "3 keys fail");
}

#[test]
fn names_and_errors_do_not_become_markup() {
    let failure =
        json!({"class": "decode", "message": HOSTILE, "since": "2026-05-01T03:00:00Z", "times": 1});
    let item = json!({"key": HOSTILE, "state": "ready", "priority": 0, "failures": 1, "reasons": [HOSTILE], "lastError": {"message": HOSTILE, "class": HOSTILE}});
    let source = json!({"name": HOSTILE, "watch": true, "state": "notReady", "cause": HOSTILE, "message": HOSTILE});
    let all = overview(&json!({
        "controllers": with(controller(), json!({"name": HOSTILE, "kind": HOSTILE, "state": HOSTILE, "sources": [source], "longestRun": {"key": HOSTILE, "since": "2026-05-01T01:00:00Z"}})),
        "queues": with(queue(), json!({"name": HOSTILE, "failing": 1, "items": [item]})),
        "informers": with(informer(), json!({"name": HOSTILE, "cluster": HOSTILE, "activity": HOSTILE, "failure": failure, "quarantined": 1, "quarantinedObjects": [{"key": HOSTILE, "error": HOSTILE, "outline": ""}]})),
        "election": with(election(), json!({"lease": HOSTILE, "identity": HOSTILE, "holder": HOSTILE, "controller": HOSTILE, "lastError": {"message": HOSTILE, "since": "2026-05-01T03:00:00Z"}})),
        "writes": with(writes(), json!({"controller": HOSTILE, "keys": 1, "kinds": [{"kind": HOSTILE, "writes": 1, "unknown": 1}]})),
    }));
    let all = Overview {
        instance: HOSTILE.into(),
        reeve: HOSTILE.into(),
        ..all
    };
    let html = all.html();
    assert!(
        !html.contains("<script") && !html.contains("alert(\""),
        "{html}"
    );
    assert_eq!(html.matches("&lt;script&gt;").count(), 47, "{html}");
}

#[test]
fn a_document_is_read_again_as_it_was_written() {
    let all = overview(&json!({
        "controllers": controller(), "informers": informer(), "election": election(), "writes": writes(),
        "queues": with(queue(), json!({"failing": 1, "items": [
            {"key": "ns/a", "state": "waiting", "due": "2026-05-01T03:05:00Z", "priority": 1, "failures": 1, "reasons": ["changed"],
             "lastError": {"message": "refused", "class": "throttled"}},
            {"key": "ns/b", "state": "inFlight", "since": "2026-05-01T03:00:00Z", "again": true, "priority": 0, "failures": 0, "reasons": []},
        ]})),
    }));
    let document = serde_json::to_value(&all).unwrap();
    let again: Overview = serde_json::from_value(document.clone()).unwrap();
    assert_eq!(serde_json::to_value(&again).unwrap(), document);
    assert_eq!(again.html(), all.html());
}

#[test]
fn one_name_is_shown_alone() {
    let mut all = overview(&json!({
        "controllers": controller(), "queues": with(queue(), json!({"failing": 1})), "informers": informer(),
    }));
    all.keep(|name| name == "web");
    let all = all.with_problems();
    assert_eq!(
        (all.controllers.len(), all.queues.len(), all.informers.len()),
        (1, 1, 0)
    );
    assert_eq!(all.problems.len(), 1);
}
