//! Lark (Feishu) custom bots.
//!
//! A bot's hook takes a card and answers HTTP 200 with a `code`: only 0 is success. Where the bot asks
//! for a signature, the *key* is `<timestamp>\n<secret>` and the message is empty.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::hook::{Hook, hmac, short_text};
use super::{Error, Markup, Notification, Notifier, Templates, Transport};
use crate::outbound::BoxFuture;
use crate::secret::Secret;

/// Larger requests are refused by Lark.
const LARGEST_REQUEST: usize = 20 * 1024;

/// The limits of one bot at Lark.
const LIMITS: &[(usize, Duration)] = &[(5, Duration::from_secs(1)), (100, Duration::from_secs(60))];

/// Sends cards to one bot.
#[derive(Debug)]
pub struct Lark {
    hook: Hook,
    signing: Option<Secret>,
    templates: Templates,
}

/// The answer of the hook.
#[derive(Debug, Deserialize)]
struct Answer {
    code: Option<i64>,
    #[serde(rename = "StatusCode")]
    status_code: Option<i64>,
    #[serde(default)]
    msg: String,
}

// === impl Lark ===

impl Lark {
    /// The bot at `url`, which holds its token. The signing secret is for a bot that requires a signature.
    #[must_use]
    pub fn new(
        (url, signing): (Secret, Option<Secret>),
        templates: Templates,
        transport: Transport,
    ) -> Self {
        Self {
            hook: transport.hook("Lark", url),
            signing,
            templates,
        }
    }

    fn body(&self, notification: &Notification) -> Bytes {
        let template = self.templates.of(notification.event);
        let card = self.hook.render(template, notification, Markup::Lark);
        let body = self.signed(json!({ "msg_type": "interactive", "card": card }));
        if body.len() <= LARGEST_REQUEST {
            return body;
        }
        // A template may be large by itself. The text still has the facts. Tags of a text mention people, and there is no
        // documented escape.
        let text = short_text(notification, 2000, Markup::FullWidth);
        self.signed(json!({ "msg_type": "text", "content": { "text": text } }))
    }

    fn signed(&self, mut body: Value) -> Bytes {
        if let Some(secret) = &self.signing {
            let timestamp = self.hook.now().as_second();
            body["timestamp"] = json!(timestamp.to_string());
            body["sign"] = json!(sign(timestamp, secret));
        }
        Bytes::from(body.to_string())
    }

    async fn send(&self, notification: &Notification) -> Result<(), Error> {
        let answer = self.hook.post("", &[], self.body(notification)).await?;
        if answer.status() != StatusCode::OK {
            return Err(self.hook.refused(&answer));
        }
        self.read(&answer)
    }

    fn read(&self, answer: &http::Response<Bytes>) -> Result<(), Error> {
        // A hook that answers 200 without a code is not Lark's; the original treats that as success.
        let Ok(answer) = serde_json::from_slice::<Answer>(answer.body()) else {
            return Ok(());
        };
        let message = self.hook.excerpt(answer.msg.as_bytes());
        match answer.code.or(answer.status_code) {
            None | Some(0) => Ok(()),
            Some(code @ 11232) => Err(Error::Later {
                why: format!("Lark: too many messages (code {code})"),
                after: Some(Duration::from_secs(5)),
            }),
            Some(code @ (9499 | 19001 | 19021 | 19022 | 19024 | 19036)) => {
                Err(Error::Never(format!(
                    "Lark refused the message: {} (code {code}{message})",
                    meaning(code)
                )))
            }
            Some(code) => Err(Error::Later {
                why: format!("Lark failed (code {code}{message})"),
                after: None,
            }),
        }
    }
}

impl Notifier for Lark {
    fn channel(&self) -> &'static str {
        "lark"
    }

    fn limits(&self) -> &'static [(usize, Duration)] {
        LIMITS
    }

    fn notify<'a>(&'a self, notification: &'a Notification) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.send(notification))
    }
}

/// Lark's signature for a time in Unix seconds.
fn sign(timestamp: i64, secret: &Secret) -> String {
    let key = format!("{timestamp}\n{}", secret.expose());
    hmac(key.as_bytes(), &[])
}

fn meaning(code: i64) -> &'static str {
    match code {
        9499 => "it cannot read the card; check the template",
        19001 => "the hook's token is wrong; check notifyWebhookURL",
        19021 => "the signature is wrong or the clocks differ; check the signing secret",
        19022 => "this address is not on the bot's list of allowed ones",
        19024 => "the bot requires a keyword that the card does not have",
        19036 => "the card is too large",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use reeve_clock::Clock;

    use super::*;
    use crate::notify::Event;
    use crate::notify::hook::fake;
    use crate::outbound::InProcess;

    const HOOK: &str = "https://open.feishu.cn/open-apis/bot/v2/hook/canary-token";

    type Sent = Arc<Mutex<Vec<Value>>>;

    fn lark(code: u16, answer: &str, signing: Option<&str>) -> (Lark, Sent) {
        let sent = Sent::default();
        let (record, answer) = (Arc::clone(&sent), answer.to_owned());
        let outbound = InProcess::new(move |request| {
            assert_eq!(request.uri().to_string(), HOOK);
            record
                .lock()
                .push(serde_json::from_slice(request.body()).unwrap());
            let response = http::Response::builder().status(code);
            let response = response.body(Bytes::from(answer.clone())).unwrap();
            async move { Ok(response) }
        });
        let secrets = (Secret::new(HOOK), signing.map(Secret::new));
        let start = "2020-09-06T01:21:13Z".parse().unwrap();
        let transport = Transport {
            time: crate::time::Time::new(Clock::simulated(start, 1)),
            ..fake::transport(outbound)
        };
        (Lark::new(secrets, Templates::built_in(), transport), sent)
    }

    fn notification() -> Notification {
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        Notification {
            event: Event::Ban,
            ip: "192.0.2.7".into(),
            ..Notification::common(at, "banned")
        }
    }

    #[test]
    fn the_signature_is_larks() {
        assert_eq!(
            sign(1_599_360_473, &Secret::new("demo")),
            "l1N0gAcBjdwBvGm1xMjOF0XSyaLRpR7tuO5dHfhAYc8="
        );
    }

    #[tokio::test]
    async fn a_card_is_sent_as_an_object_and_signed_when_asked_for() {
        let good = r#"{"code":0,"msg":"success","data":{},"StatusCode":0}"#;
        let (lark, sent) = lark(200, good, Some("demo"));
        lark.notify(&notification()).await.unwrap();
        let body = sent.lock()[0].clone();
        assert_eq!(body["msg_type"], json!("interactive"));
        assert!(body["card"].is_object());
        // The simulated clock stands at the vector's time.
        assert_eq!(body["timestamp"], json!("1599355273"));
        let expected = sign(1_599_355_273, &Secret::new("demo"));
        assert_eq!(body["sign"], json!(expected));
        let (lark, sent) = super::tests::lark(200, good, None);
        lark.notify(&notification()).await.unwrap();
        assert!(sent.lock()[0].get("sign").is_none());
    }

    #[tokio::test]
    async fn the_code_in_the_answer_decides() {
        let later = |error: &Error| matches!(error, Error::Later { .. });
        let never = |error: &Error| matches!(error, Error::Never(_));
        type Expected<'a> = Option<&'a dyn Fn(&Error) -> bool>;
        let table: &[(u16, &str, Expected<'_>)] = &[
            (200, r#"{"code":0}"#, None),
            (200, r#"{"StatusCode":0}"#, None),
            (200, "ok", None),
            (
                200,
                r#"{"code":11232,"msg":"frequency limited"}"#,
                Some(&later),
            ),
            (200, r#"{"code":19001,"msg":"param invalid"}"#, Some(&never)),
            (
                200,
                r#"{"code":19021,"msg":"sign match fail"}"#,
                Some(&never),
            ),
            (200, r#"{"code":9499,"msg":"Bad Request"}"#, Some(&never)),
            (200, r#"{"code":99999,"msg":"?"}"#, Some(&later)),
            (429, "", Some(&later)),
            (502, "", Some(&later)),
            (404, "", Some(&never)),
            (302, "", Some(&never)),
        ];
        for (code, text, expected) in table {
            let (lark, _) = lark(*code, text, None);
            let result = lark.notify(&notification()).await;
            match (expected, result) {
                (None, result) => assert_eq!(result, Ok(()), "{code} {text}"),
                (Some(expected), Err(error)) => {
                    assert!(expected(&error), "{code} {text}: {error:?}");
                    assert!(!error.to_string().contains("canary"));
                }
                (Some(_), Ok(())) => panic!("{code} {text} is not a success"),
            }
        }
    }

    #[tokio::test]
    async fn a_card_too_large_for_lark_becomes_a_text() {
        let (mut lark, sent) = lark(200, r#"{"code":0}"#, None);
        let large = json!({ "schema": "2.0", "x": "y".repeat(30_000) });
        let large = super::super::Template::parse(&large.to_string()).unwrap();
        lark.templates = Templates::built_in().with(Event::Ban, large);
        let hostile = Notification {
            message: r#"<at user_id="all">everyone</at>"#.into(),
            ..notification()
        };
        lark.notify(&hostile).await.unwrap();
        let body = sent.lock()[0].clone();
        assert_eq!(body["msg_type"], json!("text"));
        let text = body["content"]["text"].as_str().unwrap();
        assert!(
            text.contains("192.0.2.7") && text.contains("everyone"),
            "{text}"
        );
        assert!(!text.contains('<'), "no mention: {text}");
    }

    #[tokio::test]
    async fn neither_debug_nor_errors_hold_the_hook() {
        let (lark, _) = lark(500, "", Some("canary-secret"));
        let error = lark.notify(&notification()).await.unwrap_err();
        assert!(!format!("{lark:?} {error:?} {error}").contains("canary"));
    }
}
