//! Slack's incoming webhooks.
//!
//! Slack answers 200 with the text `ok`; an error is an HTTP status with a word (`invalid_payload`, `no_service`,
//! `channel_is_archived`), a flood is 429 with `Retry-After`. One message a second is allowed for a webhook.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use super::hook::{Hook, short_text};
use super::{Error, Markup, Notification, Notifier, Templates, Transport};
use crate::outbound::BoxFuture;
use crate::secret::Secret;

const LIMITS: &[(usize, Duration)] = &[(1, Duration::from_secs(1))];

/// The most blocks of a message.
const MOST_BLOCKS: usize = 50;

/// The longest text of a message in characters, and of the text objects in its blocks.
const LONGEST_TEXT: usize = 40_000;
const LONGEST_HEADER: usize = 150;
const LONGEST_BLOCK_TEXT: usize = 3000;
const LONGEST_FIELD: usize = 2000;

/// The most fields of a section, and the most elements of a context.
const MOST_PARTS: usize = 10;

/// A webhook of Slack.
#[derive(Debug)]
pub struct Slack {
    hook: Hook,
    templates: Templates,
}

// === impl Slack ===

impl Slack {
    /// The webhook at `url`, which holds its token.
    #[must_use]
    pub fn new(url: Secret, templates: Templates, transport: Transport) -> Self {
        let hook = transport.hook("Slack", url);
        Self { hook, templates }
    }

    /// The messages that come with the operator.
    #[must_use]
    pub fn templates() -> Templates {
        Templates::of_vendor(include_str!("templates/slack.json"))
    }

    fn message(&self, notification: &Notification) -> Value {
        let template = self.templates.of(notification.event);
        let message = self.hook.render(template, notification, Markup::Slack);
        if fits(&message) {
            return message;
        }
        let text = short_text(notification, 2000, Markup::Slack);
        json!({ "text": text })
    }

    async fn send(&self, notification: &Notification) -> Result<(), Error> {
        let message = self.message(notification).to_string();
        let answer = self.hook.post("", &[], message).await?;
        if answer.status() == StatusCode::OK {
            return Ok(());
        }
        Err(self.hook.refused(&answer))
    }
}

impl Notifier for Slack {
    fn channel(&self) -> &'static str {
        "slack"
    }

    fn limits(&self) -> &'static [(usize, Duration)] {
        LIMITS
    }

    fn notify<'a>(&'a self, notification: &'a Notification) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.send(notification))
    }
}

/// Whether Slack takes a message of this size.
fn fits(message: &Value) -> bool {
    let length = |value: &Value| value.as_str().map_or(0, |text| text.chars().count());
    let blocks = message.get("blocks").and_then(Value::as_array);
    let blocks = blocks.map_or(&[][..], Vec::as_slice);
    let parts_fit = |block: &Value, name: &str| {
        let parts = block[name].as_array().map_or(&[][..], Vec::as_slice);
        let mut texts = parts.iter().map(|part| length(&part["text"]));
        parts.len() <= MOST_PARTS && texts.all(|length| length <= LONGEST_FIELD)
    };
    let fits = |block: &Value| {
        let longest = match block["type"].as_str() {
            Some("header") => LONGEST_HEADER,
            _ => LONGEST_BLOCK_TEXT,
        };
        length(&block["text"]["text"]) <= longest
            && parts_fit(block, "fields")
            && (block["type"] != "context" || parts_fit(block, "elements"))
    };
    length(&message["text"]) <= LONGEST_TEXT
        && blocks.len() <= MOST_BLOCKS
        && blocks.iter().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notify::hook::fake;
    use crate::notify::{Event, Template};

    fn slack(templates: Templates, status: u16, text: &str) -> (Slack, fake::Sent) {
        let (transport, sent) = fake::server(status, &[("retry-after", "30")], text);
        let url = Secret::new("https://hooks.slack.com/services/T0/B0/canary");
        (Slack::new(url, templates, transport), sent)
    }

    /// The documented form of a text object.
    fn check_text(text: &Value, longest: usize) {
        let kind = text["type"].as_str().unwrap();
        let content = text["text"].as_str().unwrap();
        assert!(matches!(kind, "plain_text" | "mrkdwn"), "{text}");
        assert!(
            !content.is_empty() && content.chars().count() <= longest,
            "{text}"
        );
        assert_eq!(
            text.get("verbatim").is_some(),
            kind == "mrkdwn",
            "no links are made: {text}"
        );
        assert!(
            text.get("emoji").is_none() || kind == "plain_text",
            "{text}"
        );
    }

    /// The documented form of a message with blocks.
    fn check(message: &Value) {
        assert!(!message["text"].as_str().unwrap().is_empty());
        let blocks = message["blocks"].as_array().unwrap();
        assert!((1..=50).contains(&blocks.len()));
        for block in blocks {
            match block["type"].as_str().unwrap() {
                "header" => {
                    assert_eq!(block["text"]["type"], "plain_text");
                    check_text(&block["text"], 150);
                }
                "section" => {
                    let fields = block.get("fields").and_then(Value::as_array);
                    assert!(block.get("text").is_some() || fields.is_some());
                    if let Some(text) = block.get("text") {
                        check_text(text, 3000);
                    }
                    let fields = fields.map_or(&[][..], Vec::as_slice);
                    assert!(fields.len() <= 10);
                    fields.iter().for_each(|field| check_text(field, 2000));
                }
                "context" => {
                    let elements = block["elements"].as_array().unwrap();
                    assert!((1..=10).contains(&elements.len()));
                    elements.iter().for_each(|text| check_text(text, 2000));
                }
                other => panic!("{other}"),
            }
        }
        let text = message.to_string();
        assert!(!text.contains("<!") && !text.contains("${"), "{text}");
    }

    #[tokio::test]
    async fn each_message_has_the_documented_form() {
        for notification in fake::notifications() {
            let (slack, sent) = slack(Slack::templates(), 200, "ok");
            slack.notify(&notification).await.unwrap();
            check(&fake::body(&sent));
        }
    }

    #[tokio::test]
    async fn an_error_of_slack_is_reported_without_the_token() {
        for (status, text, later) in [
            (429, "rate_limited", true),
            (500, "rollup_error", true),
            (400, "invalid_payload", false),
            (403, "invalid_token", false),
            (404, "no_service", false),
            (410, "channel_is_archived", false),
        ] {
            let (slack, _) = slack(Slack::templates(), status, text);
            let error = slack.notify(&fake::notifications()[0]).await.unwrap_err();
            assert_eq!(matches!(error, Error::Later { .. }), later, "{error}");
            let shown = format!("{error} {slack:?}");
            assert!(shown.contains(text) && !shown.contains("canary"), "{shown}");
        }
    }

    #[tokio::test]
    async fn a_message_that_slack_does_not_take_becomes_a_text() {
        let text = |length: usize| json!({"type": "plain_text", "text": "x".repeat(length)});
        for (blocks, taken) in [
            (vec![json!({"type": "divider"}); 50], true),
            (vec![json!({"type": "divider"}); 51], false),
            (vec![json!({"type": "header", "text": text(150)})], true),
            (vec![json!({"type": "header", "text": text(151)})], false),
            (vec![json!({"type": "section", "text": text(3000)})], true),
            (vec![json!({"type": "section", "text": text(3001)})], false),
            (
                vec![json!({"type": "section", "fields": [text(2000)]})],
                true,
            ),
            (
                vec![json!({"type": "section", "fields": [text(2001)]})],
                false,
            ),
            (
                vec![json!({"type": "section", "fields": vec![text(1); 11]})],
                false,
            ),
            (
                vec![json!({"type": "context", "elements": vec![text(1); 10]})],
                true,
            ),
            (
                vec![json!({"type": "context", "elements": vec![text(1); 11]})],
                false,
            ),
        ] {
            let template = json!({ "text": "x", "blocks": blocks });
            let template = Template::parse(&template.to_string()).unwrap();
            let (slack, sent) = slack(Slack::templates().with(Event::Ban, template), 200, "ok");
            slack.notify(&fake::notifications()[0]).await.unwrap();
            let body = fake::body(&sent);
            assert_eq!(body.get("blocks").is_some(), taken, "{body}");
            let text = body["text"].as_str().unwrap();
            let facts = text.contains("2001:db8::7") && text.contains("&lt;!channel&gt;");
            assert!(taken || facts, "{text}");
        }
    }
}
