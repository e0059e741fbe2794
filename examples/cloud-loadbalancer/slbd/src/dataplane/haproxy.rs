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
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// How many configurations were loaded.
    pub loaded: u64,
    state: Option<Arc<State>>,
}

/// HAProxy, started from `program` with files in `folder`.
#[derive(Debug)]
pub struct HaProxy {
    program: PathBuf,
    folder: PathBuf,
    progress: watch::Sender<Progress>,
}

// === impl Progress ===

impl Progress {
    /// Whether `state`, of [`World::states`](crate::server::World::states), is loaded.
    #[must_use]
    pub fn has(&self, state: &Arc<State>) -> bool {
        let loaded = self.state.as_ref();
        loaded.is_some_and(|loaded| Arc::ptr_eq(loaded, state))
    }
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
    /// When the folder cannot be made, or the processes of the machine cannot be listed. A configuration that HAProxy refuses is logged, and the one before stays.
    pub async fn run(
        &self,
        mut states: watch::Receiver<Arc<State>>,
        stop: CancellationToken,
    ) -> io::Result<()> {
        tokio::fs::create_dir_all(&self.folder).await?;
        let mut old: JoinSet<()> = JoinSet::new();
        let mut running: Option<Child> = None;
        let mut loaded = String::new();
        let mut last = self.left_behind().await?;
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
                match self.load(&wanted, &last).await {
                    Ok(child) => {
                        last = child.id().into_iter().collect();
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
            if !failed {
                self.progress
                    .send_modify(|progress| progress.state = Some(state));
            }
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
        Ok(())
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("haproxy.sock")
    }

    fn file(&self) -> PathBuf {
        self.folder.join("haproxy.cfg")
    }

    /// The processes that an slbd which was killed left behind. They still serve, and are replaced as if they were children.
    async fn left_behind(&self) -> io::Result<Vec<u32>> {
        let file = self.file();
        let mut found = Vec::new();
        let mut processes = tokio::fs::read_dir("/proc").await?;
        while let Some(process) = processes.next_entry().await? {
            let name = process.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // A process that ends meanwhile is none.
            let line = tokio::fs::read(process.path().join("cmdline")).await;
            let line = line.unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0);
            let program = words.next().unwrap_or_default();
            let own = |word: &[u8]| word == file.as_os_str().as_encoded_bytes();
            if program.ends_with(b"haproxy") && words.any(own) {
                found.push(pid);
            }
        }
        Ok(found)
    }

    /// Checks `text`, and starts HAProxy with it in place of the processes `last`.
    async fn load(&self, text: &str, last: &[u32]) -> io::Result<Child> {
        let new = self.folder.join("haproxy.cfg.new");
        let file = self.file();
        tokio::fs::write(&new, text).await?;
        self.check(&new).await?;
        tokio::fs::rename(&new, &file).await?;
        let mut command = Command::new(&self.program);
        command.arg("-db").arg("-f").arg(&file);
        // A process that died has no sockets to hand over.
        if self.serving().await.is_ok() {
            command.arg("-x").arg(self.socket());
        }
        if !last.is_empty() {
            command.arg("-sf").args(last.iter().map(u32::to_string));
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn()?;
        let pid = child.id().unwrap_or_default();
        let bound = tokio::time::timeout(PATIENCE, self.wait_until_bound(&mut child, pid));
        bound.await??;
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
    ///
    /// # Errors
    /// When no process answers there.
    pub async fn serving(&self) -> io::Result<Option<u32>> {
        let mut socket = UnixStream::connect(self.socket()).await?;
        socket.write_all(b"show info\n").await?;
        let mut text = String::new();
        socket.take(MOST_INFO).read_to_string(&mut text).await?;
        let pid = text.lines().find_map(|line| line.strip_prefix("Pid: "));
        Ok(pid.and_then(|pid| pid.trim().parse().ok()))
    }
}
