//! Runs kubectl, and makes its output comparable.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(60);

/// Runs steps one after the other and keeps their output.
pub struct Runner {
    kubectl: PathBuf,
    directory: PathBuf,
    printed: Vec<String>,
}

/// A kubectl that watches until it is stopped.
pub struct Watching {
    child: Child,
    title: String,
    file: PathBuf,
}

// === impl Runner ===

impl Runner {
    pub fn new(kubectl: &Path, directory: &Path) -> Self {
        Self {
            kubectl: kubectl.to_owned(),
            directory: directory.to_owned(),
            printed: Vec::new(),
        }
    }

    pub fn printed(self) -> Vec<String> {
        self.printed
    }

    /// Writes a file into the folder that arguments name `{dir}`.
    pub fn file(&self, name: &str, text: &str) {
        let folder = self.directory.join("files");
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join(name), text).expect("a file");
    }

    /// Runs `kubectl ARGUMENTS` (split at spaces) and keeps its output and exit code.
    pub async fn run(&mut self, arguments: &str) {
        self.run_with(arguments, "", &[]).await;
    }

    /// The same with `input` as standard input.
    pub async fn feed(&mut self, arguments: &str, input: &str) {
        self.run_with(arguments, input, &[]).await;
    }

    /// The same with an editor that runs `sed -i SCRIPT`.
    pub async fn edit(&mut self, arguments: &str, script: &str) {
        let editor = self.directory.join("editor.sh");
        std::fs::write(
            &editor,
            format!("#!/bin/sh\nexec sed -i '{script}' \"$1\"\n"),
        )
        .expect("an editor");
        let editor = format!("sh {}", editor.display());
        self.run_with(arguments, "", &[("KUBE_EDITOR", &editor)])
            .await;
    }

    async fn run_with(&mut self, arguments: &str, input: &str, environment: &[(&str, &str)]) {
        let mut command = self.command(arguments);
        command
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl runs");
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin
            .write_all(input.as_bytes())
            .await
            .expect("kubectl reads");
        drop(stdin);
        let output = timeout(PATIENCE, child.wait_with_output())
            .await
            .unwrap_or_else(|_| panic!("kubectl {arguments} did not end within {PATIENCE:?}"))
            .expect("kubectl ends");
        // kubectl's internal log lines are not an answer. They may follow a last line without a line end.
        let errors = String::from_utf8_lossy(&output.stderr);
        let errors: String = errors
            .split_inclusive('\n')
            .filter(|line| !is_log(line))
            .collect();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &errors;
        let code = output.status.code().unwrap_or(-1);
        self.printed.push(format!(
            "$ kubectl {arguments}\n{}[{code}]",
            comparable(&text)
        ));
    }

    /// Runs `kubectl ARGUMENTS` until its output contains `wanted`, and keeps nothing of it: on a real server a new
    /// definition takes effect in one part after the other.
    pub async fn until(&self, arguments: &str, wanted: &str) {
        for _ in 0..100 {
            let output = self.command(arguments).stdin(Stdio::null()).output().await;
            let output = output.expect("kubectl runs");
            let text = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            if text.contains(wanted) {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("kubectl {arguments} never printed {wanted:?}");
    }

    /// Starts a kubectl that watches, and waits until it does.
    pub async fn watch(&mut self, arguments: &str) -> Watching {
        let (file, log) = (
            self.directory.join("watch.txt"),
            self.directory.join("watch.log"),
        );
        let [output, errors] =
            [&file, &log].map(|file| std::fs::File::create(file).expect("a file"));
        let child = self
            .command(arguments)
            .arg("-v=6")
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .expect("kubectl runs");
        let watching = Watching {
            child,
            title: arguments.to_owned(),
            file,
        };
        watching.until_lines(1).await;
        // kubectl lists, prints, and only then watches. It may miss events before that.
        for _ in 0..200 {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            let answered = |line: &str| line.contains("watch=true") && line.contains("200 OK");
            if log.lines().any(answered) {
                return watching;
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("kubectl {arguments} did not begin to watch within 10 s");
    }

    /// Waits until it has printed `lines`, stops it and keeps its output.
    pub async fn stop(&mut self, mut watching: Watching, lines: usize) {
        watching.until_lines(lines).await;
        watching.child.kill().await.expect("it is stopped");
        let text = std::fs::read_to_string(&watching.file).expect("its output");
        self.printed.push(format!(
            "$ kubectl {}\n{}[stopped]",
            watching.title,
            comparable(&text)
        ));
    }

    fn command(&self, arguments: &str) -> Command {
        let files = self.directory.join("files").display().to_string();
        let mut command = Command::new(&self.kubectl);
        command
            .arg("--kubeconfig")
            .arg(self.directory.join("kubeconfig"))
            .arg("--cache-dir")
            .arg(self.directory.join("cache"))
            .args(arguments.split(' ').map(|one| one.replace("{dir}", &files)))
            .env("HOME", &self.directory)
            .env_remove("KUBECONFIG")
            .env("KUBECTL_EXTERNAL_DIFF", "diff -u")
            .env("TZ", "UTC")
            .kill_on_drop(true);
        command
    }
}

// === impl Watching ===

impl Watching {
    /// Waits until it has printed this number of lines. If it does not, the comparison shows it.
    async fn until_lines(&self, lines: usize) {
        for _ in 0..200 {
            let text = std::fs::read_to_string(&self.file).unwrap_or_default();
            if text.matches('\n').count() >= lines {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// kubectl's internal log lines: `W0131 10:00:00.000000 …`; those of its watches may have several lines.
fn is_log(line: &str) -> bool {
    let has_head = line.len() > 5
        && line.starts_with(['I', 'W', 'E'])
        && line.as_bytes()[1..5].iter().all(u8::is_ascii_digit);
    has_head || line.contains("reflector.go")
}

/// The text without values that differ from run to run: ages, times, uids, versions, ports, widths of columns.
fn comparable(text: &str) -> String {
    let mut shown = String::new();
    for line in text.lines() {
        // The names of the compared files.
        if line.starts_with("diff ") || line.starts_with("--- ") || line.starts_with("+++ ") {
            continue;
        }
        // The line quotes the whole object, with internal fields of the server.
        let line = match (
            line.find("patch: Invalid value: "),
            line.find(": strict decoding error"),
        ) {
            (Some(start), Some(end)) => &format!("{}…{}", &line[..start], &line[end..]),
            _ => line,
        };
        let indent = line.len() - line.trim_start().len();
        let words: Vec<String> = line.split_whitespace().map(word).collect();
        let mut wide = String::new();
        let mut rest = line.trim_start();
        for word in words {
            let length = rest.find(char::is_whitespace).unwrap_or(rest.len());
            let gap = rest[length..].len() - rest[length..].trim_start().len();
            rest = rest[length..].trim_start();
            wide.push_str(&word);
            wide.push_str(match gap {
                0 => "",
                1 => " ",
                _ => "   ",
            });
        }
        shown.push_str(&line[..indent]);
        shown.push_str(wide.trim_end());
        shown.push('\n');
    }
    shown
}

fn word(word: &str) -> String {
    let bare = word.trim_matches(|c| c == '"' || c == ',');
    let is_time = bare.len() >= 20
        && bare.as_bytes()[4] == b'-'
        && bare.as_bytes()[10] == b'T'
        && bare.ends_with('Z');
    let is_uid = bare.len() == 36 && bare.bytes().filter(|byte| *byte == b'-').count() == 4;
    if is_time {
        return word.replace(bare, "<time>");
    }
    if is_uid {
        return word.replace(bare, "<uid>");
    }
    if is_age(bare) {
        return word.replace(bare, "<age>");
    }
    if bare.len() > 2 && bare.bytes().all(|byte| byte.is_ascii_digit()) {
        return word.replace(bare, "<number>");
    }
    if let Some((before, _)) = word.split_once("127.0.0.1:") {
        // The built-in server of the tour has no TLS.
        let before = before.replace("https://", "http://");
        return format!("{before}127.0.0.1:<port>");
    }
    word.to_owned()
}

/// `5s`, `2m3s`, `1h`.
fn is_age(text: &str) -> bool {
    text.len() > 1
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(['s', 'm', 'h', 'd'])
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b"smhd".contains(&byte))
}
