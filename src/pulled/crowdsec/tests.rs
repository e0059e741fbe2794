//! The stream of decisions, against answers in process.

use super::*;
use crate::config::Options;
use crate::mounted::Directory;
use crate::outbound::InProcess;
use crate::pulled::RawSource;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::VecDeque;

fn source(extra: &str) -> Source {
    let yaml =
        format!("{{name: crowdsec, url: 'https://lapi.example', apiKeyFile: /s/k, {extra}}}");
    let raw: RawSource = serde_saphyr::from_str(&yaml).unwrap();
    let options = Options {
        secrets: Directory::new("/s"),
        ..Options::default()
    };
    raw.define(&options).unwrap()
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn wire(id: i64, value: &str, duration: &str) -> Value {
    json!({
        "id": id, "uuid": format!("u{id}"), "origin": "crowdsec", "type": "ban",
        "scenario": "crowdsecurity/ssh-bf", "scope": "Ip", "value": value, "duration": duration
    })
}

/// The local API with the rules of its documentation: the key, the query, one answer after another.
#[derive(Clone, Debug, Default)]
struct Lapi {
    answers: Arc<Mutex<VecDeque<(u16, Value)>>>,
    startups: Arc<Mutex<Vec<bool>>>,
}

impl Lapi {
    fn answers(answers: impl IntoIterator<Item = (u16, Value)>) -> (Self, Arc<dyn Outbound>) {
        let lapi = Self::default();
        lapi.answers.lock().extend(answers);
        let server = lapi.clone();
        let outbound = InProcess::new(move |request| {
            let answer = server.answer(&request);
            async move { Ok(answer) }
        });
        (lapi, Arc::new(outbound))
    }

    fn answer(&self, request: &http::Request<Bytes>) -> http::Response<Bytes> {
        assert_eq!(request.method(), http::Method::GET);
        let url = url::Url::parse(&request.uri().to_string()).unwrap();
        assert_eq!(url.path(), "/v1/decisions/stream");
        let query: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
        let known = [
            "startup",
            "scopes",
            "dedup",
            "origins",
            "scenarios_containing",
        ];
        assert_eq!(
            query["dedup"], "false",
            "CrowdSec would leave decisions out"
        );
        assert!(
            query.keys().all(|key| known.contains(&key.as_str())),
            "{query:?}"
        );
        self.startups.lock().push(query["startup"] == "true");
        let (status, body) = if request.headers()["x-api-key"] == "key" {
            self.answers.lock().pop_front().unwrap()
        } else {
            (403, json!({"message": "access forbidden"}))
        };
        let answer = http::Response::builder().status(status);
        answer.body(Bytes::from(body.to_string())).unwrap()
    }
}

async fn pull(
    stream: &mut Stream,
    source: &Source,
    outbound: &Arc<dyn Outbound>,
    at: Timestamp,
) -> Result<Pulled, Fault> {
    stream
        .pull(source, Some(&Secret::new("key")), outbound, at)
        .await
}

fn shown(pulled: &Pulled) -> Vec<String> {
    let entries = pulled.entries.iter();
    entries
        .map(|(target, it)| format!("{target} {}", duration::display(it.duration)))
        .collect()
}

#[tokio::test]
async fn deltas_follow_the_first_list() {
    let (lapi, outbound) = Lapi::answers([
        (
            200,
            json!({"new": [wire(1, "192.0.2.1", "3h59m48.5s"), wire(2, "192.0.2.2", "1h"), wire(3, "192.0.2.1", "10m")], "deleted": null}),
        ),
        (200, json!({"new": null, "deleted": null})),
        (
            200,
            json!({"new": [wire(4, "2001:db8::1", "1h")], "deleted": [wire(2, "192.0.2.2", "-1s"), wire(1, "192.0.2.1", "-1s")]}),
        ),
    ]);
    let (mut stream, source) = (Stream::default(), source(""));
    let first = pull(&mut stream, &source, &outbound, now()).await.unwrap();
    assert_eq!(shown(&first), ["192.0.2.1 3h59m49s", "192.0.2.2 1h"]);
    assert!(first.changed);
    let second = pull(&mut stream, &source, &outbound, now()).await.unwrap();
    assert!(!second.changed && second.entries == first.entries);
    let third = pull(&mut stream, &source, &outbound, now()).await.unwrap();
    assert_eq!(
        shown(&third),
        ["192.0.2.1 10m", "2001:db8::1 1h"],
        "its other decision stands"
    );
    assert_eq!(*lapi.startups.lock(), [true, false, false]);
}

#[tokio::test]
async fn after_a_fault_everything_is_asked_for_again() {
    let one = json!({"new": [wire(1, "192.0.2.1", "1h")], "deleted": []});
    let none = json!({"new": [], "deleted": []});
    let (lapi, outbound) = Lapi::answers([
        (200, one.clone()),
        (500, json!({})),
        (200, one),
        (200, json!("x")),
        (200, none.clone()),
        (200, none),
    ]);
    let (mut stream, source) = (Stream::default(), source(""));
    pull(&mut stream, &source, &outbound, now()).await.unwrap();
    pull(&mut stream, &source, &outbound, now())
        .await
        .unwrap_err();
    pull(&mut stream, &source, &outbound, now()).await.unwrap();
    pull(&mut stream, &source, &outbound, now())
        .await
        .unwrap_err();
    // A database that fails closes the list at once.
    let fault = pull(&mut stream, &source, &outbound, now()).await;
    let fault = fault.unwrap_err().why;
    assert!(
        fault.contains("lists 0 decisions, and there were 1"),
        "{fault}"
    );
    let last = pull(&mut stream, &source, &outbound, now()).await.unwrap();
    assert!(
        last.entries.is_empty() && last.changed,
        "an empty list is one when it comes again"
    );
    assert_eq!(
        *lapi.startups.lock(),
        [true, false, true, false, true, true]
    );
    stream.restart();
    lapi.answers.lock().push_back((
        200,
        json!({"new": [wire(2, "192.0.2.2", "1h")], "deleted": null}),
    ));
    pull(&mut stream, &source, &outbound, now()).await.unwrap();
    assert_eq!(
        lapi.startups.lock().last(),
        Some(&true),
        "after a write that failed"
    );
}

#[tokio::test]
async fn only_bans_of_the_origins_and_scenarios_are_taken() {
    let with = |field: &str, value: &str| {
        let mut decision = wire(9, "192.0.2.9", "1h");
        decision[field] = json!(value);
        decision
    };
    let mut new = json!([
        with("origin", "CAPI"),
        with("origin", "lists"),
        with("type", "captcha"),
        with("scope", "Country"),
        with("scenario", "crowdsecurity/http-probing"),
        with("value", "203.0.113.0/24"),
        with("value", "example.com"),
        with("duration", "-3s"),
        with("duration", "x"),
        wire(1, "192.0.2.1", "1h"),
    ]);
    for (id, decision) in new.as_array_mut().unwrap().iter_mut().enumerate() {
        decision["id"] = json!(id);
    }
    let (_, outbound) = Lapi::answers([(200, json!({"new": new, "deleted": null}))]);
    let source = source("scenarios: [ssh]");
    let pulled = pull(&mut Stream::default(), &source, &outbound, now())
        .await
        .unwrap();
    assert_eq!(shown(&pulled), ["192.0.2.1 1h"]);
    assert_eq!(pulled.left_out, 9);
    assert_eq!(
        &*pulled.entries.iter().next().unwrap().1.reason,
        "CrowdSec: crowdsecurity/ssh-bf (crowdsec)"
    );
}

#[tokio::test]
async fn what_is_left_out_counts_as_long_as_it_stands() {
    let captcha = |id: i64, duration: &str| {
        let mut other = wire(id, &format!("192.0.2.{id}"), duration);
        other["type"] = json!("captcha");
        other
    };
    let (_, outbound) = Lapi::answers([
        (
            200,
            json!({"new": [wire(1, "192.0.2.1", "9h")], "deleted": null}),
        ),
        (
            200,
            json!({"new": [captcha(2, "1h"), captcha(3, "2h")], "deleted": null}),
        ),
        (200, json!({"new": null, "deleted": [captcha(3, "-1s")]})),
        (200, json!({"new": null, "deleted": null})),
    ]);
    let (mut stream, source) = (Stream::default(), source(""));
    let mut left_out = Vec::new();
    for hours in [0, 0, 0, 1] {
        let now = now() + jiff::SignedDuration::from_hours(hours);
        let pulled = pull(&mut stream, &source, &outbound, now).await.unwrap();
        left_out.push(pulled.left_out);
    }
    assert_eq!(left_out, [0, 2, 1, 0]);
}

#[tokio::test]
async fn decisions_end_by_themselves_and_their_number_is_bounded() {
    let many: Vec<Value> = (0..20)
        .map(|id| wire(id, &format!("192.0.2.{id}"), "1h"))
        .collect();
    let (_, outbound) = Lapi::answers([
        (200, json!({"new": many, "deleted": null})),
        (200, json!({"new": null, "deleted": null})),
    ]);
    let (mut stream, source) = (Stream::default(), source("maxEntries: 2"));
    let first = pull(&mut stream, &source, &outbound, now()).await.unwrap();
    assert_eq!((first.entries.len(), stream.decisions.len()), (2, 8));
    assert_eq!(first.left_out, 18);
    let later = now() + jiff::SignedDuration::from_hours(1);
    let second = pull(&mut stream, &source, &outbound, later).await.unwrap();
    assert!(second.entries.is_empty());
}

#[tokio::test]
async fn decisions_that_were_too_many_come_back_when_there_is_room() {
    let many: Vec<Value> = (0..10)
        .map(|id| wire(id, &format!("192.0.2.{id}"), "1h"))
        .collect();
    let gone = json!({"new": null, "deleted": many[..4]});
    let (lapi, outbound) = Lapi::answers([
        (200, json!({"new": many, "deleted": null})),
        (200, json!({"new": null, "deleted": null})),
        (200, gone),
        (200, json!({"new": many[4..], "deleted": null})),
        (200, json!({"new": null, "deleted": null})),
    ]);
    let (mut stream, source) = (Stream::default(), source("maxEntries: 2"));
    for _ in 0..5 {
        pull(&mut stream, &source, &outbound, now()).await.unwrap();
    }
    assert_eq!(*lapi.startups.lock(), [true, false, false, true, false]);
    assert_eq!(stream.decisions.len(), 6, "8 and 9 too");
}

#[tokio::test]
async fn an_answer_without_the_lists_is_a_fault_that_repeats_nothing_of_it() {
    for answer in [
        json!({}),
        json!({"new": []}),
        json!({"deleted": null}),
        json!({"new": "hunter2", "deleted": null}),
    ] {
        let (_, outbound) = Lapi::answers([(200, answer.clone())]);
        let mut stream = Stream::default();
        let fault = pull(&mut stream, &source(""), &outbound, now()).await;
        let why = fault.expect_err(&answer.to_string()).why;
        assert!(
            why.contains("not a stream") && !why.contains("hunter2"),
            "{why}"
        );
    }
}

#[tokio::test]
async fn a_wrong_key_is_reported_as_that() {
    let (_, outbound) = Lapi::answers([]);
    let key = Secret::new("wrong");
    let fault = Stream::default()
        .pull(&source(""), Some(&key), &outbound, now())
        .await;
    assert!(fault.unwrap_err().why.contains("refuses the key"));
}
