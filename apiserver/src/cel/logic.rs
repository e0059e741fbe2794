//! `&&`, `||`, `all` and `exists` with cel-go's rule for failures: a value that decides wins over an error before or after
//! it, and without one the first error is the result.
//!
//! (cel-go: `interpreter.evalAnd`, `evalOr`, `evalFold`.)

use kube_cel::cel::common::ast::Expr;
use kube_cel::cel::{Context, ExecutionError, FunctionContext, Value as CelValue};

use super::meter::{items, pay};
use super::rewrite::{ALL, AND, EXISTS, OR};

/// The terms of an operator or loop so far.
struct Terms {
    /// The value that decides.
    decisive: bool,
    failure: Option<ExecutionError>,
}

type Answer = Result<CelValue, ExecutionError>;

/// Adds the functions that rewritten expressions call.
pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function(AND, and);
    context.add_function(OR, or);
    context.add_function(ALL, all);
    context.add_function(EXISTS, exists);
}

// === impl Terms ===

impl Terms {
    fn new(decisive: bool) -> Self {
        Self {
            decisive,
            failure: None,
        }
    }

    /// Whether the next term decides.
    fn decides(&mut self, term: Answer) -> bool {
        let failure = match term {
            Ok(CelValue::Bool(value)) => return value == self.decisive,
            Ok(_) => ExecutionError::NoSuchOverload,
            Err(error) => error,
        };
        self.failure.get_or_insert(failure);
        false
    }

    /// The result if no term decided.
    fn result(self) -> Answer {
        match self.failure {
            Some(failure) => Err(failure),
            None => Ok(CelValue::Bool(!self.decisive)),
        }
    }
}

fn and(function: &FunctionContext<'_, '_>) -> Answer {
    operator(function, false)
}

fn or(function: &FunctionContext<'_, '_>) -> Answer {
    operator(function, true)
}

fn operator(function: &FunctionContext<'_, '_>, decisive: bool) -> Answer {
    let mut terms = Terms::new(decisive);
    for term in function.args {
        if terms.decides(function.ptx.resolve(term)) {
            return Ok(CelValue::Bool(decisive));
        }
    }
    terms.result()
}

fn all(function: &FunctionContext<'_, '_>) -> Answer {
    over_items(function, false)
}

fn exists(function: &FunctionContext<'_, '_>) -> Answer {
    over_items(function, true)
}

/// `@all(units, range, variable, predicate)`, and the same of `@exists`.
fn over_items(function: &FunctionContext<'_, '_>, decisive: bool) -> Answer {
    let [units, range, variable, predicate] = function.args else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let (CelValue::Int(units), Expr::Ident(variable)) =
        (function.ptx.resolve(units)?, &variable.expr)
    else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let mut terms = Terms::new(decisive);
    for item in items(function.ptx.resolve(range)?)? {
        pay(units.unsigned_abs())?;
        let mut scope = function.ptx.new_inner_scope();
        scope.add_variable_from_value(variable.as_str(), item);
        if terms.decides(scope.resolve(predicate)) {
            return Ok(CelValue::Bool(decisive));
        }
    }
    terms.result()
}
