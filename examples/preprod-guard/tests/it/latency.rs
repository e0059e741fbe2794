//! The time of a decision: from the bytes of a review to those of its answer, in this process.

use reeve_webhook::admission::Operation;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::scenario::{CALLERS, POD, call, guard_of, production, state};

const CALLS: usize = 20_000;
const SIZE: std::ops::Range<usize> = 5_000..5_500;

/// A production Pod of 5 KB.
fn pod() -> Value {
    let mut pod = production("web-0");
    let environment: Vec<Value> = (0..82)
        .map(
            |at| json!({"name": format!("SETTING_{at:02}"), "value": "a value of ordinary length"}),
        )
        .collect();
    pod["spec"] = json!({
        "nodeName": "node-1", "serviceAccountName": "web",
        "containers": [{"name": "web", "image": "registry.example.com/web:1.2.3", "env": environment,
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}],
    });
    pod
}

/// Prints the median and the 99th of 100. No time is checked: it is that of the machine.
#[tokio::test]
#[ignore = "a measurement: cargo test --release -p preprod-guard --test it latency -- --ignored --nocapture"]
async fn the_time_of_a_decision() {
    let old = pod();
    assert!(
        SIZE.contains(&old.to_string().len()),
        "{}",
        old.to_string().len()
    );
    let mut new = old.clone();
    new["metadata"]["annotations"] = json!({"a": "b"});
    let guard = guard_of(CALLERS, state());
    let calls = [
        (
            "delete",
            call(Operation::Delete, POD, Some(old.clone()), None),
        ),
        ("update", call(Operation::Update, POD, Some(old), Some(new))),
    ];
    for (name, call) in calls {
        let review = call.review().to_string().into_bytes();
        let mut times = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let start = Instant::now();
            let answer = guard.webhook.answer(&review).await.unwrap().to_json();
            times.push(start.elapsed());
            assert!(!answer.is_empty());
            guard.lines.lock().clear();
        }
        times.sort();
        println!(
            "{name}: a review of {} bytes, {CALLS} decisions: p50 {:?}, p99 {:?}",
            review.len(),
            times[CALLS / 2],
            times[CALLS * 99 / 100]
        );
    }
}
