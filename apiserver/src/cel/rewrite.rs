//! The rewriting of expressions into ones that count their cost, and that mean what they mean in cel-go.
//!
//! The names of the added functions begin with `@`, which no expression can contain. [`meter`](super::meter) adds those
//! that count; `logic`, `equality`, `optionals` and `numbers` those in the place of operators.

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, operators,
};

/// Operators that read their operands without a copy.
const BORROWING: &[&str] = &[
    operators::CONDITIONAL,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::NOT_STRICTLY_FALSE,
    operators::INDEX,
    operators::OPT_INDEX,
    operators::OPT_SELECT,
];

/// Operators and functions whose results are small.
const SMALL_RESULTS: &[&str] = &[
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::LESS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::GREATER_EQUALS,
    operators::IN,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::NOT_STRICTLY_FALSE,
    operators::SUBSTRACT,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
    operators::NEGATE,
    "size",
];

/// Names before a dot that belong to the function's name.
const NAME_SPACES: &[&str] = &[
    "base64",
    "format",
    "ip",
    "jsonpatch",
    "lists",
    "math",
    "optional",
    "sets",
    "strings",
];

pub(super) const PAY: &str = "@pay";
pub(super) const COPY: &str = "@copy";
pub(super) const COLLECT: &str = "@collect";
pub(super) const COMBINE: &str = "@combine";
pub(super) const ALL: &str = "@all";
pub(super) const AND: &str = "@and";
pub(super) const DIFFERS: &str = "@differs";
pub(super) const EQUALS: &str = "@equals";
pub(super) const EXISTS: &str = "@exists";
pub(super) const IN: &str = "@is_in";
pub(super) const NEGATE: &str = "@negate";
pub(super) const OPTIONAL_INDEX: &str = "@optional_index";
pub(super) const OR: &str = "@or";
pub(super) const UNWRAP: &str = "@unwrap";

/// Operators, and the functions in their place.
const REPLACED: &[(&str, &str)] = &[
    (operators::EQUALS, EQUALS),
    (operators::IN, IN),
    (operators::LOGICAL_AND, AND),
    (operators::LOGICAL_OR, OR),
    (operators::NEGATE, NEGATE),
    (operators::NOT_EQUALS, DIFFERS),
    (operators::OPT_INDEX, OPTIONAL_INDEX),
    (operators::OPT_SELECT, OPTIONAL_INDEX),
];

/// Whether the work or the result of a function grows with the product of its operands, or with a number.
fn combines(call: &CallExpr) -> bool {
    let name_space = match call.target.as_deref().map(|target| &target.expr) {
        Some(Expr::Ident(name)) => name.as_str(),
        _ => "",
    };
    match call.func_name.as_str() {
        "replace" | "join" | "distinct" => true,
        "range" => name_space == "lists",
        _ => name_space == "sets",
    }
}

/// The counting expression, and its cost outside loops. Recurses as deep as the expression.
pub(super) fn rewrite(source: &IdedExpr) -> (IdedExpr, u64) {
    let of = |expr, weight| {
        let id = source.id;
        (IdedExpr { id, expr }, weight)
    };
    match &source.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Struct(_) => (source.clone(), 0),
        Expr::Ident(_) => (source.clone(), 1),
        Expr::Select(select) => {
            let (operand, weight) = rewrite(&select.operand);
            let name = literal(LiteralValue::String(select.field.as_str().into()));
            match (is_optional(&select.operand), select.test) {
                (true, false) => of(optional_index(operand, name), weight + 1),
                (true, true) => {
                    let member = ided(optional_index(operand, name));
                    of(call("hasValue", vec![member]), weight + 1)
                }
                (false, true) => {
                    let mut test = select.clone();
                    *test.operand = operand;
                    of(Expr::Select(test), weight + 1)
                }
                (false, false) => of(call(operators::INDEX, vec![operand, name]), weight + 1),
            }
        }
        Expr::List(list) => {
            let (mut elements, weight) = copied_all(&list.elements);
            let optional = list.optional_indices.clone();
            for (at, element) in elements.iter_mut().enumerate() {
                if optional.contains(&at) {
                    *element = ided(call(UNWRAP, vec![element.clone()]));
                }
            }
            of(
                Expr::List(ListExpr::new_with_optionals(elements, optional)),
                weight,
            )
        }
        Expr::Map(map) => {
            let mut map = map.clone();
            let mut weight = 0;
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    for part in [&mut entry.key, &mut entry.value] {
                        let (rewritten, more) = copied(part);
                        *part = rewritten;
                        weight += more;
                    }
                    if entry.optional {
                        entry.value = ided(call(UNWRAP, vec![entry.value.clone()]));
                    }
                }
            }
            of(Expr::Map(map), weight)
        }
        Expr::Call(call) => {
            let (expr, weight) = rewrite_call(call);
            of(expr, weight)
        }
        Expr::Comprehension(loop_over) => {
            let (expr, weight) = rewrite_loop(loop_over);
            of(expr, weight)
        }
    }
}

fn rewrite_call(source: &CallExpr) -> (Expr, u64) {
    let name = source.func_name.as_str();
    let own = match name {
        operators::CONDITIONAL | operators::LOGICAL_AND | operators::LOGICAL_OR => 0,
        _ => 1,
    };
    let is_name_space = |target: &IdedExpr| matches!(&target.expr, Expr::Ident(name) if NAME_SPACES.contains(&name.as_str()));
    let borrows = BORROWING.contains(&name);
    let operand = |source: &IdedExpr| {
        if borrows {
            rewrite(source)
        } else {
            copied(source)
        }
    };
    let (target, name_space) = match &source.target {
        Some(target) if is_name_space(target) => (None, Some(target.clone())),
        target => (target.as_deref().map(operand), None),
    };
    let arguments = source.args.iter().map(operand);
    let mut weight = own;
    let mut unpack = |(expression, more): (IdedExpr, u64)| {
        weight += more;
        expression
    };
    let target = target.map(&mut unpack);
    let arguments: Vec<IdedExpr> = arguments.map(&mut unpack).collect();
    let function = function_of(source);
    if let (OPTIONAL_INDEX, [of, at]) = (function, arguments.as_slice()) {
        return (optional_index(of.clone(), at.clone()), weight);
    }
    if !combines(source) {
        let call = CallExpr {
            func_name: function.to_owned(),
            target: target.map(Box::new).or(name_space),
            args: arguments,
        };
        return (Expr::Call(call), weight);
    }
    // The call gets names instead of operands, which are evaluated once and charged together.
    let mut names = (0..).map(|number| ided(Expr::Ident(operand_name(number))));
    let inner = CallExpr {
        func_name: name.to_owned(),
        target: match (&target, name_space) {
            (Some(_), _) => names.next().map(Box::new),
            (None, name_space) => name_space,
        },
        args: names.take(arguments.len()).collect(),
    };
    let mut parts = vec![ided(Expr::Call(inner))];
    parts.extend(target);
    parts.extend(arguments);
    (call(COMBINE, parts), weight)
}

/// The function in place of an operator, or the function itself.
fn function_of(source: &CallExpr) -> &str {
    let name = source.func_name.as_str();
    if name == operators::INDEX && source.args.first().is_some_and(is_optional) {
        return OPTIONAL_INDEX;
    }
    let replaced = REPLACED.iter().find(|(operator, _)| *operator == name);
    replaced.map_or(name, |(_, function)| function)
}

/// The member of a value, or none. The function copies the member, which is charged.
fn optional_index(of: IdedExpr, at: IdedExpr) -> Expr {
    call(COPY, vec![ided(call(OPTIONAL_INDEX, vec![of, at]))])
}

/// Whether the value is optional: `a.?b`, and each member of it.
fn is_optional(source: &IdedExpr) -> bool {
    match &source.expr {
        Expr::Select(select) => !select.test && is_optional(&select.operand),
        Expr::Call(call) => match call.func_name.as_str() {
            operators::OPT_INDEX | operators::OPT_SELECT => true,
            operators::INDEX => call.args.first().is_some_and(is_optional),
            "none" | "of" | "ofNonZeroValue" => {
                let target = call.target.as_deref().map(|target| &target.expr);
                matches!(target, Some(Expr::Ident(name)) if name == "optional")
            }
            _ => false,
        },
        _ => false,
    }
}

fn rewrite_loop(source: &ComprehensionExpr) -> (Expr, u64) {
    let (range, range_weight) = copied(&source.iter_range);
    if let Some((function, predicate)) = decides(source) {
        // The step is `result && predicate`. It is rewritten as its part and not as a whole too: loops in loops would double
        // the work at each level.
        let (predicate, weight) = rewrite(predicate);
        let units = rewrite(&source.loop_cond).1 + 1 + weight;
        let variable = ided(Expr::Ident(source.iter_var.clone()));
        let parts = vec![number(units), range, variable, predicate];
        return (call(function, parts), range_weight + 1);
    }
    if let Some((element, condition)) = collects(source) {
        let (element, mut step) = copied(element);
        let condition = condition.map(|condition| {
            let (condition, more) = rewrite(condition);
            step += more;
            condition
        });
        let variable = ided(Expr::Ident(source.iter_var.clone()));
        let mut parts = vec![number(step + 1), range, variable, element];
        parts.extend(condition);
        return (call(COLLECT, parts), range_weight + 1);
    }
    let (start, start_weight) = rewrite(&source.accu_init);
    let (condition, condition_weight) = rewrite(&source.loop_cond);
    let (step, step_weight) = rewrite(&source.loop_step);
    let (result, result_weight) = rewrite(&source.result);
    let pay = ided(call(PAY, vec![number(condition_weight + step_weight)]));
    let rewritten = ComprehensionExpr {
        iter_range: range,
        accu_init: start,
        loop_cond: ided(call(operators::LOGICAL_AND, vec![pay, condition])),
        loop_step: step,
        result,
        ..source.clone()
    };
    let weight = range_weight + start_weight + result_weight;
    (Expr::Comprehension(Box::new(rewritten)), weight)
}

/// The function in place of `all` or `exists`, and the predicate.
fn decides(source: &ComprehensionExpr) -> Option<(&'static str, &IdedExpr)> {
    let Expr::Call(step) = &source.loop_step.expr else {
        return None;
    };
    let function = match (step.func_name.as_str(), &source.accu_init.expr) {
        (operators::LOGICAL_AND, Expr::Literal(LiteralValue::Boolean(_))) => ALL,
        (operators::LOGICAL_OR, Expr::Literal(LiteralValue::Boolean(_))) => EXISTS,
        _ => return None,
    };
    let [result, predicate] = step.args.as_slice() else {
        return None;
    };
    let is_result = matches!(&result.expr, Expr::Ident(name) if *name == source.accu_var);
    (is_result && source.iter_var2.is_none()).then_some((function, predicate))
}

/// The element that `map` and `filter` collect for an item, and its condition.
fn collects(source: &ComprehensionExpr) -> Option<(&IdedExpr, Option<&IdedExpr>)> {
    let is_result =
        |one: &IdedExpr| matches!(&one.expr, Expr::Ident(name) if *name == source.accu_var);
    let starts_empty =
        matches!(&source.accu_init.expr, Expr::List(list) if list.elements.is_empty());
    if !starts_empty || !is_result(&source.result) || source.iter_var2.is_some() {
        return None;
    }
    let (append, condition) = match &source.loop_step.expr {
        Expr::Call(step) if step.func_name == operators::CONDITIONAL => {
            let [condition, append, otherwise] = step.args.as_slice() else {
                return None;
            };
            is_result(otherwise).then_some((&append.expr, Some(condition)))?
        }
        step => (step, None),
    };
    let Expr::Call(append) = append else {
        return None;
    };
    match append.args.as_slice() {
        [list, appended] if append.func_name == operators::ADD && is_result(list) => {
            match &appended.expr {
                Expr::List(one) if one.optional_indices.is_empty() => {
                    let [element] = one.elements.as_slice() else {
                        return None;
                    };
                    Some((element, condition))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

fn copied_all(sources: &[IdedExpr]) -> (Vec<IdedExpr>, u64) {
    let mut weight = 0;
    let rewritten = sources.iter().map(|source| {
        let (rewritten, more) = copied(source);
        weight += more;
        rewritten
    });
    (rewritten.collect(), weight)
}

/// As [`rewrite`], and charges the size of the value where it may have one.
fn copied(source: &IdedExpr) -> (IdedExpr, u64) {
    let (rewritten, weight) = rewrite(source);
    let may_be_large = match &source.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Struct(_) => false,
        Expr::Select(select) => !select.test,
        Expr::Call(call) => !SMALL_RESULTS.contains(&call.func_name.as_str()),
        Expr::Ident(_) | Expr::List(_) | Expr::Map(_) | Expr::Comprehension(_) => true,
    };
    let is_charged = matches!(&rewritten.expr, Expr::Call(call) if call.func_name == COPY);
    if may_be_large && !is_charged {
        (ided(call(COPY, vec![rewritten])), weight)
    } else {
        (rewritten, weight)
    }
}

fn ided(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

fn call(name: &str, args: Vec<IdedExpr>) -> Expr {
    Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: None,
        args,
    })
}

fn literal(value: LiteralValue) -> IdedExpr {
    ided(Expr::Literal(value))
}

fn number(units: u64) -> IdedExpr {
    literal(LiteralValue::Int(
        i64::try_from(units).unwrap_or(i64::MAX).into(),
    ))
}

pub(super) fn operand_name(number: usize) -> String {
    format!("@{number}")
}
