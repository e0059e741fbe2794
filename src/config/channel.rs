//! A channel of notifications as configured, and how it is connected.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::Offset;

use crate::mounted::{MountedFile, Stamp};
use crate::notify::{
    Brand, Channel, CloudEvents, Event, Lark, Notifier, PagerDuty, Robot, Severity, Slack, Teams,
    Template, Templates, Transport, WebhookSecrets,
};
use crate::outbound::Outbound;
use crate::secret::Secret;
use crate::time::Time;

/// A channel of notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelConfig {
    /// The name, in metrics and logs.
    pub name: String,
    /// Which service.
    pub vendor: Vendor,
    /// The URL, which often holds a token.
    pub hook: Text,
    /// The signing secret, where the channel has one.
    pub signing: Option<MountedFile>,
    /// The bearer token of a webhook.
    pub bearer: Option<MountedFile>,
    /// The routing key of PagerDuty.
    pub key: Option<MountedFile>,
    /// Cards from files, instead of the built-in ones.
    pub templates: Vec<(Event, MountedFile)>,
    /// The zone of the times in cards.
    pub zone: Offset,
    /// The events that it gets.
    pub events: Vec<Event>,
    /// At most so many messages a minute, beside the limits of the service.
    pub per_minute: Option<usize>,
    /// Whether many waiting messages become one; `None`: as is usual for the service.
    pub digest: Option<bool>,
    /// The attribute `source` of CloudEvents.
    pub source: String,
    /// How urgent alerts of PagerDuty are.
    pub severity: Severity,
    /// The bearer token may go over plain HTTP.
    pub bearer_over_http: bool,
}

/// A service that takes notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// Lark (Feishu).
    Lark,
    /// Slack.
    Slack,
    /// Microsoft Teams.
    Teams,
    /// DingTalk.
    DingTalk,
    /// WeCom.
    WeCom,
    /// PagerDuty.
    PagerDuty,
    /// CloudEvents by HTTP.
    Webhook,
}

/// A secret text, in the ConfigMap (as the original has it) or in a mounted file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// In the ConfigMap, where each of its readers can see it.
    Plain(Secret),
    /// In a file, from a mounted Secret.
    File(MountedFile),
}

// === impl Vendor ===

impl Vendor {
    /// Every service.
    pub const ALL: [Self; 7] = [
        Self::Lark,
        Self::Slack,
        Self::Teams,
        Self::DingTalk,
        Self::WeCom,
        Self::PagerDuty,
        Self::Webhook,
    ];

    /// The name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lark => "lark",
            Self::Slack => "slack",
            Self::Teams => "teams",
            Self::DingTalk => "dingtalk",
            Self::WeCom => "wecom",
            Self::PagerDuty => "pagerduty",
            Self::Webhook => "webhook",
        }
    }

    /// The service of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|vendor| vendor.name() == name)
    }

    /// Whether `url` may be called: tokens in the URLs of services on the internet go over TLS only.
    pub(super) fn check_url(self, url: &str) -> Result<(), String> {
        let plain = matches!(self, Self::Webhook | Self::Lark);
        let url = url.trim();
        match url {
            _ if url.starts_with("https://") => {}
            _ if plain && url.starts_with("http://") => {}
            _ if plain => {
                return Err("a URL that begins with https:// or http:// is expected".into());
            }
            _ => return Err("a URL that begins with https:// is expected".into()),
        }
        // Its text is a secret, and not repeated.
        match url.parse::<http::Uri>() {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("the URL cannot be used: {error}")),
        }
    }
}

// === impl ChannelConfig ===

impl ChannelConfig {
    /// The files that the channel is made from.
    fn files(&self) -> impl Iterator<Item = &MountedFile> {
        let hook = match &self.hook {
            Text::Plain(_) => None,
            Text::File(file) => Some(file),
        };
        let templates = self.templates.iter().map(|(_, file)| file);
        let secrets = self.signing.iter().chain(&self.bearer).chain(&self.key);
        hook.into_iter().chain(secrets).chain(templates)
    }

    /// What the files are now: when it differs from the last time, the channel is connected again.
    pub(crate) fn stamps(&self) -> Vec<Stamp> {
        self.files().map(MountedFile::stamp).collect()
    }

    /// The channel, or what cannot be read. A template that cannot be read is replaced by the built-in one.
    pub(crate) fn connect(
        &self,
        outbound: &Arc<dyn Outbound>,
        time: &Time,
    ) -> Result<Channel, String> {
        let connected = self.notifier(Transport {
            outbound: Arc::clone(outbound),
            time: time.clone(),
            zone: self.zone,
        });
        let notifier = connected.map_err(|why| format!("channel {}: {why}", self.name))?;
        let mut channel = Channel::new(notifier);
        channel.name.clone_from(&self.name);
        channel.events.clone_from(&self.events);
        channel.digest = self.digest.unwrap_or(channel.digest);
        let own = self
            .per_minute
            .map(|count| (count, Duration::from_secs(60)));
        channel.limits.extend(own);
        Ok(channel)
    }

    fn notifier(&self, transport: Transport) -> Result<Arc<dyn Notifier>, String> {
        let url = match &self.hook {
            Text::Plain(hook) => hook.clone(),
            Text::File(file) => secret(file)?,
        };
        self.vendor.check_url(url.expose())?;
        let signing = self.signing.as_ref().map(secret).transpose()?;
        Ok(match self.vendor {
            Vendor::Lark => {
                let cards = self.cards(Templates::built_in());
                Arc::new(Lark::new((url, signing), cards, transport))
            }
            Vendor::Slack => {
                let cards = self.cards(Slack::templates());
                Arc::new(Slack::new(url, cards, transport))
            }
            Vendor::Teams => {
                let cards = self.cards(Teams::templates());
                Arc::new(Teams::new(url, cards, transport))
            }
            Vendor::DingTalk | Vendor::WeCom => {
                let brand = match self.vendor {
                    Vendor::DingTalk => Brand::DingTalk,
                    _ => Brand::WeCom,
                };
                let cards = self.cards(Robot::templates(brand));
                let secrets = (url, signing);
                Arc::new(Robot::new(brand, secrets, cards, transport))
            }
            Vendor::PagerDuty => {
                let key = self.key.as_ref().map(secret).transpose()?;
                let secrets = (url, key.ok_or("routingKeyFile is missing")?);
                let details = self.data();
                let severity = self.severity;
                Arc::new(PagerDuty::new(secrets, severity, details, transport))
            }
            Vendor::Webhook => {
                let bearer = self.bearer.as_ref().map(secret).transpose()?;
                if let (Some(token), Some(file)) = (&bearer, &self.bearer)
                    && http::HeaderValue::from_str(token.expose()).is_err()
                {
                    return Err(format!("{file} has a character that no header may have"));
                }
                let clear = !url.expose().starts_with("https://") && !is_local(url.expose());
                if bearer.is_some() && clear && !self.bearer_over_http {
                    return Err("the token would go over plain HTTP, readable on the way; use https://, or run with --allow-bearer-over-http".into());
                }
                let signing = signing.iter().flat_map(|it| it.expose().lines());
                let signing = signing.map(Secret::new).filter(|it| !it.is_empty());
                let secrets = WebhookSecrets {
                    url,
                    signing: signing.collect(),
                    bearer,
                };
                let source = self.source.clone();
                let data = self.data();
                Arc::new(CloudEvents::new(secrets, source, data, transport))
            }
        })
    }

    /// The built-in cards, with those of files instead.
    fn cards(&self, built_in: Templates) -> Templates {
        let files = self.templates.iter();
        let (templates, unread) = built_in.with_files(files.map(|(event, file)| (*event, file)));
        for error in unread {
            tracing::warn!(channel = %self.name, %error, "the built-in card is used instead");
        }
        templates
    }

    /// The templates of data, which has a built-in form.
    fn data(&self) -> Vec<(Event, Template)> {
        let mut read = Vec::new();
        for (event, file) in &self.templates {
            match Template::read(file) {
                Ok(template) => read.push((*event, template)),
                Err(error) => {
                    tracing::warn!(channel = %self.name, %error, "the built-in data is used instead");
                }
            }
        }
        read
    }
}

fn secret(file: &MountedFile) -> Result<Secret, String> {
    let text = file.text();
    let text = text.map_err(|error| format!("cannot read {file}: {error}"))?;
    let secret = Secret::new(text);
    if secret.is_empty() {
        return Err(format!("{file} is empty"));
    }
    Ok(secret)
}

/// Whether requests to `url` stay inside of this machine.
fn is_local(url: &str) -> bool {
    let uri = url.parse::<http::Uri>().ok();
    let host = uri.as_ref().and_then(http::Uri::host);
    let host = host.map(|host| host.trim_matches(['[', ']']).parse::<IpAddr>());
    matches!(host, Some(Ok(address)) if address.is_loopback())
}

#[cfg(test)]
mod services;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stamps_of_a_channel_change_with_each_of_its_files() {
        let path = |name: &str| std::env::temp_dir().join(format!("{}-{name}", std::process::id()));
        let (hook, signing) = (path("hook"), path("signing"));
        std::fs::write(&hook, "https://one.example/").unwrap();
        let notify = ChannelConfig {
            hook: Text::File(MountedFile::alone(&hook)),
            signing: Some(MountedFile::alone(&signing)),
            ..channel(Vendor::Lark)
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

    fn channel(vendor: Vendor) -> ChannelConfig {
        ChannelConfig {
            name: vendor.name().to_owned(),
            vendor,
            hook: Text::Plain(Secret::new("https://chat.example/canary")),
            signing: None,
            bearer: None,
            key: None,
            templates: Vec::new(),
            zone: Offset::UTC,
            events: vec![Event::Ban],
            per_minute: Some(7),
            digest: None,
            source: "/x".into(),
            severity: Severity::default(),
            bearer_over_http: false,
        }
    }

    fn connect(channel: &ChannelConfig) -> Result<Channel, String> {
        let outbound = crate::outbound::InProcess::new(|_| async {
            Ok(http::Response::new(bytes::Bytes::new()))
        });
        let clock = reeve_clock::Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1);
        channel.connect(
            &(Arc::new(outbound) as Arc<dyn Outbound>),
            &Time::new(clock),
        )
    }

    /// A file that goes with the value.
    struct File(std::path::PathBuf);

    impl File {
        fn new(name: &str, text: &str) -> Self {
            let path = std::env::temp_dir().join(format!("notify-{}-{name}", std::process::id()));
            std::fs::write(&path, text).unwrap();
            Self(path)
        }

        fn mounted(&self) -> MountedFile {
            MountedFile::alone(&self.0)
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn each_channel_is_connected_with_its_events_and_rate() {
        let key = File::new("key", "0123456789abcdef0123456789abcdef");
        for vendor in Vendor::ALL {
            let config = ChannelConfig {
                key: Some(key.mounted()),
                ..channel(vendor)
            };
            let channel = connect(&config).unwrap();
            assert_eq!(channel.name, vendor.name());
            assert_eq!(channel.notifier.channel(), vendor.name());
            assert_eq!(channel.events, [Event::Ban]);
            assert!(channel.limits.contains(&(7, Duration::from_secs(60))));
            let machine = matches!(vendor, Vendor::PagerDuty | Vendor::Webhook);
            assert_eq!(channel.digest, !machine, "{vendor:?}");
        }
    }

    #[test]
    fn a_secret_that_is_missing_empty_or_would_be_readable_keeps_the_channel_off() {
        let (url, empty, token) = (
            File::new("url", "http://soc.example/x\n"),
            File::new("empty", " \n"),
            File::new("token", "t0ken"),
        );
        let (spaced, lines) = (
            File::new("spaced", "https://soc.example/a b"),
            File::new("lines", "t0\nken"),
        );
        let gone = MountedFile::alone("/nonexistent/url");
        let hook = |file: MountedFile, vendor| ChannelConfig {
            hook: Text::File(file),
            ..channel(vendor)
        };
        for (config, word) in [
            (hook(gone, Vendor::Slack), "cannot read"),
            (hook(empty.mounted(), Vendor::Slack), "is empty"),
            (hook(url.mounted(), Vendor::Slack), "begins with https://"),
            (hook(spaced.mounted(), Vendor::Slack), "cannot be used"),
            (
                ChannelConfig {
                    bearer: Some(lines.mounted()),
                    ..channel(Vendor::Webhook)
                },
                "no header may have",
            ),
            (channel(Vendor::PagerDuty), "routingKeyFile"),
            (
                ChannelConfig {
                    bearer: Some(token.mounted()),
                    ..hook(url.mounted(), Vendor::Webhook)
                },
                "--allow-bearer-over-http",
            ),
        ] {
            let error = connect(&config).unwrap_err();
            assert!(
                error.contains(word) && error.starts_with("channel "),
                "{error}"
            );
            assert!(!error.contains("soc.example"), "{error}");
        }
        assert!(connect(&hook(url.mounted(), Vendor::Webhook)).is_ok());
        assert!(is_local("http://127.0.0.1:8/x") && is_local("http://[::1]/x"));
        assert!(!is_local("http://192.0.2.1/x") && !is_local("http://localhost.example/"));
    }
}
