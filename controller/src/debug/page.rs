//! How the pages look: JSON for programs, text for terminals, the same text with links for browsers.

use std::fmt::Write as _;

use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY};
use http::{HeaderValue, Request, StatusCode};
use jiff::{SignedDuration, SpanRound, Timestamp, Unit};
use serde::Serialize;

use super::{FailureReport, InformerReport, ItemReport, ItemState, QueueReport};
use crate::server::{Answer, answer};

/// Items of a queue unless the query says otherwise, and the most it may say.
const LIMIT: usize = 100;
const MOST: usize = 1000;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) format: Format,
    pub(super) limit: usize,
    pub(super) name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Text,
    Html,
}

// === impl Wish ===

impl Wish {
    pub(super) fn of<B>(request: &Request<B>) -> Result<Self, String> {
        let accept = request.headers().get(http::header::ACCEPT);
        let accept = accept.and_then(|accept| accept.to_str().ok());
        Self::parse(
            request.uri().query().unwrap_or_default(),
            accept.unwrap_or_default(),
        )
    }

    fn parse(query: &str, accept: &str) -> Result<Self, String> {
        let mut wish = Self {
            format: Format::preferred(accept),
            limit: LIMIT,
            name: None,
        };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match name.as_ref() {
                "format" => {
                    wish.format = match value.as_ref() {
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
                    wish.limit = limit.min(MOST);
                }
                "name" => wish.name = Some(value.into_owned()),
                _ => return Err(format!("{name}: there are format, limit and name")),
            }
        }
        Ok(wish)
    }

    pub(super) fn is_for(&self, name: &str) -> bool {
        self.name.as_ref().is_none_or(|wanted| wanted == name)
    }
}

// === impl Format ===

impl Format {
    /// The first of the types in `Accept` that there is; text for who says nothing.
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

/// The page of the queues.
pub(super) fn queues(reports: &[QueueReport], wish: &Wish, now: Timestamp) -> Answer {
    render("queues", reports, wish, || queues_text(reports, now))
}

/// The page of the informers.
pub(super) fn informers(reports: &[InformerReport], wish: &Wish, now: Timestamp) -> Answer {
    render("informers", reports, wish, || informers_text(reports, now))
}

fn render<T: Serialize>(
    name: &'static str,
    reports: &[T],
    wish: &Wish,
    text: impl FnOnce() -> String,
) -> Answer {
    let mut page = match wish.format {
        Format::Json => {
            let document = serde_json::json!({ name: reports });
            answer(
                StatusCode::OK,
                "application/json",
                format!("{document:#}\n"),
            )
        }
        Format::Text => answer(StatusCode::OK, "text/plain; charset=utf-8", text()),
        Format::Html => answer(
            StatusCode::OK,
            "text/html; charset=utf-8",
            html(name, &text()),
        ),
    };
    let headers = page.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
    );
    page
}

fn html(name: &str, text: &str) -> String {
    let escaped = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{name}</title>\n\
         <style>body {{ font-family: monospace; margin: 1.5em; }} a {{ margin-right: 1em; }}</style></head>\n\
         <body><p><a href=\"queues\">queues</a><a href=\"informers\">informers</a>\
         <a href=\"{name}?format=json\">json</a><a href=\"{name}?limit={MOST}\">more</a></p>\n\
         <pre>{escaped}</pre></body></html>\n"
    )
}

fn queues_text(reports: &[QueueReport], now: Timestamp) -> String {
    let mut text = String::new();
    for queue in reports {
        let _ = write!(
            text,
            "queue {}: {} ready, {} in flight, {} delayed, {} in line for a token, {} failing",
            queue.name, queue.ready, queue.in_flight, queue.waiting, queue.in_line, queue.failing
        );
        if queue.shutting_down {
            let _ = write!(text, ", shutting down ({} adds refused)", queue.refused);
        }
        text.push('\n');
        for item in &queue.items {
            item_text(&mut text, item, now);
        }
        if queue.more {
            text.push_str("  … and more: ?limit=\n");
        }
    }
    if reports.is_empty() {
        text.push_str("no queues\n");
    }
    text
}

fn item_text(text: &mut String, item: &ItemReport, now: Timestamp) {
    let state = match item.state {
        ItemState::InFlight { since, again } => {
            let again = if again { ", runs again" } else { "" };
            format!("in flight for {}{again}", span(now, since))
        }
        ItemState::Ready => "ready".into(),
        ItemState::InLine => "in line for a token".into(),
        ItemState::Waiting { due } => format!("due in {}", span(due, now)),
    };
    let _ = write!(text, "  {}  {state}", item.key);
    if item.priority != 0 {
        let _ = write!(text, ", priority {}", item.priority);
    }
    if !item.reasons.is_empty() {
        let _ = write!(text, ", because: {}", item.reasons.join(", "));
    }
    if item.failures > 0 {
        let _ = write!(text, ", {} failures", item.failures);
    }
    if let Some(error) = &item.last_error {
        let class = if error.class.is_empty() {
            String::new()
        } else {
            format!(" ({})", error.class)
        };
        let _ = write!(text, ", last{class}: {}", one_line(&error.message));
    }
    text.push('\n');
}

fn informers_text(reports: &[InformerReport], now: Timestamp) -> String {
    let mut text = String::new();
    for informer in reports {
        let synced = if informer.synced {
            "synced"
        } else {
            "NOT SYNCED"
        };
        let _ = writeln!(
            text,
            "informer {}: {synced}, {} for {}, {} objects in {} bytes, resourceVersion {}",
            informer.full_name(),
            informer.activity,
            span(now, informer.since),
            informer.objects,
            informer.bytes,
            informer.resource_version
        );
        if let Some(heard) = informer.last_heard {
            let _ = writeln!(text, "  the server was heard {} ago", span(now, heard));
        }
        if let Some(changed) = informer.last_change {
            let _ = writeln!(text, "  the store changed {} ago", span(now, changed));
        }
        if let Some(failure) = &informer.failure {
            failure_text(&mut text, "  ", failure, now);
        } else if let Some(failure) = &informer.last_failure {
            let (ago, cause) = (span(now, failure.since), one_line(&failure.message));
            let _ = writeln!(
                text,
                "  it failed last {ago} ago ({}): {cause}",
                failure.class
            );
        }
        for (count, what) in [
            (
                informer.queued as u64,
                "changes on their way into the store",
            ),
            (informer.unreadable, "versions that did not decode"),
            (informer.stale, "lists and events older than what is known"),
            (informer.epochs, "times the server's history began anew"),
        ] {
            if count > 0 {
                let _ = writeln!(text, "  {count} {what}");
            }
        }
        for watch in &informer.watches {
            let synced = if watch.synced { "synced" } else { "NOT SYNCED" };
            let since = span(now, watch.since);
            let (scope, activity) = (&watch.scope, &watch.activity);
            let _ = writeln!(
                text,
                "  namespace {scope}: {synced}, {activity} for {since}"
            );
            if let Some(failure) = &watch.failure {
                failure_text(&mut text, "    ", failure, now);
            }
        }
        for handler in &informer.handlers {
            let synced = if handler.synced { "" } else { ", NOT SYNCED" };
            let _ = writeln!(
                text,
                "  handler {}: {} wait, {} delivered, {} dropped, {} panics{synced}",
                handler.name, handler.backlog, handler.delivered, handler.dropped, handler.panics
            );
        }
        if informer.quarantined > 0 {
            let _ = writeln!(text, "  {} objects cannot be read:", informer.quarantined);
        }
        for object in &informer.quarantined_objects {
            let _ = writeln!(text, "    {}  {}", object.key, one_line(&object.error));
        }
    }
    if reports.is_empty() {
        text.push_str("no informers\n");
    }
    text
}

fn failure_text(text: &mut String, indent: &str, failure: &FailureReport, now: Timestamp) {
    let _ = writeln!(
        text,
        "{indent}failing for {}, {} times ({}): {}",
        span(now, failure.since),
        failure.times,
        failure.class,
        one_line(&failure.message)
    );
}

/// From `earlier` to `later`, as `1m 5s`; `0s` if it is the other way round.
fn span(later: Timestamp, earlier: Timestamp) -> String {
    let length = later.duration_since(earlier).max(SignedDuration::ZERO);
    let unit = if length < SignedDuration::from_secs(10) {
        Unit::Millisecond
    } else {
        Unit::Second
    };
    let rounded = jiff::Span::try_from(length)
        .and_then(|span| span.round(SpanRound::new().smallest(unit).largest(Unit::Hour)));
    rounded.map_or_else(|_| format!("{length:#}"), |span| format!("{span:#}"))
}

/// Errors may have several lines.
fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_read_from_the_query_and_accept() {
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
            let wish = Wish::parse(query, accept).unwrap();
            assert_eq!(
                (wish.format, wish.limit),
                (format, limit),
                "{query} {accept}"
            );
        }
        for query in ["format=xml", "limit=-1", "limit=many", "lmit=3"] {
            assert!(Wish::parse(query, "").is_err(), "{query}");
        }
        let wish = Wish::parse("name=a%20b", "").unwrap();
        assert!(wish.is_for("a b") && !wish.is_for("a"));
    }

    #[test]
    fn names_do_not_become_markup() {
        let page = html("queues", "<script>alert(1)</script> & more");
        assert!(
            page.contains("&lt;script&gt;alert(1)&lt;/script&gt; &amp; more"),
            "{page}"
        );
    }

    #[test]
    fn spans_are_short() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (seconds, said) in [(0, "0s"), (5, "5s"), (65, "1m 5s"), (7 * 3600 + 1, "7h 1s")] {
            assert_eq!(span(at(seconds), at(0)), said);
        }
        assert_eq!(span(at(0), at(5)), "0s", "a clock that was set back");
    }
}
