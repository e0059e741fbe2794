//! The string formats that validation supports; others are not checked.
//!
//! Lenient and strict in the same places as a real server: `01.2.3.4` is an IPv4 address, `1 day` a
//! duration, the empty string not a date. (kube-openapi: `pkg/validation/strfmt`.)

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, alphabet};
use jiff::Timestamp;
use jiff::civil::Date;
use regex::Regex;

use crate::field::quote;

/// Whether `text` has the given `format`. Unknown formats accept everything.
pub(super) fn is_valid(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => is_date_time(text),
        "date" => is_date(text),
        "duration" => is_duration(text),
        "ipv4" => text.contains('.') && is_address(text),
        "ipv6" => text.contains(':') && is_address(text),
        "cidr" => is_cidr(text),
        "uri" => is_uri(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')),
        "uuid5" => is_uuid(text, Some('5')),
        "email" => is_email(text),
        "hostname" => is_hostname(text),
        "byte" => !text.is_empty() && base64_error(text).is_none(),
        "mac" => is_mac(text),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && is_hexadecimal(digits)
        }
        "bsonobjectid" => text.len() == 24 && is_hexadecimal(text),
        _ => true,
    }
}

fn is_hexadecimal(text: &str) -> bool {
    text.chars().all(|digit| digit.is_ascii_hexdigit())
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.is_ascii() && text.parse::<Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    static TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})$").ok()
    });
    let lower = text.to_ascii_lowercase();
    let Some((date, time)) = lower.split_once('t') else {
        return false;
    };
    let Some(parts) = TIME.as_ref().and_then(|pattern| pattern.captures(time)) else {
        return false;
    };
    let below = |index: usize, limit: u32| {
        parts
            .get(index)
            .and_then(|part| part.as_str().parse::<u32>().ok())
            .is_some_and(|number| number < limit)
    };
    is_date(date) && below(1, 24) && below(2, 60) && below(3, 60)
}

/// Go's form (`1h30m`, `-5s`, `0`), or numbers with words (`1 day`, `2 weeks`).
fn is_duration(text: &str) -> bool {
    static GO: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$").ok()
    });
    static WORDS: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^(?i)\s*([0-9]+\s*(ns|nano|us|µs|micro|ms|milli|s|sec|m|min|h|hr|hour|d|day|w|week|wk)[a-zµ]*\s*)+$").ok()
    });
    [&GO, &WORDS].into_iter().any(|pattern| {
        pattern
            .as_ref()
            .is_some_and(|pattern| pattern.is_match(text))
    })
}

/// Leading zeros are allowed in the numbers of an IPv4 address, as in old versions of Go.
fn is_address(text: &str) -> bool {
    let sloppy = |text: &str| {
        let parts: Vec<&str> = text.split('.').collect();
        parts.len() == 4
            && parts.iter().all(|part| {
                !part.is_empty()
                    && part.bytes().all(|byte| byte.is_ascii_digit())
                    && part.parse::<u8>().is_ok()
            })
    };
    text.parse::<Ipv4Addr>().is_ok() || text.parse::<Ipv6Addr>().is_ok() || sloppy(text)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let maximum = if address.contains(':') { 128 } else { 32 };
    let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    is_address(address) && digits && length.parse::<u16>().is_ok_and(|length| length <= maximum)
}

fn is_uri(text: &str) -> bool {
    if text
        .chars()
        .any(|character| character.is_control() || character == ' ')
    {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, _)) = text.split_once(':') else {
        return false;
    };
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|character| character.is_ascii_alphanumeric() || "+-.".contains(character))
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    let digits: String = match text.len() {
        32 => text.to_owned(),
        36 => {
            let dashes = text.match_indices('-').map(|(index, _)| index);
            if !dashes.eq([8, 13, 18, 23]) {
                return false;
            }
            text.replace('-', "")
        }
        _ => return false,
    };
    is_hexadecimal(&digits) && version.is_none_or(|version| digits.chars().nth(12) == Some(version))
}

fn is_email(text: &str) -> bool {
    let address = match (text.rfind('<'), text.ends_with('>')) {
        (Some(start), true) => &text[start + 1..text.len() - 1],
        _ => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && !part.ends_with('.')
            && !part.contains("..")
            && !part.contains(|character: char| {
                character.is_whitespace() || "<>,;@".contains(character)
            })
    };
    plain(local) && plain(domain)
}

fn is_hostname(text: &str) -> bool {
    static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$").ok()
    });
    text.len() <= 255 && NAME.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

fn is_mac(text: &str) -> bool {
    let grouped = |separator: char, width: usize, counts: &[usize]| {
        let groups: Vec<&str> = text.split(separator).collect();
        counts.contains(&groups.len())
            && groups
                .iter()
                .all(|group| group.len() == width && is_hexadecimal(group))
    };
    grouped(':', 2, &[6, 8, 20]) || grouped('-', 2, &[6, 8, 20]) || grouped('.', 4, &[3, 4, 10])
}

/// Base64 as Go writes the bytes that it reads from `text`: without line breaks, and with the last bits zero.
pub(super) fn canonical_bytes(text: &str) -> Option<String> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
    );
    let text = text.replace(['\n', '\r'], "");
    Some(LENIENT.encode(LENIENT.decode(text).ok()?))
}

/// Where standard base64 with padding is broken, as Go's decoder reports it.
pub(super) fn base64_error(text: &str) -> Option<usize> {
    let (mut count, mut padding) = (0, 0);
    for (index, byte) in text.bytes().enumerate() {
        let complete = padding > 0 && count % 4 == 0;
        match byte {
            b'\n' | b'\r' => continue,
            _ if complete => return Some(index),
            b'=' if count % 4 >= 2 => padding += 1,
            _ if padding > 0 => return Some(index - 1),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => {}
            _ => return Some(index),
        }
        count += 1;
    }
    match (count % 4, padding) {
        (0, _) => None,
        (missing, 0) => Some(text.len() - missing),
        _ => Some(text.len()),
    }
}

/// Why a time cannot be read, as Go's `time.Parse` reports it; with `micro` it must have six digits
/// after the second, else it may have any number of them.
pub(super) fn time_error(text: &str, micro: bool) -> Option<String> {
    let layout = if micro {
        "2006-01-02T15:04:05.000000Z07:00"
    } else {
        "2006-01-02T15:04:05Z07:00"
    };
    let quoted = quote(text);
    let refuse = |rest: &str, element: &str| {
        Some(format!(
            "parsing time {quoted} as \"{layout}\": cannot parse {} as \"{element}\"",
            quote(rest)
        ))
    };
    let elements = [
        ("", "2006", 4, "year", u32::MAX),
        ("-", "01", 2, "month", 12),
        ("-", "02", 2, "day", 31),
        ("T", "15", 2, "hour", 23),
        (":", "04", 2, "minute", 59),
        (":", "05", 2, "second", 59),
    ];
    let mut rest = text;
    for (before, element, length, name, maximum) in elements {
        rest = match rest.strip_prefix(before) {
            Some(rest) => rest,
            None => return refuse(rest, before),
        };
        let Some(number) = digits(rest, length) else {
            return refuse(rest, element);
        };
        let zero = number == 0 && matches!(name, "month" | "day");
        if number > maximum || zero {
            return Some(format!("parsing time {quoted}: {name} out of range"));
        }
        rest = &rest[length..];
    }
    if micro {
        let fraction = rest.strip_prefix('.').and_then(|rest| digits(rest, 6));
        if fraction.is_none() {
            return refuse(rest, ".000000");
        }
        rest = &rest[7..];
    } else if let Some(fraction) = rest.strip_prefix(['.', ','])
        && fraction.starts_with(|first: char| first.is_ascii_digit())
    {
        rest = fraction.trim_start_matches(|character: char| character.is_ascii_digit());
    }
    let mut outside = None;
    let zone = match rest.strip_prefix('Z') {
        Some(after) => Some(after),
        None => rest.strip_prefix(['+', '-']).and_then(|zone| {
            let hours = digits(zone, 2)?;
            let minutes = zone.get(2..)?.strip_prefix(':')?;
            outside = match (hours, digits(minutes, 2)?) {
                (25.., _) => Some("hour"),
                (_, 61..) => Some("minute"),
                _ => None,
            };
            minutes.get(2..)
        }),
    };
    if let Some(part) = outside {
        return Some(format!(
            "parsing time {quoted}: time zone offset {part} out of range"
        ));
    }
    match zone {
        None => refuse(rest, "Z07:00"),
        Some("") if text.get(..10).is_some_and(|date| !is_date(date)) => {
            Some(format!("parsing time {quoted}: day out of range"))
        }
        Some("") => None,
        Some(extra) => Some(format!(
            "parsing time {quoted}: extra text: {}",
            quote(extra)
        )),
    }
}

/// The number of exactly `length` digits that `text` starts with.
fn digits(text: &str, length: usize) -> Option<u32> {
    let digits = text.get(..length)?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse().ok())
        .flatten()
}

/// A time without the digits after its nanoseconds, which Go leaves out.
fn nanoseconds(text: &str) -> Cow<'_, str> {
    const DIGITS: usize = 9;
    let Some((seconds, rest)) = text.split_once(['.', ',']) else {
        return Cow::Borrowed(text);
    };
    let zone = rest.trim_start_matches(|character: char| character.is_ascii_digit());
    let fraction = &rest[..rest.len() - zone.len()];
    match fraction.get(..DIGITS) {
        Some(kept) => Cow::Owned(format!("{seconds}.{kept}{zone}")),
        None => Cow::Borrowed(text),
    }
}

/// A time in UTC, with microseconds or none, in the format of Go's types; `None` when it is invalid.
pub(super) fn canonical_time(text: &str, micro: bool) -> Option<String> {
    let time: Timestamp = nanoseconds(text).parse().ok()?;
    let format = if micro {
        "%Y-%m-%dT%H:%M:%S%.6fZ"
    } else {
        "%Y-%m-%dT%H:%M:%SZ"
    };
    Some(time.strftime(format).to_string())
}

/// Whether `text` is a quantity: a decimal number with a suffix of powers, or an exponent.
pub(super) fn is_quantity(text: &str) -> bool {
    static QUANTITY: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]+)?$").ok()
    });
    QUANTITY
        .as_ref()
        .is_some_and(|pattern| pattern.is_match(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_go_writes_them() {
        for (text, micro, expected) in [
            ("2026-01-01T01:00:00+01:00", false, "2026-01-01T00:00:00Z"),
            (
                "2026-01-01T00:00:00.1234567891234Z",
                false,
                "2026-01-01T00:00:00Z",
            ),
            (
                "2026-01-01T00:00:00.1234567891234Z",
                true,
                "2026-01-01T00:00:00.123456Z",
            ),
        ] {
            assert_eq!(canonical_time(text, micro).as_deref(), Some(expected));
        }
        let offset = |zone: &str| time_error(&format!("2026-01-01T00:00:00{zone}"), false);
        assert_eq!(offset("+23:59"), None);
        for (zone, part) in [("+99:00", "hour"), ("-01:99", "minute")] {
            let error = offset(zone).unwrap();
            assert!(
                error.ends_with(&format!("offset {part} out of range")),
                "{error}"
            );
        }
    }

    #[test]
    fn bytes_are_written_as_go_writes_them() {
        for (text, expected) in [
            ("YQ==", Some("YQ==")),
            ("YW\nFh\r\n", Some("YWFh")),
            ("YR==", Some("YQ==")),
            ("", Some("")),
            ("YQ", None),
        ] {
            assert_eq!(canonical_bytes(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn formats_accept_what_a_real_server_accepts() {
        let cases = [
            ("date-time", "x", false),
            ("date-time", "2026-01-01T00:00:00Z", true),
            ("date-time", "2026-01-01T00:00:00+01:00", true),
            ("date-time", "2026-01-01 00:00:00Z", false),
            ("date-time", "2026-01-01T00:00Z", false),
            ("date-time", "2026-01-01T00:00:00", false),
            ("date-time", "2026-02-30T00:00:00Z", false),
            ("date-time", "2026-01-01T00:00:00.123456789Z", true),
            ("date-time", "2026-01-01t00:00:00z", true),
            ("date-time", "2026-01-01T24:00:00Z", false),
            ("date-time", "", false),
            ("datetime", "x", false),
            ("date", "2026-01-01", true),
            ("date", "2026-13-01", false),
            ("duration", "1h", true),
            ("duration", "1h30m", true),
            ("duration", "-5s", true),
            ("duration", "5", false),
            ("duration", "1 day", true),
            ("duration", "1d", true),
            ("duration", "2 weeks", true),
            ("duration", "1.5h", true),
            ("duration", "", false),
            ("duration", "0", true),
            ("duration", "5 min", true),
            ("duration", "1us", true),
            ("ipv4", "1.2.3.4", true),
            ("ipv4", "1.2.3", false),
            ("ipv4", "::1", false),
            ("ipv4", "01.2.3.4", true),
            ("ipv6", "::1", true),
            ("ipv6", "1.2.3.4", false),
            ("ipv6", "::ffff:1.2.3.4", true),
            ("cidr", "1.2.3.0/24", true),
            ("cidr", "1.2.3.4", false),
            ("cidr", "::/0", true),
            ("cidr", "1.2.3.4/24", true),
            ("cidr", "1.2.3.4/33", false),
            ("uri", "x", false),
            ("uri", "http://a/b", true),
            ("uri", "/a", true),
            ("uuid", "x", false),
            ("uuid", "550e8400-e29b-41d4-a716-446655440000", true),
            ("uuid4", "550e8400-e29b-41d4-a716-446655440000", true),
            ("uuid3", "550e8400-e29b-41d4-a716-446655440000", false),
            ("email", "x", false),
            ("email", "a@b.c", true),
            ("hostname", "a.b", false),
            ("hostname", "a_b", false),
            ("hostname", "", false),
            ("hostname", "example.com", true),
            ("byte", "%", false),
            ("byte", "YQ==", true),
            ("byte", "", false),
            ("password", "", true),
            ("mac", "x", false),
            ("mac", "00:00:5e:00:53:01", true),
            ("hexcolor", "x", false),
            ("hexcolor", "#fff", true),
            ("bsonobjectid", "x", false),
            ("foo", "x", true),
        ];
        for (format, text, expected) in cases {
            assert_eq!(is_valid(format, text), expected, "{format} {text:?}");
        }
    }

    /// As kube-apiserver 1.36 reports it.
    #[test]
    fn broken_base64_is_located() {
        let cases = [
            ("YQ==", None),
            ("", None),
            ("%%", Some(0)),
            ("YWJj%", Some(4)),
            ("YWJj\nYWJj", None),
            ("YQ", Some(0)),
            ("YQ=", Some(3)),
            ("Y=", Some(1)),
            ("YQ=x", Some(2)),
            ("YQ==x", Some(4)),
            ("YWJ", Some(0)),
            ("Y", Some(0)),
        ];
        for (text, expected) in cases {
            assert_eq!(base64_error(text), expected, "{text}");
        }
    }

    /// As kube-apiserver 1.36 reports it.
    #[test]
    fn times_are_refused_in_the_words_of_go() {
        let at = |micro: bool, text: &str, rest: &str, element: &str| {
            let layout = if micro {
                "2006-01-02T15:04:05.000000Z07:00"
            } else {
                "2006-01-02T15:04:05Z07:00"
            };
            Some(format!(
                "parsing time \"{text}\" as \"{layout}\": cannot parse \"{rest}\" as \"{element}\""
            ))
        };
        let plain = [
            ("2026-01-01T00:00:00Z", None),
            ("2026-01-01T00:00:00.5Z", None),
            ("2026-01-01T00:00:00+01:00", None),
            ("zz", at(false, "zz", "zz", "2006")),
            ("", at(false, "", "", "2006")),
            (
                "2026-01-01T00:00:00",
                at(false, "2026-01-01T00:00:00", "", "Z07:00"),
            ),
            (
                "2026-01-01 00:00:00Z",
                at(false, "2026-01-01 00:00:00Z", " 00:00:00Z", "T"),
            ),
            (
                "2026-13-01T00:00:00Z",
                Some("parsing time \"2026-13-01T00:00:00Z\": month out of range".to_owned()),
            ),
            (
                "2026-02-30T00:00:00Z",
                Some("parsing time \"2026-02-30T00:00:00Z\": day out of range".to_owned()),
            ),
        ];
        for (text, expected) in plain {
            assert_eq!(time_error(text, false), expected, "{text}");
        }
        let micro = [
            ("2026-01-01T00:00:00.123456Z", None),
            ("2026-01-01T00:00:00.123456+00:00", None),
            (
                "2026-01-01T00:00:00Z",
                at(true, "2026-01-01T00:00:00Z", "Z", ".000000"),
            ),
            (
                "2026-01-01T00:00:00.123Z",
                at(true, "2026-01-01T00:00:00.123Z", ".123Z", ".000000"),
            ),
            (
                "2026-01-01T00:00:00.123456789Z",
                at(true, "2026-01-01T00:00:00.123456789Z", "789Z", "Z07:00"),
            ),
        ];
        for (text, expected) in micro {
            assert_eq!(time_error(text, true), expected, "{text}");
        }
    }

    #[test]
    fn quantities_have_a_number_and_a_known_suffix() {
        for good in ["1", "1.5", ".5", "100m", "1Gi", "1e3", "-5k", "+1E"] {
            assert!(is_quantity(good), "{good}");
        }
        for bad in ["", "foo", "1x", "Gi", "1ki", "1 Gi"] {
            assert!(!is_quantity(bad), "{bad}");
        }
    }
}
