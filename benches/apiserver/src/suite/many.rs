//! Many servers in one process, as a test binary has them: the bench starts itself again for this.

use std::time::Duration;

use reeve_apiserver::ApiServer;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use super::ready::bytes;
use crate::error::{Error, Result};
use crate::process::usage;
use crate::report::{Unit, Values};

/// The argument of the process that has the servers.
pub(crate) const ARGUMENT: &str = "--in-process";

/// Starts the process, and returns its values.
pub(crate) async fn run(count: usize) -> Result<Values> {
    let program = std::env::current_exe().map_err(Error::io("this program"))?;
    let output = Command::new(program)
        .args([ARGUMENT.to_owned(), count.to_string()])
        .output()
        .await
        .map_err(Error::io(ARGUMENT))?;
    if !output.status.success() {
        return Err(Error::Setup(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ));
    }
    let line: Value = serde_json::from_slice(&output.stdout)?;
    let mut values = Values::default();
    for (field, title, unit) in [
        ("start", "start of all", Unit::Seconds),
        ("cpu", "processor time of the start", Unit::Seconds),
        ("memory", "memory of all", Unit::Bytes),
        ("serve", "HTTPS addresses for all", Unit::Seconds),
        ("used", "a namespace and an object in each", Unit::Seconds),
        ("memory_used", "memory of all then", Unit::Bytes),
    ] {
        let value = line[field].as_f64().unwrap_or_default();
        values.add(format!("{count} servers: {title}"), unit, value);
    }
    Ok(values)
}

/// What the process with the servers does; its result is one line of JSON.
pub(crate) async fn in_process(count: usize) -> Result<Value> {
    let before = usage("self")?;
    let start = Instant::now();
    let mut servers = Vec::with_capacity(count);
    for _ in 0..count {
        servers.push(ApiServer::builder().start().await.map_err(Error::setup)?);
    }
    let started = start.elapsed();
    let after = usage("self")?;

    let start = Instant::now();
    let mut addresses = Vec::with_capacity(count);
    for server in &servers {
        let any = ([127, 0, 0, 1], 0).into();
        addresses.push(server.serve_tls(any).await.map_err(Error::setup)?);
    }
    let served = start.elapsed();

    let start = Instant::now();
    for server in &servers {
        for (path, body) in [
            ("/api/v1/namespaces", json!({"metadata": {"name": "mine"}})),
            (
                "/api/v1/namespaces/mine/configmaps",
                json!({"metadata": {"name": "one"}, "data": {"key": "value"}}),
            ),
        ] {
            let request = http::Request::post(path)
                .header("content-type", "application/json")
                .body(serde_json::to_vec(&body)?)?;
            let answer = server.client().request_text(request).await;
            answer.map_err(Error::setup)?;
        }
    }
    let used = start.elapsed();
    // The servers react to the namespaces.
    sleep(Duration::from_millis(500)).await;
    let then = usage("self")?;
    Ok(json!({
        "start": started.as_secs_f64(),
        "cpu": (after.cpu - before.cpu).as_secs_f64(),
        "memory": bytes(after.resident - before.resident),
        "serve": served.as_secs_f64(),
        "used": used.as_secs_f64(),
        "memory_used": bytes(then.resident - before.resident),
    }))
}
