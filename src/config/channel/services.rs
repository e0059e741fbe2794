//! Every channel as it is configured, by HTTPS, to a server that refuses what its service does not document as allowed.

mod chats;
mod programs;
mod robots;
mod server;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::tz::Offset;
use reeve_clock::Clock;
use serde_json::{Value, json};

use self::server::{Checker, Service};
use super::{Channel, ChannelConfig, Text, Vendor};
use crate::mounted::MountedFile;
use crate::notify::{Error, Event, Metrics, Notification, Notifications, Severity};
use crate::outbound::{AddressPolicy, Http, Outbound};
use crate::secret::Secret;

const ROUTING_KEY: &str = "0123456789abcdef0123456789abcdef";
const SIGNING: &str = "s1gning";
const BEARER: &str = "t0ken";

/// Longer than any message may be, and shorter than a template file may be.
const LARGE: usize = 45_000;

/// The checker of a service, and the path of its URL.
fn service(vendor: Vendor) -> (Checker, &'static str) {
    match vendor {
        Vendor::Lark => (chats::lark, "/open-apis/bot/v2/hook/canary"),
        Vendor::Slack => (chats::slack, "/services/T0/B0/canary"),
        Vendor::Teams => (chats::teams, "/workflows/x/triggers/manual?sig=canary"),
        Vendor::DingTalk => (robots::dingtalk, "/robot/send?access_token=canary"),
        Vendor::WeCom => (robots::wecom, "/cgi-bin/webhook/send?key=canary"),
        Vendor::PagerDuty => (programs::pagerduty, "/v2/enqueue"),
        Vendor::Webhook => (programs::webhook, "/events"),
    }
}

/// A folder of mounted files, which goes with the value.
struct Files(PathBuf);

// === impl Files ===

impl Files {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("reeve-services-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str, text: &str) -> MountedFile {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        MountedFile::alone(path)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A service and the configuration of a channel to it.
struct Pair {
    service: Service,
    config: ChannelConfig,
    files: Files,
}

// === impl Pair ===

impl Pair {
    fn new(vendor: Vendor) -> Self {
        let files = Files::new();
        let (checker, path) = service(vendor);
        let service = Service::start(checker);
        let signs = matches!(vendor, Vendor::Lark | Vendor::DingTalk | Vendor::Webhook);
        let url = format!("{}{path}\n", service.url);
        let config = ChannelConfig {
            name: vendor.name().to_owned(),
            vendor,
            hook: Text::File(files.file("url", &url)),
            signing: signs.then(|| files.file("signing", SIGNING)),
            bearer: (vendor == Vendor::Webhook).then(|| files.file("bearer", BEARER)),
            key: (vendor == Vendor::PagerDuty).then(|| files.file("key", ROUTING_KEY)),
            templates: Vec::new(),
            zone: Offset::UTC,
            events: Event::ALL.to_vec(),
            per_minute: None,
            digest: Some(true),
            source: "/ipblock-operator/default".into(),
            severity: Severity::default(),
            bearer_over_http: false,
        };
        Self {
            service,
            config,
            files,
        }
    }

    /// A channel that sends by the operator's own HTTP client.
    fn connect(&self) -> Channel {
        let policy = AddressPolicy {
            allow_loopback: true,
        };
        let http = Http::builder()
            .policy(policy)
            .authority(self.service.authority.clone());
        let http: Arc<dyn Outbound> = Arc::new(http.build().unwrap());
        self.config
            .connect(&http, &crate::time::Time::new(Clock::system()))
            .unwrap()
    }

    async fn send(&self, notification: &Notification) -> Result<(), Error> {
        self.connect().notifier.notify(notification).await
    }

    /// Uses `template` for bans.
    fn template(&mut self, template: &Value) {
        let file = self.files.file("template", &template.to_string());
        self.config.templates = vec![(Event::Ban, file)];
    }
}

fn ban() -> Notification {
    Notification {
        event: Event::Ban,
        at: server::now(),
        ip: "2001:db8::7".into(),
        reason: "port scan".into(),
        source: "grafana".into(),
        by: "ops".into(),
        duration: "10m".into(),
        expires_at: None,
        count: 2,
        message: "banned 2001:db8::7".into(),
        gateway: String::new(),
    }
}

/// One of each kind: a ban, its lift, a failure of a block, and one of the operator; with usual texts, with none, and with
/// those of an attacker.
fn notifications() -> Vec<Notification> {
    let hostile = format!(
        "<!channel> <at id=all></at> @all [x](http://evil.example) *b* `c` \"}}\r\n\u{0} {}",
        "é😀".repeat(3000)
    );
    let mut all = Vec::new();
    for text in ["port scan", "", hostile.as_str()] {
        let ban = Notification {
            reason: text.into(),
            source: text.into(),
            by: text.into(),
            message: format!("banned 2001:db8::7 {text}"),
            ..ban()
        };
        let of = |event| Notification {
            event,
            ..ban.clone()
        };
        all.extend([of(Event::Resolve), of(Event::Common)]);
        all.push(Notification::common(
            ban.at,
            format!("the gateway is away {text}"),
        ));
        all.push(ban);
    }
    all
}

#[tokio::test]
async fn each_service_accepts_each_kind_of_notification() {
    for vendor in Vendor::ALL {
        let pair = Pair::new(vendor);
        let all = notifications();
        for notification in &all {
            let sent = pair.send(notification).await;
            assert_eq!(sent, Ok(()), "{vendor:?}: {notification:?}");
        }
        assert_eq!(pair.service.accepted(), all.len(), "{vendor:?}");
    }
}

#[tokio::test]
async fn each_service_accepts_a_digest() {
    for vendor in Vendor::ALL {
        let pair = Pair::new(vendor);
        let metrics = Metrics::default();
        let notifications = Notifications::start(Clock::system(), metrics.clone());
        notifications.set(vec![pair.connect()]);
        for number in 0..12 {
            notifications.send(Notification {
                ip: format!("192.0.2.{number}"),
                ..ban()
            });
        }
        notifications.flush(Duration::from_secs(20)).await;
        assert_eq!(pair.service.accepted(), 1, "{vendor:?}");
        let body = String::from_utf8(pair.service.bodies().remove(0)).unwrap();
        assert!(
            body.contains("12 notifications in one"),
            "{vendor:?}: {body}"
        );
    }
}

#[tokio::test]
async fn each_service_accepts_what_replaces_a_message_that_is_too_large() {
    let large = "x".repeat(LARGE);
    for vendor in Vendor::ALL {
        let mut pair = Pair::new(vendor);
        pair.template(&match vendor {
            Vendor::Slack => json!({"text": large}),
            Vendor::DingTalk | Vendor::WeCom => {
                json!({"msgtype": "markdown", "markdown": {"title": "x", "text": large, "content": large}})
            }
            Vendor::Lark | Vendor::Teams => json!({"x": large}),
            Vendor::PagerDuty | Vendor::Webhook => continue,
        });
        assert_eq!(pair.send(&ban()).await, Ok(()), "{vendor:?}");
        let body = String::from_utf8(pair.service.bodies().remove(0)).unwrap();
        assert!(
            body.contains("2001:db8::7") && !body.contains("xxx"),
            "{body}"
        );
    }
}

#[tokio::test]
async fn what_a_service_refuses_is_reported_once_with_its_words_and_without_a_secret() {
    let markdown = |text: &str| json!({"msgtype": "markdown", "markdown": {"text": text}});
    let cases = [
        (Vendor::Lark, json!({"header": {}}), "code 9499"),
        (Vendor::Slack, json!({}), "no_text"),
        (
            Vendor::Slack,
            json!({"blocks": [{"type": "header"}]}),
            "invalid_blocks",
        ),
        (Vendor::Slack, json!({"text": 7}), "invalid_payload"),
        (
            Vendor::Teams,
            json!({"type": "Card"}),
            "TriggerInputSchemaMismatch",
        ),
        (
            Vendor::DingTalk,
            json!({"msgtype": "card"}),
            "errcode 400105",
        ),
        (Vendor::DingTalk, markdown("no title"), "errcode 40035"),
        (Vendor::WeCom, json!({"msgtype": "card"}), "errcode 40008"),
        (Vendor::WeCom, markdown("no content"), "errcode 44004"),
    ];
    let mut tried = HashSet::new();
    for (vendor, template, expected) in cases {
        let mut pair = Pair::new(vendor);
        pair.template(&template);
        refuses(&pair, expected).await;
        tried.insert(vendor.name());
    }
    assert_eq!(
        tried.len(),
        Vendor::ALL.len() - 2,
        "each with templates of messages"
    );
}

#[tokio::test]
async fn a_wrong_secret_is_refused_by_each_service_that_has_one() {
    let wrong = |vendor, name: &str, text: &str| {
        let pair = Pair::new(vendor);
        pair.files.file(name, text);
        pair
    };
    for (vendor, name, text, expected) in [
        (Vendor::Lark, "signing", "other", "code 19021"),
        (Vendor::DingTalk, "signing", "other", "errcode 310000"),
        (Vendor::Webhook, "signing", "other", "HTTP 401"),
        (Vendor::Webhook, "bearer", "other", "HTTP 401"),
        (Vendor::PagerDuty, "key", "short", "invalid event"),
    ] {
        refuses(&wrong(vendor, name, text), expected).await;
    }
    for (vendor, path, expected) in [
        (Vendor::Lark, "/hook/other", "code 19001"),
        (Vendor::Slack, "/services/T0", "no_service"),
        (Vendor::Teams, "/workflows/x", "HTTP 401"),
        (
            Vendor::DingTalk,
            "/robot/send?access_token=",
            "errcode 400101",
        ),
        (Vendor::WeCom, "/cgi-bin/webhook/send", "errcode 93000"),
    ] {
        let mut pair = Pair::new(vendor);
        pair.config.hook = Text::Plain(Secret::new(format!("{}{path}", pair.service.url)));
        refuses(&pair, expected).await;
    }
}

/// Another attempt cannot help, and nothing repeats a secret.
async fn refuses(pair: &Pair, expected: &str) {
    let error = pair.send(&ban()).await.expect_err(expected);
    assert!(matches!(error, Error::Never(_)), "{expected}: {error:?}");
    let error = error.to_string();
    assert!(error.contains(expected), "{expected}: {error}");
    for secret in ["canary", "s1gning", BEARER, ROUTING_KEY] {
        assert!(!error.contains(secret), "{error}");
    }
    assert_eq!(pair.service.accepted(), 0, "{expected}");
}
