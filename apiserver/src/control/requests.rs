//! The log of requests over HTTP.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::call::{Answer, Call};
use super::form::shown;
use crate::record::{Filter, RequestRecord};
use crate::status::Status;

/// Number of requests in an answer, unless `limit` gives another.
const DEFAULT_LIMIT: usize = 500;
const LARGEST_LIMIT: usize = 10_000;
/// Maximum number of bytes of bodies in an answer.
const BODIES: usize = 8 * 1024 * 1024;
/// The longest wait in seconds.
const LONGEST_WAIT: usize = 600;
const PARAMETERS: [&str; 14] = [
    "verb",
    "group",
    "resource",
    "namespace",
    "name",
    "subresource",
    "user",
    "userAgent",
    "path",
    "code",
    "limit",
    "bodies",
    "atLeast",
    "waitSeconds",
];

/// `GET requests`: the requests that the parameters select; with `atLeast`, when there are so many or `waitSeconds` are over.
pub(super) async fn list(call: &Call<'_>) -> Answer {
    call.parameters(&PARAMETERS)?;
    let filter = filter(call)?;
    let limit = call.count("limit", LARGEST_LIMIT)?.unwrap_or(DEFAULT_LIMIT);
    let record = &call.core.record;
    let wait = call.count("waitSeconds", LONGEST_WAIT)?;
    let mut is_met = None;
    match (call.count("atLeast", LARGEST_LIMIT)?, wait) {
        (Some(count), wait) => {
            let wait = u64::try_from(wait.unwrap_or(0)).unwrap_or(0);
            let wait = Duration::from_secs(wait);
            is_met = Some(timeout(wait, record.reaches(&filter, count)).await.is_ok());
        }
        (None, Some(_)) => {
            return Err(Status::bad_request("waitSeconds: atLeast is missing").into());
        }
        (None, None) => {}
    }
    let (count, items) = record.select(&filter, limit);
    let mut left = if call.query.flag("bodies") { BODIES } else { 0 };
    let items: Vec<Value> = items
        .iter()
        .map(|request| document(request, &mut left))
        .collect();
    let mut answer = json!({"count": count, "dropped": record.dropped(), "items": items});
    if let Some(is_met) = is_met {
        answer["met"] = is_met.into();
    }
    Ok((200, answer))
}

/// `DELETE requests`: clears the log.
pub(super) fn clear(call: &mut Call<'_>) -> Answer {
    call.no_options()?;
    call.core.record.clear();
    Ok((200, json!({})))
}

fn filter(call: &Call<'_>) -> Result<Filter, Status> {
    // An empty value is one: the group of core, the subresource of the object itself.
    let text = |name: &str| {
        let given = call.query.all(name);
        given.first().map(|&text| text.to_owned())
    };
    Ok(Filter {
        verb: text("verb"),
        group: text("group"),
        resource: text("resource"),
        namespace: text("namespace"),
        name: text("name"),
        subresource: text("subresource"),
        user: text("user"),
        user_agent: text("userAgent"),
        path: text("path"),
        code: call
            .count("code", 999)?
            .and_then(|code| u16::try_from(code).ok()),
    })
}

/// One request; with its body while at least so many bytes are `left`.
fn document(request: &RequestRecord, left: &mut usize) -> Value {
    let mut document = json!({
        "time": request.at.to_string(),
        "verb": request.verb,
        "path": request.path,
        "query": request.query,
        "group": request.group,
        "resource": request.resource,
        "namespace": request.namespace,
        "name": request.name,
        "subresource": request.subresource,
        "user": request.user,
        "userAgent": request.agent,
        "code": request.code,
    });
    if !request.body.is_empty() && request.body.len() <= *left {
        *left -= request.body.len();
        document["body"] = shown(&request.body);
    }
    document
}
