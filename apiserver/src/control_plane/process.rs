//! A program of the control plane, which never outlives this process.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::error::Error;

/// Runs the program (`"$@"`) and kills it when standard input ends. That happens when the [`Process`] is dropped
/// and also when this process is killed and drops nothing: the system closes the pipe. Then the directory is removed,
/// too, if it contains the file [`REMOVE_AT_EXIT`].
const GUARD: &str = r#"
exec 3<&0
"$@" 3<&- </dev/null &
program=$!
{ read -r _ <&3; kill -9 "$program" 2>/dev/null; [ ! -e .remove-at-exit ] || rm -rf "$PWD"; } &
guard=$!
exec 3<&-
wait "$program"
code=$?
kill "$guard" 2>/dev/null
exit "$code"
"#;

/// If this file exists, the directory is removed at the end of this process; [`GUARD`] names it, too.
pub(super) const REMOVE_AT_EXIT: &str = ".remove-at-exit";

const TAIL_BYTES: u64 = 3_000;

/// A running program; killed when dropped.
#[derive(Debug)]
pub(super) struct Process {
    program: &'static str,
    child: Child,
    log: PathBuf,
}

// === impl Process ===

impl Process {
    /// Starts `command`, in a process group of its own so that Ctrl-C does not reach it directly. Both outputs are
    /// appended to `PROGRAM.log` in `directory`.
    pub(super) fn start(
        program: &'static str,
        directory: &Path,
        command: &[String],
    ) -> Result<Self, Error> {
        let log = directory.join(format!("{program}.log"));
        let prepare = |source| Error::Prepare {
            what: log.display().to_string(),
            source,
        };
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(prepare)?;
        let errors = output.try_clone().map_err(prepare)?;
        let child = Command::new("/bin/sh")
            .args(["-c", GUARD, program])
            .args(command)
            .current_dir(directory)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(|source| Error::Prepare {
                what: program.to_owned(),
                source,
            })?;
        Ok(Self {
            program,
            child,
            log,
        })
    }

    /// The error of a program that has ended by itself; `None` while it runs.
    pub(super) fn ended(&mut self) -> Option<Error> {
        let status = match self.child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => status.to_string(),
            Err(error) => error.to_string(),
        };
        Some(Error::Ended {
            program: self.program,
            status,
            tail: self.tail(),
            log: self.log.clone(),
        })
    }

    /// The error of a program that did not become ready.
    pub(super) fn not_ready(&self, last: String) -> Error {
        Error::NotReady {
            program: self.program,
            last,
            tail: self.tail(),
            log: self.log.clone(),
        }
    }

    fn tail(&self) -> String {
        let read = || -> std::io::Result<String> {
            let mut file = File::open(&self.log)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().unwrap_or_else(|error| format!("(no log: {error})"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // The guard kills with signal 9, so this takes milliseconds.
        if let Err(error) = self.child.wait() {
            tracing::warn!(program = self.program, %error, "cannot wait for a program of the control plane");
        }
    }
}
