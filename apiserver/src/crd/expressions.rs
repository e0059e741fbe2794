//! Checks an expression before it is evaluated: undeclared names, fields without a schema, results that are
//! not a boolean.
//!
//! A real server type-checks the whole expression. This check finds common mistakes (a misspelt field or
//! variable) with the same texts; overloads of operators and unknown functions show only when the
//! rule is evaluated.

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue};
use serde_json::Value;

use crate::cel::{KNOWN, compile, error_at, escape, is_known_function, place_of};

/// Names bound by macros, and the schemas of their values where known.
type Bound<'a> = Vec<(&'a str, Option<&'a Value>)>;

/// Fields at the top of every object, whatever the schema.
const OF_EVERY_OBJECT: &[&str] = &["apiVersion", "kind", "metadata"];

/// The error of a rule on values of `schema`, which may be the schema of whole objects.
pub(super) fn check(rule: &str, schema: &Value, whole: bool) -> Option<String> {
    let program = match compile(rule) {
        Ok(program) => program,
        Err(why) => {
            let why = why.replace("\n| ", "\n | ");
            return Some(format!("compilation failed: {why}"));
        }
    };
    let checker = Checker {
        rule,
        schema,
        whole,
    };
    let mut bound = Bound::new();
    if let Some(why) = checker.visit(&program, &mut bound) {
        return Some(format!("compilation failed: {why}"));
    }
    let no_boolean = match &program.expr {
        Expr::Literal(literal) => !matches!(literal, LiteralValue::Boolean(_)),
        Expr::List(_) | Expr::Map(_) => true,
        _ => checker
            .schema_of(&program, &bound)
            .and_then(|schema| schema["type"].as_str())
            .is_some_and(|kind| kind != "boolean"),
    };
    no_boolean.then(|| "cel expression must evaluate to a bool".to_owned())
}

struct Checker<'a> {
    rule: &'a str,
    schema: &'a Value,
    whole: bool,
}

// === impl Checker ===

impl<'a> Checker<'a> {
    fn visit(&self, expression: &'a IdedExpr, bound: &mut Bound<'a>) -> Option<String> {
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) => None,
            Expr::Ident(name) => {
                let declared = name.starts_with('@')
                    || matches!(name.as_str(), "self" | "oldSelf")
                    || KNOWN.contains(&name.as_str())
                    || bound.iter().any(|(other, _)| other == name);
                if declared {
                    return None;
                }
                Some(self.undeclared(name, name))
            }
            Expr::Select(select) => {
                if let Some(why) = self.visit(&select.operand, bound) {
                    return Some(why);
                }
                let above = self.schema_of(&select.operand, bound)?;
                let implied = self.whole
                    && std::ptr::eq(above, self.schema)
                    && OF_EVERY_OBJECT.contains(&select.field.as_str());
                let known = self.property(above, &select.field).is_some();
                if implied || known || !is_closed(above) {
                    return None;
                }
                let wrong = format!("undefined field '{}'", select.field);
                let place = if select.test {
                    self.rule.find("has(").map(|start| start + 3)
                } else {
                    place_of(self.rule, &format!(".{}", select.field))
                };
                Some(error_at(self.rule, place, &wrong))
            }
            Expr::Call(call) if !is_known_function(&call.func_name) => {
                Some(self.undeclared(&call.func_name, &format!("{}(", call.func_name)))
            }
            Expr::Call(call) => call
                .target
                .as_deref()
                .into_iter()
                .chain(&call.args)
                .find_map(|part| self.visit(part, bound)),
            Expr::List(list) => list
                .elements
                .iter()
                .find_map(|element| self.visit(element, bound)),
            Expr::Map(map) => map
                .entries
                .iter()
                .find_map(|entry| self.entry(&entry.expr, bound)),
            Expr::Struct(of) => {
                Some(self.undeclared(&of.type_name, &format!("{}{{", of.type_name)))
            }
            Expr::Comprehension(comprehension) => {
                if let Some(why) = self.visit(&comprehension.iter_range, bound) {
                    return Some(why);
                }
                let item = self
                    .schema_of(&comprehension.iter_range, bound)
                    .and_then(|range| range.get("items"));
                let before = bound.len();
                bound.push((&comprehension.iter_var, item));
                if let Some(second) = &comprehension.iter_var2 {
                    // With two variables the first is the position or key.
                    bound[before].1 = None;
                    bound.push((second, item));
                }
                bound.push((&comprehension.accu_var, None));
                let found = [
                    &comprehension.accu_init,
                    &comprehension.loop_cond,
                    &comprehension.loop_step,
                    &comprehension.result,
                ]
                .into_iter()
                .find_map(|part| self.visit(part, bound));
                bound.truncate(before);
                found
            }
        }
    }

    /// The error of a name that is not declared, at the place of `word`.
    fn undeclared(&self, name: &str, word: &str) -> String {
        let wrong = format!("undeclared reference to '{name}' (in container '')");
        error_at(self.rule, place_of(self.rule, word), &wrong)
    }

    fn entry(&self, entry: &'a EntryExpr, bound: &mut Bound<'a>) -> Option<String> {
        match entry {
            EntryExpr::StructField(field) => self.visit(&field.value, bound),
            EntryExpr::MapEntry(entry) => self
                .visit(&entry.key, bound)
                .or_else(|| self.visit(&entry.value, bound)),
        }
    }

    /// The schema of the result of an expression, if it is a path from a known value.
    fn schema_of(&self, expression: &'a IdedExpr, bound: &Bound<'a>) -> Option<&'a Value> {
        match &expression.expr {
            Expr::Ident(name) => {
                if let Some((_, schema)) = bound.iter().rev().find(|(other, _)| other == name) {
                    return *schema;
                }
                matches!(name.as_str(), "self" | "oldSelf").then_some(self.schema)
            }
            Expr::Select(select) if !select.test => {
                self.property(self.schema_of(&select.operand, bound)?, &select.field)
            }
            Expr::Call(call) if call.func_name == "_[_]" => {
                let list = self.schema_of(call.args.first()?, bound)?;
                list.get("items")
                    .or_else(|| list.get("additionalProperties"))
            }
            _ => None,
        }
        // `oldSelf` may be optional; then the path goes through its methods and ends here.
        .filter(|schema| schema.is_object())
    }

    /// The schema of a field by its name in CEL.
    fn property(&self, schema: &'a Value, field: &str) -> Option<&'a Value> {
        let properties = schema.get("properties").and_then(Value::as_object);
        properties
            .into_iter()
            .flatten()
            .find(|(name, _)| escape(name) == field)
            .map(|(_, schema)| schema)
            .or_else(|| schema.get("additionalProperties"))
    }
}

/// Whether fields that are not in the schema cannot exist.
fn is_closed(schema: &Value) -> bool {
    schema["type"] == "object"
        && schema.get("additionalProperties").is_none()
        && schema["x-kubernetes-preserve-unknown-fields"] != true
        && schema["x-kubernetes-embedded-resource"] != true
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Texts of kube-apiserver 1.36.
    #[test]
    fn slips_are_found_with_the_texts_of_a_real_server() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "integer"},
            "ok": {"type": "boolean"},
            "my-name": {"type": "string"},
            "l": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
            "m": {"type": "object", "additionalProperties": {"type": "string"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }});
        let failed = |wrong: &str| Some(format!("compilation failed: ERROR: <input>:{wrong}"));
        let cases = [
            (
                "self.zz > 1",
                failed("1:5: undefined field 'zz'\n | self.zz > 1\n | ....^"),
            ),
            (
                "has(self.zz)",
                failed("1:4: undefined field 'zz'\n | has(self.zz)\n | ...^"),
            ),
            (
                "self.l.all(i, i.y > 1)",
                failed("1:16: undefined field 'y'\n | self.l.all(i, i.y > 1)\n | ...............^"),
            ),
            (
                "self.l[0].zz > 1",
                failed("1:10: undefined field 'zz'\n | self.l[0].zz > 1\n | .........^"),
            ),
            (
                "oldSelf.zz > 1",
                failed("1:8: undefined field 'zz'\n | oldSelf.zz > 1\n | .......^"),
            ),
            (
                "foo.bar > 1",
                failed(
                    "1:1: undeclared reference to 'foo' (in container '')\n | foo.bar > 1\n | ^",
                ),
            ),
            (
                "self.a > 1 && foo",
                failed(
                    "1:15: undeclared reference to 'foo' (in container '')\n | self.a > 1 && foo\n | ..............^",
                ),
            ),
            (
                "1",
                Some("cel expression must evaluate to a bool".to_owned()),
            ),
            (
                "self.a",
                Some("cel expression must evaluate to a bool".to_owned()),
            ),
            ("self.ok", None),
            ("self.m.q == 'x'", None),
            ("self.m['q'] == 'x'", None),
            ("self.free.x.y == 1", None),
            ("self.my__dash__name == 'x'", None),
            ("size(self.l) > 1 && self.l.exists_one(i, i.x == 1)", None),
            ("self.l.map(i, i.x).all(n, n > 0)", None),
            ("self.m.all(k, self.m[k] == k)", None),
            (
                "[1, 2].exists(n, n == self.a) || {'k': self.a}['k'] == 1",
                None,
            ),
            ("sets.contains([1], [self.a]) || type(self.a) == int", None),
            ("oldSelf.hasValue() && oldSelf.value().a == 1", None),
        ];
        assert_eq!(
            check("self.metadata.name == self.kind", &schema, true),
            None
        );
        assert!(check("self.metadata.name == 'x'", &schema, false).is_some());
        for (rule, expected) in cases {
            assert_eq!(check(rule, &schema, false), expected, "{rule}");
        }
    }
}
