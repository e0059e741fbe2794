//! Numbers: conversions, and arithmetic that fails instead of overflowing.
//!
//! (cel-go: `common/types/int.go`, `bool.go`; apiserver: `pkg/cel/library/lists.go`.)

use kube_cel::cel::extractors::This;
use kube_cel::cel::{Context, ExecutionError, FunctionContext, Value as CelValue, functions};

use super::rewrite::NEGATE;

/// The text of cel-go for a result that is out of range.
const OVERFLOW: &str = "integer overflow";
const UNSIGNED_OVERFLOW: &str = "unsigned integer overflow";

type Answer = Result<CelValue, ExecutionError>;

/// Adds the functions, in place of those of the crates.
pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function(NEGATE, negate);
    context.add_function("sum", sum);
    context.add_function("int", int);
    context.add_function("bool", bool);
}

/// `@negate(number)`.
fn negate(value: CelValue) -> Answer {
    match value {
        CelValue::Int(number) => number.checked_neg().map(CelValue::Int),
        CelValue::Float(number) => Some(CelValue::Float(-number)),
        CelValue::Duration(time) => Some(CelValue::Duration(-time)),
        _ => return Err(ExecutionError::NoSuchOverload),
    }
    .ok_or_else(|| ExecutionError::function_error(NEGATE, OVERFLOW))
}

fn sum(This(items): This<CelValue>) -> Answer {
    let CelValue::List(items) = items else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let mut items = items.iter().cloned();
    let first = items.next().unwrap_or(CelValue::Int(0));
    items.try_fold(first, plus)
}

fn plus(one: CelValue, other: CelValue) -> Answer {
    let (sum, why) = match (one, other) {
        (CelValue::Int(one), CelValue::Int(other)) => {
            (one.checked_add(other).map(CelValue::Int), OVERFLOW)
        }
        (CelValue::UInt(one), CelValue::UInt(other)) => (
            one.checked_add(other).map(CelValue::UInt),
            UNSIGNED_OVERFLOW,
        ),
        (CelValue::Float(one), CelValue::Float(other)) => {
            (Some(CelValue::Float(one + other)), OVERFLOW)
        }
        (CelValue::Duration(one), CelValue::Duration(other)) => {
            (one.checked_add(&other).map(CelValue::Duration), OVERFLOW)
        }
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    sum.ok_or_else(|| ExecutionError::function_error("sum", why))
}

/// Of a time the seconds since 1970, of a duration the nanoseconds.
fn int(function: &FunctionContext<'_, '_>, This(value): This<CelValue>) -> Answer {
    let overflow = || ExecutionError::function_error("int", OVERFLOW);
    match value {
        CelValue::Timestamp(time) => Ok(CelValue::Int(time.timestamp())),
        CelValue::Duration(time) => {
            let nanoseconds = time.num_nanoseconds().ok_or_else(overflow)?;
            Ok(CelValue::Int(nanoseconds))
        }
        CelValue::Float(number) if !number.is_finite() => Err(overflow()),
        value => functions::int(function, This(value)),
    }
}

/// Of a text as Go reads it. (Go: `strconv.ParseBool`.)
fn bool(This(value): This<CelValue>) -> Answer {
    let bool = match &value {
        CelValue::Bool(bool) => *bool,
        CelValue::String(text) => match text.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
            _ => {
                let why = "type conversion error from 'string' to 'bool'";
                return Err(ExecutionError::function_error("bool", why));
            }
        },
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    Ok(CelValue::Bool(bool))
}
