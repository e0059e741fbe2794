//! Times as people read them: `2026-01-01T12:00:00Z (in 42m)`.

use std::time::Duration;

use jiff::Timestamp;

/// A span in at most two units, the lesser one cut off: `45s`, `3h12m`, `5d`.
#[must_use]
pub fn short(span: Duration) -> String {
    let mut seconds = span.as_secs();
    let mut parts = Vec::new();
    for (unit, size) in [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)] {
        let count = seconds / size;
        seconds %= size;
        match (count, parts.len()) {
            (0, 0) => {}
            // `5d` rather than `5d3s`: only the next smaller unit follows.
            (0, _) => break,
            (_, 2) => break,
            _ => parts.push(format!("{count}{unit}")),
        }
    }
    if parts.is_empty() {
        return "0s".to_owned();
    }
    parts.concat()
}

/// A time with its distance from `now`: `2026-01-01T12:00:00Z (in 42m)`, `… (5s ago)`.
#[must_use]
pub fn moment(at: Timestamp, now: Timestamp) -> String {
    let whole = Timestamp::from_second(at.as_second()).unwrap_or(at);
    let distance = at.duration_since(now);
    let span = Duration::try_from(distance.abs()).unwrap_or_default();
    if distance.is_negative() {
        format!("{whole:.0} ({} ago)", short(span))
    } else {
        format!("{whole:.0} (in {})", short(span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_its_two_largest_units() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (61, "1m1s"),
            (3600, "1h"),
            (3661, "1h1m"),
            (86_400 + 5, "1d"),
            (90_061, "1d1h"),
        ] {
            assert_eq!(short(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_moment_is_ahead_or_ago() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |text: &str| moment(text.parse().unwrap(), now);
        assert_eq!(
            at("2026-01-01T00:42:00.5Z"),
            "2026-01-01T00:42:00Z (in 42m)"
        );
        assert_eq!(at("2025-12-31T23:59:55Z"), "2025-12-31T23:59:55Z (5s ago)");
    }
}
