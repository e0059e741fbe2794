//! The variables of expressions about a write.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Value as CelValue};
use serde_json::Value;

use super::authorizer::Authorizer;

/// The variables of expressions about a write. A copy shares their values.
#[derive(Clone, Debug)]
pub(crate) struct Variables(Vec<(&'static str, CelValue)>);

// === impl Variables ===

impl Variables {
    /// Those of each write: its objects, the request of an AdmissionReview without objects, and the user's rights.
    pub(crate) fn new(
        object: Option<&Value>,
        old_object: Option<&Value>,
        request: &Value,
        authorizer: &Authorizer,
    ) -> Self {
        Self(vec![
            ("request", untyped(request)),
            ("authorizer", authorizer.to_cel()),
        ])
        .with("object", object)
        .with("oldObject", old_object)
    }

    /// With another variable; null without a value.
    #[must_use]
    pub(crate) fn with(mut self, name: &'static str, value: Option<&Value>) -> Self {
        self.0.retain(|(other, _)| *other != name);
        self.0.push((name, value.map_or(CelValue::Null, untyped)));
        self
    }

    pub(super) fn bind(&self, scope: &mut Context<'_>) {
        for (name, value) in &self.0 {
            scope.add_variable_from_value(*name, value.clone());
        }
    }
}

/// A value without a schema: field names stay as they are.
fn untyped(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(bool) => CelValue::Bool(*bool),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => CelValue::Int(integer),
            (None, Some(float)) => CelValue::Float(float),
            (None, None) => CelValue::Null,
        },
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Array(items) => CelValue::List(Arc::new(items.iter().map(untyped).collect())),
        Value::Object(map) => {
            let members: HashMap<Key, CelValue> = map
                .iter()
                .map(|(name, value)| (Key::String(Arc::new(name.clone())), untyped(value)))
                .collect();
            CelValue::Map(Map {
                map: Arc::new(members),
            })
        }
    }
}
