//! Signals, in a process of their own: a handler once installed stays.
#![cfg(unix)]

use std::convert::Infallible;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reeve_apiserver::ApiServer;
use reeve_controller::{Manager, Runnable};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn the_first_signal_stops_gracefully() {
    let server = ApiServer::builder().start().await.unwrap();
    let manager = Manager::builder(server.client()).build().await.unwrap();
    let (started, ended) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (start, end) = (Arc::clone(&started), Arc::clone(&ended));
    let runnable = Runnable::new("worker", move |stop: CancellationToken| async move {
        start.store(true, Ordering::Relaxed);
        stop.cancelled().await;
        sleep(Duration::from_millis(200)).await;
        end.store(true, Ordering::Relaxed);
        Ok::<_, Infallible>(())
    });
    manager.add(runnable).unwrap();
    let run = tokio::spawn(async move { manager.run_until_signal().await });
    while !started.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(10)).await;
    }
    let sent = Command::new("kill")
        .args(["-TERM", &std::process::id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
    timeout(Duration::from_secs(10), run)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(ended.load(Ordering::Relaxed), "the worker ended by itself");
}
