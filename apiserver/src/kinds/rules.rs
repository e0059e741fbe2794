//! The rules of kinds at each step of a write.

use serde_json::Value;

use super::claims::Claim;
use super::strategy::Context;
use super::{addresses, defaults, immutable};
use crate::core::Core;
use crate::definitions;
use crate::field::Errors;
use crate::meta;
use crate::request::Request;
use crate::resource::ResourceInfo;
use crate::status::Status;
use crate::store::Object;

fn context(request: &Request) -> Context<'_> {
    Context {
        info: &request.info,
        subresource: &request.subresource,
        user: &request.user,
        now: request.now,
    }
}

/// Allocates the values that are unique to one object, and claims them; `None` for a kind that has none.
///
/// # Errors
/// 422 for a value that another object has; 500 when no value is left.
pub(crate) fn allocate(
    core: &Core,
    request: &Request,
    old: Option<&Value>,
    object: &mut Value,
) -> Result<Option<Claim>, Status> {
    if request.info.strategy.claims_addresses() && request.subresource.is_empty() {
        return addresses::allocate(core, request, old, object).map(Some);
    }
    Ok(None)
}

/// Sets the fields of a new object that the client cannot choose. The status of a kind with the subresource is one.
pub(crate) fn before_create(request: &Request, object: &mut Value) {
    let info = &request.info;
    if info.status && !info.strategy.keeps_status() {
        meta::object_mut(object).remove("status");
    }
    info.strategy.prepare_create(&context(request), object);
}

/// Restores the fields that an update may not change from the `old` object, before defaults are set.
pub(crate) fn before_update(request: &Request, old: &Value, new: &mut Value) {
    request
        .info
        .strategy
        .prepare_update(&context(request), old, new);
}

/// A stored object in the form in which it would be stored now: an earlier release kept fields that are dropped now.
fn canonical(info: &ResourceInfo, stored: &Value) -> Value {
    let mut object = stored.clone();
    if let Some(schema) = info.structural() {
        schema.prune(&mut object);
    }
    defaults::set(info, &mut object);
    object
}

/// Checks an object by the rules of its kind.
pub(crate) fn validate(request: &Request, object: &Value, old: Option<&Value>) -> Errors {
    let mut errors = Errors::new();
    let info = &*request.info;
    if matches!(request.subresource.as_str(), "status" | "approval")
        && info.storage != definitions::STORAGE
    {
        // The spec did not change, and was checked when it was written.
        info.strategy
            .validate_status(object, old.unwrap_or(&Value::Null), &mut errors);
        return errors;
    }
    let former = old.filter(|_| info.strategy.checks_spec());
    if former.is_some_and(|old| object.get("spec") == old.get("spec")) {
        return errors;
    }
    let former = former.map(|old| canonical(info, old));
    let is_unchanged = |old: &Value| {
        let is_same = |new: &Value| immutable::is_same(&new["spec"], &old["spec"]);
        is_same(object) || is_same(&canonical(info, object))
    };
    if former.as_ref().is_some_and(is_unchanged) {
        // It was checked when it was written, perhaps by an earlier release with fewer rules.
        return errors;
    }
    let check = |object: &Value, old: Option<&Value>| {
        let mut errors = Errors::new();
        let context = context(request);
        info.strategy.validate(&context, object, old, &mut errors);
        errors
    };
    errors = check(object, former.as_ref().or(old));
    let Some(old) = old.filter(|_| !errors.is_empty() && !info.custom) else {
        return errors;
    };
    // What is stored may have another form, and problems that an earlier release did not see. Those do not count.
    let old = former.unwrap_or_else(|| canonical(info, old));
    let stored = check(&old, Some(&old));
    errors = check(&canonical(info, object), Some(&old));
    errors.retain(|error| !stored.contains(error));
    errors
}

/// Whether a stored write has effects besides the stored object.
pub(crate) fn has_effects(info: &ResourceInfo) -> bool {
    info.storage == definitions::STORAGE
}

/// Applies the effects of a stored write; `new` is `None` for a removal.
pub(crate) fn after_write(
    core: &Core,
    info: &ResourceInfo,
    old: Option<&Object>,
    new: Option<&Object>,
) {
    definitions::after_write(core, info, old, new);
}
