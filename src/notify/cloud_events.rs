//! A generic webhook: CloudEvents 1.0 in structured JSON, one event a request.
//!
//! A signature follows Standard Webhooks: `webhook-id`, `webhook-timestamp` and `webhook-signature`, the HMAC-SHA256 of
//! `<id>.<timestamp>.<body>` in base64 after `v1,`. A repeated attempt has the same id, so that a receiver can leave it out.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::hook::{Hook, hmac};
use super::{Error, Event, Notification, Notifier, Template, Transport};
use crate::api::GROUP;
use crate::outbound::BoxFuture;
use crate::secret::Secret;

/// The pace that any receiver should keep up with.
const LIMITS: &[(usize, Duration)] = &[(20, Duration::from_secs(1))];

/// The begin of a secret of Standard Webhooks, which is base64.
const SECRET_PREFIX: &str = "whsec_";

/// The secrets of a webhook.
#[derive(Clone, Debug)]
pub struct WebhookSecrets {
    /// Where events go.
    pub url: Secret,
    /// The signing secrets; several during a rotation.
    pub signing: Vec<Secret>,
    /// The bearer token.
    pub bearer: Option<Secret>,
}

/// A receiver of events.
#[derive(Debug)]
pub struct CloudEvents {
    hook: Hook,
    secrets: WebhookSecrets,
    source: String,
    data: Vec<(Event, Template)>,
}

// === impl CloudEvents ===

impl CloudEvents {
    /// The receiver of `secrets`. `source` is the attribute of that name, a URI reference; `data` are templates of `data`.
    #[must_use]
    pub fn new(
        secrets: WebhookSecrets,
        source: String,
        data: Vec<(Event, Template)>,
        transport: Transport,
    ) -> Self {
        Self {
            hook: transport.hook("the webhook", secrets.url.clone()),
            secrets,
            source,
            data,
        }
    }

    fn event(&self, notification: &Notification) -> Value {
        let mut event = json!({
            "specversion": "1.0",
            "id": id(notification),
            "source": self.source,
            "type": kind(notification.event),
            "time": notification.at.to_string(),
            "datacontenttype": "application/json",
            "data": self.hook.data(&self.data, notification),
        });
        if !notification.ip.is_empty() {
            event["subject"] = json!(notification.ip);
        }
        event
    }

    fn headers(&self, id: &str, body: &str, now: Timestamp) -> Vec<(&'static str, String)> {
        let content_type = "application/cloudevents+json; charset=utf-8".to_owned();
        let mut headers = vec![(http::header::CONTENT_TYPE.as_str(), content_type)];
        if let Some(token) = &self.secrets.bearer {
            headers.push(("authorization", format!("Bearer {}", token.expose())));
        }
        if !self.secrets.signing.is_empty() {
            let time = now.as_second();
            let text = format!("{id}.{time}.{body}");
            let signatures = self.secrets.signing.iter();
            let signatures: Vec<String> = signatures.map(|secret| sign(&text, secret)).collect();
            headers.push(("webhook-id", id.to_owned()));
            headers.push(("webhook-timestamp", time.to_string()));
            headers.push(("webhook-signature", signatures.join(" ")));
        }
        headers
    }

    async fn send(&self, notification: &Notification) -> Result<(), Error> {
        let body = self.event(notification).to_string();
        let headers = self.headers(&id(notification), &body, self.hook.now());
        let answer = self.hook.post("", &headers, body).await?;
        if answer.status().is_success() {
            return Ok(());
        }
        Err(self.hook.refused(&answer))
    }
}

impl Notifier for CloudEvents {
    fn channel(&self) -> &'static str {
        "webhook"
    }

    fn limits(&self) -> &'static [(usize, Duration)] {
        LIMITS
    }

    fn digests(&self) -> bool {
        false
    }

    fn notify<'a>(&'a self, notification: &'a Notification) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.send(notification))
    }
}

fn kind(event: Event) -> String {
    let mut labels: Vec<&str> = GROUP.split('.').collect();
    labels.reverse();
    format!("{}.ipblock.{}", labels.join("."), event.name())
}

/// The same for each attempt, and different for each notification.
fn id(notification: &Notification) -> String {
    let text = format!(
        "{}\n{}\n{}\n{}\n{}",
        notification.event.name(),
        notification.at,
        notification.ip,
        notification.count,
        notification.message
    );
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(16).map(|b| format!("{b:02x}")).collect()
}

fn sign(text: &str, secret: &Secret) -> String {
    let secret = secret.expose();
    let coded = secret.strip_prefix(SECRET_PREFIX);
    let decoded = coded.and_then(|coded| BASE64.decode(coded).ok());
    let key = decoded.unwrap_or_else(|| secret.as_bytes().to_vec());
    format!("v1,{}", hmac(&key, text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use hmac::{Hmac, KeyInit, Mac};

    use super::*;
    use crate::notify::hook::fake;

    fn webhook(status: u16, signing: &[&str], bearer: Option<&str>) -> (CloudEvents, fake::Sent) {
        let (transport, sent) = fake::server(status, &[], "");
        let secrets = WebhookSecrets {
            url: Secret::new("https://soc.example/events?token=canary"),
            signing: signing.iter().map(Secret::new).collect(),
            bearer: bearer.map(Secret::new),
        };
        let source = "/ipblock-operator/default".to_owned();
        let made = CloudEvents::new(secrets, source, Vec::new(), transport);
        (made, sent)
    }

    /// The documented form of an event in structured mode.
    fn check(request: &http::Request<bytes::Bytes>) -> Value {
        let content_type = request.headers()["content-type"].to_str().unwrap();
        assert!(content_type.starts_with("application/cloudevents+json"));
        let event: Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!(event["specversion"], "1.0");
        for required in ["id", "source", "type"] {
            assert!(!event[required].as_str().unwrap().is_empty(), "{required}");
        }
        for (name, value) in event.as_object().unwrap() {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            assert!(name.chars().all(plain), "{name}");
            let empty = value.as_str().is_some_and(str::is_empty);
            assert!(
                !empty,
                "an optional attribute is absent or has a text: {name}"
            );
        }
        let time = event["time"].as_str().unwrap();
        assert!(time.parse::<Timestamp>().is_ok());
        assert!(event["data"].is_object());
        event
    }

    #[tokio::test]
    async fn each_event_has_the_documented_form() {
        let kinds = ["ban", "resolve", "common"];
        for (notification, kind) in fake::notifications().iter().zip(kinds) {
            let (webhook, sent) = webhook(204, &[], None);
            webhook.notify(notification).await.unwrap();
            let event = check(&sent.lock()[0]);
            assert_eq!(event["type"], format!("top.yiiong.ops.ipblock.{kind}"));
            assert_eq!(event.get("subject").is_some(), kind != "common");
            assert!(sent.lock()[0].headers().get("webhook-signature").is_none());
        }
    }

    #[tokio::test]
    async fn a_signature_follows_standard_webhooks_for_each_secret_of_a_rotation() {
        let coded = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let (webhook, sent) = webhook(200, &[coded, "plain"], Some("t0ken"));
        webhook.notify(&fake::notifications()[0]).await.unwrap();
        webhook.notify(&fake::notifications()[0]).await.unwrap();
        let sent = sent.lock();
        let header = |at: usize, name: &str| sent[at].headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header(0, "authorization"), "Bearer t0ken");
        assert_eq!(header(0, "webhook-timestamp"), "1767225600");
        assert_eq!(
            header(0, "webhook-id"),
            header(1, "webhook-id"),
            "of one notification"
        );
        let body = std::str::from_utf8(sent[0].body()).unwrap();
        let text = format!("{}.1767225600.{body}", header(0, "webhook-id"));
        let signatures = header(0, "webhook-signature");
        let signatures: Vec<&str> = signatures.split(' ').collect();
        assert_eq!(signatures.len(), 2);
        let keys = [
            BASE64.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap(),
            b"plain".to_vec(),
        ];
        for (signature, key) in signatures.iter().zip(keys) {
            let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
            mac.update(text.as_bytes());
            let shown = BASE64
                .decode(signature.strip_prefix("v1,").unwrap())
                .unwrap();
            assert!(mac.verify_slice(&shown).is_ok());
        }
    }

    #[test]
    fn the_signature_is_the_published_example() {
        // The example of the reference libraries.
        let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let text = r#"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}"#;
        assert_eq!(
            sign(text, &secret),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }

    #[tokio::test]
    async fn an_error_holds_neither_url_nor_token() {
        for (status, later) in [(500, true), (429, true), (401, false), (410, false)] {
            let (webhook, _) = webhook(status, &["canary"], Some("canary"));
            let error = webhook.notify(&fake::notifications()[0]).await.unwrap_err();
            assert_eq!(matches!(error, Error::Later { .. }), later, "{error}");
            assert!(!format!("{error} {webhook:?}").contains("canary"));
        }
    }
}
