//! Conversions to texts, and their sizes, as cel-go makes them.

use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};

use super::{crates, times};

type Answer = Result<CelValue, ExecutionError>;

/// Adds the functions, in place of those of the crates.
pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function("string", string);
    context.add_function("size", size);
}

/// Of addresses and ranges of addresses, too, whose types only the crates have.
fn string(This(value): This<CelValue>) -> Answer {
    let text = match value {
        CelValue::Bool(bool) => bool.to_string(),
        CelValue::Timestamp(time) => times::text(&time.to_rfc3339()),
        CelValue::Duration(time) => times::seconds(
            time.num_nanoseconds()
                .ok_or_else(|| ExecutionError::function_error("string", "duration overflow"))?,
        ),
        CelValue::Bytes(bytes) => String::from_utf8(bytes.to_vec()).map_err(|_| {
            let why = "invalid UTF-8 in bytes, cannot convert to string";
            ExecutionError::function_error("string", why)
        })?,
        value => return crates::call("string", value),
    };
    Ok(CelValue::String(Arc::new(text)))
}

/// Of a text the number of its characters.
fn size(This(value): This<CelValue>) -> Answer {
    let size = match value {
        CelValue::String(text) => text.chars().count(),
        CelValue::Bytes(bytes) => bytes.len(),
        CelValue::List(items) => items.len(),
        CelValue::Map(map) => map.map.len(),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    Ok(CelValue::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}
