//! The process of HAProxy, and its replacement at each change.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::config;
use crate::cloud::State;

/// The time that HAProxy has to check a configuration, and to bind its sockets.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two looks at whether the sockets are bound.
const LOOK: Duration = Duration::from_millis(5);
/// The time before a configuration that failed is tried again, without a change of the state.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest answer of the stats socket that is read, in bytes.
const MOST_INFO: u64 = 64 << 10;
/// The old processes that may still end their connections. More changes wait for one of them.
const MOST_OLD: usize = 20;

/// How far the data plane is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// How many configurations were loaded.
    pub loaded: u64,
    /// Whether the newest state is loaded.
    pub current: bool,
}

/// HAProxy, started from `program` with files in `folder`.
#[derive(Debug)]
pub struct HaProxy {
    program: PathBuf,
    folder: PathBuf,
    progress: watch::Sender<Progress>,
}

// === impl HaProxy ===

impl HaProxy {
    /// HAProxy of the executable `program`. `folder`, of this data plane alone, gets its files.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, folder: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            folder: folder.into(),
            progress: watch::Sender::default(),
        }
    }

    /// How far the data plane is.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Follows `states` until `stop`, then ends HAProxy.
    ///
    /// # Errors
    /// When the folder cannot be made. A configuration that HAProxy refuses is logged, and the one before stays.
    pub async fn run(
        &self,
        mut states: watch::Receiver<Arc<State>>,
        stop: CancellationToken,
    ) -> io::Result<()> {
        tokio::fs::create_dir_all(&self.folder).await?;
        let mut old: JoinSet<()> = JoinSet::new();
        let mut running: Option<Child> = None;
        let mut loaded = String::new();
        let mut last = self.left_behind().await;
        loop {
            let state = Arc::clone(&states.borrow_and_update());
            let wanted = config::render(&state, &self.folder);
            let dead = match &mut running {
                Some(child) => child.try_wait()?.is_some(),
                None => true,
            };
            let mut failed = false;
            if dead || wanted != loaded {
                while old.len() >= MOST_OLD && old.join_next().await.is_some() {}
                match self.load(&wanted, last).await {
                    Ok(child) => {
                        last = child.id();
                        if let Some(mut child) = running.replace(child) {
                            // It ends after its last connection, or at `hard-stop-after`.
                            old.spawn(async move {
                                let _ = child.wait().await;
                            });
                        }
                        loaded = wanted;
                        self.progress.send_modify(|progress| progress.loaded += 1);
                    }
                    Err(error) => {
                        tracing::error!(%error, "cannot load the configuration of haproxy");
                        failed = true;
                    }
                }
            }
            let current = !failed && !states.has_changed().unwrap_or(false);
            self.progress
                .send_modify(|progress| progress.current = current);
            let died = async {
                match &mut running {
                    Some(child) if !failed => {
                        let _ = child.wait().await;
                        tracing::warn!("haproxy ended; starting it again");
                        tokio::time::sleep(AGAIN).await;
                    }
                    _ => tokio::time::sleep(AGAIN).await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                changed = states.changed() => if changed.is_err() {
                    stop.cancelled().await;
                    break;
                },
                () = died => {}
            }
        }
        // Children end with their handles.
        drop(running);
        old.shutdown().await;
        let _ = tokio::fs::remove_file(self.pid_file()).await;
        Ok(())
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("haproxy.sock")
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.join("haproxy.pid")
    }

    /// The HAProxy that an slbd which was killed left behind: it still serves, and is replaced as if it were our own.
    async fn left_behind(&self) -> Option<u32> {
        let text = tokio::fs::read_to_string(self.pid_file()).await.ok()?;
        let pid: u32 = text.trim().parse().ok()?;
        let line = tokio::fs::read(format!("/proc/{pid}/cmdline")).await.ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        // The number may belong to another process by now.
        let own = self.folder.to_string_lossy().into_owned();
        (line.contains("haproxy") && line.contains(&own)).then_some(pid)
    }

    /// Checks `text`, and starts HAProxy with it in place of the process `last`.
    async fn load(&self, text: &str, last: Option<u32>) -> io::Result<Child> {
        let new = self.folder.join("haproxy.cfg.new");
        let file = self.folder.join("haproxy.cfg");
        tokio::fs::write(&new, text).await?;
        self.check(&new).await?;
        tokio::fs::rename(&new, &file).await?;
        let mut command = Command::new(&self.program);
        command.arg("-db").arg("-f").arg(&file);
        if let Some(last) = last {
            command.arg("-x").arg(self.socket());
            command.arg("-sf").arg(last.to_string());
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn()?;
        let pid = child.id().unwrap_or_default();
        let bound = tokio::time::timeout(PATIENCE, self.wait_until_bound(&mut child, pid));
        bound.await??;
        tokio::fs::write(self.pid_file(), pid.to_string()).await?;
        Ok(child)
    }

    async fn check(&self, file: &Path) -> io::Result<()> {
        let output = Command::new(&self.program)
            .args(["-c", "-f"])
            .arg(file)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(PATIENCE, output).await??;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("haproxy refuses it: {text}")))
    }

    /// The stats socket belongs to the new process once that has bound all sockets.
    async fn wait_until_bound(&self, child: &mut Child, pid: u32) -> io::Result<()> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Err(io::Error::other(format!("haproxy ended at once: {status}")));
            }
            if self
                .serving()
                .await
                .is_ok_and(|serving| serving == Some(pid))
            {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The number of the process behind the stats socket.
    async fn serving(&self) -> io::Result<Option<u32>> {
        let mut socket = UnixStream::connect(self.socket()).await?;
        socket.write_all(b"show info\n").await?;
        let mut text = String::new();
        socket.take(MOST_INFO).read_to_string(&mut text).await?;
        let pid = text.lines().find_map(|line| line.strip_prefix("Pid: "));
        Ok(pid.and_then(|pid| pid.trim().parse().ok()))
    }
}
