//! Times and durations as Go reads and writes them.
//!
//! (Go: `time.ParseDuration`, `time.RFC3339Nano`; cel-go: `common/types/duration.go`, `timestamp.go`.)

use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::functions::time;
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

type Answer = Result<CelValue, ExecutionError>;

/// Adds the functions, in place of those of the crates.
pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function("duration", duration);
    context.add_function("getSeconds", get_seconds);
    context.add_function("getMilliseconds", get_milliseconds);
}

/// A time in the format of the crates with `Z` for UTC, and without zeros at the end of its fraction.
pub(super) fn text(time: &str) -> String {
    let (time, zone) = time.split_at(time.len().saturating_sub("+00:00".len()));
    let time = match time.contains('.') {
        true => time.trim_end_matches('0').trim_end_matches('.'),
        false => time,
    };
    let zone = if zone == "+00:00" { "Z" } else { zone };
    format!("{time}{zone}")
}

/// A duration as a number of seconds: `1.5s`.
#[expect(clippy::cast_precision_loss, reason = "cel-go rounds to a float, too")]
pub(super) fn seconds(nanoseconds: i64) -> String {
    let second = SECOND.cast_signed();
    let (seconds, rest) = (nanoseconds / second, nanoseconds % second);
    format!("{}s", seconds as f64 + rest as f64 / 1e9)
}

fn duration(This(value): This<CelValue>) -> Answer {
    let text = match value {
        CelValue::Duration(time) => return Ok(CelValue::Duration(time)),
        CelValue::String(text) => text,
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    let (is_negative, nanoseconds) = parse(&text).ok_or_else(|| {
        let why = format!("time: invalid duration {}", crate::field::quote(&text));
        ExecutionError::function_error("duration", why)
    })?;
    // In a form that the crate reads without rounding.
    let sign = if is_negative { "-" } else { "" };
    time::duration(Arc::new(format!(
        "{sign}{}h{}m{}s{}ns",
        nanoseconds / HOUR,
        nanoseconds % HOUR / MINUTE,
        nanoseconds % MINUTE / SECOND,
        nanoseconds % SECOND
    )))
}

/// The sign and the nanoseconds of a duration in Go's syntax.
fn parse(text: &str) -> Option<(bool, u64)> {
    let is_negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Some((false, 0));
    }
    let mut total: u64 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit());
        let (unit, after) = after.split_at(end.unwrap_or(after.len()));
        let unit = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => SECOND,
            "m" => MINUTE,
            "h" => HOUR,
            _ => return None,
        };
        let whole: u64 = if whole.is_empty() {
            0
        } else {
            whole.parse().ok()?
        };
        let part = whole
            .checked_mul(unit)?
            .checked_add(of_fraction(fraction, unit))?;
        total = total.checked_add(part)?;
        rest = after;
    }
    let most = u64::try_from(i64::MAX).unwrap_or_default() + u64::from(is_negative);
    (total <= most).then_some((is_negative, total))
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

/// Nanoseconds of a fraction of a unit, rounded down. Digits below a nanosecond do not count.
fn of_fraction(digits: &str, unit: u64) -> u64 {
    let mut value: u128 = 0;
    let mut scale: u128 = 1;
    for digit in digits.bytes().take(18) {
        value = value * 10 + u128::from(digit - b'0');
        scale *= 10;
    }
    u64::try_from(value * u128::from(unit) / scale).unwrap_or_default()
}

fn get_seconds(This(value): This<CelValue>) -> Answer {
    match value {
        CelValue::Duration(time) => Ok(CelValue::Int(time.num_seconds())),
        value => time::get_seconds(This(value)),
    }
}

fn get_milliseconds(This(value): This<CelValue>) -> Answer {
    match value {
        CelValue::Duration(time) => Ok(CelValue::Int(time.num_milliseconds())),
        value => time::get_milliseconds(This(value)),
    }
}
