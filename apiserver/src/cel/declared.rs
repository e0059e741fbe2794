//! Checks of an expression before it is evaluated, without the types of its parts.

use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};

use super::compile::compile_then;
use super::functions::is_known_function;

/// Identifiers that are types or name spaces of functions.
pub(crate) const KNOWN: &[&str] = &[
    "base64",
    "bool",
    "bytes",
    "cel",
    "dyn",
    "double",
    "duration",
    "format",
    "google",
    "int",
    "ip",
    "jsonpatch",
    "list",
    "lists",
    "map",
    "math",
    "null_type",
    "optional",
    "sets",
    "string",
    "strings",
    "timestamp",
    "type",
    "uint",
];

/// Variables of each expression about a write.
const OF_WRITES: &[&str] = &[
    "authorizer",
    "namespaceObject",
    "object",
    "oldObject",
    "request",
];

/// The names that an expression about a write may use, besides those of each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Declared<'a> {
    /// `params`.
    pub(crate) has_params: bool,
    /// The members of `variables`; `None` without that.
    pub(crate) variables: Option<&'a [String]>,
    /// `Object{…}` and `JSONPatch{…}`.
    pub(crate) has_patch_types: bool,
    /// Not `authorizer`.
    pub(crate) without_authorizer: bool,
}

/// The type of the result of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Any,
    Bool,
    Text,
    TextOrNull,
    Object,
    JsonPatches,
}

/// The problem of an expression: it cannot be compiled, uses a name that is not declared, or is a constant of another
/// type. Types are not checked otherwise.
pub(crate) fn expression_problem(
    expression: &str,
    declared: &Declared<'_>,
    wanted: Wanted,
) -> Option<String> {
    problem(expression, declared, wanted, &[])
}

/// The same of a selector of devices, which declares `device`.
pub(crate) fn selector_problem(expression: &str) -> Option<String> {
    problem(expression, &Declared::default(), Wanted::Bool, &["device"])
}

fn problem(
    expression: &str,
    declared: &Declared<'_>,
    wanted: Wanted,
    names: &[&str],
) -> Option<String> {
    let checked = compile_then(expression, |compiled| {
        let mut bound = names.to_vec();
        let undeclared = undeclared(&compiled, declared, &mut bound);
        if let Some((word, wrong)) = undeclared {
            let error = error_at(expression, place_of(expression, &word), &wrong);
            return Some(format!("compilation failed: {error}"));
        }
        wanted.mismatch(&compiled)
    });
    checked.unwrap_or_else(|error| {
        let error = error.replace("\n| ", "\n | ");
        Some(format!("compilation failed: {error}"))
    })
}

/// The first name in `expression` that is not declared, and the text of the error.
fn undeclared<'e>(
    expression: &'e IdedExpr,
    declared: &Declared<'_>,
    bound: &mut Vec<&'e str>,
) -> Option<(String, String)> {
    let reference = |name: &str| {
        let wrong = format!("undeclared reference to '{name}' (in container '')");
        Some((name.to_owned(), wrong))
    };
    match &expression.expr {
        Expr::Unspecified | Expr::Literal(_) => None,
        Expr::Ident(name) => {
            let name = name.as_str();
            let is_declared = name.starts_with('@')
                || (OF_WRITES.contains(&name)
                    && !(name == "authorizer" && declared.without_authorizer))
                || KNOWN.contains(&name)
                || bound.contains(&name)
                || (name == "params" && declared.has_params)
                || (name == "variables" && declared.variables.is_some());
            if is_declared { None } else { reference(name) }
        }
        Expr::Select(select) => {
            if let (Expr::Ident(of), Some(variables)) = (&select.operand.expr, declared.variables)
                && of == "variables"
                && !bound.contains(&"variables")
                && !variables.contains(&select.field)
            {
                let wrong = format!("undefined field '{}'", select.field);
                return Some((format!(".{}", select.field), wrong));
            }
            undeclared(&select.operand, declared, bound)
        }
        Expr::Call(call) => {
            let count = binds(call);
            if count == 0 && !is_known_function(&call.func_name) {
                let (_, wrong) = reference(&call.func_name)?;
                return Some((format!("{}(", call.func_name), wrong));
            }
            let (names, parts) = call.args.split_at(count);
            // The value of `cel.bind` does not see its name.
            let (outside, inside) = parts.split_at(usize::from(count == 1));
            let mut outside = call.target.as_deref().into_iter().chain(outside);
            let found = outside.find_map(|part| undeclared(part, declared, bound));
            if found.is_some() {
                return found;
            }
            let before = bound.len();
            bound.extend(names.iter().filter_map(|name| match &name.expr {
                Expr::Ident(name) => Some(name.as_str()),
                _ => None,
            }));
            let found = inside
                .iter()
                .find_map(|part| undeclared(part, declared, bound));
            bound.truncate(before);
            found
        }
        Expr::List(list) => {
            let mut elements = list.elements.iter();
            elements.find_map(|element| undeclared(element, declared, bound))
        }
        Expr::Map(map) => map.entries.iter().find_map(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => undeclared(&entry.key, declared, bound)
                .or_else(|| undeclared(&entry.value, declared, bound)),
            EntryExpr::StructField(field) => undeclared(&field.value, declared, bound),
        }),
        Expr::Struct(of) => {
            let name = of.type_name.as_str();
            let is_patch = name == "JSONPatch" || name == "Object" || name.starts_with("Object.");
            if !(is_patch && declared.has_patch_types) {
                let (_, wrong) = reference(name)?;
                return Some((format!("{name}{{"), wrong));
            }
            of.entries.iter().find_map(|entry| match &entry.expr {
                EntryExpr::StructField(field) => undeclared(&field.value, declared, bound),
                EntryExpr::MapEntry(_) => None,
            })
        }
        Expr::Comprehension(comprehension) => {
            if let Some(found) = undeclared(&comprehension.iter_range, declared, bound) {
                return Some(found);
            }
            let before = bound.len();
            bound.push(&comprehension.iter_var);
            bound.extend(comprehension.iter_var2.as_deref());
            bound.push(&comprehension.accu_var);
            let found = [
                &comprehension.accu_init,
                &comprehension.loop_cond,
                &comprehension.loop_step,
                &comprehension.result,
            ]
            .into_iter()
            .find_map(|part| undeclared(part, declared, bound));
            bound.truncate(before);
            found
        }
    }
}

/// The number of arguments that name variables: of the macros that the parser does not have. (cel-go: `ext.Bindings`,
/// `ext.TwoVarComprehensions`.)
fn binds(call: &CallExpr) -> usize {
    const OF_TWO: &[&str] = &[
        "all",
        "exists",
        "existsOne",
        "exists_one",
        "transformList",
        "transformMap",
        "transformMapEntry",
    ];
    let is_name = |argument: &IdedExpr| matches!(argument.expr, Expr::Ident(_));
    let target = call.target.as_deref().map(|target| &target.expr);
    match call.args.as_slice() {
        [name, _, _]
            if call.func_name == "bind"
                && matches!(target, Some(Expr::Ident(cel)) if cel == "cel")
                && is_name(name) =>
        {
            1
        }
        [one, two, _, ..]
            if OF_TWO.contains(&call.func_name.as_str())
                && target.is_some()
                && is_name(one)
                && is_name(two) =>
        {
            2
        }
        _ => 0,
    }
}

/// The place of a word in an expression; one that begins with a dot is a field. Of a call and of an object it is the
/// bracket, with which the word ends.
pub(crate) fn place_of(expression: &str, word: &str) -> Option<usize> {
    let part_of_name = |character: char| character.is_alphanumeric() || character == '_';
    expression
        .match_indices(word)
        .map(|(index, _)| index)
        .find(|index| {
            let before = expression[..*index].chars().next_back();
            let after = expression[index + word.len()..].chars().next();
            let starts = word.starts_with('.') || !before.is_some_and(part_of_name);
            let ends = word.ends_with(['(', '{']) || !after.is_some_and(part_of_name);
            starts && ends
        })
        .map(|index| match word.ends_with(['(', '{']) {
            true => index + word.len() - 1,
            false => index,
        })
}

/// The error in the format of cel-go: position, text, the line and a mark under it.
pub(crate) fn error_at(expression: &str, place: Option<usize>, wrong: &str) -> String {
    let place = place.unwrap_or_default();
    let before = &expression[..place];
    let line = before.matches('\n').count();
    let column = before
        .rfind('\n')
        .map_or(place, |newline| place - newline - 1);
    let text = expression.lines().nth(line).unwrap_or_default();
    format!(
        "ERROR: <input>:{}:{}: {wrong}\n | {text}\n | {}^",
        line + 1,
        column + 1,
        ".".repeat(column)
    )
}

// === impl Wanted ===

impl Wanted {
    /// The problem of a constant of another type.
    fn mismatch(self, compiled: &IdedExpr) -> Option<String> {
        let found = match &compiled.expr {
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => "bool",
                LiteralValue::Bytes(_) => "bytes",
                LiteralValue::Double(_) => "double",
                LiteralValue::Int(_) => "int",
                LiteralValue::Null => "null_type",
                LiteralValue::String(_) => "string",
                LiteralValue::UInt(_) => "uint",
            },
            Expr::Struct(of) => of.type_name.as_str(),
            _ => return None,
        };
        let (allowed, text): (&[&str], _) = match self {
            Self::Any => return None,
            Self::Bool => (&["bool"], "bool"),
            Self::Text => (&["string"], "string"),
            Self::TextOrNull => (&["string", "null_type"], "one of [string null_type]"),
            Self::Object => (&["Object"], "Object"),
            Self::JsonPatches => (&[], "list(JSONPatch)"),
        };
        (!allowed.contains(&found)).then(|| format!("must evaluate to {text} but got {found}"))
    }
}
