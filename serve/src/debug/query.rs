//! The query of a debug page.

use http::Request;
use serde::Serialize;

/// Items of a list, unless the query has a limit.
const LIMIT: usize = 100;
/// The highest limit of a query.
pub(super) const MOST: usize = 1000;

/// The shortest pause between two loads of a page by a browser, in seconds.
const SHORTEST_REFRESH: u16 = 2;

/// The query of a debug page.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Query {
    /// The format of the page.
    pub format: Format,
    /// The most items of a list.
    pub limit: usize,
    /// The one name that is shown; all unless set.
    pub name: Option<String>,
    /// Seconds after which a browser loads an HTML page again; never unless set.
    pub refresh: Option<u16>,
}

/// The format of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// For programs.
    Json,
    /// For terminals.
    Text,
    /// The text with links, for browsers.
    Html,
}

/// The content of a page; see [`Query::show`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Shown {
    /// A document.
    Json(serde_json::Value),
    /// Lines of text.
    Text(String),
    /// The body of an HTML page, to be put into a [`document`](super::document). The page has escaped what is not its own
    /// markup.
    Html(String),
}

// === impl Query ===

impl Query {
    pub(super) fn of<B>(request: &Request<B>) -> Result<Self, String> {
        let accept = request.headers().get(http::header::ACCEPT);
        let accept = accept.and_then(|accept| accept.to_str().ok());
        Self::parse(
            request.uri().query().unwrap_or_default(),
            accept.unwrap_or_default(),
        )
    }

    pub(super) fn parse(query: &str, accept: &str) -> Result<Self, String> {
        let mut parsed = Self {
            format: Format::preferred(accept),
            ..Self::default()
        };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match name.as_ref() {
                "format" => {
                    parsed.format = match value.as_ref() {
                        "json" => Format::Json,
                        "text" => Format::Text,
                        "html" => Format::Html,
                        _ => return Err(format!("format={value}: there are json, text and html")),
                    };
                }
                "limit" => {
                    let limit: usize = value
                        .parse()
                        .map_err(|_| format!("limit={value}: a number from 0 to {MOST}"))?;
                    parsed.limit = limit.min(MOST);
                }
                "name" => parsed.name = Some(value.into_owned()),
                "refresh" => {
                    let seconds: u16 = value.parse().map_err(|_| {
                        format!("refresh={value}: seconds, {SHORTEST_REFRESH} or more")
                    })?;
                    parsed.refresh = Some(seconds.max(SHORTEST_REFRESH));
                }
                _ => return Err(format!("{name}: there are format, limit, name and refresh")),
            }
        }
        Ok(parsed)
    }

    /// The text of the query with another `value` of one parameter, or without it. The format is only in it if it is the
    /// parameter; then the pause between two loads is not, because only a browser loads again.
    pub(super) fn with(&self, parameter: &str, value: Option<String>) -> String {
        let own = [
            ("format", None),
            (
                "limit",
                (self.limit != LIMIT).then(|| self.limit.to_string()),
            ),
            ("name", self.name.clone()),
            (
                "refresh",
                self.refresh
                    .filter(|_| parameter != "format")
                    .map(|pause| pause.to_string()),
            ),
        ];
        let mut text = form_urlencoded::Serializer::new(String::new());
        for (name, own) in own {
            let value = if name == parameter {
                value.as_ref()
            } else {
                own.as_ref()
            };
            text.extend_pairs(value.map(|value| (name, value)));
        }
        text.finish()
    }

    /// Whether the page shows the report of this name.
    #[must_use]
    pub fn is_for(&self, name: &str) -> bool {
        self.name.as_ref().is_none_or(|wanted| wanted == name)
    }

    /// The content of a page in the format of the query: `reports` as a JSON document with the one field `name`, or the
    /// text that `text` returns.
    pub fn show<T: Serialize>(
        &self,
        name: &str,
        reports: &[T],
        text: impl FnOnce() -> String,
    ) -> Shown {
        match self.format {
            Format::Json => Shown::Json(serde_json::json!({ name: reports })),
            Format::Text | Format::Html => Shown::Text(text()),
        }
    }
}

/// Text, 100 items, all names, not loaded again.
impl Default for Query {
    fn default() -> Self {
        Self {
            format: Format::Text,
            limit: LIMIT,
            name: None,
            refresh: None,
        }
    }
}

// === impl Format ===

impl Format {
    /// The first of the types in `Accept` that is a format; text if none is.
    fn preferred(accept: &str) -> Self {
        let types = accept
            .split(',')
            .map(|part| part.split(';').next().unwrap_or_default());
        types
            .map(str::trim)
            .find_map(|kind| match kind {
                "application/json" => Some(Self::Json),
                "text/html" => Some(Self::Html),
                "text/plain" => Some(Self::Text),
                _ => None,
            })
            .unwrap_or(Self::Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_and_limit_are_read_from_the_query_and_accept() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for (query, accept, format, limit) in [
            ("", "", Format::Text, 100),
            ("", "*/*", Format::Text, 100),
            ("", browser, Format::Html, 100),
            ("", "application/json", Format::Json, 100),
            ("format=json", browser, Format::Json, 100),
            ("limit=5&format=text", browser, Format::Text, 5),
            ("limit=100000", "", Format::Text, 1000),
        ] {
            let parsed = Query::parse(query, accept).unwrap();
            assert_eq!(
                (parsed.format, parsed.limit),
                (format, limit),
                "{query} {accept}"
            );
        }
        for query in [
            "format=xml",
            "limit=-1",
            "limit=many",
            "lmit=3",
            "refresh=soon",
        ] {
            assert!(Query::parse(query, "").is_err(), "{query}");
        }
        let parsed = Query::parse("name=a%20b", "").unwrap();
        assert!(parsed.is_for("a b") && !parsed.is_for("a"));
        assert_eq!(Query::parse("refresh=0", "").unwrap().refresh, Some(2));
    }
}
