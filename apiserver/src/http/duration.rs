//! Durations in Go's syntax: `32s`, `1m30s`, `-1.5h`. (Go: `time.ParseDuration`.)

use std::time::Duration;

use crate::field::quote;

/// Names of units and their nanoseconds.
const UNITS: &[(&str, f64)] = &[
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3_600e9),
];
/// The longest duration in Go, in nanoseconds.
const LONGEST: f64 = i64::MAX as f64;

/// Parses a duration; zero for a negative one.
///
/// # Errors
/// The text of Go's error.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let invalid = || format!("time: invalid duration {}", quote(text));
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanoseconds = 0.0;
    while !rest.is_empty() {
        let is_of_number = |c: char| c.is_ascii_digit() || c == '.';
        let end = rest.find(|c: char| !is_of_number(c)).unwrap_or(rest.len());
        // A second point is one of a unit, and no unit has one.
        let (number, after) = rest.split_at(end);
        let number: f64 = number.parse().map_err(|_| invalid())?;
        let (unit, next) = after.split_at(after.find(is_of_number).unwrap_or(after.len()));
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {}", quote(text)));
        }
        let Some((_, length)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!(
                "time: unknown unit {} in duration {}",
                quote(unit),
                quote(text)
            ));
        };
        nanoseconds += number * length;
        if nanoseconds > LONGEST {
            return Err(invalid());
        }
        rest = next;
    }
    if is_negative {
        return Ok(Duration::ZERO);
    }
    Ok(Duration::from_nanos(nanoseconds as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_parsed_as_go_writes_it() {
        for (text, milliseconds) in [
            ("32s", 32_000),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
            ("0", 0),
            ("+0", 0),
            ("100ms", 100),
            ("1h2m3.5s", 3_723_500),
            (".5s", 500),
            ("5.s", 5_000),
            ("2000000000ns", 2_000),
            ("3000µs", 3),
            ("-5s", 0),
        ] {
            assert_eq!(
                parse(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_not_a_duration_gets_the_error_of_go() {
        for (text, error) in [
            ("soon", r#"invalid duration "soon""#),
            ("", r#"invalid duration """#),
            ("-", r#"invalid duration "-""#),
            ("--5s", r#"invalid duration "--5s""#),
            (".s", r#"invalid duration ".s""#),
            ("5", r#"missing unit in duration "5""#),
            ("1s2", r#"missing unit in duration "1s2""#),
            ("1x", r#"unknown unit "x" in duration "1x""#),
            ("1s2 m", r#"unknown unit " m" in duration "1s2 m""#),
            ("9999999999h", r#"invalid duration "9999999999h""#),
        ] {
            assert_eq!(parse(text), Err(format!("time: {error}")), "{text}");
        }
    }
}
