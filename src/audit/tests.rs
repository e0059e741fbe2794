use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::log::CAPACITY;
use super::sink::Sink;
use super::*;
use crate::api::{ALERT_ANNOTATION, IPBlock, IPBlockSpec, IPBlockStatus};
use crate::decide::{Announcement, Cause, Effect};
use crate::policy::RefusalKind;

const MINUTE: Duration = Duration::from_secs(60);

fn at() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn announcement(reason: &'static str) -> Announcement {
    Announcement {
        warning: false,
        reason,
        note: "a \"note\"\nin two lines".into(),
        notice: None,
    }
}

fn block(name: &str) -> IPBlock {
    let spec = IPBlockSpec {
        ip: "192.0.2.7".into(),
        ..IPBlockSpec::default()
    };
    IPBlock::new(name, spec)
}

/// A folder of a test, which is removed with its files.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("audit-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn names(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.0.join(file)).unwrap();
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str::<Line>(line).unwrap().name)
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn record(log: &Log, name: &str) {
    log.record(&block(name), Effect::Banned, &announcement("Banned"), at());
}

/// Writes to memory, a few bytes at a time, as long as it has room.
#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<Inside>>);

#[derive(Debug, Default)]
struct Inside {
    bytes: Vec<u8>,
    room: usize,
    /// The next call finds another file.
    moved: bool,
}

impl Sink for Memory {
    fn prepare(&mut self, _: bool) -> io::Result<bool> {
        Ok(std::mem::take(&mut self.0.lock().moved))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut inside = self.0.lock();
        let count = bytes.len().min(7).min(inside.room);
        if count == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        inside.room -= count;
        inside.bytes.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn each_transition_has_its_action() {
    let late = Some(Duration::ZERO);
    for (effect, event, action) in [
        (Effect::Banned, "Banned", Action::Banned),
        (Effect::Kept, "DurationChanged", Action::Extended),
        (Effect::Kept, "Adopted", Action::Kept),
        (Effect::Kept, "Moved", Action::Kept),
        (Effect::Kept, "Asserted", Action::Kept),
        (Effect::Kept, "InvalidSpec", Action::Refused),
        (
            Effect::Lifted(Cause::Expired, late),
            "Expired",
            Action::Lifted,
        ),
        (
            Effect::Lifted(Cause::Refused, None),
            "Allowlisted",
            Action::Lifted,
        ),
        (
            Effect::Lifted(Cause::Rejected, None),
            "NotInTime",
            Action::Lifted,
        ),
        (
            Effect::Skipped(RefusalKind::Allowlisted),
            "Allowlisted",
            Action::Skipped,
        ),
        (
            Effect::Skipped(RefusalKind::TooWide),
            "RangeTooWide",
            Action::Refused,
        ),
        (Effect::Rejected, "InvalidSpec", Action::Refused),
        (Effect::BanFailed, "BanFailed", Action::Failed),
        (Effect::LiftFailed, "LiftFailed", Action::Failed),
        (Effect::KeepFailed, "AssertFailed", Action::Failed),
        (Effect::Banned, "LeftBehind", Action::Failed),
        (Effect::None, "Released", Action::Released),
        (Effect::None, "NoEngine", Action::Noted),
    ] {
        let line = Line::of(&block("a"), effect, &announcement(event), at(), "pod-0");
        assert_eq!(line.action, action, "{event}");
        assert_eq!(line.cause.is_some(), action == Action::Lifted, "{event}");
    }
}

/// A line with every field.
fn whole() -> Value {
    let mut block = block("ipblock-a");
    block.metadata.namespace = Some("default".into());
    block.metadata.uid = Some("u-1".into());
    let alert = json!({"rule": "HighLoginRate", "fingerprint": "9f2c"}).to_string();
    block.metadata.annotations = Some([(ALERT_ANNOTATION.to_owned(), alert)].into());
    let managed = json!([
        {"manager": "ipblock-operator", "operation": "Update", "time": "2026-01-01T11:00:00Z", "fieldsV1": {"f:spec": {"f:ip": {}}}},
        {"manager": "kubectl-edit", "operation": "Update", "time": "2026-01-01T11:30:00Z", "fieldsV1": {"f:spec": {"f:reason": {}}}},
        {"manager": "ipblock-operator", "operation": "Update", "time": "2026-01-01T11:40:00Z", "fieldsV1": {"f:spec": {"f:trigger": {}}}},
        {"manager": "status-writer", "operation": "Update", "time": "2026-01-01T11:45:00Z", "subresource": "status", "fieldsV1": {"f:status": {}}},
    ]);
    block.metadata.managed_fields = serde_json::from_value(managed).unwrap();
    block.spec.source = Some("grafana".into());
    block.spec.by = Some("alice".into());
    block.spec.reason = Some("port scan".into());
    block.spec.duration = Some("10m".into());
    block.status = Some(IPBlockStatus {
        target: Some("192.0.2.7".into()),
        engine: Some("xdp".into()),
        expires_at: Some("2026-01-01T12:10:00Z".into()),
        ban_count: Some(2),
        ..IPBlockStatus::default()
    });
    let effect = Effect::Lifted(Cause::Unblocked, None);
    let line = Line::of(&block, effect, &announcement("Unbanned"), at(), "pod-0");
    serde_json::from_str(&line.to_json().unwrap()).unwrap()
}

/// The names of all fields of a line, and of all actions.
pub(crate) fn documented() -> (BTreeSet<String>, BTreeSet<String>) {
    let line = whole();
    let fields = line.as_object().unwrap().keys().cloned().collect();
    let actions = [
        Action::Banned,
        Action::Extended,
        Action::Lifted,
        Action::Skipped,
        Action::Refused,
        Action::Failed,
        Action::Released,
        Action::Kept,
        Action::Noted,
    ];
    let name = |action| json!(action).as_str().unwrap().to_owned();
    (fields, actions.map(name).into())
}

#[test]
fn a_line_names_block_alert_and_the_managers_of_the_spec() {
    let line = whole();
    for (field, value) in [
        ("time", json!("2026-01-01T12:00:00Z")),
        ("action", json!("lifted")),
        ("cause", json!("unblocked")),
        ("target", json!("192.0.2.7")),
        ("uid", json!("u-1")),
        ("by", json!("alice")),
        (
            "alert",
            json!({"rule": "HighLoginRate", "fingerprint": "9f2c"}),
        ),
        ("until", json!("2026-01-01T12:10:00Z")),
        ("createdWith", json!("ipblock-operator")),
        ("changedWith", json!("kubectl-edit")),
        ("replica", json!("pod-0")),
    ] {
        assert_eq!(line[field], value, "{field}");
    }
    assert!(serde_json::from_value::<Line>(line).is_ok());
}

#[test]
fn a_text_of_users_is_cut_and_stays_in_one_line() {
    let mut block = block("a");
    block.spec.reason = Some("ä\n".repeat(4096));
    let line = Line::of(&block, Effect::Banned, &announcement("Banned"), at(), "");
    assert_eq!(line.reason.as_ref().unwrap().chars().count(), 1025);
    let json = line.to_json().unwrap();
    assert_eq!(json.matches('\n').count(), 1);
    assert!(json.ends_with('\n'));
}

#[tokio::test]
async fn a_file_that_was_moved_is_followed_by_a_new_one_and_nothing_is_lost() {
    let folder = Folder::new("moved");
    let path = folder.0.join("audit.log");
    let log = Log::open(&Destination::File(path.clone()), "pod-0").unwrap();
    record(&log, "a");
    log.flush(MINUTE).await;
    std::fs::rename(&path, folder.0.join("audit.log.1")).unwrap();
    record(&log, "b");
    log.flush(MINUTE).await;
    // A rotation that copies and empties the file works, too: it is appended to.
    std::fs::copy(&path, folder.0.join("audit.log.2")).unwrap();
    std::fs::File::create(&path).unwrap();
    record(&log, "c");
    log.reopen();
    log.flush(MINUTE).await;
    assert_eq!(folder.names("audit.log.1"), ["a"]);
    assert_eq!(folder.names("audit.log.2"), ["b"]);
    assert_eq!(folder.names("audit.log"), ["c"]);
    assert_eq!(log.metrics().counts(), [3, 0]);
    // Another process, or this one after a restart, goes on.
    let next = Log::open(&Destination::File(path), "pod-0").unwrap();
    record(&next, "d");
    next.flush(MINUTE).await;
    assert_eq!(folder.names("audit.log"), ["c", "d"]);
}

#[tokio::test]
async fn a_line_that_a_crash_tore_does_not_spoil_the_next_one() {
    let folder = Folder::new("torn");
    let path = folder.0.join("audit.log");
    std::fs::write(&path, "{\"half").unwrap();
    for name in ["a", "b"] {
        let log = Log::open(&Destination::File(path.clone()), "pod-0").unwrap();
        record(&log, name);
        log.flush(MINUTE).await;
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (3, "{\"half"), "{text}");
    for (line, name) in lines[1..].iter().zip(["a", "b"]) {
        assert_eq!(serde_json::from_str::<Line>(line).unwrap().name, name);
    }
}

#[tokio::test]
async fn a_pipe_gets_every_line() {
    use std::io::{BufRead as _, BufReader};

    let folder = Folder::new("pipe");
    let path = folder.0.join("audit.pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let read = path.clone();
    let reader = std::thread::spawn(move || {
        let pipe = BufReader::new(std::fs::File::open(read).unwrap());
        pipe.lines().take(2).map(Result::unwrap).collect::<Vec<_>>()
    });
    let log = Log::open(&Destination::File(path), "pod-0").unwrap();
    for name in ["a", "b"] {
        record(&log, name);
        log.flush(MINUTE).await;
    }
    let lines = reader.join().unwrap();
    assert!(
        lines[0].contains("\"a\"") && lines[1].contains("\"b\""),
        "{lines:?}"
    );
}

#[tokio::test]
async fn a_signal_to_reopen_creates_the_file_before_the_next_line() {
    let folder = Folder::new("reopen");
    let path = folder.0.join("audit.log");
    let log = Log::open(&Destination::File(path.clone()), "pod-0").unwrap();
    std::fs::remove_file(&path).unwrap();
    log.reopen();
    while !path.exists() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_at_the_start() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let _guard = runtime.enter();
    let nowhere = Destination::File("/nowhere/audit.log".into());
    assert!(Log::open(&nowhere, "pod-0").is_err());
    assert_eq!("-".parse(), Ok(Destination::Standard));
    assert!("".parse::<Destination>().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_tears_and_repeats_no_line_and_drops_past_the_queue() {
    let memory = Memory::default();
    memory.0.lock().room = 40;
    let log = Log::to(Box::new(memory.clone()), "pod-0");
    record(&log, "first");
    // The writer has the first line, and cannot write all of it.
    tokio::time::sleep(MINUTE).await;
    assert_eq!(memory.0.lock().bytes.len(), 40);
    for place in 0..CAPACITY + 5 {
        record(&log, &place.to_string());
    }
    assert_eq!(log.metrics().counts(), [0, 5]);
    log.flush(MINUTE).await;
    memory.0.lock().room = usize::MAX;
    log.flush(MINUTE).await;
    let written = String::from_utf8(memory.0.lock().bytes.clone()).unwrap();
    let names: Vec<String> = written
        .lines()
        .map(|line| serde_json::from_str::<Line>(line).unwrap().name)
        .collect();
    assert_eq!(names.len(), CAPACITY + 1);
    assert_eq!((names[0].as_str(), names[1].as_str()), ("first", "0"));
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    assert_eq!(log.metrics().counts(), [CAPACITY as u64 + 1, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_line_that_was_torn_by_a_rotation_is_written_whole_to_the_new_file() {
    let memory = Memory::default();
    memory.0.lock().room = 40;
    let log = Log::to(Box::new(memory.clone()), "pod-0");
    record(&log, "first");
    tokio::time::sleep(MINUTE).await;
    {
        let mut inside = memory.0.lock();
        inside.bytes.clear();
        inside.moved = true;
        inside.room = usize::MAX;
    }
    log.flush(MINUTE).await;
    let written = String::from_utf8(memory.0.lock().bytes.clone()).unwrap();
    assert_eq!(
        serde_json::from_str::<Line>(&written).unwrap().name,
        "first"
    );
}

#[tokio::test]
async fn a_log_that_is_off_takes_nothing() {
    let log = Log::off();
    record(&log, "a");
    log.reopen();
    log.flush(MINUTE).await;
    assert_eq!(log.metrics().counts(), [0, 0]);
}
