//! The key `notify`: a YAML list of channels.

use serde::Deserialize;

use super::channel::{ChannelConfig, Text, Vendor};
use super::notify::zone;
use super::{Errors, Options, keys};
use crate::notify::{Event, PAGERDUTY_URL, Severity};
use crate::secret::Secret;

/// The most channels.
const MOST: usize = 20;

/// The most messages a minute that `perMinute` may allow: the times of so many are kept.
const MOST_PER_MINUTE: usize = 6000;

/// One entry of the list.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawChannel {
    /// The name, in metrics and logs. Default: the type.
    #[serde(default)]
    name: Option<String>,
    #[serde(rename = "type")]
    kind: String,
    /// The URL in plain text: only for `webhook` and `pagerduty`, whose URLs hold no secret.
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    url_file: Option<String>,
    /// The events that the channel gets. Default: all.
    #[serde(default)]
    events: Option<Vec<String>>,
    /// At most so many messages a minute, beside the limits of the vendor.
    #[serde(default)]
    per_minute: Option<usize>,
    /// Whether many waiting messages become one. Default: for chats.
    #[serde(default)]
    digest: Option<bool>,
    /// The zone of times in cards. Default: that of `notifyTimezone`.
    #[serde(default)]
    timezone: Option<String>,
    #[serde(default)]
    templates: std::collections::BTreeMap<String, String>,
    /// `lark`, `dingtalk`, `webhook`: the secret that signs.
    #[serde(default)]
    signing_secret_file: Option<String>,
    /// `webhook`: a bearer token.
    #[serde(default)]
    bearer_token_file: Option<String>,
    /// `webhook`: the attribute `source`. Default `/ipblock-operator/<namespace>`.
    #[serde(default)]
    source: Option<String>,
    /// `pagerduty`: the routing key of the integration.
    #[serde(default)]
    routing_key_file: Option<String>,
    /// `pagerduty`: how urgent alerts are. Default `warning`.
    #[serde(default)]
    severity: Option<String>,
}

/// Reads the list in `text`. Each error names its entry.
pub(super) fn read(
    text: &str,
    options: &Options,
    default_zone: jiff::tz::Offset,
    errors: &mut Errors,
) -> Vec<ChannelConfig> {
    let yaml = serde_saphyr::options! { emit_comments: false };
    let list: Vec<RawChannel> = match serde_saphyr::from_str_with_options(text, yaml) {
        Ok(list) => list,
        Err(error) => {
            let line = error.location();
            let line = line.and_then(|at| usize::try_from(at.line()).ok());
            let error = error.without_snippet();
            let message = format!("a YAML list of channels is expected: {error}");
            errors.add(keys::NOTIFY_CHANNELS, line, message);
            return Vec::new();
        }
    };
    if list.len() > MOST {
        let message = format!("at most {MOST} channels are possible");
        errors.add(keys::NOTIFY_CHANNELS, None, message);
        return Vec::new();
    }
    let mut channels: Vec<ChannelConfig> = Vec::new();
    for raw in &list {
        let name = raw.name.as_deref().unwrap_or(&raw.kind).trim();
        match raw.define(name, options, default_zone) {
            Ok(channel) if channels.iter().any(|it| it.name == channel.name) => {
                let message = format!("two channels have the name {name}; set name");
                errors.add(keys::NOTIFY_CHANNELS, None, message);
            }
            Ok(channel) => channels.push(channel),
            Err(message) => {
                let message = format!("channel {name}: {message}");
                errors.add(keys::NOTIFY_CHANNELS, None, message);
            }
        }
    }
    channels
}

// === impl RawChannel ===

impl RawChannel {
    fn define(
        &self,
        name: &str,
        options: &Options,
        default_zone: jiff::tz::Offset,
    ) -> Result<ChannelConfig, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > 63 || !name.chars().all(plain) {
            return Err("the name has other characters than letters, digits, - _ and .".into());
        }
        let vendor = Vendor::of(&self.kind).ok_or_else(|| {
            let known = Vendor::ALL.map(Vendor::name).join(", ");
            format!("unknown type {:?}; there are {known}", self.kind)
        })?;
        self.check_fields(vendor)?;
        let file = |path: &String| options.secrets.file(path).map_err(|it| it.to_string());
        let optional = |path: &Option<String>| path.as_ref().map(file).transpose();
        let hook = match (&self.url_file, &self.url, vendor) {
            (Some(_), Some(_), _) => return Err("choose one of url and urlFile".into()),
            (Some(path), None, _) => Text::File(file(path)?),
            (None, Some(url), Vendor::Webhook | Vendor::PagerDuty) => {
                vendor.check_url(url)?;
                Text::Plain(Secret::new(url))
            }
            (None, Some(_), _) => {
                return Err(
                    "its URL is a secret; put it into a mounted file and set urlFile".into(),
                );
            }
            (None, None, Vendor::PagerDuty) => Text::Plain(Secret::new(PAGERDUTY_URL)),
            (None, None, _) => return Err("urlFile is missing".into()),
        };
        let events = match &self.events {
            None => Event::ALL.to_vec(),
            Some(names) => names
                .iter()
                .map(|name| event(name))
                .collect::<Result<_, _>>()?,
        };
        let mut templates = Vec::new();
        for (name, path) in &self.templates {
            let found = options.templates.file(path);
            let found = found.or_else(|_| options.secrets.file(path));
            let file = found.map_err(|error| {
                format!(
                    "{} is not a file below {} or {}",
                    error.path, options.templates, error.directory
                )
            })?;
            templates.push((event(name)?, file));
        }
        let zone = match &self.timezone {
            None => default_zone,
            Some(text) => zone(text).ok_or_else(|| {
                format!("timezone: {text:?} is neither UTC nor an offset such as +08:00")
            })?,
        };
        if events.is_empty() {
            return Err(
                "events is empty; leave it out for all events, or remove the channel".into(),
            );
        }
        if let Some(given) = self.per_minute
            && !(1..=MOST_PER_MINUTE).contains(&given)
        {
            return Err(format!(
                "perMinute is at least 1 and at most {MOST_PER_MINUTE}"
            ));
        }
        let severity = match &self.severity {
            None => Severity::default(),
            Some(text) => Severity::of(text).ok_or_else(|| {
                format!("severity: {text:?} is none of critical, error, warning and info")
            })?,
        };
        let source = self.source.clone();
        Ok(ChannelConfig {
            name: name.to_owned(),
            vendor,
            hook,
            signing: optional(&self.signing_secret_file)?,
            bearer: optional(&self.bearer_token_file)?,
            key: optional(&self.routing_key_file)?,
            templates,
            zone,
            events,
            per_minute: self.per_minute,
            digest: self.digest,
            source: source.unwrap_or_else(|| format!("/ipblock-operator/{}", options.namespace)),
            severity,
            bearer_over_http: options.bearer_over_http,
        })
    }

    /// Refuses fields that the vendor does not have, and asks for those that it needs.
    fn check_fields(&self, vendor: Vendor) -> Result<(), String> {
        let signs = [Vendor::Lark, Vendor::DingTalk, Vendor::Webhook];
        for (field, given, vendors) in [
            (
                "signingSecretFile",
                self.signing_secret_file.is_some(),
                &signs[..],
            ),
            (
                "bearerTokenFile",
                self.bearer_token_file.is_some(),
                &[Vendor::Webhook],
            ),
            ("source", self.source.is_some(), &[Vendor::Webhook]),
            (
                "routingKeyFile",
                self.routing_key_file.is_some(),
                &[Vendor::PagerDuty],
            ),
            ("severity", self.severity.is_some(), &[Vendor::PagerDuty]),
        ] {
            if given && !vendors.contains(&vendor) {
                return Err(format!("{field} is not for the type {}", vendor.name()));
            }
        }
        if vendor == Vendor::PagerDuty && self.routing_key_file.is_none() {
            return Err("routingKeyFile is missing".into());
        }
        Ok(())
    }
}

fn event(name: &str) -> Result<Event, String> {
    Event::of(name)
        .ok_or_else(|| format!("there is no event {name}; there are ban, resolve and common"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounted::Directory;
    use jiff::tz::Offset;

    fn channels(text: &str) -> Result<Vec<ChannelConfig>, String> {
        let options = Options {
            secrets: Directory::new("/s"),
            namespace: "security".into(),
            ..Options::default()
        };
        let mut errors = Errors::default();
        let channels = read(text, &options, Offset::constant(8), &mut errors);
        if errors.0.is_empty() {
            Ok(channels)
        } else {
            Err(errors.to_string())
        }
    }

    #[test]
    fn each_type_is_read_with_its_defaults() {
        let list = channels(
            "
- {type: slack, urlFile: /s/slack}
- {type: teams, urlFile: /s/teams, events: [ban], perMinute: 10, digest: false, timezone: UTC}
- {type: lark, urlFile: /s/lark, signingSecretFile: /s/sign}
- {name: ops, type: lark, urlFile: /s/ops, templates: {ban: /templates/ban.json}}
- {type: dingtalk, urlFile: /s/ding, signingSecretFile: /s/sign}
- {type: wecom, urlFile: /s/wecom}
- {type: pagerduty, routingKeyFile: /s/key, severity: critical}
- {type: webhook, url: 'http://soc.example/events', signingSecretFile: /s/sign}
",
        )
        .unwrap();
        let names: Vec<&str> = list.iter().map(|it| it.name.as_str()).collect();
        let expected = [
            "slack",
            "teams",
            "lark",
            "ops",
            "dingtalk",
            "wecom",
            "pagerduty",
            "webhook",
        ];
        assert_eq!(names, expected);
        assert_eq!(list[0].events, Event::ALL);
        assert_eq!(list[0].zone, Offset::constant(8));
        assert_eq!(list[1].events, [Event::Ban]);
        assert_eq!(
            (list[1].per_minute, list[1].digest),
            (Some(10), Some(false))
        );
        assert_eq!(list[1].zone, Offset::UTC);
        assert_eq!(list[6].hook, Text::Plain(Secret::new(PAGERDUTY_URL)));
        assert_eq!(list[6].severity, Severity::Critical);
        assert_eq!(list[7].source, "/ipblock-operator/security");
    }

    #[test]
    fn each_wrong_entry_is_named_with_its_remedy() {
        for (entry, word) in [
            (
                "{type: pigeon, urlFile: /s/a}",
                "channel pigeon: unknown type \"pigeon\"; there are lark",
            ),
            ("{type: slack}", "urlFile is missing"),
            ("{type: slack, url: 'https://a'}", "its URL is a secret"),
            ("{type: slack, urlFile: /etc/passwd}", "not a file below /s"),
            (
                "{type: webhook, url: 'ftp://a'}",
                "begins with https:// or http://",
            ),
            (
                "{type: pagerduty, url: 'http://a', routingKeyFile: /s/k}",
                "begins with https://",
            ),
            (
                "{type: webhook, url: 'https://a', urlFile: /s/a}",
                "choose one",
            ),
            (
                "{type: slack, urlFile: /s/a, events: [bans]}",
                "no event bans",
            ),
            ("{type: slack, urlFile: /s/a, perMinute: 0}", "at least 1"),
            (
                "{type: slack, urlFile: /s/a, perMinute: 6001}",
                "at most 6000",
            ),
            (
                "{type: slack, urlFile: /s/a, events: []}",
                "events is empty",
            ),
            ("{type: slack, urlFile: /s/a, timezone: Mars}", "timezone"),
            (
                "{type: slack, urlFile: /s/a, severity: info}",
                "severity is not for the type slack",
            ),
            (
                "{type: wecom, urlFile: /s/a, signingSecretFile: /s/b}",
                "not for the type wecom",
            ),
            ("{type: pagerduty}", "routingKeyFile is missing"),
            (
                "{type: pagerduty, routingKeyFile: /s/a, severity: loud}",
                "severity: \"loud\"",
            ),
            (
                "{type: slack, name: 'a b', urlFile: /s/a}",
                "the name has other",
            ),
            (
                "{type: slack, urlFile: /s/a, templates: {ban: /etc/x}}",
                "/templates or /s",
            ),
            ("{type: slack, urlFile: /s/a, colour: red}", "colour"),
        ] {
            let error = channels(&format!("[{entry}]")).expect_err(entry);
            assert!(
                error.contains(word) && error.starts_with("notify"),
                "{entry}: {error}"
            );
        }
        let twice = channels("[{type: slack, urlFile: /s/a}, {type: slack, urlFile: /s/b}]");
        assert!(
            twice
                .unwrap_err()
                .contains("two channels have the name slack")
        );
        let many = "- {type: slack, urlFile: /s/a}\n".repeat(21);
        assert!(channels(&many).unwrap_err().contains("at most 20"));
    }
}
