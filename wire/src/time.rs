//! Times as seconds since 1970, and as texts.

use jiff::civil::DateTime;
use jiff::fmt::temporal::DateTimePrinter;
use jiff::{SignedDuration, Timestamp};

/// The seconds of Go's zero time, the first of January of the year 1.
pub(crate) const ZERO: i64 = -62_135_596_800;

const SECONDS: DateTimePrinter = DateTimePrinter::new().precision(Some(0));
const MICROSECONDS: DateTimePrinter = DateTimePrinter::new().precision(Some(6));

/// RFC 3339 with whole seconds; `None` before the year 0 or after 9999.
pub(crate) fn seconds(seconds: i64) -> Option<String> {
    print(seconds, 0, &SECONDS)
}

/// With six digits after the point; nanoseconds beyond a second, or below zero, carry.
pub(crate) fn microseconds(seconds: i64, nanoseconds: i32) -> Option<String> {
    print(seconds, nanoseconds, &MICROSECONDS)
}

fn print(seconds: i64, nanoseconds: i32, printer: &DateTimePrinter) -> Option<String> {
    let epoch = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
    let seconds = seconds.checked_add(i64::from(nanoseconds.div_euclid(1_000_000_000)))?;
    let since = SignedDuration::new(seconds, nanoseconds.rem_euclid(1_000_000_000));
    let time = epoch.checked_add(since).ok()?;
    if time.year() < 0 {
        return None;
    }
    let mut text = String::with_capacity(32);
    printer.print_datetime(&time, &mut text).ok()?;
    text.push('Z');
    Some(text)
}

/// Reads seconds and nanoseconds, which are not negative.
pub(crate) fn parse(text: &str) -> Option<(i64, i32)> {
    let since = match text.strip_suffix('Z') {
        // The last hours of the year 9999 are beyond a Timestamp, which has room for offsets.
        Some(plain) => {
            let time: DateTime = plain.parse().ok()?;
            time.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0))
        }
        None => text.parse::<Timestamp>().ok()?.as_duration(),
    };
    let (seconds, nanoseconds) = (since.as_secs(), since.subsec_nanos());
    Some(if nanoseconds < 0 {
        (seconds - 1, nanoseconds + 1_000_000_000)
    } else {
        (seconds, nanoseconds)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_it_was_written() {
        for (moment, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
            (ZERO, "0001-01-01T00:00:00Z"),
        ] {
            assert_eq!(seconds(moment).as_deref(), Some(text));
            assert_eq!(parse(text), Some((moment, 0)));
        }
        let early = "1969-12-31T23:59:59.250000Z";
        assert_eq!(microseconds(-1, 250_000_000).as_deref(), Some(early));
        assert_eq!(parse(early), Some((-1, 250_000_000)));
        assert_eq!(parse("2026-01-01T02:00:00+02:00"), Some((1_767_225_600, 0)));
    }

    #[test]
    fn a_time_outside_of_the_years_0_to_9999_has_no_text() {
        assert_eq!(seconds(253_402_300_800), None);
        assert_eq!(seconds(i64::MAX), None);
        assert_eq!(seconds(i64::MIN), None);
        assert_eq!(parse("yesterday"), None);
        assert_eq!(parse("2026-01-01"), None);
    }
}
