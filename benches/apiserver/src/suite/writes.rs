//! Writes by 1, 8 and 64 clients, one request at a time each, on a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use memchr::memmem;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Span;
use crate::connection::{Access, Call, Connection};
use crate::error::{Error, Result};
use crate::objects::{self, Kind};
use crate::report::{Unit, Values, percentile};
use crate::server::Server;
use crate::template::Fill;

/// A request of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    Get,
    /// `PUT` with the version that the last answer had.
    Update,
    /// A merge patch.
    Merge,
    /// A server-side apply of one field.
    Apply,
    Delete,
}

/// A request: its end, and its latency in seconds.
pub(crate) type Write = (Instant, f64);

/// The objects of one client.
#[derive(Debug)]
struct Worker {
    connection: Connection,
    kind: Arc<Kind>,
    /// Their names, and the versions that the last answers had.
    objects: Vec<(String, u64)>,
}

/// The sizes of the suite.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    pub(crate) clients: Vec<usize>,
    /// Objects of a cell; each gets every verb once.
    pub(crate) objects: usize,
    /// Only kinds whose titles contain this.
    pub(crate) kind: String,
}

// === impl Verb ===

impl Verb {
    const ALL: [Self; 6] = [
        Self::Create,
        Self::Get,
        Self::Update,
        Self::Merge,
        Self::Apply,
        Self::Delete,
    ];

    fn title(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Get => "get",
            Self::Update => "update",
            Self::Merge => "merge patch",
            Self::Apply => "apply",
            Self::Delete => "delete",
        }
    }

    pub(crate) fn call(self, kind: &Kind, name: &str, version: u64, step: u64, ten: usize) -> Call {
        let fill = Fill {
            name,
            version,
            step,
            ten,
        };
        match self {
            Self::Create => Call::write(Method::POST, &kind.path, kind.body.fill(fill)),
            Self::Get => Call::get(kind.object(name)),
            Self::Update => Call::write(Method::PUT, kind.object(name), kind.body.fill(fill)),
            Self::Merge => Call::write(Method::PATCH, kind.object(name), kind.merge.fill(fill))
                .content_type("application/merge-patch+json"),
            Self::Apply => {
                let path = format!("{}?fieldManager=bench-apply", kind.object(name));
                Call::write(Method::PATCH, path, kind.apply.fill(fill))
                    .content_type("application/apply-patch+yaml")
            }
            Self::Delete => {
                let path = format!("{}?gracePeriodSeconds=0", kind.object(name));
                Call::write(Method::DELETE, path, Bytes::new()).content_type("")
            }
        }
    }
}

// === impl Worker ===

impl Worker {
    /// Sends `verb` for each of the objects, and returns the latencies.
    async fn run(mut self, verb: Verb, step: u64) -> Result<(Self, Vec<Write>)> {
        let mut writes = Vec::with_capacity(self.objects.len());
        for (at, (name, version)) in self.objects.iter_mut().enumerate() {
            let sent = if verb == Verb::Create { 0 } else { *version };
            let call = verb.call(&self.kind, name, sent, step, at % 10);
            let start = Instant::now();
            let answer = self.connection.send(call).await?;
            let end = Instant::now();
            writes.push((end, (end - start).as_secs_f64()));
            if verb != Verb::Delete {
                *version = version_of(&answer)?;
            }
        }
        Ok((self, writes))
    }
}

/// All clients at once.
async fn together(
    workers: Vec<Worker>,
    verb: Verb,
    step: u64,
) -> Result<(Vec<Worker>, Vec<Write>)> {
    let mut running = JoinSet::new();
    for worker in workers {
        running.spawn(worker.run(verb, step));
    }
    let (mut workers, mut writes) = (Vec::new(), Vec::new());
    while let Some(ended) = running.join_next().await {
        let (worker, mut some) = ended??;
        workers.push(worker);
        writes.append(&mut some);
    }
    Ok((workers, writes))
}

/// `clients` with `objects` in total, of which none exists yet.
async fn workers(
    access: &Access,
    kind: &Arc<Kind>,
    clients: usize,
    objects: usize,
) -> Result<Vec<Worker>> {
    let mut workers = Vec::with_capacity(clients);
    for client in 0..clients {
        let some = objects / clients;
        workers.push(Worker {
            connection: Connection::open(access).await?,
            kind: Arc::clone(kind),
            objects: (0..some)
                .map(|at| (format!("b-{client}-{at:06}"), 0))
                .collect(),
        });
    }
    Ok(workers)
}

/// Creates the objects from number `from` to number `to`, with 16 clients.
pub(crate) async fn fill_more(
    server: &Server,
    kind: &Kind,
    from: usize,
    to: usize,
) -> Result<Filled> {
    const CLIENTS: usize = 16;
    let kind = Arc::new(kind.clone());
    let mut workers = Vec::with_capacity(CLIENTS);
    for client in 0..CLIENTS {
        let numbers = (from..to).filter(|number| number % CLIENTS == client);
        workers.push(Worker {
            connection: server.connect().await?,
            kind: Arc::clone(&kind),
            objects: numbers
                .map(|number| (format!("f-{number:06}"), 0))
                .collect(),
        });
    }
    let (workers, _) = together(workers, Verb::Create, 0).await?;
    Ok(Filled(workers))
}

/// Objects that exist, with their clients.
#[derive(Debug)]
pub(crate) struct Filled(Vec<Worker>);

// === impl Filled ===

impl Filled {
    /// Updates each object once; returns the ends of the updates, and their latencies in seconds.
    pub(crate) async fn update(self, step: u64) -> Result<(Self, Vec<Write>)> {
        let (workers, writes) = together(self.0, Verb::Update, step).await?;
        Ok((Self(workers), writes))
    }
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Result<Values> {
    define(server).await?;
    let mut values = Values::default();
    for kind in [Kind::config_map(), Kind::pod(), Kind::custom()] {
        if !kind.title.contains(&sizes.kind) {
            continue;
        }
        let kind = Arc::new(kind);
        for &clients in &sizes.clients {
            let mut state = workers(&server.access, &kind, clients, sizes.objects).await?;
            let (mut all, mut time, mut cpu) = (Vec::new(), Duration::ZERO, Duration::ZERO);
            let mut verbs = Vec::new();
            for (step, verb) in Verb::ALL.into_iter().enumerate() {
                let span = Span::start(server)?;
                let (next, writes) = together(state, verb, step as u64).await?;
                let (elapsed, used) = span.end()?;
                state = next;
                let count = writes.len().max(1) as f64;
                verbs.push((verb, used.as_secs_f64() / count));
                if verb != Verb::Get {
                    all.extend(writes.iter().map(|write| write.1));
                    time += elapsed;
                    cpu += used;
                }
            }
            all.sort_by(f64::total_cmp);
            let count = all.len() as f64;
            let title = |what: &str| {
                let plural = if clients == 1 { "" } else { "s" };
                format!("{}, {clients} client{plural}: {what}", kind.title)
            };
            values.add(title("writes"), Unit::PerSecond, count / time.as_secs_f64());
            values.add(
                title("writes a CPU-second"),
                Unit::PerSecond,
                count / cpu.as_secs_f64().max(0.01),
            );
            values.add(title("p50"), Unit::Seconds, percentile(&all, 0.5));
            values.add(title("p99"), Unit::Seconds, percentile(&all, 0.99));
            if clients == 8 || sizes.clients.len() == 1 {
                for (verb, cpu) in verbs {
                    values.add(
                        title(&format!("CPU of one {}", verb.title())),
                        Unit::Seconds,
                        cpu,
                    );
                }
            }
        }
    }
    Ok(values)
}

/// Creates the definition, and waits until its objects are served.
async fn define(server: &Server) -> Result<()> {
    let connection = server.connect().await?;
    let definition = objects::definition();
    connection
        .send(Call::write(Method::POST, objects::DEFINITIONS, definition))
        .await?;
    let list = Call::get(Kind::custom().path);
    for _ in 0..1000 {
        if connection.send(list.clone()).await.is_ok() {
            return Ok(());
        }
        sleep(Duration::from_millis(10)).await;
    }
    Err(Error::setup("the definition is not served after 10 s"))
}

/// The resourceVersion in an answer: the first one, for nothing before it has a field of this name.
fn version_of(answer: &[u8]) -> Result<u64> {
    const FIELD: &[u8] = br#""resourceVersion":""#;
    let start = memmem::find(answer, FIELD).map(|at| at + FIELD.len());
    let digits = start.and_then(|start| answer[start..].split(|&byte| byte == b'"').next());
    digits
        .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok())
        .ok_or_else(|| Error::setup("an answer without a resourceVersion"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_an_answer_is_found() {
        let answer =
            br#"{"kind":"Pod","metadata":{"name":"a","resourceVersion":"1207","uid":"x"}}"#;
        assert_eq!(version_of(answer).ok(), Some(1207));
        assert!(version_of(b"{}").is_err());
    }
}
