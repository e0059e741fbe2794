//! The admin port: what tests and operators of the simulator use.
//!
//! | request | |
//! |---|---|
//! | `GET /healthz` | 200 |
//! | `GET /calls` | the newest calls |
//! | `GET /faults`, `POST /faults`, `DELETE /faults` | the faults that wait for calls, as JSON objects of [`Rule`] |
//! | `GET /state` | load balancers and server groups |
//! | `GET /dataplane` | whether HAProxy has the newest state, and the listeners that it does not serve |
//! | `PUT /instances` | addresses by instance id |

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use reeve_serve::http::{Answer, Budget, Handler, Method, Request, StatusCode, answer, text};
use serde::Serialize;
use serde_json::json;

use super::LONGEST_BODY;
use super::faults::Rule;
use super::world::World;

/// Answers the requests of the admin port.
pub(super) fn handler(world: Arc<World>, budget: Budget) -> Handler {
    Arc::new(move |request| {
        let (world, budget) = (Arc::clone(&world), budget.clone());
        Box::pin(async move { serve(&world, &budget, request).await })
    })
}

async fn serve(world: &World, budget: &Budget, request: Request) -> Answer {
    let (head, body) = request.into_parts();
    let body = match budget.read(body, LONGEST_BODY).await {
        Ok(body) => body,
        Err(error) => return text(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()),
    };
    match (&head.method, head.uri.path()) {
        (&Method::GET, "/healthz") => text(StatusCode::OK, "ok\n"),
        (&Method::GET, "/calls") => document(&world.calls()),
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
                    Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
                },
                Err(error) => text(StatusCode::BAD_REQUEST, format!("{error}\n")),
            }
        }
        _ => text(StatusCode::NOT_FOUND, "not found\n"),
    }
}

fn document(value: &impl Serialize) -> Answer {
    match serde_json::to_string(value) {
        Ok(body) => answer(StatusCode::OK, "application/json", body),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}
