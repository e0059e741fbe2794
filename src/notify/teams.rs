//! Microsoft Teams: the trigger "When a Teams webhook request is received" of Workflows, with an Adaptive Card.
//!
//! The flow answers 202 at once. More than four requests a second are refused (429). A message may have 28 KB.

use std::time::Duration;

use serde_json::{Value, json};

use super::hook::{Hook, short_text};
use super::{Error, Markup, Notification, Notifier, Templates, Transport};
use crate::outbound::BoxFuture;
use crate::secret::Secret;

const LIMITS: &[(usize, Duration)] = &[(4, Duration::from_secs(1))];

/// The largest message, in bytes.
const LARGEST: usize = 28 * 1024;

/// A flow of Teams.
#[derive(Debug)]
pub struct Teams {
    hook: Hook,
    templates: Templates,
}

// === impl Teams ===

impl Teams {
    /// The flow at `url`, which holds its signature.
    #[must_use]
    pub fn new(url: Secret, templates: Templates, transport: Transport) -> Self {
        let hook = transport.hook("Teams", url);
        Self { hook, templates }
    }

    /// The cards that come with the operator.
    #[must_use]
    pub fn templates() -> Templates {
        Templates::of_vendor(include_str!("templates/teams.json"))
    }

    fn message(&self, notification: &Notification) -> String {
        let template = self.templates.of(notification.event);
        let card = self.hook.render(template, notification, Markup::Teams);
        let message = message(card);
        if message.len() <= LARGEST {
            return message;
        }
        // A run of text has no markup.
        let text = short_text(notification, 2000, Markup::Plain);
        let run = json!({ "type": "TextRun", "text": text });
        self::message(json!({
            "type": "AdaptiveCard",
            "version": "1.4",
            "body": [{ "type": "RichTextBlock", "inlines": [run] }],
        }))
    }

    async fn send(&self, notification: &Notification) -> Result<(), Error> {
        let answer = self.hook.post("", &[], self.message(notification)).await?;
        if !answer.status().is_success() {
            return Err(self.hook.refused(&answer));
        }
        // A connector reports the refusal of a channel inside of a success.
        let body = String::from_utf8_lossy(answer.body());
        if body.contains("failed with error") {
            let text = self.hook.excerpt(answer.body());
            let why = format!("Teams did not deliver the message{text}");
            return Err(Error::Later { why, after: None });
        }
        Ok(())
    }
}

impl Notifier for Teams {
    fn channel(&self) -> &'static str {
        "teams"
    }

    fn limits(&self) -> &'static [(usize, Duration)] {
        LIMITS
    }

    fn notify<'a>(&'a self, notification: &'a Notification) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.send(notification))
    }
}

fn message(card: Value) -> String {
    let attachment = json!({
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": null,
        "content": card,
    });
    json!({ "type": "message", "attachments": [attachment] }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notify::hook::fake;
    use crate::notify::{Event, Template};

    fn teams(templates: Templates, status: u16, text: &str) -> (Teams, fake::Sent) {
        let (transport, sent) = fake::server(status, &[], text);
        let url = Secret::new("https://prod-1.westeurope.logic.azure.com/workflows/x?sig=canary");
        (Teams::new(url, templates, transport), sent)
    }

    /// The documented form of a message with one card.
    fn check(body: &Value) {
        assert_eq!(body["type"], "message");
        let attachments = body["attachments"].as_array().unwrap();
        assert_eq!(attachments.len(), 1);
        let attachment = &attachments[0];
        assert_eq!(
            attachment["contentType"],
            "application/vnd.microsoft.card.adaptive"
        );
        assert!(attachment["contentUrl"].is_null());
        let card = &attachment["content"];
        assert_eq!(card["type"], "AdaptiveCard");
        assert!(matches!(
            card["version"].as_str(),
            Some("1.2" | "1.3" | "1.4" | "1.5")
        ));
        for element in card["body"].as_array().unwrap() {
            match element["type"].as_str().unwrap() {
                "TextBlock" => assert!(!element["text"].as_str().unwrap().is_empty()),
                "RichTextBlock" => {
                    for run in element["inlines"].as_array().unwrap() {
                        assert_eq!(run["type"], "TextRun");
                        assert!(run["text"].is_string());
                    }
                }
                other => panic!("{other}"),
            }
        }
        assert!(body.to_string().len() <= 28 * 1024);
    }

    #[tokio::test]
    async fn each_card_has_the_documented_form() {
        for notification in fake::notifications() {
            let (teams, sent) = teams(Teams::templates(), 202, "");
            teams.notify(&notification).await.unwrap();
            check(&fake::body(&sent));
            assert!(sent.lock()[0].uri().to_string().ends_with("?sig=canary"));
        }
    }

    #[tokio::test]
    async fn a_card_too_large_becomes_a_text_and_an_error_holds_no_signature() {
        let large = json!({"type": "AdaptiveCard", "version": "1.4", "x": "y".repeat(30_000)});
        let large = Template::parse(&large.to_string()).unwrap();
        let (teams, sent) = teams(Teams::templates().with(Event::Ban, large), 202, "");
        teams.notify(&fake::notifications()[0]).await.unwrap();
        check(&fake::body(&sent));
        for (status, text, later) in [
            (429, "", true),
            (502, "", true),
            (
                200,
                "Webhook message delivery failed with error: HTTP error 429",
                true,
            ),
            (400, "TriggerInputSchemaMismatch", false),
            (401, "", false),
        ] {
            let (teams, _) = super::tests::teams(Teams::templates(), status, text);
            let error = teams.notify(&fake::notifications()[0]).await.unwrap_err();
            assert_eq!(matches!(error, Error::Later { .. }), later, "{error}");
            assert!(!format!("{error} {teams:?}").contains("canary"));
        }
    }
}
