//! The group robots of DingTalk and WeCom: a JSON message to a URL with a token, and an `errcode` inside of HTTP 200.
//!
//! Both take 20 messages a minute; DingTalk refuses everything for ten minutes after a flood. A robot of DingTalk may
//! ask for a signature: the HMAC-SHA256 of `<milliseconds>\n<secret>` by the secret, in the query. A message of DingTalk
//! has at most 20,000 bytes, the markdown of WeCom at most 4,096, and its text 2,048.

use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::hook::{Answer, Hook, hmac, short_text};
use super::{Error, Markup, Notification, Notifier, Templates, Transport};
use crate::outbound::BoxFuture;
use crate::secret::Secret;

const LIMITS: &[(usize, Duration)] = &[(20, Duration::from_secs(60))];

/// How long DingTalk refuses everything after a flood.
const DINGTALK_PAUSE: Duration = Duration::from_secs(10 * 60);
const WECOM_PAUSE: Duration = Duration::from_secs(60);

/// Which robot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brand {
    /// DingTalk.
    DingTalk,
    /// WeCom (WeChat Work).
    WeCom,
}

/// A robot in a group.
#[derive(Debug)]
pub struct Robot {
    brand: Brand,
    hook: Hook,
    signing: Option<Secret>,
    templates: Templates,
}

/// The answer of both.
#[derive(Debug, Deserialize)]
struct Code {
    errcode: i64,
    #[serde(default)]
    errmsg: String,
}

// === impl Robot ===

impl Robot {
    /// The robot at `url`, which holds its token. Only DingTalk's have a signing secret.
    #[must_use]
    pub fn new(
        brand: Brand,
        (url, signing): (Secret, Option<Secret>),
        templates: Templates,
        transport: Transport,
    ) -> Self {
        let vendor = match brand {
            Brand::DingTalk => "DingTalk",
            Brand::WeCom => "WeCom",
        };
        Self {
            brand,
            hook: transport.hook(vendor, url),
            signing,
            templates,
        }
    }

    /// The messages that come with the operator.
    #[must_use]
    pub fn templates(brand: Brand) -> Templates {
        Templates::of_vendor(match brand {
            Brand::DingTalk => include_str!("templates/dingtalk.json"),
            Brand::WeCom => include_str!("templates/wecom.json"),
        })
    }

    fn message(&self, notification: &Notification) -> Value {
        let template = self.templates.of(notification.event);
        let message = self.hook.render(template, notification, Markup::FullWidth);
        let fits = match self.brand {
            Brand::DingTalk => message.to_string().len() <= 20_000,
            Brand::WeCom => [("markdown", 4096), ("text", 2048)]
                .iter()
                .all(|(kind, most)| {
                    let content = message[kind]["content"].as_str();
                    content.is_none_or(|content| content.len() <= *most)
                }),
        };
        if fits {
            return message;
        }
        // WeCom counts bytes: 2,048 for a text.
        let mut text = short_text(notification, 1000, Markup::FullWidth);
        while text.len() > 2048 {
            text.pop();
        }
        json!({ "msgtype": "text", "text": { "content": text } })
    }

    async fn send(&self, notification: &Notification) -> Result<(), Error> {
        let query = match (&self.signing, self.brand) {
            (Some(secret), Brand::DingTalk) => signature(self.hook.now().as_millisecond(), secret),
            _ => String::new(),
        };
        let message = self.message(notification).to_string();
        let answer = self.hook.post(&query, &[], message).await?;
        if answer.status() != StatusCode::OK {
            return Err(self.hook.refused(&answer));
        }
        self.read(&answer)
    }

    fn read(&self, answer: &Answer) -> Result<(), Error> {
        let vendor = self.hook.vendor;
        let Ok(code) = serde_json::from_slice::<Code>(answer.body()) else {
            let text = self.hook.excerpt(answer.body());
            let why = format!("{vendor} answered without an errcode{text}");
            return Err(Error::Later { why, after: None });
        };
        let text = self.hook.excerpt(code.errmsg.as_bytes());
        let code = code.errcode;
        let why = format!("{vendor} answered errcode {code}{text}");
        let after = match self.brand {
            Brand::DingTalk => Some(DINGTALK_PAUSE),
            Brand::WeCom => Some(WECOM_PAUSE),
        };
        match (self.brand, code) {
            (_, 0) => Ok(()),
            // Too many messages.
            (Brand::DingTalk, 130_101 | 410_100 | 90_018 | 90_030)
            | (Brand::WeCom, 45_009 | 45_033) => Err(Error::Later { why, after }),
            // The system is busy.
            (_, -1) => Err(Error::Later { why, after: None }),
            // Token, signature, keyword, address, robot, group or message: only an edit helps.
            (
                Brand::DingTalk,
                310_000
                | 300_001
                | 300_005
                | 40_035
                | 43_004
                | 400_013
                | 400_101..=400_106
                | 430_101..=430_104
                | 460_101,
            )
            | (Brand::WeCom, 93_000..=93_008 | 40_001..=40_099 | 44_001..=44_099 | 45_002) => {
                Err(Error::Never(why))
            }
            _ => Err(Error::Later { why, after: None }),
        }
    }
}

impl Notifier for Robot {
    fn channel(&self) -> &'static str {
        match self.brand {
            Brand::DingTalk => "dingtalk",
            Brand::WeCom => "wecom",
        }
    }

    fn limits(&self) -> &'static [(usize, Duration)] {
        LIMITS
    }

    fn notify<'a>(&'a self, notification: &'a Notification) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.send(notification))
    }
}

/// DingTalk's query for a time in milliseconds.
fn signature(milliseconds: i64, secret: &Secret) -> String {
    let text = format!("{milliseconds}\n{}", secret.expose());
    let signed = hmac(secret.expose().as_bytes(), text.as_bytes());
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("timestamp", &milliseconds.to_string());
    query.append_pair("sign", &signed);
    query.finish()
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use hmac::{Hmac, KeyInit, Mac};
    use sha2::Sha256;

    use super::*;
    use crate::notify::hook::fake;
    use crate::notify::{Event, Template};

    const OK: &str = r#"{"errcode":0,"errmsg":"ok"}"#;

    fn robot(brand: Brand, templates: Templates, text: &str) -> (Robot, fake::Sent) {
        let (transport, sent) = fake::server(200, &[], text);
        let url = match brand {
            Brand::DingTalk => "https://oapi.dingtalk.com/robot/send?access_token=canary",
            Brand::WeCom => "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=canary",
        };
        let secrets = (Secret::new(url), Some(Secret::new("SECcanary")));
        let robot = Robot::new(brand, secrets, templates, transport);
        (robot, sent)
    }

    /// The documented form of a message.
    fn check(brand: Brand, body: &Value) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let content = match (brand, body["msgtype"].as_str().unwrap()) {
            (Brand::DingTalk, "markdown") => {
                assert!(!text(&body["markdown"]["title"]).is_empty());
                text(&body["markdown"]["text"])
            }
            (Brand::WeCom, "markdown") => {
                let content = text(&body["markdown"]["content"]);
                assert!(content.len() <= 4096);
                content
            }
            (_, "text") => {
                let content = text(&body["text"]["content"]);
                assert!(content.len() <= 2048, "{}", content.len());
                content
            }
            other => panic!("{other:?}"),
        };
        assert!(!content.is_empty() && !content.contains("${"));
        assert!(body.to_string().len() <= 20_000);
        for markup in ["<!", "](", "[x"] {
            assert!(!content.contains(markup), "{content}");
        }
    }

    #[tokio::test]
    async fn each_message_has_the_documented_form() {
        for brand in [Brand::DingTalk, Brand::WeCom] {
            for notification in fake::notifications() {
                let (robot, sent) = robot(brand, Robot::templates(brand), OK);
                robot.notify(&notification).await.unwrap();
                check(brand, &fake::body(&sent));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn dingtalk_gets_a_signature_of_the_time_and_wecom_none() {
        let (dingtalk, sent) = robot(Brand::DingTalk, Robot::templates(Brand::DingTalk), OK);
        dingtalk.notify(&fake::notifications()[0]).await.unwrap();
        let uri = sent.lock()[0].uri().to_string();
        let query: Vec<(String, String)> = url::Url::parse(&uri)
            .unwrap()
            .query_pairs()
            .into_owned()
            .collect();
        assert_eq!(query[0], ("access_token".into(), "canary".into()));
        let milliseconds: i64 = query[1].1.parse().unwrap();
        assert_eq!(query[1].0, "timestamp");
        let now: jiff::Timestamp = fake::NOW.parse().unwrap();
        assert_eq!(milliseconds, now.as_millisecond());
        // The documented rule, by its words.
        let mut mac = Hmac::<Sha256>::new_from_slice(b"SECcanary").unwrap();
        mac.update(format!("{milliseconds}\nSECcanary").as_bytes());
        let expected = BASE64.encode(mac.finalize().into_bytes());
        assert_eq!(query[2], ("sign".into(), expected));
        let (wecom, sent) = robot(Brand::WeCom, Robot::templates(Brand::WeCom), OK);
        wecom.notify(&fake::notifications()[0]).await.unwrap();
        assert!(sent.lock()[0].uri().to_string().ends_with("?key=canary"));
    }

    #[tokio::test]
    async fn the_errcode_decides_and_not_the_status() {
        let pause = |seconds| Some(Some(Duration::from_secs(seconds)));
        for (brand, text, later) in [
            (
                Brand::DingTalk,
                r#"{"errcode":130101,"errmsg":"send too fast"}"#,
                pause(600),
            ),
            (
                Brand::DingTalk,
                r#"{"errcode":90030,"errmsg":"webhook over limit"}"#,
                pause(600),
            ),
            (
                Brand::DingTalk,
                r#"{"errcode":310000,"errmsg":"sign not match"}"#,
                None,
            ),
            (
                Brand::DingTalk,
                r#"{"errcode":300005,"errmsg":"token is not exist"}"#,
                None,
            ),
            (
                Brand::DingTalk,
                r#"{"errcode":460101,"errmsg":"message too long"}"#,
                None,
            ),
            (
                Brand::DingTalk,
                r#"{"errcode":-1,"errmsg":"busy"}"#,
                Some(None),
            ),
            (
                Brand::WeCom,
                r#"{"errcode":45009,"errmsg":"api freq out of limit"}"#,
                pause(60),
            ),
            (
                Brand::WeCom,
                r#"{"errcode":93000,"errmsg":"invalid webhook url"}"#,
                None,
            ),
            (
                Brand::WeCom,
                r#"{"errcode":40058,"errmsg":"markdown.content exceed"}"#,
                None,
            ),
            (
                Brand::WeCom,
                r#"{"errcode":77777,"errmsg":"?"}"#,
                Some(None),
            ),
            (Brand::WeCom, "<html>", Some(None)),
        ] {
            let (robot, _) = robot(brand, Robot::templates(brand), text);
            let error = robot.notify(&fake::notifications()[0]).await.unwrap_err();
            let shown = format!("{error} {robot:?}");
            assert!(!shown.contains("canary"), "{shown}");
            match error {
                Error::Later { after, .. } => assert_eq!(Some(after), later, "{text}"),
                Error::Never(_) => assert_eq!(None, later, "{text}"),
            }
        }
    }

    #[tokio::test]
    async fn a_message_too_large_becomes_a_text() {
        for brand in [Brand::DingTalk, Brand::WeCom] {
            let long = "y".repeat(20_001);
            let markdown = json!({"msgtype": "markdown", "markdown": {"title": "x", "text": long, "content": long}});
            let text = json!({"msgtype": "text", "text": {"content": long}});
            for large in [markdown, text] {
                let large = Template::parse(&large.to_string()).unwrap();
                let templates = Robot::templates(brand).with(Event::Ban, large);
                let (robot, sent) = robot(brand, templates, OK);
                robot.notify(&fake::notifications()[0]).await.unwrap();
                let body = fake::body(&sent);
                assert_eq!(body["msgtype"], "text");
                check(brand, &body);
            }
        }
    }
}
