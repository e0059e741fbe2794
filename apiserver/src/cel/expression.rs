//! Expressions about a write: conditions of webhooks, and those of policies.

use std::sync::Arc;

use kube_cel::cel::{Context, ExecutionError, Value as CelValue};

use super::compile::{MAX_DEPTH, compile_then, depth, on_deep_stack};
use super::composition::Composition;
use super::evaluate::{FUNCTIONS, explain};
use super::meter::{self, Metered};
use super::rule::DEEP;
use super::variables::Variables;

/// The text of an evaluation that exceeded its budget.
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Maximum depth of an expression that counts its cost, with the variables that it uses. The counting adds a level to a level.
const DEEPEST: usize = 4 * MAX_DEPTH;

/// A compiled expression. One that does not compile fails each time it is evaluated.
#[derive(Debug)]
pub(crate) struct Expression {
    text: String,
    program: Result<Metered, String>,
    depth: usize,
}

/// Why an expression has no value.
#[derive(Debug)]
pub(crate) enum Failure {
    /// This expression failed.
    Expression(String),
    /// All expressions together cost too much: the others are not evaluated.
    Budget(String),
}

/// The variables of a write, in which expressions are evaluated.
pub(crate) struct Scope<'a>(Context<'a>);

/// Calls `work` with the variables of a write. With `is_deep`, one of its expressions needs a large stack: then the thread waits
/// for another one.
///
/// # Errors
/// Without a thread for deep expressions.
pub(crate) fn within<T: Send>(
    variables: &Variables,
    composition: &Arc<Composition>,
    is_deep: bool,
    work: impl FnOnce(&Scope<'_>) -> T + Send,
) -> Result<T, String> {
    let bound = || {
        FUNCTIONS.with(|functions| {
            let mut scope = functions.new_inner_scope();
            variables.bind(&mut scope);
            composition.bind(&mut scope);
            work(&Scope(scope))
        })
    };
    if is_deep {
        on_deep_stack(bound)
    } else {
        Ok(bound())
    }
}

// === impl Expression ===

impl Expression {
    /// Compiles an expression that may use the variables of a policy.
    pub(crate) fn compile(text: &str, composition: &Composition) -> Self {
        let compiled = compile_then(text, |expression| {
            let composed = composition.compose(expression)?;
            let program = Metered::new(&composed.expression);
            let depth = depth(program.expression()) + composed.depth_of_variables;
            if depth > DEEPEST {
                return Err(format!("expression recursion limit exceeded: {MAX_DEPTH}"));
            }
            Ok((program, depth))
        });
        let compiled = compiled.and_then(|compiled| compiled);
        Self {
            text: text.to_owned(),
            depth: compiled.as_ref().map_or(0, |(_, depth)| *depth),
            program: compiled.map(|(program, _)| program),
        }
    }

    /// The error of compiling it.
    pub(crate) fn error(&self) -> Option<&str> {
        self.program.as_ref().err().map(String::as_str)
    }

    /// Whether its evaluation needs a large stack.
    pub(crate) fn is_deep(&self) -> bool {
        self.depth > DEEP
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn program(&self) -> Result<&Metered, &str> {
        self.program.as_ref().map_err(String::as_str)
    }

    /// The value of the expression; `budget` pays for it.
    ///
    /// # Errors
    /// Why it has none.
    pub(crate) fn evaluate(
        &self,
        scope: &Scope<'_>,
        budget: &mut u64,
    ) -> Result<CelValue, Failure> {
        let program = self
            .program()
            .map_err(|why| Failure::Expression(format!("compilation error: {why}")))?;
        let limit = (*budget).min(meter::PER_CALL);
        let outcome = program.evaluate(&scope.0, limit);
        *budget -= outcome.cost;
        let why = match outcome.result {
            Some(Ok(value)) => return Ok(value),
            Some(Err(ExecutionError::UndeclaredReference(name))) => {
                format!("no such attribute(s): {name}")
            }
            Some(Err(error)) => explain(&error),
            None if limit < meter::PER_CALL => {
                return Err(Failure::Budget(OUT_OF_BUDGET.to_owned()));
            }
            None => meter::TOO_COSTLY.to_owned(),
        };
        Err(Failure::Expression(format!(
            "expression '{}' resulted in error: {why}",
            self.text
        )))
    }
}

// === impl Failure ===

impl Failure {
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Expression(why) | Self::Budget(why) => why,
        }
    }
}
