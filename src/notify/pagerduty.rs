//! PagerDuty, Events API v2.
//!
//! A ban triggers an alert with a `dedup_key` made of its address, and its lift resolves it, so each address has at most
//! one open alert about its ban. Trouble has a key of its own, and is resolved by people. An accepted event is answered 202; 400 is a wrong event or
//! key, 429 and 5xx pass. `summary` has at most 1,024 characters, `dedup_key` 255, an event 512 KB.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use super::hook::Hook;
use super::{Error, Event, Notification, Notifier, Template, Transport};
use crate::outbound::BoxFuture;
use crate::secret::Secret;

/// The longest `dedup_key`, in characters. The gateway in one comes from an annotation.
const LONGEST_KEY: usize = 255;

/// Where events go; accounts in Europe have another host.
pub const PAGERDUTY_URL: &str = "https://events.pagerduty.com/v2/enqueue";

const LIMITS: &[(usize, Duration)] = &[(120, Duration::from_secs(60))];

const LONGEST_SUMMARY: usize = 1024;

/// The largest event, in bytes.
const LARGEST: usize = 512 * 1024;

/// How urgent alerts are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Severity {
    /// `critical`.
    Critical,
    /// `error`.
    Error,
    /// `warning`.
    #[default]
    Warning,
    /// `info`.
    Info,
}

/// A service of PagerDuty.
#[derive(Debug)]
pub struct PagerDuty {
    hook: Hook,
    key: Secret,
    severity: Severity,
    details: Vec<(Event, Template)>,
}

// === impl Severity ===

impl Severity {
    const ALL: [Self; 4] = [Self::Critical, Self::Error, Self::Warning, Self::Info];

    /// The word of the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }

    /// The severity of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|severity| severity.name() == name)
    }
}

// === impl PagerDuty ===

impl PagerDuty {
    /// The integration with the routing key `key`, at `url`. `details` are templates of `custom_details`.
    #[must_use]
    pub fn new(
        (url, key): (Secret, Secret),
        severity: Severity,
        details: Vec<(Event, Template)>,
        transport: Transport,
    ) -> Self {
        Self {
            hook: transport.hook("PagerDuty", url),
            key,
            severity,
            details,
        }
    }

    fn event(&self, notification: &Notification) -> Value {
        let action = match notification.event {
            Event::Resolve => "resolve",
            Event::Ban | Event::Common => "trigger",
        };
        let mut event = json!({
            "routing_key": self.key.expose(),
            "event_action": action,
            "client": "ipblock-operator",
            "payload": {
                "summary": summary(notification),
                "source": source(notification),
                "severity": self.severity.name(),
                "timestamp": notification.at.to_string(),
                "component": "ipblock-operator",
                "class": notification.event.name(),
                "custom_details": self.hook.data(&self.details, notification),
            },
        });
        // The lift of a ban says nothing about trouble, and trouble must not open the alert of a ban that is over. A gateway
        // that fails is one alert, and not one for each block.
        let (kind, subject) = match notification.event {
            Event::Ban | Event::Resolve => ("ipblock", &notification.ip),
            Event::Common if notification.gateway.is_empty() => {
                ("ipblock-trouble", &notification.ip)
            }
            Event::Common => ("ipblock-gateway", &notification.gateway),
        };
        if !subject.is_empty() {
            let key = format!("{kind}/{subject}");
            event["dedup_key"] = json!(key.chars().take(LONGEST_KEY).collect::<String>());
        }
        event
    }

    async fn send(&self, notification: &Notification) -> Result<(), Error> {
        let mut event = self.event(notification);
        if event.to_string().len() > LARGEST
            && let Some(payload) = event["payload"].as_object_mut()
        {
            payload.remove("custom_details");
        }
        let answer = self.hook.post("", &[], event.to_string()).await?;
        match answer.status() {
            StatusCode::ACCEPTED | StatusCode::OK => Ok(()),
            _ => Err(self.hook.refused(&answer)),
        }
    }
}

impl Notifier for PagerDuty {
    fn channel(&self) -> &'static str {
        "pagerduty"
    }

    fn limits(&self) -> &'static [(usize, Duration)] {
        LIMITS
    }

    /// A digest would resolve nothing.
    fn digests(&self) -> bool {
        false
    }

    fn notify<'a>(&'a self, notification: &'a Notification) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.send(notification))
    }
}

fn summary(notification: &Notification) -> String {
    let text = match notification.event {
        Event::Ban => &notification.reason,
        Event::Resolve | Event::Common => &notification.message,
    };
    let text = format!("{}: {text}", notification.title());
    let text = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    text.take(LONGEST_SUMMARY).collect()
}

/// The affected system; it must not be empty.
fn source(notification: &Notification) -> &str {
    if notification.ip.is_empty() {
        "ipblock-operator"
    } else {
        &notification.ip
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notify::hook::fake;

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    fn pagerduty(
        status: u16,
        text: &str,
        details: Vec<(Event, Template)>,
    ) -> (PagerDuty, fake::Sent) {
        let (transport, sent) = fake::server(status, &[], text);
        let secrets = (Secret::new(PAGERDUTY_URL), Secret::new(KEY));
        let severity = Severity::default();
        let made = PagerDuty::new(secrets, severity, details, transport);
        (made, sent)
    }

    /// The documented form of an event.
    fn check(event: &Value) {
        assert_eq!(event["routing_key"].as_str().unwrap().len(), 32);
        let action = event["event_action"].as_str().unwrap();
        assert!(matches!(action, "trigger" | "acknowledge" | "resolve"));
        match event.get("dedup_key") {
            Some(key) => assert!((1..=255).contains(&key.as_str().unwrap().len())),
            None => assert_eq!(action, "trigger", "the others need a dedup_key"),
        }
        let payload = &event["payload"];
        let summary = payload["summary"].as_str().unwrap().chars().count();
        assert!((1..=1024).contains(&summary));
        assert!(!payload["source"].as_str().unwrap().is_empty());
        let severity = payload["severity"].as_str().unwrap();
        assert!(["critical", "error", "warning", "info"].contains(&severity));
        let time = payload["timestamp"].as_str().unwrap();
        assert!(time.parse::<jiff::Timestamp>().is_ok());
        assert!(payload["custom_details"].is_object());
        let known = [
            "routing_key",
            "event_action",
            "dedup_key",
            "payload",
            "client",
        ];
        for key in event.as_object().unwrap().keys() {
            assert!(known.contains(&key.as_str()), "{key}");
        }
    }

    #[tokio::test]
    async fn a_ban_triggers_and_its_lift_resolves_the_alert_of_the_address() {
        let mut events = Vec::new();
        for notification in fake::notifications() {
            let accepted = r#"{"status":"success","message":"Event processed"}"#;
            let (pagerduty, sent) = pagerduty(202, accepted, Vec::new());
            pagerduty.notify(&notification).await.unwrap();
            let event = fake::body(&sent);
            check(&event);
            events.push(event);
        }
        assert_eq!(events[0]["event_action"], "trigger");
        assert_eq!(events[1]["event_action"], "resolve");
        assert_eq!(events[0]["dedup_key"], "ipblock/2001:db8::7");
        assert_eq!(events[0]["dedup_key"], events[1]["dedup_key"]);
        assert_eq!(events[2]["event_action"], "trigger");
        assert!(events[2].get("dedup_key").is_none());
        assert_eq!(events[0]["payload"]["custom_details"]["count"], 2);
    }

    #[tokio::test]
    async fn trouble_does_not_open_the_alert_of_a_ban_again() {
        let (pagerduty, sent) = pagerduty(202, "", Vec::new());
        let trouble = Notification {
            event: Event::Common,
            ..fake::notifications().remove(0)
        };
        pagerduty.notify(&trouble).await.unwrap();
        let event = fake::body(&sent);
        check(&event);
        assert_eq!(event["event_action"], "trigger");
        assert_eq!(event["dedup_key"], "ipblock-trouble/2001:db8::7");
        // That of a gateway is one alert for all blocks.
        let gateway = Notification {
            gateway: "iptables at 192.0.2.1:6080".into(),
            ..trouble
        };
        let event = pagerduty.event(&gateway);
        check(&event);
        assert_eq!(
            event["dedup_key"],
            "ipblock-gateway/iptables at 192.0.2.1:6080"
        );
    }

    #[tokio::test]
    async fn custom_details_come_from_a_template() {
        let template = Template::parse(r#"{"requester": "${by}", "what": "${reason}"}"#).unwrap();
        let (pagerduty, sent) = pagerduty(202, "", vec![(Event::Ban, template)]);
        pagerduty.notify(&fake::notifications()[0]).await.unwrap();
        let details = fake::body(&sent)["payload"]["custom_details"].clone();
        assert_eq!(details["requester"], "ops");
        let reason = details["what"].as_str().unwrap();
        assert!(
            reason.starts_with("<!channel> [x]"),
            "data has no markup: {reason}"
        );
    }

    #[tokio::test]
    async fn an_error_holds_no_key() {
        for (status, text, later) in [
            (
                400,
                r#"{"status":"invalid event","errors":["'routing_key' is invalid"]}"#,
                false,
            ),
            (403, "", false),
            (429, r#"{"status":"throttle exceeded"}"#, true),
            (500, "", true),
        ] {
            let (pagerduty, _) = pagerduty(status, text, Vec::new());
            let error = pagerduty
                .notify(&fake::notifications()[0])
                .await
                .unwrap_err();
            assert_eq!(matches!(error, Error::Later { .. }), later, "{error}");
            assert!(!format!("{error} {pagerduty:?}").contains(KEY));
        }
    }
}
