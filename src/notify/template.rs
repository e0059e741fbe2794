//! Card templates: JSON files with `${variables}`.
//!
//! Alert texts come from unknown senders. A template is parsed before values are put into its strings, so no
//! value can change a card's structure; inside markdown values lose their markup, so none can mention all
//! members of a chat, hide a link or colour itself.

use std::path::PathBuf;

use jiff::tz::Offset;
use serde_json::Value;

use super::{Event, Markup, Notification};
use crate::mounted::MountedFile;

/// Longest value, in characters; the reason of an alert may be anything.
const LONGEST_VALUE: usize = 500;

/// Larger template files are refused.
const LARGEST_FILE: usize = 64 * 1024;

/// A card with variables.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    card: Value,
}

/// One template an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Templates {
    ban: Template,
    resolve: Template,
    common: Template,
}

/// Why a file is not a template.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// It cannot be read.
    #[error("the template {path} cannot be read: {source}")]
    Read {
        /// Where.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// It is far too large.
    #[error("the template {0} is larger than 64 KiB")]
    TooLarge(PathBuf),
    /// It is not a JSON object.
    #[error(
        "the template is not a JSON object: {0} (variables belong inside strings: \"${{ip}}\")"
    )]
    Parse(String),
}

// === impl Template ===

impl Template {
    /// Reads a template's text.
    ///
    /// # Errors
    /// When it is not a JSON object.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let card: Value = match serde_json::from_str(text) {
            Ok(card) => card,
            // The original replaces before it parses, so a bare ${count} is a number there.
            Err(first) => serde_json::from_str(&quote_bare_variables(text))
                .map_err(|_| TemplateError::Parse(first.to_string()))?,
        };
        if card.is_object() {
            Ok(Self { card })
        } else {
            Err(TemplateError::Parse("it is another kind of value".into()))
        }
    }

    /// Reads a template from a file.
    ///
    /// # Errors
    /// See [`TemplateError`].
    pub fn read(file: &MountedFile) -> Result<Self, TemplateError> {
        let text = file.text().map_err(|source| TemplateError::Read {
            path: file.path().to_owned(),
            source,
        })?;
        if text.len() > LARGEST_FILE {
            return Err(TemplateError::TooLarge(file.path().to_owned()));
        }
        Self::parse(&text)
    }

    /// The card for `notification`, with times in `zone`, for a channel with `markup`.
    #[must_use]
    pub fn render(&self, notification: &Notification, zone: Offset, markup: Markup) -> Value {
        let mut card = self.card.clone();
        fill(&mut card, markup, markup, &|name| {
            notification.variable(name, zone).map(shortened)
        });
        card
    }
}

// === impl Templates ===

impl Templates {
    /// The templates that come with the operator.
    #[must_use]
    pub fn built_in() -> Self {
        #[allow(clippy::expect_used, reason = "a test parses these very texts")]
        let parse = |text| Template::parse(text).expect("built-in templates are JSON");
        Self {
            ban: parse(include_str!("templates/ban.json")),
            resolve: parse(include_str!("templates/resolve.json")),
            common: parse(include_str!("templates/common.json")),
        }
    }

    /// The built-in templates of Slack, Teams, DingTalk or WeCom, which one text holds by event.
    pub(super) fn of_vendor(text: &str) -> Self {
        #[allow(clippy::expect_used, reason = "a test parses these very texts")]
        let parse = |name: &str| {
            let all: Value = serde_json::from_str(text).expect("built-in templates are JSON");
            let card = all.get(name).cloned().expect("a template of each event");
            Template { card }
        };
        Self {
            ban: parse("ban"),
            resolve: parse("resolve"),
            common: parse("common"),
        }
    }

    /// Uses `template` for `event` from now on.
    #[must_use]
    pub fn with(mut self, event: Event, template: Template) -> Self {
        match event {
            Event::Ban => self.ban = template,
            Event::Resolve => self.resolve = template,
            Event::Common => self.common = template,
        }
        self
    }

    /// These templates, with those of `files` instead where they can be read, and the errors of the
    /// others. A missing file must not stop notifications.
    #[must_use]
    pub fn with_files<'a>(
        self,
        files: impl IntoIterator<Item = (Event, &'a MountedFile)>,
    ) -> (Self, Vec<TemplateError>) {
        let mut templates = self;
        let mut errors = Vec::new();
        for (event, file) in files {
            match Template::read(file) {
                Ok(template) => templates = templates.with(event, template),
                Err(error) => errors.push(error),
            }
        }
        (templates, errors)
    }

    /// The template of `event`.
    #[must_use]
    pub fn of(&self, event: Event) -> &Template {
        match event {
            Event::Ban => &self.ban,
            Event::Resolve => &self.resolve,
            Event::Common => &self.common,
        }
    }
}

impl Default for Templates {
    fn default() -> Self {
        Self::built_in()
    }
}

type Values<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Fills every string of `value`, which has the markup `present`, in a card with `markup`.
fn fill(value: &mut Value, markup: Markup, present: Markup, values: &Values<'_>) {
    match value {
        Value::String(text) => {
            if text.contains("${") {
                *text = filled(text, present, values);
            }
        }
        Value::Array(items) => {
            for item in items {
                fill(item, markup, present, values);
            }
        }
        Value::Object(fields) => {
            let present = match markup.within(fields) {
                Some(true) => markup,
                Some(false) => Markup::Plain,
                None => present,
            };
            for (_, field) in fields.iter_mut() {
                fill(field, markup, present, values);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// One pass: a value that looks like a variable stays a value.
fn filled(text: &str, markup: Markup, values: &Values<'_>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        out.push_str(&rest[..start]);
        let after = &rest[start + 2..];
        let known = after
            .find('}')
            .and_then(|end| Some((end, values(&after[..end])?)));
        match known {
            Some((end, value)) => {
                markup.write(&value, &mut out);
                rest = &after[end + 1..];
            }
            None => {
                out.push_str("${");
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

/// One line of at most [`LONGEST_VALUE`] characters.
fn shortened(value: String) -> String {
    let mut characters = value.chars();
    let mut short: String = characters
        .by_ref()
        .take(LONGEST_VALUE)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if characters.next().is_some() {
        short.push('…');
    }
    short
}

/// Puts quotes around `${name}` where it stands outside of a string.
fn quote_bare_variables(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut inside = false;
    let mut escaped = false;
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        if !inside
            && rest.starts_with("${")
            && let Some(end) = rest.find('}')
        {
            out.push('"');
            out.push_str(&rest[..=end]);
            out.push('"');
            rest = &rest[end + 1..];
            continue;
        }
        match character {
            _ if escaped => escaped = false,
            '\\' if inside => escaped = true,
            '"' => inside = !inside,
            _ => {}
        }
        out.push(character);
        rest = &rest[character.len_utf8()..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn notification(reason: &str) -> Notification {
        Notification {
            event: Event::Ban,
            at: "2026-01-01T00:00:00Z".parse().unwrap(),
            ip: "2001:db8::7".into(),
            reason: reason.into(),
            source: "grafana".into(),
            by: "ops".into(),
            duration: "10m".into(),
            expires_at: Some("2026-01-01T00:10:00Z".parse().unwrap()),
            count: 2,
            message: "banned".into(),
            gateway: String::new(),
        }
    }

    fn rendered(template: &str, reason: &str) -> Value {
        let template = Template::parse(template).unwrap();
        template.render(&notification(reason), Offset::UTC, Markup::Lark)
    }

    #[test]
    fn every_variable_is_filled() {
        let card = rendered(
            r#"{"a":["${alarm_time}|${reason}|${count}|${ip}|${msg}"],
                "b":{"tag":"plain_text","content":"${duration} ${source} ${by} ${expires_at} ${message}"}}"#,
            "scan",
        );
        let expected = json!({
            "a": ["2026-01-01 00:00:00 UTC|scan|2|2001:db8::7|banned"],
            "b": {"tag": "plain_text", "content": "10m grafana ops 2026-01-01 00:10:00 UTC banned"}
        });
        assert_eq!(card, expected);
    }

    #[test]
    fn no_value_can_change_the_card() {
        for hostile in [
            r#"x","tag":"at","user_id":"all"#,
            "x\"}],\"elements\":[",
            "line\nbreak\u{0}\\",
            "${ip} ${reason}",
        ] {
            let card = rendered(
                r#"{"text":{"tag":"plain_text","content":"${reason}"}}"#,
                hostile,
            );
            let fields = card["text"].as_object().unwrap();
            assert_eq!(fields.len(), 2);
            let clean: String = hostile
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect();
            assert_eq!(card["text"]["content"], json!(clean), "{hostile}");
        }
    }

    #[test]
    fn markup_in_a_value_is_shown_and_not_obeyed() {
        let hostile = "<at id=all></at> **bold** [click](https://evil.example) <font color='red'>";
        let card = rendered(
            r#"{"tag":"markdown","content":"**${ip}** ${reason}"}"#,
            hostile,
        );
        let content = card["content"].as_str().unwrap();
        assert!(content.starts_with("**2001:db8::7** "), "{content}");
        for markup in ["<at", "**bold", "[click", "](", "<font"] {
            assert!(!content.contains(markup), "{markup}: {content}");
        }
        assert!(content.contains("&#60;at id=all&#62;"), "{content}");
    }

    #[test]
    fn unknown_variables_and_broken_ones_stay_as_they_are() {
        let card = rendered(r#"{"a":"${nothing} $ip ${ ${ip","b":"x}${ip}y"}"#, "");
        assert_eq!(
            card,
            json!({"a": "${nothing} $ip ${ ${ip", "b": "x}2001:db8::7y"})
        );
    }

    #[test]
    fn long_values_are_cut() {
        let card = rendered(r#"{"a":"${reason}"}"#, &"é".repeat(5000));
        assert_eq!(
            card["a"].as_str().unwrap().chars().count(),
            LONGEST_VALUE + 1
        );
    }

    #[test]
    fn a_bare_variable_of_an_old_template_still_works() {
        let card = rendered(r#"{"count": ${count}, "text": "say \"${ip}\""}"#, "");
        assert_eq!(card, json!({"count": "2", "text": "say \"2001:db8::7\""}));
    }

    #[test]
    fn what_is_no_object_is_no_template() {
        for text in ["", "[]", "\"x\"", "{", "{\"a\": ${b}"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
        let (templates, errors) = Templates::built_in()
            .with_files([(Event::Ban, &MountedFile::alone("/nonexistent/ban.json"))]);
        assert_eq!(templates, Templates::built_in());
        assert_eq!(errors.len(), 1);
    }

    #[test]
    fn the_built_in_cards_name_what_matters() {
        for (event, words) in [
            (
                Event::Ban,
                &[
                    "2001:db8::7",
                    "scan",
                    "10m",
                    "grafana",
                    "2026-01-01 00:10:00 UTC",
                ][..],
            ),
            (
                Event::Resolve,
                &["2001:db8::7", "2026-01-01 00:00:00 UTC", "banned"],
            ),
            (Event::Common, &["banned", "2026-01-01 00:00:00 UTC"]),
        ] {
            let templates = Templates::built_in();
            let card = templates
                .of(event)
                .render(&notification("scan"), Offset::UTC, Markup::Lark);
            assert_eq!(card["schema"], json!("2.0"));
            let text = card.to_string();
            for word in words {
                assert!(text.contains(word), "{event:?} {word}: {text}");
            }
            assert!(!text.contains("${"), "{text}");
        }
    }

    /// Keys, tags and lengths, without the texts.
    fn shape(value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let shaped = fields
                    .iter()
                    .map(|(key, field)| (key.clone(), shape(field)));
                Value::Object(shaped.collect())
            }
            Value::Array(items) => Value::Array(items.iter().map(shape).collect()),
            Value::String(_) => Value::Null,
            other => other.clone(),
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_an_alert_says_the_card_keeps_its_shape(reason in ".*", message in ".*") {
            let mut notification = notification(&reason);
            notification.message = message;
            for event in [Event::Ban, Event::Resolve, Event::Common] {
                let template = Templates::built_in().of(event).clone();
                let card = template.render(&notification, Offset::UTC, Markup::Lark);
                proptest::prop_assert_eq!(shape(&card), shape(&template.card));
                let text = card.to_string();
                proptest::prop_assert!(!text.contains("<at"));
            }
        }

        #[test]
        fn no_text_makes_the_template_reader_panic(text in r#"[{}\[\]":$a-z\\ ]{0,60}"#) {
            let _ = Template::parse(&text);
        }
    }
}
