//! The texts of a list.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_TYPE, DATE, ETAG, HeaderValue, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reeve_serve::http::Body;

use super::super::serve::in_pieces;
use super::super::set::{Entry, TargetSet, Until};
use super::history::{Content, Family};
use crate::inbound::Answer;
use crate::target::Target;

/// A list of at most so many targets is sent whole, with its length.
const WHOLE: usize = 4096;

/// How a list is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Format {
    /// One target a line.
    #[default]
    Plain,
    /// `deny TARGET;` lines.
    Nginx,
    /// JSON with ends.
    Json,
}

/// The list at one moment.
#[derive(Clone, Debug)]
pub(super) struct Page {
    pub(super) version: String,
    pub(super) set: TargetSet,
    pub(super) family: Family,
    /// The time that the ends are meant by: the `Date` of the answer.
    pub(super) now: Timestamp,
    /// The answer with what changed since the version that the reader has.
    pub(super) changes: Option<Bytes>,
}

// === impl Format ===

impl Format {
    /// What a version of this format is about.
    pub(super) fn content(self) -> Content {
        match self {
            Self::Json => Content::Entries,
            Self::Plain | Self::Nginx => Content::Targets,
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Plain | Self::Nginx => "text/plain; charset=utf-8",
        }
    }

    fn write(self, text: &mut String, entry: &Entry) {
        // Writing to a String does not fail.
        let _ = match self {
            Self::Plain => writeln!(text, "{}", entry.target),
            Self::Nginx => writeln!(text, "deny {};", entry.target),
            Self::Json => match entry.until.at() {
                Some(until) => write!(
                    text,
                    r#"{{"target":"{}","until":"{until:.0}"}}"#,
                    entry.target
                ),
                None => write!(text, r#"{{"target":"{}"}}"#, entry.target),
            },
        };
    }
}

// === impl Page ===

impl Page {
    /// The whole list, or the changes that the reader asks for; for a HEAD request only the header.
    pub(super) fn answer(self, format: Format, head: bool) -> Answer {
        let etag = format!("\"{}\"", self.version);
        let now = self.now;
        let body = if head {
            Body::whole(Bytes::new())
        } else if let Some(changes) = self.changes {
            Body::whole(changes)
        } else if self.set.len() <= WHOLE {
            let pieces: String = self.pieces(format).collect();
            Body::whole(pieces)
        } else {
            in_pieces(self.pieces(format))
        };
        let mut answer = Response::new(body);
        label(&mut answer, format.content_type(), &etag, now);
        answer
    }

    /// 304: the reader has this version.
    pub(super) fn unchanged(&self, format: Format) -> Answer {
        let mut answer = Response::new(Body::whole(Bytes::new()));
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        label(
            &mut answer,
            format.content_type(),
            &format!("\"{}\"", self.version),
            self.now,
        );
        answer.headers_mut().remove(CONTENT_TYPE);
        answer
    }

    /// The text in pieces of some kilobytes each.
    fn pieces(self, format: Format) -> impl Iterator<Item = String> + Send {
        let json = format == Format::Json;
        let head = json.then(|| format!(r#"{{"version":"{}","entries":["#, self.version));
        let tail = json.then(|| "]}".to_owned());
        let (set, family) = (self.set, self.family);
        let mut empty = true;
        let mut position = 0;
        let middle = std::iter::from_fn(move || {
            let part = set.part(position)?;
            position += 1;
            let mut text = String::with_capacity(part.len() * 24);
            for entry in part.iter().filter(|entry| family.has(&entry.target)) {
                if json && !std::mem::take(&mut empty) {
                    text.push(',');
                }
                format.write(&mut text, entry);
            }
            Some(text)
        });
        let pieces = head.into_iter().chain(middle).chain(tail);
        pieces.filter(|piece| !piece.is_empty())
    }
}

/// What changed between two versions.
pub(super) fn changes_text(
    since: &str,
    version: &str,
    changes: &BTreeMap<Target, Option<Until>>,
) -> String {
    let mut text = String::with_capacity(changes.len() * 64 + 128);
    // Versions and targets have no characters that JSON escapes. Writing to a String does not fail.
    let _ = write!(
        text,
        r#"{{"version":"{version}","since":"{since}","added":["#
    );
    let mut between = "";
    for (target, until) in changes {
        if let Some(until) = *until {
            text.push_str(between);
            between = ",";
            let target = *target;
            Format::Json.write(&mut text, &Entry { target, until });
        }
    }
    text.push_str(r#"],"removed":["#);
    between = "";
    for (target, _) in changes.iter().filter(|(_, until)| until.is_none()) {
        let _ = write!(text, r#"{between}"{target}""#);
        between = ",";
    }
    text.push_str("]}");
    text
}

/// Readers compute the time left of a ban from `Date`. Without this header the server writes the wall clock, which may be
/// wrong where the ends are right.
fn label(answer: &mut Answer, content_type: &'static str, etag: &str, now: Timestamp) {
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(VARY, HeaderValue::from_static("accept"));
    if let Ok(etag) = HeaderValue::from_str(etag) {
        headers.insert(ETAG, etag);
    }
    let date = rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&now);
    if let Some(date) = date.ok().and_then(|date| HeaderValue::try_from(date).ok()) {
        headers.insert(DATE, date);
    }
}
