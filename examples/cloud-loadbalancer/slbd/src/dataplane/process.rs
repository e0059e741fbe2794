//! HAProxy as a program: its checks, its processes, and what they write to stderr.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

/// The time that HAProxy has to check a configuration, and to bind its sockets.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time that the stats socket has for an answer.
const ANSWER: Duration = Duration::from_secs(2);
/// The time that the end of a process has to reach the reader of its stderr.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// The time between two looks at whether the sockets are bound.
const LOOK: Duration = Duration::from_millis(5);
/// The longest answer of the stats socket that is read, in bytes.
const MOST_INFO: u64 = 64 << 10;
/// The longest line of stderr, in bytes. The rest counts as another line.
const LONGEST_LINE: u64 = 1024;
/// The lines of stderr that an error shows: the last ones.
const MOST_LINES: usize = 8;

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// HAProxy accepts the configuration.
    Accepted,
    /// HAProxy refuses it, for a reason that it wrote to stderr.
    Refused(String),
}

/// HAProxy's executable, and the folder of its files.
#[derive(Clone, Debug)]
pub(super) struct Program {
    path: PathBuf,
    folder: PathBuf,
}

/// A process that serves. SIGKILL ends it when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    _stderr: Lines,
}

/// Reads the lines of stderr into the log, and keeps the last ones.
#[derive(Debug)]
struct Lines {
    last: Arc<Mutex<VecDeque<String>>>,
    task: AbortOnDropHandle<()>,
}

// === impl Program ===

impl Program {
    pub(super) fn new(path: PathBuf, folder: PathBuf) -> Self {
        Self { path, folder }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("haproxy.sock")
    }

    fn file(&self) -> PathBuf {
        self.folder.join("haproxy.cfg")
    }

    fn new_file(&self) -> PathBuf {
        self.folder.join("haproxy.cfg.new")
    }

    /// The processes that an slbd which was killed left behind. They still serve, and are replaced as if they were children.
    pub(super) async fn left_behind(&self) -> io::Result<Vec<u32>> {
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

    /// Ends the processes that were left behind and not replaced, at once.
    pub(super) async fn end_left_behind(&self) {
        let end = async {
            let left = self.left_behind().await?;
            if left.is_empty() {
                return Ok(());
            }
            let mut command = Command::new("kill");
            command.args(left.iter().map(u32::to_string));
            let status = command.kill_on_drop(true).status().await?;
            match status.success() {
                true => Ok(()),
                false => Err(io::Error::other(format!("kill: {status}"))),
            }
        };
        let ended = timeout(ANSWER, end).await.map_err(io::Error::from);
        if let Err(error) = ended.flatten() {
            tracing::error!(%error, "cannot end the haproxy of an earlier slbd");
        }
    }

    /// Writes `text` beside the file in use, and has HAProxy check it.
    ///
    /// # Errors
    /// When HAProxy does not come to a verdict: it does not start, is killed, or takes too long.
    pub(super) async fn check(&self, text: &str) -> io::Result<Verdict> {
        let new = self.new_file();
        tokio::fs::write(&new, text).await?;
        let mut command = Command::new(&self.path);
        command.args(["-c", "-f"]).arg(&new);
        let (mut child, lines) = spawn(command, false)?;
        let status = timeout(PATIENCE, child.wait()).await;
        let status = status.map_err(|_| io::Error::other("haproxy checks it for too long"))??;
        match status.code() {
            Some(0) => Ok(Verdict::Accepted),
            Some(_) => Ok(Verdict::Refused(lines.last().await)),
            None => Err(io::Error::other(format!("haproxy was killed: {status}"))),
        }
    }

    /// Starts HAProxy with the configuration that was checked last, in place of the processes `old`.
    pub(super) async fn start(&self, old: &[u32]) -> io::Result<Process> {
        tokio::fs::rename(self.new_file(), self.file()).await?;
        let mut command = Command::new(&self.path);
        command.arg("-db").arg("-f").arg(self.file());
        // A process that died has no sockets to hand over.
        if self.serving().await.is_ok() {
            command.arg("-x").arg(self.socket());
        }
        if !old.is_empty() {
            command.arg("-sf").args(old.iter().map(u32::to_string));
        }
        let (mut child, lines) = spawn(command, true)?;
        let bound = timeout(PATIENCE, self.wait_until_bound(&mut child)).await;
        match bound {
            Ok(Ok(None)) => Ok(Process {
                child,
                _stderr: lines,
            }),
            Ok(Ok(Some(status))) => {
                let text = format!("haproxy ended at once ({status}): {}", lines.last().await);
                Err(io::Error::other(text))
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other("haproxy binds its sockets for too long")),
        }
    }

    /// The stats socket belongs to the new process once that has bound all sockets. Returns the status of a process that ended.
    async fn wait_until_bound(
        &self,
        child: &mut Child,
    ) -> io::Result<Option<std::process::ExitStatus>> {
        let pid = child.id();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            if self.serving().await.is_ok_and(|serving| serving == pid) {
                return Ok(None);
            }
            sleep(LOOK).await;
        }
    }

    /// The number of the process behind the stats socket.
    pub(super) async fn serving(&self) -> io::Result<Option<u32>> {
        let ask = async {
            let mut socket = UnixStream::connect(self.socket()).await?;
            socket.write_all(b"show info\n").await?;
            let mut text = String::new();
            socket.take(MOST_INFO).read_to_string(&mut text).await?;
            let pid = text.lines().find_map(|line| line.strip_prefix("Pid: "));
            Ok(pid.and_then(|pid| pid.trim().parse().ok()))
        };
        timeout(ANSWER, ask).await?
    }
}

/// Starts a process whose stderr is read, and shown in the log if `logged`.
fn spawn(mut command: Command, logged: bool) -> io::Result<(Child, Lines)> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| {
        let program = command.as_std().get_program();
        let text = format!("cannot start {}: {error}", Path::new(program).display());
        io::Error::new(error.kind(), text)
    })?;
    let stderr = child.stderr.take();
    let stderr = stderr.ok_or_else(|| io::Error::other("haproxy has no stderr"))?;
    Ok((child, Lines::read(stderr, logged)))
}

/// The message of a line such as `[ALERT]    (123) : text`. `None` for lines about HAProxy's own version and place, and for those that an
/// old process writes about each of its listeners at its end.
fn message(line: &str) -> Option<&str> {
    let line = line.trim();
    if line.is_empty() || line.starts_with("[NOTICE]") {
        return None;
    }
    let marked = line.starts_with("[ALERT]") || line.starts_with("[WARNING]");
    // The number of the process would make each repetition look new.
    let message = line.split_once(") : ").filter(|_| marked);
    let message = message.map_or(line, |(_, message)| message);
    let of_the_end = message.starts_with("Proxy ") && message.contains(" stopped (");
    (!of_the_end).then_some(message)
}

// === impl Process ===

impl Process {
    pub(super) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    pub(super) fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for its end.
    pub(super) async fn wait(&mut self) {
        let _ = self.child.wait().await;
    }
}

// === impl Lines ===

impl Lines {
    fn read(stderr: impl AsyncRead + Unpin + Send + 'static, logged: bool) -> Self {
        let last = Arc::new(Mutex::new(VecDeque::new()));
        let lines = Arc::clone(&last);
        let task = tokio::spawn(async move {
            let mut stderr = BufReader::new(stderr);
            let mut line = Vec::new();
            loop {
                line.clear();
                let mut limited = (&mut stderr).take(LONGEST_LINE);
                if !matches!(limited.read_until(b'\n', &mut line).await, Ok(1..)) {
                    return;
                }
                let text = String::from_utf8_lossy(&line);
                let Some(line) = message(&text) else {
                    continue;
                };
                // HAProxy writes the changes of health checks there, too.
                if logged && text.starts_with("[ALERT]") {
                    tracing::warn!(line, "haproxy");
                } else if logged {
                    tracing::info!(line, "haproxy");
                }
                let mut lines = lines.lock();
                if lines.len() == MOST_LINES {
                    lines.pop_front();
                }
                lines.push_back(line.to_owned());
            }
        });
        Self {
            last,
            task: AbortOnDropHandle::new(task),
        }
    }

    /// The last lines of a process that has ended.
    async fn last(self) -> String {
        let _ = timeout(LAST_WORDS, self.task).await;
        let lines: Vec<String> = self.last.lock().iter().cloned().collect();
        lines.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_the_same_at_each_repetition() {
        let line = "[ALERT]    (123) : config : parsing [a.cfg:3] : unknown (x) : y\n";
        let text = "config : parsing [a.cfg:3] : unknown (x) : y";
        assert_eq!(message(line), Some(text));
        assert_eq!(message("  free (text) : here "), Some("free (text) : here"));
        assert_eq!(message("[NOTICE]   (123) : haproxy version is 2.6"), None);
        let end = "[WARNING]  (123) : Proxy lb-1-80 stopped (cumulated conns: FE: 1, BE: 0).";
        assert_eq!(message(end), None);
        let down = "[WARNING]  (123) : Server lb-1-80/s1 is DOWN, reason: Layer4 timeout";
        assert_eq!(
            message(down),
            Some("Server lb-1-80/s1 is DOWN, reason: Layer4 timeout")
        );
        assert_eq!(message("\n"), None);
    }

    #[tokio::test]
    async fn the_last_lines_are_kept_and_long_ones_are_cut() {
        let mut text = String::new();
        for line in 0..20 {
            text.push_str(&format!("line {line}\n"));
        }
        text.push_str(&"x".repeat(3000));
        let lines = Lines::read(std::io::Cursor::new(text.into_bytes()), false);
        let last = lines.last().await;
        let lines: Vec<&str> = last.split("; ").collect();
        assert_eq!(lines.len(), MOST_LINES);
        assert_eq!(
            lines[..5],
            ["line 15", "line 16", "line 17", "line 18", "line 19"]
        );
        assert_eq!(lines[5].len(), 1024);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stats_socket_that_never_answers_is_given_up() {
        let folder = std::env::temp_dir().join(format!("slbd-silent-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let program = Program::new("none".into(), folder.clone());
        let _silent = tokio::net::UnixListener::bind(program.socket()).unwrap();
        let serving = timeout(Duration::from_secs(60), program.serving()).await;
        let error = serving.expect("an end").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
