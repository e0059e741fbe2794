//! The age from which an object may not be deleted.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp};
use serde::Deserialize;

/// The age from which pre-release callers may not delete an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MaximumAge {
    /// One calendar month in UTC. It ends with the last day of a shorter month.
    #[default]
    Month,
    /// A number of hours.
    Hours(u32),
}

// === impl MaximumAge ===

impl MaximumAge {
    /// Whether an object that was created at `created` is too old at `now`. An object without a time is not.
    #[must_use]
    pub fn is_over(self, created: Option<Timestamp>, now: Timestamp) -> bool {
        let end = created.and_then(|created| match self {
            Self::Month => {
                let created = created.to_zoned(TimeZone::UTC);
                let end = created.checked_add(Span::new().months(1)).ok()?;
                Some(end.timestamp())
            }
            Self::Hours(hours) => created
                .checked_add(SignedDuration::from_hours(i64::from(hours)))
                .ok(),
        });
        end.is_some_and(|end| now > end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a5_a_month_ends_with_the_last_day_of_a_shorter_month() {
        let over = |created, now| MaximumAge::Month.is_over(Some(at(created)), at(now));
        assert!(!over("2026-01-31T10:00:00Z", "2026-02-28T10:00:00Z"));
        assert!(over("2026-01-31T10:00:00Z", "2026-02-28T10:00:01Z"));
        assert!(over("2026-06-15T23:30:00+09:00", "2026-07-15T14:30:01Z"));
    }

    #[test]
    fn a4_an_object_without_a_creation_time_is_not_too_old() {
        assert!(!MaximumAge::Month.is_over(None, at("2026-01-01T00:00:00Z")));
    }

    #[test]
    fn a_number_of_hours_is_exact() {
        let over = |now| MaximumAge::Hours(720).is_over(Some(at("2026-01-31T00:00:00Z")), at(now));
        assert!(!over("2026-03-02T00:00:00Z"));
        assert!(over("2026-03-02T00:00:01Z"));
    }
}
