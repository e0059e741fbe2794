//! From the text of a file to entries: plain lists, CSV, JSON, and the decisions of CrowdSec.

use ipblock_operator::api::Phase;
use ipblock_operator::duration;
use ipblock_operator::target::{Quoted, Target};
use jiff::Timestamp;
use serde_json::Value;

use super::table::{Record, records};
use crate::command::import_format::Format;
use crate::command::{Length, lasting};

/// An entry of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its line; in JSON its number.
    pub(super) line: usize,
    /// The ban it asks for, or why it is none. `None`: a ban that is over.
    pub(super) item: Result<Option<Item>, String>,
}

/// A ban that a file asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) target: Target,
    /// The address as it is written.
    pub(super) raw: String,
    /// `None`: the file does not say.
    pub(super) length: Option<Length>,
    /// The end, if the file names it; `length` is in whole seconds then, counted from the reading of the file.
    pub(super) until: Option<Timestamp>,
    pub(super) reason: Option<String>,
    pub(super) tags: Vec<String>,
}

/// The fields of an entry, by whatever name the file gives them.
#[derive(Clone, Debug, Default)]
struct Fields {
    ip: Option<String>,
    duration: Option<String>,
    until: Option<String>,
    reason: Option<String>,
    /// The kind of a decision: `ban`, `captcha`.
    kind: Option<String>,
    /// What a decision is about: `Ip`, `Range`, `Country`.
    scope: Option<String>,
    tags: Vec<String>,
}

/// When a ban ends, as far as the file says.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    length: Option<Length>,
    /// If the file names it.
    until: Option<Timestamp>,
}

/// The names of a field in CSV and JSON: ours, and those of CrowdSec.
const NAMES: &[(&str, &[&str])] = &[
    ("ip", &["ip", "value", "address"]),
    ("duration", &["duration", "expiration"]),
    ("until", &["until"]),
    ("reason", &["reason", "scenario"]),
    ("kind", &["type", "action"]),
    ("scope", &["scope"]),
];

/// The columns of a file whose first line names none.
const COLUMNS: [&str; 3] = ["ip", "duration", "reason"];

/// The entries of `text`.
pub(super) fn read(text: &str, format: Format, now: Timestamp) -> Result<Vec<Entry>, String> {
    match format {
        Format::Auto => read(text, looks_like(text), now),
        Format::Plain => Ok(plain(text)
            .map(|(line, entry)| Entry {
                line,
                item: Fields {
                    ip: Some(entry.to_owned()),
                    ..Fields::default()
                }
                .item(now),
            })
            .collect()),
        Format::Csv => csv(text, now),
        Format::Json => json(text, now),
    }
}

/// The lines with an entry, and their numbers. `#` and `;` begin comments.
pub(crate) fn plain(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(place, line)| {
        let entry = line.split(['#', ';']).next().unwrap_or_default().trim();
        (!entry.is_empty()).then_some((place + 1, entry))
    })
}

fn looks_like(text: &str) -> Format {
    if text.trim_start().starts_with(['{', '[']) {
        return Format::Json;
    }
    let first = plain(text).next();
    match first {
        Some((_, line)) if line.contains(',') => Format::Csv,
        Some((_, line)) if field_of(line).is_some() => Format::Csv,
        _ => Format::Plain,
    }
}

/// The field that a column or a member is.
fn field_of(name: &str) -> Option<&'static str> {
    let name = name.trim().to_ascii_lowercase();
    let found = NAMES.iter().find(|(_, names)| names.contains(&&*name))?;
    Some(found.0)
}

// --- CSV

fn csv(text: &str, now: Timestamp) -> Result<Vec<Entry>, String> {
    let mut records = records(text)?;
    records.retain(|(_, record)| !record[0].starts_with(['#', ';']));
    let Some((_, first)) = records.first() else {
        return Ok(Vec::new());
    };
    let named = first.iter().any(|name| field_of(name) == Some("ip"));
    let columns: Vec<Option<&str>> = if named {
        first.iter().map(|name| field_of(name)).collect()
    } else {
        COLUMNS.map(Some).to_vec()
    };
    let body = &records[usize::from(named)..];
    Ok(body
        .iter()
        .map(|record| row(record, &columns, now))
        .collect())
}

fn row((line, record): &Record, columns: &[Option<&str>], now: Timestamp) -> Entry {
    let mut fields = Fields::default();
    for (column, value) in columns.iter().zip(record) {
        if let Some(column) = column {
            fields.set(column, value);
        }
    }
    Entry {
        line: *line,
        item: fields.item(now),
    }
}

// --- JSON

fn json(text: &str, now: Timestamp) -> Result<Vec<Entry>, String> {
    let document: Value =
        serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    let list = match &document {
        Value::Array(list) => list,
        Value::Object(object) => ["bans", "items", "decisions"]
            .iter()
            .find_map(|name| object.get(*name)?.as_array())
            .ok_or("it has none of the lists bans, items and decisions")?,
        // `cscli decisions list -o json` prints null when there are none.
        Value::Null => return Ok(Vec::new()),
        _ => return Err("a list is expected".to_owned()),
    };
    let mut entries = Vec::new();
    for element in list {
        // An alert of CrowdSec with its decisions.
        match element["decisions"].as_array() {
            Some(decisions) => entries.extend(decisions.iter().map(|one| member(one, now))),
            None => entries.push(member(element, now)),
        }
    }
    let numbered = entries.into_iter().enumerate();
    Ok(numbered
        .map(|(place, item)| Entry {
            line: place + 1,
            item,
        })
        .collect())
}

fn member(element: &Value, now: Timestamp) -> Result<Option<Item>, String> {
    if let Some(text) = element.as_str() {
        let mut fields = Fields::default();
        fields.set("ip", text);
        return fields.item(now);
    }
    if is_over(element, now) {
        return Ok(None);
    }
    // An IPBlock as kubectl prints it has its fields in the spec.
    let object = element["spec"].as_object().or_else(|| element.as_object());
    let object = object.ok_or("neither a text nor an object")?;
    let mut fields = Fields::default();
    for (name, value) in object {
        match (field_of(name), value) {
            (Some(field), Value::String(text)) => fields.set(field, text),
            // A number of seconds, or of nanoseconds, or a time: it is not guessed.
            (Some(field @ ("duration" | "until")), Value::Number(number)) => {
                return Err(format!(
                    "{field} is the number {number}: write it as a text, 24h or 2026-01-31T12:00:00Z"
                ));
            }
            (None, Value::Array(tags)) if name == "tags" => {
                let tags = tags.iter().filter_map(Value::as_str);
                fields.tags = tags.map(str::to_owned).collect();
            }
            _ => {}
        }
    }
    if element["spec"].is_object() {
        let end = element["status"]["expiresAt"].as_str();
        match end.filter(|_| element["spec"]["trigger"] != true) {
            // What is left of the ban, and not its whole length again.
            Some(end) => {
                fields.until = Some(end.to_owned());
                fields.duration = None;
            }
            None if fields.duration.is_none() => fields.duration = Some("forever".to_owned()),
            None => {}
        }
    }
    fields.item(now)
}

/// Whether an element is an IPBlock with a status that does not ban, and will not.
fn is_over(element: &Value, now: Timestamp) -> bool {
    let (spec, status) = (&element["spec"], &element["status"]);
    if !spec.is_object() {
        return false;
    }
    let phase = status["phase"].as_str().unwrap_or_default();
    let stands = ["", Phase::Active.as_str(), Phase::Pending.as_str()].contains(&phase);
    let end = status["expiresAt"].as_str().map(str::parse::<Timestamp>);
    let past = matches!(end, Some(Ok(end)) if end <= now);
    let triggered = spec["trigger"] == true;
    let deleting = element["metadata"]["deletionTimestamp"].is_string();
    deleting || spec["unblock"] == true || ((!stands || past) && !triggered)
}

// === impl Fields ===

impl Fields {
    /// Sets a field to a value that is not empty. The first value of a field counts.
    fn set(&mut self, field: &str, value: &str) {
        let place = match field {
            "ip" => &mut self.ip,
            "duration" => &mut self.duration,
            "until" => &mut self.until,
            "reason" => &mut self.reason,
            "kind" => &mut self.kind,
            "scope" => &mut self.scope,
            _ => return,
        };
        let value = value.trim();
        if !value.is_empty() {
            place.get_or_insert_with(|| value.to_owned());
        }
    }

    /// `None`: its time is over.
    fn item(mut self, now: Timestamp) -> Result<Option<Item>, String> {
        let ip = self.ip.take().ok_or("it has no address")?;
        // CrowdSec writes the scope before the value: Ip:192.0.2.7.
        let (scope, raw) = match ip.split_once(':') {
            Some((scope, value)) if is_scope(scope) => (Some(scope.to_owned()), value),
            _ => (self.scope.take(), ip.as_str()),
        };
        if let Some(scope) = scope
            && !matches!(&*scope.to_ascii_lowercase(), "ip" | "range")
        {
            return Err(format!(
                "the scope {} is neither Ip nor Range",
                Quoted::new(&scope)
            ));
        }
        if let Some(kind) = &self.kind
            && !kind.eq_ignore_ascii_case("ban")
        {
            return Err(format!("{} is not a ban", Quoted::new(kind)));
        }
        let target = raw.parse::<Target>().map_err(|error| error.to_string())?;
        let Some(End { length, until }) = self.end(now)? else {
            return Ok(None);
        };
        Ok(Some(Item {
            target,
            raw: raw.to_owned(),
            length,
            until,
            reason: self.reason,
            tags: self.tags,
        }))
    }

    /// The length of the ban, and its end if the file names one, which counts then: a length was written some time ago.
    /// `None`: it is over.
    fn end(&self, now: Timestamp) -> Result<Option<End>, String> {
        match (&self.duration, &self.until) {
            (_, Some(until)) => {
                let end: Timestamp = until
                    .parse()
                    .map_err(|_| format!("{} is not a time (RFC 3339)", Quoted::new(until)))?;
                let left = std::time::Duration::try_from(end.duration_since(now));
                let left = left.ok().filter(|left| !left.is_zero());
                Ok(left.map(|left| {
                    let whole = std::time::Duration::from_secs(duration::whole_seconds(left));
                    End {
                        length: Some(Length(Some(whole))),
                        until: Some(end),
                    }
                }))
            }
            (Some(text), None) if text.starts_with('-') => Ok(None),
            (Some(text), None) => Ok(Some(End {
                length: Some(lasting(text)?),
                until: None,
            })),
            (None, None) => Ok(Some(End::default())),
        }
    }
}

/// Whether the text before a colon is a scope of CrowdSec, and not the first group of an IPv6 address.
fn is_scope(text: &str) -> bool {
    text.len() > 1
        && text.chars().all(|letter| letter.is_ascii_alphabetic())
        && !text.chars().all(|letter| letter.is_ascii_hexdigit())
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
