//! Expressions about a write: conditions of webhooks, and policies.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};
use serde_json::Value;

use super::authorizer::Authorizer;
use super::compile::{compile_then, on_deep_stack};
use super::evaluate::{FUNCTIONS, explain};
use super::meter::{self, Metered};
use super::rule::{Compiled, DEEP};

/// Limit of all conditions of a webhook, in units. (apiserver: `cel.RuntimeCELCostBudgetMatchConditions`.)
const CONDITIONS: u64 = 2_500_000;

/// A named expression that must be true.
#[derive(Debug)]
pub(crate) struct Condition {
    expression: Expression,
}

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Expression {
    text: String,
    program: Result<Metered, String>,
    is_deep: bool,
}

/// The variables of an expression about a write.
#[derive(Clone, Debug)]
pub(crate) struct Variables<'a> {
    pub(crate) object: Option<&'a Value>,
    pub(crate) old_object: Option<&'a Value>,
    /// The request of an AdmissionReview, without objects.
    pub(crate) request: &'a Value,
    pub(crate) authorizer: Authorizer,
}

// === impl Condition ===

impl Condition {
    /// Reads `matchConditions`.
    pub(crate) fn read_all(conditions: &Value) -> Vec<Self> {
        let conditions = conditions.as_array().into_iter().flatten();
        conditions
            .map(|condition| Self {
                expression: Expression::compile(
                    condition["expression"].as_str().unwrap_or_default(),
                ),
            })
            .collect()
    }

    /// Whether all `conditions` are true. One that is false decides, even if others fail.
    ///
    /// # Errors
    /// Why conditions could not be evaluated, if none of the others is false.
    pub(crate) fn all_hold(conditions: &[Self], variables: &Variables<'_>) -> Result<bool, String> {
        let evaluate = || evaluate_all(conditions, variables);
        if Self::are_deep(conditions) {
            on_deep_stack(evaluate)?
        } else {
            evaluate()
        }
    }

    /// Whether the evaluation needs a large stack, and so a thread that it waits for.
    pub(crate) fn are_deep(conditions: &[Self]) -> bool {
        conditions.iter().any(|one| one.expression.is_deep)
    }
}

fn evaluate_all(conditions: &[Condition], variables: &Variables<'_>) -> Result<bool, String> {
    let mut budget = CONDITIONS;
    let mut failures = Vec::new();
    FUNCTIONS.with(|functions| {
        let mut scope = functions.new_inner_scope();
        variables.bind(&mut scope);
        for Condition { expression } in conditions {
            match expression.evaluate(&scope, &mut budget) {
                Ok(CelValue::Bool(true)) => {}
                Ok(CelValue::Bool(false)) => return Ok(false),
                Ok(_) => failures.push(format!(
                    "expression '{}' resulted in error: no boolean",
                    expression.text
                )),
                Err(why) => failures.push(why),
            }
        }
        match failures.as_slice() {
            [] => Ok(true),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    })
}

// === impl Expression ===

impl Expression {
    /// Compiles an expression. One that does not compile fails each time it is evaluated.
    pub(crate) fn compile(text: &str) -> Self {
        let compiled = compile_then(text, Compiled::new);
        Self {
            text: text.to_owned(),
            is_deep: compiled
                .as_ref()
                .is_ok_and(|compiled| compiled.depth > DEEP),
            program: compiled.map(|compiled| compiled.metered),
        }
    }

    /// The value of the expression; `budget` pays for it.
    fn evaluate(&self, scope: &Context<'_>, budget: &mut u64) -> Result<CelValue, String> {
        let program = match &self.program {
            Ok(program) => program,
            Err(why) => return Err(format!("compilation error: {why}")),
        };
        let limit = (*budget).min(meter::PER_CALL);
        let outcome = program.evaluate(scope, limit);
        *budget -= outcome.cost;
        let why = match outcome.result {
            Some(Ok(value)) => return Ok(value),
            Some(Err(ExecutionError::UndeclaredReference(name))) => {
                format!("no such attribute(s): {name}")
            }
            Some(Err(error)) => explain(&error),
            None if limit < meter::PER_CALL => {
                return Err("validation failed due to running out of cost budget, no further validation rules will be run".to_owned());
            }
            None => meter::TOO_COSTLY.to_owned(),
        };
        Err(format!(
            "expression '{}' resulted in error: {why}",
            self.text
        ))
    }
}

// === impl Variables ===

impl Variables<'_> {
    fn bind(&self, scope: &mut Context<'_>) {
        let object = |value: Option<&Value>| value.map_or(CelValue::Null, untyped);
        scope.add_variable_from_value("object", object(self.object));
        scope.add_variable_from_value("oldObject", object(self.old_object));
        scope.add_variable_from_value("request", untyped(self.request));
        scope.add_variable_from_value("authorizer", self.authorizer.to_cel());
    }
}

/// A value without a schema: field names stay as they are.
fn untyped(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(bool) => CelValue::Bool(*bool),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => CelValue::Int(integer),
            (None, Some(float)) => CelValue::Float(float),
            (None, None) => CelValue::Null,
        },
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Array(items) => CelValue::List(Arc::new(items.iter().map(untyped).collect())),
        Value::Object(map) => {
            let members: HashMap<Key, CelValue> = map
                .iter()
                .map(|(name, value)| (Key::String(Arc::new(name.clone())), untyped(value)))
                .collect();
            CelValue::Map(Map {
                map: Arc::new(members),
            })
        }
    }
}
