//! `type` and `dyn`, and the names of types as values.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::{Key, Map, Opaque};
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};

const DURATION: &str = "google.protobuf.Duration";
const TIMESTAMP: &str = "google.protobuf.Timestamp";

/// Types that expressions can name.
const NAMED: &[&str] = &[
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "type",
    "uint",
];

type Answer = Result<CelValue, ExecutionError>;

/// A type as a value.
#[derive(Debug, PartialEq, Eq)]
struct Type(String);

/// Adds the functions and the types.
pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function("type", type_of);
    context.add_function("dyn", dyn_of);
    for name in NAMED {
        context.add_variable_from_value(*name, Type::named(name));
    }
    let key = |name: &str| Key::String(Arc::new(name.to_owned()));
    let map = |members| {
        CelValue::Map(Map {
            map: Arc::new(members),
        })
    };
    let protobuf = HashMap::from([
        (key("Duration"), Type::named(DURATION)),
        (key("Timestamp"), Type::named(TIMESTAMP)),
    ]);
    let google = map(HashMap::from([(key("protobuf"), map(protobuf))]));
    context.add_variable_from_value("google", google);
}

// === impl Type ===

impl Type {
    fn named(name: &str) -> CelValue {
        CelValue::Opaque(Arc::new(Self(name.to_owned())))
    }
}

impl Opaque for Type {
    fn runtime_type_name(&self) -> &str {
        "type"
    }
}

fn dyn_of(This(value): This<CelValue>) -> Answer {
    Ok(value)
}

fn type_of(This(value): This<CelValue>) -> Answer {
    Ok(Type::named(match &value {
        CelValue::Bool(_) => "bool",
        CelValue::Bytes(_) => "bytes",
        CelValue::Duration(_) => DURATION,
        CelValue::Float(_) => "double",
        CelValue::Int(_) => "int",
        CelValue::List(_) => "list",
        CelValue::Map(_) => "map",
        CelValue::Null => "null_type",
        CelValue::Opaque(opaque) => opaque.runtime_type_name(),
        CelValue::String(_) => "string",
        CelValue::Timestamp(_) => TIMESTAMP,
        CelValue::UInt(_) => "uint",
        CelValue::Function(..) => "function",
    }))
}
