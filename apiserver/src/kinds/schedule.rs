//! Schedules and time zones of CronJobs, as far as a check of their form needs.
//!
//! (robfig/cron: `ParseStandard`; kubernetes: `validateTimeZone`.)

use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

const MONTHS: &[&str] = &[
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// The fields of a schedule: the least and the greatest number, and the names from the least number.
const FIELDS: [(u32, u32, &[&str]); 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (1, 12, MONTHS),
    (0, 6, DAYS),
];
const DESCRIPTORS: &[&str] = &[
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
];
/// The folder of the system's time zones. Without it every well-formed name is accepted.
const ZONES: &str = "/usr/share/zoneinfo";

static DURATION: LazyLock<Regex> = LazyLock::new(|| {
    let text = r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";
    Regex::new(text).expect("a constant expression")
});

/// The first problem of a schedule.
pub(super) fn problem(text: &str) -> Option<String> {
    let mut text = text;
    if let Some((zone, rest)) = text.split_once(' ')
        && (zone.starts_with("TZ=") || zone.starts_with("CRON_TZ="))
    {
        let zone = &zone[zone.find('=').map_or(0, |at| at + 1)..];
        if let Some(problem) = zone_problem(zone) {
            return Some(format!("provided bad location {zone}: {problem}"));
        }
        text = rest.trim();
    }
    if let Some(duration) = text.strip_prefix("@every ") {
        let is_valid = DURATION.is_match(duration);
        return (!is_valid).then(|| format!("failed to parse duration {duration}"));
    }
    if text.starts_with('@') {
        let is_known = DESCRIPTORS.contains(&text);
        return (!is_known).then(|| format!("unrecognized descriptor: {text}"));
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let (found, shown) = (fields.len(), fields.join(" "));
        return Some(format!(
            "expected exactly 5 fields, found {found}: [{shown}]"
        ));
    }
    let mut ranges = fields.iter().zip(FIELDS).flat_map(|(field, bounds)| {
        let ranges = field.split(',').filter(|range| !range.is_empty());
        ranges.map(move |range| (range, bounds))
    });
    ranges.find_map(|(range, bounds)| check_range(range, bounds).err())
}

fn check_range(range: &str, (least, most, names): (u32, u32, &[&str])) -> Result<(), String> {
    let mut parts = range.split('/');
    let ends: Vec<&str> = parts.next().unwrap_or_default().split('-').collect();
    let step = parts.next();
    if parts.next().is_some() {
        return Err(format!("too many slashes: {range}"));
    }
    let number = |text: &str| match names
        .iter()
        .position(|name| name.eq_ignore_ascii_case(text))
    {
        Some(at) => u32::try_from(at)
            .map_err(|error| error.to_string())
            .map(|at| at + least),
        None => whole_number(text),
    };
    let (start, mut end) = match ends.as_slice() {
        ["*" | "?", ..] => (least, most),
        [one] => (number(one)?, number(one)?),
        [first, last] => (number(first)?, number(last)?),
        _ => return Err(format!("too many hyphens: {range}")),
    };
    if step.is_some() && ends.len() == 1 {
        end = most;
    }
    if let Some(step) = step
        && whole_number(step)? == 0
    {
        return Err(format!(
            "step of range should be a positive number: {range}"
        ));
    }
    if start < least {
        return Err(format!(
            "beginning of range ({start}) below minimum ({least}): {range}"
        ));
    }
    if end > most {
        return Err(format!(
            "end of range ({end}) above maximum ({most}): {range}"
        ));
    }
    if start > end {
        return Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {range}"
        ));
    }
    Ok(())
}

fn whole_number(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|error| format!("failed to parse int from {text}: {error}"))
}

/// The problem of a time zone.
pub(super) fn zone_problem(zone: &str) -> Option<String> {
    if zone.is_empty() {
        return Some("timeZone must be nil or non-empty string".to_owned());
    }
    if zone.eq_ignore_ascii_case("local") {
        return Some(
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
                .to_owned(),
        );
    }
    let is_well_formed = |part: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte);
        (1..=14).contains(&part.len())
            && part.bytes().all(fits)
            && !matches!(part, "." | "..")
            && !part.starts_with('-')
    };
    let zones = Path::new(ZONES);
    let exists = zone == "UTC" || !zones.is_dir() || zones.join(zone).is_file();
    let is_known = zone.split('/').all(is_well_formed) && exists;
    (!is_known).then(|| format!("unknown time zone {zone}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_has_five_fields_in_their_bounds() {
        for text in [
            "*/5 * * * *",
            "0 0 1-7 jan,FEB mon-fri",
            "@daily",
            "@every 1h30m",
            "5/10 ? * * 0",
            "TZ=UTC 0 0 * * *",
        ] {
            assert_eq!(problem(text), None, "{text}");
        }
        for text in [
            "",
            "* * * *",
            "60 * * * *",
            "* * 0 * *",
            "* * * 13 *",
            "5-1 * * * *",
            "1-2-3 * * * *",
            "1/2/3 * * * *",
            "*/0 * * * *",
            "x * * * *",
            "@often",
            "@every day",
        ] {
            assert!(problem(text).is_some(), "{text}");
        }
    }

    #[test]
    fn a_time_zone_is_well_formed() {
        assert_eq!(zone_problem("UTC"), None);
        for zone in ["", "local", "../etc/passwd", "-UTC", "Etc/U TC", "a/../b"] {
            assert!(zone_problem(zone).is_some(), "{zone}");
        }
    }
}
