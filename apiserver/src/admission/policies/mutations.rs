//! The expressions of a policy that changes objects.

use std::sync::Arc;

use serde_json::{Value, json};

use super::policy::{Expressions, Policy};
use super::validations::BUDGET;
use crate::cel::{
    Composition, Expression, Variables, check_type_names, elements, field, to_json, type_name,
    within,
};
use crate::table::cells::{items, string};

/// The expressions of a policy that changes objects.
#[derive(Debug)]
pub(super) struct Mutations {
    composition: Arc<Composition>,
    mutations: Vec<Mutation>,
    is_deep: bool,
    /// Whether it is asked again after a later step changed the object.
    pub(super) reinvoked: bool,
}

/// An expression, and the kind of its result.
#[derive(Debug)]
struct Mutation {
    expression: Expression,
    is_json_patch: bool,
}

/// The result of a mutation.
#[derive(Debug, PartialEq)]
pub(super) enum Patch {
    /// Fields that are merged into the object.
    Merge(Value),
    /// Operations of a JSON patch.
    Operations(Vec<Value>),
}

// === impl Mutations ===

impl Expressions for Mutations {
    fn compile(spec: &Value, composition: &Arc<Composition>) -> Self {
        let mutations: Vec<_> = items(&spec["mutations"])
            .iter()
            .map(|source| {
                let is_json_patch = source["patchType"] == "JSONPatch";
                let of = if is_json_patch {
                    "jsonPatch"
                } else {
                    "applyConfiguration"
                };
                let text = string(&source[of]["expression"]);
                Mutation {
                    expression: Expression::compile(text, composition),
                    is_json_patch,
                }
            })
            .collect();
        Self {
            is_deep: mutations.iter().any(|one| one.expression.is_deep()),
            composition: composition.clone(),
            mutations,
            reinvoked: spec["reinvocationPolicy"] == "IfNeeded",
        }
    }
}

impl Policy<Mutations> {
    /// Whether the evaluation needs a large stack, and so a thread that it waits for.
    pub(super) fn is_deep(&self) -> bool {
        self.conditions.are_deep() || self.expressions.is_deep
    }

    /// The number of mutations.
    pub(super) fn mutations(&self) -> usize {
        self.expressions.mutations.len()
    }

    /// The result of one mutation.
    ///
    /// # Errors
    /// Why it has none.
    pub(super) fn patch(&self, at: usize, variables: &Variables) -> Result<Patch, String> {
        let of = &self.expressions;
        let Mutation {
            expression,
            is_json_patch,
        } = &of.mutations[at];
        if let Some(why) = expression.error() {
            return Err(why.to_owned());
        }
        within(variables, &of.composition, of.is_deep, |scope| {
            let mut budget = BUDGET;
            let value = expression.evaluate(scope, &mut budget);
            let value = value.map_err(crate::cel::Failure::into_text)?;
            if *is_json_patch {
                let list = elements(&value)
                    .ok_or("type mismatch: JSONPatchType.expression should evaluate to array")?;
                let operations = list.iter().map(|one| {
                    if type_name(one).as_deref() != Some("JSONPatch") {
                        return Err("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch".to_owned());
                    }
                    let mut operation = json!({"op": "", "path": ""});
                    for name in ["op", "path", "from", "value"] {
                        if let Some(value) = field(one, name) {
                            if name == "value" {
                                check_type_names(value).map_err(|why| format!("type mismatch: {why}"))?;
                            }
                            operation[name] = to_json(value).map_err(|why| format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}"))?;
                        }
                    }
                    Ok(operation)
                });
                Ok(Patch::Operations(
                    operations.collect::<Result<_, String>>()?,
                ))
            } else {
                if type_name(&value).as_deref() != Some("Object") {
                    return Err("must evaluate to Object".to_owned());
                }
                check_type_names(&value).map_err(|why| format!("type mismatch: {why}"))?;
                Ok(Patch::Merge(to_json(&value)?))
            }
        })?
    }
}
