//! How a value is written into a text, so that a chat shows it and does not obey it.

use serde_json::{Map, Value};

/// The markup of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Markup {
    /// Lark's markdown: entities are read as text. Strings of `"tag": "plain_text"` have none.
    Lark,
    /// Slack's mrkdwn: exactly `&`, `<` and `>` are escaped, which disables mentions and links.
    Slack,
    /// Markdown of Adaptive Cards: a backslash. Strings of `"type": "TextRun"` have none.
    Teams,
    /// Markdown without a documented escape (DingTalk, WeCom): markup becomes its full-width form.
    FullWidth,
    /// No markup: data for programs.
    Plain,
}

// === impl Markup ===

impl Markup {
    /// Whether the strings of an object have markup; `None`: as those around it.
    pub(super) fn within(self, fields: &Map<String, Value>) -> Option<bool> {
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        match self {
            Self::Lark => text("tag").map(|tag| tag != "plain_text"),
            Self::Teams => text("type").map(|kind| kind != "TextRun"),
            Self::Slack | Self::FullWidth | Self::Plain => None,
        }
    }

    /// Writes `value` as text.
    pub(super) fn write(self, value: &str, out: &mut String) {
        for character in value.chars() {
            match (self, character) {
                (Self::Slack, '&') => out.push_str("&amp;"),
                (Self::Slack, '<') => out.push_str("&lt;"),
                (Self::Slack, '>') => out.push_str("&gt;"),
                (Self::Lark, '&' | '<' | '>') => entity(character, out),
                (Self::Lark, _) if is_markup(character) => entity(character, out),
                (Self::Teams, _) if is_markup(character) => out.extend(['\\', character]),
                (Self::FullWidth, '<' | '>' | '@') => out.push(full_width(character)),
                (Self::FullWidth, _) if is_markup(character) => out.push(full_width(character)),
                _ => out.push(character),
            }
        }
    }
}

fn is_markup(character: char) -> bool {
    matches!(
        character,
        '*' | '_' | '~' | '`' | '[' | ']' | '(' | ')' | '#' | '!' | '\\' | '|'
    )
}

fn entity(character: char, out: &mut String) {
    out.push_str(&format!("&#{};", character as u32));
}

/// The full-width twin of an ASCII character.
fn full_width(character: char) -> char {
    char::from_u32(character as u32 - 0x21 + 0xff01).unwrap_or(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_markup_of_a_value_is_obeyed() {
        let hostile = "<!channel> & [a](http://x) *b* <@U1> @all";
        for (markup, expected) in [
            (
                Markup::Slack,
                "&lt;!channel&gt; &amp; [a](http://x) *b* &lt;@U1&gt; @all",
            ),
            (
                Markup::Teams,
                "<\\!channel> & \\[a\\]\\(http://x\\) \\*b\\* <@U1> @all",
            ),
            (
                Markup::FullWidth,
                "＜！channel＞ & ［a］（http://x） ＊b＊ ＜＠U1＞ ＠all",
            ),
            (Markup::Plain, hostile),
        ] {
            let mut out = String::new();
            markup.write(hostile, &mut out);
            assert_eq!(out, expected, "{markup:?}");
        }
        let mut out = String::new();
        Markup::Lark.write("<at>*", &mut out);
        assert_eq!(out, "&#60;at&#62;&#42;");
    }

    #[test]
    fn an_address_is_written_as_it_is() {
        let address = "2001:db8::7/48 192.0.2.7";
        for markup in [
            Markup::Lark,
            Markup::Slack,
            Markup::Teams,
            Markup::FullWidth,
        ] {
            let mut out = String::new();
            markup.write(address, &mut out);
            assert_eq!(out, address);
        }
    }
}
