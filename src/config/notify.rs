//! The keys about notifications: the original's, and some that keep secrets out of the ConfigMap.

use std::sync::Arc;

use jiff::tz::Offset;
use reeve_clock::Clock;

use super::keys;
use super::{Errors, Options};
use crate::mounted::{MountedFile, Stamp};
use crate::notify::{Event, Lark, LarkSettings, Notifier, Templates};
use crate::outbound::Outbound;
use crate::secret::Secret;

/// Where notifications go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifyConfig {
    /// The bot's URL, which holds its token.
    pub hook: Text,
    /// The signing secret, for a bot that requires a signature.
    pub signing: Option<MountedFile>,
    /// Cards from files, instead of the built-in ones.
    pub templates: Vec<(Event, MountedFile)>,
    /// The zone of the times in cards.
    pub zone: Offset,
}

/// A secret text, in the ConfigMap (as the original has it) or in a mounted file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// In the ConfigMap, where each of its readers can see it.
    Plain(Secret),
    /// In a file, from a mounted Secret.
    File(MountedFile),
}

// === impl NotifyConfig ===

impl NotifyConfig {
    /// The files that the channel is made from.
    fn files(&self) -> impl Iterator<Item = &MountedFile> {
        let hook = match &self.hook {
            Text::Plain(_) => None,
            Text::File(file) => Some(file),
        };
        let templates = self.templates.iter().map(|(_, file)| file);
        hook.into_iter().chain(&self.signing).chain(templates)
    }

    /// What the files are now: when it differs from the last time, the channel is connected again.
    pub(crate) fn stamps(&self) -> Vec<Stamp> {
        self.files().map(MountedFile::stamp).collect()
    }

    /// The channel, or what cannot be read. A template that cannot be read is replaced by the built-in one.
    pub(crate) fn connect(
        &self,
        outbound: &Arc<dyn Outbound>,
        clock: &Clock,
    ) -> Result<Arc<dyn Notifier>, String> {
        let secret = |file: &MountedFile| match file.text() {
            Ok(text) => Ok(Secret::new(text)),
            Err(error) => Err(format!("cannot read {file}: {error}")),
        };
        let hook = match &self.hook {
            Text::Plain(hook) => hook.clone(),
            Text::File(file) => secret(file)?,
        };
        let signing = self.signing.as_ref().map(secret).transpose()?;
        let files = self.templates.iter();
        let (templates, unread) = Templates::from_files(files.map(|(event, file)| (*event, file)));
        for error in unread {
            tracing::warn!(%error, "the built-in card is used instead");
        }
        let settings = LarkSettings {
            hook,
            signing,
            templates,
            zone: self.zone,
        };
        let lark = Lark::new(settings, Arc::clone(outbound), clock.clone());
        Ok(Arc::new(lark))
    }
}

/// Reads the keys that begin with `notify`; `None`: no notifications.
pub(super) fn read<'a>(
    text: impl Fn(&str) -> Option<&'a str>,
    all: impl Iterator<Item = &'a str>,
    options: &Options,
    errors: &mut Errors,
    warnings: &mut Vec<String>,
) -> Option<NotifyConfig> {
    let mut templates = Vec::new();
    for key in all {
        let Some(name) = key.strip_prefix(keys::NOTIFY_TEMPLATE_PREFIX) else {
            if !keys::NOTIFY.contains(&key) {
                warnings.push(format!("unknown key {key} ignored"));
            }
            continue;
        };
        let event = [Event::Ban, Event::Resolve, Event::Common]
            .into_iter()
            .find(|event| event.name() == name);
        match (event, text(key)) {
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
    let zone = match text(keys::NOTIFY_ZONE).map(zone) {
        None => Offset::UTC,
        Some(Some(zone)) => zone,
        Some(None) => {
            errors.add(
                keys::NOTIFY_ZONE,
                None,
                "an offset such as +08:00, or UTC, is expected",
            );
            Offset::UTC
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
    Some(NotifyConfig {
        hook,
        signing,
        templates,
        zone,
    })
}

/// `UTC`, `+08:00`, `-0330`.
fn zone(text: &str) -> Option<Offset> {
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

    #[test]
    fn the_stamps_of_a_channel_change_with_each_of_its_files() {
        let path = |name: &str| std::env::temp_dir().join(format!("{}-{name}", std::process::id()));
        let (hook, signing) = (path("hook"), path("signing"));
        std::fs::write(&hook, "https://one.example/").unwrap();
        let notify = NotifyConfig {
            hook: Text::File(MountedFile::alone(&hook)),
            signing: Some(MountedFile::alone(&signing)),
            templates: Vec::new(),
            zone: Offset::UTC,
        };
        let now = || notify.stamps();
        let first = now();
        assert_eq!(first, now());
        std::fs::write(&hook, "https://another.example/").unwrap();
        let second = now();
        assert_ne!(second, first);
        std::fs::write(&signing, "s1gn").unwrap();
        assert_ne!(now(), second);
        std::fs::remove_file(&hook).unwrap();
        std::fs::remove_file(&signing).unwrap();
        assert_eq!(now(), [None, None]);
    }
}
