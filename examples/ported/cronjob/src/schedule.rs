//! Schedules in the form of cron.

use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A parsed schedule.
#[derive(Clone, Debug)]
pub struct Schedule(Cron);

/// A schedule that is not valid.
#[derive(Debug, thiserror::Error)]
#[error("spec.schedule {schedule:?}: {cause}")]
pub struct InvalidSchedule {
    schedule: String,
    cause: CronError,
}

// === impl Schedule ===

impl Schedule {
    /// Parses the five fields of cron, or a nickname such as `@hourly`. Its times are in UTC.
    ///
    /// # Errors
    /// If a field is not valid.
    pub fn parse(schedule: &str) -> Result<Self, InvalidSchedule> {
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build();
        parser
            .parse(schedule)
            .map(Self)
            .map_err(|cause| InvalidSchedule {
                schedule: schedule.to_owned(),
                cause,
            })
    }

    /// The first time of the schedule that is later than `time`. `None` if there is none, as for a 31st of February.
    #[must_use]
    pub fn after(&self, time: Timestamp) -> Option<Timestamp> {
        let time = time.to_zoned(TimeZone::UTC);
        let next = self.0.find_next_occurrence(&time, false).ok()?;
        Some(next.timestamp())
    }
}
