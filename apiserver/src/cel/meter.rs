//! The cost of an expression, counted during its evaluation: no rule keeps the server busy for long, whatever the
//! object.
//!
//! The interpreter of the `cel` crate has neither a budget nor a hook for one, so the parsed expression is rewritten
//! ([`rewrite`]) before it is stored:
//!
//! * each step of a loop costs as many units as its body has names, selections and calls;
//! * texts, lists and objects cost a tenth of their size where a function, an operator or a loop gets (and copies)
//!   them; functions that combine two of them cost the product, and those that compile a pattern cost that;
//! * `map` and `filter` collect into one list, where the interpreter copies the list for each item, and `a.b` becomes
//!   `a['b']`, which borrows where the interpreter copies all of `a`'s `b`.
//!
//! A unit is about one unit of cel-go, and the limits are Kubernetes'.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube_cel::cel::common::ast::{Expr, IdedExpr};
use kube_cel::cel::{Context, ExecutionError, FunctionContext, Value as CelValue};

use super::optionals::Optional;
use super::rewrite::{COLLECT, COMBINE, COPY, PAY, operand_name, rewrite};

/// Limit of one evaluation of one rule, in units. (apiserver: `cel.PerCallLimit`.)
pub(super) const PER_CALL: u64 = 1_000_000;

/// Limit of all rules for one object, in units. (apiserver: `cel.RuntimeCELCostBudget`.)
pub(super) const PER_OBJECT: u64 = 10_000_000;

/// The text of cel-go for an aborted evaluation.
pub(super) const TOO_COSTLY: &str = "operation cancelled: actual cost limit exceeded";

/// Bytes, items or fields of a copied value that cost one unit.
const COPIED_PER_UNIT: u64 = 10;

thread_local! {
    /// The remaining units of the evaluation on this thread; `None` when it exceeded them.
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// An expression that counts its cost.
#[derive(Debug)]
pub(super) struct Metered {
    expression: IdedExpr,
    /// The cost outside loops.
    base: u64,
}

/// The end of an evaluation.
pub(super) struct Outcome {
    /// The value or its error; `None` when the evaluation exceeded its limit and was aborted.
    pub(super) result: Option<Result<CelValue, ExecutionError>>,
    /// Its cost in units.
    pub(super) cost: u64,
}

// === impl Metered ===

impl Metered {
    /// Rewrites `expression`. Recurses as deep as the expression, so call it with enough stack.
    pub(super) fn new(expression: &IdedExpr) -> Self {
        let (expression, base) = rewrite(expression);
        Self { expression, base }
    }

    /// The rewritten expression.
    pub(super) fn expression(&self) -> &IdedExpr {
        &self.expression
    }

    /// Evaluates the expression within `limit`. `context` has the functions of [`add_functions`].
    pub(super) fn evaluate(&self, context: &Context<'_>, limit: u64) -> Outcome {
        LEFT.set(limit.checked_sub(self.base));
        // The interpreter is not ours: a panic must not end the connection, or the process.
        let resolve = AssertUnwindSafe(|| context.resolve(&self.expression));
        let result = catch_unwind(resolve)
            .unwrap_or_else(|_| Err(ExecutionError::function_error("", "internal error")));
        match LEFT.take() {
            Some(left) => Outcome {
                result: Some(result),
                cost: limit - left,
            },
            // An operator may have swallowed the error of the abort, so the result is invalid.
            None => Outcome {
                result: None,
                cost: limit,
            },
        }
    }

    /// Evaluates the expression as a part of the evaluation that runs on this thread, which pays for it.
    pub(super) fn evaluate_within(
        &self,
        context: &Context<'_>,
    ) -> Result<CelValue, ExecutionError> {
        pay(self.base)?;
        context.resolve(&self.expression)
    }
}

/// Adds the functions that rewritten expressions call.
pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function(PAY, pay_for_step);
    context.add_function(COPY, pay_for_copy);
    context.add_function(COLLECT, collect);
    context.add_function(COMBINE, combine);
}

// === paying ===

/// Charges `units` to the evaluation on this thread.
pub(super) fn pay(units: u64) -> Result<(), ExecutionError> {
    let left = LEFT.get().and_then(|left| left.checked_sub(units));
    LEFT.set(left);
    match left {
        Some(_) => Ok(()),
        None => Err(ExecutionError::function_error(PAY, TOO_COSTLY)),
    }
}

/// `@pay(units)`: true.
fn pay_for_step(units: i64) -> Result<bool, ExecutionError> {
    pay(units.unsigned_abs())?;
    Ok(true)
}

/// `@copy(value)`: the value.
fn pay_for_copy(value: CelValue) -> Result<CelValue, ExecutionError> {
    pay(size(&value) / COPIED_PER_UNIT)?;
    Ok(value)
}

/// `@collect(units, range, variable, element)`, with a condition as the fifth argument or without.
fn collect(function: &FunctionContext<'_, '_>) -> Result<CelValue, ExecutionError> {
    let [units, range, variable, element, condition @ ..] = function.args else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let (CelValue::Int(units), Expr::Ident(variable)) =
        (function.ptx.resolve(units)?, &variable.expr)
    else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let mut collected = Vec::new();
    for item in items(function.ptx.resolve(range)?)? {
        pay(units.unsigned_abs())?;
        let mut scope = function.ptx.new_inner_scope();
        scope.add_variable_from_value(variable.as_str(), item);
        let wanted = match condition.first() {
            None => true,
            Some(condition) => match scope.resolve(condition)? {
                CelValue::Bool(wanted) => wanted,
                _ => return Err(ExecutionError::NoSuchOverload),
            },
        };
        if wanted {
            collected.push(scope.resolve(element)?);
        }
    }
    Ok(CelValue::List(Arc::new(collected)))
}

/// The items of a list, or the keys of a map.
pub(super) fn items(range: CelValue) -> Result<Vec<CelValue>, ExecutionError> {
    match range {
        CelValue::List(items) => Ok(Arc::unwrap_or_clone(items)),
        CelValue::Map(map) => Ok(map.map.keys().map(CelValue::from).collect()),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

/// `@combine(call, operand, …)`: the call, whose operands are named `@0`, ….
fn combine(function: &FunctionContext<'_, '_>) -> Result<CelValue, ExecutionError> {
    let [inner, operands @ ..] = function.args else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let Expr::Call(named) = &inner.expr else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let mut scope = function.ptx.new_inner_scope();
    let mut sizes = Vec::with_capacity(operands.len());
    for (number, operand) in operands.iter().enumerate() {
        let value = function.ptx.resolve(operand)?;
        sizes.push(match (&value, named.func_name.as_str()) {
            (CelValue::Int(count), "range") => count.unsigned_abs(),
            (value, _) => size(value),
        });
        scope.add_variable_from_value(operand_name(number), value);
    }
    pay(match (named.func_name.as_str(), sizes.as_slice()) {
        // Each item is compared with each.
        ("distinct", [items, ..]) => items.saturating_mul(*items),
        // In the worst case the new text replaces each position of the whole.
        ("replace", [whole, _, new, ..]) => whole.saturating_mul(*new),
        (_, sizes) => sizes.iter().copied().fold(1, u64::saturating_mul),
    } / COPIED_PER_UNIT)?;
    scope.resolve(inner)
}

/// Bytes, items and fields of a value, recursively.
fn size(value: &CelValue) -> u64 {
    match value {
        CelValue::String(text) => text.len() as u64,
        CelValue::Bytes(bytes) => bytes.len() as u64,
        CelValue::List(items) => items.iter().map(size).sum::<u64>() + 1,
        CelValue::Map(map) => {
            let fields = map.map.values().map(|value| size(value) + 1);
            fields.sum::<u64>() + 1
        }
        CelValue::Opaque(opaque) => {
            let optional = opaque.downcast_ref::<Optional>();
            optional.and_then(Optional::inner).map_or(0, size) + 1
        }
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_cel::KubeCelExt;
    use kube_cel::cel::Program;

    fn context() -> Context<'static> {
        with_variable(super::super::evaluate::functions())
    }

    fn with_variable(mut context: Context<'static>) -> Context<'static> {
        let value = serde_json::json!({
            "a": {"b": {"c": 5}},
            "name": "some name",
            "numbers": [3, 1, 2],
            "rows": [{"n": 1, "on": true}, {"n": 2, "on": false}, {"n": 2, "on": true}],
            "labels": {"x": "y"},
        });
        let schema = crate::schema::Schema::default();
        let of = super::super::values::to_cel(&value, &schema, &context);
        context.add_variable_from_value("self", of);
        context
    }

    fn metered(text: &str) -> Metered {
        Metered::new(&super::super::compile::compile(text).unwrap())
    }

    #[test]
    fn what_counts_is_worth_what_it_was_written_as() {
        let context = context();
        let crates = with_variable(Context::default().with_all());
        for text in [
            "self.a.b.c == 5 && has(self.a.b) && !has(self.a.d)",
            "self.a.nothing",
            "!has(self.name) || self.name == 'x'",
            "self.name == 'x'",
            "self.name.nothing.c",
            "self['name'] + '!' == 'some name!'",
            "self.numbers.map(x, x * 2)",
            "self.rows.filter(r, r.on)",
            "self.rows.filter(r, r.on).map(r, r.n + size(self.name))",
            "self.rows.map(r, r.on, r.n)",
            "self.rows.filter(r, r.n)",
            "self.rows.map(r, r.nothing)",
            "self.labels.map(k, k)",
            "self.labels.all(k, self.labels[k].startsWith('y'))",
            "self.name.map(x, x)",
            "self.numbers.all(x, x > 0)",
            "self.numbers.exists(x, x == 2) || self.nothing",
            "self.nothing || self.numbers.exists(x, x == 2)",
            "self.rows.exists_one(r, r.n == 1)",
            "self.rows.all(r, self.rows.exists_one(s, s.n == r.n))",
            "[self.name, 'b'].join('-')",
            "self.name.replace('m', self.name)",
            "self.numbers.distinct().size() + self.numbers.sum()",
            "sets.contains(self.numbers, [1, 2])",
            "lists.range(4)",
            "self.name.contains('me') && self.name.matches('^s.*e$')",
            "self.name.find('n[a-z]+')",
            "3 in self.numbers ? self.numbers + [4] : []",
            "{'k': self.numbers, 'l': [self.name]}",
            "ip('10.0.0.1').family() == 4",
            "quantity('1Gi').isGreaterThan(quantity('1Mi'))",
            "duration('1h') < duration('2h')",
            "optional.of(self.name).orValue('x')",
        ] {
            let plain = Program::compile(text).unwrap().execute(&crates);
            let counted = metered(text).evaluate(&context, PER_CALL);
            let result = counted.result.expect("cheap enough");
            match (&plain, &result) {
                // Of a text the interpreter selects `false`.
                (Ok(CelValue::Bool(false)), Err(ExecutionError::NoSuchOverload)) => {}
                (Err(plain), Err(result)) => {
                    assert_eq!(plain.to_string(), result.to_string(), "{text}");
                }
                _ => assert_eq!(plain, result, "{text}"),
            }
            assert!(
                (1..3_000).contains(&counted.cost),
                "{text}: {}",
                counted.cost
            );
        }
    }

    #[test]
    fn a_loop_costs_by_its_steps_and_by_what_it_copies() {
        let mut context = context();
        let many = CelValue::List(Arc::new((0..1000).map(CelValue::Int).collect()));
        context.add_variable_from_value("many", many);
        let cost = |text: &str| metered(text).evaluate(&context, PER_CALL).cost;
        assert_eq!(cost("many.all(x, x >= 0)"), 2 + 100 + 1000 * 5);
        assert_eq!(cost("many.map(x, x)"), 2 + 100 + 1000 * 2);
        assert_eq!(cost("many.size() > 0"), 3 + 100);
        assert_eq!(cost("self.a.b.c"), 4);
    }

    #[test]
    fn loops_in_loops_are_rewritten_once() {
        let nested = (0..40).fold("true".to_owned(), |inner, at| {
            format!("[0].all(x{at}, {inner})")
        });
        // Twice the work at each level would not end.
        let outcome = metered(&nested).evaluate(&context(), PER_CALL);
        assert_eq!(outcome.result, Some(Ok(CelValue::Bool(true))));
    }

    #[test]
    fn what_costs_too_much_is_broken_off() {
        let mut context = context();
        let many = CelValue::List(Arc::new((0..2000).map(CelValue::Int).collect()));
        context.add_variable_from_value("many", many);
        let text = CelValue::String(Arc::new("x".repeat(1 << 20)));
        context.add_variable_from_value("text", text);
        let of = serde_json::json!({"big": "x".repeat(1 << 20)});
        let of = super::super::values::to_cel(&of, &crate::schema::Schema::default(), &context);
        context.add_variable_from_value("of", of);
        let doubled = "[text]".to_owned() + &".map(x, x + x)".repeat(8);
        for text in [
            "many.all(x, many.all(y, x + y >= 0))",
            "many.map(x, many.map(y, x + y)).size() > 0",
            "many.filter(x, many.filter(y, y == x).size() == 1).size() > 0",
            // An operator swallows the error of one side when the other is true.
            "many.all(x, many.all(y, x + y >= 0)) || true",
            "many.exists(x, many.all(y, x + y >= 0) && false || x < 0)",
            "many.all(x, text.contains(string(x)) || true)",
            "many.all(x, many.size() > 0 && many == many)",
            "lists.range(1000000000).size() > 0",
            "text.replace('', text).size() > 0",
            "many.map(x, string(x)).join(text).size() > 0",
            "[text].map(x, x).distinct().size() > 0",
            "many.all(x, of.?big.hasValue())",
            "many.all(x, of[?'big'].hasValue())",
            "many.all(x, of.?big.?nothing.hasValue() || true)",
            "[optional.of(many)].all(o, many.all(x, o == o))",
            &doubled,
        ] {
            let outcome = metered(text).evaluate(&context, 100_000);
            assert!(outcome.result.is_none(), "{text}: {}", outcome.cost);
            assert_eq!(outcome.cost, 100_000, "{text}");
        }
    }
}
