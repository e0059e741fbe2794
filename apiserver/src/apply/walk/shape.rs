//! Which of the shapes of a type applies to a value.

use serde_json::Value;

use super::super::schema::{Atom, List, Map, Scalar};
use super::problem::{Problem, problem};

/// The part of a type that applies to a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'a> {
    Scalar(Scalar),
    List(&'a List),
    Map(&'a Map),
}

/// The shapes that a value leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    scalar: bool,
    list: bool,
    map: bool,
}

/// The shape of `value`: its own if the type has it, otherwise the first that the type has.
pub(super) fn shape<'a>(atom: &'a Atom, value: Option<&Value>) -> Result<Shape<'a>, Problem> {
    let open = open(atom, value);
    let map = atom.map.as_ref().filter(|_| open.map).map(Shape::Map);
    let scalar = atom.scalar.filter(|_| open.scalar).map(Shape::Scalar);
    let list = atom.list.as_ref().filter(|_| open.list).map(Shape::List);
    map.or(scalar)
        .or(list)
        .ok_or_else(|| problem("schema error: invalid atom: inlined"))
}

/// The shapes of two values, or one if it serves both. A missing value has any shape.
pub(super) fn shapes<'a>(
    atom: &'a Atom,
    one: Option<&Value>,
    other: Option<&Value>,
) -> Result<(Option<Shape<'a>>, Shape<'a>), Problem> {
    if other.is_none() {
        return Ok((None, shape(atom, one)?));
    }
    let last = shape(atom, other)?;
    if one.is_none() || open(atom, one) == open(atom, other) {
        return Ok((None, last));
    }
    Ok((Some(shape(atom, one)?), last))
}

fn open(atom: &Atom, value: Option<&Value>) -> Open {
    let all = Open {
        scalar: atom.scalar.is_some(),
        list: atom.list.is_some(),
        map: atom.map.is_some(),
    };
    let none = Open {
        scalar: false,
        list: false,
        map: false,
    };
    match value {
        Some(Value::Object(_)) if all.map => Open { map: true, ..none },
        Some(Value::Array(_)) if all.list => Open { list: true, ..none },
        Some(Value::String(_) | Value::Number(_) | Value::Bool(_)) if all.scalar => Open {
            scalar: true,
            ..none
        },
        _ => all,
    }
}
