//! The admin port: what tests and operators of the simulator use.
//!
//! | request | |
//! |---|---|
//! | `GET /healthz` | 200 |
//! | `GET /calls` | the newest 1,000 calls; `?limit=N` for up to 10,000, `?after=NUMBER` for the first ones after a call |
//! | `GET /faults`, `POST /faults`, `DELETE /faults` | the faults that wait for calls, as JSON objects of [`Rule`] |
//! | `GET /state` | load balancers and server groups |
//! | `GET /dataplane` | whether HAProxy has the newest state, and the listeners that it does not serve |
//! | `PUT /instances` | addresses by instance id |

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use reeve_serve::http::{Answer, Budget, Handler, Method, Request, StatusCode, answer, text};
use serde::Serialize;
use serde_json::json;

use super::body;
use super::calls::{Call, MOST_CALLS};
use super::faults::Rule;
use super::world::World;

/// The longest fault, in bytes.
const LONGEST_FAULT: usize = 4096;
/// The calls that are shown unless the request has a limit.
const CALLS: usize = 1000;

/// Answers the requests of the admin port.
pub(super) fn handler(world: Arc<World>, budget: Budget, body_timeout: Duration) -> Handler {
    Arc::new(move |request| {
        let (world, budget) = (Arc::clone(&world), budget.clone());
        Box::pin(async move { serve(&world, &budget, body_timeout, request).await })
    })
}

async fn serve(world: &World, budget: &Budget, body_timeout: Duration, request: Request) -> Answer {
    let (head, body) = request.into_parts();
    let body = match body::read(budget, body, body_timeout).await {
        Ok(body) => body,
        Err(refusal) => {
            let message = format!("{}\n", refusal.message);
            return body::last(text(body::status(&refusal), message));
        }
    };
    match (&head.method, head.uri.path()) {
        (&Method::GET, "/healthz") => text(StatusCode::OK, "ok\n"),
        (&Method::GET, "/calls") => match calls(world, head.uri.query().unwrap_or_default()) {
            Ok(calls) => document(&calls),
            Err(message) => text(StatusCode::BAD_REQUEST, message),
        },
        (&Method::GET, "/faults") => document(&world.faults()),
        (&Method::GET, "/state") => {
            let state = Arc::clone(&world.states().borrow());
            document(&json!({ "loadBalancers": state.balancers, "serverGroups": state.groups }))
        }
        (&Method::GET, "/dataplane") => match world.dataplane() {
            Some(dataplane) => document(&dataplane),
            None => text(StatusCode::NOT_FOUND, "this cloud has no data plane\n"),
        },
        (&Method::DELETE, "/faults") => {
            world.clear_faults();
            text(StatusCode::OK, "")
        }
        (&Method::POST, "/faults") if body.len() > LONGEST_FAULT => {
            let message = format!("a fault is at most {LONGEST_FAULT} bytes\n");
            text(StatusCode::PAYLOAD_TOO_LARGE, message)
        }
        (&Method::POST, "/faults") => match serde_json::from_slice::<Rule>(&body) {
            Ok(rule) => match world.add_fault(rule) {
                true => text(StatusCode::OK, ""),
                false => text(StatusCode::TOO_MANY_REQUESTS, "too many faults\n"),
            },
            Err(error) => text(StatusCode::BAD_REQUEST, format!("{error}\n")),
        },
        (&Method::PUT, "/instances") => {
            match serde_json::from_slice::<BTreeMap<String, Ipv4Addr>>(&body) {
                Ok(instances) => match world.set_instances(&instances) {
                    Ok(()) => text(StatusCode::OK, ""),
                    Err(error) if error.kind() == ErrorKind::InvalidInput => {
                        text(StatusCode::BAD_REQUEST, format!("{error}\n"))
                    }
                    Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
                },
                Err(error) => text(StatusCode::BAD_REQUEST, format!("{error}\n")),
            }
        }
        _ => text(StatusCode::NOT_FOUND, "not found\n"),
    }
}

/// The calls that a query asks for.
fn calls(world: &World, query: &str) -> Result<Vec<Call>, String> {
    let (mut after, mut limit) = (None, CALLS);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let wrong = || format!("{name}={value}: it is after=NUMBER or limit=1 to {MOST_CALLS}\n");
        match name.as_ref() {
            "after" => after = Some(value.parse().map_err(|_| wrong())?),
            "limit" => {
                let number = value.parse().ok();
                let number = number.filter(|number| (1..=MOST_CALLS).contains(number));
                limit = number.ok_or_else(wrong)?;
            }
            _ => return Err(wrong()),
        }
    }
    Ok(world.page_of_calls(after, limit))
}

fn document(value: &impl Serialize) -> Answer {
    match serde_json::to_string(value) {
        Ok(body) => answer(StatusCode::OK, "application/json", body),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}
