//! PagerDuty: https://developer.pagerduty.com/docs/send-alert-event. The webhook: CloudEvents 1.0 in structured mode, and the
//! signature of https://www.standardwebhooks.com.

use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::server::{Checked, Posted, Reply, demand, is_current, is_signed, one_of, only, text};
use super::{BEARER, SIGNING};

/// PagerDuty accepts an event with 202; 400 is an event that it cannot process.
pub(super) fn pagerduty(posted: &Posted) -> Checked {
    let checked = demand(posted.path == "/v2/enqueue", "path")
        .and_then(|()| {
            demand(
                posted.body.len() <= 512 * 1024,
                "an event has at most 512 KB",
            )
        })
        .and_then(|()| posted.json("application/json"))
        .and_then(|event| pagerduty_event(&event));
    match checked {
        Ok(key) => {
            let answer =
                json!({"status": "success", "message": "Event processed", "dedup_key": key});
            Ok(Reply::json(StatusCode::ACCEPTED, &answer))
        }
        Err(why) => {
            let answer = json!({"status": "invalid event", "message": "Event object is invalid", "errors": [why]});
            Err(Reply::json(StatusCode::BAD_REQUEST, &answer))
        }
    }
}

/// The key of the alert.
fn pagerduty_event(event: &Value) -> Result<String, String> {
    let known = [
        "routing_key",
        "event_action",
        "dedup_key",
        "payload",
        "client",
        "client_url",
        "links",
        "images",
    ];
    only(event, &known)?;
    demand(
        text(event, "routing_key", 32)?.len() == 32,
        "length of 'routing_key' is incorrect",
    )?;
    let action = text(event, "event_action", 20)?;
    one_of(action, &["trigger", "acknowledge", "resolve"])?;
    if event.get("dedup_key").is_some() || action != "trigger" {
        text(event, "dedup_key", 255)?;
    }
    let payload = &event["payload"];
    let known = [
        "summary",
        "source",
        "severity",
        "timestamp",
        "component",
        "group",
        "class",
        "custom_details",
    ];
    only(payload, &known)?;
    text(payload, "summary", 1024)?;
    text(payload, "source", usize::MAX)?;
    one_of(
        text(payload, "severity", 20)?,
        &["critical", "error", "warning", "info"],
    )?;
    for optional in ["component", "group", "class"] {
        demand(payload.get(optional).is_none_or(Value::is_string), optional)?;
    }
    is_time(payload, "timestamp")?;
    demand(
        payload.get("custom_details").is_none_or(Value::is_object),
        "custom_details",
    )?;
    Ok(event["dedup_key"].as_str().unwrap_or("new").to_owned())
}

pub(super) fn webhook(posted: &Posted) -> Checked {
    if posted.header("authorization") != format!("Bearer {BEARER}") {
        return Err(Reply::text(
            StatusCode::UNAUTHORIZED,
            "another token is expected",
        ));
    }
    let checked = posted
        .json("application/cloudevents+json")
        .and_then(|event| {
            cloud_event(&event)?;
            demand(
                posted.header("webhook-id") == event["id"],
                "webhook-id is the id of the event",
            )
        });
    checked.map_err(|why| Reply::text(StatusCode::BAD_REQUEST, &why))?;
    if !webhook_is_signed(posted) {
        return Err(Reply::text(
            StatusCode::UNAUTHORIZED,
            "the signature is wrong",
        ));
    }
    Ok(Reply::text(StatusCode::NO_CONTENT, ""))
}

/// Libraries of Standard Webhooks allow five minutes.
fn webhook_is_signed(posted: &Posted) -> bool {
    let (id, time) = (
        posted.header("webhook-id"),
        posted.header("webhook-timestamp"),
    );
    let seconds: i64 = time.parse().unwrap_or_default();
    let mut signed = format!("{id}.{time}.").into_bytes();
    signed.extend(&posted.body);
    let mut signatures = posted.header("webhook-signature").split(' ');
    is_current(seconds.saturating_mul(1000), 300)
        && signatures.any(|one| {
            let one = one.strip_prefix("v1,").unwrap_or_default();
            is_signed(one, SIGNING.as_bytes(), &signed)
        })
}

fn cloud_event(event: &Value) -> Result<(), String> {
    let object = event.as_object().ok_or("an object is expected")?;
    for (name, value) in object {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        demand(
            name.chars().all(plain),
            format!("{name} is no name of an attribute"),
        )?;
        let fits = value.as_str().is_none_or(|text| !text.is_empty());
        demand(fits && !value.is_null(), format!("{name} is empty"))?;
        let scalar = value.is_string() || value.is_i64() || value.is_boolean();
        demand(name == "data" || scalar, format!("{name} is no scalar"))?;
    }
    demand(event["specversion"] == "1.0", "specversion")?;
    for required in ["id", "type"] {
        text(event, required, usize::MAX)?;
    }
    let source = text(event, "source", usize::MAX)?;
    demand(source.parse::<http::Uri>().is_ok(), "source is a reference")?;
    if event.get("subject").is_some() {
        text(event, "subject", usize::MAX)?;
    }
    one_of(text(event, "datacontenttype", 40)?, &["application/json"])?;
    is_time(event, "time")
}

/// A time of RFC 3339.
fn is_time(value: &Value, key: &str) -> Result<(), String> {
    let time = text(value, key, 40)?;
    demand(
        time.parse::<Timestamp>().is_ok(),
        format!("{key} is no time"),
    )
}
