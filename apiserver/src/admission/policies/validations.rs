//! The expressions of a policy that checks objects.

use std::sync::Arc;

use serde_json::Value;

use super::policy::{Expressions, Policy};
use crate::cel::{Composition, Expression, Failure, Scope, Variables, is_true, text, within};
use crate::table::cells::{items, string};

/// Limit of all validations of a policy, in units. (apiserver: `cel.RuntimeCELCostBudget`.)
pub(super) const BUDGET: u64 = 10_000_000;
/// Maximum length of a message in bytes. (apiserver: `cel.MaxEvaluatedMessageExpressionSizeBytes`.)
const LONGEST_MESSAGE: usize = 5 * 1024;

/// The expressions of a policy that checks objects.
#[derive(Debug)]
pub(super) struct Validations {
    composition: Arc<Composition>,
    validations: Vec<Validation>,
    annotations: Vec<Annotation>,
    is_deep: bool,
}

#[derive(Debug)]
struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: String,
}

/// An annotation for the audit log, which this server does not have: only its failures count.
#[derive(Debug)]
struct Annotation {
    expression: Expression,
}

/// Why a policy refuses a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Objection {
    pub(super) message: String,
    pub(super) reason: String,
    /// Whether the write is refused, whatever the actions of the binding are.
    pub(super) is_final: bool,
}

// === impl Validations ===

impl Expressions for Validations {
    fn compile(spec: &Value, composition: &Arc<Composition>) -> Self {
        let compile = |text: &Value| Expression::compile(string(text), composition);
        let validations: Vec<_> = items(&spec["validations"])
            .iter()
            .map(|source| Validation {
                expression: compile(&source["expression"]),
                message: string(&source["message"]).trim().to_owned(),
                message_expression: Some(&source["messageExpression"])
                    .filter(|text| !string(text).is_empty())
                    .map(compile),
                reason: match string(&source["reason"]) {
                    "" => "Invalid".to_owned(),
                    reason => reason.to_owned(),
                },
            })
            .collect();
        let annotations: Vec<_> = items(&spec["auditAnnotations"])
            .iter()
            .map(|source| Annotation {
                expression: compile(&source["valueExpression"]),
            })
            .collect();
        let of_validations = validations.iter().flat_map(|validation| {
            [
                Some(&validation.expression),
                validation.message_expression.as_ref(),
            ]
        });
        let of_annotations = annotations.iter().map(|one| Some(&one.expression));
        let is_deep = of_validations
            .chain(of_annotations)
            .flatten()
            .any(Expression::is_deep);
        Self {
            is_deep,
            composition: composition.clone(),
            validations,
            annotations,
        }
    }
}

impl Policy<Validations> {
    /// Whether the evaluation needs a large stack, and so a thread that it waits for.
    pub(super) fn is_deep(&self) -> bool {
        self.conditions.are_deep() || self.expressions.is_deep
    }

    /// The objections to a write.
    pub(super) fn check(&self, variables: &Variables) -> Vec<Objection> {
        // Conditions do not get the namespace. (apiserver: `matchconditions/matcher.go`.)
        let of_conditions = variables.clone().with("namespaceObject", None);
        match self.conditions.hold(&of_conditions) {
            Ok(true) => {}
            Ok(false) => return Vec::new(),
            Err(why) => return self.failed(why).into_iter().collect(),
        }
        let of = &self.expressions;
        let checked = within(variables, &of.composition, of.is_deep, |scope| {
            let mut objections = self.validate(scope);
            objections.extend(self.annotate(scope));
            objections
        });
        checked.unwrap_or_else(|why| self.failed(why).into_iter().collect())
    }

    fn validate(&self, scope: &Scope<'_>) -> Vec<Objection> {
        let mut budget = BUDGET;
        let mut objections = Vec::new();
        let mut broken = Vec::new();
        for (at, validation) in self.expressions.validations.iter().enumerate() {
            match validation.expression.evaluate(scope, &mut budget) {
                Ok(value) if is_true(&value) => {}
                Ok(_) => broken.push((at, validation)),
                Err(Failure::Budget(why)) => return self.failed(why).into_iter().collect(),
                Err(Failure::Expression(why)) => {
                    objections.extend(self.failed(why).map(|objection| (at, objection)));
                }
            }
        }
        for (at, validation) in broken {
            let objection = match validation.message(scope, &mut budget) {
                Ok(message) => Some(Objection {
                    message,
                    reason: validation.reason.clone(),
                    is_final: false,
                }),
                Err(why) => self.failed(format!("failed messageExpression: {why}")),
            };
            objections.extend(objection.map(|objection| (at, objection)));
        }
        objections.sort_by_key(|(at, _)| *at);
        objections
            .into_iter()
            .map(|(_, objection)| objection)
            .collect()
    }

    fn annotate(&self, scope: &Scope<'_>) -> Vec<Objection> {
        let mut budget = BUDGET;
        let mut objections = Vec::new();
        for Annotation { expression } in &self.expressions.annotations {
            let why = match expression.evaluate(scope, &mut budget) {
                Ok(value) => match text(&value) {
                    Ok(_) => continue,
                    // This failure is not ignored.
                    Err(found) => {
                        objections.push(Objection {
                            message: format!(
                                "valueExpression '{}' resulted in unsupported return type: {found}. Return type must be either string or null.",
                                expression.text()
                            ),
                            reason: String::new(),
                            is_final: true,
                        });
                        continue;
                    }
                },
                Err(failure) => failure.into_text(),
            };
            objections.extend(self.failed(why).map(|objection| Objection {
                is_final: true,
                ..objection
            }));
        }
        objections
    }

    /// The objection of an evaluation that failed, unless failures are ignored.
    fn failed(&self, message: String) -> Option<Objection> {
        (!self.ignores_failures).then_some(Objection {
            message,
            reason: String::new(),
            is_final: false,
        })
    }
}

// === impl Validation ===

impl Validation {
    /// The message of a failure: the expression's text if it is one usable line, else the fixed one.
    fn message(&self, scope: &Scope<'_>, budget: &mut u64) -> Result<String, String> {
        if let Some(expression) = &self.message_expression {
            match expression.evaluate(scope, budget) {
                Ok(value) => {
                    let message = text(&value).ok().flatten().unwrap_or_default();
                    let message = message.trim();
                    let is_usable = !message.is_empty()
                        && message.len() <= LONGEST_MESSAGE
                        && !message.contains('\n');
                    if is_usable {
                        return Ok(message.to_owned());
                    }
                }
                Err(Failure::Budget(why)) => return Err(why),
                Err(Failure::Expression(why)) => {
                    tracing::debug!(why, "a messageExpression failed");
                }
            }
        }
        Ok(if self.message.is_empty() {
            format!("failed expression: {}", self.expression.text().trim())
        } else {
            self.message.clone()
        })
    }
}
