//! The program and its data directory: killed at any moment, nothing that was answered is lost.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::Notify;

use crate::rules::raw::*;

struct Program {
    child: Child,
    address: String,
}

impl Program {
    async fn start(directory: &Directory, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_reeve-apiserver"))
            .arg("--data-dir")
            .arg(&directory.0)
            .arg("--kubeconfig")
            .arg(directory.0.join("kubeconfig"))
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = tokio::time::timeout(Duration::from_secs(30), lines.next_line());
        let line = ready.await.unwrap().unwrap().unwrap();
        let address = line.strip_prefix("ready http://").unwrap().to_owned();
        Self { child, address }
    }

    async fn request(&self, method: &str, path: &str, body: &str) -> Option<(u16, Value)> {
        Self::request_to(&self.address, method, path, body).await
    }
}

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("reeve-rules-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What the writer of an object knows of it: a number, or that it is absent.
#[derive(Clone, Debug, Default)]
struct Known {
    answered: Option<u64>,
    /// The write without an answer.
    open: Option<Option<u64>>,
}

impl Known {
    /// Creates the object, changes it, and deletes it now and then, until the program is gone. Returns the versions that
    /// were answered.
    async fn write(&mut self, address: &str, name: &str, from: u64, first: &Notify) -> Vec<u64> {
        let mut versions = Vec::new();
        for number in from..from + 10_000 {
            let mut object = map(name);
            object["data"] = serde_json::json!({"number": number.to_string()});
            let body = object.to_string();
            let path = format!("{MAPS}/{name}");
            let (method, path, body, wanted) = match self.answered {
                None => ("POST", MAPS, &*body, Some(number)),
                Some(_) if number % 5 == 4 => ("DELETE", &*path, "", None),
                Some(_) => ("PUT", &*path, &*body, Some(number)),
            };
            self.open = Some(wanted);
            match Program::request_to(address, method, path, body).await {
                Some((200 | 201, answer)) => {
                    (self.answered, self.open) = (wanted, None);
                    if wanted.is_some() {
                        versions.push(version(&answer));
                    }
                    first.notify_one();
                }
                Some((code, answer)) => panic!("{method} {path}: {code} {answer}"),
                None => break,
            }
        }
        versions
    }

    /// The object is as the last answered write or the open one left it.
    async fn check(&mut self, program: &Program, name: &str) {
        let path = format!("{MAPS}/{name}");
        let (code, object) = program.request("GET", &path, "").await.unwrap();
        let number = object["data"]["number"].as_str();
        let found = number.map(|number| number.parse().unwrap());
        assert_eq!(code, if found.is_some() { 200 } else { 404 }, "{object}");
        let open = self.open.take();
        let is_known = found == self.answered || open == Some(found);
        assert!(is_known, "{name} is {found:?}: {self:?}, open {open:?}");
        self.answered = found;
    }
}

#[tokio::test]
async fn what_was_answered_survives_a_kill_at_any_moment() {
    answered_writes_survive_kills(&[]).await;
    answered_writes_survive_kills(&["--unsafe-no-fsync"]).await;
}

async fn answered_writes_survive_kills(more: &[&str]) {
    let directory = Directory::new("kill");
    let names = ["a", "b", "c", "d"];
    let mut known = vec![Known::default(); names.len()];
    let mut versions = HashSet::new();
    for (round, pause) in [0, 60, 7, 23, 1].into_iter().enumerate() {
        let mut program = Program::start(&directory, more).await;
        for (known, name) in known.iter_mut().zip(names) {
            known.check(&program, name).await;
        }
        // Killed while writes are under way, however long the first one takes.
        let first = Notify::new();
        let killer = async {
            first.notified().await;
            tokio::time::sleep(Duration::from_millis(pause)).await;
            program_kill(&mut program.child).await;
        };
        // No write leaves an object as it was: it would have no version of its own.
        let from = 10_000 * round as u64;
        let writers = known.iter_mut().zip(names);
        let writers =
            writers.map(|(known, name)| known.write(&program.address, name, from, &first));
        let (written, ()) = tokio::join!(futures::future::join_all(writers), killer);
        for version in written.into_iter().flatten() {
            assert!(versions.insert(version), "{version} was used twice");
        }
    }
    let mut program = Program::start(&directory, more).await;
    for (known, name) in known.iter_mut().zip(names) {
        known.check(&program, name).await;
    }
    program_kill(&mut program.child).await;

    // A write that the disk has half of.
    let logs = std::fs::read_dir(&directory.0).unwrap();
    let logs = logs.map(|file| file.unwrap().path());
    let number = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?.strip_prefix("log.")?;
        name.strip_suffix(".jsonl")?.parse::<u64>().ok()
    };
    let log = logs
        .filter(|path| number(path).is_some())
        .max_by_key(number);
    let log = log.unwrap();
    let mut file = std::fs::OpenOptions::new().append(true).open(&log).unwrap();
    std::io::Write::write_all(&mut file, b"{\"revision\":1").unwrap();
    let mut program = Program::start(&directory, more).await;
    for (known, name) in known.iter_mut().zip(names) {
        known.check(&program, name).await;
    }
    program_kill(&mut program.child).await;
    let mut messages = String::new();
    let mut stderr = program.child.stderr.take().unwrap();
    stderr.read_to_string(&mut messages).await.unwrap();
    let message = messages.lines().find(|line| line.contains("cut off"));
    let message = message.unwrap_or_else(|| panic!("no message: {messages}"));
    assert!(message.contains(&log.display().to_string()), "{message}");
}

async fn program_kill(child: &mut Child) {
    child.start_kill().unwrap();
    child.wait().await.unwrap();
}

impl Program {
    /// One request over HTTP/1.1; `None` when the connection broke.
    async fn request_to(
        address: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> Option<(u16, Value)> {
        let mut stream = TcpStream::connect(address).await.ok()?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok()?;
        let text = String::from_utf8(answer).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        let code = head.split(' ').nth(1)?.parse().ok()?;
        Some((code, serde_json::from_str(body).ok()?))
    }
}

#[tokio::test]
async fn definitions_and_unfinished_deletions_go_on_after_a_restart() {
    let directory = Directory::new("go-on");
    // A sync of the background task would need another thread.
    let open = || async {
        reeve_apiserver::ApiServer::builder()
            .data_dir(&directory.0)
            .sync_writes(false)
            .start()
            .await
            .unwrap()
    };
    let first = open().await;
    post(&first, CRDS, &foos()).await.expect_ok();
    let made = post(&first, FOOS, &foo("a")).await.expect_ok();
    post(&first, "/api/v1/namespaces", &map("n"))
        .await
        .expect_ok();
    let kept = serde_json::json!({"metadata": {"name": "f", "finalizers": ["example.com/f"]}});
    post(&first, "/api/v1/namespaces/n/configmaps", &kept)
        .await
        .expect_ok();
    delete(&first, "/api/v1/namespaces/n", &Value::Null)
        .await
        .expect_ok();
    settle().await;
    first.shutdown().await.unwrap();

    let second = open().await;
    let found = get(&second, &format!("{FOOS}/a")).await.expect_ok();
    assert_eq!(found, made);
    let path = "/api/v1/namespaces/n/configmaps/f";
    merge(
        &second,
        path,
        &serde_json::json!({"metadata": {"finalizers": null}}),
    )
    .await
    .expect_ok();
    settle().await;
    assert_eq!(get(&second, "/api/v1/namespaces/n").await.code, 404);
}

#[tokio::test]
async fn the_deepest_object_is_read_again_after_a_restart() {
    let directory = Directory::new("deep");
    let open = || async {
        reeve_apiserver::ApiServer::builder()
            .data_dir(&directory.0)
            .start()
            .await
            .unwrap()
    };
    let first = open().await;
    post(&first, CRDS, &foos()).await.expect_ok();
    post(&first, FOOS, &foo("a")).await.expect_ok();
    let path = format!("{FOOS}/a/status");
    // Levels of the status; the object is one more.
    let nested = |levels: usize| {
        let inner = (1..levels).fold(
            serde_json::json!({}),
            |inner, _| serde_json::json!({"a": inner}),
        );
        serde_json::json!({"status": inner})
    };
    let refused = merge(&first, &path, &nested(120)).await;
    assert_eq!(refused.code, 413, "{}", refused.message());
    assert!(refused.message().contains("120 levels"));
    let deepest = merge(&first, &path, &nested(119)).await.expect_ok();
    assert!(deepest["metadata"]["managedFields"][1]["fieldsV1"].is_object());
    first.shutdown().await.unwrap();

    let second = open().await;
    let found = get(&second, &format!("{FOOS}/a")).await.expect_ok();
    assert_eq!(found, deepest);
    assert_eq!(
        get(&second, FOOS).await.expect_ok()["items"][0]["status"],
        deepest["status"]
    );
}

#[tokio::test]
async fn a_directory_in_use_is_refused() {
    let directory = Directory::new("in-use");
    let builder = || reeve_apiserver::ApiServer::builder().data_dir(&directory.0);
    let first = builder().start().await.unwrap();
    let error = builder().start().await.unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    first.shutdown().await.unwrap();
    builder().start().await.unwrap();
}

#[tokio::test]
async fn a_directory_of_each_format_is_read() {
    for format in ["format-1", "format-2", "format-3"] {
        let directory = Directory::new(format);
        let written = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/rules");
        for file in std::fs::read_dir(written.join(format)).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), directory.0.join(file.file_name())).unwrap();
        }
        let builder = reeve_apiserver::ApiServer::builder().data_dir(&directory.0);
        let server = builder.clock(clock()).start().await.unwrap();
        for (path, code) in [
            ("/api/v1/namespaces/default/configmaps/in-log", 200),
            ("/api/v1/namespaces/default/configmaps/in-snapshot", 404),
            ("/apis/example.com/v1/namespaces/default/widgets/w", 200),
            ("/apis/example.com/v2/namespaces/default/widgets/w", 200),
            (
                "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/h",
                200,
            ),
            ("/apis/events.k8s.io/v1/namespaces/default/events/e", 200),
        ] {
            let answer = try_send(&server, http::Method::GET, path, "", "")
                .await
                .unwrap();
            assert_eq!(answer.code, code, "{format} {path}: {}", answer.text);
        }
        for (storage, api_version) in [
            ("configmaps", "v1"),
            ("events", "v1"),
            ("horizontalpodautoscalers.autoscaling", "autoscaling/v2"),
            ("widgets.example.com", "example.com/v2"),
        ] {
            let stored = stored_versions(&directory.0, storage);
            let mut versions = stored.values();
            assert!(
                versions.all(|version| version == api_version),
                "{format}: {stored:?}"
            );
        }
    }
}
