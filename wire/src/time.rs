//! Times as seconds since 1970, and as texts.

use jiff::Timestamp;
use jiff::civil::DateTime;

/// The seconds of Go's zero time, the first of January of the year 1.
pub(crate) const ZERO: i64 = -62_135_596_800;

/// The longest text: `9999-12-31T23:59:59.999999Z`.
const LONGEST: usize = 27;

/// A time in RFC 3339.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeText {
    bytes: [u8; LONGEST],
    length: usize,
}

// === impl TimeText ===

impl TimeText {
    /// With whole seconds; `None` before the year 0 or after 9999.
    pub(crate) fn seconds(seconds: i64) -> Option<Self> {
        let mut text = Self::date_and_time(seconds)?;
        text.put(b'Z');
        Some(text)
    }

    /// With six digits after the point; nanoseconds beyond a second, or below zero, carry.
    pub(crate) fn microseconds(seconds: i64, nanoseconds: i32) -> Option<Self> {
        let seconds = seconds.checked_add(i64::from(nanoseconds.div_euclid(1_000_000_000)))?;
        let mut text = Self::date_and_time(seconds)?;
        text.put(b'.');
        text.number(i64::from(nanoseconds.rem_euclid(1_000_000_000) / 1000), 6);
        text.put(b'Z');
        Some(text)
    }

    pub(crate) fn as_str(&self) -> &str {
        // All of it is ASCII.
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }

    fn date_and_time(seconds: i64) -> Option<Self> {
        const DAY: i64 = 24 * 60 * 60;
        let (day, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
        let (year, month, day) = date(day)?;
        let mut text = Self {
            bytes: [0; LONGEST],
            length: 0,
        };
        for (before, number, digits) in [
            (None, year, 4),
            (Some(b'-'), month, 2),
            (Some(b'-'), day, 2),
            (Some(b'T'), second / 3600, 2),
            (Some(b':'), second / 60 % 60, 2),
            (Some(b':'), second % 60, 2),
        ] {
            if let Some(before) = before {
                text.put(before);
            }
            text.number(number, digits);
        }
        Some(text)
    }

    fn put(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }

    /// The last `digits` digits of a number that is not negative.
    fn number(&mut self, number: i64, digits: usize) {
        let mut left = number;
        for at in (self.length..self.length + digits).rev() {
            self.bytes[at] = b'0' + (left % 10).to_le_bytes()[0];
            left /= 10;
        }
        self.length += digits;
    }
}

/// Year, month and day of a day since 1970; `None` before the year 0 or after 9999.
///
/// Years begin with March here, so that the leap day is the last one of its year.
fn date(day: i64) -> Option<(i64, i64, i64)> {
    /// The days from the first of March of the year 0 to 1970.
    const BEFORE: i64 = 719_468;
    /// The days of 400 years, after which the calendar repeats.
    const ERA: i64 = 146_097;
    let day = day.checked_add(BEFORE)?;
    let (era, of_era) = (day.div_euclid(ERA), day.rem_euclid(ERA));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let year = era.checked_mul(400)? + year + next_year;
    (0..=9999).contains(&year).then_some((year, month, day))
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

    fn seconds(seconds: i64) -> Option<String> {
        Some(TimeText::seconds(seconds)?.as_str().to_owned())
    }

    fn microseconds(seconds: i64, nanoseconds: i32) -> Option<String> {
        let text = TimeText::microseconds(seconds, nanoseconds)?;
        Some(text.as_str().to_owned())
    }

    #[test]
    fn every_day_has_its_date() {
        // The calendar repeats after 400 years; the first and the last ones have the limits.
        for years in [0..10, 1890..2300, 9990..10_000] {
            let mut date = jiff::civil::date(years.start, 1, 1);
            let since = date.duration_since(jiff::civil::date(1970, 1, 1));
            let mut second = since.as_secs() + 86_399;
            while years.contains(&date.year()) {
                assert_eq!(seconds(second), Some(format!("{date}T23:59:59Z")));
                second += 86_400;
                let Ok(next) = date.tomorrow() else { break };
                date = next;
            }
        }
        assert_eq!(seconds(-719_528 * 86_400 - 1), None);
    }

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
        assert_eq!(microseconds(-1, 250_000_999).as_deref(), Some(early));
        assert_eq!(microseconds(0, -750_000_000).as_deref(), Some(early));
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
