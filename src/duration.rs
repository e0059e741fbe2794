//! How long a ban lasts, as users write it: `10m`, `1h30m`, `1.5h`, `2d`, `1w`.
//!
//! The grammar is that of Go's `time.ParseDuration`, which the original used, with days (`d`, 24 h)
//! and weeks (`w`, 7 d) added. A ban lasts whole seconds, so durations are rounded up; zero, negative
//! durations and those over [`MAX`] are refused. An empty text means "without end", see
//! [`parse_optional`].

use std::time::Duration;

use crate::target::Quoted;

/// The longest ban that has an end: a hundred years.
pub const MAX: Duration = Duration::from_secs(36_525 * 24 * 60 * 60);

/// The longest text that is parsed.
pub const MAX_TEXT: usize = 64;

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A leading minus.
    #[error("duration {0} is negative; write how long the ban lasts, for example 10m")]
    Negative(Quoted),
    /// It is zero.
    #[error(
        "duration {0} is zero; write how long the ban lasts, for example 10m, or leave it out for a ban without end"
    )]
    Zero(Quoted),
    /// Longer than [`MAX`].
    #[error("duration {0} is longer than 100 years; leave it out for a ban without end")]
    TooLong(Quoted),
    /// `10` could be seconds or minutes.
    #[error(
        "duration {0} has a number without a unit; write for example 10m (units: ns, us, ms, s, m, h, d, w)"
    )]
    NoUnit(Quoted),
    /// A unit that does not exist.
    #[error(
        "duration {text} has the unknown unit {unit}; known are ns, us, ms, s, m, h, d (24 hours) and w (7 days)"
    )]
    Unit {
        /// The text.
        text: Quoted,
        /// The part that is not a unit.
        unit: Quoted,
    },
    /// Anything else.
    #[error(
        "{0} is not a duration; write for example 10m, 1h30m or 2d (units: ns, us, ms, s, m, h, d, w)"
    )]
    Malformed(Quoted),
}

/// Reads a duration and rounds it up to whole seconds.
///
/// # Errors
/// See [`Error`]; the message quotes the text and has an example.
pub fn parse(text: &str) -> Result<Duration, Error> {
    let quoted = || Quoted::new(text);
    if text.len() > MAX_TEXT {
        return Err(Error::Malformed(quoted()));
    }
    if text.starts_with('-') {
        return Err(Error::Negative(quoted()));
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Err(Error::Zero(quoted()));
    }
    if rest.is_empty() {
        return Err(Error::Malformed(quoted()));
    }
    let mut nanoseconds: u128 = 0;
    while !rest.is_empty() {
        let (number, after) = Number::take(rest).ok_or_else(|| Error::Malformed(quoted()))?;
        let end = after
            .find(|character: char| character == '.' || character.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        if unit.is_empty() {
            return Err(if next.is_empty() {
                Error::NoUnit(quoted())
            } else {
                Error::Malformed(quoted())
            });
        }
        let scale = scale(unit).ok_or_else(|| Error::Unit {
            text: quoted(),
            unit: Quoted::new(unit),
        })?;
        nanoseconds = number
            .times(scale)
            .and_then(|part| nanoseconds.checked_add(part))
            .ok_or_else(|| Error::TooLong(quoted()))?;
        rest = next;
    }
    if nanoseconds == 0 {
        return Err(Error::Zero(quoted()));
    }
    if nanoseconds > MAX.as_nanos() {
        return Err(Error::TooLong(quoted()));
    }
    let seconds = nanoseconds.div_ceil(1_000_000_000);
    Ok(Duration::from_secs(
        u64::try_from(seconds).map_err(|_| Error::TooLong(quoted()))?,
    ))
}

/// Like [`parse`], where an empty text is `None`: without end.
///
/// # Errors
/// As [`parse`].
pub fn parse_optional(text: &str) -> Result<Option<Duration>, Error> {
    if text.is_empty() {
        Ok(None)
    } else {
        parse(text).map(Some)
    }
}

/// Rounds up to whole seconds, at least one: the remaining time as an engine takes it.
#[must_use]
pub fn whole_seconds(duration: Duration) -> u64 {
    let seconds = duration.as_secs();
    let seconds = if duration.subsec_nanos() > 0 {
        seconds.saturating_add(1)
    } else {
        seconds
    };
    seconds.max(1)
}

/// Writes whole seconds in a readable form: `45s`, `10m`, `1h30m`, `2d`.
#[must_use]
pub fn display(duration: Duration) -> String {
    let mut seconds = whole_seconds(duration);
    let mut text = String::new();
    for (unit, size) in [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)] {
        let count = seconds / size;
        if count > 0 {
            text.push_str(&count.to_string());
            text.push_str(unit);
        }
        seconds %= size;
    }
    text
}

/// A decimal number: digits, and digits after a point.
struct Number<'a> {
    whole: &'a str,
    fraction: &'a str,
}

// === impl Number ===

impl<'a> Number<'a> {
    /// Splits a number off the front; `None` when there is none.
    fn take(text: &'a str) -> Option<(Self, &'a str)> {
        let digits = |text: &str| {
            text.find(|character: char| !character.is_ascii_digit())
                .unwrap_or(text.len())
        };
        let (whole, rest) = text.split_at(digits(text));
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(after) => after.split_at(digits(after)),
            None => ("", rest),
        };
        let empty = whole.is_empty() && fraction.is_empty();
        (!empty).then_some((Self { whole, fraction }, rest))
    }

    /// The number times `scale`, rounded up; `None` when it does not fit.
    fn times(&self, scale: u128) -> Option<u128> {
        let whole = if self.whole.is_empty() {
            0
        } else {
            self.whole.parse::<u128>().ok()?
        };
        let mut result = whole.checked_mul(scale)?;
        // More than 18 digits after the point are less than a nanosecond of a week.
        let fraction = &self.fraction[..self.fraction.len().min(18)];
        if !fraction.is_empty() {
            let digits = fraction.parse::<u128>().ok()?;
            let power = 10u128.pow(u32::try_from(fraction.len()).ok()?);
            result = result.checked_add((digits * scale).div_ceil(power))?;
        }
        Some(result)
    }
}

/// Nanoseconds of a unit.
fn scale(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        // U+00B5 and U+03BC look the same; Go accepts both.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        "w" => 604_800_000_000_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn go_durations_days_and_weeks_are_read() {
        for (text, seconds) in [
            ("10m", 600),
            ("1h30m", 5_400),
            ("1.5h", 5_400),
            (".5m", 30),
            ("2.s", 2),
            ("1h1h", 7_200),
            ("+10s", 10),
            ("2d", 172_800),
            ("1w", 604_800),
            ("1w2d3h4m5s", 788_645),
            ("0h10s", 10),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn less_than_a_second_is_rounded_up() {
        for (text, seconds) in [
            ("1ns", 1),
            ("3us", 1),
            ("3\u{b5}s", 1),
            ("3\u{3bc}s", 1),
            ("500ms", 1),
            ("1001ms", 2),
            ("1.000000000000000000000000000001s", 1),
            ("0.000000001s", 1),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(whole_seconds(Duration::from_millis(1_200)), 2);
        assert_eq!(whole_seconds(Duration::ZERO), 1);
    }

    #[test]
    fn what_is_no_duration_is_refused_with_its_reason() {
        for (text, part_of_message) in [
            ("-5m", "negative"),
            ("0", "zero"),
            ("0s", "zero"),
            ("0h0m", "zero"),
            ("10", "without a unit"),
            ("1h30", "without a unit"),
            ("10 m", "unknown unit"),
            ("10min", "unknown unit"),
            ("1y", "unknown unit"),
            ("forever", "not a duration"),
            ("", "not a duration"),
            ("+", "not a duration"),
            ("1..5h", "not a duration"),
            (".", "not a duration"),
            ("876601h", "longer than 100 years"),
            (
                "99999999999999999999999999999999999999999w",
                "longer than 100 years",
            ),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part_of_message), "{text:?}: {error}");
        }
    }

    #[test]
    fn an_empty_text_is_without_end() {
        assert_eq!(parse_optional(""), Ok(None));
        assert_eq!(parse_optional("1s"), Ok(Some(Duration::from_secs(1))));
        assert_eq!(parse("876600h"), Ok(MAX));
    }

    proptest! {
        #[test]
        fn what_is_displayed_reads_back(seconds in 1u64..=MAX.as_secs()) {
            let duration = Duration::from_secs(seconds);
            prop_assert_eq!(parse(&display(duration)), Ok(duration));
        }

        #[test]
        fn no_text_panics(text in ".{0,70}") {
            let _ = parse(&text);
        }
    }
}
