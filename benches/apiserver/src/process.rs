//! The server's processes: their start, their processor time and their memory.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use crate::error::{Error, Result};

/// Ticks a second of `/proc/PID/stat`, on every Linux.
const TICKS: f64 = 100.0;

/// A running program; killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    id: u32,
}

/// What the processes of one server used so far, and hold now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Processor time in user and system mode.
    pub(crate) cpu: Duration,
    /// Resident memory, bytes.
    pub(crate) resident: u64,
    /// Its peak since the start or since [`Process::forget_peak`], bytes.
    pub(crate) peak: u64,
}

// === impl Process ===

impl Process {
    /// Starts `program`; its output goes to `log`.
    pub(crate) fn start(program: &Path, arguments: &[String], log: &Path) -> Result<Self> {
        let name = program.display().to_string();
        let output = std::fs::File::create(log).map_err(Error::io(log.display().to_string()))?;
        let errors = output.try_clone().map_err(Error::io("log"))?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .map_err(Error::io(name.clone()))?;
        let id = child
            .id()
            .ok_or_else(|| Error::setup("a program ended at once"))?;
        Ok(Self { name, child, id })
    }

    /// An error if the program has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(Error::Setup(format!("{} ended: {status}", self.name))),
            Err(source) => Err(Error::io(self.name.clone())(source)),
        }
    }

    pub(crate) async fn kill(mut self) -> Result<()> {
        self.child.kill().await.map_err(Error::io("kill"))
    }

    pub(crate) fn usage(&self) -> Result<Usage> {
        usage(&self.id.to_string())
    }

    /// Starts a new peak of memory.
    pub(crate) fn forget_peak(&self) -> Result<()> {
        let path = format!("/proc/{}/clear_refs", self.id);
        std::fs::write(&path, "5").map_err(Error::io(path))
    }
}

// === impl Usage ===

impl Usage {
    /// The sum of both; the peaks need not have been at the same time.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            resident: self.resident + other.resident,
            peak: self.peak + other.peak,
        }
    }
}

/// The usage of the process `id`, which may be `self`.
pub(crate) fn usage(id: &str) -> Result<Usage> {
    let read = |file: &str| {
        let path = format!("/proc/{id}/{file}");
        std::fs::read_to_string(&path).map_err(Error::io(path))
    };
    let missing = || Error::Setup(format!("/proc/{id} lacks a field"));
    let (stat, status) = (read("stat")?, read("status")?);
    let cpu = ticks(&stat).ok_or_else(missing)?;
    Ok(Usage {
        cpu: Duration::from_secs_f64(cpu / TICKS),
        resident: bytes(&status, "VmRSS:").ok_or_else(missing)?,
        peak: bytes(&status, "VmHWM:").ok_or_else(missing)?,
    })
}

/// `utime` and `stime`. The name of the program, in parentheses, may have blanks.
fn ticks(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn bytes(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_any_name() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 4 0 100 1 1";
        assert_eq!(ticks(stat), Some(200.0));
    }

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(bytes("Name:\tx\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12_288));
    }
}
