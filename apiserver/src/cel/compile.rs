//! Compiling expressions, with a stack and within limits that keep the process alive.

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr, MapExpr, StructExpr};
use kube_cel::cel::parser::Parser;

/// The stack on which deep expressions are parsed and evaluated; only touched pages take memory.
const DEEP_STACK: usize = 128 << 20;

/// Maximum length of an expression in bytes.
const MAX_SIZE: usize = 20_000;

/// Maximum depth of an expression.
pub(super) const MAX_DEPTH: usize = 500;

/// The error of compiling an expression.
pub(crate) fn compile_error(expression: &str) -> Option<String> {
    compile_then(expression, |_| ()).err()
}

/// Whether an expression uses `oldSelf`.
pub(crate) fn uses_old_self(expression: &str) -> bool {
    compile_then(expression, |compiled| {
        compiled.references().has_variable("oldSelf")
    })
    .unwrap_or(false)
}

/// Parses an expression.
pub(crate) fn compile(expression: &str) -> Result<IdedExpr, String> {
    compile_then(expression, |compiled| compiled)
}

/// Compiles an expression and calls `then` with it, both on a stack of their own: the parser uses more than 100 KiB for
/// each level of nesting in a debug build, so an ordinary thread overflows at the fifteenth. The parser itself stops at
/// its limit of 96.
pub(super) fn compile_then<T: Send>(
    expression: &str,
    then: impl FnOnce(IdedExpr) -> T + Send,
) -> Result<T, String> {
    if expression.len() > MAX_SIZE {
        let size = expression.len();
        return Err(format!(
            "expression code point size exceeds limit: size: {size}, limit {MAX_SIZE}"
        ));
    }
    // An expression that is too deep is dropped on the deep stack too.
    let parse = || {
        let parser = Parser::default().enable_optional_syntax(true);
        let compiled = parser.parse(expression);
        let compiled = compiled.map_err(|errors| errors.to_string())?;
        if depth(&compiled) > MAX_DEPTH {
            return Err(format!("expression recursion limit exceeded: {MAX_DEPTH}"));
        }
        Ok(then(compiled))
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
        open.extend(parts(expression).into_iter().map(|part| (part, level + 1)));
    }
    deepest
}

/// The name of a type of which the expression makes an object: `Foo` of `Foo{a: 1}`.
pub(super) fn object_type(expression: &IdedExpr) -> Option<&str> {
    let mut open = vec![expression];
    while let Some(expression) = open.pop() {
        if let Expr::Struct(object) = &expression.expr {
            return Some(&object.type_name);
        }
        open.extend(parts(expression));
    }
    None
}

/// The expressions directly in an expression.
fn parts(expression: &IdedExpr) -> Vec<&IdedExpr> {
    match &expression.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Call(call) => call
            .target
            .as_deref()
            .into_iter()
            .chain(&call.args)
            .collect(),
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Comprehension(comprehension) => vec![
            &comprehension.iter_range,
            &comprehension.accu_init,
            &comprehension.loop_cond,
            &comprehension.loop_step,
            &comprehension.result,
        ],
        Expr::Map(MapExpr { entries }) | Expr::Struct(StructExpr { entries, .. }) => entries
            .iter()
            .flat_map(|entry| match &entry.expr {
                EntryExpr::StructField(field) => vec![&field.value],
                EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
            })
            .collect(),
    }
}
