//! Rules of `x-kubernetes-validations`: compiled once, evaluated with Kubernetes' texts.
//!
//! The language is the `cel` crate's, with the Kubernetes functions that `kube-cel` registers
//! (`isIP`, `cidr`, `quantity`, …). The walk over the object is ours, because paths, ratcheting and
//! the correlation of list items are Kubernetes'. What a rule costs is bounded while it is evaluated
//! ([`meter`]); it is not estimated when the definition is written. A rule that uses what the crate
//! cannot evaluate (`sortBy`, `cel.bind`, two-variable comprehensions) fails.
//! (apiextensions-apiserver: `schema/cel`.)

mod evaluate;
mod meter;
mod patterns;
mod values;

pub(crate) use evaluate::{blocks, evaluate, not_checked, split_field_path};
pub(crate) use values::escape;

use kube_cel::cel::Program;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr, MapExpr, StructExpr};
use serde_json::Value;

use crate::field::ErrorKind;
use meter::Metered;

/// The stack deep expressions are parsed and evaluated on; only what is touched takes memory.
const DEEP_STACK: usize = 128 << 20;

/// Expressions deeper than this are evaluated on that stack: in a debug build a level takes some 40 KiB.
const DEEP: usize = 16;

/// Expressions longer than this (in bytes) are refused.
const MAX_SIZE: usize = 20_000;

/// Expressions deeper than this are refused.
const MAX_DEPTH: usize = 500;

/// One compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    text: String,
    message: Option<String>,
    message_expression: Option<(String, Metered)>,
    kind: ErrorKind,
    field_path: Option<String>,
    optional_old_self: bool,
    /// It names `oldSelf`: without an old value it is skipped.
    transition: bool,
    /// It needs more stack than an ordinary thread has.
    deep: bool,
    program: Result<Metered, String>,
}

/// What is kept of an expression.
struct Compiled {
    metered: Metered,
    names_old_self: bool,
    depth: usize,
}

// === impl Rule ===

impl Rule {
    /// Compiles one entry of `x-kubernetes-validations`. A rule that does not compile fails each time
    /// it is evaluated; [`compile_error`] finds it when the CRD is written.
    pub(crate) fn compile(source: &Value) -> Self {
        let text = |name: &str| {
            source[name]
                .as_str()
                .map(str::to_owned)
                .filter(|text| !text.is_empty())
        };
        let rule = text("rule").unwrap_or_default();
        let program = compile_then(&rule, Compiled::new);
        let message_expression = text("messageExpression")
            .and_then(|text| Some((compile_then(&text, Compiled::new).ok()?, text)));
        let message_depth = message_expression
            .as_ref()
            .map_or(0, |(compiled, _)| compiled.depth);
        let depth = program.as_ref().map_or(0, |compiled| compiled.depth);
        Self {
            deep: depth.max(message_depth) > DEEP,
            message: text("message").map(|message| message.trim().to_owned()),
            message_expression: message_expression.map(|(compiled, text)| (text, compiled.metered)),
            kind: match source["reason"].as_str() {
                Some("FieldValueForbidden") => ErrorKind::Forbidden,
                Some("FieldValueRequired") => ErrorKind::Required,
                Some("FieldValueDuplicate") => ErrorKind::Duplicate,
                _ => ErrorKind::Invalid,
            },
            field_path: text("fieldPath"),
            optional_old_self: source["optionalOldSelf"] == true,
            transition: program
                .as_ref()
                .is_ok_and(|compiled| compiled.names_old_self),
            program: program.map(|compiled| compiled.metered),
            text: rule,
        }
    }

    fn message(&self) -> String {
        self.message
            .clone()
            .unwrap_or_else(|| format!("failed rule: {}", self.text.trim()))
    }

    /// The rule as texts name it.
    fn name(&self) -> &str {
        self.message.as_deref().unwrap_or_else(|| self.text.trim())
    }
}

// === impl Compiled ===

impl Compiled {
    fn new(program: Program) -> Self {
        let metered = Metered::new(program.expression());
        Self {
            names_old_self: program.references().has_variable("oldSelf"),
            depth: depth(metered.expression()),
            metered,
        }
    }
}

/// Why an expression does not compile.
pub(crate) fn compile_error(expression: &str) -> Option<String> {
    compile(expression).err()
}

/// Whether an expression names `oldSelf`.
pub(crate) fn uses_old_self(expression: &str) -> bool {
    compile(expression).is_ok_and(|program| program.references().has_variable("oldSelf"))
}

/// Compiles an expression, on a stack of its own: the parser takes more than 100 KiB for each level of
/// nesting in a debug build, and an ordinary thread ends the process at the fifteenth. The parser
/// itself stops at its limit of 96.
pub(crate) fn compile(expression: &str) -> Result<Program, String> {
    compile_then(expression, |program| program)
}

/// The same; what is made `then` of the program, is made on that stack too.
fn compile_then<T: Send>(
    expression: &str,
    then: impl FnOnce(Program) -> T + Send,
) -> Result<T, String> {
    if expression.len() > MAX_SIZE {
        let size = expression.len();
        return Err(format!(
            "expression code point size exceeds limit: size: {size}, limit {MAX_SIZE}"
        ));
    }
    // What is too deep is dropped on the deep stack too.
    let parse = || {
        let program = Program::compile(expression).map_err(|errors| errors.to_string())?;
        if depth(program.expression()) > MAX_DEPTH {
            return Err(format!("expression recursion limit exceeded: {MAX_DEPTH}"));
        }
        Ok(then(program))
    };
    on_deep_stack(parse).unwrap_or_else(Err)
}

/// Runs `work` on a thread with a large stack and waits for it.
fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("cel".to_owned())
            .stack_size(DEEP_STACK)
            .spawn_scoped(scope, work)
            .map_err(|error| format!("no thread for a deep expression: {error}"))?
            .join()
            .map_err(|_| "the expression's thread failed".to_owned())
    })
}

/// How deep an expression nests. Walked with a list, as the expression may be deeper than the stack.
fn depth(expression: &IdedExpr) -> usize {
    let mut deepest = 0;
    let mut open = vec![(expression, 1)];
    while let Some((expression, level)) = open.pop() {
        deepest = deepest.max(level);
        let mut below = |part| open.push((part, level + 1));
        match &expression.expr {
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
            Expr::Select(select) => below(&select.operand),
            Expr::Call(call) => {
                call.target.iter().for_each(|target| below(target));
                call.args.iter().for_each(below);
            }
            Expr::List(list) => list.elements.iter().for_each(below),
            Expr::Comprehension(comprehension) => {
                below(&comprehension.iter_range);
                below(&comprehension.accu_init);
                below(&comprehension.loop_cond);
                below(&comprehension.loop_step);
                below(&comprehension.result);
            }
            Expr::Map(MapExpr { entries }) | Expr::Struct(StructExpr { entries, .. }) => {
                for entry in entries {
                    match &entry.expr {
                        EntryExpr::StructField(field) => below(&field.value),
                        EntryExpr::MapEntry(entry) => {
                            below(&entry.key);
                            below(&entry.value);
                        }
                    }
                }
            }
        }
    }
    deepest
}

#[cfg(test)]
mod tests;
