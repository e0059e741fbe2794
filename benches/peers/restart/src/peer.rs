//! A peer as a process.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Error;

/// How a peer is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer<'a> {
    program: &'a Path,
    name: &'a str,
    kubeconfig: &'a Path,
}

/// A peer whose informers are synced. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Running {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

// === impl Peer ===

impl<'a> Peer<'a> {
    pub(crate) fn new(program: &'a Path, name: &'a str, kubeconfig: &'a Path) -> Self {
        Self {
            program,
            name,
            kubeconfig,
        }
    }

    /// What its requests say they come from: the name of the program.
    pub(crate) fn user_agent(&self) -> &str {
        let name = self.program.file_name().and_then(|name| name.to_str());
        name.unwrap_or_default()
    }

    /// Returns when all of its informers are synced.
    pub(crate) async fn start(&self, count: usize) -> Result<Running, Error> {
        let mut process = Command::new(self.program)
            .arg("restart")
            .arg(format!("-peer={}", self.name))
            .arg(format!("-n={count}"))
            .arg(format!("-config={}", self.kubeconfig.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // What it logs about lost connections is not measured.
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("a process without pipes".into());
        };
        let mut output = BufReader::new(output).lines();
        match output.next_line().await? {
            Some(line) if line == "ready" => Ok(Running {
                process,
                input,
                output,
            }),
            other => Err(format!("{}: {other:?} in place of ready", self.name).into()),
        }
    }
}

// === impl Running ===

impl Running {
    /// Its report.
    pub(crate) async fn stop(mut self) -> Result<Value, Error> {
        drop(self.input);
        let line = self.output.next_line().await?;
        let status = self.process.wait().await?;
        match line {
            Some(line) if status.success() => Ok(serde_json::from_str(&line)?),
            other => Err(format!("{other:?}: {status}").into()),
        }
    }
}
