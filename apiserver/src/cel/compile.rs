//! Compiling expressions, with a stack and within limits that keep the process alive.

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr, MapExpr, StructExpr};
use kube_cel::cel::parser::Parser;
use kube_cel::cel::{Context, Program, Value};

/// The stack on which deep expressions are parsed and evaluated; only touched pages take memory.
const DEEP_STACK: usize = 128 << 20;

/// Maximum length of an expression in bytes.
const MAX_SIZE: usize = 20_000;

/// Maximum depth of an expression.
const MAX_DEPTH: usize = 500;

/// The error of compiling an expression.
pub(crate) fn compile_error(expression: &str) -> Option<String> {
    compile(expression).err()
}

/// The problem of a condition: it cannot be compiled, is another variable than `variables`, or a constant that is not a
/// boolean. Types are not checked otherwise.
pub(crate) fn condition_problem(expression: &str, variables: &[&str]) -> Option<String> {
    let problem = compile_then(expression, |program| match &program.expression().expr {
        Expr::Ident(name) if !variables.contains(&name.as_str()) => Some(format!(
            "compilation failed: undeclared reference to '{name}' (in container '')"
        )),
        Expr::Literal(_) => match program.execute(&Context::default()) {
            Ok(Value::Bool(_)) => None,
            _ => Some("must evaluate to bool".to_owned()),
        },
        _ => None,
    });
    problem.unwrap_or_else(|error| {
        let is_known = has_optional_syntax(expression);
        (!is_known).then(|| format!("compilation failed: {error}"))
    })
}

/// Whether an expression is valid with the syntax of optional values, which a program does not have here.
fn has_optional_syntax(expression: &str) -> bool {
    let parser = Parser::default().enable_optional_syntax(true);
    expression.len() <= MAX_SIZE
        && on_deep_stack(|| parser.parse(expression).is_ok()).unwrap_or(false)
}

/// Whether an expression uses `oldSelf`.
pub(crate) fn uses_old_self(expression: &str) -> bool {
    compile(expression).is_ok_and(|program| program.references().has_variable("oldSelf"))
}

/// Compiles an expression, on a stack of its own: the parser uses more than 100 KiB for each level of
/// nesting in a debug build, so an ordinary thread overflows at the fifteenth. The parser
/// itself stops at its limit of 96.
pub(crate) fn compile(expression: &str) -> Result<Program, String> {
    compile_then(expression, |program| program)
}

/// Compiles an expression and calls `then` with the program, both on that stack.
pub(super) fn compile_then<T: Send>(
    expression: &str,
    then: impl FnOnce(Program) -> T + Send,
) -> Result<T, String> {
    if expression.len() > MAX_SIZE {
        let size = expression.len();
        return Err(format!(
            "expression code point size exceeds limit: size: {size}, limit {MAX_SIZE}"
        ));
    }
    // A program that is too deep is dropped on the deep stack too.
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
pub(super) fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
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

/// The depth of an expression. Walks with a list, because the expression may be deeper than the stack.
pub(super) fn depth(expression: &IdedExpr) -> usize {
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
