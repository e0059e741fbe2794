//! Quantities, compared and added without overflow.
//!
//! (apiserver: `pkg/cel/library/quantity.go`.)

use std::cmp::Ordering;
use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};

use super::crates;
use crate::schema::quantity_parts;

/// `mantissa * 10^scale`; the mantissa does not end in a zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quantity {
    mantissa: i128,
    scale: i32,
}

type Answer = Result<CelValue, ExecutionError>;

/// Adds the functions, in place of those of the crates.
pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function("quantity", quantity);
    context.add_function("isQuantity", is_quantity);
    context.add_function("sign", sign);
    context.add_function("isInteger", is_integer);
    context.add_function("asInteger", as_integer);
    context.add_function("asApproximateFloat", as_approximate_float);
    context.add_function("add", add);
    context.add_function("sub", sub);
    context.add_function("compareTo", compare_to);
    context.add_function("isGreaterThan", is_greater_than);
    context.add_function("isLessThan", is_less_than);
}

// === impl Quantity ===

impl Quantity {
    /// `None` if the scale is out of range.
    fn new(mut mantissa: i128, mut scale: i32) -> Option<Self> {
        if mantissa == 0 {
            return Some(Self { mantissa, scale: 0 });
        }
        while mantissa % 10 == 0 {
            mantissa /= 10;
            scale = scale.checked_add(1)?;
        }
        Some(Self { mantissa, scale })
    }

    fn read(text: &str) -> Option<Self> {
        let (mantissa, scale) = quantity_parts(text)?;
        Self::new(mantissa, scale)
    }

    /// The exponent of the first digit, plus one.
    fn magnitude(self) -> i64 {
        let digits = self.mantissa.unsigned_abs().checked_ilog10();
        i64::from(digits.map_or(0, |digits| digits + 1)) + i64::from(self.scale)
    }

    /// The mantissa with a lower scale.
    fn at(self, scale: i32) -> Option<i128> {
        let power = u32::try_from(i64::from(self.scale) - i64::from(scale)).ok()?;
        self.mantissa.checked_mul(10_i128.checked_pow(power)?)
    }

    fn integer(self) -> Option<i64> {
        i64::try_from(self.at(0)?).ok()
    }

    fn plus(self, other: Self) -> Option<Self> {
        if other.mantissa == 0 {
            return Some(self);
        }
        if self.mantissa == 0 {
            return Some(other);
        }
        let scale = self.scale.min(other.scale);
        let sum = self.at(scale)?.checked_add(other.at(scale)?)?;
        Self::new(sum, scale)
    }

    fn negated(self) -> Option<Self> {
        Some(Self {
            mantissa: self.mantissa.checked_neg()?,
            ..self
        })
    }

    fn order(self, other: Self) -> Ordering {
        let by_sign = self.mantissa.signum().cmp(&other.mantissa.signum());
        if by_sign.is_ne() || self.mantissa == 0 {
            return by_sign;
        }
        let scale = self.scale.min(other.scale);
        let by_size = match self.magnitude().cmp(&other.magnitude()) {
            Ordering::Equal => match (self.at(scale), other.at(scale)) {
                (Some(one), Some(other)) => return one.cmp(&other),
                // Of two numbers of the same length, the one that does not fit is larger.
                (None, _) => Ordering::Greater,
                (_, None) => Ordering::Less,
            },
            unequal => unequal,
        };
        if self.mantissa < 0 {
            by_size.reverse()
        } else {
            by_size
        }
    }
}

impl Opaque for Quantity {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.Quantity"
    }
}

fn of(value: &CelValue) -> Option<Quantity> {
    match value {
        CelValue::Opaque(opaque) => opaque.downcast_ref::<Quantity>().copied(),
        _ => None,
    }
}

fn target(value: &CelValue) -> Result<Quantity, ExecutionError> {
    of(value).ok_or(ExecutionError::NoSuchOverload)
}

fn quantity(text: Arc<String>) -> Answer {
    let read = Quantity::read(&text);
    let read = read.ok_or_else(|| {
        let why = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
        ExecutionError::function_error("quantity", why)
    })?;
    Ok(CelValue::Opaque(Arc::new(read)))
}

fn is_quantity(text: Arc<String>) -> Answer {
    Ok(CelValue::Bool(Quantity::read(&text).is_some()))
}

fn sign(This(of): This<CelValue>) -> Answer {
    let sign = target(&of)?.mantissa.signum();
    Ok(CelValue::Int(i64::try_from(sign).unwrap_or_default()))
}

fn is_integer(This(of): This<CelValue>) -> Answer {
    Ok(CelValue::Bool(target(&of)?.integer().is_some()))
}

fn as_integer(This(of): This<CelValue>) -> Answer {
    let integer = target(&of)?.integer();
    let why = "cannot convert value to integer";
    let integer = integer.ok_or_else(|| ExecutionError::function_error("asInteger", why))?;
    Ok(CelValue::Int(integer))
}

fn as_approximate_float(This(of): This<CelValue>) -> Answer {
    let Quantity { mantissa, scale } = target(&of)?;
    // Reading the text rounds once.
    let float = format!("{mantissa}e{scale}").parse();
    Ok(CelValue::Float(float.unwrap_or_default()))
}

fn add(This(of): This<CelValue>, other: CelValue) -> Answer {
    sum(&of, &other, "add", Some)
}

fn sub(This(of): This<CelValue>, other: CelValue) -> Answer {
    sum(&of, &other, "sub", Quantity::negated)
}

/// The sum of a quantity and what `sign` makes of the other, which may be an integer.
fn sum(
    one: &CelValue,
    other: &CelValue,
    function: &str,
    sign: fn(Quantity) -> Option<Quantity>,
) -> Answer {
    let one = target(one)?;
    let other = match other {
        CelValue::Int(number) => Quantity::new((*number).into(), 0),
        other => Some(target(other)?),
    };
    let sum = other.and_then(sign).and_then(|other| one.plus(other));
    let why = "the quantity has more digits than this server supports";
    let sum = sum.ok_or_else(|| ExecutionError::function_error(function, why))?;
    Ok(CelValue::Opaque(Arc::new(sum)))
}

fn compare_to(This(one): This<CelValue>, other: CelValue) -> Answer {
    compared("compareTo", one, other, |order| CelValue::Int(order as i64))
}

fn is_greater_than(This(one): This<CelValue>, other: CelValue) -> Answer {
    let is = |order: Ordering| CelValue::Bool(order.is_gt());
    compared("isGreaterThan", one, other, is)
}

fn is_less_than(This(one): This<CelValue>, other: CelValue) -> Answer {
    let is = |order: Ordering| CelValue::Bool(order.is_lt());
    compared("isLessThan", one, other, is)
}

/// Compares two quantities; other types are those of the crates.
fn compared(
    function: &str,
    one: CelValue,
    other: CelValue,
    result: impl FnOnce(Ordering) -> CelValue,
) -> Answer {
    match of(&one) {
        Some(one) => Ok(result(one.order(target(&other)?))),
        None => crates::call_method(function, one, other),
    }
}
