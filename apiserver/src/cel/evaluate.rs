//! Evaluation of the rules of an object, within the object's budget.

use kube_cel::KubeCelExt;
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};
use serde_json::Value;

use super::compile::on_deep_stack;
use super::meter::{self, Metered, Outcome};
use super::optionals::{self, Optional};
use super::rule::Rule;
use super::values::to_cel;
use super::{
    authorizer, composition, equality, logic, numbers, patterns, quantities, texts, times, types,
};
use crate::field::{ErrorKind, Errors, FieldError, Path};
use crate::schema::{Additional, Kind, Schema, items_by_key, map_key};

pub(super) const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Maximum length of a message in bytes. (apiserver: `cel.MaxEvaluatedMessageExpressionSizeBytes`.)
const LONGEST_MESSAGE: usize = 5 * 1024;

/// The results of the rules of a schema for an object.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The errors.
    pub(crate) errors: Errors,
    /// Broken rules that are tolerated, because they were broken before.
    pub(crate) warnings: Vec<String>,
}

/// Rules being evaluated for one object.
struct Evaluation<'a> {
    functions: &'a Context<'a>,
    /// Units that are left; `None` after the end of the evaluation.
    budget: Option<u64>,
    findings: Findings,
}

/// A value with rules, its old value, and its path.
struct Node<'a> {
    schema: &'a Schema,
    value: &'a Value,
    old: Option<&'a Value>,
    path: &'a Path,
}

/// Whether an error of schema validation prevents the evaluation of rules.
pub(crate) fn blocks(error: &FieldError) -> bool {
    matches!(
        error.kind,
        ErrorKind::NotSupported
            | ErrorKind::Required
            | ErrorKind::TooLong
            | ErrorKind::TooMany
            | ErrorKind::TypeInvalid
    )
}

/// The error that rules were not evaluated.
pub(crate) fn not_checked() -> FieldError {
    FieldError::invalid(&Path::root(), Value::Null, NOT_CHECKED)
}

/// Evaluates the rules of `schema` and below for `value`, whose old value is `old`.
pub(crate) fn evaluate(
    schema: &Schema,
    value: &Value,
    old: Option<&Value>,
    path: &Path,
) -> Findings {
    let evaluate = || {
        FUNCTIONS.with(|functions| {
            let mut evaluation = Evaluation {
                functions,
                budget: Some(meter::PER_OBJECT),
                findings: Findings::default(),
            };
            evaluation.walk(schema, value, old, path);
            evaluation.findings
        })
    };
    if schema.any(&|below| below.rules.iter().any(|rule| rule.deep)) {
        on_deep_stack(evaluate).unwrap_or_else(|why| Findings {
            errors: vec![FieldError::invalid(path, Value::Null, why)],
            warnings: Vec::new(),
        })
    } else {
        evaluate()
    }
}

thread_local! {
    pub(super) static FUNCTIONS: Context<'static> = functions();
}

/// The functions of the language: those of the crates, and ours over them.
pub(super) fn functions() -> Context<'static> {
    let mut functions = Context::default().with_all();
    for add in [
        meter::add_functions,
        logic::add_functions,
        equality::add_functions,
        optionals::add_functions,
        numbers::add_functions,
        quantities::add_functions,
        patterns::add_functions,
        texts::add_functions,
        times::add_functions,
        types::add_functions,
        authorizer::add_functions,
        composition::add_functions,
    ] {
        add(&mut functions);
    }
    functions
}

// === impl Evaluation ===

impl Evaluation<'_> {
    fn walk(&mut self, schema: &Schema, value: &Value, old: Option<&Value>, path: &Path) {
        if value.is_null() || self.budget.is_none() {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        if !schema.rules.is_empty() {
            self.node(&Node {
                schema,
                value,
                old,
                path,
            });
        }
        if !schema.any(&|below| !below.rules.is_empty()) {
            return;
        }
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    let old = old.and_then(|old| old.get(name));
                    if let Some(of) = schema.properties.get(name) {
                        self.walk(of, value, old, &path.child(name));
                    } else if let Additional::Of(of) = &schema.additional {
                        self.walk(of, value, old, &path.key(name));
                    }
                }
            }
            Value::Array(items) => {
                let Some(of) = &schema.items else { return };
                let before = items_by_key(schema, old);
                for (index, item) in items.iter().enumerate() {
                    let old = (!before.is_empty()).then(|| before.get(&map_key(schema, item)));
                    self.walk(of, item, old.flatten().copied(), &path.index(index));
                }
            }
            _ => {}
        }
    }

    fn node(&mut self, node: &Node<'_>) {
        if self.budget == Some(0) {
            self.stop(node.broken(OUT_OF_BUDGET.to_owned()));
            return;
        }
        let functions = self.functions;
        let mut context = functions.new_inner_scope();
        context.add_variable_from_value("self", to_cel(node.value, node.schema, functions));
        let before = node.old.map(|old| to_cel(old, node.schema, functions));
        for rule in &node.schema.rules {
            let mut scope = context.new_inner_scope();
            if rule.transition {
                let bound = match (&before, rule.optional_old_self) {
                    (None, false) => continue,
                    (None, true) => Optional::none(),
                    (Some(before), true) => Optional::of(before.clone()),
                    (Some(before), false) => before.clone(),
                };
                scope.add_variable_from_value("oldSelf", bound);
            }
            self.rule(rule, node, &scope);
            if self.budget.is_none() {
                return;
            }
        }
    }

    fn rule(&mut self, rule: &Rule, node: &Node<'_>, scope: &Context<'_>) {
        let program = match &rule.program {
            Ok(program) => program,
            Err(why) => {
                let error = node.broken(format!("rule compile error: {why}"));
                self.findings.errors.push(error);
                return;
            }
        };
        let (result, of_budget) = self.evaluated(program, scope);
        let why = match result {
            None if of_budget => {
                self.stop(node.broken(OUT_OF_BUDGET.to_owned()));
                return;
            }
            None => {
                self.stop(node.broken(format!(
                    "'{}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                    meter::TOO_COSTLY,
                    rule.name()
                )));
                return;
            }
            Some(Ok(CelValue::Bool(true))) => return,
            Some(Ok(CelValue::Bool(false))) => {
                self.refused(rule, node, scope);
                return;
            }
            Some(Ok(_)) => "cel expression evaluated to a value that is no boolean".to_owned(),
            Some(Err(ExecutionError::NoSuchOverload)) => {
                self.findings.errors.push(node.broken(format!(
                    "'no such overload': call arguments did not match a supported operator, function or macro signature for rule: {}",
                    rule.name()
                )));
                return;
            }
            Some(Err(error)) => explain(&error),
        };
        let error = node.broken(format!("{why} evaluating rule: {}", rule.name()));
        self.findings.errors.push(error);
    }

    /// Records a broken rule.
    fn refused(&mut self, rule: &Rule, node: &Node<'_>, scope: &Context<'_>) {
        let path = rule
            .field_path
            .as_deref()
            .map_or_else(|| node.path.clone(), |below| extend(node.path, below));
        let error = match self.message(rule, scope) {
            Ok(message) => failure(rule, node.value, &path, message),
            Err(why) => {
                self.budget = None;
                FieldError::invalid(&path, node.type_name(), why)
            }
        };
        // Ratcheting: a broken rule is tolerated if the value did not change.
        if node.old == Some(node.value) && !rule.transition {
            self.findings.warnings.push(error.to_string());
        } else {
            self.findings.errors.push(error);
        }
    }

    /// The message of a failure: the expression's text if it is one usable line, else the fixed one. An error when the
    /// expression exceeds the cost limit.
    fn message(&mut self, rule: &Rule, scope: &Context<'_>) -> Result<String, String> {
        let Some((text, expression)) = &rule.message_expression else {
            return Ok(rule.message());
        };
        let (result, of_budget) = self.evaluated(expression, scope);
        match result {
            None if of_budget => Err("messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".to_owned()),
            None => Err(format!(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
                crate::field::quote(text)
            )),
            Some(Ok(CelValue::String(text))) => {
                let text = text.trim();
                let usable =
                    !text.is_empty() && !text.contains('\n') && text.len() <= LONGEST_MESSAGE;
                Ok(if usable {
                    text.to_owned()
                } else {
                    rule.message()
                })
            }
            Some(_) => Ok(rule.message()),
        }
    }

    /// The value of an expression, charged to the budget; `None` when it exceeded the rest of the budget (true), or the
    /// limit of a single evaluation.
    fn evaluated(
        &mut self,
        expression: &Metered,
        scope: &Context<'_>,
    ) -> (Option<Result<CelValue, ExecutionError>>, bool) {
        let left = self.budget.unwrap_or(0);
        let limit = left.min(meter::PER_CALL);
        let Outcome { result, cost } = expression.evaluate(scope, limit);
        self.budget = Some(left - cost);
        (result, limit < meter::PER_CALL)
    }

    fn stop(&mut self, error: FieldError) {
        self.findings.errors.push(error);
        self.budget = None;
    }
}

// === impl Node ===

impl Node<'_> {
    /// An error of the evaluation; the value is shown as the name of its type.
    fn broken(&self, detail: String) -> FieldError {
        FieldError::invalid(self.path, self.type_name(), detail)
    }

    fn type_name(&self) -> &'static str {
        self.schema.kind.map_or("", Kind::name)
    }
}

/// The error of a broken rule. Objects and lists are not repeated in the message.
fn failure(rule: &Rule, value: &Value, path: &Path, message: String) -> FieldError {
    let shown = match (rule.kind, value) {
        (ErrorKind::Forbidden | ErrorKind::Required, _)
        | (_, Value::Object(_) | Value::Array(_)) => None,
        (_, value) => Some(value.clone()),
    };
    // For a duplicate Kubernetes reports the value only.
    let message = if rule.kind == ErrorKind::Duplicate {
        String::new()
    } else {
        message
    };
    FieldError::new(rule.kind, path, shown, message)
}

/// Runtime errors with the texts of cel-go, as far as they are known.
pub(super) fn explain(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::NoSuchOverload => "no such overload".to_owned(),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::IndexOutOfBounds(CelValue::Int(index)) => {
            format!("index out of bounds: {index}")
        }
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::FunctionError { function, .. } if function == "duration" => {
            "type conversion error from 'string' to 'google.protobuf.Duration'".to_owned()
        }
        ExecutionError::FunctionError { function, .. } if function == "timestamp" => {
            "type conversion error from 'string' to 'google.protobuf.Timestamp'".to_owned()
        }
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

/// `.a.b`, `['a-b']` and `.a['b.c']` below a path.
fn extend(path: &Path, below: &str) -> Path {
    split_field_path(below)
        .into_iter()
        .fold(path.clone(), |path, name| path.child(&name))
}

/// The names of a `fieldPath`.
pub(crate) fn split_field_path(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("['") {
            let Some((name, after)) = quoted.split_once("']") else {
                break;
            };
            names.push(name.to_owned());
            rest = after;
        } else {
            let plain = rest.strip_prefix('.').unwrap_or(rest);
            let end = plain.find(['.', '[']).unwrap_or(plain.len());
            names.push(plain[..end].to_owned());
            rest = &plain[end..];
            if end == 0 {
                break;
            }
        }
    }
    names
}
