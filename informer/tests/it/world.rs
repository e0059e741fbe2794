//! A small API server with a history of its own, and faults drawn from a seed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use kube_client::Client;
use kube_client::client::Body;
use parking_lot::Mutex;
use reeve_clock::Random;
use tokio::sync::watch;

use crate::script::{Answered, Asked, Sender, broken, object_of, status_object, streamed, whole};

#[derive(Clone)]
pub struct World {
    inner: Arc<Mutex<Inner>>,
    changed: watch::Sender<u64>,
    random: Random,
}

struct Inner {
    version: u64,
    objects: BTreeMap<String, Object>,
    log: Vec<Entry>,
    /// Versions below this are compacted.
    compacted: u64,
    uids: u64,
    faults: bool,
    streaming: bool,
    /// The kind was removed: requests for it fail.
    removed: bool,
    asked: Vec<String>,
    /// The number of lists since a watch that came from a lagging replica. Three in a row would look like a restore.
    lagging_lists: u32,
    /// Raised when the server's history is replaced: open watches end.
    epoch: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Object {
    version: u64,
    uid: u64,
    readable: bool,
}

#[derive(Clone)]
struct Entry {
    version: u64,
    kind: &'static str,
    name: String,
    object: Object,
}

/// A fault of a stream, and the number of lines before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    Close,
    Reset,
    Silence,
    Twice,
    Error(u16),
    LowBookmark,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let random = Random::seeded(seed);
        let inner = Inner {
            // Far above any version that a restored server reaches within a test: no client could see the difference.
            version: 10_100,
            objects: BTreeMap::new(),
            log: Vec::new(),
            compacted: 0,
            uids: 0,
            faults: true,
            streaming: random.below(2) == 0,
            removed: false,
            asked: Vec::new(),
            lagging_lists: 0,
            epoch: 0,
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
            changed: watch::Sender::new(0),
            random,
        }
    }

    pub fn client(&self) -> Client {
        let world = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (world, asked) = (world.clone(), Asked::new(&request));
            async move { world.answer(asked).await }
        });
        Client::new(service, "default")
    }

    /// One change that a user of the server makes.
    pub fn act(&self) {
        let name = format!("o{}", self.random.below(6));
        let mut inner = self.inner.lock();
        // Other kinds move the version too.
        inner.version += 1 + self.random.below(3);
        let version = inner.version;
        if inner.removed {
            inner.removed = self.random.below(4) > 0;
            return;
        }
        match self.random.below(20) {
            0 if self.random.below(6) == 0 => inner.remove_kind(),
            0..7 => inner.apply(&name, true),
            7..9 => {
                inner.delete(&name);
                inner.version += 1;
                inner.apply(&name, true);
            }
            9..14 => inner.delete(&name),
            14..16 => {
                let readable = !inner.faults;
                inner.apply(&name, readable);
            }
            16..18 => inner.compacted = version,
            _ => {}
        }
        drop(inner);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Turns the faults on again.
    pub fn trouble(&self) {
        self.inner.lock().faults = true;
    }

    /// Makes every object readable, and turns the faults off.
    pub fn calm(&self) {
        let mut inner = self.inner.lock();
        inner.faults = false;
        inner.removed = false;
        let broken: Vec<_> = inner
            .objects
            .iter()
            .filter(|(_, object)| !object.readable)
            .map(|(name, _)| name.clone())
            .collect();
        for name in broken {
            inner.version += 1;
            inner.apply(&name, true);
        }
        drop(inner);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Puts the server back to an earlier history, as a restored backup does.
    pub fn restore(&self) {
        let mut inner = self.inner.lock();
        inner.version = 50;
        inner.epoch += 1;
        inner.log.clear();
        inner.compacted = 0;
        let mut version = 10;
        inner.objects.retain(|_, object| {
            version += 1;
            object.version = version;
            version % 3 != 0
        });
        // A lagging replica has these too.
        inner.log = inner
            .objects
            .iter()
            .map(|(name, object)| Entry {
                version: object.version,
                kind: "ADDED",
                name: name.clone(),
                object: object.clone(),
            })
            .collect();
        drop(inner);
        self.changed.send_modify(|count| *count += 1);
    }

    /// The content of the server: `name@version/uid`.
    pub fn contents(&self) -> Vec<String> {
        let inner = self.inner.lock();
        inner
            .objects
            .iter()
            .map(|(name, object)| format!("{name}@{}/{}", object.version, object.uid))
            .collect()
    }

    pub fn version(&self) -> u64 {
        self.inner.lock().version
    }

    /// The content at `version`, as [`World::contents`]; `None` for objects that could not be read then.
    pub fn contents_at(&self, version: u64) -> BTreeMap<String, Option<String>> {
        let inner = self.inner.lock();
        let state = inner.at(version).into_iter();
        state
            .map(|(name, object)| {
                let text = format!("{name}@{}/{}", object.version, object.uid);
                (name, object.readable.then_some(text))
            })
            .collect()
    }

    pub fn asked(&self) -> Vec<String> {
        self.inner.lock().asked.clone()
    }

    fn one_in(&self, many: u64) -> bool {
        self.inner.lock().faults && self.random.below(many) == 0
    }

    async fn answer(&self, asked: Asked) -> Result<Answered, std::io::Error> {
        self.inner.lock().asked.push(asked.short());
        if self.one_in(40) {
            std::future::pending::<()>().await;
        }
        if self.one_in(12) {
            return Err(std::io::ErrorKind::ConnectionRefused.into());
        }
        if self.one_in(8) {
            let code = [429, 500, 503, 403][self.pick(4)];
            let headers = [("Retry-After", "2".to_owned())];
            return Ok(whole(code, &headers, status_object(code, "", "fault")));
        }
        if self.inner.lock().removed {
            return Ok(whole(404, &[], status_object(404, "NotFound", "gone")));
        }
        match asked.verb() {
            "list" => Ok(self.list(&asked)),
            verb => Ok(self.watch(&asked, verb == "stream")),
        }
    }

    fn pick(&self, many: u64) -> usize {
        usize::try_from(self.random.below(many)).unwrap()
    }

    fn list(&self, asked: &Asked) -> Answered {
        // A lagging replica answers from its past.
        let lag = if self.one_in(6) {
            1 + self.random.below(20)
        } else {
            0
        };
        let cut = self.one_in(10);
        let mut inner = self.inner.lock();
        let first_page = asked.get("continue").is_empty();
        let lag = if lag > 0 && first_page && inner.lagging_lists < 2 {
            inner.lagging_lists += 1;
            lag
        } else {
            0
        };
        let limit: usize = asked.get("limit").parse().unwrap_or(usize::MAX);
        let (version, start) = match asked.get("continue").split_once('/') {
            Some((version, start)) => (version.parse().unwrap(), start.to_owned()),
            None => (
                inner.version.saturating_sub(lag).max(inner.compacted),
                String::new(),
            ),
        };
        if version < inner.compacted {
            return whole(410, &[], status_object(410, "Expired", "too old"));
        }
        let state = inner.at(version);
        let mut rest = state.range(start..);
        let items: Vec<_> = rest
            .by_ref()
            .take(limit)
            .map(|(name, object)| object.json(name))
            .collect();
        let token = rest
            .next()
            .map(|(name, _)| format!("{version}/{name}"))
            .unwrap_or_default();
        let mut body = format!(
            r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","continue":"{token}"}},"items":[{}]}}"#,
            items.join(",")
        );
        if cut {
            body.truncate(body.len() / 2);
        }
        whole(200, &[], body)
    }

    fn watch(&self, asked: &Asked, initial: bool) -> Answered {
        let (streaming, compacted, version) = {
            let mut inner = self.inner.lock();
            if !initial {
                inner.lagging_lists = 0;
            }
            (inner.streaming, inner.compacted, inner.version)
        };
        if initial && !streaming {
            return whole(
                422,
                &[],
                status_object(422, "Invalid", "sendInitialEvents is forbidden"),
            );
        }
        let from: u64 = asked.get("resourceVersion").parse().unwrap_or(0);
        let expired = !initial && from < compacted;
        if expired && self.random.below(2) == 0 {
            return whole(410, &[], status_object(410, "Gone", "too old"));
        }
        if initial && from > version {
            return whole(
                504,
                &[],
                status_object(504, "Timeout", "Too large resource version: 9, current: 1"),
            );
        }
        let (sender, body) = streamed();
        let world = self.clone();
        tokio::spawn(async move {
            if expired {
                let status = status_object(410, "Expired", "too old");
                let _ = world.send(&sender, "ERROR", &status).await;
                return;
            }
            let _ = world.feed(&sender, from, initial).await;
        });
        body
    }

    async fn feed(&self, sender: &Sender, from: u64, initial: bool) -> Option<()> {
        let epoch = self.inner.lock().epoch;
        let mut lines = 0;
        let mut cursor = from;
        let flaw = if self.one_in(2) {
            let error = [410, 500, 429][self.pick(3)];
            [
                Flaw::Close,
                Flaw::Reset,
                Flaw::Silence,
                Flaw::Twice,
                Flaw::Error(error),
                Flaw::LowBookmark,
            ][self.pick(6)]
        } else {
            Flaw::None
        };
        let after = self.random.below(8);
        if initial {
            let state = {
                let inner = self.inner.lock();
                cursor = inner.version;
                inner.objects.clone()
            };
            let pause = self.one_in(3);
            for (name, object) in &state {
                self.send(sender, "ADDED", &object.json(name)).await?;
            }
            if pause {
                tokio::time::sleep(Duration::from_secs(1 + self.random.below(5))).await;
            }
            // Changes during the list come before its end.
            for entry in self.after(cursor) {
                cursor = entry.version;
                let text = entry.object.json_at(&entry.name, entry.version);
                self.send(sender, entry.kind, &text).await?;
            }
            if self.one_in(6) {
                return None;
            }
            self.send(sender, "BOOKMARK", &bookmark(cursor, true))
                .await?;
        }
        let mut changed = self.changed.subscribe();
        loop {
            for entry in self.after(cursor) {
                let text = entry.object.json_at(&entry.name, entry.version);
                if lines >= after {
                    match flaw {
                        Flaw::None => {}
                        Flaw::Close => return None,
                        Flaw::Reset => {
                            let half = text[..text.len() / 2].to_owned();
                            sender.send(Ok(half.into())).await.ok()?;
                            sender
                                .send(Err(std::io::ErrorKind::ConnectionReset.into()))
                                .await
                                .ok()?;
                            return None;
                        }
                        Flaw::Silence => {
                            sender.closed().await;
                            return None;
                        }
                        Flaw::Twice => self.send(sender, entry.kind, &text).await?,
                        Flaw::Error(code) => {
                            let status = status_object(code, "", "fault");
                            self.send(sender, "ERROR", &status).await?;
                            return None;
                        }
                        Flaw::LowBookmark => {
                            let bookmark = bookmark(cursor.saturating_sub(7), false);
                            self.send(sender, "BOOKMARK", &bookmark).await?;
                        }
                    }
                }
                self.send(sender, entry.kind, &text).await?;
                cursor = entry.version;
                lines += 1;
            }
            {
                let inner = self.inner.lock();
                if inner.epoch != epoch || inner.removed {
                    return None;
                }
            }
            tokio::select! {
                biased;
                () = sender.closed() => return None,
                _ = changed.changed() => {}
                () = tokio::time::sleep(Duration::from_secs(60)) => {
                    let (version, compacted) = {
                        let inner = self.inner.lock();
                        (inner.version, inner.compacted)
                    };
                    // Everything up to this version was sent; the log may have been cut since. A restored server sends
                    // nothing until it has reached the requested version.
                    if compacted <= version && version > cursor {
                        cursor = version;
                        self.send(sender, "BOOKMARK", &bookmark(cursor, false))
                            .await?;
                    }
                }
            }
        }
    }

    /// Sends a line, in several frames now and then.
    async fn send(&self, sender: &Sender, kind: &str, object: &str) -> Option<()> {
        let mut line = format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n");
        while self.one_in(4) {
            let rest = line.split_off(self.pick(line.len() as u64));
            sender.send(Ok(line.into())).await.ok()?;
            line = rest;
        }
        sender.send(Ok(line.into())).await.ok()
    }

    fn after(&self, version: u64) -> Vec<Entry> {
        let inner = self.inner.lock();
        inner
            .log
            .iter()
            .filter(|entry| entry.version > version)
            .cloned()
            .collect()
    }
}

impl Inner {
    fn apply(&mut self, name: &str, readable: bool) {
        let version = self.version;
        let (kind, uid) = match self.objects.get(name) {
            Some(object) => ("MODIFIED", object.uid),
            None => {
                self.uids += 1;
                ("ADDED", self.uids)
            }
        };
        let object = Object {
            version,
            uid,
            readable,
        };
        self.objects.insert(name.to_owned(), object.clone());
        self.log.push(Entry {
            version,
            kind,
            name: name.to_owned(),
            object,
        });
    }

    /// Deletes every object, and then the kind.
    fn remove_kind(&mut self) {
        let names: Vec<_> = self.objects.keys().cloned().collect();
        for name in names {
            self.version += 1;
            self.delete(&name);
        }
        self.removed = true;
    }

    fn delete(&mut self, name: &str) {
        if let Some(object) = self.objects.remove(name) {
            self.log.push(Entry {
                version: self.version,
                kind: "DELETED",
                name: name.to_owned(),
                object,
            });
        }
    }

    /// The state as of `version`.
    fn at(&self, version: u64) -> BTreeMap<String, Object> {
        if version >= self.version {
            return self.objects.clone();
        }
        let mut state = BTreeMap::new();
        for entry in self.log.iter().filter(|entry| entry.version <= version) {
            if entry.kind == "DELETED" {
                state.remove(&entry.name);
            } else {
                state.insert(entry.name.clone(), entry.object.clone());
            }
        }
        state
    }
}

impl Object {
    fn json(&self, name: &str) -> String {
        self.json_at(name, self.version)
    }

    fn json_at(&self, name: &str, version: u64) -> String {
        let (version, uid) = (version.to_string(), self.uid.to_string());
        if self.readable {
            object_of(name, &version, &uid)
        } else {
            broken(name, &version)
        }
    }
}

fn bookmark(version: u64, end: bool) -> String {
    let annotations = if end {
        r#","annotations":{"k8s.io/initial-events-end":"true"}"#
    } else {
        ""
    };
    format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"{annotations}}}}}"#
    )
}
