//! The handling of a request: the engine's call with its fault, or the simulation's own pages.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Response, StatusCode};
use jiff::Timestamp;
use parking_lot::Mutex;
use reeve_clock::Clock;
use serde_json::{Value, json};

use crate::api::{self, Query};
use crate::faults::{Fault, Faults, Operation, Rule};
use crate::page;
use crate::state::{Entry, State};

/// How many calls are remembered.
const REMEMBERED: usize = 100_000;

const JSON: &str = "application/json";

/// The state of a gateway, shared by its handles and its connections.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) state: Mutex<State>,
    pub(crate) faults: Faults,
    pub(crate) calls: Mutex<VecDeque<Call>>,
}

/// A call that an engine made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// When it arrived.
    pub at: Timestamp,
    /// Its operation.
    pub operation: Operation,
    /// Path and query, as sent.
    pub request: String,
    /// The status of the answer; `None` when a fault left it unanswered.
    pub status: Option<u16>,
}

/// What to do with a request.
enum Reaction {
    Answer(Response<Bytes>),
    Late(Duration, Response<Bytes>),
    Close,
    Never,
}

// === impl World ===

impl World {
    pub(crate) fn new(clock: Clock) -> Self {
        let state = State::new(clock.now());
        Self {
            clock,
            state: Mutex::new(state),
            faults: Faults::default(),
            calls: Mutex::default(),
        }
    }

    /// Answers a request. `None`: the connection closes without an answer.
    pub(crate) async fn answer(
        &self,
        method: &Method,
        path: &str,
        query: &str,
    ) -> Option<Response<Bytes>> {
        match self.react(method, path, query) {
            Reaction::Answer(answer) => Some(answer),
            Reaction::Late(delay, answer) => {
                tokio::time::sleep(delay).await;
                Some(answer)
            }
            Reaction::Close => None,
            Reaction::Never => std::future::pending().await,
        }
    }

    pub(crate) fn enforced(&self) -> Vec<Entry> {
        self.state.lock().enforced(self.clock.now())
    }

    fn react(&self, method: &Method, path: &str, raw_query: &str) -> Reaction {
        let query: Query = form_urlencoded::parse(raw_query.as_bytes())
            .into_owned()
            .collect();
        let Some((operation, target)) = api::operation(path, &query) else {
            return Reaction::Answer(self.page(method, path, &query));
        };
        if method != Method::GET {
            return document(405, &json!({ "detail": "Method Not Allowed" })).into();
        }
        let fault = self.faults.take(operation, target);
        let reaction = self.engine_call(path, &query, fault);
        let status = match &reaction {
            Reaction::Answer(answer) | Reaction::Late(_, answer) => Some(answer.status().as_u16()),
            Reaction::Close | Reaction::Never => None,
        };
        self.remember(Call {
            at: self.clock.now(),
            operation,
            request: format!("{path}?{raw_query}"),
            status,
        });
        reaction
    }

    /// The simulation's own pages, which no engine calls.
    fn page(&self, method: &Method, path: &str, query: &Query) -> Response<Bytes> {
        match (method, path) {
            (&Method::GET, "/") => {
                let page = page::html(&self.enforced(), self.clock.now());
                typed(200, "text/html; charset=utf-8", page)
            }
            (&Method::GET, "/enforced") => document(200, &json!({ "enforced": self.enforced() })),
            (&Method::POST, "/lose-state") => {
                self.state.lock().lose();
                document(200, &json!({ "message": "everything is forgotten" }))
            }
            (&Method::DELETE, "/faults") => {
                self.faults.clear();
                document(200, &json!({ "message": "no faults" }))
            }
            (&Method::POST, "/faults") => match rule(query) {
                Ok(rule) => {
                    let message = rule.to_string();
                    self.faults.add(rule);
                    document(200, &json!({ "message": message }))
                }
                Err(message) => document(400, &json!({ "error": message })),
            },
            _ => document(404, &json!({ "detail": "Not Found" })),
        }
    }

    fn engine_call(&self, path: &str, query: &Query, fault: Option<Fault>) -> Reaction {
        let carried_out = || {
            let now = self.clock.now();
            let (status, body) = api::answer(&mut self.state.lock(), path, query, now);
            document(status, &body)
        };
        match fault {
            None => carried_out().into(),
            Some(Fault::Slow(delay)) => Reaction::Late(delay, carried_out()),
            Some(Fault::LoseAnswer) => {
                carried_out();
                Reaction::Close
            }
            Some(Fault::Status(status)) => {
                document(status, &json!({ "error": "simulated fault" })).into()
            }
            Some(Fault::Fail) => {
                let (status, body) = api::failure(path, query);
                document(status, &body).into()
            }
            Some(Fault::Reset) => Reaction::Close,
            Some(Fault::Hang) => Reaction::Never,
        }
    }

    fn remember(&self, call: Call) {
        let mut calls = self.calls.lock();
        if calls.len() == REMEMBERED {
            calls.pop_front();
        }
        calls.push_back(call);
    }
}

// === impl Reaction ===

impl From<Response<Bytes>> for Reaction {
    fn from(answer: Response<Bytes>) -> Self {
        Self::Answer(answer)
    }
}

fn document(status: u16, body: &Value) -> Response<Bytes> {
    typed(status, JSON, body.to_string())
}

fn typed(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut answer = Response::new(body.into());
    *answer.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let value = HeaderValue::from_static(content_type);
    answer.headers_mut().insert(CONTENT_TYPE, value);
    answer
}

/// Reads a rule from the query of `POST /faults`.
fn rule(query: &Query) -> Result<Rule, String> {
    let number = |key: &str| -> Result<Option<u64>, String> {
        api::get(query, key)
            .map(|text| {
                text.parse()
                    .map_err(|_| format!("{key} is not a number: {text}"))
            })
            .transpose()
    };
    let fault = match api::get(query, "fault") {
        Some("hang") => Fault::Hang,
        Some("reset") => Fault::Reset,
        Some("lose-answer") => Fault::LoseAnswer,
        Some("fail") => Fault::Fail,
        Some("slow") => Fault::Slow(Duration::from_millis(number("millis")?.unwrap_or(1000))),
        Some(status)
            if status
                .parse::<u16>()
                .is_ok_and(|code| (400..600).contains(&code)) =>
        {
            Fault::Status(status.parse().unwrap_or(500))
        }
        _ => {
            return Err(
                "expected fault=hang, reset, lose-answer, fail, slow, or a status like 500".into(),
            );
        }
    };
    let operation = match api::get(query, "operation") {
        None => None,
        Some("ban") => Some(Operation::Ban),
        Some("unban") => Some(Operation::Unban),
        Some("list") => Some(Operation::List),
        Some(other) => return Err(format!("operation is ban, unban or list, not {other}")),
    };
    Ok(Rule {
        fault,
        operation,
        target: api::get(query, "target").map(str::to_owned),
        times: number("times")?.map(|times| u32::try_from(times).unwrap_or(u32::MAX)),
    })
}
