//! Optional values: `a.?b`, `a[?b]`, `optional.of(a)` and their functions.
//!
//! The interpreter has a type of its own for them, whose values are equal to nothing and lose their wrapper when they are
//! copied. This type is used in its place. (cel-go: `common/types/optional.go`, `cel/library.go`.)

use std::borrow::Cow;
use std::sync::Arc;

use kube_cel::cel::common::types::{CelString, MAP_TYPE};
use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::{Opaque, OptionalValue};
use kube_cel::cel::{Context, ExecutionError, FunctionContext, Value as CelValue};

use super::equality::{equal, key, member};
use super::rewrite::{OPTIONAL_INDEX, UNWRAP};

/// A value, or none.
#[derive(Debug)]
pub(super) struct Optional(Option<CelValue>);

type Answer = Result<CelValue, ExecutionError>;

/// Adds the functions, in place of those of the crates.
pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function(OPTIONAL_INDEX, index);
    context.add_function(UNWRAP, unwrap);
    context.add_function("optional.none", none);
    context.add_function("optional.of", of);
    context.add_function("optional.ofNonZeroValue", of_non_zero_value);
    context.add_function("value", value);
    context.add_function("hasValue", has_value);
    context.add_function("or", or);
    context.add_function("orValue", or_value);
}

// === impl Optional ===

impl Optional {
    pub(super) fn of(value: CelValue) -> CelValue {
        CelValue::Opaque(Arc::new(Self(Some(value))))
    }

    pub(super) fn none() -> CelValue {
        CelValue::Opaque(Arc::new(Self(None)))
    }
}

impl Optional {
    pub(super) fn inner(&self) -> Option<&CelValue> {
        self.0.as_ref()
    }
}

impl PartialEq for Optional {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => equal(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

impl Eq for Optional {}

impl Opaque for Optional {
    fn runtime_type_name(&self) -> &str {
        "optional_type"
    }
}

fn optional(value: &CelValue) -> Result<&Option<CelValue>, ExecutionError> {
    match value {
        CelValue::Opaque(opaque) => opaque.downcast_ref::<Optional>(),
        _ => None,
    }
    .map(|optional| &optional.0)
    .ok_or(ExecutionError::NoSuchOverload)
}

/// `@optional_index(value, key)`: the member of a list, a map or an optional one, or none. Of a map that a variable has, only
/// the member is copied.
fn index(function: &FunctionContext<'_, '_>) -> Answer {
    let [of, at] = function.args else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let at = function.ptx.resolve(at)?;
    let of = CelValue::resolve_val(of, function.ptx)?;
    if let (Cow::Borrowed(map), CelValue::String(name)) = (&of, &at)
        && map.get_type() == MAP_TYPE
        && let Some(map) = map.as_indexer()
    {
        let name = CelString::from(name.as_str());
        return Ok(match map.get(&name) {
            Ok(member) => Optional::of(member.as_ref().try_into()?),
            Err(_) => Optional::none(),
        });
    }
    member_of(of.as_ref().try_into()?, at)
}

fn member_of(of: CelValue, at: CelValue) -> Answer {
    let of = match optional(&of) {
        Ok(None) => return Ok(Optional::none()),
        Ok(Some(inner)) => inner,
        Err(_) => &of,
    };
    let found = match (of, &at) {
        (CelValue::Map(map), at) => key(at).and_then(|key| member(map, &key)),
        (CelValue::List(items), at) => {
            let at = match at {
                CelValue::Int(at) => usize::try_from(*at).ok(),
                CelValue::UInt(at) => usize::try_from(*at).ok(),
                _ => return Err(ExecutionError::NoSuchOverload),
            };
            at.and_then(|at| items.get(at))
        }
        // (cel-go: `refQualify`, a test for presence.)
        _ => None,
    };
    Ok(found.cloned().map_or_else(Optional::none, Optional::of))
}

/// `@unwrap(value)`: an element `?a` or a member `?'k': a` in the type that the interpreter leaves out if it is none.
fn unwrap(value: CelValue) -> Answer {
    let value = match optional(&value)? {
        Some(inner) => OptionalValue::of(inner.clone()),
        None => OptionalValue::none(),
    };
    Ok(CelValue::Opaque(Arc::new(value)))
}

fn none() -> Answer {
    Ok(Optional::none())
}

fn of(value: CelValue) -> Answer {
    Ok(Optional::of(value))
}

fn of_non_zero_value(value: CelValue) -> Answer {
    Ok(if value.is_zero() {
        Optional::none()
    } else {
        Optional::of(value)
    })
}

fn value(This(of): This<CelValue>) -> Answer {
    let inner = optional(&of)?.clone();
    inner.ok_or_else(|| ExecutionError::function_error("value", "optional.none() dereference"))
}

fn has_value(This(of): This<CelValue>) -> Answer {
    Ok(CelValue::Bool(optional(&of)?.is_some()))
}

fn or(This(of): This<CelValue>, other: CelValue) -> Answer {
    if optional(&of)?.is_some() {
        return Ok(of);
    }
    optional(&other)?;
    Ok(other)
}

fn or_value(This(of): This<CelValue>, other: CelValue) -> Answer {
    Ok(optional(&of)?.clone().unwrap_or(other))
}
