//! Conversions to texts that the interpreter does not have.

use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::{Context, ExecutionError, FunctionContext, Value as CelValue, functions};

/// Adds the functions, in place of those of the crates.
pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function("string", string);
}

fn string(
    function: &FunctionContext<'_, '_>,
    This(value): This<CelValue>,
) -> Result<CelValue, ExecutionError> {
    match value {
        CelValue::Bool(bool) => Ok(CelValue::String(Arc::new(bool.to_string()))),
        value => functions::string(function, This(value)),
    }
}
