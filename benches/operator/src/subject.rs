//! The operator under measurement: a process to start, to kill, and to query for the resources it used.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::blocks::{Error, Result};

/// How to start an operator.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) log: PathBuf,
}

/// A running operator; killed when dropped.
pub(crate) struct Subject {
    child: Child,
}

/// The resources that a process has used so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    pub(crate) resident_bytes: u64,
}

// === impl Recipe ===

impl Recipe {
    pub(crate) fn start(&self) -> Result<Subject> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(|error| Error::Setup(format!("{}: {error}", self.log.display())))?;
        let child = Command::new(&self.program)
            .args(&self.args)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Subject { child })
    }
}

// === impl Subject ===

impl Subject {
    /// Ends the process at once, as `kill -9` does.
    pub(crate) async fn kill(mut self) -> std::io::Result<()> {
        self.child.kill().await
    }

    /// Ends the process as Kubernetes does, by SIGTERM. What a program that was built with `profile-generate` counted is
    /// written at such an end only.
    pub(crate) async fn stop(mut self) -> Result<()> {
        /// The default grace period of a Pod.
        const GRACE: Duration = Duration::from_secs(30);
        let id = self
            .child
            .id()
            .and_then(|id| Pid::from_raw(id.cast_signed()));
        let id = id.ok_or_else(|| Error::Setup("the operator ended before SIGTERM".into()))?;
        kill_process(id, Signal::TERM).map_err(std::io::Error::from)?;
        let status = timeout(GRACE, self.child.wait())
            .await
            .map_err(|_| Error::Setup(format!("the operator runs {GRACE:?} after SIGTERM")))??;
        if status.success() {
            Ok(())
        } else {
            Err(Error::Setup(format!("the operator ended with {status}")))
        }
    }

    /// Whether the process still runs.
    pub(crate) fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The highest resident memory so far, from `/proc`.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        let path = format!("/proc/{}/status", self.child.id()?);
        let status = std::fs::read_to_string(path).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
        let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kilobytes * 1024)
    }

    /// CPU time and resident memory, from `/proc`; zeros without `/proc`.
    pub(crate) fn usage(&self) -> Usage {
        self.child.id().and_then(read_usage).unwrap_or_default()
    }
}

/// The CPU time of this process.
pub(crate) fn own_cpu() -> Duration {
    read_usage(std::process::id()).unwrap_or_default().cpu
}

fn read_usage(pid: u32) -> Option<Usage> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command in field 2 may contain blanks: count from its closing parenthesis.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    let pages: u64 = fields.get(21)?.parse().ok()?;
    // Linux reports ticks of 10 ms and pages of 4 KiB on every machine of this bench.
    Some(Usage {
        cpu: Duration::from_millis(ticks * 10),
        resident_bytes: pages * 4096,
    })
}
