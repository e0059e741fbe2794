//! Eight servers that informers fail on: their behaviour, and the right reaction.

use std::time::Duration;

use kube_client::Client;
use tokio::time::{Instant, sleep};

use crate::script::*;

/// A server that does one thing wrong, or one rare thing right.
#[derive(Clone, Copy)]
pub struct Server {
    /// A letter.
    pub name: &'static str,
    /// Its behaviour.
    pub does: &'static str,
    /// The right reaction.
    pub right: &'static str,
    /// The client requests streaming lists.
    pub streaming: bool,
    /// The time for which the client is observed.
    pub lasts: Duration,
    script: fn() -> Script,
    judge: fn(&Seen) -> Verdict,
}

/// A client's store that follows a server.
pub trait Follower {
    /// The names of the objects in it, with their versions (`a@5`), in order.
    fn contents(&self) -> Vec<String>;
}

/// The observations of a client while it followed a server.
#[derive(Debug)]
pub struct Seen {
    /// Each content of its store, and the time since which it had it.
    pub views: Vec<(Duration, Vec<String>)>,
    /// Its requests, and their times.
    pub asked: Vec<(Duration, Asked)>,
    /// The time for which it was observed.
    pub lasted: Duration,
}

/// The judgement on a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Its reaction was right.
    pub right: bool,
    /// Its reaction.
    pub observed: String,
}

/// The result of one client with one server.
#[derive(Debug)]
pub struct Report {
    /// The observations.
    pub seen: Seen,
    /// The judgement.
    pub verdict: Verdict,
}

const HOUR: Duration = Duration::from_secs(3600);

/// The interval at which a client's store is read.
const LOOK: Duration = Duration::from_millis(200);

/// The most requests that a failing server may receive in an hour.
const HOURLY: usize = 120;

/// The number of requests after which a server gives up.
const MOST: usize = 100_000;

/// All of them.
pub const SERVERS: [Server; 8] = [
    Server {
        name: "A",
        does: "answers a watch of a version that it no longer knows with HTTP 410",
        right: "one list, then the watch goes on",
        streaming: false,
        lasts: HOUR,
        script: || forgets(status(410, "Gone")),
        judge: catches_up,
    },
    Server {
        name: "A2",
        does: "says 410 in the stream of such a watch",
        right: "one list, then the watch goes on",
        streaming: false,
        lasts: HOUR,
        script: || forgets(ending([error(410, "Expired")])),
        judge: catches_up,
    },
    Server {
        name: "B",
        does: "streaming list, a deletion, 410; then a replica that lags behind answers for a minute",
        right: "the deleted object stays deleted, and the new state is there when the server has it",
        streaming: true,
        lasts: HOUR,
        script: lags,
        judge: |seen| {
            let back = seen.returned("a@100");
            let new = seen.since("b@205");
            let observed = match (back, new) {
                (Some(back), _) => format!("the deleted object comes back after {}", shown(back)),
                (None, Some(new)) => {
                    format!("never goes back; has the new state after {}", shown(new))
                }
                (None, None) => "never goes back, and never has the new state".to_owned(),
            };
            verdict(back.is_none() && new.is_some(), observed)
        },
    },
    Server {
        name: "C",
        does: "deletes an object after it was sent and before the end of the initial events",
        right: "the object is not there",
        streaming: true,
        lasts: Duration::from_secs(60),
        script: || {
            let first = [
                added("a", "1"),
                added("b", "2"),
                modified("a", "3"),
                deleted("b", "4"),
                initial_end("4"),
            ];
            Script::new([minutely(first)]).otherwise(|asked| match asked.verb() {
                "list" => list("4", &[object("a", "3")]),
                _ => minutely([]),
            })
        },
        judge: |seen| {
            let last = seen.last();
            let observed = match last[..] {
                ["a@3"] => "it is not there".to_owned(),
                [] => "never in sync".to_owned(),
                _ => "it stays in the store".to_owned(),
            };
            verdict(last == ["a@3"], observed)
        },
    },
    Server {
        name: "D",
        does: "lists three objects, one of which cannot be decoded",
        right: "the two others are there",
        streaming: false,
        lasts: HOUR,
        script: || {
            Script::default()
                .at_most(MOST)
                .otherwise(|asked| match asked.verb() {
                    "list" => list(
                        "10",
                        &[object("a", "5"), broken("bad", "6"), object("c", "7")],
                    ),
                    "stream" => no_streaming(),
                    _ => minutely([]),
                })
        },
        judge: |seen| {
            let there = seen.last() == ["a@5", "c@7"];
            let observed = if there { "they are" } else { "never in sync" };
            seen.within_bounds(there, observed)
        },
    },
    Server {
        name: "E",
        does: "answers every list with 500 for an hour",
        right: "at most 120 requests, and in sync within a minute after it",
        streaming: false,
        lasts: Duration::from_secs(3600 + 120),
        script: || {
            let start = Instant::now();
            Script::default()
                .at_most(MOST)
                .otherwise(move |asked| match asked.verb() {
                    _ if asked.at - start < HOUR => status(500, "InternalError"),
                    "stream" => no_streaming(),
                    "list" => list("10", &[object("a", "5")]),
                    _ => minutely([]),
                })
        },
        judge: |seen| match seen.since("a@5") {
            Some(synced) => {
                let late = synced.saturating_sub(HOUR);
                let observed = format!("in sync {} after it", shown(late));
                seen.within_bounds(late <= Duration::from_secs(60), &observed)
            }
            None => seen.within_bounds(false, "never in sync"),
        },
    },
    Server {
        name: "F",
        does: "falls silent in the middle of a watch: the connection is dead, and stays open",
        right: "noticed within two minutes",
        streaming: false,
        lasts: HOUR,
        script: || {
            let start = Instant::now();
            Script::default().otherwise(move |asked| {
                let dead = asked.at - start < Duration::from_secs(60);
                match asked.verb() {
                    "list" if dead => list("10", &[object("a", "5")]),
                    "list" => list("20", &[object("a", "15")]),
                    "stream" => no_streaming(),
                    _ if dead => watch([wait(60), bookmark("11")]),
                    _ if asked.get("resourceVersion") == "20" => minutely([]),
                    _ => minutely([modified("a", "15"), bookmark("20")]),
                }
            })
        },
        judge: |seen| match seen.since("a@15") {
            Some(noticed) => verdict(
                noticed <= Duration::from_secs(60 + 120),
                format!(
                    "noticed after {}",
                    shown(noticed.saturating_sub(Duration::from_secs(60)))
                ),
            ),
            None => verdict(false, "has the old state still after an hour".to_owned()),
        },
    },
    Server {
        name: "G",
        does: "answers every watch with 200 and an empty body",
        right: "at most 120 requests an hour",
        streaming: false,
        lasts: HOUR,
        script: || {
            Script::default()
                .at_most(MOST)
                .otherwise(|asked| match asked.verb() {
                    "list" => list("10", &[object("a", "5")]),
                    "stream" => no_streaming(),
                    _ => ending([]),
                })
        },
        judge: |seen| {
            let synced = seen.last() == ["a@5"];
            seen.within_bounds(synced, if synced { "in sync" } else { "never in sync" })
        },
    },
];

/// Lets a client follow `server`. `start` makes the client; its second argument turns streaming lists on.
///
/// Time must be paused.
pub async fn observe<F: Follower>(
    server: &Server,
    start: impl FnOnce(Client, bool) -> F,
) -> Report {
    let script = (server.script)();
    let began = Instant::now();
    let follower = start(script.client(), server.streaming);
    let mut views: Vec<(Duration, Vec<String>)> = Vec::new();
    while began.elapsed() < server.lasts {
        let contents = follower.contents();
        if views.last().is_none_or(|(_, last)| *last != contents) {
            views.push((began.elapsed(), contents));
        }
        sleep(LOOK).await;
    }
    drop(follower);
    let asked = script.asked().into_iter();
    let seen = Seen {
        views,
        asked: asked.map(|asked| (asked.at - began, asked)).collect(),
        lasted: server.lasts,
    };
    let verdict = (server.judge)(&seen);
    Report { seen, verdict }
}

// === What servers do ===

/// A watch that stays open, with a bookmark of the last version a minute.
fn minutely(first: impl IntoIterator<Item = Bit>) -> Answer {
    let mut bits: Vec<_> = first.into_iter().collect();
    bits.extend((0..70).flat_map(|_| [wait(60), bookmark("1000")]));
    watch(bits)
}

/// A server that has compacted the version of its first list when a watch begins there.
fn forgets(refusal: Answer) -> Script {
    let start = Instant::now();
    Script::default().otherwise(move |asked| match asked.verb() {
        "list" if asked.at - start < Duration::from_millis(500) => list("10", &[object("a", "5")]),
        "list" => list("50", &[object("b", "45")]),
        "stream" => no_streaming(),
        _ if asked.get("resourceVersion") == "10" => refusal.clone(),
        _ => minutely([]),
    })
}

fn catches_up(seen: &Seen) -> Verdict {
    match seen.since("b@45") {
        Some(after) => seen.within_bounds(true, &format!("follows again after {}", shown(after))),
        None => {
            let lists = seen.count("list");
            seen.within_bounds(false, &format!("has the old state still, {lists} list"))
        }
    }
}

/// A server with a replica that lags behind the client.
fn lags() -> Script {
    let start = Instant::now();
    let first = [
        added("a", "100"),
        initial_end("200"),
        wait(1),
        deleted("a", "201"),
        wait(1),
        error(410, "Expired"),
    ];
    Script::new([ending(first)]).otherwise(move |asked| {
        let version = asked.get("resourceVersion");
        let lagging = asked.at - start < Duration::from_secs(60);
        match (asked.verb(), version) {
            // Any version it has.
            ("stream", "0") if lagging => minutely([added("a", "100"), initial_end("150")]),
            ("list", "0") if lagging => list("150", &[object("a", "100")]),
            // The newest is read from the storage, which does not lag.
            ("list", "") => list("210", &[object("b", "205")]),
            // It refuses a version that it has not reached.
            ("stream" | "list", _) if lagging => json(
                504,
                status_object(
                    504,
                    "Timeout",
                    "Too large resource version: 201, current: 150",
                ),
            ),
            ("stream", _) => minutely([added("b", "205"), initial_end("210")]),
            ("list", _) => list("210", &[object("b", "205")]),
            ("watch", "150") if lagging => minutely([]),
            ("watch", "150" | "200" | "201") => ending([error(410, "Expired")]),
            _ => minutely([]),
        }
    })
}

// === Judgements ===

fn verdict(right: bool, observed: String) -> Verdict {
    Verdict { right, observed }
}

/// A time in words.
fn shown(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
}

impl Seen {
    /// The content of the store at the end.
    fn last(&self) -> Vec<&str> {
        let last = self.views.last().map(|(_, contents)| contents.as_slice());
        last.unwrap_or_default()
            .iter()
            .map(String::as_str)
            .collect()
    }

    /// The time since which the store holds `object`.
    fn since(&self, object: &str) -> Option<Duration> {
        let holds = |contents: &[String]| contents.iter().any(|held| held == object);
        self.views
            .iter()
            .find(|(_, contents)| holds(contents))
            .map(|(since, _)| *since)
    }

    /// The time at which `object` was in the store again after it had gone.
    fn returned(&self, object: &str) -> Option<Duration> {
        let holds = |contents: &[String]| contents.iter().any(|held| held == object);
        self.views
            .iter()
            .skip_while(|(_, contents)| !holds(contents))
            .skip_while(|(_, contents)| holds(contents))
            .find(|(_, contents)| holds(contents))
            .map(|(at, _)| *at)
    }

    fn count(&self, verb: &str) -> usize {
        let of = |(_, asked): &&(Duration, Asked)| asked.verb() == verb;
        self.asked.iter().filter(of).count()
    }

    /// The number of requests in the first hour.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.asked.iter().filter(|(at, _)| *at < HOUR).count()
    }

    /// Right if `right`, and if the server did not receive too many requests.
    fn within_bounds(&self, right: bool, observed: &str) -> Verdict {
        let requests = self.requests();
        let how_many = if requests > MOST {
            let last = self.asked.last().map_or(Duration::ZERO, |(at, _)| *at);
            format!(
                "{MOST} requests within {}, then the server gave up",
                shown(last)
            )
        } else {
            format!("{requests} requests in an hour")
        };
        verdict(
            right && requests <= HOURLY,
            format!("{observed}; {how_many}"),
        )
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.name)
            .field("does", &self.does)
            .finish_non_exhaustive()
    }
}
