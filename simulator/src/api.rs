//! Both APIs as plain functions: a path and a query in, a status and a JSON document out.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::faults::Operation;
use crate::state::{State, Update};

/// The query's parameters, decoded, in order.
pub(crate) type Query = Vec<(String, String)>;

/// The operation of a path, and its target. `None` for paths that no engine calls.
pub(crate) fn operation<'a>(path: &str, query: &'a Query) -> Option<(Operation, Option<&'a str>)> {
    let (operation, key) = match path {
        "/limit" => (Operation::Ban, "ip"),
        "/update" => (Operation::Ban, "cidr"),
        "/unlimit" => (Operation::Unban, "ip"),
        "/remove" => (Operation::Unban, "cidr"),
        "/limits" | "/status" => (Operation::List, ""),
        _ => return None,
    };
    Some((operation, get(query, key)))
}

/// Carries out an engine's call.
pub(crate) fn answer(state: &mut State, path: &str, query: &Query, now: Timestamp) -> (u16, Value) {
    match path {
        "/limit" | "/unlimit" => {
            let Some(ip) = get(query, "ip").filter(|ip| !ip.is_empty()) else {
                return (400, json!({ "error": "Missing 'ip' query parameter" }));
            };
            if path == "/unlimit" {
                state.unlimit(ip);
                return (200, json!({ "ip": ip, "status": "unlimited" }));
            }
            let answer = match state.limit(ip, now) {
                Ok(true) => json!({ "ip": ip, "status": "limited" }),
                Ok(false) => json!({ "ip": ip, "status": "already_limited" }),
                Err(error) => json!({ "ip": ip, "status": "failed", "error": error }),
            };
            (200, answer)
        }
        "/limits" => (200, json!({ "limited_ips": state.limits() })),
        "/update" => update(state, query, now),
        "/remove" => {
            let Some(cidr) = get(query, "cidr") else {
                return unprocessable("cidr", "Field required");
            };
            let message = if state.remove(cidr) {
                format!("Successfully removed {cidr} from banned list")
            } else {
                format!("{cidr} not exists, skip")
            };
            (200, json!({ "message": message }))
        }
        "/status" => (
            200,
            json!({ "message": "{'simulated0': attached, mode: generic}" }),
        ),
        _ => (404, json!({ "detail": "Not Found" })),
    }
}

fn update(state: &mut State, query: &Query, now: Timestamp) -> (u16, Value) {
    let Some(cidr) = get(query, "cidr") else {
        return unprocessable("cidr", "Field required");
    };
    let integer = |key| get(query, key).map(str::parse::<i64>);
    let kind = match integer("ban_type") {
        Some(Ok(kind @ (0 | 1))) => kind,
        Some(_) => return unprocessable("ban_type", "Input should be 0 or 1"),
        None => return unprocessable("ban_type", "Field required"),
    };
    let seconds = match integer("ban_time") {
        Some(Ok(seconds)) => seconds,
        Some(Err(_)) => return unprocessable("ban_time", "Input should be a valid integer"),
        None => return unprocessable("ban_time", "Field required"),
    };
    let message = match state.update(cidr, (kind == 0).then_some(seconds), now) {
        Update::Added => format!("Successfully added {cidr} to banned list"),
        Update::Updated => format!("{cidr} have been updated"),
        Update::Failed => format!("Failed to add {cidr} to banned list"),
    };
    (200, json!({ "message": message }))
}

/// The API's failure, with HTTP 200.
pub(crate) fn failure(path: &str, query: &Query) -> (u16, Value) {
    match path {
        "/limit" | "/unlimit" => {
            let ip = get(query, "ip");
            (
                200,
                json!({ "ip": ip, "status": "failed", "error": "simulated failure" }),
            )
        }
        "/update" | "/remove" => {
            // The real one has "add" for a removal too.
            let cidr = get(query, "cidr").unwrap_or_default();
            (
                200,
                json!({ "message": format!("Failed to add {cidr} to banned list") }),
            )
        }
        _ => (500, json!({ "error": "simulated failure" })),
    }
}

pub(crate) fn get<'a>(query: &'a Query, key: &str) -> Option<&'a str> {
    query
        .iter()
        .find(|(name, _)| name == key)
        .map(|(_, value)| value.as_str())
}

fn unprocessable(field: &str, message: &str) -> (u16, Value) {
    let detail = json!([{ "loc": ["query", field], "msg": message, "type": "value_error" }]);
    (422, json!({ "detail": detail }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(state: &mut State, path_and_query: &str) -> (u16, String) {
        let (path, query) = path_and_query
            .split_once('?')
            .unwrap_or((path_and_query, ""));
        let query = form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect();
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let (status, body) = answer(state, path, &query, now);
        (status, body.to_string())
    }

    #[test]
    fn both_apis_answer_as_the_real_ones() {
        let mut state = State::new(Timestamp::from_second(1_700_000_000).unwrap());
        for (request, status, body) in [
            (
                "/limit?ip=192.0.2.7",
                200,
                r#"{"ip":"192.0.2.7","status":"limited"}"#,
            ),
            (
                "/limit?ip=192.0.2.7",
                200,
                r#"{"ip":"192.0.2.7","status":"already_limited"}"#,
            ),
            (
                "/limit?ip=::1",
                200,
                r#"{"error":"iptables: host/network `::1' not found","ip":"::1","status":"failed"}"#,
            ),
            ("/limits", 200, r#"{"limited_ips":["192.0.2.7"]}"#),
            (
                "/unlimit?ip=192.0.2.7",
                200,
                r#"{"ip":"192.0.2.7","status":"unlimited"}"#,
            ),
            (
                "/unlimit?ip=192.0.2.7",
                200,
                r#"{"ip":"192.0.2.7","status":"unlimited"}"#,
            ),
            ("/limits", 200, r#"{"limited_ips":[]}"#),
            ("/limit", 400, r#"{"error":"Missing 'ip' query parameter"}"#),
            (
                "/update?cidr=192.0.2.7&ban_type=0&ban_time=60",
                200,
                r#"{"message":"Successfully added 192.0.2.7 to banned list"}"#,
            ),
            (
                "/update?cidr=192.0.2.7&ban_type=1&ban_time=0",
                200,
                r#"{"message":"192.0.2.7 have been updated"}"#,
            ),
            (
                "/update?cidr=nonsense&ban_type=1&ban_time=0",
                200,
                r#"{"message":"Failed to add nonsense to banned list"}"#,
            ),
            (
                "/remove?cidr=192.0.2.7",
                200,
                r#"{"message":"Successfully removed 192.0.2.7 from banned list"}"#,
            ),
            (
                "/remove?cidr=192.0.2.7",
                200,
                r#"{"message":"192.0.2.7 not exists, skip"}"#,
            ),
            ("/nothing", 404, r#"{"detail":"Not Found"}"#),
        ] {
            assert_eq!(
                call(&mut state, request),
                (status, body.to_owned()),
                "{request}"
            );
        }
        for request in [
            "/update?cidr=192.0.2.7",
            "/update?cidr=192.0.2.7&ban_type=2&ban_time=1",
            "/update?cidr=192.0.2.7&ban_type=0&ban_time=1.5",
            "/update?ban_type=0&ban_time=1",
            "/remove",
        ] {
            assert_eq!(call(&mut state, request).0, 422, "{request}");
        }
    }
}
