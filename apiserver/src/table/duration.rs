//! Durations in kubectl's format: two units at most, coarser as they grow.

use std::ops::Range;

use jiff::SignedDuration;

/// `90s`, `2m5s`, `3h`, `2d4h`, `400d`, `3y12d`. Slightly negative is `0s`, because clocks differ; more is
/// `<invalid>`. (apimachinery: `duration.HumanDuration`.)
pub(crate) fn human(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let minutes = seconds / 60;
    let hours = seconds / 3600;
    let days = hours / 24;
    let two = |large: i64, unit: char, small: i64, below: char| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{below}")
        }
    };
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

/// Durations around `duration` that have its text.
pub(crate) fn same_text(duration: SignedDuration) -> Range<SignedDuration> {
    let seconds = duration.as_secs();
    let unit = match seconds {
        ..=-2 => {
            let end = SignedDuration::new(-2, 0) + SignedDuration::from_nanos(1);
            return SignedDuration::MIN..end;
        }
        // Seconds are cut toward zero.
        -1..=0 => {
            let begin = SignedDuration::new(-2, 0) + SignedDuration::from_nanos(1);
            return begin..SignedDuration::from_secs(1);
        }
        1..600 => 1,
        600..28_800 => 60,
        28_800..691_200 => 3600,
        _ => 86_400,
    };
    let begin = seconds / unit * unit;
    SignedDuration::from_secs(begin)..SignedDuration::from_secs(begin.saturating_add(unit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_text_is_the_same_in_a_range_and_not_beside_it(seconds in prop_oneof![-4..1000_i64, 0..800_000_i64, 0..400_000_000_i64], nanos in -999_999_999..1_000_000_000_i64) {
            let duration = SignedDuration::from_secs(seconds) + SignedDuration::from_nanos(nanos);
            let same = same_text(duration);
            prop_assert!(same.contains(&duration));
            let nano = SignedDuration::from_nanos(1);
            prop_assert_eq!(human(same.end - nano), human(duration));
            let years = SignedDuration::from_hours(24 * 365 * 8);
            if duration < years {
                prop_assert_ne!(human(same.end), human(duration));
            }
            if same.start > SignedDuration::MIN {
                prop_assert_eq!(human(same.start), human(duration));
            }
            if same.start > SignedDuration::MIN && duration < years {
                prop_assert_ne!(human(same.start - nano), human(duration));
            }
        }
    }

    #[test]
    fn durations_are_rounded_as_kubectl_does() {
        let (minute, hour, day) = (60, 3600, 86_400);
        let year = 365 * day;
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (70, "70s"),
            (119, "119s"),
            (2 * minute, "2m"),
            (2 * minute + 5, "2m5s"),
            (9 * minute + 59, "9m59s"),
            (10 * minute + 59, "10m"),
            (179 * minute, "179m"),
            (3 * hour, "3h"),
            (3 * hour + 5 * minute + 59, "3h5m"),
            (8 * hour + 59 * minute, "8h"),
            (47 * hour, "47h"),
            (48 * hour, "2d"),
            (50 * hour, "2d2h"),
            (8 * day, "8d"),
            (8 * day + 23 * hour, "8d"),
            (2 * year - hour, "729d"),
            (2 * year, "2y"),
            (2 * year + day, "2y1d"),
            (8 * year, "8y"),
            (9 * year + 100 * day, "9y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(
                human(SignedDuration::from_secs(seconds)),
                expected,
                "{seconds}"
            );
        }
    }
}
