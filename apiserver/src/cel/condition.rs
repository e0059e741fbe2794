//! Conditions of webhooks and policies.

use std::sync::Arc;

use kube_cel::cel::Value as CelValue;
use serde_json::Value;

use super::composition::Composition;
use super::expression::{Expression, Failure, within};
use super::variables::Variables;

/// Limit of all conditions of a webhook or policy, in units. (apiserver: `cel.RuntimeCELCostBudgetMatchConditions`.)
const BUDGET: u64 = 2_500_000;

/// Expressions that must be true.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    expressions: Vec<Expression>,
    composition: Arc<Composition>,
}

// === impl Conditions ===

impl Conditions {
    /// Reads `matchConditions`, which may use these variables.
    pub(crate) fn read(conditions: &Value, composition: &Arc<Composition>) -> Self {
        let conditions = conditions.as_array().into_iter().flatten();
        let texts = conditions.map(|one| one["expression"].as_str().unwrap_or_default());
        Self {
            expressions: texts
                .map(|text| Expression::compile(text, composition))
                .collect(),
            composition: composition.clone(),
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.expressions.is_empty()
    }

    /// Whether the evaluation needs a large stack, and so a thread that it waits for.
    pub(crate) fn are_deep(&self) -> bool {
        self.expressions.iter().any(Expression::is_deep)
    }

    /// Whether all are true. One that is false decides, even if others fail.
    ///
    /// # Errors
    /// Why conditions could not be evaluated, if none of the others is false.
    pub(crate) fn hold(&self, variables: &Variables) -> Result<bool, String> {
        if self.is_empty() {
            return Ok(true);
        }
        within(variables, &self.composition, self.are_deep(), |scope| {
            let mut budget = BUDGET;
            let mut failures = Vec::new();
            for expression in &self.expressions {
                match expression.evaluate(scope, &mut budget) {
                    Ok(CelValue::Bool(true)) => {}
                    Ok(CelValue::Bool(false)) => return Ok(false),
                    Ok(_) => failures.push(format!(
                        "expression '{}' resulted in error: no boolean",
                        expression.text()
                    )),
                    Err(Failure::Budget(why)) => return Err(why),
                    Err(Failure::Expression(why)) => failures.push(why),
                }
            }
            match failures.as_slice() {
                [] => Ok(true),
                [one] => Err(one.clone()),
                many => Err(format!("[{}]", many.join(", "))),
            }
        })?
    }
}
