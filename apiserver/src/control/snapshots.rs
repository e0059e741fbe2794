//! Snapshots of objects and custom kinds, by name, and the way back to them.

use serde_json::{Value, json};

use super::call::{Answer, Call};
use crate::restore::RestoreError;
use crate::status::Status;
use crate::template::Template;

/// Maximum number of snapshots.
const MOST: usize = 100;
const LONGEST_NAME: usize = 63;

/// `GET snapshots`
pub(super) fn list(call: &mut Call<'_>) -> Answer {
    call.no_options()?;
    let snapshots = call.control.snapshots.lock();
    let items: Vec<Value> = snapshots
        .named
        .iter()
        .map(|(name, template)| document(name, template))
        .collect();
    Ok((200, json!({"items": items})))
}

/// `PUT snapshots/NAME`: the state now, in place of a former snapshot of that name.
pub(super) fn take(call: &mut Call<'_>) -> Answer {
    call.no_options()?;
    let name = call.path[1].clone();
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.len() > LONGEST_NAME || !name.chars().all(is_legal) {
        return Err(Status::bad_request(format!(
            "the name of a snapshot has at most {LONGEST_NAME} letters, digits, dashes, dots and underscores"
        ))
        .into());
    }
    let mut snapshots = call.control.snapshots.lock();
    let is_new = !snapshots.named.contains_key(&name);
    if is_new && snapshots.named.len() >= MOST {
        let text = format!("there are {MOST} snapshots already: delete one");
        return Err(Status::new(422, "Invalid", text).into());
    }
    let template = Template::of(call.core);
    let answer = document(&name, &template);
    snapshots.named.insert(name, template);
    Ok((if is_new { 201 } else { 200 }, answer))
}

/// `DELETE snapshots/NAME`
pub(super) fn delete(call: &mut Call<'_>) -> Answer {
    call.no_options()?;
    let name = &call.path[1];
    let removed = call.control.snapshots.lock().named.remove(name);
    let removed = removed.ok_or_else(|| absent(name))?;
    Ok((200, document(name, &removed)))
}

/// `POST snapshots/NAME/restore`
pub(super) fn restore(call: &mut Call<'_>) -> Answer {
    call.no_options()?;
    let name = &call.path[1];
    let found = call.control.snapshots.lock().named.get(name).cloned();
    go_back(call, &found.ok_or_else(|| absent(name))?)
}

/// `POST reset`: the state after the start, without faults and without recorded requests.
pub(super) fn reset(call: &mut Call<'_>) -> Answer {
    call.no_options()?;
    call.core.faults.clear();
    let start = call.control.snapshots.lock().start.clone();
    let answer = go_back(call, &start)?;
    call.core.record.clear();
    Ok(answer)
}

fn go_back(call: &Call<'_>, template: &Template) -> Answer {
    match template.restore(call.core) {
        Ok(written) => {
            let version = call.core.store.revision().to_string();
            Ok((200, json!({"written": written, "resourceVersion": version})))
        }
        Err(error @ RestoreError::Raced(_)) => {
            Err(Status::new(409, "Conflict", error.to_string()).into())
        }
        Err(error) => Err(Status::internal(error.to_string()).into()),
    }
}

fn document(name: &str, template: &Template) -> Value {
    json!({"name": name, "resourceVersion": template.resource_version().to_string()})
}

fn absent(name: &str) -> Status {
    Status::new(
        404,
        "NotFound",
        format!("there is no snapshot {name:?}: make it with PUT /reeve/v1/snapshots/{name}"),
    )
}
