//! The paths of the control API and their methods.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::call::{Answer, Call, Failure};
use super::form::{Seconds, Switches, UpTo};
use super::{requests, snapshots};
use crate::faults::{RuleForm, RuleState};
use crate::status::Status;

/// Maximum number of rules.
const MOST_RULES: usize = 1_000;
/// Time for the answer to reach the client before an outage begins.
const BEFORE_OUTAGE: Duration = Duration::from_millis(100);

/// Answers a call.
pub(super) async fn answer(mut call: Call<'_>) -> Answer {
    let path = call.path.clone();
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let method = call.method.clone();
    match (path.as_slice(), &method) {
        ([], &Method::GET) => summary(&mut call),
        (["faults"], &Method::GET) => list_faults(&mut call),
        (["faults"], &Method::POST) => add_fault(&mut call),
        (["faults"], &Method::DELETE) => clear_faults(&mut call),
        (["faults", id], &Method::GET) => one_fault(&mut call, id),
        (["faults", id], &Method::DELETE) => remove_fault(&mut call, id),
        (["switches"], &Method::GET) => {
            call.no_options()?;
            Ok((200, switches(&call)))
        }
        (["switches"], &Method::PATCH) => set_switches(&mut call),
        (["requests"], &Method::GET) => requests::list(&call).await,
        (["requests"], &Method::DELETE) => requests::clear(&mut call),
        (["watches"], &Method::DELETE) => close_watches(&mut call),
        (["snapshots"], &Method::GET) => snapshots::list(&mut call),
        (["snapshots", _], &Method::PUT) => snapshots::take(&mut call),
        (["snapshots", _], &Method::DELETE) => snapshots::delete(&mut call),
        (["snapshots", _, "restore"], &Method::POST) => snapshots::restore(&mut call),
        (["reset"], &Method::POST) => snapshots::reset(&mut call),
        (["clock"], &Method::GET) => {
            call.no_options()?;
            Ok((200, clock(&call)))
        }
        (["clock", "advance"], &Method::POST) => advance(&mut call),
        (["history", "compact"], &Method::POST) => {
            let version = up_to(&mut call)?;
            call.core.store.compact(version.unwrap_or(u64::MAX));
            Ok((200, json!({})))
        }
        (["history", "forget"], &Method::POST) => {
            let version = up_to(&mut call)?;
            call.core.store.forget(version.unwrap_or(u64::MAX));
            Ok((200, json!({})))
        }
        (["outage"], &Method::POST) => begin_outage(&mut call),
        (path, _) => Err(match methods(path) {
            Some(methods) => Failure::Method(methods),
            None => Status::new(
                404,
                "NotFound",
                format!(
                    "the control API has no path /{}; GET /reeve/v1 lists its paths",
                    path.join("/")
                ),
            )
            .into(),
        }),
    }
}

/// The methods of a path; `None` for one that does not exist.
fn methods(path: &[&str]) -> Option<&'static str> {
    Some(match path {
        [] | ["clock" | "snapshots"] => "GET",
        ["faults"] => "GET, POST, DELETE",
        ["faults", _] => "GET, DELETE",
        ["switches"] => "GET, PATCH",
        ["requests"] => "GET, DELETE",
        ["watches"] => "DELETE",
        ["snapshots", _] => "PUT, DELETE",
        ["snapshots", _, "restore"]
        | ["reset" | "outage"]
        | ["clock", "advance"]
        | ["history", "compact" | "forget"] => "POST",
        _ => return None,
    })
}

/// The paths, for readers.
const PATHS: [&str; 14] = [
    "/reeve/v1/clock",
    "/reeve/v1/clock/advance",
    "/reeve/v1/faults",
    "/reeve/v1/faults/{id}",
    "/reeve/v1/history/compact",
    "/reeve/v1/history/forget",
    "/reeve/v1/outage",
    "/reeve/v1/requests",
    "/reeve/v1/reset",
    "/reeve/v1/snapshots",
    "/reeve/v1/snapshots/{name}",
    "/reeve/v1/snapshots/{name}/restore",
    "/reeve/v1/switches",
    "/reeve/v1/watches",
];

fn summary(call: &mut Call<'_>) -> Answer {
    call.no_options()?;
    let core = call.core;
    Ok((
        200,
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "resourceVersion": core.store.revision().to_string(),
            "faults": core.faults.all().len(),
            "requests": core.record.select(&crate::record::Filter::default(), 0).0,
            "snapshots": call.control.snapshots.lock().named.len(),
            "clock": clock(call),
            "paths": PATHS,
        }),
    ))
}

fn list_faults(call: &mut Call<'_>) -> Answer {
    call.no_options()?;
    let rules = call.core.faults.all();
    let items: Vec<Value> = rules.iter().filter_map(rule).collect();
    Ok((200, json!({"items": items})))
}

fn add_fault(call: &mut Call<'_>) -> Answer {
    call.parameters(&[])?;
    let form: RuleForm = call.body()?;
    let added = form.rule().map_err(Status::bad_request)?;
    let faults = &call.core.faults;
    if faults.all().len() >= MOST_RULES {
        let text = format!("there are {MOST_RULES} rules already: delete some");
        return Err(Status::new(422, "Invalid", text).into());
    }
    let id = faults.add(added).id();
    let added = faults.all().into_iter().find(|one| one.id == id);
    let document = added.as_ref().and_then(rule);
    // Another client may have cleared the rules meanwhile.
    Ok((
        201,
        document.unwrap_or_else(|| json!({"id": id.to_string()})),
    ))
}

fn clear_faults(call: &mut Call<'_>) -> Answer {
    call.no_options()?;
    call.core.faults.clear();
    Ok((200, json!({})))
}

fn one_fault(call: &mut Call<'_>, id: &str) -> Answer {
    call.no_options()?;
    let all = call.core.faults.all();
    let found = all.iter().find(|one| one.id.to_string() == id);
    Ok((200, found.and_then(rule).ok_or_else(|| no_rule(id))?))
}

fn remove_fault(call: &mut Call<'_>, id: &str) -> Answer {
    call.no_options()?;
    let removed = id.parse().ok().and_then(|id| call.core.faults.remove(id));
    let document = removed.as_ref().and_then(rule);
    Ok((200, document.ok_or_else(|| no_rule(id))?))
}

fn no_rule(id: &str) -> Status {
    Status::new(404, "NotFound", format!("there is no rule {id:?}"))
}

/// A rule with its counts.
fn rule(state: &RuleState) -> Option<Value> {
    Some(json!({
        "id": state.id.to_string(),
        "rule": RuleForm::of(&state.rule)?,
        "seen": state.seen,
        "hits": state.hits,
    }))
}

fn switches(call: &Call<'_>) -> Value {
    json!({
        "bookmarks": call.core.faults.sends_bookmarks(),
        "streamingLists": call.core.streaming_lists(),
    })
}

fn set_switches(call: &mut Call<'_>) -> Answer {
    call.parameters(&[])?;
    let wanted: Switches = call.body()?;
    let faults = &call.core.faults;
    if let Some(on) = wanted.bookmarks {
        faults.stop_bookmarks(!on);
    }
    if let Some(on) = wanted.streaming_lists {
        if on && !call.core.options.streaming_lists {
            let text = "streamingLists: the server was started without them";
            return Err(Status::new(422, "Invalid", text).into());
        }
        faults.refuse_streaming_lists(!on);
    }
    Ok((200, switches(call)))
}

fn close_watches(call: &mut Call<'_>) -> Answer {
    call.no_options()?;
    call.core.close_watches();
    Ok((200, json!({})))
}

fn clock(call: &Call<'_>) -> Value {
    json!({
        "now": call.core.clock.now().to_string(),
        "advancedSeconds": call.control.advanced.lock().as_secs_f64(),
    })
}

fn advance(call: &mut Call<'_>) -> Answer {
    call.parameters(&[])?;
    let seconds: Seconds = call.body()?;
    let by = seconds.to_advance()?;
    {
        let core = call.core;
        let mut advanced = call.control.advanced.lock();
        let before = core.clock.now();
        core.clock.suspend(by);
        if core.clock.now().duration_since(before).unsigned_abs() < by {
            let text = "the clock of this server is that of the machine: it cannot be advanced";
            return Err(Status::new(422, "Invalid", text).into());
        }
        core.store.age(by);
        *advanced = advanced.saturating_add(by);
    }
    Ok((200, clock(call)))
}

fn up_to(call: &mut Call<'_>) -> Result<Option<u64>, Status> {
    call.parameters(&[])?;
    call.body::<UpTo>()?.version()
}

fn begin_outage(call: &mut Call<'_>) -> Answer {
    call.parameters(&[])?;
    let seconds: Seconds = call.body()?;
    let lasts = seconds.of_outage()?;
    let mut outage = call.control.outage.lock();
    if outage.as_ref().is_some_and(|task| !task.is_finished()) {
        let text = "an outage is about to begin already";
        return Err(Status::new(409, "Conflict", text).into());
    }
    // The task ends with the server, which owns the control.
    let core = Arc::downgrade(call.core);
    *outage = Some(tokio::spawn(async move {
        sleep(BEFORE_OUTAGE).await;
        if let Some(core) = core.upgrade() {
            core.go_down();
        }
        sleep(lasts).await;
        if let Some(core) = core.upgrade() {
            core.come_up();
        }
    }));
    let begins = BEFORE_OUTAGE.as_secs_f64();
    Ok((
        202,
        json!({"beginsInSeconds": begins, "seconds": lasts.as_secs_f64()}),
    ))
}
