//! The variables that a policy defines, and the parts of the language that the interpreter does not have.
//!
//! `variables.name` becomes a call of `@variable`, which evaluates the variable when it is used for the first time.
//! `Object.spec{…}` becomes a map with its type as the member `@type`; the type is a value that no expression and no JSON
//! has. The names of functions begin with `@`, which no expression can contain. (apiserver: `plugin/cel/composition.go`, `cel/mutation`.)

use std::collections::BTreeMap;
use std::sync::Arc;

use kube_cel::cel::common::ast::{
    CallExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue, MapEntryExpr, MapExpr,
};
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{Context, ExecutionError, FunctionContext, Value as CelValue};
use parking_lot::Mutex;
use serde_json::Value;

use super::evaluate::explain;
use super::expression::Expression;

/// The member of an object that has its [`ObjectType`].
pub(super) const TYPE: &str = "@type";
const OBJECT_TYPE: &str = "@object_type";
const VARIABLE: &str = "@variable";
const VARIABLES: &str = "variables";
/// The variable that marks the scope of the expression itself, around those of its loops.
const ROOT: &str = "@root";

/// The name of the type of an object: `Object.spec` of `Object.spec{…}`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ObjectType(pub(super) String);

/// The variables of a policy: each may use those before it.
#[derive(Debug, Default)]
pub(crate) struct Composition {
    variables: Vec<(String, Expression)>,
}

/// The values of the variables in one evaluation.
#[derive(Debug)]
struct Values {
    of: Arc<Composition>,
    known: Mutex<BTreeMap<String, Result<CelValue, String>>>,
}

/// A rewritten expression.
pub(super) struct Composed {
    pub(super) expression: IdedExpr,
    /// The depth of the deepest variable that it uses.
    pub(super) depth_of_variables: usize,
}

// === impl Composition ===

impl Composition {
    /// Reads `variables`.
    pub(crate) fn read(variables: &Value) -> Self {
        let mut composition = Self::default();
        for variable in variables.as_array().into_iter().flatten() {
            let text = |field: &str| variable[field].as_str().unwrap_or_default();
            composition.add(text("name"), text("expression"));
        }
        composition
    }

    /// Adds a variable.
    pub(crate) fn add(&mut self, name: &str, expression: &str) {
        let expression = Expression::compile(expression, self);
        self.variables.push((name.to_owned(), expression));
    }

    fn get(&self, name: &str) -> Option<&Expression> {
        let mut latest = self.variables.iter().rev();
        latest.find_map(|(of, expression)| (of == name).then_some(expression))
    }

    /// The expression in the interpreter's language.
    ///
    /// # Errors
    /// The name of a variable that is not defined.
    pub(super) fn compose(&self, mut expression: IdedExpr) -> Result<Composed, String> {
        let mut depth_of_variables = 0;
        let mut unknown = None;
        rewrite(&mut expression, &mut |name| match self.get(name) {
            Some(variable) => depth_of_variables = depth_of_variables.max(variable.depth()),
            None => unknown = Some(name.to_owned()),
        });
        match unknown {
            None => Ok(Composed {
                expression,
                depth_of_variables,
            }),
            Some(name) => Err(format!("undefined field '{name}'")),
        }
    }

    pub(super) fn bind(self: &Arc<Self>, scope: &mut Context<'_>) {
        let values = Values {
            of: self.clone(),
            known: Mutex::default(),
        };
        scope.add_variable_from_value(VARIABLES, CelValue::Opaque(Arc::new(values)));
        scope.add_variable_from_value(ROOT, true);
    }
}

/// Rewrites an expression; `uses` gets the name of each variable in it.
fn rewrite(source: &mut IdedExpr, uses: &mut impl FnMut(&str)) {
    match &mut source.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        Expr::Select(select) => {
            let is_variable =
                matches!(&select.operand.expr, Expr::Ident(name) if name == VARIABLES);
            if !is_variable {
                return rewrite(&mut select.operand, uses);
            }
            uses(&select.field);
            source.expr = if select.test {
                Expr::Literal(LiteralValue::Boolean(true.into()))
            } else {
                Expr::Call(CallExpr {
                    func_name: VARIABLE.to_owned(),
                    target: None,
                    args: vec![(*select.operand).clone(), text(&select.field)],
                })
            };
        }
        Expr::Call(call) => {
            for part in call.target.as_deref_mut().into_iter().chain(&mut call.args) {
                rewrite(part, uses);
            }
        }
        Expr::List(list) => {
            for element in &mut list.elements {
                rewrite(element, uses);
            }
        }
        Expr::Comprehension(comprehension) => {
            for part in [
                &mut comprehension.iter_range,
                &mut comprehension.accu_init,
                &mut comprehension.loop_cond,
                &mut comprehension.loop_step,
                &mut comprehension.result,
            ] {
                rewrite(part, uses);
            }
        }
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    rewrite(&mut entry.key, uses);
                    rewrite(&mut entry.value, uses);
                }
            }
        }
        Expr::Struct(object) => {
            let of_type = IdedExpr {
                id: 0,
                expr: Expr::Call(CallExpr {
                    func_name: OBJECT_TYPE.to_owned(),
                    target: None,
                    args: vec![text(&object.type_name)],
                }),
            };
            let mut entries = vec![entry(TYPE, of_type, false)];
            for field in &mut object.entries {
                if let EntryExpr::StructField(field) = &mut field.expr {
                    rewrite(&mut field.value, uses);
                    entries.push(entry(&field.field, field.value.clone(), field.optional));
                }
            }
            source.expr = Expr::Map(MapExpr { entries });
        }
    }
}

fn entry(name: &str, value: IdedExpr, optional: bool) -> IdedEntryExpr {
    IdedEntryExpr {
        id: 0,
        expr: EntryExpr::MapEntry(MapEntryExpr {
            key: text(name),
            value,
            optional,
        }),
    }
}

fn text(text: &str) -> IdedExpr {
    IdedExpr {
        id: 0,
        expr: Expr::Literal(LiteralValue::String(text.into())),
    }
}

// === impl Values ===

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.of, &other.of)
    }
}

impl Eq for Values {}

impl Opaque for Values {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.variables"
    }
}

impl Values {
    fn get(&self, name: &str, scope: &Context<'_>) -> Result<CelValue, String> {
        if let Some(known) = self.known.lock().get(name) {
            return known.clone();
        }
        let value = match self.of.get(name) {
            None => Err(format!("no such key: {name}")),
            Some(variable) => match variable.program() {
                Err(why) => Err(format!(
                    "composited variable {} fails to compile: {why}",
                    crate::field::quote(name)
                )),
                Ok(program) => program.evaluate_within(scope).map_err(|error| {
                    format!(
                        "composited variable {} fails to evaluate: {}",
                        crate::field::quote(name),
                        explain(&error)
                    )
                }),
            },
        };
        self.known.lock().insert(name.to_owned(), value.clone());
        value
    }
}

impl Opaque for ObjectType {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.object_type"
    }
}

/// Adds the functions that rewritten expressions call.
pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function(VARIABLE, variable);
    context.add_function(OBJECT_TYPE, object_type);
}

/// `@object_type(name)`.
fn object_type(name: Arc<String>) -> Result<CelValue, ExecutionError> {
    Ok(CelValue::Opaque(Arc::new(ObjectType(name.to_string()))))
}

/// The scope of the expression itself, in which variables are evaluated wherever they are used.
fn root<'a>(mut scope: &'a Context<'a>) -> &'a Context<'a> {
    while let Context::Child {
        parent, variables, ..
    } = scope
        && !variables.contains_key(ROOT)
    {
        scope = parent;
    }
    scope
}

/// `@variable(variables, name)`: its value.
fn variable(function: &FunctionContext<'_, '_>) -> Result<CelValue, ExecutionError> {
    let [values, name] = function.args else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let (CelValue::Opaque(values), CelValue::String(name)) =
        (function.ptx.resolve(values)?, function.ptx.resolve(name)?)
    else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let values = values
        .downcast_ref::<Values>()
        .ok_or(ExecutionError::NoSuchOverload)?;
    let value = values.get(&name, root(function.ptx));
    value.map_err(|why| ExecutionError::function_error(VARIABLE, why))
}
