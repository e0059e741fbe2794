//! One write, and the owners that it leaves.

use serde_json::Value;

use super::conversions::Conversions;
use super::kinds::{Known, known};
use crate::apply::{ApplyError, Merge, Operation};
use crate::core::Core;
use crate::meta;
use crate::request::Request;
use crate::resource::ResourceInfo;
use crate::status::{Details, Status};

/// The greatest length of a manager's name, in bytes.
const LONGEST_MANAGER: usize = 128;

/// Follows ownership through one write.
pub(crate) struct Writer<'a> {
    known: Option<Known>,
    info: &'a ResourceInfo,
    subresource: &'a str,
    manager: String,
    now: String,
}

/// The manager of what a real kube-apiserver writes by itself.
pub(crate) const API_SERVER: &str = "kube-apiserver";
/// The manager of what the controllers of a real cluster write.
pub(crate) const CONTROLLERS: &str = "kube-controller-manager";

/// The manager of a request: the one that it names, or the program that sends it.
fn manager(request: &Request) -> String {
    match request.query.get("fieldManager") {
        Some(named) if !named.is_empty() => named.to_owned(),
        _ => of_agent(&request.agent),
    }
}

/// The part of a user agent before the first slash, without what cannot be printed.
fn of_agent(agent: &str) -> String {
    let mut manager = String::new();
    let program = agent.split('/').next().unwrap_or_default();
    for character in program.chars().filter(|character| !character.is_control()) {
        if manager.len() + character.len_utf8() > LONGEST_MANAGER {
            break;
        }
        manager.push(character);
    }
    manager
}

// === impl Writer ===

impl<'a> Writer<'a> {
    /// The writer of a request.
    pub(crate) fn new(core: &Core, request: &'a Request) -> Self {
        Self {
            known: known(core, &request.info, &request.subresource),
            info: &request.info,
            subresource: &request.subresource,
            manager: manager(request),
            now: request.time(),
        }
    }

    /// A writer of the server itself.
    pub(crate) fn internal(
        core: &Core,
        info: &'a ResourceInfo,
        subresource: &'a str,
        manager: &str,
    ) -> Self {
        Self {
            known: known(core, info, subresource),
            info,
            subresource,
            manager: manager.to_owned(),
            now: meta::time(core.clock.now()),
        }
    }

    /// Sets the managedFields of `new`, which is written over `old`. Both are in the stored form. Objects that do not fit
    /// the present type keep the owners they have: they were stored under an earlier one.
    pub(crate) fn record(&self, old: &Value, new: &mut Value) {
        let typed = |stored: &Value| {
            let mut object = stored.clone();
            let map = meta::object_mut(&mut object);
            map.insert("apiVersion".to_owned(), self.info.api_version().into());
            map.insert("kind".to_owned(), self.info.kind.clone().into());
            object
        };
        if let Some(managers) = self.update(Some(&typed(old)), &typed(new)) {
            meta::metadata_mut(new).insert("managedFields".to_owned(), managers);
        }
    }

    /// `managedFields` after a write of `new` over `live`; `live` is `None` for a creation. Both have the form of the
    /// request's version.
    pub(crate) fn update(&self, live: Option<&Value>, new: &Value) -> Option<Value> {
        let known = self.known.as_ref()?;
        self.operation(known)
            .update(live.unwrap_or(&known.empty), new)
    }

    /// [`Writer::update`] of objects without managedFields, which are apart: those of `live`, and those that were `sent`.
    pub(crate) fn update_apart(
        &self,
        live: Option<(&Value, &Value)>,
        new: &Value,
        sent: &Value,
    ) -> Option<Value> {
        let known = self.known.as_ref()?;
        let (live, of_live) = live.unwrap_or((&known.empty, &Value::Null));
        self.operation(known).update_apart(live, of_live, new, sent)
    }

    /// What an apply to `live` makes of it.
    ///
    /// # Errors
    /// 400 for an object of another type, 409 for conflicts, 500 for one that does not fit the type.
    pub(crate) fn apply(
        &self,
        live: Option<&Value>,
        applied: &Value,
        force: bool,
    ) -> Result<Merge, Status> {
        let Some(known) = self.known.as_ref() else {
            return Err(Status::internal_text(format!(
                "no corresponding type for {}, Kind={}",
                self.info.api_version(),
                self.info.kind
            )));
        };
        self.operation(known)
            .apply(live.unwrap_or(&known.empty), applied, force)
            .map_err(refused)
    }

    /// The conversions by a webhook that [`Writer::update`] and [`Writer::apply`] lacked: their results count only if
    /// none was missing.
    pub(crate) fn conversions(&self) -> Option<&Conversions> {
        self.known.as_ref()?.conversions.as_deref()
    }

    fn operation<'b>(&'b self, known: &'b Known) -> Operation<'b> {
        let (api_version, kind) = (&known.empty["apiVersion"], &known.empty["kind"]);
        Operation {
            of: &known.kind,
            api_version: api_version.as_str().unwrap_or_default(),
            kind: kind.as_str().unwrap_or_default(),
            subresource: self.subresource,
            manager: &self.manager,
            now: &self.now,
            empty: &known.empty,
        }
    }
}

/// The answer to an apply that was refused.
fn refused(error: ApplyError) -> Status {
    let message = error.to_string();
    match error {
        ApplyError::Malformed(_) => Status::bad_request(message),
        ApplyError::Unprocessable(_) => Status::internal_text(message),
        ApplyError::Conflicts(conflicts) => {
            let status = Status::new(409, "Conflict", message).with_details(Details::default());
            conflicts.iter().fold(status, |status, conflict| {
                status.with_cause("FieldManagerConflict", conflict.field(), conflict.cause())
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_of_a_program_is_its_name() {
        assert_eq!(of_agent("kubectl/v1.36.0 (linux)"), "kubectl");
        assert_eq!(of_agent("a\u{7}b"), "ab");
        assert_eq!(of_agent(""), "");
        assert_eq!(of_agent(&"é".repeat(100)), "é".repeat(64));
    }
}
