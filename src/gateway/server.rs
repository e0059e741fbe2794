//! The simulated gateway as a server, and as an in-process answerer.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use jiff::Timestamp;
use parking_lot::Mutex;
use reeve_clock::Clock;
use serde_json::{Value, json};

use super::api::{self, Query};
use super::faults::{Fault, Faults, Operation, Rule};
use super::page;
use super::state::{Entry, State};
use crate::inbound::{self, Limits, Listener};
use crate::outbound::{self, BoxFuture, Outbound};

/// How many calls are remembered.
const REMEMBERED: usize = 100_000;

/// A simulated gateway. Cloning is cheap; clones are the same gateway. It listens while a clone of it
/// lives, from [`Gateway::listen`] on.
#[derive(Clone, Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    world: Arc<World>,
    listener: Mutex<Option<Listener>>,
    address: Mutex<Option<SocketAddr>>,
}

/// What is asked by both the server's tasks and the owner.
#[derive(Debug)]
struct World {
    clock: Clock,
    state: Mutex<State>,
    faults: Faults,
    calls: Mutex<VecDeque<Call>>,
}

/// A call that an engine made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// When it arrived.
    pub at: Timestamp,
    /// What it asks for.
    pub operation: Operation,
    /// Path and query, as sent.
    pub request: String,
    /// The status of the answer; `None` when a fault left it unanswered.
    pub status: Option<u16>,
}

/// What to do with a request.
enum Reaction {
    Answer(StatusCode, &'static str, Bytes),
    Late(Duration, StatusCode, &'static str, Bytes),
    Close,
    Never,
}

// === impl Gateway ===

impl Gateway {
    /// A gateway that blocks nothing and does not listen yet.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let state = State::new(clock.now());
        Self {
            shared: Arc::new(Shared {
                world: Arc::new(World {
                    clock,
                    state: Mutex::new(state),
                    faults: Faults::default(),
                    calls: Mutex::default(),
                }),
                listener: Mutex::new(None),
                address: Mutex::new(None),
            }),
        }
    }

    /// Listens at `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address cannot be listened at.
    pub fn listen(&self, address: SocketAddr) -> io::Result<SocketAddr> {
        let world = Arc::clone(&self.shared.world);
        let handler = move |request: inbound::Request| {
            let world = Arc::clone(&world);
            async move {
                let query = request.uri().query().unwrap_or_default().to_owned();
                let path = request.uri().path().to_owned();
                let reaction = world.react(request.method(), &path, &query);
                match reaction {
                    Reaction::Answer(status, kind, body) => {
                        Some(inbound::typed(status, kind, body))
                    }
                    Reaction::Late(delay, status, kind, body) => {
                        tokio::time::sleep(delay).await;
                        Some(inbound::typed(status, kind, body))
                    }
                    Reaction::Close => None,
                    Reaction::Never => std::future::pending().await,
                }
            }
        };
        let limits = Limits {
            connections: 4096,
            header: Duration::from_secs(60),
            // Longer than any caller waits: a fault must look like silence.
            request: Duration::from_secs(3600),
            grace: Duration::ZERO,
        };
        let listener = Listener::bind(address, limits, Arc::new(handler))?;
        let address = listener.local_addr();
        *self.shared.listener.lock() = Some(listener);
        *self.shared.address.lock() = Some(address);
        Ok(address)
    }

    /// Where it listens, or listened before [`Gateway::refuse`].
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        *self.shared.address.lock()
    }

    /// Closes every connection and refuses new ones, as a gateway whose process is gone. What it
    /// enforces stays; [`Gateway::lose_state`] is apart.
    pub async fn refuse(&self) {
        let listener = self.shared.listener.lock().take();
        if let Some(listener) = listener {
            // Returns when the port is closed: what connects from here on is refused.
            listener.stop().await;
        }
    }

    /// Listens again where it did before [`Gateway::refuse`].
    ///
    /// # Errors
    /// When it never listened, or the address was taken meanwhile.
    pub fn accept(&self) -> io::Result<SocketAddr> {
        match self.address() {
            Some(address) => self.listen(address),
            None => Err(io::Error::other("this gateway never listened")),
        }
    }

    /// The faults it has.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.shared.world.faults
    }

    /// Forgets every ban, as a machine that restarts.
    pub fn lose_state(&self) {
        self.shared.world.state.lock().lose();
    }

    /// Everything that is blocked now: first the iptables agent's, then XDP's, each by target.
    #[must_use]
    pub fn enforced(&self) -> Vec<Entry> {
        self.shared.world.enforced()
    }

    /// The targets of [`Gateway::enforced`].
    #[must_use]
    pub fn targets(&self) -> Vec<String> {
        let entries = self.enforced().into_iter();
        entries.map(|entry| entry.target).collect()
    }

    /// Whether a packet from `address` is dropped now.
    #[must_use]
    pub fn drops(&self, address: IpAddr) -> bool {
        let world = &self.shared.world;
        world.state.lock().drops(address, world.clock.now())
    }

    /// The engines' calls so far, oldest first; of very many, the last 100,000.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.shared.world.calls.lock().iter().cloned().collect()
    }

    /// Forgets the calls so far.
    pub fn forget_calls(&self) {
        self.shared.world.calls.lock().clear();
    }

    /// Calls this gateway without a socket, within the default limits.
    #[must_use]
    pub fn in_process(&self) -> Arc<dyn Outbound> {
        let world = Arc::clone(&self.shared.world);
        Arc::new(outbound::InProcess::new(move |request| {
            in_process(Arc::clone(&world), request)
        }))
    }
}

fn in_process(
    world: Arc<World>,
    request: http::Request<Bytes>,
) -> BoxFuture<'static, Result<Response<Bytes>, outbound::Error>> {
    Box::pin(async move {
        let query = request.uri().query().unwrap_or_default();
        let reaction = world.react(request.method(), request.uri().path(), query);
        let (status, body) = match reaction {
            Reaction::Answer(status, _, body) => (status, body),
            Reaction::Late(delay, status, _, body) => {
                tokio::time::sleep(delay).await;
                (status, body)
            }
            Reaction::Close => return Err(outbound::Error::Reset),
            Reaction::Never => std::future::pending().await,
        };
        let mut answer = Response::new(body);
        *answer.status_mut() = status;
        Ok(answer)
    })
}

// === impl World ===

impl World {
    fn enforced(&self) -> Vec<Entry> {
        self.state.lock().enforced(self.clock.now())
    }

    fn react(&self, method: &Method, path: &str, raw_query: &str) -> Reaction {
        let query: Query = url::form_urlencoded::parse(raw_query.as_bytes())
            .into_owned()
            .collect();
        if let Some((operation, target)) = api::operation(path, &query) {
            if method != Method::GET {
                return document(405, &json!({ "detail": "Method Not Allowed" }));
            }
            let fault = self.faults.take(operation, target);
            let reaction = self.engine_call(path, &query, fault);
            let status = match &reaction {
                Reaction::Answer(status, ..) | Reaction::Late(_, status, ..) => {
                    Some(status.as_u16())
                }
                Reaction::Close | Reaction::Never => None,
            };
            self.remember(Call {
                at: self.clock.now(),
                operation,
                request: format!("{path}?{raw_query}"),
                status,
            });
            return reaction;
        }
        match (method, path) {
            (&Method::GET, "/") => {
                let page = page::html(&self.enforced(), self.clock.now());
                Reaction::Answer(StatusCode::OK, "text/html; charset=utf-8", page.into())
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
            (&Method::POST, "/faults") => match rule(&query) {
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
            api::answer(&mut self.state.lock(), path, query, now)
        };
        match fault {
            None => {
                let (status, body) = carried_out();
                document(status, &body)
            }
            Some(Fault::Slow(delay)) => {
                let (status, body) = carried_out();
                Reaction::Late(delay, code(status), JSON, body.to_string().into())
            }
            Some(Fault::LoseAnswer) => {
                carried_out();
                Reaction::Close
            }
            Some(Fault::Status(status)) => document(status, &json!({ "error": "simulated fault" })),
            Some(Fault::Fail) => {
                let (status, body) = api::failure(path, query);
                document(status, &body)
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

const JSON: &str = "application/json";

fn document(status: u16, body: &Value) -> Reaction {
    Reaction::Answer(code(status), JSON, body.to_string().into())
}

fn code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Reads a rule from the query of `POST /faults`.
fn rule(query: &Query) -> Result<Rule, String> {
    let number = |key: &str| -> Result<Option<u64>, String> {
        api::get(query, key)
            .map(|text| {
                text.parse()
                    .map_err(|_| format!("{key} is no number: {text}"))
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
                "say fault=hang, reset, lose-answer, fail, slow, or a status like 500".into(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Ban, Endpoint, Engine, Error, Iptables, Remaining, Unban, Xdp};
    use crate::outbound::{AddressPolicy, Http};
    use crate::target::Target;

    fn gateway() -> Gateway {
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        Gateway::new(Clock::simulated(start, 1))
    }

    fn http() -> Arc<dyn Outbound> {
        let policy = AddressPolicy {
            allow_loopback: true,
        };
        Arc::new(Http::builder().policy(policy).build().unwrap())
    }

    fn target(text: &str) -> Target {
        text.parse().unwrap()
    }

    fn engines(endpoint: &Endpoint, outbound: &Arc<dyn Outbound>) -> [Arc<dyn Engine>; 2] {
        [
            Arc::new(Iptables::new(endpoint.clone(), Arc::clone(outbound))),
            Arc::new(Xdp::new(endpoint.clone(), Arc::clone(outbound))),
        ]
    }

    #[tokio::test]
    async fn both_engines_ban_and_unban_over_the_network() {
        let gateway = gateway();
        let address = gateway.listen(([127, 0, 0, 1], 0).into()).unwrap();
        let endpoint = Endpoint::parse(&address.to_string()).unwrap();
        for engine in engines(&endpoint, &http()) {
            let one = target("192.0.2.7");
            let minute = Some(Remaining::new(Duration::from_secs(60)));
            assert_eq!(engine.ban(&one, minute).await, Ok(Ban::Added));
            assert_eq!(engine.ban(&one, minute).await, Ok(Ban::Already));
            assert!(gateway.drops([192, 0, 2, 7].into()));
            assert_eq!(gateway.targets(), ["192.0.2.7"]);
            assert_eq!(engine.unban(&one).await, Ok(Unban::Removed));
            assert!(engine.unban(&one).await.is_ok());
            assert!(gateway.targets().is_empty());
        }
        let minutes = gateway
            .calls()
            .into_iter()
            .filter(|call| call.request.contains("ban_time"));
        assert!(
            minutes.clone().count() == 2
                && minutes
                    .into_iter()
                    .all(|call| call.request == "/update?cidr=192.0.2.7&ban_type=0&ban_time=60")
        );
    }

    #[tokio::test]
    async fn a_gateway_that_is_gone_refuses_and_comes_back_at_its_address() {
        let gateway = gateway();
        let address = gateway.listen(([127, 0, 0, 1], 0).into()).unwrap();
        let endpoint = Endpoint::parse(&address.to_string()).unwrap();
        let engine = Xdp::new(endpoint, http());
        engine.ban(&target("192.0.2.7"), None).await.unwrap();
        gateway.refuse().await;
        // The closed connection may still be in the pool once: then it is a reset.
        let mut last = engine.ban(&target("192.0.2.8"), None).await.unwrap_err();
        if last.reason() == "GatewayReset" {
            last = engine.ban(&target("192.0.2.8"), None).await.unwrap_err();
        }
        assert_eq!(last.reason(), "GatewayRefused");
        assert_eq!(gateway.accept().unwrap(), address);
        engine.ban(&target("192.0.2.8"), None).await.unwrap();
        assert_eq!(gateway.targets(), ["192.0.2.7", "192.0.2.8"]);
    }

    #[tokio::test(start_paused = true)]
    async fn every_fault_reaches_the_engine_as_what_it_is() {
        let gateway = gateway();
        let endpoint = Endpoint::parse("192.0.2.250:8080").unwrap();
        for engine in engines(&endpoint, &gateway.in_process()) {
            let one = target("192.0.2.7");
            for (fault, reason, enforced) in [
                (Fault::Reset, "GatewayReset", false),
                (Fault::Hang, "GatewayTimeout", false),
                (Fault::Status(500), "GatewayError", false),
                (Fault::Fail, "GatewayFailed", false),
                (Fault::Slow(Duration::from_secs(9)), "GatewayTimeout", true),
                (Fault::LoseAnswer, "GatewayReset", true),
            ] {
                gateway.lose_state();
                gateway
                    .faults()
                    .add(Rule::all(fault).on(Operation::Ban).times(1));
                let error: Error = engine.ban(&one, None).await.unwrap_err();
                assert_eq!(error.reason(), reason, "{fault:?}");
                assert_eq!(gateway.targets().len(), usize::from(enforced), "{fault:?}");
                engine.ban(&one, None).await.unwrap();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_gateways_own_end_of_a_ban_follows_the_clock() {
        let gateway = gateway();
        let endpoint = Endpoint::parse("192.0.2.250:8080").unwrap();
        let engine = Xdp::new(endpoint, gateway.in_process());
        let ten = Some(Remaining::new(Duration::from_secs(10)));
        engine.ban(&target("192.0.2.7"), ten).await.unwrap();
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert!(gateway.drops([192, 0, 2, 7].into()));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!gateway.drops([192, 0, 2, 7].into()));
    }

    #[tokio::test]
    async fn faults_state_and_page_can_be_reached_over_http() {
        let gateway = gateway();
        let outbound = gateway.in_process();
        let send = async |method: &str, path: &str| {
            let request = http::Request::builder()
                .method(method)
                .uri(format!("http://g{path}"))
                .body(Bytes::new())
                .unwrap();
            let answer = outbound.send(request).await.unwrap();
            let body = String::from_utf8(answer.body().to_vec()).unwrap();
            (answer.status().as_u16(), body)
        };
        assert_eq!(
            send("POST", "/faults?fault=503&operation=ban&times=1")
                .await
                .0,
            200
        );
        assert_eq!(send("GET", "/limit?ip=192.0.2.7").await.0, 503);
        assert_eq!(send("GET", "/limit?ip=192.0.2.7").await.0, 200);
        let (_, listed) = send("GET", "/enforced").await;
        assert!(listed.contains(r#""target":"192.0.2.7""#), "{listed}");
        assert!(send("GET", "/").await.1.contains("192.0.2.7"));
        assert_eq!(send("POST", "/faults?fault=nonsense").await.0, 400);
        assert_eq!(send("POST", "/limit?ip=192.0.2.8").await.0, 405);
        assert_eq!(send("POST", "/lose-state").await.0, 200);
        assert!(gateway.targets().is_empty());
    }
}
