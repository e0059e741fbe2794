//! The keys about notifications: the original's, and some that keep secrets out of the ConfigMap.

use jiff::tz::Offset;

use super::channel::{ChannelConfig, Text, Vendor};
use super::{Errors, Options, keys};
use crate::notify::{Event, Severity};
use crate::secret::Secret;

/// Reads the keys that begin with `notify`: the list of channels, and the one channel of the flat keys.
pub(super) fn read<'a>(
    text: impl Fn(&str) -> Option<&'a str>,
    all: impl Iterator<Item = &'a str>,
    options: &Options,
    errors: &mut Errors,
    warnings: &mut Vec<String>,
) -> Vec<ChannelConfig> {
    let zone = read_zone(&text, errors);
    let list = text(keys::NOTIFY_CHANNELS);
    let mut channels = list.map_or_else(Vec::new, |list| {
        super::channels::read(list, options, zone, errors)
    });
    if let Some(lark) = read_flat(text, all, options, zone, errors, warnings) {
        if channels.iter().any(|it| it.name == lark.name) {
            let message = "a channel of the name lark is made by notifyType, too; set name";
            errors.add(keys::NOTIFY_CHANNELS, None, message);
        }
        channels.push(lark);
    }
    channels
}

/// The zone of times in cards.
fn read_zone<'a>(text: &impl Fn(&str) -> Option<&'a str>, errors: &mut Errors) -> Offset {
    match text(keys::NOTIFY_ZONE).map(zone) {
        None => Offset::UTC,
        Some(Some(zone)) => zone,
        Some(None) => {
            let message = "an offset such as +08:00, or UTC, is expected";
            errors.add(keys::NOTIFY_ZONE, None, message);
            Offset::UTC
        }
    }
}

/// The channel of the original's keys.
fn read_flat<'a>(
    text: impl Fn(&str) -> Option<&'a str>,
    all: impl Iterator<Item = &'a str>,
    options: &Options,
    zone: Offset,
    errors: &mut Errors,
    warnings: &mut Vec<String>,
) -> Option<ChannelConfig> {
    let mut templates = Vec::new();
    for key in all {
        let Some(name) = key.strip_prefix(keys::NOTIFY_TEMPLATE_PREFIX) else {
            if !keys::NOTIFY.contains(&key) {
                warnings.push(format!("unknown key {key} ignored"));
            }
            continue;
        };
        match (Event::of(name), text(key)) {
            (Some(event), Some(path)) => {
                // The original's image has its templates in a directory of their own.
                let found = options.templates.file(path);
                match found.or_else(|_| options.secrets.file(path)) {
                    Ok(file) => templates.push((event, file)),
                    Err(mut error) => {
                        error.directory = format!("{} or {}", options.templates, error.directory);
                        errors.add(key, None, error);
                    }
                }
            }
            (Some(_), None) => {}
            (None, _) => warnings.push(format!(
                "{key}: there is no event {name}; there are ban, resolve and common"
            )),
        }
    }
    match text(keys::NOTIFY_TYPE) {
        None => return None,
        Some("lark" | "feishu") => {}
        Some(other) => {
            errors.add(
                keys::NOTIFY_TYPE,
                None,
                format!("unknown channel {other:?}; use lark, or leave it empty"),
            );
            return None;
        }
    }
    let hook = match (text(keys::NOTIFY_HOOK_FILE), text(keys::NOTIFY_HOOK)) {
        (Some(path), _) => match options.secrets.file(path) {
            Ok(file) => Text::File(file),
            Err(error) => {
                errors.add(keys::NOTIFY_HOOK_FILE, None, error);
                return None;
            }
        },
        (None, Some(url)) => {
            if !url.starts_with("https://") && !url.starts_with("http://") {
                errors.add(
                    keys::NOTIFY_HOOK,
                    None,
                    "a URL that begins with https:// is expected",
                );
                return None;
            }
            Text::Plain(Secret::new(url))
        }
        (None, None) => {
            errors.add(
                keys::NOTIFY_HOOK,
                None,
                "notifyType is set, so set this too, or notifyWebhookURLFile to the path of a mounted Secret",
            );
            return None;
        }
    };
    let signing = match text(keys::NOTIFY_SIGNING_FILE).map(|path| options.secrets.file(path)) {
        None => None,
        Some(Ok(file)) => Some(file),
        Some(Err(error)) => {
            errors.add(keys::NOTIFY_SIGNING_FILE, None, error);
            None
        }
    };
    Some(ChannelConfig {
        name: Vendor::Lark.name().to_owned(),
        vendor: Vendor::Lark,
        hook,
        signing,
        bearer: None,
        key: None,
        templates,
        zone,
        events: Event::ALL.to_vec(),
        per_minute: None,
        digest: None,
        source: String::new(),
        severity: Severity::default(),
        bearer_over_http: options.bearer_over_http,
    })
}

/// `UTC`, `+08:00`, `-0330`.
pub(super) fn zone(text: &str) -> Option<Offset> {
    if text.eq_ignore_ascii_case("utc") {
        return Some(Offset::UTC);
    }
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let digits: String = rest.chars().filter(|character| *character != ':').collect();
    if digits.len() != 4 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes): (i32, i32) = (digits[..2].parse().ok()?, digits[2..].parse().ok()?);
    if minutes > 59 {
        return None;
    }
    Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_and_nonsense_is_not() {
        for (text, seconds) in [
            ("UTC", 0),
            ("+08:00", 28_800),
            ("-0330", -12_600),
            ("+0000", 0),
        ] {
            assert_eq!(zone(text).unwrap().seconds(), seconds, "{text}");
        }
        for text in ["", "8", "+8", "+08:99", "Asia/Shanghai", "+99:00", "é"] {
            assert_eq!(zone(text), None, "{text}");
        }
    }
}
