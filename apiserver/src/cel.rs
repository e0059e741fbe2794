//! Rules of `x-kubernetes-validations`: compiled once, evaluated with Kubernetes' texts.
//!
//! The language is the `cel` crate's, with the Kubernetes functions that `kube-cel` registers
//! (`isIP`, `cidr`, `quantity`, …). The walk over the object is ours, because paths, ratcheting and
//! the correlation of list items are Kubernetes'. Not enforced: cost budgets. A rule that uses what
//! the crate cannot evaluate (`sortBy`, `cel.bind`, two-variable comprehensions) fails.
//! (apiextensions-apiserver: `schema/cel`.)

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr, MapExpr, StructExpr};
use kube_cel::cel::objects::{Key, Map, OptionalValue};
use kube_cel::cel::{Context, ExecutionError, Program, Value as CelValue};
use serde_json::Value;

use crate::field::{ErrorKind, Errors, FieldError, Path};
use crate::schema::{Additional, Kind, ListType, Schema, map_key};

const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

/// Words of the language that a field may be called; CEL sees them as `__word__`.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// The stack deep expressions are parsed and evaluated on; only what is touched takes memory.
const DEEP_STACK: usize = 64 << 20;

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
    message_program: Option<Program>,
    kind: ErrorKind,
    field_path: Option<String>,
    optional_old_self: bool,
    /// It names `oldSelf`: without an old value it is skipped.
    transition: bool,
    /// It needs more stack than an ordinary thread has.
    deep: bool,
    program: Result<Program, String>,
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
        let program = compile(&rule);
        let transition = program
            .as_ref()
            .is_ok_and(|program| program.references().has_variable("oldSelf"));
        let message_program = text("messageExpression").and_then(|text| compile(&text).ok());
        let deep = program
            .iter()
            .chain(&message_program)
            .any(|program| depth(program.expression()) > DEEP);
        Self {
            deep,
            message: text("message").map(|message| message.trim().to_owned()),
            message_program,
            kind: match source["reason"].as_str() {
                Some("FieldValueForbidden") => ErrorKind::Forbidden,
                Some("FieldValueRequired") => ErrorKind::Required,
                Some("FieldValueDuplicate") => ErrorKind::Duplicate,
                _ => ErrorKind::Invalid,
            },
            field_path: text("fieldPath"),
            optional_old_self: source["optionalOldSelf"] == true,
            transition,
            program,
            text: rule,
        }
    }

    fn message(&self) -> String {
        self.message
            .clone()
            .unwrap_or_else(|| format!("failed rule: {}", self.text.trim()))
    }

    /// The message of a failure: the expression's text if it is one usable line, else the fixed one.
    fn message_in(&self, context: &Context<'_>) -> String {
        let dynamic =
            self.message_program
                .as_ref()
                .and_then(|program| match program.execute(context) {
                    Ok(CelValue::String(text)) => Some(text.trim().to_owned()),
                    _ => None,
                });
        dynamic
            .filter(|text| !text.is_empty() && !text.contains('\n'))
            .unwrap_or_else(|| self.message())
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
        Ok(program)
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

/// Whether an error of schema validation keeps the rules from being evaluated.
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

/// The note that rules were not evaluated.
pub(crate) fn not_checked() -> FieldError {
    FieldError::invalid(&Path::root(), Value::Null, NOT_CHECKED)
}

/// What the rules of `schema` and below say of `value`, which was `old`.
pub(crate) fn evaluate(schema: &Schema, value: &Value, old: Option<&Value>, path: &Path) -> Errors {
    let evaluate = || {
        FUNCTIONS.with(|functions| {
            let mut errors = Errors::new();
            walk(schema, value, old, path, functions, &mut errors);
            errors
        })
    };
    if schema.any(&|below| below.rules.iter().any(|rule| rule.deep)) {
        on_deep_stack(evaluate)
            .unwrap_or_else(|why| vec![FieldError::invalid(path, Value::Null, why)])
    } else {
        evaluate()
    }
}

thread_local! {
    static FUNCTIONS: Context<'static> = Context::default().with_all();
}

fn walk(
    schema: &Schema,
    value: &Value,
    old: Option<&Value>,
    path: &Path,
    functions: &Context<'_>,
    errors: &mut Errors,
) {
    if value.is_null() {
        return;
    }
    let old = old.filter(|old| !old.is_null());
    if !schema.rules.is_empty() {
        evaluate_node(schema, value, old, path, functions, errors);
    }
    if !schema.any(&|below| !below.rules.is_empty()) {
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let old = old.and_then(|old| old.get(name));
                if let Some(of) = schema.properties.get(name) {
                    walk(of, value, old, &path.child(name), functions, errors);
                } else if let Additional::Of(of) = &schema.additional {
                    walk(of, value, old, &path.key(name), functions, errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(of) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                // Only the items of a map-like list can be told to be what they were.
                let old = match (schema.list_type, old) {
                    (ListType::Map, Some(Value::Array(before))) => {
                        let key = map_key(schema, item);
                        before.iter().find(|item| map_key(schema, item) == key)
                    }
                    _ => None,
                };
                walk(of, item, old, &path.index(index), functions, errors);
            }
        }
        _ => {}
    }
}

fn evaluate_node(
    schema: &Schema,
    value: &Value,
    old: Option<&Value>,
    path: &Path,
    functions: &Context<'_>,
    errors: &mut Errors,
) {
    let unchanged = old == Some(value);
    let mut context = functions.new_inner_scope();
    context.add_variable_from_value("self", to_cel(value, schema, functions));
    let before = old.map(|old| to_cel(old, schema, functions));
    for rule in &schema.rules {
        // Ratcheting: what was wrong and did not change is tolerated.
        if unchanged && !rule.transition {
            continue;
        }
        let mut scope = context.new_inner_scope();
        if rule.transition {
            let bound = match (&before, rule.optional_old_self) {
                (None, false) => continue,
                (None, true) => CelValue::Opaque(Arc::new(OptionalValue::none())),
                (Some(before), true) => {
                    CelValue::Opaque(Arc::new(OptionalValue::of(before.clone())))
                }
                (Some(before), false) => before.clone(),
            };
            scope.add_variable_from_value("oldSelf", bound);
        }
        let result = match &rule.program {
            Ok(program) => program.execute(&scope).map_err(|error| explain(&error)),
            Err(why) => Err(format!("rule compile error: {why}")),
        };
        match result {
            Ok(CelValue::Bool(true)) => {}
            Ok(CelValue::Bool(false)) => {
                let message = rule.message_in(&scope);
                errors.push(failure(rule, value, path, message));
            }
            Ok(_) => {
                let why = "cel expression evaluated to a value that is no boolean".to_owned();
                errors.push(broken(rule, schema, value, path, &why));
            }
            Err(why) => errors.push(broken(rule, schema, value, path, &why)),
        }
    }
}

/// A rule that says no. Objects and lists are not repeated in the message.
fn failure(rule: &Rule, value: &Value, path: &Path, message: String) -> FieldError {
    let path = rule
        .field_path
        .as_deref()
        .map_or_else(|| path.clone(), |below| extend(path, below));
    let shown = match (rule.kind, value) {
        (ErrorKind::Forbidden | ErrorKind::Required, _)
        | (_, Value::Object(_) | Value::Array(_)) => None,
        (_, value) => Some(value.clone()),
    };
    // Of a duplicate Kubernetes tells the value only.
    let message = if rule.kind == ErrorKind::Duplicate {
        String::new()
    } else {
        message
    };
    FieldError::new(rule.kind, &path, shown, message)
}

/// A rule that cannot be evaluated; the value is shown as the name of its type.
fn broken(rule: &Rule, schema: &Schema, value: &Value, path: &Path, why: &str) -> FieldError {
    let shown = schema.kind.map_or_else(
        || match value {
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            _ => "object",
        },
        Kind::name,
    );
    let detail = format!("{why} evaluating rule: {}", rule.message());
    FieldError::invalid(path, shown, detail)
}

/// Runtime errors in the words of cel-go, as far as they are known.
fn explain(error: &ExecutionError) -> String {
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

// === values ===

static TO_TIMESTAMP: LazyLock<Option<Program>> =
    LazyLock::new(|| Program::compile("timestamp(text)").ok());
static TO_DURATION: LazyLock<Option<Program>> =
    LazyLock::new(|| Program::compile("duration(text)").ok());

/// A value as rules see it: typed by its schema, with field names escaped.
fn to_cel(value: &Value, schema: &Schema, functions: &Context<'_>) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(bool) => CelValue::Bool(*bool),
        Value::Number(number) => match (schema.kind, number.as_i64(), number.as_f64()) {
            (Some(Kind::Number), _, Some(float)) | (_, None, Some(float)) => CelValue::Float(float),
            (_, Some(integer), _) => CelValue::Int(integer),
            (_, None, None) => CelValue::Null,
        },
        Value::String(text) => {
            let plain = || CelValue::String(Arc::new(text.clone()));
            match schema.limits.format.as_deref() {
                Some("date-time") => {
                    converted(&TO_TIMESTAMP, text, functions).unwrap_or_else(plain)
                }
                Some("date") => {
                    let midnight = format!("{text}T00:00:00Z");
                    converted(&TO_TIMESTAMP, &midnight, functions).unwrap_or_else(plain)
                }
                Some("duration") => converted(&TO_DURATION, text, functions).unwrap_or_else(plain),
                _ => plain(),
            }
        }
        Value::Array(items) => {
            let untyped = Schema::default();
            let of = schema.items.as_deref().unwrap_or(&untyped);
            let items = items.iter().map(|item| to_cel(item, of, functions));
            CelValue::List(Arc::new(items.collect()))
        }
        Value::Object(map) => {
            let untyped = Schema::default();
            let members: HashMap<Key, CelValue> = map
                .iter()
                .map(|(name, value)| {
                    let property = schema.properties.get(name);
                    let of = property.or(schema.field(name)).unwrap_or(&untyped);
                    let is_map =
                        property.is_none() && !matches!(schema.additional, Additional::Unspecified);
                    let key = if is_map { name.clone() } else { escape(name) };
                    (Key::String(Arc::new(key)), to_cel(value, of, functions))
                })
                .collect();
            CelValue::Map(Map {
                map: Arc::new(members),
            })
        }
    }
}

fn converted(
    program: &LazyLock<Option<Program>>,
    text: &str,
    functions: &Context<'_>,
) -> Option<CelValue> {
    let mut scope = functions.new_inner_scope();
    scope.add_variable_from_value("text", CelValue::String(Arc::new(text.to_owned())));
    program.as_ref()?.execute(&scope).ok()
}

/// A field's name as an identifier of CEL: `a-b` is `a__dash__b`, `namespace` is `__namespace__`.
pub(crate) fn escape(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    if !name.contains("__") && !name.contains(['.', '-', '/']) {
        return name.to_owned();
    }
    name.replace("__", "\u{0}")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
        .replace('\u{0}', "__underscores__")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::aggregate;
    use crate::schema::ObjectSchema;
    use serde_json::json;

    fn rule(rule: &str, message: &str) -> Value {
        json!([{"rule": rule, "message": message}])
    }

    fn schema() -> Value {
        json!({
            "type": "object",
            "x-kubernetes-validations": [
                {"rule": "!has(self.metadata) || self.metadata.name.startsWith('x')", "message": "name must start with x"},
                {"rule": "!has(self.spec.ra) || self.spec.ra < 100", "message": "ra small", "fieldPath": ".spec.ra"},
            ],
            "properties": {"spec": {
                "type": "object",
                "x-kubernetes-validations": rule("!has(self.ra) || self.ra < 50", "ra very small"),
                "properties": {
                    "cidr": {"type": "string", "x-kubernetes-validations": rule("isCIDR(self) || isIP(self)", "must be an address")},
                    "inside": {"type": "string", "x-kubernetes-validations": rule("cidr('10.0.0.0/8').containsIP(ip(self)) && ip(self).family() == 4", "must be inside")},
                    "nomsg": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 5"}]},
                    "mexp": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 5", "messageExpression": "'got ' + string(self)"}]},
                    "mexpbad": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 5", "messageExpression": "''", "message": "fallback"}]},
                    "obj": {
                        "type": "object",
                        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
                        "x-kubernetes-validations": [
                            {"rule": "self.a > 5", "message": "a big"},
                            {"rule": "!has(self.b) || self.b == 'x'", "message": "b is x", "fieldPath": ".b", "reason": "FieldValueForbidden"},
                        ],
                    },
                    "rq": {
                        "type": "object",
                        "x-kubernetes-validations": [{"rule": "has(self.a)", "message": "need a", "fieldPath": ".a", "reason": "FieldValueRequired"}],
                    },
                    "dup": {"type": "string", "x-kubernetes-validations": [{"rule": "self != 'd'", "reason": "FieldValueDuplicate"}]},
                    "imm": {"type": "string", "x-kubernetes-validations": rule("self == oldSelf", "immutable")},
                    "opt": {"type": "string", "x-kubernetes-validations": [{
                        "rule": "!oldSelf.hasValue() || self == oldSelf.value()", "optionalOldSelf": true, "message": "immutable2",
                    }]},
                    "optc": {"type": "string", "x-kubernetes-validations": [{
                        "rule": "oldSelf.hasValue() || self == 'first'", "optionalOldSelf": true, "message": "must start first",
                    }]},
                    "arr": {
                        "type": "array",
                        "items": {"type": "string", "x-kubernetes-validations": rule("self != 'bad'", "no bad")},
                        "x-kubernetes-validations": rule("self.size() < 3", "few"),
                    },
                    "mp": {"type": "object", "additionalProperties": {"type": "string", "x-kubernetes-validations": rule("self != 'bad'", "no bad")}},
                    "err": {"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": rule("self[3] == 'x'", "boom")},
                    "dur": {"type": "string", "format": "duration", "x-kubernetes-validations": rule("self <= duration('24h')", "short")},
                    "durs": {"type": "string", "x-kubernetes-validations": rule("duration(self) <= duration('24h')", "short")},
                    "at": {"type": "string", "format": "date-time", "x-kubernetes-validations": rule("self > timestamp('2026-01-01T00:00:00Z')", "late")},
                    "lm": {
                        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                        "items": {"type": "object", "required": ["k"], "properties": {
                            "k": {"type": "string"},
                            "v": {"type": "string", "x-kubernetes-validations": rule("self == oldSelf", "v fixed")},
                        }},
                    },
                    "esc": {
                        "type": "object",
                        "properties": {"a-b": {"type": "integer"}, "my_field": {"type": "integer"}, "namespace": {"type": "integer"}},
                        "x-kubernetes-validations": rule("self.a__dash__b + self.my_field + self.__namespace__ == 6", "sum"),
                    },
                    "ra": {"type": "integer"},
                    "e": {"type": "string", "enum": ["a"]},
                    "max": {"type": "integer", "maximum": 5},
                },
            }},
        })
    }

    fn errors(object: Value, old: Option<Value>) -> String {
        aggregate(&ObjectSchema::custom(&schema()).validate(
            &object,
            old.as_ref(),
            Errors::new(),
            Errors::new(),
        ))
    }

    /// Texts of kube-apiserver 1.36.
    #[test]
    fn a_broken_rule_is_told_as_a_real_server_tells_it() {
        let note = format!("<nil>: Invalid value: null: {NOT_CHECKED}");
        let cases = [
            (
                json!({"cidr": "foo"}),
                r#"spec.cidr: Invalid value: "foo": must be an address"#,
            ),
            (json!({"cidr": "1.2.3.4"}), ""),
            (json!({"inside": "10.1.1.1"}), ""),
            (
                json!({"inside": "11.1.1.1"}),
                r#"spec.inside: Invalid value: "11.1.1.1": must be inside"#,
            ),
            (
                json!({"nomsg": 1}),
                "spec.nomsg: Invalid value: 1: failed rule: self > 5",
            ),
            (json!({"mexp": 1}), "spec.mexp: Invalid value: 1: got 1"),
            (
                json!({"mexpbad": 1}),
                "spec.mexpbad: Invalid value: 1: fallback",
            ),
            (json!({"obj": {"a": 1}}), "spec.obj: Invalid value: a big"),
            (
                json!({"obj": {}}),
                r#"spec.obj: Invalid value: "object": no such key: a evaluating rule: a big"#,
            ),
            (
                json!({"obj": {"a": 6, "b": "y"}}),
                "spec.obj.b: Forbidden: b is x",
            ),
            (
                json!({"obj": {"a": 1, "b": "y"}}),
                "[spec.obj: Invalid value: a big, spec.obj.b: Forbidden: b is x]",
            ),
            (json!({"rq": {}}), "spec.rq.a: Required value: need a"),
            (json!({"dup": "d"}), r#"spec.dup: Duplicate value: "d""#),
            (json!({"imm": "a"}), ""),
            (json!({"opt": "a"}), ""),
            (
                json!({"optc": "a"}),
                r#"spec.optc: Invalid value: "a": must start first"#,
            ),
            (
                json!({"arr": ["bad", "a", "b"]}),
                r#"[spec.arr: Invalid value: few, spec.arr[0]: Invalid value: "bad": no bad]"#,
            ),
            (
                json!({"mp": {"q": "bad"}}),
                r#"spec.mp[q]: Invalid value: "bad": no bad"#,
            ),
            (
                json!({"err": ["a"]}),
                r#"spec.err: Invalid value: "array": index out of bounds: 3 evaluating rule: boom"#,
            ),
            (
                json!({"dur": "25h"}),
                r#"spec.dur: Invalid value: "25h": short"#,
            ),
            (json!({"dur": "23h"}), ""),
            (
                json!({"durs": "x"}),
                r#"spec.durs: Invalid value: "string": type conversion error from 'string' to 'google.protobuf.Duration' evaluating rule: short"#,
            ),
            (
                json!({"durs": "25h"}),
                r#"spec.durs: Invalid value: "25h": short"#,
            ),
            (
                json!({"at": "2025-01-01T00:00:00Z"}),
                r#"spec.at: Invalid value: "2025-01-01T00:00:00Z": late"#,
            ),
            (
                json!({"ra": 200}),
                "[spec.ra: Invalid value: ra small, spec: Invalid value: ra very small]",
            ),
            (
                json!({"esc": {"a-b": 1, "my_field": 2, "namespace": 3}}),
                "",
            ),
            (
                json!({"nomsg": 1, "max": 9}),
                "[spec.max: Invalid value: 9: spec.max in body should be less than or equal to 5, spec.nomsg: Invalid value: 1: failed rule: self > 5]",
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(errors(json!({"spec": spec}), None), expected, "{spec}");
        }
        assert_eq!(
            errors(json!({"spec": {"nomsg": 1, "e": "x"}}), None),
            format!(r#"[spec.e: Unsupported value: "x": supported values: "a", {note}]"#)
        );
        assert_eq!(
            errors(json!({"metadata": {"name": "y"}, "spec": {}}), None),
            "<nil>: Invalid value: name must start with x"
        );
    }

    #[test]
    fn transition_rules_see_what_the_value_was() {
        let cases = [
            (
                "changed",
                json!({"imm": "b"}),
                json!({"imm": "a"}),
                r#"spec.imm: Invalid value: "b": immutable"#,
            ),
            ("removed", json!({}), json!({"imm": "a"}), ""),
            ("added", json!({"imm": "b"}), json!({}), ""),
            (
                "optional, changed",
                json!({"opt": "b"}),
                json!({"opt": "a"}),
                r#"spec.opt: Invalid value: "b": immutable2"#,
            ),
            (
                "optional, same",
                json!({"opt": "a"}),
                json!({"opt": "a"}),
                "",
            ),
            (
                "optional, second value",
                json!({"optc": "b"}),
                json!({"optc": "first"}),
                "",
            ),
            (
                "an item that moved and changed",
                json!({"lm": [{"k": "b", "v": "2"}, {"k": "a", "v": "3"}]}),
                json!({"lm": [{"k": "a", "v": "1"}, {"k": "b", "v": "2"}]}),
                r#"spec.lm[1].v: Invalid value: "3": v fixed"#,
            ),
        ];
        for (name, new, old, expected) in cases {
            assert_eq!(
                errors(json!({"spec": new}), Some(json!({"spec": old}))),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn a_broken_rule_is_tolerated_where_nothing_changed() {
        let old = json!({"spec": {"nomsg": 1}});
        assert_eq!(
            errors(
                json!({"spec": {"nomsg": 1, "cidr": "::1"}}),
                Some(old.clone())
            ),
            ""
        );
        assert_eq!(
            errors(json!({"spec": {"nomsg": 2}}), Some(old)),
            "spec.nomsg: Invalid value: 2: failed rule: self > 5"
        );
    }

    #[test]
    fn deep_nesting_is_compiled_or_refused_and_never_ends_the_process() {
        let nested = |depth: usize| format!("{}true{}", "!(".repeat(depth), ")".repeat(depth));
        let rules = |depth| json!({"type": "boolean", "x-kubernetes-validations": [{"rule": nested(depth), "message": "m"}]});
        let of = |depth| {
            let schema = Schema::parse(&rules(depth));
            aggregate(&evaluate(&schema, &json!(true), None, &Path::new("a")))
        };
        assert_eq!(of(90), "");
        assert_eq!(of(91), "a: Invalid value: true: m");
        assert!(compile_error(&nested(5_000)).is_some());
        let sum = |terms: usize| vec!["1"; terms].join("+") + ">0";
        assert_eq!(
            compile_error(&sum(9_000)).as_deref(),
            Some("expression recursion limit exceeded: 500")
        );
        assert!(compile_error(&sum(90_000)).is_some_and(|why| why.contains("size exceeds limit")));
        let rule = json!({"type": "boolean", "x-kubernetes-validations": [{"rule": sum(400)}]});
        let schema = Schema::parse(&rule);
        assert!(evaluate(&schema, &json!(true), None, &Path::root()).is_empty());
    }

    #[test]
    fn field_paths_are_split_at_dots_and_brackets() {
        let cases = [
            (".a.b", vec!["a", "b"]),
            ("['a.b']", vec!["a.b"]),
            (".a['b-c'].d", vec!["a", "b-c", "d"]),
        ];
        for (path, expected) in cases {
            assert_eq!(split_field_path(path), expected, "{path}");
        }
    }
}
