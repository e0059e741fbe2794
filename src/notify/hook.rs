//! One request to a channel's URL, and what its HTTP status means for another attempt.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::StatusCode;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use jiff::Timestamp;
use jiff::tz::Offset;
use serde_json::Value;
use sha2::Sha256;

use super::{Error, Event, Markup, Notification, Template};
use crate::outbound::{self, Outbound};
use crate::secret::Secret;
use crate::time::Time;

/// Longest text of an answer in a message, in characters.
const LONGEST_ANSWER: usize = 120;

/// An answer with so many characters in a row of a URL's path or query is not shown.
const REPEATED: usize = 8;

/// How channels send: the HTTP client, the time, which is the API server's, and the zone of the times in their messages.
#[derive(Clone)]
pub struct Transport {
    /// The HTTP client.
    pub outbound: Arc<dyn Outbound>,
    /// The time of signatures, and of dates in `Retry-After`.
    pub time: Time,
    /// The zone of the times in messages.
    pub zone: Offset,
}

/// A place that takes messages by POST.
pub(super) struct Hook {
    /// The vendor, for messages.
    pub(super) vendor: &'static str,
    /// The URL: a secret, it often holds a token.
    url: Secret,
    transport: Transport,
}

/// The answer to a message that arrived.
pub(super) type Answer = http::Response<Bytes>;

// === impl Transport ===

impl Transport {
    /// The place at `url`.
    pub(super) fn hook(self, vendor: &'static str, url: Secret) -> Hook {
        Hook {
            vendor,
            url,
            transport: self,
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Transport")
            .field("zone", &self.zone)
            .finish_non_exhaustive()
    }
}

// === impl Hook ===

impl Hook {
    /// The time.
    pub(super) fn now(&self) -> Timestamp {
        self.transport.time.now()
    }

    /// The message of `template`, with times in the zone of the channel.
    pub(super) fn render(
        &self,
        template: &Template,
        notification: &Notification,
        markup: Markup,
    ) -> Value {
        template.render(notification, self.transport.zone, markup)
    }

    /// The data of a notification: of its template in `templates`, or all its facts.
    pub(super) fn data(
        &self,
        templates: &[(Event, Template)],
        notification: &Notification,
    ) -> Value {
        let mut templates = templates.iter();
        match templates.find(|(event, _)| *event == notification.event) {
            Some((_, template)) => self.render(template, notification, Markup::Plain),
            None => notification.document(),
        }
    }

    /// Posts `body` with `headers`; `query` is added to the URL.
    pub(super) async fn post(
        &self,
        query: &str,
        headers: &[(&'static str, String)],
        body: impl Into<Bytes>,
    ) -> Result<Answer, Error> {
        let url = self.url.expose();
        let joint = match (query.is_empty(), url.contains('?')) {
            (true, _) => "",
            (false, true) => "&",
            (false, false) => "?",
        };
        let mut request = http::Request::post(format!("{url}{joint}{query}"));
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        if !headers
            .iter()
            .any(|(name, _)| *name == CONTENT_TYPE.as_str())
        {
            request = request.header(CONTENT_TYPE, "application/json; charset=utf-8");
        }
        let request = request.body(body.into());
        let request = request.map_err(|_| {
            Error::Never(format!("the URL or a header for {} is wrong", self.vendor))
        })?;
        self.transport
            .outbound
            .send(request)
            .await
            .map_err(|error| {
                let why = format!("{} cannot be reached: {error}", self.vendor);
                match error {
                    outbound::Error::Url(_) | outbound::Error::Forbidden(_) => Error::Never(why),
                    _ => Error::Later { why, after: None },
                }
            })
    }

    /// The error of an answer whose status is not a success: time-outs, floods and faults of the server pass.
    pub(super) fn refused(&self, answer: &Answer) -> Error {
        let status = answer.status();
        let text = self.excerpt(answer.body());
        let why = format!("{} answered HTTP {}{text}", self.vendor, status.as_u16());
        let passes = status.is_server_error()
            || matches!(
                status,
                StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
            );
        if passes {
            let after = retry_after(answer, self.now());
            Error::Later { why, after }
        } else {
            Error::Never(why)
        }
    }

    /// The begin of an answer's text, for messages and logs. A text with a part of the URL, which a server may repeat, is
    /// left out: the URL holds a token.
    pub(super) fn excerpt(&self, text: &[u8]) -> String {
        let shown = excerpt(text);
        let url = self.url.expose();
        let path = url.split_once("://").map_or(url, |(_, rest)| rest);
        let path = path.find(['/', '?']).map_or("", |start| &path[start..]);
        let path: Vec<char> = path.to_lowercase().chars().collect();
        let said = shown.to_lowercase();
        let repeats = path.windows(REPEATED).any(|part| {
            let part: String = part.iter().collect();
            said.contains(&part)
        });
        if repeats {
            ": (an answer that repeats the URL)".to_owned()
        } else {
            shown
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Hook")
            .field("vendor", &self.vendor)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// The HMAC-SHA256 of `text` by `key`, in base64.
pub(super) fn hmac(key: &[u8], text: &[u8]) -> String {
    let signed = Hmac::<Sha256>::new_from_slice(key).map(|mut mac| {
        mac.update(text);
        BASE64.encode(mac.finalize().into_bytes())
    });
    // HMAC takes keys of any length.
    signed.unwrap_or_default()
}

/// The time until another attempt, in seconds or as a date.
fn retry_after(answer: &Answer, now: Timestamp) -> Option<Duration> {
    let value = answer.headers().get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
    Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
}

/// The begin of an answer's text.
fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text: String = text
        .chars()
        .filter(|c| !c.is_control())
        .take(LONGEST_ANSWER)
        .collect();
    if text.trim().is_empty() {
        String::new()
    } else {
        format!(": {}", text.trim())
    }
}

/// The facts in one line of at most `longest` characters before `markup`, for where a card does not fit.
pub(super) fn short_text(notification: &Notification, longest: usize, markup: Markup) -> String {
    let mut text = format!("{}:", notification.event.name());
    for part in [
        &notification.ip,
        &notification.reason,
        &notification.message,
    ] {
        if !part.is_empty() {
            text.push(' ');
            text.push_str(part);
        }
    }
    let text = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let text: String = text.take(longest).collect();
    let mut written = String::new();
    markup.write(&text, &mut written);
    written
}

#[cfg(test)]
pub(super) mod fake {
    use super::*;
    use crate::outbound::InProcess;
    use parking_lot::Mutex;

    /// The time of the channels.
    pub(in crate::notify) const NOW: &str = "2026-01-01T00:00:00Z";

    /// The requests that a fake server got.
    pub(in crate::notify) type Sent = Arc<Mutex<Vec<http::Request<Bytes>>>>;

    /// A server that gives one answer to all requests, and keeps them.
    pub(in crate::notify) fn server(
        status: u16,
        headers: &[(&'static str, &'static str)],
        text: &str,
    ) -> (Transport, Sent) {
        let sent = Sent::default();
        let (record, text, headers) = (Arc::clone(&sent), text.to_owned(), headers.to_vec());
        let outbound = InProcess::new(move |request| {
            record.lock().push(request);
            let mut answer = http::Response::builder().status(status);
            for (name, value) in &headers {
                answer = answer.header(*name, *value);
            }
            let answer = answer.body(Bytes::from(text.clone())).unwrap();
            async move { Ok(answer) }
        });
        (transport(outbound), sent)
    }

    /// A transport to `outbound`, at the begin of 2026.
    pub(in crate::notify) fn transport(outbound: InProcess) -> Transport {
        Transport {
            outbound: Arc::new(outbound),
            time: Time::new(reeve_clock::Clock::simulated(NOW.parse().unwrap(), 1)),
            zone: Offset::UTC,
        }
    }

    /// The body of the only request.
    pub(in crate::notify) fn body(sent: &Sent) -> serde_json::Value {
        let sent = sent.lock();
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].method(), http::Method::POST);
        serde_json::from_slice(sent[0].body()).expect("JSON")
    }

    /// One notification of each kind, with texts of an attacker.
    pub(in crate::notify) fn notifications() -> Vec<Notification> {
        use crate::notify::Event;
        let at: Timestamp = NOW.parse().unwrap();
        let ban = Notification {
            event: Event::Ban,
            at,
            ip: "2001:db8::7".into(),
            reason: format!(
                "<!channel> [x](http://evil.example) \"}} {}",
                "é".repeat(2000)
            ),
            source: "grafana".into(),
            by: "ops".into(),
            duration: "10m".into(),
            expires_at: Some("2026-01-01T00:10:00Z".parse().unwrap()),
            count: 2,
            message: "banned 2001:db8::7".into(),
            gateway: String::new(),
        };
        let resolve = Notification {
            event: Event::Resolve,
            message: "the ban of 2001:db8::7 is lifted".into(),
            ..ban.clone()
        };
        let common = Notification::common(at, "200 notifications in one. ".repeat(100));
        vec![ban, resolve, common]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(status: u16, headers: &[(&'static str, &'static str)], text: &str) -> Hook {
        let (transport, _) = fake::server(status, headers, text);
        transport.hook("Slack", Secret::new("https://hooks.example/canary"))
    }

    #[tokio::test(start_paused = true)]
    async fn the_status_says_whether_another_attempt_helps_and_when() {
        for (status, header, later) in [
            (429, "30", Some(Some(30))),
            (429, "Thu, 01 Jan 2026 00:01:00 GMT", Some(Some(60))),
            (429, "Wed, 31 Dec 2025 23:59:00 GMT", Some(Some(0))),
            (429, "soon", Some(None)),
            (503, "", Some(None)),
            (408, "", Some(None)),
            (400, "30", None),
            (404, "", None),
            (301, "", None),
        ] {
            let hook = hook(status, &[("retry-after", header)], "no_service");
            let answer = hook.post("", &[], "{}").await.unwrap();
            let error = hook.refused(&answer);
            assert!(error.to_string().contains("no_service"), "{error}");
            let expected = later.map(|after: Option<u64>| after.map(Duration::from_secs));
            match error {
                Error::Later { after, .. } => assert_eq!(Some(after), expected, "{status}"),
                Error::Never(_) => assert_eq!(expected, None, "{status}"),
            }
        }
    }

    #[tokio::test]
    async fn an_answer_that_repeats_the_url_or_a_part_of_it_is_not_shown() {
        let url = "https://hooks.example/services/T0/B0/canary-token?key=k3y-of-robot";
        for text in [
            format!("cannot POST {url}"),
            "Cannot POST /services/T0/B0/canary-token".to_owned(),
            "no webhook CANARY-TOKEN".to_owned(),
            "unknown key k3y-of-robot".to_owned(),
            // Cut in the middle of the token.
            format!("{}canary-token", "x".repeat(LONGEST_ANSWER - 8)),
        ] {
            let hook = Hook {
                url: Secret::new(url),
                ..hook(404, &[], &text)
            };
            let answer = hook.post("", &[], "{}").await.unwrap();
            let error = hook.refused(&answer).to_string();
            let shown = error.to_lowercase();
            assert!(
                !shown.contains("canary") && !shown.contains("k3y"),
                "{error}"
            );
            assert!(error.contains("HTTP 404"), "{error}");
        }
    }

    #[test]
    fn a_short_text_has_one_blank_between_its_parts() {
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        let common = Notification::common(at, "the gateway is away");
        let text = short_text(&common, 100, Markup::Plain);
        assert_eq!(text, "common: the gateway is away");
    }

    #[tokio::test]
    async fn a_query_is_added_to_the_url() {
        for (url, expected) in [
            ("https://a.example/x", "https://a.example/x?s=1"),
            ("https://a.example/x?t=2", "https://a.example/x?t=2&s=1"),
        ] {
            let (transport, sent) = fake::server(200, &[], "");
            let hook = transport.hook("X", Secret::new(url));
            hook.post("s=1", &[], "{}").await.unwrap();
            assert_eq!(sent.lock()[0].uri().to_string(), expected);
        }
        let (transport, _) = fake::server(200, &[], "");
        let wrong = transport.hook("X", Secret::new("not a url canary"));
        let error = wrong.post("", &[], "{}").await.unwrap_err();
        assert!(matches!(error, Error::Never(_)));
        assert!(!format!("{error} {wrong:?}").contains("canary"));
    }
}
