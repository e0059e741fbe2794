//! The file of the audit log, written by a thread of its own.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use crate::metrics::Metrics;

/// The most lines that wait to be written.
const MOST_LINES: usize = 8192;

/// The most bytes of one write, apart from its last line.
const MOST_BYTES: usize = 64 * 1024;

/// The audit log. A line that finds 8,192 others waiting, because a disk or a reader of a pipe is slow, is dropped and counted
/// in `preguard_audit_lines_dropped_total`: the decision does not wait for it. Dropping the log writes what waits.
#[derive(Debug)]
pub struct Log {
    lines: Option<SyncSender<String>>,
    reopens: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
    metrics: Metrics,
}

/// The target of lines.
struct Target {
    path: Option<PathBuf>,
    out: Box<dyn Write + Send>,
    reopens: Arc<AtomicBool>,
}

// === impl Log ===

impl Log {
    /// Appends to `file`, or writes to the standard output.
    ///
    /// # Errors
    /// When the file cannot be opened, or no thread can be started.
    pub fn open(file: Option<PathBuf>, metrics: Metrics) -> io::Result<Self> {
        let out: Box<dyn Write + Send> = match &file {
            Some(path) => Box::new(append(path)?),
            None => Box::new(io::stdout()),
        };
        Self::start(file, out, metrics)
    }

    fn start(
        path: Option<PathBuf>,
        out: Box<dyn Write + Send>,
        metrics: Metrics,
    ) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(MOST_LINES);
        let reopens = Arc::new(AtomicBool::new(false));
        let target = Target {
            path,
            out,
            reopens: Arc::clone(&reopens),
        };
        let writer = thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || target.run(&waiting))?;
        Ok(Self {
            lines: Some(lines),
            reopens,
            writer: Some(writer),
            metrics,
        })
    }

    /// Adds a line, without its end.
    pub fn write(&self, line: String) {
        let sent = self.lines.as_ref().map(|lines| lines.try_send(line));
        if !matches!(sent, Some(Ok(()))) {
            self.metrics.count_dropped_line();
        }
    }

    /// Returns a function after which the next line opens the file again: a rotation renamed it.
    pub fn reopening(&self) -> impl Fn() + Send + 'static {
        let reopens = Arc::clone(&self.reopens);
        move || reopens.store(true, Ordering::Relaxed)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.lines = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

// === impl Target ===

impl Target {
    /// Writes lines until the log is dropped.
    fn run(mut self, waiting: &Receiver<String>) {
        while let Ok(line) = waiting.recv() {
            let mut text = line + "\n";
            while text.len() < MOST_BYTES
                && let Ok(line) = waiting.try_recv()
            {
                text.push_str(&line);
                text.push('\n');
            }
            self.reopen();
            let written = self.out.write_all(text.as_bytes());
            if let Err(error) = written.and_then(|()| self.out.flush()) {
                tracing::error!(%error, "could not write lines of the audit log");
            }
        }
    }

    fn reopen(&mut self) {
        if !self.reopens.swap(false, Ordering::Relaxed) {
            return;
        }
        match self.path.as_deref().map(append) {
            Some(Ok(file)) => self.out = Box::new(file),
            Some(Err(error)) => tracing::error!(%error, "could not open the audit log again"),
            None => {}
        }
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

#[cfg(test)]
mod tests {
    use parking_lot::{Mutex, MutexGuard};
    use prometheus_client::registry::Registry;

    use super::*;

    /// Writes when the lock is free.
    struct Slow(Arc<Mutex<Vec<u8>>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn dropped(metrics: &Metrics) -> String {
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let mut lines = text.lines();
        let name = "preguard_audit_lines_dropped_total ";
        let value = lines.find_map(|line| line.strip_prefix(name)).unwrap();
        value.to_owned()
    }

    #[test]
    fn a_slow_disk_costs_lines_and_no_time() {
        let (written, metrics) = (Arc::new(Mutex::new(Vec::new())), Metrics::default());
        let blocked: MutexGuard<'_, _> = written.lock();
        let out = Box::new(Slow(Arc::clone(&written)));
        let log = Log::start(None, out, metrics.clone()).unwrap();
        // Beside the lines that wait, the writer may hold a piece that it could not write.
        let mut lines = 0;
        while dropped(&metrics) == "0" && lines < MOST_LINES + MOST_BYTES {
            log.write("line".to_owned());
            lines += 1;
        }
        assert_eq!(dropped(&metrics), "1");
        drop(blocked);
        drop(log);
        let kept = written.lock().iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(kept + 1, lines);
    }

    #[test]
    fn a_file_that_was_renamed_is_opened_again() {
        let name = format!("preprod-guard-audit-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let [path, old] = ["audit.jsonl", "audit.jsonl.1"].map(|name| directory.join(name));
        let log = Log::open(Some(path.clone()), Metrics::default()).unwrap();
        log.write("first".to_owned());
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        while read(&path) != "first\n" {
            thread::yield_now();
        }
        std::fs::rename(&path, &old).unwrap();
        log.reopening()();
        log.write("second".to_owned());
        drop(log);
        assert_eq!(
            (read(&old), read(&path)),
            ("first\n".into(), "second\n".into())
        );
        std::fs::remove_dir_all(directory).unwrap();
    }
}
