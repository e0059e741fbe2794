//! The time that the API server waits for an answer, from the query of a call.

use std::time::Duration;

/// The longest time-out of a webhook configuration, and the time of a call that names none.
pub(super) const LONGEST: Duration = Duration::from_secs(30);

/// The time in `?timeout=`, at most [`LONGEST`], which is also that of a call that names none, or an unreadable one. The API
/// server sends the rest of its time, rounded up to a whole second.
pub(super) fn of_query(query: Option<&str>) -> Duration {
    let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let mut timeouts = pairs.filter(|(name, _)| name == "timeout");
    let timeout = timeouts.next().and_then(|(_, value)| parse(&value));
    timeout
        .filter(|timeout| !timeout.is_zero())
        .unwrap_or(LONGEST)
        .min(LONGEST)
}

/// A duration as Go writes it: `10s`, `1m30s`, `1.5s`, `500ms`.
fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let seconds = match &rest[..unit] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        sum += number * seconds;
        rest = &rest[unit..];
    }
    Duration::try_from_secs_f64(sum).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_of_the_query_is_read_as_go_writes_it() {
        let millis = Duration::from_millis;
        for (query, expected) in [
            (Some("timeout=10s"), millis(10_000)),
            (Some("a=b&timeout=1.5s"), millis(1500)),
            (Some("timeout=500ms"), millis(500)),
            (Some("timeout=0h0m20s"), millis(20_000)),
            (Some("timeout=1m30s"), LONGEST),
            (Some("timeout=10"), LONGEST),
            (Some("timeout=0s"), LONGEST),
            (Some("timeout=-3s"), LONGEST),
            (Some("timeout=soon"), LONGEST),
            (Some(""), LONGEST),
            (None, LONGEST),
        ] {
            assert_eq!(of_query(query), expected, "{query:?}");
        }
    }
}
