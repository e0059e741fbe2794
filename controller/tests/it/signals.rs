//! Signals, each to a process of its own: a handler once installed stays.

use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use reeve_apiserver::ApiServer;
use reeve_controller::{Manager, Runnable};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Set for a process that is sent signals: whether its worker ends when it is told to.
const WORKER: &str = "REEVE_TEST_WORKER";
/// How long anything may take that takes no time.
const PATIENCE: Duration = Duration::from_secs(60);

/// The process that is sent signals. Without the variable, nothing.
#[tokio::test]
#[ignore = "it is started by the others, as a process"]
async fn a_manager_that_runs_until_a_signal() {
    let Ok(worker) = std::env::var(WORKER) else {
        return;
    };
    let server = ApiServer::builder().start().await.unwrap();
    let manager = Manager::builder(server.client())
        .grace_period(Duration::MAX)
        .build()
        .await
        .unwrap();
    let runnable = Runnable::new("worker", move |stop: CancellationToken| async move {
        println!("at work");
        stop.cancelled().await;
        println!("told to stop");
        if worker == "hangs" {
            std::future::pending::<()>().await;
        }
        sleep(Duration::from_millis(200)).await;
        println!("done");
        Ok::<_, Infallible>(())
    });
    manager.add(runnable).unwrap();
    manager.run_until_signal().await.unwrap();
}

/// A process that is sent signals, killed when this is dropped.
struct Process {
    child: Child,
    /// What it says; closed when it has ended.
    lines: Receiver<String>,
}

// === impl Process ===

impl Process {
    fn start(worker: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "signals::a_manager_that_runs_until_a_signal"])
            .args(["--ignored", "--nocapture"])
            .env(WORKER, worker)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    /// Reads on until it says `said`.
    fn says(&self, said: &str) {
        while !self
            .lines
            .recv_timeout(PATIENCE)
            .expect(said)
            .ends_with(said)
        {}
    }

    fn is_sent(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.unwrap().success());
    }

    /// The status it ends with.
    fn ends(&mut self) -> Option<i32> {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end"),
            }
        }
        self.child.wait().unwrap().code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_first_signal_stops_gracefully() {
    for signal in ["-TERM", "-INT"] {
        let mut process = Process::start("ends");
        process.says("at work");
        process.is_sent(signal);
        process.says("told to stop");
        process.says("done");
        assert_eq!(process.ends(), Some(0), "{signal}");
    }
}

#[test]
fn a_second_signal_exits_with_status_1() {
    for (first, second) in [("-TERM", "-TERM"), ("-INT", "-INT"), ("-TERM", "-INT")] {
        let mut process = Process::start("hangs");
        process.says("at work");
        process.is_sent(first);
        process.says("told to stop");
        process.is_sent(second);
        assert_eq!(process.ends(), Some(1), "{first}, {second}");
    }
}
